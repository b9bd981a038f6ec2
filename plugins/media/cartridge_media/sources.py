"""Where the bytes of a picture or of sound come from: a file or memory, read as a stream."""

from __future__ import annotations

import io
import os
import re
import stat

from cartridge_media.refusal import Refused

__all__ = ["Source"]

_URL = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*://|(?:data|file|https?):)", re.IGNORECASE)


class Source(io.BufferedReader):
    """
    A file's bytes.

    Pillow fills the rest of a cut file with grey where the program has set its
    ``LOAD_TRUNCATED_IMAGES``, which holds for the whole process. So the source itself says where
    it ends too early.
    """

    must_go_on: bool = False
    """Whether the picture is being decoded, so that there must be something left to read."""

    @classmethod
    def of_text(cls, text: str) -> Source:
        """
        Open the file that a text names.

        Raises:
            Refused: It is a URL, or as `of_path`.
        """
        if _URL.match(text):
            msg = "is a URL, and none is opened; fetch it yourself, and give its bytes or a path"
            raise Refused(msg)
        if not text:
            msg = "names nothing; give a file's path"
            raise Refused(msg)
        return cls.of_path(text)

    @classmethod
    def of_path(cls, path: str) -> Source:
        """
        Open a file.

        Raises:
            Refused: It is missing, no regular file, empty or unreadable.
        """
        try:
            # Asked before it is opened: opening a pipe waits for somebody who writes.
            status = os.stat(path)
            _check_status(status)
            return cls(open(path, "rb", buffering=0))
        except FileNotFoundError:
            msg = "is not there; check the path"
            raise Refused(msg) from None
        except PermissionError as exc:
            msg = "may not be read by this user; change its permissions"
            raise Refused(msg) from exc
        except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
            reason = exc.strerror if isinstance(exc, OSError) else exc
            msg = f"cannot be opened ({reason}); give a file's path"
            raise Refused(msg) from exc

    @classmethod
    def of_bytes(cls, data: bytes | bytearray | memoryview) -> Source:
        """
        Read bytes.

        Raises:
            Refused: There are none.
        """
        copied = bytes(data)
        if not copied:
            msg = "is empty; give a whole file"
            raise Refused(msg)
        return cls(io.BytesIO(copied))

    def read(self, size: int | None = -1, /) -> bytes:
        """
        Read.

        Raises:
            Refused: It must go on, and does not.
        """
        data = super().read(size)
        if self.must_go_on and not data and size:
            msg = f"is cut short: its {self.tell():,} bytes end inside the picture; get it anew"
            raise Refused(msg)
        return data


def _check_status(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        msg = "is a directory; give one file"
        raise Refused(msg)
    if not stat.S_ISREG(status.st_mode):
        msg = "is no regular file; give one that is, or its bytes"
        raise Refused(msg)
    if status.st_size == 0:
        msg = "is empty; give a whole file"
        raise Refused(msg)
