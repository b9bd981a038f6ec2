"""A file server on loopback that misbehaves on purpose, one answer after the other."""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import http.server
import random
import re
import socket
import ssl
import struct
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message
    from pathlib import Path

__all__ = ["PAGE", "Asked", "Loopback", "git_name", "noise", "quoted", "sha256"]

PAGE = b"<html>please log in</html>\n"
"""27 bytes that are no model."""

_PIECE_BYTES = 1 << 16
_MANY_BYTES = 1 << 20
_NAP_S = 0.01


@attrs.frozen
class Asked:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]

    @property
    def range(self) -> str:
        """What part was asked for; empty for the whole."""
        return self.headers.get("Range", "")

    @property
    def token(self) -> str:
        """What it says about who asks."""
        return self.headers.get("Authorization", "")


class Loopback:
    """
    A server of files.

    Attributes:
        files: Their content by path.
        oddities: How the next requests for files are answered, each by one word of
            ``_Handler.answers``; a plain answer after those.
        asked: Every request.
        sent_bytes: Of bodies of files.
        hold_at: The place in a file at which every answer waits for ``go``, and ends.
        held: Set once one waits.
        pace_bytes_s: The most that one answer sends in a second.
        etags: By path, what a file's content is called; its quoted SHA-256 where nothing is said.
    """

    def __init__(
        self, files: dict[str, bytes] | None = None, *, certificate: Path | None = None
    ) -> None:
        self.files = files or {}
        self.oddities: list[str] = []
        self.asked: list[Asked] = []
        self.sent_bytes = 0
        self.hold_at: int | None = None
        self.held = threading.Event()
        self.go = threading.Event()
        self.pace_bytes_s: float | None = None
        self.etags: dict[str, str] = {}
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"loopback": self}))
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self.go.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def etag(self, path: str) -> str:
        """Give what a file's content is called."""
        return self.etags.get(path) or quoted(sha256(self.files[path]))

    def more_headers(self, path: str) -> dict[str, str]:
        """Give what else is said of a file."""
        del path
        return {}

    def other(self, asked: Asked, query: str) -> tuple[int, dict[str, str], bytes] | None:
        """Give the answer to what is no file; None where it is one."""
        del query
        return None if asked.path in self.files else (404, {}, b"")


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients are killed on purpose."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    loopback: Loopback

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- as the base class
        """Say nothing."""

    def do_HEAD(self) -> None:
        """Answer with the head alone."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer."""
        parts = urlsplit(self.path)
        asked = Asked(self.command, unquote(parts.path), _named(self.headers))
        with self.loopback.lock:
            self.loopback.asked.append(asked)
        other = self.loopback.other(asked, parts.query)
        if other is not None:
            status, headers, body = other
            self._head(status, {**headers, "Content-Length": str(len(body))})
            if self.command == "GET":
                self.wfile.write(body)
            return
        with self.loopback.lock:
            oddity = self.loopback.oddities.pop(0) if self.loopback.oddities else "plain"
        self.close_connection = oddity not in {"plain", "whole"}
        self._file(asked, oddity)

    def _file(self, asked: Asked, oddity: str) -> None:
        data, etag = self.loopback.files[asked.path], self.loopback.etag(asked.path)
        start, end = self._part(asked, etag, len(data), always=oddity == "new-etag")
        total, body = len(data), data[start:end]
        headers = {"ETag": etag, "Content-Type": "application/octet-stream"}
        headers |= self.loopback.more_headers(asked.path)
        status = 200 if start is None else 206
        start = start or 0
        span = f"bytes {start}-{start + len(body) - 1}/{total}"
        length: int | None = len(body)
        cut: int | None = None
        match oddity.partition(":"):
            case ("whole", _, _):
                status, start, body, length = 200, 0, data, total
            case ("other-start", _, _):
                start, body, length = 0, data, total
                span = f"bytes 0-{total - 1}/{total}"
            case ("other-total", _, _):
                span = f"bytes {start}-{total + 6}/{total + 7}"
            case ("no-total", _, _):
                span = f"bytes {start}-{total - 1}/*"
            case ("no-range", _, _):
                span = ""
            case ("multipart", _, _):
                headers["Content-Type"] = "multipart/byteranges; boundary=x"
                body = b"--x\r\nContent-Range: " + span.encode() + b"\r\n\r\n" + body + b"\r\n--x--"
                span, length = "", len(body)
            case ("new-etag", _, _):
                headers["ETag"] = '"another"'
            case ("no-etag", _, _):
                del headers["ETag"]
            case ("gzip", _, _):
                headers["Content-Encoding"] = "gzip"
                status, body = 200, gzip.compress(data)
                length = len(body)
            case ("gzip-range", _, _):
                headers["Content-Encoding"] = "gzip"
                body = gzip.compress(body)
                length = len(body)
            case ("brotli", _, _):
                headers["Content-Encoding"] = "br"
            case ("short", _, where):
                cut = max(0, int(where) - start) if where else len(body) // 2
            case ("no-length", _, _):
                length = None
            case ("no-length-short", _, _):
                length, cut = None, len(body) // 2
            case ("chunked" | "chunked-short" as how, _, _):
                self._chunked(headers, status, span, body, is_short=how == "chunked-short")
                return
            case ("page", _, _):
                headers["Content-Type"] = "text/html; charset=utf-8"
                status, body, length = 200, PAGE, len(PAGE)
            case ("wrong", _, _):
                body = bytes(byte ^ 1 for byte in body)
            case ("longer", _, _):
                body += b"and more"
                length = len(body)
            case ("416", _, _):
                status, span, body, length = 416, f"bytes */{total}", b"", 0
            case ("416-bare", _, _):
                status, span, body, length = 416, "", b"", 0
            case ("drop", _, _):
                return
            case ("reset", _, _):
                self._begin(status, headers, span, length)
                self._send(body[: len(body) // 2], start)
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
                return
            case ("stall", _, how):
                self._begin(status, headers, span, length)
                self._send(b"" if how == "at-once" else body[: len(body) // 2], start)
                self.loopback.held.set()
                self.loopback.go.wait()
                return
            case (number, _, wait) if number.isdecimal():
                headers |= {"Retry-After": wait} if wait else {}
                status, span, body, length = int(number), "", b"", 0
            case ("plain", _, _):
                pass
            case _:
                raise ValueError(oddity)
        self._begin(status, headers, span, length)
        self._send(body if cut is None else body[:cut], start)

    def _part(self, asked: Asked, etag: str, total: int, *, always: bool) -> tuple[int | None, int]:
        """Give what part is asked for; None where it is the whole."""
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked.range)
        condition = asked.headers.get("If-Range")
        if found is None or (condition not in {None, etag} and not always):
            return None, total
        return int(found[1]), min(total, int(found[2] or total) + 1)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _begin(self, status: int, headers: dict[str, str], span: str, length: int | None) -> None:
        more = {"Content-Range": span} if span and status in {206, 416} else {}
        if length is None:
            self.close_connection = True
        else:
            more["Content-Length"] = str(length)
        self._head(status, headers | more)

    def _send(self, body: bytes, start: int) -> None:
        if self.command == "HEAD":
            return
        loopback, pace = self.loopback, self.loopback.pace_bytes_s
        size = _MANY_BYTES if pace is None else max(1, int(pace * _NAP_S))
        place = 0
        while place < len(body):
            end = place + size
            if loopback.hold_at is not None and place + start <= loopback.hold_at < end + start:
                end = max(place, loopback.hold_at - start)
                self._write(body[place:end])
                loopback.held.set()
                loopback.go.wait()
                self.close_connection = True
                return
            self._write(body[place:end])
            place = end
            if pace is not None:
                time.sleep(_NAP_S)

    def _write(self, piece: bytes) -> None:
        with self.loopback.lock:
            self.loopback.sent_bytes += len(piece)
        self.wfile.write(piece)

    def _chunked(
        self, headers: dict[str, str], status: int, span: str, body: bytes, *, is_short: bool
    ) -> None:
        more = {"Content-Range": span} if status == 206 else {}
        self._head(status, headers | more | {"Transfer-Encoding": "chunked"})
        sent = body[: len(body) // 2] if is_short else body
        for place in range(0, len(sent), _PIECE_BYTES):
            piece = sent[place : place + _PIECE_BYTES]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        with contextlib.suppress(OSError):
            self.wfile.write(b"" if is_short else b"0\r\n\r\n")


def _named(headers: Message) -> dict[str, str]:
    return {name.title(): value for name, value in headers.items()}


def quoted(name: str) -> str:
    """Write an ETag."""
    return f'"{name}"'


def noise(size_bytes: int, seed: int) -> bytes:
    """Make a file that nothing can compress."""
    return random.Random(seed).randbytes(size_bytes)  # noqa: S311 -- the same every time


@functools.lru_cache(64)
def sha256(data: bytes) -> str:
    """Give a file's digest."""
    return hashlib.sha256(data).hexdigest()


def git_name(data: bytes) -> str:
    """Name a file's content as git does."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
