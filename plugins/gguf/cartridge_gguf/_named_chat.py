"""Chat templates that llama.cpp knows by name, as ``vicuna``; some files carry a name alone."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cartridge_core.errors import BackendError
from cartridge_gguf._llama import C

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["write_chat"]

_PRIVATE_USE = 0xE000


def write_chat(name: str, messages: Sequence[Mapping[str, object]]) -> str:
    """
    Write messages as a model reads them, up to where its answer begins.

    Args:
        name: Of the template.
        messages: Each with ``role`` and ``content``, which are texts.

    Raises:
        BackendError: There is no such template.
    """
    # C ends a text at its first NUL, and some templates strip it: characters take their places.
    contents = {_PRIVATE_USE + place: str(m["content"]) for place, m in enumerate(messages)}
    chat = (C.llama_chat_message * len(messages))(
        *[
            C.llama_chat_message(str(message["role"]).encode(), chr(stand_in).encode())
            for message, stand_in in zip(messages, contents, strict=True)
        ]
    )
    room = 0
    while True:
        buffer = ctypes.create_string_buffer(room)
        size: int = C.llama_chat_apply_template(
            name.encode(), chat, len(messages), True, buffer, room
        )
        if size < 0:
            msg = (
                f"the model's chat template is {name[:80]!r}, which is no Jinja text, and no name "
                "that llama.cpp knows; take another file of the model"
            )
            raise BackendError(msg)
        if size <= room:
            return buffer.raw[:size].decode().translate(contents)
        room = size
