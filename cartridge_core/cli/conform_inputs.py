"""What ``conform`` tries every cap with: what is given, else what its declaration lets one make."""

from __future__ import annotations

import importlib.util
import json
import os
from typing import TYPE_CHECKING, cast

import attrs
import click

from cartridge_core.cli.source import read_source
from cartridge_core.errors import InvalidArgumentError
from cartridge_core.golden import read_golden, read_vectors
from cartridge_core.jsondata import thaw
from cartridge_core.offers import NATIVE
from cartridge_core.pack import Pack
from cartridge_core.testing.samples import find_sample
from cartridge_core.urn import CapUrn

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from cartridge_core.capdefs import Arg, Cap
    from cartridge_core.golden import Vector
    from cartridge_core.offers import Offer

__all__ = ["Inputs", "golden_of"]

_ROWS = 32
"""The length of an axis that may have any; of sound it is a second."""


@attrs.frozen(kw_only=True)
class Inputs:
    """
    The inputs for a cartridge.

    A value is written as the process that tries it reads it: ``{"json": value}``, or
    ``{"bytes": path}`` or ``{"npy": path}`` of a file.
    """

    offer: Offer
    sample: Path | None
    slow: Path | None
    vectors: tuple[Vector, ...]

    scratch: Path
    """Where arrays are written."""

    def values(self) -> dict[str, dict[str, object]]:
        """
        Give the values of every cap by its URN: ``value``, ``other`` and ``slow``.

        Raises:
            InvalidArgumentError: None is known for a cap that needs one, or a file does not hold
                what its main argument takes.

            UsageError: A file cannot be read.
        """
        found: dict[str, dict[str, object]] = {}
        for cap in self.offer.descriptor.caps:
            value, *others = self._known(cap)
            slow = None
            # Only the first cap is cancelled.
            if self.slow is not None and cap.main is not None and not found:
                slow = self._of_file(cap.main, self.slow)
            values = {"value": value, "other": [*others, value][0], "slow": slow}
            found[str(cap.urn)] = {key: self._written(one) for key, one in values.items()}
        return found

    def arguments(self) -> dict[str, object]:
        """Give the session's arguments by cap URN, where golden vectors say them."""
        caps = self.offer.descriptor.caps
        return {str(cap.urn): thaw(one.parameters) for cap in caps for one in self._of(cap)[:1]}

    def _of(self, cap: Cap) -> list[Vector]:
        """Give the golden vectors of a cap."""
        first = self.offer.descriptor.caps[0]
        return [
            vector
            for vector in self.vectors
            if (cap is first and vector.cap is None)
            or (vector.cap is not None and cap.urn.is_dispatchable(CapUrn.parse(vector.cap)))
        ]

    def _known(self, cap: Cap) -> list[object]:
        """Give values for a cap, the best first; at least one."""
        main = cap.main
        if main is None or main.pack:
            return [None]
        known = [vector.input() for vector in self._of(cap)]
        refusal: InvalidArgumentError | None = None
        if not known and self.sample is not None:
            try:
                known = [self._of_file(main, self.sample)]
            except InvalidArgumentError as exc:
                refusal = exc
        known += [find_sample(main), find_sample(main, other=True)]
        known = [one for one in known if one is not None] or self._made_up()
        if known:
            return known
        if refusal is not None:
            raise refusal
        msg = (
            f"{main.name} of {cap.urn} is {main.media_urn}, for which nothing can be made up; give "
            "one with --input, or golden vectors"
        )
        raise InvalidArgumentError(msg, arg=main.name, rule="required")

    def _of_file(self, main: Arg, file: Path) -> object:
        """Read a file as a main value: ``.json`` and ``.npy`` as such, others as the cap says."""
        value: object
        try:
            if file.suffix == ".json":
                value = json.loads(file.read_bytes())
            elif file.suffix == ".npy":
                import numpy as np

                value = np.load(file, allow_pickle=False)
            else:
                value = read_source(main, str(file), chunked=False)
        except OSError as exc:
            msg = f"{file} cannot be read: {exc.strerror or exc}"
            raise click.UsageError(msg) from exc
        except ValueError as exc:
            msg = f"{file} is not what its name says: {exc}"
            raise InvalidArgumentError(msg, arg=main.name, value=str(file)) from exc
        main.check(value)
        return value

    def _made_up(self) -> list[object]:
        """Make two arrays of what ``io.input`` says; nothing where it says something else."""
        port = self.offer.descriptor.io.input
        if importlib.util.find_spec("numpy") is None:
            return []
        import numpy as np

        try:
            dtype = np.dtype(port.dtype)
        except TypeError:
            return []
        if dtype.kind not in "biuf":
            return []
        length = port.sample_rate_hz or _ROWS
        made: list[object] = []
        for seed, rows in enumerate((length, length * 3 // 2)):
            shape = [rows if axis is None else axis for axis in port.shape or (None,)]
            noise = np.random.default_rng(seed).uniform(-0.5, 0.5, shape)
            made.append(_scaled(noise, dtype))
        return made

    def _written(self, value: object) -> dict[str, object]:
        if hasattr(value, "__array_interface__"):
            import numpy as np

            number = sum(1 for _ in self.scratch.glob("*.npy"))
            file = self.scratch / f"{number}.npy"
            np.save(file, cast("np.ndarray[tuple[int, ...], np.dtype[np.generic]]", value))
            return {"npy": str(file)}
        # A library reads the bytes of a picture or a sound; a path is nothing to it.
        if isinstance(value, os.PathLike):
            return {"bytes" if self.offer.plugin == NATIVE else "json": os.fspath(value)}
        return {"json": thaw(value)}


def _scaled(
    noise: np.ndarray[tuple[int, ...], np.dtype[np.float64]], dtype: np.dtype[np.generic]
) -> object:
    """Turn numbers from -0.5 to 0.5 into numbers of a dtype: half of what its integers reach."""
    import numpy as np

    if dtype.kind == "b":
        return noise > 0
    if dtype.kind != "f":
        limits = np.iinfo(cast("np.dtype[np.integer]", dtype))
        noise = noise * limits.max + (limits.max // 2 if dtype.kind == "u" else 0)
    return noise.astype(dtype)


def golden_of(offer: Offer, file: Path | None) -> tuple[Vector, ...]:
    """
    Give golden vectors: of a file, else the pack's own, else none.

    Raises:
        InvalidArgumentError: The file's are malformed.

        LoadError: The pack's are.

        UsageError: The file cannot be read.
    """
    if file is None:
        has_some = offer.pack is not None and "golden" in offer.descriptor.attributes
        return read_golden(Pack.from_path(cast("Path", offer.pack))) if has_some else ()
    try:
        data = file.read_bytes()
        beside = {one.name: one for one in file.absolute().parent.iterdir() if one.is_file()}
    except OSError as exc:
        msg = f"--golden {file} cannot be read: {exc.strerror or exc}"
        raise click.UsageError(msg) from exc
    try:
        return read_vectors(data, beside)
    except InvalidArgumentError as exc:
        msg = f"--golden {file}: {exc}"
        raise InvalidArgumentError(msg, arg="golden", value=str(file)) from exc
