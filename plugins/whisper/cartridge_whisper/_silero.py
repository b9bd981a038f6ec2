"""The one place that knows onnxruntime and silero-vad's network."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, cast

import numpy as np  # noqa: TID253 -- this file is imported with onnxruntime
import onnxruntime  # the file that imports it

from cartridge_core.errors import BackendError, LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["Detector"]

_STEP = 512
_BEFORE = 64
"""Samples of the step before that the network sees again."""

_RATE_HZ = 16_000


class Detector:
    """
    Says how likely speech is, every 32 ms.

    Any number of threads may use one; what it remembers belongs to the caller.

    Args:
        session: The network.

    Source:
        silero-vad 6, ``OnnxWrapper``.
    """

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session

    @staticmethod
    @lru_cache(maxsize=1)
    def load(file: Path) -> Detector:
        """
        Load the network.

        Raises:
            LoadError: onnxruntime refuses it.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(
                str(file), sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as exc:
            msg = f"voice detector {file}: onnxruntime cannot load it: {exc}"
            raise LoadError(msg) from exc
        return Detector(session)

    def follow(self, samples: NDArray[np.float32], ask: Callable[[], None]) -> Iterator[float]:
        """
        Give the chance of speech in each step of a sound.

        Args:
            samples: Mono, 16 kHz; zeros fill the last step.
            ask: Called before each step; what it raises ends the work.

        Raises:
            BackendError: onnxruntime failed.
        """
        state = self.begin()
        for start in range(0, len(samples), _STEP):
            ask()
            step = samples[start : start + _STEP]
            step = np.pad(step, (0, _STEP - len(step)))
            chance, state = self.step(step, state)
            yield chance

    def begin(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Begin a sound: nothing was heard yet."""
        return np.zeros((2, 1, 128), np.float32), np.zeros(_BEFORE, np.float32)

    def step(
        self, samples: NDArray[np.float32], state: tuple[NDArray[np.float32], NDArray[np.float32]]
    ) -> tuple[float, tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """
        Hear 32 ms.

        Args:
            samples: 512 of them.
            state: What `begin` or the step before gave.

        Returns:
            The chance of speech, and what the next step needs.

        Raises:
            BackendError: onnxruntime failed.
        """
        memory, before = state
        heard = np.concatenate([before, samples])[None]
        inputs = {"input": heard, "state": memory, "sr": np.array(_RATE_HZ, np.int64)}
        try:
            chance, memory = cast("list[NDArray[np.float32]]", self._session.run(None, inputs))
        except Exception as exc:
            msg = f"the voice detector failed: {exc}"
            raise BackendError(msg) from exc
        return float(chance[0, 0]), (memory, samples[-_BEFORE:])
