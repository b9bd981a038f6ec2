"""
Cap definitions: what a cap is called, takes and gives.

The form is CapDAG's; what is ours sits in an argument's open ``metadata``: ``schema`` is the
argument's rule, ``pack`` marks the model spec, ``scope`` says when it takes effect.

Source: CapDAG, cap definitions, rules 1-15 and 17-22.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import attrs

from cartridge_core.capparts import Arg, Output, Source
from cartridge_core.capreading import read_arg, read_output
from cartridge_core.caprules import check_args, check_outputs, find_main_arg
from cartridge_core.errors import UrnError
from cartridge_core.jsondata import at, freeze, refusal
from cartridge_core.jsonfields import Fields
from cartridge_core.urn import CapUrn

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Arg", "Cap", "Output", "Source", "read_cap", "read_caps", "whole_io"]

_CAP_KEYS = frozenset(
    {"urn", "title", "aliases", "abstract", "version", "cap_description", "documentation", "dims"}
    | {"args", "outputs", "metadata", "metadata_json", "registered_by"}
    | {"supported_model_types", "default_model_spec"}
)
_SECONDS = re.compile(r"[1-9][0-9]{0,8}")


@attrs.frozen
class Cap:
    """One capability as its cartridge declares it."""

    urn: CapUrn
    title: str

    aliases: tuple[str, ...] = attrs.field(kw_only=True)
    """Its short names, at least one."""

    args: tuple[Arg, ...] = attrs.field(default=(), kw_only=True)
    outputs: tuple[Output, ...] = attrs.field(default=(), kw_only=True)
    description: str | None = attrs.field(default=None, kw_only=True)
    documentation: str | None = attrs.field(default=None, kw_only=True)
    version: int = attrs.field(default=0, kw_only=True)

    abstract: bool = attrs.field(default=False, kw_only=True)
    """An umbrella over other caps; no cartridge offers it."""

    activity_timeout_s: float | None = attrs.field(default=None, kw_only=True)
    """Seconds without a sign of life that end a call; None takes the host's."""

    metadata: Mapping[str, object] = attrs.field(factory=dict, kw_only=True, hash=False)
    """Texts by key."""

    metadata_json: object = attrs.field(default=None, kw_only=True, hash=False)
    """Whatever else the author says; frozen JSON."""

    main: Arg | None = attrs.field(init=False, eq=False, repr=False)
    """The main input, whose stdin source is equivalent to ``in=``; None for ``media:void``."""

    pack_arg: Arg | None = attrs.field(init=False, eq=False, repr=False)
    """The argument that says which model; it may be the main input."""

    open_args: tuple[Arg, ...] = attrs.field(init=False, eq=False, repr=False)
    """What takes effect at load, without the main input and the pack argument."""

    session_args: tuple[Arg, ...] = attrs.field(init=False, eq=False, repr=False)
    """The others, without the main input and the pack argument."""

    @main.default
    def _main(self) -> Arg | None:
        return find_main_arg(self.urn, self.args)

    @pack_arg.default
    def _pack_arg(self) -> Arg | None:
        return next((arg for arg in self.args if arg.pack), None)

    @open_args.default
    def _open_args(self) -> tuple[Arg, ...]:
        return tuple(arg for arg in self._knobs() if arg.scope == "open")

    @session_args.default
    def _session_args(self) -> tuple[Arg, ...]:
        return tuple(arg for arg in self._knobs() if arg.scope == "session")

    def _knobs(self) -> tuple[Arg, ...]:
        return tuple(arg for arg in self.args if arg is not self.main and not arg.pack)

    def arg(self, name: str) -> Arg | None:
        """Find an argument by its name."""
        return next((arg for arg in self.args if arg.name == name), None)


def read_cap(value: object, where: str) -> Cap:
    """
    Read one cap definition.

    Args:
        value: The definition, a frozen JSON value.
        where: Its place.

    Raises:
        InvalidArgumentError: It breaks a rule, or has an unknown key; the message starts with
            the place.
    """
    fields = Fields(value, where, _CAP_KEYS)
    cap = Cap(
        _urn(fields),
        fields.text("title"),
        aliases=_aliases(fields),
        args=tuple(read_arg(*item) for item in fields.items("args")),
        outputs=tuple(read_output(*item) for item in fields.items("outputs")),
        description=fields.optional(fields.prose, "cap_description"),
        documentation=fields.optional(fields.prose, "documentation"),
        version=fields.optional(fields.integer, "version", 0) or 0,
        abstract=fields.flag("abstract"),
        activity_timeout_s=_activity_timeout(fields),
        metadata=fields.mapping("metadata"),
        metadata_json=fields.data.get("metadata_json"),
    )
    _check_provenance(fields)
    check_args(cap.urn, cap.args, fields.at("args"))
    check_outputs(cap.urn, cap.outputs, fields.at("outputs"))
    return cap


