"""What a cartridge gives back: results and their kinds."""

from __future__ import annotations

import enum

import attrs

__all__ = ["Result", "ResultKind"]


class ResultKind(enum.IntEnum):
    """
    What a result means for the results before it.

    Source: Cartridge ABI 0.1, ``ctg_result_kind``.
    """

    PARTIAL = 1
    """May be superseded; the descriptor's ``attributes.partial`` says how."""

    FINAL = 2
    """Committed: one segment of a stream, or the whole answer of a batch call."""

    ENDPOINT = 3
    """Speech ended at ``end_s``; the payload is None and the segment's FINAL follows."""


# With a dict of its own: made for every event, and so it is made in half the time.
@attrs.frozen(slots=False)
class Result:
    """One result of a session."""

    kind: ResultKind

    payload: object = None
    """Plain data as the cap's output says; a dict is a `Record`, vectors are float32 arrays."""

    segment: int = attrs.field(default=0, kw_only=True)
    """Which segment of a stream it belongs to, from 0; a FINAL commits its segment."""

    start_s: float | None = attrs.field(default=None, kw_only=True)
    """Where the segment begins in the input, in seconds; None where time has no meaning."""

    end_s: float | None = attrs.field(default=None, kw_only=True)
    """Where the segment ends in the input, in seconds."""

    cartridge_id: str | None = attrs.field(default=None, kw_only=True)
    """Who gave it; filled in by the host."""
