"""
What recurrent layers keep of a sequence, by a model's headers: a state that does not grow with it.

Source:
    llama.cpp, ``llama_hparams::n_embd_r`` and ``n_embd_s``; both are kept in float32.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from cartridge_gguf.files import ModelFiles
    from cartridge_gguf.header import Header

__all__ = ["States"]

_RECURRENT = re.compile(r"blk\.(\d+)\.(?:ssm_|shortconv\.|time_mix_)")
_KEYS = re.compile(r"blk\.(\d+)\.attn_k\.")
_NUMBER_BYTES = 4


@attrs.frozen
class States:
    """The states of a sequence."""

    layers: int
    """How many layers keep one."""

    without_keys: int
    """How many of them keep no keys and values."""

    layer_bytes: int | None
    """Of one of them; None where the header does not tell it."""

    @classmethod
    def of(cls, files: ModelFiles) -> States:
        """
        Find a model's recurrent layers by their tensors.

        Raises:
            LoadError: The header is damaged.
        """
        names = [tensor.name for header in files.headers for tensor in header.tensors]
        recurrent, keyed = (
            {found[1] for name in names if (found := pattern.match(name))}
            for pattern in (_RECURRENT, _KEYS)
        )
        return cls(len(recurrent), len(recurrent - keyed), _layer_bytes(files.header))

    @property
    def nbytes(self) -> int:
        """Bytes of a sequence, as far as they are known."""
        return self.layers * (self.layer_bytes or 0)

    @property
    def is_known(self) -> bool:
        """Whether they are known."""
        return self.layer_bytes is not None or not self.layers


def _layer_bytes(header: Header) -> int | None:
    def number(key: str) -> int:
        return header.integer(header.key(key)) or 0

    width, kernel = header.embedding_length or 0, number("ssm.conv_kernel")
    inner, state = number("ssm.inner_size"), number("ssm.state_size")
    if head := number("wkv.head_size"):
        numbers = width * ((number("token_shift_count") or 2) + head)
    elif length := number("shortconv.l_cache"):
        numbers = width * (length - 1)
    elif head := number("kda.head_dim"):
        numbers = (header.head_count or 0) * head * (3 * ((kernel or 4) - 1) + head)
    elif kernel and inner and state:
        numbers = (kernel - 1) * (inner + 2 * number("ssm.group_count") * state) + inner * state
    else:
        return None
    return numbers * _NUMBER_BYTES
