"""One file over HTTP: every odd answer ends in the right bytes, or in an error that names it."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import TYPE_CHECKING

import attrs
import pytest
from loopback import Asked, Loopback, git_name

from cartridge_core.errors import CancelledError, DownloadError, VerificationError
from cartridge_models.digests import Digest
from cartridge_models.receiving import RefusedError
from cartridge_models.remote import Patience, RemoteFile
from cartridge_models.transfer import transfer

if TYPE_CHECKING:
    from pathlib import Path

DATA = bytes(range(256)) * 4096
PATH = "/model.gguf"
PATIENCE = Patience(stall_s=5.0, attempts=3, pause_s=0.01, longest_pause_s=1.0)
HALF = len(DATA) // 2


class Watcher:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.notes: list[str] = []
        self.size: int | None = None
        self.is_cancelled = False

    def check(self) -> None:
        if self.is_cancelled:
            raise CancelledError

    def learn(self, size_bytes: int) -> None:
        self.size = size_bytes

    def have(self, done_bytes: int, note: str = "") -> None:
        self.done.append(done_bytes)
        if note:
            self.notes.append(note)


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def server(loopback: Loopback) -> Loopback:
    loopback.files[PATH] = DATA
    return loopback


def sha256(data: bytes) -> Digest:
    return Digest("sha256", hashlib.sha256(data).hexdigest())


def remote(server: Loopback, folder: Path, *, size: int | None = len(DATA)) -> RemoteFile:
    part = folder / "blobs" / "part"
    return RemoteFile(
        what="model x: model.gguf",
        name="model.gguf",
        url=server.url + PATH,
        digest=sha256(DATA),
        size_bytes=size,
        target=part.with_name("whole"),
        part=part,
    )


def leave_part(file: RemoteFile, server: Loopback, data: bytes = DATA[:HALF]) -> None:
    """Leave what a killed process leaves."""
    file.part.parent.mkdir(parents=True)
    file.part.write_bytes(data)
    file.note.write_text(server.etag(PATH))


ODD = [
    "plain",
    "whole",
    "other-start",
    "other-total",
    "no-total",
    "no-range",
    "multipart",
    "new-etag",
    "no-etag",
    "gzip",
    "gzip-range",
    "short",
    "no-length",
    "no-length-short",
    "chunked",
    "chunked-short",
    "wrong",
    "416",
    "416-bare",
    "drop",
    "reset",
    "503",
    "500",
    "429:0",
    "408",
]


@pytest.mark.parametrize("size", [len(DATA), None], ids=["size-stated", "size-unknown"])
@pytest.mark.parametrize("oddity", ODD)
def test_odd_answer_to_a_request_for_the_rest(
    server: Loopback, tmp_path: Path, watcher: Watcher, oddity: str, size: int | None
) -> None:
    """Whatever the server answers when asked for the rest, the right bytes are there in the end."""
    file = remote(server, tmp_path, size=size)
    leave_part(file, server)
    server.oddities = [oddity]
    transfer(file, PATIENCE, watcher)
    assert file.part.read_bytes() == DATA
    assert server.asked[0].range == f"bytes={HALF}-"
    assert server.asked[0].headers["If-Range"] == server.etag(PATH)


@pytest.mark.parametrize("size", [len(DATA), None], ids=["size-stated", "size-unknown"])
@pytest.mark.parametrize(
    "oddity",
    [
        odd
        for odd in ODD
        if odd not in {"wrong", "other-start", "other-total", "multipart", "no-range", "416"}
    ],
)
def test_odd_answer_to_a_request_for_the_whole(
    server: Loopback, tmp_path: Path, watcher: Watcher, oddity: str, size: int | None
) -> None:
    """Whatever goes wrong the first time, the right bytes are there in the end."""
    file = remote(server, tmp_path, size=size)
    server.oddities = [oddity if oddity != "416-bare" else "504"]
    transfer(file, PATIENCE, watcher)
    assert file.part.read_bytes() == DATA


@pytest.mark.parametrize("first", ["short", "no-length-short", "chunked-short", "reset", "stall"])
@pytest.mark.parametrize("second", ["whole", "new-etag", "gzip", "416", "short", "wrong"])
def test_two_oddities_in_a_row(
    server: Loopback, tmp_path: Path, watcher: Watcher, first: str, second: str
) -> None:
    """An odd answer after a broken one ends in the right bytes too."""
    file = remote(server, tmp_path)
    server.oddities = [first, second]
    transfer(file, attrs.evolve(PATIENCE, stall_s=0.2), watcher)
    assert file.part.read_bytes() == DATA


@pytest.mark.parametrize(
    ("cut", "most"),
    [
        pytest.param(0.6, 0.45, id="a05-60"),
        pytest.param(0.01, 1.0, id="a05-1"),
        pytest.param(0.999, 0.01, id="a05-99"),
        pytest.param(0.3, 0.75, id="a05-30"),
    ],
)
def test_a05_only_the_rest_is_transferred(
    server: Loopback, tmp_path: Path, watcher: Watcher, cut: float, most: float
) -> None:
    """What is here is not transferred again; its bytes are in the first report."""
    file = remote(server, tmp_path)
    here = int(len(DATA) * cut)
    leave_part(file, server, DATA[:here])
    transfer(file, PATIENCE, watcher)
    assert server.sent_bytes == len(DATA) - here <= most * len(DATA)
    assert watcher.done[0] == here
    assert "checking what is here" in watcher.notes[0]


def test_part_that_is_whole_needs_no_server(tmp_path: Path, watcher: Watcher) -> None:
    """A process that was killed between the last byte and its file's place costs no request."""
    server = Loopback()
    file = remote(server, tmp_path)
    server.files[PATH] = DATA
    leave_part(file, server, DATA)
    server.close()
    transfer(file, PATIENCE, watcher)
    assert server.asked == []


