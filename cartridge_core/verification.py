"""
Whether a cartridge still does with a pack what it did when the pack was made.

A pack's golden vectors are run, and each output is compared with the one that was right, under the
tolerance that the pack declares. That the bytes are right is another question, and asked first.

Source: SKaiNET Minerva, host verification: no observed output is SKIPPED, never PASSED.
"""

from __future__ import annotations

import enum
import json
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.descriptor import IoMode
from cartridge_core.distances import MismatchError, as_plain, distance
from cartridge_core.errors import (
    CancelledError,
    CartridgeError,
    InvalidArgumentError,
    PreflightError,
)
from cartridge_core.golden import Vector, read_golden, read_vectors
from cartridge_core.jsondata import read_json, thaw
from cartridge_core.pack import Pack
from cartridge_core.results import Result, ResultKind

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from cartridge_core.cartridge import Cartridge
    from cartridge_core.registry import Registry
    from cartridge_core.session import Session

__all__ = ["VectorReport", "Verdict", "VerificationReport", "check", "record"]


class Verdict(enum.StrEnum):
    """What came of a golden vector."""

    PASSED = "PASSED"
    """The output is as near to the right one as the pack demands."""

    FAILED = "FAILED"
    """It is not, has another form, or the cartridge raised an error."""

    SKIPPED = "SKIPPED"
    """There is no output to compare."""


@attrs.frozen
class VectorReport:
    """One golden vector, and what came of it."""

    id: str
    verdict: Verdict
    compare: str = attrs.field(kw_only=True)

    distance: float | None = attrs.field(default=None, kw_only=True)
    """How far the output was from the right one; None where that cannot be told."""

    tolerance: float = attrs.field(kw_only=True)
    detail: str = attrs.field(default="", kw_only=True)
    """What is to be said of it, for a person."""

    seconds: float = attrs.field(default=0.0, kw_only=True)

    def __str__(self) -> str:
        far = "" if self.distance is None else f" {self.distance:.3g} of {self.tolerance:g}"
        return f"{self.verdict} {self.id}: {self.compare}{far}{self.detail and '; '}{self.detail}"


@attrs.frozen
class VerificationReport:
    """Every golden vector of a pack, in the pack's order."""

    cartridge_id: str
    vectors: tuple[VectorReport, ...]

    @property
    def verdict(self) -> Verdict:
        """FAILED where one is, else SKIPPED where one is, else PASSED."""
        verdicts = {vector.verdict for vector in self.vectors}
        for verdict in (Verdict.FAILED, Verdict.SKIPPED):
            if verdict in verdicts or not verdicts:
                return verdict
        return Verdict.PASSED

    def __str__(self) -> str:
        return "\n".join(str(vector) for vector in self.vectors)


def check(
    registry: Registry,
    cartridge_id: str,
    pack: Pack | str | os.PathLike[str],
    *,
    trust: str | None = None,
) -> VerificationReport:
    """
    Run a pack's golden vectors, and compare what comes out with what was right.

    Args:
        registry: Where the cartridge is.
        cartridge_id: The pack's own id, or that of the cartridge it narrows.
        pack: A pack with golden vectors.
        trust: What the pack must prove first; None is what the registry was made with.

    Returns:
        A verdict for every vector. Where this machine lacks what the cartridge needs, all are
        SKIPPED.

    Raises:
        InvalidArgumentError: The pack is for another cartridge.

        NoRouteError: No usable cartridge has this id.

        VerificationError: The pack does not prove what it must.

        LoadError: It cannot be opened, or has no golden vectors.
    """
    found = pack if isinstance(pack, Pack) else Pack.from_path(pack)
    vectors = read_golden(found)
    try:
        cartridge = _open(registry, cartridge_id, found, trust)
    except PreflightError as exc:
        reports = [_report(vector, Verdict.SKIPPED, detail=str(exc)) for vector in vectors]
        return VerificationReport(cartridge_id, tuple(reports))
    with cartridge:
        return VerificationReport(
            cartridge_id, tuple(_checked(cartridge, vector) for vector in vectors)
        )


def record(
    registry: Registry,
    cartridge_id: str,
    model: str | os.PathLike[str],
    golden: bytes,
    files: Mapping[str, Path],
) -> bytes:
    """
    Give golden vectors with the outputs that are missing: those that a cartridge gives now.

    Args:
        registry: Where the cartridge is.
        cartridge_id: Which one.
        model: Its model.
        golden: The vectors as JSON text; what is expected may be missing.
        files: The files that they name, by name.

    Raises:
        InvalidArgumentError: The vectors are malformed, or one gives no output.

        LoadError: The cartridge cannot be opened.

        CartridgeError: What the cartridge raised.
    """
    vectors = read_vectors(golden, files)
    if all(vector.has_expected for vector in vectors):
        return golden
    document = cast("dict[str, list[dict[str, object]]]", thaw(read_json(golden, "$")))
    with registry.open(cartridge_id, model) as cartridge:
        for vector, entry in zip(vectors, document["vectors"], strict=True):
            if vector.has_expected:
                continue
            entry["expected"] = _recorded(cartridge, vector)
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode("ascii")


