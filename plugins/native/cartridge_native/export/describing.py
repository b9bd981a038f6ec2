"""The descriptor of an exported library: that of its cartridge, made to say the one cap."""

from __future__ import annotations

import json
import platform
import sys
from typing import TYPE_CHECKING, cast

from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import InvalidArgumentError, UnsupportedError
from cartridge_core.offers import NATIVE
from cartridge_native.export.serving import SERVES
from cartridge_native.model import coders_of
from cartridge_native.ports import is_structured, number_shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.capdefs import Cap
    from cartridge_core.descriptor import Port
    from cartridge_core.routing import Route
    from cartridge_core.urn import MediaUrn

__all__ = ["describe"]

_OF_PYTHON = ("backend", "base", "formats", "golden", "hooks", "isolation", "plugin", "schemes")
"""Attributes that say nothing of a library."""


def describe(route: Route, args: Mapping[str, object], id_: str) -> bytes:
    """
    Write the descriptor.

    Args:
        route: The cap of a cartridge.
        args: The arguments that are fixed, by name.
        id_: The library's.

    Raises:
        UnsupportedError: The cartridge is a library already, or its input is the model itself.

        InvalidArgumentError: The id is none or the cartridge's own, or an argument cannot be
            written as JSON.
    """
    base, cap, offer = route.offer.descriptor, route.cap, route.offer
    if offer.plugin == NATIVE:
        msg = f"{base.id} is a library already: copy its pack {offer.pack}"
        raise UnsupportedError(msg)
    if cap.main is not None and cap.main.pack:
        msg = f"{cap.urn} takes its model as input, and the model of a library is fixed"
        raise UnsupportedError(msg)
    if id_ == base.id:
        msg = f"id is {id_!r}, that of the cartridge itself; both are to be installed"
        raise InvalidArgumentError(msg, arg="id", value=id_)
    document = base.to_json()
    document["id"] = id_
    document["io"] = {
        "mode": base.mode.value,
        "input": _port(base.io.input, _taken(cap), document, "input"),
        "output": _port(base.io.output, cap.urn.out, document, "output"),
    }
    document["target"] = {**_block(document, "target"), "abi": platform.machine()}
    requirements = {**_block(document, "requirements"), "os": {"name": sys.platform}}
    if "model_spec" in args:
        # What the cartridge's own model needs says nothing of this one.
        requirements.pop("memory_mb", None)
    document["requirements"] = requirements
    document["performance"] = {"measured_on": "unmeasured"}
    if "quality" in document:
        document["quality"] = {"unmeasured": True, "harness": "cartridge check"}
    document.pop("model", None)
    document.pop("flavors", None)
    attributes = _block(document, "attributes")
    for name in _OF_PYTHON:
        attributes.pop(name, None)
    caps = cast("list[dict[str, object]]", attributes["caps"])
    attributes["caps"] = [_with_main_alone(caps[base.caps.index(cap)], cap)]
    attributes[SERVES] = {"cartridge_id": base.id, "args": dict(args)}
    if offer.pack is not None:
        attributes[SERVES] = {**_block(attributes, SERVES), "pack": str(offer.pack.absolute())}
    try:
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as exc:
        msg = f"an argument that is fixed must be JSON: {exc}"
        raise InvalidArgumentError(msg, rule="JSON") from exc
    coders_of(Descriptor.from_json(text, where="descriptor"))
    return text.encode()


def _block(document: Mapping[str, object], name: str) -> dict[str, object]:
    return cast("dict[str, object]", document.get(name) or {})


def _taken(cap: Cap) -> MediaUrn | None:
    return None if cap.main is None else cap.main.stdin or cap.main.media_urn


def _with_main_alone(document: dict[str, object], cap: Cap) -> dict[str, object]:
    """Leave out the arguments that are fixed; the input is one item, as the port says."""
    args = cast("list[dict[str, object]]", document.get("args", []))
    name = None if cap.main is None else cap.main.name
    document["args"] = [arg for arg in args if arg["name"] == name]
    for arg in cast("list[dict[str, object]]", document["args"]):
        arg.pop("is_sequence", None)
    return document


def _port(
    declared: Port, media: MediaUrn | None, document: Mapping[str, object], name: str
) -> dict[str, object]:
    """
    Say what the bytes of a port are.

    A cartridge's ``io`` describes its first cap, and of a record what is best in it: where that is
    no array that bytes can carry, the media URN decides.
    """
    if media is None:
        return {"dtype": "bytes"}
    fmt = media.tags.get("fmt")
    if declared.dtype == "json" or media.has("record") or fmt in {"json", "ndjson"}:
        return {"dtype": "json"}
    if media.has("enc") and not is_structured(media):
        return {"dtype": "utf8"}
    shape = number_shape(declared)
    if shape is not None and shape.count(None) <= 1:
        return _block(_block(document, "io"), name)
    return {"dtype": "json" if is_structured(media) else "bytes"}
