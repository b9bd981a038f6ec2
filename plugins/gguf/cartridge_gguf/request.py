"""The generation request: one record, read."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_gguf import constraint as constraints
from cartridge_gguf.sampling import Sampling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cartridge_gguf.constraint import Constraint

__all__ = ["Request"]

_SYSTEM = "system"


@attrs.frozen(kw_only=True)
class Request:
    """What to write, and how."""

    prompt: str | None
    """A text to answer, or to go on with where the model has no chat template."""

    messages: tuple[Mapping[str, str], ...] | None
    """A chat, each with ``role`` and ``content``; None where there is a prompt."""

    system_prompt: str | None
    """Goes before the chat; None also where it was blank."""

    chat_template: str | None
    """Used in place of the model's own."""

    stops: tuple[str, ...]
    max_tokens: int

    is_clamped: bool
    """Whether an answer that does not fit into the context is cut, and not an error."""

    sampling: Sampling
    constraint: Constraint | None
    request_id: str | None

    @classmethod
    def read(cls, fields: Mapping[str, object], *, is_constrained: bool) -> Request:
        """
        Take a record as the host gives it, checked and with defaults filled in.

        Args:
            fields: The record.
            is_constrained: Whether it must say a constraint.

        Raises:
            InvalidArgumentError: Fields do not go together, a text is no Unicode, the record nests
                too deep, or the constraint is missing or wrong.
        """
        try:
            _check_unicode(fields, "request")
        except RecursionError:
            arg, rule = "request", "a record that does not nest so deep"
            msg = f"{arg}: nests too deep; it must be {rule}"
            raise InvalidArgumentError(msg, arg=arg, rule=rule) from None
        constraint = _constraint(fields)
        if is_constrained and constraint is None:
            arg, rule = "request.constraint", "given, or grammar or json_schema in its place"
            msg = f"{arg}: this cap writes under a constraint, and none is given; it must be {rule}"
            raise InvalidArgumentError(msg, arg=arg, rule=rule)
        return cls(
            prompt=cast("str | None", fields.get("prompt")),
            messages=_messages(fields),
            system_prompt=_system_prompt(fields),
            chat_template=_chat_template(fields),
            stops=tuple(cast("Sequence[str]", fields.get("stop_sequences", ()))),
            max_tokens=cast("int", fields["max_tokens"]),
            is_clamped=fields["overflow"] == "clamp",
            sampling=_sampling(fields, constraint),
            constraint=constraint,
            request_id=cast("str | None", fields.get("request_id")),
        )

    @property
    def tools(self) -> Sequence[Mapping[str, object]]:
        """What the model must call one of, as a chat template is shown it; empty for none."""
        return () if self.constraint is None else self.constraint.tools

    @property
    def chat(self) -> list[Mapping[str, str]]:
        """The messages for a chat template: a prompt is a user's, the system prompt comes first."""
        chat = list(self.messages or ())
        if self.prompt is not None:
            chat = [{"role": "user", "content": self.prompt}]
        if self.system_prompt is not None:
            chat.insert(0, {"role": _SYSTEM, "content": self.system_prompt})
        return chat


def _constraint(fields: Mapping[str, object]) -> Constraint | None:
    try:
        return constraints.read(fields)
    except InvalidArgumentError as exc:
        msg, arg = f"request.{exc}", f"request.{exc.arg}"
        raise InvalidArgumentError(msg, arg=arg, value=exc.value, rule=exc.rule) from exc


def _messages(fields: Mapping[str, object]) -> tuple[Mapping[str, str], ...] | None:
    messages = cast("Sequence[Mapping[str, str]] | None", fields.get("messages"))
    if (messages is None) == ("prompt" not in fields):
        arg = "request.prompt"
        found = "neither is" if messages is None else "both are"
        msg = f"{arg}: give prompt, or messages for a chat; {found} given"
        raise InvalidArgumentError(msg, arg=arg, value=fields.get("prompt"), rule="one of the two")
    return None if messages is None else tuple(dict(message) for message in messages)


def _system_prompt(fields: Mapping[str, object]) -> str | None:
    text = cast("str", fields.get("system_prompt", ""))
    if not text.strip():
        return None
    messages = cast("Sequence[Mapping[str, str]]", fields.get("messages", ()))
    if any(message["role"] == _SYSTEM for message in messages):
        arg, rule = "request.system_prompt", "absent where messages have one of role system"
        msg = f"{arg}: must be {rule}; say it in one place"
        raise InvalidArgumentError(msg, arg=arg, value=text, rule=rule)
    return text


def _chat_template(fields: Mapping[str, object]) -> str | None:
    text = cast("str | None", fields.get("chat_template"))
    if text is not None and "{{" not in text and "{%" not in text:
        arg, rule = "request.chat_template", "a Jinja text that writes the messages"
        msg = f"{arg}: must be {rule}, as in {{{{ messages[0].content }}}}; found {text!r}"
        raise InvalidArgumentError(msg, arg=arg, value=text, rule=rule)
    return text


def _sampling(fields: Mapping[str, object], constraint: Constraint | None) -> Sampling:
    return Sampling(
        temperature=float(cast("float", fields["temperature"])),
        top_k=cast("int", fields["top_k"]),
        top_p=float(cast("float", fields["top_p"])),
        min_p=float(cast("float", fields["min_p"])),
        seed=cast("int", fields["seed"]),
        repeat_penalty=float(cast("float", fields["repeat_penalty"])),
        grammar=None if constraint is None else constraint.grammar,
    )


def _check_unicode(value: object, where: str) -> None:
    """Refuse half a surrogate pair, which no model can be told."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as exc:
            rule = "Unicode text"
            msg = f"{where}: must be {rule}; character {exc.start} is half a surrogate pair"
            raise InvalidArgumentError(msg, arg=where, value=value, rule=rule) from exc
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_unicode(item, f"{where}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_unicode(key, where)
            _check_unicode(item, f"{where}.{key}")
