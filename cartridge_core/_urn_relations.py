"""
How tags relate: each stored value stands for the set of states its key may be in.

=========  ============================  =====
value      allows                        score
=========  ============================  =====
``?``      anything                      0
``?=v``    anything but *set to v*       1
``*``      set, to anything              2
``!=v``    set, but not to v             3
``v``      set to exactly v              4
``!``      unset                         5
=========  ============================  =====

Every relation is one question about two such sets: is one inside the other (`conforms`), do
they share a state (`meets`). A key that is absent is read as ``?`` in a description, and as
``!`` in something that exists and so has the tags it has.

Source: the truth table of the tagged-urn package, 1.138.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["UNKNOWN", "UNSET", "conforms", "meets", "score"]

UNKNOWN = "?"
"""How a description's absent key is read."""

UNSET = "!"
"""How an absent key of something that exists is read."""

# The states of one key, as a set of bits: it is unset; it is set to the value that is named;
# it is set to any other value; it is set to the value that the other side names.
_IS_UNSET, _NAMED, _OTHER, _THEIRS = 1, 2, 4, 8
_SIGNS = {"?": _IS_UNSET | _NAMED | _OTHER, "*": _NAMED | _OTHER, "!": _IS_UNSET}
_HEADS = {"?=": _IS_UNSET | _OTHER, "!=": _OTHER}
_SCORES = {"?": 0, "*": 2, "!": 5}
_HEAD_SCORES = {"?=": 1, "!=": 3}


def conforms(instance: Mapping[str, str], pattern: Mapping[str, str], absent: str) -> bool:
    """
    Say whether every state the instance allows, the pattern allows too.

    Args:
        instance: Stored values by key.
        pattern: Likewise; its absent keys allow anything.
        absent: How an absent key of the instance is read: `UNKNOWN` or `UNSET`.
    """
    for key, wanted in pattern.items():
        given = instance.get(key, absent)
        if given != wanted:
            left, right = _states(given, wanted)
            if left & ~right:
                return False
    return True


def meets(left: Mapping[str, str], right: Mapping[str, str], absent: str) -> bool:
    """
    Say whether some state is allowed by both, for every key.

    Args:
        left: Stored values by key.
        right: Likewise; its absent keys allow anything.
        absent: How an absent key of the left is read: `UNKNOWN` or `UNSET`.
    """
    for key, wanted in right.items():
        given = left.get(key, absent)
        if given != wanted:
            mine, theirs = _states(given, wanted)
            if not mine & theirs:
                return False
    return True


def score(stored: str) -> int:
    """Say how much a stored value constrains; the numbers only serve to rank."""
    points = _SCORES.get(stored)
    return _HEAD_SCORES.get(stored[:2], 4) if points is None else points


def _states(left: str, right: str) -> tuple[int, int]:
    """Give the two sets over one and the same list of states."""
    mine = _SIGNS.get(left) or _HEADS.get(left[:2], _NAMED)
    theirs = _SIGNS.get(right) or _HEADS.get(right[:2], _NAMED)
    if left in _SIGNS or right in _SIGNS or _named(left) == _named(right):
        return mine, theirs
    # Two values are named: each is one of "any other" on the other side.
    if mine & _OTHER:
        mine |= _THEIRS
    swapped = theirs & (_IS_UNSET | _OTHER)
    if theirs & _NAMED:
        swapped |= _THEIRS
    if theirs & _OTHER:
        swapped |= _NAMED
    return mine, swapped


def _named(stored: str) -> str:
    return stored[2:] if stored[:2] in _HEADS else stored
