"""
Chat templates: Jinja in a sandbox, with what transformers gives them.

A template comes with a model, from anywhere, so it runs in Jinja's sandbox: it reaches no attribute
that leads out of it, opens nothing and changes nothing. It is not limited in time or memory: one
that loops for long keeps its session busy for as long.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

import jinja2
from jinja2 import ext, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from cartridge_core.errors import BackendError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2.parser import Parser

__all__ = ["is_jinja", "render"]

_KEPT = 8
"""How many compiled templates are kept."""


class _RefusedError(Exception):
    """The template itself raised: these messages are not for it."""


class _Generation(ext.Extension):
    """Reads ``{% generation %}``, which marks a model's own words for training, as its content."""

    tags = {"generation"}  # noqa: RUF012 -- Jinja wants a set

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Give what is between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def is_jinja(template: str) -> bool:
    """Say whether a template writes anything; some files carry a name in its place."""
    return "{{" in template or "{%" in template


def render(
    template: str,
    messages: Sequence[Mapping[str, object]],
    tools: Sequence[Mapping[str, object]],
    *,
    bos: str,
    eos: str,
    of_request: bool,
) -> str:
    """
    Write messages as a model reads them, up to where its answer begins.

    Args:
        template: The Jinja text.
        messages: Each with ``role`` and ``content``, which is a text or a list of parts.
        tools: What the model may call, as `tools.definitions` gives them.
        bos: The text of the token that begins a sequence; empty where there is none.
        eos: The text of the token that ends one.
        of_request: Whether the template is the caller's, and not the model's.

    Raises:
        InvalidArgumentError: The template refuses the messages, or it is the caller's and broken.

        BackendError: The template is the model's, and broken.

    Source:
        Transformers, "Chat templates": the environment's settings and names.
    """
    try:
        return _compile(template).render(
            messages=messages,
            tools=list(tools) or None,
            documents=None,
            add_generation_prompt=True,
            bos_token=bos,
            eos_token=eos,
        )
    except _RefusedError as exc:
        arg, rule = "request.messages", f"what the chat template takes: {exc}"
        msg = f"{arg}: the chat template refuses them: {exc}"
        raise InvalidArgumentError(msg, arg=arg, value=list(messages), rule=rule) from exc
    except Exception as exc:  # a template may fail in any way
        raise _broken(template, exc, of_request=of_request) from exc


def _broken(template: str, exc: Exception, *, of_request: bool) -> Exception:
    line = f", line {exc.lineno}" if isinstance(exc, jinja2.TemplateSyntaxError) else ""
    what = f"{type(exc).__name__}{line}: {exc}"
    if not of_request:
        msg = f"the model's chat template fails ({what}); give another one in chat_template"
        return BackendError(msg)
    arg = "request.chat_template"
    msg = f"{arg}: it fails ({what})"
    return InvalidArgumentError(msg, arg=arg, value=template, rule="a Jinja chat template")


@lru_cache(maxsize=_KEPT)
def _compile(template: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[ext.loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(template)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON for a model; Jinja's own filter writes it for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _refuse(message: str) -> NoReturn:
    raise _RefusedError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
