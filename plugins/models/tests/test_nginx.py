"""Downloads from a real static server."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from loopback import noise
from nginx import NGINX, Nginx

from cartridge_core.context import Context
from cartridge_core.errors import DownloadError, VerificationError
from cartridge_models.digests import Digest
from cartridge_models.fetching import Order, fetch
from cartridge_models.remote import Patience, RemoteFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")

DATA = noise(5_000_000, 9)
TEXT = b"a line of text\n" * 100_000


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Nginx]:
    """A folder served by nginx, which compresses all that it may."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "m.gguf").write_bytes(DATA)
    (folder / "t.json").write_bytes(TEXT)
    server = Nginx(folder, "gzip on; gzip_types *; gzip_min_length 1;")
    yield server
    server.close()


def order(site: Nginx, folder: Path, name: str, data: bytes) -> Order:
    file = RemoteFile(
        what=name,
        name=name,
        url=f"{site.url}/{name}",
        digest=Digest("sha256", hashlib.sha256(data).hexdigest()),
        size_bytes=None,
        target=folder / "cache" / name,
        part=folder / "cache" / f"{name}.part",
    )
    return Order(name, [file], folder / "locks", "use another disk")


@pytest.mark.parametrize(("name", "data"), [("m.gguf", DATA), ("t.json", TEXT)])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.6, 1.0])
def test_file_is_fetched_from_where_it_was(
    site: Nginx, tmp_path: Path, name: str, data: bytes, share: float
) -> None:
    """Nginx sends the rest, and not compressed; asked for what is behind the end it says so."""
    wanted = order(site, tmp_path, name, data)
    (file,) = wanted.files
    here = int(len(data) * share)
    file.part.parent.mkdir()
    file.part.write_bytes(data[:here])
    fetch(wanted, Context(), Patience())
    assert file.target.read_bytes() == data
    site.close()
    status = 200 if share == 0.0 else 206 if share < 1.0 else 416
    sent = f" {len(data) - here}" if status != 416 else ""
    assert f'GET /{name} HTTP/1.1" {status}{sent}' in site.asked[-1]


def test_file_that_changed_since_is_fetched_whole(site: Nginx, tmp_path: Path) -> None:
    """A part of what nginx had before is thrown away by its ETag, without a wrong digest."""
    wanted = order(site, tmp_path, "m.gguf", DATA)
    (file,) = wanted.files
    file.part.parent.mkdir()
    file.part.write_bytes(b"x" * 1000)
    file.note.write_text('"5f3b2c1a-3e8"')
    fetch(wanted, Context(), Patience())
    assert file.target.read_bytes() == DATA
    site.close()
    assert [line.split()[3] for line in site.asked if "GET" in line] == ["200"]


def test_error_file_that_is_missing_or_another(site: Nginx, tmp_path: Path) -> None:
    """Nginx's own page for what is missing is no file, and another file is told apart."""
    with pytest.raises(DownloadError, match="answered 404 Not Found"):
        fetch(order(site, tmp_path, "none.gguf", DATA), Context(), Patience())
    with pytest.raises(VerificationError, match=hashlib.sha256(DATA).hexdigest()):
        fetch(order(site, tmp_path, "m.gguf", b"other"), Context(), Patience())
    assert list((tmp_path / "cache").iterdir()) == []
