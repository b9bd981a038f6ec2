"""
The descriptor: what a cartridge offers and needs, as data.

Source: Cartridge ABI 0.1, descriptor schema; what is ours sits in its open ``attributes``.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, cast

import attrs

from cartridge_core.blocks import (
    Backend,
    Io,
    IoMode,
    Port,
    Requirements,
    Target,
    read_backend,
    read_flavors,
    read_io,
    read_model,
    read_performance,
    read_quality,
    read_requirements,
    read_target,
)
from cartridge_core.capdefs import Arg, Cap, read_caps
from cartridge_core.errors import LoadError
from cartridge_core.jsondata import freeze, read_json, refusal, thaw
from cartridge_core.jsonfields import Fields
from cartridge_core.versions import SEMVER

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "HOOKS_VERSION",
    "Backend",
    "Descriptor",
    "Io",
    "IoMode",
    "Isolation",
    "Port",
    "Requirements",
    "Target",
    "read_descriptors",
]

HOOKS_VERSION = 1
"""The number of the contract that `hookspecs` is; a descriptor says for which it was written."""

Isolation = Literal["inline", "process"]

_KEYS = frozenset(
    {"spec_version", "id", "version", "family", "modality", "task", "io", "target", "performance"}
    | {"execution_mode", "license", "quality", "model", "requirements", "attributes", "flavors"}
)
_KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ABI = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)", re.ASCII)
_LOAD_TIMEOUT_S = 600.0
_SPEC_VERSIONS = ("0.3", "0.4")
_MODALITIES = ("audio", "image", "text", "video", "sensor")
_TIERS: tuple[Literal["native", "eager"], ...] = ("native", "eager")
_ISOLATIONS: tuple[Isolation, ...] = ("inline", "process")
_PARTIALS: tuple[Literal["replace", "append"], ...] = ("replace", "append")
_ENDPOINTINGS: tuple[Literal["none", "signal", "semantic"], ...] = ("none", "signal", "semantic")


@attrs.frozen(eq=False, repr=False)
class Descriptor:
    """One cartridge's descriptor; equal to another where the two are equal as JSON."""

    id: str
    version: str
    spec_version: str = attrs.field(kw_only=True)
    family: str = attrs.field(kw_only=True)
    modality: str = attrs.field(kw_only=True)
    task: str = attrs.field(kw_only=True)
    io: Io = attrs.field(kw_only=True)
    target: Target = attrs.field(kw_only=True)
    performance: Mapping[str, object] = attrs.field(kw_only=True)

    execution_mode: Literal["native", "eager"] = attrs.field(kw_only=True)
    """``eager`` is the portable reference; routing takes ``native`` before it."""

    license: str = attrs.field(kw_only=True)
    quality: Mapping[str, object] | None = attrs.field(kw_only=True)
    model: Mapping[str, object] | None = attrs.field(kw_only=True)
    requirements: Requirements = attrs.field(kw_only=True)

    flavors: tuple[Mapping[str, object], ...] = attrs.field(kw_only=True)
    """Variants; a field that is present replaces the descriptor's whole field."""

    attributes: Mapping[str, object] = attrs.field(kw_only=True)
    """All of them as frozen JSON, those that the fields below are read from too."""

    caps: tuple[Cap, ...] = attrs.field(kw_only=True)
    """What can be routed to it; empty for a cartridge that is opened by id alone."""

    abi: str | None = attrs.field(kw_only=True)
    """Version of the Cartridge ABI it was written for, ``major.minor``."""

    hooks: int | None = attrs.field(kw_only=True)
    """Number of the hook contract it was written for."""

    isolation: Isolation = attrs.field(kw_only=True)
    """Where it runs unless the host says otherwise."""

    max_concurrent_sessions: int = attrs.field(kw_only=True)

    formats: tuple[str, ...] = attrs.field(kw_only=True)
    """Model formats it opens; empty where it does not say."""

    schemes: tuple[str, ...] = attrs.field(kw_only=True)
    """Model-spec schemes it resolves; empty where it does not say."""

    backend: Backend | None = attrs.field(kw_only=True)

    partial: Literal["replace", "append"] | None = attrs.field(kw_only=True)
    """What a PARTIAL does to the one before it; None where there are none."""

    endpointing: Literal["none", "signal", "semantic"] | None = attrs.field(kw_only=True)

    base: str | None = attrs.field(kw_only=True)
    """Id of the cartridge that a pack narrows."""

    plugin: str | None = attrs.field(kw_only=True)
    """Name of the plugin that opens a pack."""

    device_key: str | None = attrs.field(kw_only=True)
    """Names a device that one session at a time may use."""

    load_timeout_s: float = attrs.field(kw_only=True)
    """Seconds that one load may take."""

    _document: Mapping[str, object] = attrs.field(kw_only=True)

    @classmethod
    def from_json(cls, data: str | bytes | Mapping[str, object], *, where: str = "$") -> Descriptor:
        """
        Read a descriptor.

        Args:
            data: JSON text (bytes are UTF-8), or a mapping of JSON data.
            where: Stands for the root in errors.

        Raises:
            InvalidArgumentError: It is not strict JSON, breaks a rule, or has an unknown key; the
                message starts with the place (``$.io.mode: ...``). The first error only.
        """
        try:
            if isinstance(data, (str, bytes)):
                return _parse(data, where)
            return _read(Fields(freeze(data, where), where, _KEYS))
        except RecursionError:
            raise refusal(where, "nests too deep") from None

    def to_json(self) -> dict[str, object]:
        """Give what was read, as plain JSON data of the caller's own."""
        return cast("dict[str, object]", thaw(self._document))

    @property
    def mode(self) -> IoMode:
        """The cartridge's ``io.mode``."""
        return self.io.mode

    @property
    def open_args(self) -> tuple[Arg, ...]:
        """What takes effect at load; the same for every cap."""
        return self.caps[0].open_args if self.caps else ()

    @property
    def pack_arg(self) -> Arg | None:
        """The caps' pack argument, with its default where one of them declares it."""
        args = [cap.pack_arg for cap in self.caps if cap.pack_arg is not None]
        return next((arg for arg in args if arg.has_default), args[0] if args else None)

    def __eq__(self, other: object) -> bool:
        return (
            self._document == other._document if isinstance(other, Descriptor) else NotImplemented
        )

    def __hash__(self) -> int:
        return hash((self.id, self.version))

    def __repr__(self) -> str:
        caps = ", ".join(str(cap.urn) for cap in self.caps)
        return f"<Descriptor {self.id} {self.version} ({self.mode.value}): {caps or 'no caps'}>"


