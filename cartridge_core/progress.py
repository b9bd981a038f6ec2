"""What a call tells while it runs: progress in three phases, and log lines."""

from __future__ import annotations

import enum

import attrs

__all__ = ["Log", "Phase", "Progress"]


class Phase(enum.Enum):
    """
    A phase of a call and the part of the progress bar that is its own.

    Source: CapDAG, "Model cartridge architecture".
    """

    DOWNLOAD = "download"
    LOAD = "load"
    INFER = "infer"

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last fraction of this phase."""
        return _SPANS[self]

    def scale(self, fraction: float) -> float:
        """
        Map a phase's own fraction into the whole call's.

        Args:
            fraction: How much of this phase is done; values outside [0, 1] are clamped.
        """
        low, high = self.span
        return low + (high - low) * min(1.0, max(0.0, fraction))

    def unscale(self, fraction: float) -> float:
        """
        Map a whole call's fraction back into this phase's own.

        Args:
            fraction: Of the whole call; what is outside the phase is clamped to [0, 1].
        """
        low, high = self.span
        return min(1.0, max(0.0, (fraction - low) / (high - low)))


_SPANS = {Phase.DOWNLOAD: (0.0, 0.25), Phase.LOAD: (0.25, 0.35), Phase.INFER: (0.35, 0.95)}


@attrs.frozen
class Progress:
    """How far a call is."""

    fraction: float
    """In [0, 1]; never goes backwards within a call."""

    message: str = ""

    phase: Phase | None = attrs.field(default=None, kw_only=True)
    """The phase that reports; None at the very end of the call (fraction 1.0)."""


@attrs.frozen
class Log:
    """A line for a person to read."""

    level: str
    """One of ``debug``, ``info``, ``warning``, ``error``."""

    message: str

    cartridge_id: str | None = attrs.field(default=None, kw_only=True)
    """Who says it; filled in by the host."""
