"""Models from the web and from this machine's own disk."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loopback import PAGE, Loopback, noise

from cartridge_core.errors import (
    DownloadError,
    OfflineError,
    UnsupportedError,
    VerificationError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Ask, RecordingContext

DATA = noise(1_000_000, 3)
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for this machine, in one file."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    more = ["-subj", "/CN=loopback", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(file), "-out", f"{file}.crt"]
    subprocess.run([*command, *more, *files], check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


@pytest.fixture
def site(certificate: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """A site that this machine trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
    server = Loopback({"/m/model.gguf": DATA}, certificate=certificate)
    yield server
    server.close()


@pytest.fixture
def spec(site: Loopback) -> str:
    return f"{site.url}/m/model.gguf?token=s3cret#sha256={SHA}"


def test_file_is_fetched_once_and_found(
    ask: Ask, site: Loopback, spec: str, cache: Path, context: RecordingContext
) -> None:
    """A file comes into the cache under its own name; the next request needs nobody."""
    record = ask("download-model", spec)
    path = cache / "https" / SHA / "model.gguf"
    assert record["path"] == str(path)
    assert (record["total_bytes"], record["file_count"]) == (1_000_000, 1)
    assert path.read_bytes() == DATA
    assert sorted(one.name for one in path.parent.iterdir()) == [".source.json", "model.gguf"]
    context.offline = True
    assert ask("download-model", spec)["path"] == str(path)
    assert ask("model-status", spec)["state"] == "ready"
    assert len(site.asked) == 1


def test_what_an_address_holds_of_secrets_is_told_nobody(
    ask: Ask, site: Loopback, spec: str, cache: Path, context: RecordingContext
) -> None:
    """A query may hold a token: neither errors, progress nor the cache have it."""
    site.oddities = ["wrong", "404"]
    said = []
    for _ in range(2):
        with pytest.raises((DownloadError, VerificationError)) as caught:
            ask("download-model", spec)
        said.append(f"{caught.value} {caught.value.__cause__}")
    ask("download-model", spec)
    said += [str(context.events), *(one.read_text() for one in cache.rglob("*.json"))]
    assert "s3cret" not in "".join(said)
    assert "token=s3cret" in str(ask("model-path", spec)["model_spec"])


def test_error_wrong_file(ask: Ask, site: Loopback, spec: str, cache: Path) -> None:
    """A file with another digest is refused with both, and not kept."""
    site.files["/m/model.gguf"] = b"other"
    with pytest.raises(VerificationError) as caught:
        ask("download-model", spec)
    assert SHA in str(caught.value)
    assert hashlib.sha256(b"other").hexdigest() in str(caught.value)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_error_a06_page(ask: Ask, site: Loopback, spec: str) -> None:
    """A page in place of the file is told as that, also where it comes with the right status."""
    site.oddities = ["page"]
    with pytest.raises(DownloadError, match=rf"a web page \(text/html, {len(PAGE)} bytes\)"):
        ask("download-model", spec)


def test_error_offline(ask: Ask, site: Loopback, spec: str, context: RecordingContext) -> None:
    """Without the network nothing is asked, and the error names what is missing."""
    context.offline = True
    with pytest.raises(OfflineError, match=rf"/m/model\.gguf#sha256={SHA}: it is not in"):
        ask("download-model", spec)
    assert ask("model-availability", spec)["local_available"] is False
    assert site.asked == []


