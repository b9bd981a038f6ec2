"""Backends that do nothing: what is left is the host's own time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["answer", "count"]


def answer(text: str) -> dict[str, object]:
    """Do what a backend does for a whole input."""
    return {"text": text}


def count(number: int) -> Iterator[str]:
    """Do what a backend does for a stream."""
    for _ in range(number):
        yield "piece"
