"""One HTTP request and its answer: proxies, redirects, and what an error means."""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import re
import ssl
import time
import urllib.error
import urllib.request
import urllib.response
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit

import attrs

from cartridge_core.errors import DownloadError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from email.message import Message
    from typing import IO

__all__ = ["BrokenOffError", "Head", "RefusedError", "receive", "retry_after_s"]

_CHUNK_BYTES = 1 << 20
_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_KEPT = "%/:?#[]@!$&'()*+,;=~"
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class BrokenOffError(Exception):
    """
    The answer did not come, or not to its end; asking again may help.

    Attributes:
        status: The answer's status, where there was one.
        wait_s: How long the server asks to wait.
    """

    def __init__(self, text: str, *, status: int = 0, wait_s: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.wait_s = wait_s


class RefusedError(DownloadError):
    """
    The server refuses; asking again does not help.

    Attributes:
        http_status: The answer's status.
        code: The hub's own word for it (``X-Error-Code``).
        total_bytes: Of a range that does not exist: the file's size.
    """

    def __init__(
        self, message: str, *, http_status: int = 0, code: str = "", total_bytes: int | None = None
    ) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.code = code
        self.total_bytes = total_bytes


@attrs.frozen
class Head:
    """What an answer says before its body."""

    status: int
    headers: Message = attrs.field(repr=False)

    @property
    def media_type(self) -> str:
        """``text/html`` for one, in lower case."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def coding(self) -> str:
        """How the body is coded; empty where it is the file as it is."""
        coding = self.headers.get("Content-Encoding", "").strip().lower()
        return "" if coding == "identity" else coding

    @property
    def length(self) -> int | None:
        """Bytes of the body; None where the answer does not say."""
        text = self.headers.get("Content-Length", "")
        return int(text) if text.isdecimal() and not self.is_chunked else None

    @property
    def is_chunked(self) -> bool:
        """Whether the body says itself where it ends."""
        return "chunked" in self.headers.get("Transfer-Encoding", "").lower()

    @property
    def validator(self) -> str:
        """
        What names this very content, for ``If-Range``; empty where nothing does.

        Source: RFC 9110, 13.1.5: a weak ETag is no such thing.
        """
        tag = str(self.headers.get("ETag", ""))
        if tag.startswith('"'):
            return tag
        return "" if tag else str(self.headers.get("Last-Modified", ""))

    @property
    def span(self) -> tuple[int | None, int | None]:
        """The first byte of the part that this is, and the whole file's size."""
        return _read_range(self.headers)


def receive(
    url: str, headers: Mapping[str, str], stall_s: float
) -> Generator[Head | bytes, None, None]:
    """
    Ask for a file; give the answer's head, then its body in pieces.

    Proxies are those of the environment. A redirect to another host takes no ``Authorization``
    with it, and one from https goes to https.

    Args:
        url: Where.
        headers: What to say; ``Authorization`` goes to this host only.
        stall_s: How many seconds may pass without a byte.

    Raises:
        BrokenOffError: No answer, or not all of it.

        RefusedError: An answer that is none.
    """
    public = {name: value for name, value in headers.items() if name.lower() != "authorization"}
    request = urllib.request.Request(_quoted(url), headers=public)  # noqa: S310 -- https, or the hub's own address
    for name in headers.keys() - public.keys():
        request.add_unredirected_header(name, headers[name])
    opener = urllib.request.build_opener(_Redirects)
    try:
        with opener.open(request, timeout=stall_s) as response:
            yield Head(response.status, response.headers)
            while piece := response.read1(_CHUNK_BYTES):
                yield piece
    except urllib.error.HTTPError as exc:
        with contextlib.closing(exc):
            raise _refused(exc) from None
    except ValueError as exc:
        # It may have the whole address in its text.
        msg = f"{_site(url)} answers with what is no address ({type(exc).__name__})"
        raise RefusedError(msg) from None
    except (OSError, http.client.HTTPException) as exc:
        reason = exc.reason if isinstance(exc, urllib.error.URLError) else exc
        if isinstance(reason, ssl.SSLCertVerificationError):
            msg = f"{_site(url)} cannot prove who it is: {reason.verify_message}"
            raise RefusedError(msg) from exc
        if isinstance(reason, TimeoutError):
            msg = f"{_site(url)} sent nothing for {stall_s:g} s"
            raise BrokenOffError(msg) from exc
        text = " ".join(str(reason).split()) or type(reason).__name__
        msg = f"{_site(url)}: {text}"
        raise BrokenOffError(msg) from exc


def retry_after_s(headers: Mapping[str, str] | Message) -> float | None:
    """
    Read how long a server asks to wait, in seconds.

    Source: RFC 9110, 10.2.3: a number of seconds, or a date.
    """
    text = str(headers.get("Retry-After") or "").strip()
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects that give nothing away."""

    def http_error_302(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
    ) -> urllib.response.addinfourl | None:
        """Follow; the answer is closed also where that cannot be."""
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except BaseException:
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Make the next request."""
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is None:
            return None
        here, there = urlsplit(req.full_url), urlsplit(following.full_url)
        allowed = {"https"} if here.scheme == "https" else {"http", "https"}
        if there.scheme not in allowed:
            text = f"{_site(req.full_url)} redirects from {here.scheme} to {there.scheme}"
            raise RefusedError(text, http_status=code)
        if (here.scheme, here.netloc) == (there.scheme, there.netloc):
            for name, value in req.unredirected_hdrs.items():
                if name == "Authorization":
                    following.add_unredirected_header(name, value)
        return following


def _refused(exc: urllib.error.HTTPError) -> Exception:
    said = exc.headers.get("X-Error-Message") or exc.reason
    text = f"{_site(exc.url)} answered {exc.code} {said}".strip()
    if exc.code in _PASSING:
        return BrokenOffError(text, status=exc.code, wait_s=retry_after_s(exc.headers))
    total = _read_range(exc.headers)[1]
    code = exc.headers.get("X-Error-Code", "")
    return RefusedError(text, http_status=exc.code, code=code, total_bytes=total)


def _read_range(headers: Message) -> tuple[int | None, int | None]:
    found = _RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if found is None:
        return None, None
    first, _, total = found.groups()
    return None if first is None else int(first), None if total == "*" else int(total)


def _quoted(url: str) -> str:
    """Write an address as HTTP has it, which knows ASCII alone."""
    parts = urlsplit(url)
    path, query = (quote(part, safe=_KEPT) for part in (parts.path, parts.query))
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


def _site(url: str) -> str:
    """Name a server without what an address may hold besides."""
    return urlsplit(url).hostname or "the server"
