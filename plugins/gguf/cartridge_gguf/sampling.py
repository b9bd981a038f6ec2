"""How the tokens of a text are chosen."""

from __future__ import annotations

import attrs

__all__ = ["Sampling"]


@attrs.frozen(kw_only=True)
class Sampling:
    """How the next token is chosen."""

    temperature: float
    """0 takes the likeliest."""

    top_k: int
    """0 = all."""

    top_p: float
    min_p: float
    seed: int
    repeat_penalty: float
    """1 = none."""

    grammar: str | None
    """GBNF."""