def test_part_of_a_size_that_nobody_states(
    server: Loopback, tmp_path: Path, watcher: Watcher
) -> None:
    """Where all of it is here and nobody said how much that is, the server's 416 does."""
    file = remote(server, tmp_path, size=None)
    leave_part(file, server, DATA)
    server.oddities = ["416"]
    transfer(file, PATIENCE, watcher)
    assert server.sent_bytes == 0


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(b"x" * HALF, id="of-another-file"),
        pytest.param(DATA + b"x", id="longer-than-the-file"),
        pytest.param(b"x" * len(DATA), id="as-long-as-the-file"),
        pytest.param(DATA[:HALF] + b"\0" * 4096, id="with-a-hole"),
    ],
)
@pytest.mark.parametrize("note", ["", '"other"'], ids=["no-note", "of-another-etag"])
def test_part_that_is_damaged_is_replaced(
    server: Loopback, tmp_path: Path, watcher: Watcher, part: bytes, note: str
) -> None:
    """A part that is not the file's beginning costs a second transfer, and nothing else."""
    file = remote(server, tmp_path)
    leave_part(file, server, part)
    file.note.write_text(note)
    transfer(file, PATIENCE, watcher)
    assert file.part.read_bytes() == DATA


@pytest.mark.parametrize(
    ("oddities", "found"),
    [
        pytest.param(["wrong"], hashlib.sha256(bytes(b ^ 1 for b in DATA)).hexdigest(), id="other"),
        pytest.param(["longer"], f"the server has {len(DATA) + 8} bytes", id="longer"),
        pytest.param(["short", "wrong", "wrong"], "what came is sha256", id="joined-then-other"),
    ],
)
def test_error_wrong_file_is_not_kept(
    server: Loopback, tmp_path: Path, watcher: Watcher, oddities: list[str], found: str
) -> None:
    """A file that is not what its source states goes, with both digests in the error."""
    file = remote(server, tmp_path)
    server.oddities = oddities
    with pytest.raises(VerificationError, match=found) as caught:
        transfer(file, PATIENCE, watcher)
    assert sha256(DATA).hex in str(caught.value)
    assert not file.part.exists()
    assert not file.note.exists()


@pytest.mark.parametrize("oddity", ["wrong", "no-length", "chunked", "gzip"])
def test_error_wrong_file_of_unknown_size(
    server: Loopback, tmp_path: Path, watcher: Watcher, oddity: str
) -> None:
    """Without a size the digest alone decides, and an end that nobody announced is asked twice."""
    file = attrs.evolve(remote(server, tmp_path, size=None), digest=sha256(b"other"))
    server.oddities = [oddity] * 4
    with pytest.raises(VerificationError, match="what came is sha256") as caught:
        transfer(file, PATIENCE, watcher)
    assert sha256(b"other").hex in str(caught.value)
    assert not file.part.exists()


