"""The part of a sound that is still needed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["SoundWindow"]


class SoundWindow:
    """
    A sound that grows at its end and is forgotten at its beginning; places count from the start.

    Only as much memory is taken as lies between the two.
    """

    def __init__(self) -> None:
        self._pieces: deque[NDArray[np.float32]] = deque()
        self.start = self.end = 0

    def add(self, samples: NDArray[np.float32]) -> None:
        """Let it grow."""
        self._pieces.append(samples)
        self.end += len(samples)

    def drop_before(self, place: int) -> None:
        """Forget what lies before a place."""
        while self._pieces and self.start + len(self._pieces[0]) <= place:
            self.start += len(self._pieces.popleft())
        if self.start < place and self._pieces:
            self._pieces[0] = self._pieces[0][place - self.start :]
            self.start = place

    def read(self, end: int) -> NDArray[np.float32]:
        """Give what it holds up to a place."""
        import numpy as np

        return np.concatenate([*self._pieces, np.empty(0, np.float32)])[: end - self.start]

    def take(self, count: int) -> NDArray[np.float32] | None:
        """Take a number of samples off its beginning; None where it has fewer."""
        import numpy as np

        if self.end - self.start < count:
            return None
        taken = np.empty(count, np.float32)
        filled = 0
        while filled < count:
            piece = self._pieces[0][: count - filled]
            taken[filled : filled + len(piece)] = piece
            filled += len(piece)
            self.drop_before(self.start + len(piece))
        return taken