def _urn(fields: Fields) -> CapUrn:
    text = fields.text("urn")
    try:
        return CapUrn.parse(text)
    except UrnError as exc:
        raise refusal(fields.at("urn"), f"is no cap URN: {exc}") from exc


def _aliases(fields: Fields) -> tuple[str, ...]:
    fields.value("aliases")
    aliases = fields.texts("aliases")
    if not aliases:
        raise refusal(fields.at("aliases"), "must name at least one alias (CapDAG RULE13)")
    return aliases


def _activity_timeout(fields: Fields) -> float | None:
    metadata = Fields(fields.mapping("metadata"), fields.at("metadata"))
    for key, value in metadata.data.items():
        if not isinstance(value, str):
            raise metadata.refusal(key, "must be a string; metadata_json takes other values")
    what = "whole seconds above 0, as text"
    text = metadata.optional(metadata.matching, "activity_timeout_secs", _SECONDS, what)
    return None if text is None else float(text)


def _check_provenance(fields: Fields) -> None:
    """Check what a definition says of its origin; the host has no use for it."""
    for value, where in fields.items("dims"):
        dim = Fields(value, where, frozenset({"dim", "value"}))
        dim.text("dim")
        dim.text("value")
    if "registered_by" in fields.data:
        keys = frozenset({"username", "registered_at"})
        origin = Fields(fields.data["registered_by"], fields.at("registered_by"), keys)
        origin.text("username")
        origin.text("registered_at")
    fields.texts("supported_model_types")
    fields.optional(fields.text, "default_model_spec")


@functools.cache
def whole_io() -> Cap:
    """Give what a cartridge without caps does when it is opened by its id: all that its io says."""
    media = "media:"
    main = {
        "name": "input",
        "media_urn": media,
        "required": False,
        "sources": [{"stdin": media}, {"position": 0}],
    }
    output = {"media_urn": media, "name": "result", "output_description": "What io.output says."}
    document = {
        "urn": f"cap:by-id;in={media};out={media}",
        "title": "What io says",
        "aliases": ["by-id"],
        "args": [main],
        "outputs": [output],
    }
    return read_cap(freeze(document, "$"), "$")


def read_caps(fields: Fields, name: str) -> tuple[Cap, ...]:
    """
    Take the caps of one cartridge from a field.

    Raises:
        InvalidArgumentError: A cap breaks a rule, or two of them clash: the same cap or alias
            twice, other open arguments, another pack argument.
    """
    caps: list[Cap] = []
    for document, where in fields.items(name):
        cap = read_cap(document, where)
        if cap.abstract:
            raise refusal(at(where, "abstract"), "no cartridge offers an abstract cap")
        for earlier in caps:
            _check_agreement(earlier, cap, where)
        caps.append(cap)
    return tuple(caps)


def _check_agreement(one: Cap, two: Cap, where: str) -> None:
    """Refuse two caps of one cartridge that clash, or that would need two loads."""
    if one.urn.is_equivalent(two.urn):
        raise refusal(at(where, "urn"), "this cap is declared twice", str(two.urn))
    for alias in two.aliases:
        if alias in one.aliases:
            raise refusal(at(where, "aliases"), f"{alias!r} is an alias of {one.urn} too")
    ours, theirs = _load_rules(two.open_args), _load_rules(one.open_args)
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            rule = f"{two.urn} and {one.urn} differ in the open argument {name!r}"
            raise refusal(at(where, "args"), f"{rule}; all caps of a cartridge declare the same")
    if not _is_same_pack(one.pack_arg, two.pack_arg):
        rule = f"{two.urn} and {one.urn} differ in the pack argument"
        raise refusal(at(where, "args"), f"{rule}; all caps of a cartridge declare the same")


def _load_rules(args: tuple[Arg, ...]) -> dict[str, tuple[object, ...]]:
    return {
        arg.name: (arg.media_urn, arg.required, arg.has_default, arg.default, arg.schema)
        for arg in args
    }


def _is_same_pack(one: Arg | None, two: Arg | None) -> bool:
    """Compare what decides on the pack; a required main input may leave the default out."""
    if one is None or two is None:
        return True
    defaults_differ = one.has_default and two.has_default and one.default != two.default
    return one.media_urn == two.media_urn and one.schema == two.schema and not defaults_differ