@pytest.mark.parametrize("is_begun", [False, True], ids=["a06-at-once", "a06-for-the-rest"])
@pytest.mark.parametrize("size", [len(DATA), None], ids=["size-stated", "size-unknown"])
def test_error_a06_a_web_page_is_no_model(
    server: Loopback, tmp_path: Path, watcher: Watcher, size: int | None, is_begun: bool
) -> None:
    """A page in place of the file is told as that; what was here of the file stays."""
    file = remote(server, tmp_path, size=size)
    if is_begun:
        leave_part(file, server)
    server.oddities = ["page"]
    with pytest.raises(DownloadError, match=r"a web page \(text/html, 27 bytes\) in its place"):
        transfer(file, PATIENCE, watcher)
    assert file.part.exists() == is_begun


@pytest.mark.parametrize(
    ("data", "found"),
    [
        pytest.param(b"<html>please log in</html>", "26 bytes, a web page", id="a06-page"),
        pytest.param(b"\n <!DOCTYPE HTML><p>", "20 bytes, a web page", id="a06-page-with-a-type"),
        pytest.param(
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
            "Git LFS's pointer to the file",
            id="a06-pointer",
        ),
        pytest.param(b"GGUF and no more", r"16 bytes\)", id="a06-cut"),
    ],
)
def test_error_a06_what_came_instead_is_named(
    server: Loopback, tmp_path: Path, watcher: Watcher, data: bytes, found: str
) -> None:
    """Whatever a server calls it, what came in the model's place is named where it is known."""
    file = remote(server, tmp_path, size=None)
    server.files[PATH] = data
    with pytest.raises(VerificationError, match=found):
        transfer(file, PATIENCE, watcher)
    assert not file.part.exists()


def test_page_that_is_asked_for_is_a_file(
    server: Loopback, tmp_path: Path, watcher: Watcher
) -> None:
    """A repository may hold a page."""
    page = b"<html>please log in</html>\n"
    file = attrs.evolve(
        remote(server, tmp_path, size=len(page)), name="doc/index.HTML", digest=sha256(page)
    )
    server.oddities = ["page"]
    transfer(file, PATIENCE, watcher)
    assert file.part.read_bytes() == page


@pytest.mark.parametrize(
    ("oddity", "message"),
    [
        pytest.param("drop", "3 times without a byte more", id="no-answer"),
        pytest.param("503", "answered 503", id="busy"),
        pytest.param("429", "limits how often it is asked: 127.0.0.1 answered 429", id="limited"),
        pytest.param("429:3600", "asks to wait 3600 s; try then", id="limited-for-long"),
        pytest.param("403", "answered 403", id="forbidden"),
        pytest.param("404", "answered 404", id="missing"),
    ],
)
def test_error_server_that_does_not_give_it(
    server: Loopback, tmp_path: Path, watcher: Watcher, oddity: str, message: str
) -> None:
    """A server that goes on refusing is an error that says what it answered; the part stays."""
    file = remote(server, tmp_path)
    leave_part(file, server)
    server.oddities = [oddity] * 9
    with pytest.raises(RefusedError, match=message):
        transfer(file, PATIENCE, watcher)
    assert len(server.asked) == (3 if oddity in {"drop", "503", "429"} else 1)
    assert file.part.stat().st_size == HALF


def test_limited_server_is_asked_when_it_wants(
    server: Loopback, tmp_path: Path, watcher: Watcher
) -> None:
    """A 429 that asks to wait is waited for, and told."""
    server.oddities = ["429:1"]
    start_s = time.monotonic()
    transfer(remote(server, tmp_path), PATIENCE, watcher)
    assert time.monotonic() - start_s >= 1.0
    assert "asking again in 1 s" in watcher.notes[0]


def test_error_stall_is_named_after_some_tries(
    server: Loopback, tmp_path: Path, watcher: Watcher
) -> None:
    """A server that goes silent is asked again, then the error says for how long it was silent."""
    file = remote(server, tmp_path)
    server.oddities = ["stall"] + ["stall:at-once"] * 9
    with pytest.raises(DownloadError, match=r"sent nothing for 0\.2 s"):
        transfer(file, attrs.evolve(PATIENCE, stall_s=0.2, attempts=2), watcher)
    assert len(server.asked) == 3
    assert file.part.stat().st_size == HALF


