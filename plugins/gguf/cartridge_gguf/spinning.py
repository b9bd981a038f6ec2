"""
How llama.cpp's threads wait for each other.

They meet some thousand times a token. OpenMP lets whoever comes first spin, some milliseconds at
first, which on a busy machine is the time that the one it waits for would need; with more callers
than one, hardly at all. A few microseconds are right for both.

Measured with SmolLM2-135M and two threads on two cores, in milliseconds a token, before and after:
a quiet machine 15 and 15, four callers in turn 24 and 16, a machine with six busy processes 500 to
3000 and 70 to 130.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["brief_spinning"]

_SETTINGS = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "2000"}
"""By the policy, libgomp spins as long where it has more threads than there are cores."""


@contextmanager
def brief_spinning() -> Iterator[None]:
    """
    Have a libgomp that is loaded inside the block spin briefly.

    It reads these settings once, when it is loaded: where another library has brought it before,
    nothing changes, and what the user has set stays.
    """
    ours = {} if _SETTINGS.keys() & os.environ.keys() else _SETTINGS
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
