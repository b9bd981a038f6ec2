"""
The closed blocks of a descriptor: its ports, its target, what it requires, what was measured.

Source: Cartridge ABI 0.1, descriptor schema.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import attrs

from cartridge_core.jsondata import as_integer, refusal
from cartridge_core.jsonfields import Fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "Backend",
    "Io",
    "IoMode",
    "Port",
    "Requirements",
    "Target",
    "read_backend",
    "read_flavors",
    "read_io",
    "read_model",
    "read_performance",
    "read_quality",
    "read_requirements",
    "read_target",
]


class IoMode(enum.StrEnum):
    """
    How a cartridge takes input; hosts route on it.

    Source: Cartridge ABI 0.1, ``io.mode``.
    """

    BATCH = "batch"
    """One whole input, one FINAL result: infer."""

    STREAMING = "streaming"
    """Input in chunks, results as they come: push, pull, flush."""


@attrs.frozen
class Port:
    """One end of a cartridge's input or output."""

    dtype: str

    shape: tuple[int | None, ...] | None = None
    """None inside stands for an axis of any length."""

    sample_rate_hz: int | None = attrs.field(default=None, kw_only=True)
    """Hertz."""

    chunk_ms: float | None = attrs.field(default=None, kw_only=True)
    """Milliseconds."""

    output_schema: object = attrs.field(default=None, kw_only=True, hash=False)
    """Whatever says what a structured output looks like; frozen JSON."""


@attrs.frozen
class Io:
    """What goes in and out, and how."""

    mode: IoMode
    input: Port
    output: Port = attrs.field(kw_only=True)


@attrs.frozen
class Target:
    """The one thing a cartridge is built for; ``any`` where it does not matter."""

    hardware: str
    abi: str
    accelerator: str | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class Requirements:
    """What the device must have; only preflight can answer."""

    needs_accelerator: bool = False
    memory_mb: int | None = None
    """Megabytes."""

    driver_name: str | None = attrs.field(default=None, kw_only=True)
    driver_min_version: str | None = attrs.field(default=None, kw_only=True)
    driver_note: str | None = attrs.field(default=None, kw_only=True)
    os_name: str | None = attrs.field(default=None, kw_only=True)
    os_min_api: int | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class Backend:
    """The inference library, as its distribution is called."""

    distribution: str
    min_version: str | None = None


def read_io(value: object, where: str) -> Io:
    """Read ``io``."""
    fields = Fields(value, where, frozenset({"mode", "input", "output"}))
    return Io(
        IoMode(fields.choice("mode", [mode.value for mode in IoMode])),
        fields.block("input", _port),
        output=fields.block("output", _port),
    )


def _port(value: object, where: str) -> Port:
    keys = frozenset({"dtype", "shape", "sample_rate_hz", "chunk_ms", "output_schema"})
    fields = Fields(value, where, keys)
    return Port(
        fields.text("dtype"),
        _shape(fields) if "shape" in fields.data else None,
        sample_rate_hz=fields.optional(fields.integer, "sample_rate_hz", 1),
        chunk_ms=fields.optional(fields.number, "chunk_ms"),
        output_schema=fields.data.get("output_schema"),
    )


def _shape(fields: Fields) -> tuple[int | None, ...]:
    shape: list[int | None] = []
    for value, where in fields.items("shape"):
        length = as_integer(value)
        if value is not None and (length is None or length < 0):
            raise refusal(where, "an axis is an integer from 0, or null for any length", value)
        shape.append(length)
    return tuple(shape)


def read_target(value: object, where: str) -> Target:
    """Read ``target``."""
    fields = Fields(value, where, frozenset({"hardware", "abi", "accelerator"}))
    accelerator = fields.optional(fields.text, "accelerator")
    return Target(fields.text("hardware"), fields.text("abi"), accelerator=accelerator)


