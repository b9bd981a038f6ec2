"""What is done to vectors once a model has given them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cartridge_core.errors import BackendError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["check_finite", "unit_length"]


def check_finite(vectors: NDArray[np.float32]) -> None:
    """
    Refuse vectors that are none.

    Raises:
        BackendError: A number is not finite.
    """
    import numpy as np

    finite = np.isfinite(vectors)
    if not finite.all():
        row = int(finite.argmin()) // finite.shape[1]
        msg = (
            f"the model's vector for row {row} has numbers that are not finite; its weights are "
            "damaged, or dtype='float16' is too narrow for it: try 'float32' or 'bfloat16'"
        )
        raise BackendError(msg)


def unit_length(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Give every vector unit length; one of zeros stays one."""
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(lengths, np.float32(1e-12))
    return unit
