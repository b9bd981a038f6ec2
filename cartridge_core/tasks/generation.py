"""Texts that a model writes, of a request or of a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from cartridge_core.calls import check_listener
from cartridge_core.errors import InvalidArgumentError
from cartridge_core.results import Result, ResultKind
from cartridge_core.tasks._records import record_with

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.calls import Call
    from cartridge_core.progress import Log, Progress
    from cartridge_core.registry import Registry

    Picture = str | os.PathLike[str] | bytes | NDArray[np.generic]

__all__ = [
    "Generation",
    "describe_image",
    "generate_text",
    "stream_text",
]

_DESCRIBE = 'cap:describe-image;in=media:image;out="media:enc=utf-8;image-description"'
_REQUEST = 'in="media:fmt=json;llm-generation-request;record"'
_TEXT = 'out="media:fmt=ndjson;llm-text-stream"'
_GENERATE = f"cap:llm;llm-inference;ml-model;{_REQUEST};{_TEXT}"
_CONSTRAINED = f"cap:constrained;llm;llm-inference-constrained;ml-model;{_REQUEST};{_TEXT}"
_CONSTRAINTS = frozenset({"grammar", "json_schema", "constraint"})


@attrs.frozen
class Generation:
    """A written text."""

    text: str

    finish_reason: str = attrs.field(kw_only=True)
    """``stop``, ``length`` or ``constraint_satisfied``."""

    record: Mapping[str, object] = attrs.field(kw_only=True, repr=False)
    """Everything the cartridge said: counts of tokens, a parsed value, a tool call."""


def describe_image(
    registry: Registry,
    image: Picture,
    *,
    prompt: str | None = None,
    max_tokens: int | None = None,
    model_spec: str | os.PathLike[str] | None = None,
    cartridge_id: str | None = None,
    on_progress: Callable[[Progress | Log], None] | None = None,
) -> Generation:
    """
    Describe a picture.

    Args:
        registry: Where to ask.
        image: A path, the bytes of a file, or an array.
        prompt: What to say about it, or how the text begins, as the cartridge takes it; None
            takes the cartridge's default.
        max_tokens: How long the text may be; None takes the cartridge's default.
        model_spec: The model; None takes the cartridge's default.
        cartridge_id: Take this cartridge; None lets the registry choose.
        on_progress: Takes progress and log lines.

    Raises:
        CartridgeError: As `Registry.call`.
    """
    result = registry.call(
        _DESCRIBE,
        image,
        cartridge_id=cartridge_id,
        on_progress=on_progress,
        model_spec=model_spec,
        prompt=prompt,
        max_tokens=max_tokens,
    )
    return _generation(result)


def generate_text(
    registry: Registry,
    prompt: str | Sequence[Mapping[str, str]],
    *,
    model_spec: str | os.PathLike[str] | None = None,
    cartridge_id: str | None = None,
    on_progress: Callable[[Progress | Log], None] | None = None,
    **fields: object,
) -> Generation:
    """
    Write an answer.

    Args:
        registry: Where to ask.
        prompt: A text, or a chat: messages with ``role`` and ``content``.
        model_spec: The model; None takes the cartridge's default.
        cartridge_id: Take this cartridge; None lets the registry choose.
        on_progress: Takes progress and log lines.
        **fields: More of the request: ``max_tokens``, ``temperature``, ``stop_sequences``, ...;
            with ``grammar``, ``json_schema`` or ``constraint``, a cap is asked that must keep it.

    Raises:
        CartridgeError: As `Registry.call`.
    """
    cap, request = _request(prompt, fields)
    result = registry.call(
        cap, request, cartridge_id=cartridge_id, on_progress=on_progress, model_spec=model_spec
    )
    return _generation(result)


def _generation(result: Result) -> Generation:
    record = record_with(result, "generated_text")
    text, reason = str(record["generated_text"]), str(record.get("finish_reason", ""))
    return Generation(text, finish_reason=reason, record=record)


def stream_text(
    registry: Registry,
    prompt: str | Sequence[Mapping[str, str]],
    *,
    model_spec: str | os.PathLike[str] | None = None,
    cartridge_id: str | None = None,
    on_progress: Callable[[Progress | Log], None] | None = None,
    **fields: object,
) -> Generator[str]:
    """
    Write an answer, and give its text as it comes; joined, the pieces are the text.

    Closing the iterator, or dropping it, cancels what is left.

    Args:
        registry: Where to ask.
        prompt: A text, or a chat: messages with ``role`` and ``content``.
        model_spec: The model; None takes the cartridge's default.
        cartridge_id: Take this cartridge; None lets the registry choose.
        on_progress: Takes progress and log lines.
        **fields: More of the request, as `generate_text` takes it.

    Raises:
        CartridgeError: As `Registry.stream`, at once or from the iterator.
    """
    check_listener(on_progress)
    cap, request = _request(prompt, fields)
    call = registry.stream(cap, request, cartridge_id=cartridge_id, model_spec=model_spec)
    return _pieces(call, on_progress)


def _request(
    prompt: str | Sequence[Mapping[str, str]], fields: Mapping[str, object]
) -> tuple[str, dict[str, object]]:
    """Give the cap to ask for, and the request record."""
    request = {name: value for name, value in fields.items() if value is not None}
    if isinstance(prompt, str):
        request["prompt"] = prompt
    elif isinstance(prompt, list | tuple) and all(isinstance(one, Mapping) for one in prompt):
        request["messages"] = [dict(message) for message in prompt]
    else:
        rule = "a text, or a list of messages with role and content"
        msg = f"prompt: must be {rule}, found {type(prompt).__name__}"
        raise InvalidArgumentError(msg, arg="prompt", value=prompt, rule=rule)
    return _CONSTRAINED if request.keys() & _CONSTRAINTS else _GENERATE, request


def _pieces(call: Call, on_progress: Callable[[Progress | Log], None] | None) -> Generator[str]:
    """Give the pieces of a text; all of it at once, where a cartridge gives no pieces."""
    has_begun = False
    with call:
        for event in call:
            if not isinstance(event, Result):
                if on_progress is not None:
                    on_progress(event)
            elif event.kind is ResultKind.PARTIAL:
                has_begun = True
                yield str(event.payload)
            elif not has_begun:
                yield str(record_with(event, "generated_text")["generated_text"])