def test_error_site_that_nobody_vouches_for(
    ask: Ask, site: Loopback, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that is not trusted is an error at once, and not tried again."""
    monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
    with pytest.raises(DownloadError, match="cannot prove who it is"):
        ask("download-model", spec)


def test_error_redirect_that_is_not_encrypted(ask: Ask, site: Loopback, spec: str) -> None:
    """A redirect from https to http is refused."""
    plain = Loopback({"/m/model.gguf": DATA})
    site.other = lambda asked, query: (302, {"Location": f"{plain.url}/m/model.gguf"}, b"")  # type: ignore[method-assign]
    with pytest.raises(
        DownloadError, match=r"model https://.*: 127.* redirects from https to http"
    ):
        ask("download-model", spec)
    assert plain.asked == []
    plain.close()


def test_part_is_gone_on_from(
    ask: Ask, site: Loopback, spec: str, cache: Path, context: RecordingContext
) -> None:
    """A download that broke off is paused, and goes on from there."""
    site.oddities = ["short:600000", *["403"]]
    with pytest.raises(DownloadError, match="403"):
        ask("download-model", spec)
    status = ask("model-status", spec)
    assert (status["state"], status["total_bytes"]) == ("paused", 600_000)
    before = site.sent_bytes
    ask("download-model", spec)
    assert site.sent_bytes - before == 400_000


def test_availability_contents_list_and_removal(ask: Ask, site: Loopback, spec: str) -> None:
    """The other caps answer for a file on the web too."""
    there = ask("model-availability", spec)
    assert (there["local_available"], there["remote_available"]) == (False, True)
    contents = ask("model-contents", spec)
    assert contents["all_files"] == [{"path": "model.gguf", "size_bytes": 1_000_000}]
    assert (contents["repository"], contents["local"]) == (f"{site.url}/m/model.gguf", False)
    assert site.sent_bytes < 1_000_000
    ask("download-model", spec)
    models = ask("list-models", "https")["models"]
    assert isinstance(models, list)
    (listed,) = models
    assert listed["model_spec"] == f"{site.url}/m/model.gguf#sha256={SHA}"
    assert (listed["state"], listed["total_bytes"]) == ("ready", 1_000_000)
    assert ask("remove-model", spec)["freed_bytes"] == 1_000_000
    assert ask("model-path", spec)["exists"] is False
    assert ask("list-models", "all")["count"] == 0
    site.files.clear()
    assert ask("model-availability", spec)["remote_available"] is False
    with pytest.raises(DownloadError, match=r"^model https://.*: 127.*answered 404"):
        ask("model-contents", spec)


def test_error_what_cannot_be_removed(ask: Ask, cache: Path, spec: str) -> None:
    """A cache that does not let go of a file is a `DownloadError` that names the model."""
    ask("download-model", spec)
    (cache / "https" / SHA / f".{SHA}.part").mkdir()  # in the way, and no file
    with pytest.raises(DownloadError, match=r"^model https://.*: it cannot be removed: "):
        ask("remove-model", spec)


def test_damaged_file_is_fetched_again(ask: Ask, site: Loopback, spec: str) -> None:
    """A file that is shorter than it was is not the model."""
    path = Path(str(ask("download-model", spec)["path"]))
    path.write_bytes(DATA[:5])
    assert ask("model-path", spec)["exists"] is False
    ask("download-model", spec)
    assert path.read_bytes() == DATA


def test_changed_file_is_no_longer_the_model(ask: Ask, site: Loopback, spec: str) -> None:
    """A file of the right size that somebody wrote to is fetched again."""
    path = Path(str(ask("download-model", spec)["path"]))
    path.write_bytes(b"X" + DATA[1:])
    assert ask("model-path", spec)["exists"] is False
    ask("download-model", spec)
    assert path.read_bytes() == DATA
    path.write_bytes(b"X" + DATA[1:])
    assert ask("remove-model", spec)["freed_bytes"] == len(DATA)
    assert not path.exists()


def test_touched_file_is_still_the_model(ask: Ask, site: Loopback, spec: str) -> None:
    """A file whose times alone changed, as in a copied cache, is hashed again, and stays."""
    path = Path(str(ask("download-model", spec)["path"]))
    os.utime(path, ns=(1, 1))
    sent = site.sent_bytes
    ask("download-model", spec)
    assert site.sent_bytes == sent
    assert json.loads((path.parent / ".source.json").read_bytes())["mtime_ns"] == 1


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a%5Cb", "ü ñ.gguf", "x" * 300 + ".gguf"])
def test_odd_names_stay_in_the_folder(ask: Ask, site: Loopback, name: str, cache: Path) -> None:
    """Whatever the address ends with, the file lies in its own folder."""
    from urllib.parse import unquote

    site.files[f"/{unquote(name)}"] = DATA
    record = ask("download-model", f"{site.url}/{name.replace(' ', '%20')}#sha256={SHA}")
    assert Path(str(record["path"])).parent == cache / "https" / SHA


@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
@pytest.mark.parametrize("form", ["{}", "file:{}"])
def test_own_path_is_a_model(ask: Ask, tmp_path: Path, is_folder: bool, form: str) -> None:
    """A path is found where it is; it is never removed."""
    path = tmp_path / "own"
    (path / "sub" if is_folder else tmp_path).mkdir(parents=True, exist_ok=True)
    (path / "sub" / "w.bin" if is_folder else path).write_bytes(b"abc")
    spec = form.format(path)
    record = ask("download-model", spec)
    assert (record["path"], record["total_bytes"]) == (str(path), 3)
    name = "sub/w.bin" if is_folder else "own"
    assert ask("model-contents", spec)["all_files"] == [{"path": name, "size_bytes": 3}]
    assert ask("model-availability", spec)["local_available"] is True
    with pytest.raises(UnsupportedError, match="it is your own"):
        ask("remove-model", spec)
    assert path.exists()


def test_error_own_path_that_is_not_there(ask: Ask, tmp_path: Path) -> None:
    """A path with nothing at it is an error that names it."""
    spec = str(tmp_path / "nothing")
    with pytest.raises(DownloadError, match=f"there is nothing at {spec}"):
        ask("download-model", spec)
    assert ask("model-status", spec)["state"] == "not_found"