def test_cancel_in_a_stall_is_obeyed_at_once(
    server: Loopback, tmp_path: Path, watcher: Watcher
) -> None:
    """Cancelling while nothing comes takes less than a quarter of a second; the part stays."""
    file = remote(server, tmp_path)
    server.oddities = ["stall"]
    cancelled_s: list[float] = []

    def cancel() -> None:
        server.held.wait(20)
        time.sleep(0.1)
        cancelled_s.append(time.monotonic())
        watcher.is_cancelled = True

    helper = threading.Thread(target=cancel)
    helper.start()
    with pytest.raises(CancelledError):
        transfer(file, PATIENCE, watcher)
    assert time.monotonic() - cancelled_s[0] < 0.25
    helper.join()
    assert file.part.stat().st_size == HALF


@pytest.mark.parametrize("oddity", ["brotli"])
def test_error_unknown_coding(
    server: Loopback, tmp_path: Path, watcher: Watcher, oddity: str
) -> None:
    """A coding that nobody asked for and we cannot read is named."""
    server.oddities = [oddity]
    with pytest.raises(DownloadError, match="coded as 'br'"):
        transfer(remote(server, tmp_path), PATIENCE, watcher)


@pytest.mark.parametrize("data", [b"", b"{}", DATA], ids=["empty", "two-bytes", "larger"])
def test_file_that_git_names_is_checked(
    server: Loopback, tmp_path: Path, watcher: Watcher, data: bytes
) -> None:
    """What the hub states of a small file is git's name of its content."""
    server.files[PATH] = data
    file = attrs.evolve(
        remote(server, tmp_path, size=len(data)), digest=Digest("git-sha1", git_name(data))
    )
    transfer(file, PATIENCE, watcher)
    assert file.part.read_bytes() == data
    server.files[PATH] = b"!" * len(data)
    file.part.unlink()
    if data:
        with pytest.raises(VerificationError, match=f"git-sha1 {git_name(data)}"):
            transfer(file, PATIENCE, watcher)


def test_token_goes_to_its_own_host_only(
    server: Loopback, tmp_path: Path, watcher: Watcher
) -> None:
    """A redirect to another host takes no token with it; one to the same host does."""
    hops: list[tuple[str, str]] = []

    class Front(Loopback):
        def other(self, asked: Asked, query: str) -> tuple[int, dict[str, str], bytes]:
            hops.append((asked.path, asked.token))
            place = f"{self.url}/second" if asked.path == PATH else server.url + PATH
            return 302, {"Location": place}, b""

    front = Front()
    file = attrs.evolve(
        remote(server, tmp_path), url=front.url + PATH, headers={"Authorization": "Bearer s3cret"}
    )
    transfer(file, PATIENCE, watcher)
    front.close()
    assert hops == [(PATH, "Bearer s3cret"), ("/second", "Bearer s3cret")]
    assert [one.token for one in server.asked] == [""]
    assert "s3cret" not in repr(file) + "".join(watcher.notes)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        pytest.param("http://[x/y", "answers with what is no address", id="no-address"),
        pytest.param("http://h:port/", "nonnumeric port", id="no-port"),
        pytest.param("ftp://h/x", "redirects from http to ftp", id="another-kind-of-server"),
        pytest.param("/model.gguf", "answered 302", id="itself"),
        pytest.param("", "answered 302|no answer", id="nothing"),
    ],
)
def test_error_redirect_to_nowhere(
    server: Loopback, tmp_path: Path, watcher: Watcher, place: str, message: str
) -> None:
    """A redirect that cannot be followed is an error with a name."""
    server.other = lambda asked, query: (302, {"Location": place}, b"")  # type: ignore[method-assign]
    with pytest.raises(DownloadError, match=message):
        transfer(remote(server, tmp_path), PATIENCE, watcher)


def test_proxy_of_the_environment_is_used(
    server: Loopback, tmp_path: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy is asked instead, unless the host is exempt."""
    proxy = Loopback({"//model.example/model.gguf": DATA, PATH: DATA})
    monkeypatch.setenv("http_proxy", proxy.url)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    file = attrs.evolve(remote(server, tmp_path), url=f"http://model.example{PATH}")
    transfer(file, PATIENCE, watcher)
    assert [one.headers["Host"] for one in proxy.asked] == ["model.example"]
    proxy.close()
    file.part.unlink()
    transfer(remote(server, tmp_path), PATIENCE, watcher)
    assert len(server.asked) == 1