def read_requirements(value: object, where: str) -> Requirements:
    """Read ``requirements``."""
    fields = Fields(value, where, frozenset({"needs_accelerator", "driver", "memory_mb", "os"}))
    driver = _inner(fields, "driver", {"name", "min_version", "note"})
    system = _inner(fields, "os", {"name", "min_api"})
    return Requirements(
        fields.flag("needs_accelerator"),
        fields.optional(fields.integer, "memory_mb", 0),
        driver_name=driver.optional(driver.text, "name"),
        driver_min_version=driver.optional(driver.text, "min_version"),
        driver_note=driver.optional(driver.prose, "note"),
        os_name=system.optional(system.text, "name"),
        os_min_api=system.optional(system.integer, "min_api", 0),
    )


def _inner(fields: Fields, name: str, keys: set[str]) -> Fields:
    return Fields(fields.mapping(name), fields.at(name), frozenset(keys))


def read_backend(value: object, where: str) -> Backend:
    """Read ``attributes.backend``."""
    fields = Fields(value, where, frozenset({"distribution", "min_version"}))
    minimum = fields.optional(fields.text, "min_version")
    return Backend(fields.text("distribution"), minimum)


def read_model(value: object, where: str) -> Mapping[str, object]:
    """Check ``model``; nobody acts on it, so it stays data."""
    keys = frozenset({"name", "variant", "params", "checkpoint", "upstream"})
    fields = Fields(value, where, keys)
    fields.text("name")
    fields.optional(fields.prose, "variant")
    fields.optional(fields.integer, "params", 0)
    fields.optional(fields.prose, "checkpoint")
    upstream = _inner(fields, "upstream", {"source", "license"})
    upstream.optional(upstream.prose, "source")
    upstream.optional(upstream.prose, "license")
    return fields.data


def read_performance(value: object, where: str) -> Mapping[str, object]:
    """Check ``performance``: measured, or said to be unmeasured; never promised."""
    keys = frozenset({"measured_on", "rtf", "latency_p50_ms", "latency_p95_ms", "methodology"})
    fields = Fields(value, where, keys)
    fields.text("measured_on")
    for name in ("rtf", "latency_p50_ms", "latency_p95_ms"):
        fields.optional(fields.number, name)
    fields.optional(fields.prose, "methodology")
    return fields.data


def read_quality(value: object, where: str) -> Mapping[str, object]:
    """Check ``quality``: a word error rate with its data set, or unmeasured with a harness."""
    open_fields = Fields(value, where)
    if "unmeasured" in open_fields.data:
        fields = Fields(value, where, frozenset({"unmeasured", "harness"}))
        if fields.data["unmeasured"] is not True:
            rule = "must be true; leave it out where it is measured"
            raise refusal(fields.at("unmeasured"), rule, fields.data["unmeasured"])
        fields.text("harness")
        return fields.data
    keys = frozenset({"wer", "dataset", "measured_on", "dataset_digest"})
    fields = Fields(value, where, keys)
    _check_rate(fields)
    fields.text("dataset")
    fields.text("measured_on")
    fields.optional(fields.text, "dataset_digest")
    return fields.data


def _check_rate(fields: Fields) -> None:
    rate = fields.value("wer")
    if not isinstance(rate, (int, float)) or isinstance(rate, bool) or rate < 0:
        raise refusal(fields.at("wer"), "must be a number from 0", rate)


def read_flavors(fields: Fields, name: str) -> tuple[Mapping[str, object], ...]:
    """Check ``flavors``: each has an id and whole blocks that replace the descriptor's."""
    flavors: list[Mapping[str, object]] = []
    for value, where in fields.items(name):
        flavor = Fields(value, where, frozenset({"id", "attributes", *_BLOCKS}))
        flavor_id = flavor.text("id")
        if any(earlier["id"] == flavor_id for earlier in flavors):
            raise refusal(flavor.at("id"), "stands here twice", flavor_id)
        flavor.mapping("attributes")
        for block, read in _BLOCKS.items():
            flavor.optional(flavor.block, block, read)
        flavors.append(flavor.data)
    return tuple(flavors)


_BLOCKS: dict[str, Callable[[object, str], object]] = {
    "model": read_model,
    "performance": read_performance,
    "quality": read_quality,
    "target": read_target,
    "requirements": read_requirements,
}