# The same text is read at discovery and at activation, and again by every registry.
@lru_cache(maxsize=256)
def _parse(text: str | bytes, where: str) -> Descriptor:
    return _read(Fields(read_json(text, where), where, _KEYS))


def _read(fields: Fields) -> Descriptor:
    attributes = Fields(fields.mapping("attributes"), fields.at("attributes"))
    own = attributes.optional
    task = fields.text("task")
    if task == "asr" and "quality" not in fields.data:
        raise refusal(fields.at("quality"), 'is missing; the task "asr" must say it')
    kebab = "kebab-case, as in text-embedding"
    return Descriptor(
        fields.matching("id", _KEBAB, kebab),
        fields.matching("version", SEMVER, "a semantic version, as in 1.0.2"),
        spec_version=fields.choice("spec_version", _SPEC_VERSIONS),
        family=fields.matching("family", _KEBAB, kebab),
        modality=fields.choice("modality", _MODALITIES),
        task=task,
        io=fields.block("io", read_io),
        target=fields.block("target", read_target),
        performance=fields.block("performance", read_performance),
        execution_mode=fields.choice("execution_mode", _TIERS),
        license=fields.text("license"),
        quality=fields.optional(fields.block, "quality", read_quality),
        model=fields.optional(fields.block, "model", read_model),
        requirements=fields.optional(fields.block, "requirements", read_requirements)
        or Requirements(),
        flavors=read_flavors(fields, "flavors"),
        attributes=attributes.data,
        caps=read_caps(attributes, "caps"),
        abi=own(attributes.matching, "abi", _ABI, "a version major.minor, as in 0.1"),
        hooks=own(attributes.integer, "hooks", 1),
        isolation=own(attributes.choice, "isolation", _ISOLATIONS) or "inline",
        max_concurrent_sessions=own(attributes.integer, "max_concurrent_sessions", 1) or 1,
        formats=attributes.texts("formats"),
        schemes=attributes.texts("schemes"),
        backend=own(attributes.block, "backend", read_backend),
        partial=own(attributes.choice, "partial", _PARTIALS),
        endpointing=own(attributes.choice, "endpointing", _ENDPOINTINGS),
        base=own(attributes.matching, "base", _KEBAB, kebab),
        plugin=own(attributes.text, "plugin"),
        device_key=own(attributes.text, "device_key"),
        load_timeout_s=own(attributes.number, "load_timeout_s") or _LOAD_TIMEOUT_S,
        document=fields.data,
    )


def read_descriptors(folder: str | os.PathLike[str]) -> tuple[Descriptor, ...]:
    """
    Read the ``*.json`` files of a folder, sorted by name.

    What a plugin's `cartridge_descriptors` returns for its own ``descriptors`` folder.

    Raises:
        LoadError: The folder or a file in it cannot be read.

        InvalidArgumentError: A file breaks a rule; the message starts with its name.
    """
    try:
        names = sorted(os.listdir(folder))
        files = [name for name in names if name.endswith(".json") and not name.startswith(".")]
        return tuple(_read_file(os.path.join(folder, name), name) for name in files)
    except OSError as exc:
        msg = f"descriptors in {os.fspath(folder)} cannot be read: {exc}"
        raise LoadError(msg) from exc


def _read_file(path: str, name: str) -> Descriptor:
    with open(path, "rb") as file:
        return Descriptor.from_json(file.read(), where=f"{name}: $")