def _recorded(cartridge: Cartridge, vector: Vector) -> object:
    try:
        observed = as_plain(_observed(cartridge, vector))
    except MismatchError as exc:
        msg = f"golden vector {vector.id}: {exc}"
        raise InvalidArgumentError(msg, arg="golden", value=vector.id) from exc
    if observed is None:
        msg = f"golden vector {vector.id}: {cartridge.descriptor.id} gave no output to record"
        raise InvalidArgumentError(msg, arg="golden", value=vector.id)
    return observed


def _open(registry: Registry, cartridge_id: str, pack: Pack, trust: str | None) -> Cartridge:
    descriptor = pack.descriptor
    base = None if descriptor is None else descriptor.base
    own = None if descriptor is None else descriptor.id
    if cartridge_id not in {own, base}:
        msg = (
            f"pack {pack.path} is {own}, and narrows {base or 'nothing'}; {cartridge_id} is neither"
        )
        raise InvalidArgumentError(msg, arg="cartridge_id", value=cartridge_id)
    for offer in registry.offers:
        if offer.id == own and offer.pack is not None and offer.pack.samefile(pack.root):
            return registry.open(offer.id, trust=trust)
    return registry.open(base or cartridge_id, pack, trust=trust)


def _checked(cartridge: Cartridge, vector: Vector) -> VectorReport:
    begin_s = time.monotonic()
    verdict, far, detail = _judged(cartridge, vector)
    seconds = time.monotonic() - begin_s
    return _report(vector, verdict, far, detail=detail, seconds=seconds)


def _judged(cartridge: Cartridge, vector: Vector) -> tuple[Verdict, float | None, str]:
    """Run a vector; give the verdict, the distance where there is one, and what is to be said."""
    if not vector.has_expected:
        return Verdict.SKIPPED, None, "the pack does not say what is expected"
    try:
        observed = _observed(cartridge, vector)
        if observed is None:
            return Verdict.SKIPPED, None, "the cartridge gave no output"
        far = distance(vector.compare, vector.expected(), observed)
    except MismatchError as exc:
        return Verdict.FAILED, None, str(exc)
    except CancelledError:
        raise
    except CartridgeError as exc:
        return Verdict.FAILED, None, f"{type(exc).__name__}: {exc}"
    if not math.isfinite(far):
        return Verdict.FAILED, None, "a number is not finite, or a vector has no length"
    return (Verdict.PASSED if far <= vector.tolerance else Verdict.FAILED), far, ""


def _report(
    vector: Vector,
    verdict: Verdict,
    far: float | None = None,
    *,
    detail: str = "",
    seconds: float = 0.0,
) -> VectorReport:
    return VectorReport(
        vector.id,
        verdict,
        compare=vector.compare,
        distance=far,
        tolerance=vector.tolerance,
        detail=detail,
        seconds=seconds,
    )


def _observed(cartridge: Cartridge, vector: Vector) -> object:
    """Run a vector; give the output that is compared, None where there is none."""
    parameters = cast("Mapping[str, object]", thaw(vector.parameters))
    with cartridge.session(vector.cap, **parameters) as session:
        results = _results(cartridge, session, vector.input())
    given = [_selected(result.payload, vector) for result in results]
    outputs = [output for output in given if output is not None]
    if outputs and all(isinstance(output, str) for output in outputs):
        return " ".join(str(output) for output in outputs)
    if len(outputs) <= 1:
        return outputs[0] if outputs else None
    return outputs


def _results(cartridge: Cartridge, session: Session, value: object) -> list[Result]:
    """Give the FINAL results."""
    if cartridge.descriptor.mode is IoMode.BATCH:
        return [session.infer(value)]
    session.push(value)
    session.flush()
    return [result for result in session.drain() if result.kind is ResultKind.FINAL]


def _selected(payload: object, vector: Vector) -> object:
    if vector.field is None or payload is None:
        return payload
    if not isinstance(payload, Mapping) or vector.field not in payload:
        names = ", ".join(map(str, payload)) if isinstance(payload, Mapping) else "none"
        msg = f"the output has no field {vector.field!r}; its fields are {names}"
        raise MismatchError(msg)
    return payload[vector.field]
