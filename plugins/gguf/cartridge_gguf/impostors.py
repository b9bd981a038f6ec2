"""What a file really is that should be a GGUF file and is not."""

from __future__ import annotations

import re

__all__ = ["describe"]

_KNOWN = (
    (b"PK\x03\x04", "a zip archive or a PyTorch checkpoint"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x80\x02", "a PyTorch checkpoint"),
    (b"tjgg", "a model in the format from before GGUF (ggjt)"),
    (b"fmgg", "a model in the format from before GGUF (ggmf)"),
    (b"lmgg", "a model in the format from before GGUF (ggml)"),
    (b"algg", "an adapter in the format from before GGUF (ggla)"),
)
_SAFETENSORS = re.compile(rb'.{6}\0\0\{\s*"', re.DOTALL)
_CONVERT = "take the model's GGUF file, or convert it with llama.cpp's convert_hf_to_gguf.py"
_LFS_SIZE = re.compile(rb"^size (\d{1,20})$", re.MULTILINE)


def describe(start: bytes) -> str:
    """
    Say what a file is, and what to do about it.

    Args:
        start: Its first few hundred bytes, without GGUF's magic.
    """
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"version https://git-lfs"):
        size = _LFS_SIZE.search(text)
        whole = f" of {int(size[1])} bytes" if size else ""
        return f"it is a Git LFS pointer, not the file{whole} it stands for; run git lfs pull there"
    if text.startswith(b"<"):
        return "it is a web page (HTML), not a GGUF file; download the file itself"
    if text.startswith(b"{"):
        return "it is a JSON text, perhaps a server's error, not a GGUF file; download it again"
    for magic, what in _KNOWN:
        if start.startswith(magic):
            return (
                f"it is {what}, not a GGUF file; convert it with llama.cpp's convert_hf_to_gguf.py"
            )
    if _SAFETENSORS.match(start):
        return (
            "it is a safetensors file, not a GGUF file; convert its model with llama.cpp's "
            "convert_hf_to_gguf.py"
        )
    if not start.strip(b"\0"):
        return "it begins with zeros: space was reserved and never filled; download it again"
    shown = start[:4].decode("ascii", "backslashreplace")
    return f"it is no GGUF file: it begins with {shown!r} instead of 'GGUF'; check the path"
