"""
The one place that imports llama-cpp-python, and sets it up for the process.

Its C functions are `C`; the modules beside this one whose names begin with an underscore make
typed classes of them. Importing any of those loads the backend, so that it is done inside
functions.

llama.cpp allows one call at a time into a context and what belongs to it; a model may be read by
several threads at once. None of the classes locks: who uses them does, frees contexts before their
model, and calls nothing after a close.
"""

from __future__ import annotations

import ctypes

from cartridge_gguf._log import NativeLog
from cartridge_gguf.spinning import brief_spinning

with brief_spinning():
    import llama_cpp.llama_cpp as C  # noqa: N812 -- this file is the one that imports it
    from llama_cpp import mtmd_cpp

__all__ = ["C", "has_text", "llama_log", "mtmd_cpp", "mtmd_log"]


def _listener(log: NativeLog) -> ctypes._FuncPointer:
    """Make the C function that is told a log."""

    def listen(level: int, text: bytes, _data: int | None) -> None:
        log.write(level, text.decode("utf-8", "replace"))

    return C.llama_log_callback(listen)


llama_log = NativeLog("cartridge.gguf.llama")
mtmd_log = NativeLog("cartridge.gguf.mtmd")

_listeners = (_listener(llama_log), _listener(mtmd_log))
"""Kept for ever: the backend calls them for as long as the process lives."""

C.llama_log_set(_listeners[0], None)
mtmd_cpp.mtmd_log_set(_listeners[1], None)
mtmd_cpp.mtmd_helper_log_set(_listeners[1], None)
C.llama_backend_init()

has_text = ctypes.cast(ctypes.CDLL(None).strlen, C.ggml_abort_callback)
"""
An abort callback that is no Python: it says yes where its data is a text of at least one byte.

The backend asks several hundred times a batch, and a Python function would have to wait for the
GIL each time.
"""
