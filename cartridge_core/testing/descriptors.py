"""Build small valid descriptors, for plugins that exist only in a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cartridge_core.descriptor import Descriptor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


__all__ = ["fake_arg", "fake_cap", "fake_descriptor"]

_MARKERS = {
    "boolean": "bool;enc=utf-8",
    "integer": "integer;numeric",
    "number": "numeric",
    "string": "enc=utf-8",
}


def fake_arg(
    name: str,
    kind: Literal["boolean", "integer", "number", "string"],
    default: object = None,
    *,
    scope: Literal["open", "session"] = "session",
    **schema: object,
) -> dict[str, object]:
    """
    Give the definition of an argument that is not the main one.

    Args:
        name: A Python identifier.
        kind: What a value is, in JSON Schema's words.
        default: Its declared default; None declares none.
        scope: Whether it takes effect at open or in a session.
        **schema: More keywords of its schema.
    """
    definition: dict[str, object] = {
        "name": name,
        "media_urn": f"media:{name.replace('_', '-')};{_MARKERS[kind]}",
        "required": False,
        "sources": [{"cli_flag": f"--{name.replace('_', '-')}"}],
        "metadata": {"scope": scope, "schema": {"type": kind, **schema}},
    }
    return definition if default is None else {**definition, "default_value": default}


def fake_cap(
    op: str,
    *args: Mapping[str, object],
    takes: str = "media:enc=utf-8",
    gives: str = "media:echo;enc=utf-8;record",
    streaming: bool = False,
) -> dict[str, object]:
    """
    Give the definition of a cap ``cap:<op>;in=<takes>;out=<gives>``.

    Args:
        op: The marker that names it.
        *args: Its arguments besides the main one, which is called ``main``.
        takes: Media URN of the main argument; ``media:void`` for none.
        gives: Media URN of the output.
        streaming: Whether the main argument may be given in chunks.
    """
    main = {
        "name": "main",
        "media_urn": takes,
        "required": True,
        "streaming": streaming,
        "sources": [{"stdin": takes}, {"position": 0}],
    }
    return {
        "urn": f'cap:{op};in="{takes}";out="{gives}"',
        "title": op,
        "aliases": [op],
        "args": list(args) if takes == "media:void" else [main, *args],
        "outputs": [{"media_urn": gives, "name": "result", "output_description": "The result."}],
    }


def fake_descriptor(
    cartridge_id: str,
    mode: Literal["batch", "streaming"] = "batch",
    caps: Sequence[Mapping[str, object]] = (),
    **attributes: object,
) -> Descriptor:
    """
    Build a valid descriptor.

    Args:
        cartridge_id: Its id; starts with the name of its plugin.
        mode: Its ``io.mode``.
        caps: Definitions as `fake_cap` gives them; none gives one cap ``cap:echo``.
        **attributes: Go into the descriptor's ``attributes``, in place of the usual ones.

    Raises:
        InvalidArgumentError: It would not be valid.
    """
    declared = list(caps) or [fake_cap("echo", streaming=mode == "streaming")]
    usual = {"abi": "0.1", "hooks": 1, "max_concurrent_sessions": 8, "caps": declared}
    return Descriptor.from_json(
        {
            "spec_version": "0.3",
            "id": cartridge_id,
            "version": "0.1.0",
            "family": "fake",
            "modality": "text",
            "task": "echo",
            "io": {"mode": mode, "input": {"dtype": "utf8"}, "output": {"dtype": "utf8"}},
            "target": {"hardware": "any", "abi": "any"},
            "performance": {"measured_on": "unmeasured"},
            "execution_mode": "native",
            "license": "MIT",
            "attributes": {**usual, **attributes},
        }
    )
