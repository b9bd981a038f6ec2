"""
One file from a server into its part: resumed where it was, checked against what its source states.

The part is the file's beginning at any moment, whatever ends the process.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from typing import TYPE_CHECKING, NoReturn

from cartridge_core.errors import DownloadError, VerificationError
from cartridge_models.aside import aside
from cartridge_models.origin import megabytes
from cartridge_models.receiving import BrokenOffError, Head, RefusedError, receive
from cartridge_models.remote import discard, wait

if TYPE_CHECKING:
    from io import FileIO

    from cartridge_models.remote import Patience, RemoteFile, Watch

__all__ = ["transfer"]

_CHUNK_BYTES = 1 << 20
_PAGES = frozenset({"text/html", "application/xhtml+xml"})
_STRANGERS = {
    b"<!doctype html": ", a web page",
    b"<html": ", a web page",
    b"version https://git-lfs": ", Git LFS's pointer to the file",
}
_START_BYTES = 256
_UNZIPPED = frozenset({"gzip", "x-gzip", "deflate"})
_ZLIB_OR_GZIP = 47


def transfer(file: RemoteFile, patience: Patience, watch: Watch) -> None:
    """
    Bring a file whole into its part.

    Raises:
        VerificationError: It is not what its source states; nothing of it is kept.

        DownloadError: It does not come; what came is kept.

        OSError: The part cannot be written; what was written is kept.
    """
    file.part.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file.part, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with open(descriptor, "r+b", buffering=0) as out:
            _Transfer(file, patience, watch, out).run()
    except BaseException:
        with contextlib.suppress(OSError):
            if file.part.stat().st_size == 0:
                discard(file)
        raise


class _Transfer:
    """A file on its way."""

    def __init__(self, file: RemoteFile, patience: Patience, watch: Watch, out: FileIO) -> None:
        self._file = file
        self._patience = patience
        self._watch = watch
        self._out = out
        self._size = file.size_bytes
        self._hasher = file.digest.hasher(self._size)
        self._done = 0
        self._ask_for_rest = True
        self._is_joined = False
        self._is_ended = False
        self._doubtful_end = -1

    def run(self) -> None:
        self._take_up()
        most, failures = self._done, 0
        while True:
            try:
                if self._done != self._size and not self._is_ended:
                    self._ask()
                self._verify()
            except BrokenOffError as exc:
                failures = 0 if self._done > most else failures + 1
                most = max(most, self._done)
                self._pause(exc, failures)
            else:
                return

    def _take_up(self) -> None:
        """Read what is here: its digest is that of the file's beginning."""
        size = os.fstat(self._out.fileno()).st_size
        if self._size is not None and size > self._size:
            self._begin_again()
            return
        self._is_joined = size > 0
        while piece := self._out.read(_CHUNK_BYTES):
            self._watch.check()
            self._hasher.update(piece)
            self._done += len(piece)
            here = f"checking what is here, {megabytes(self._done)} of {megabytes(size)}"
            self._watch.have(size, here)

    def _begin_again(self) -> None:
        self._out.seek(0)
        self._out.truncate()
        self._file.note.unlink(missing_ok=True)
        self._size = self._file.size_bytes
        self._hasher = self._file.digest.hasher(self._size)
        self._done = 0
        self._ask_for_rest = False
        self._is_joined = self._is_ended = False

    def _ask(self) -> None:
        answer = aside(
            receive(self._file.url, self._headers(), self._patience.stall_s), self._watch.check
        )
        with contextlib.closing(answer):
            try:
                head = next(answer)
            except RefusedError as exc:
                self._take_refusal(exc)
                return
            assert isinstance(head, Head)  # noqa: S101 -- what comes first
            self._begin(head)
            left = None if head.coding else head.length
            decoder = zlib.decompressobj(_ZLIB_OR_GZIP) if head.coding else None
            for piece in answer:
                assert isinstance(piece, bytes)  # noqa: S101 -- what comes next
                left = None if left is None else left - len(piece)
                self._take(piece if decoder is None else _unzip(decoder, piece))
            self._end(head, is_whole=not left and (decoder is None or decoder.eof))

    def _headers(self) -> dict[str, str]:
        headers = {**self._file.headers, "Accept-Encoding": "identity"}
        if self._done and self._ask_for_rest:
            headers["Range"] = f"bytes={self._done}-"
            if known := self._known():
                headers["If-Range"] = known
        return headers

    def _known(self) -> str:
        """Give what the server called the content that is here in part."""
        try:
            return self._file.note.read_text(encoding="latin-1")
        except FileNotFoundError:
            return ""

    def _take_refusal(self, exc: RefusedError) -> None:
        if exc.http_status != 416:
            msg = f"{self._file.what}: {exc}"
            raise RefusedError(msg, http_status=exc.http_status, code=exc.code) from exc
        if self._size is None and exc.total_bytes == self._done:
            self._size = self._done
            return
        self._begin_again()
        raise BrokenOffError(str(exc)) from exc

    def _begin(self, head: Head) -> None:
        """Decide where in the file an answer belongs."""
        self._refuse_page(head)
        if head.coding and head.coding not in _UNZIPPED:
            msg = f"{self._file.what}: the server sends it coded as {head.coding!r:.40}"
            raise DownloadError(msg)
        first, total = head.span
        if head.status == 206:
            known = self._known()
            is_other = bool(known and head.validator and known != head.validator)
            is_other = is_other or (total is not None and self._size not in {None, total})
            if first != self._done or head.coding or is_other:
                self._begin_again()
                msg = "the server answered with another part than was asked for"
                raise BrokenOffError(msg)
            self._is_joined = self._done > 0
        else:
            if self._done:
                self._begin_again()
            self._ask_for_rest = True
            total = None if head.coding else head.length
            if total is not None and self._size not in {None, total}:
                self._refuse(f"the server has {total} bytes")
        if not self._done:
            self._write_note("" if head.coding else head.validator)
        if total is not None:
            self._size = total
        if self._size is not None:
            self._watch.learn(self._size)

    def _refuse_page(self, head: Head) -> None:
        if head.media_type in _PAGES and not self._file.name.lower().endswith((".html", ".htm")):
            size = "" if head.length is None else f", {head.length} bytes"
            msg = (
                f"{self._file.what}: the server sent a web page ({head.media_type}{size}) in its "
                "place; open the address in a browser: it may ask to log in, or to accept terms"
            )
            raise DownloadError(msg)

    def _write_note(self, text: str) -> None:
        if text:
            self._file.note.write_text(text, encoding="latin-1", errors="replace")

    def _take(self, piece: bytes) -> None:
        if self._size is not None and self._done + len(piece) > self._size:
            self._refuse(f"the server sends more than {self._size} bytes")
        self._hasher.update(piece)
        view = memoryview(piece)
        while view:
            written = self._out.write(view)
            view = view[written:]
        self._done += len(piece)
        self._watch.have(self._done)

    def _end(self, head: Head, *, is_whole: bool) -> None:
        """Decide whether an answer that ended was all."""
        if self._size is not None or not is_whole:
            if self._done == self._size and is_whole:
                return
            msg = f"the connection ended after {self._done} bytes"
            raise BrokenOffError(msg)
        # Without any length an end that does not fit may be a cut: believed the second time.
        is_sure = head.is_chunked or bool(head.coding) or self._done == self._doubtful_end
        self._is_ended = is_sure or self._is_right()
        if not self._is_ended:
            self._doubtful_end = self._done
            msg = "the connection ended, and nobody said where the file does"
            raise BrokenOffError(msg)

    def _is_right(self) -> bool:
        return self._hasher.hexdigest() == self._file.digest.hex

    def _verify(self) -> None:
        if not self._is_right():
            start = os.pread(self._out.fileno(), _START_BYTES, 0).lstrip().lower()
            kind = next((kind for known, kind in _STRANGERS.items() if start.startswith(known)), "")
            found = f"{self._file.digest.algorithm} {self._hasher.hexdigest()}"
            self._refuse(f"what came is {found} ({self._done} bytes{kind})")

    def _refuse(self, found: str) -> NoReturn:
        """Throw everything away; a file made of two answers gets a second chance."""
        was_joined = self._is_joined
        self._begin_again()
        if was_joined:
            raise BrokenOffError(found)
        size = "" if self._file.size_bytes is None else f" ({self._file.size_bytes} bytes)"
        msg = (
            f"{self._file.what}: its source states {self._file.digest}{size}, and {found}; nothing "
            "was kept; try again later, or ask whoever runs the server"
        )
        raise VerificationError(msg)

    def _pause(self, exc: BrokenOffError, failures: int) -> None:
        if failures >= self._patience.attempts:
            msg = f"{self._file.what}: {_named(exc)}, {failures} times without a byte more"
            raise RefusedError(msg, http_status=exc.status or -1) from exc
        seconds = self._patience.pause_s * 2**failures if exc.wait_s is None else exc.wait_s
        if seconds > self._patience.longest_pause_s:
            msg = f"{self._file.what}: {_named(exc)}, and asks to wait {seconds:.0f} s; try then"
            raise RefusedError(msg, http_status=exc.status) from exc
        self._watch.have(self._done, f"{exc}; asking again in {seconds:.0f} s")
        wait(seconds, self._watch.check)


def _named(exc: BrokenOffError) -> str:
    return f"the server limits how often it is asked: {exc}" if exc.status == 429 else str(exc)


def _unzip(decoder: zlib._Decompress, piece: bytes) -> bytes:
    try:
        return decoder.decompress(piece)
    except zlib.error as exc:
        msg = f"the server's coding is damaged: {exc}"
        raise BrokenOffError(msg) from exc
