"""A large file from a server on this machine, checked: ours against ``curl | sha256sum``."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measuring import QUICK, interleave, ratio, seconds
from benchmarks.rows import Row, version_of
from cartridge_core.context import Context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring import Effort
    from cartridge_models.fetching import Order

__all__ = ["measure"]

_LEAST = 0.8
_BYTES = 1_000_000_000
_QUICK_BYTES = 20_000_000
_PIECE_BYTES = 1_000_000


def measure(effort: Effort) -> Iterator[Row]:
    """Download a file that nobody has, time and again."""
    size = _QUICK_BYTES if effort is QUICK else _BYTES
    name = f"download and check {size // 1_000_000} MB from loopback, over curl | sha256sum"
    missing = [] if version_of("cartridge-models") else ["cartridge-models"]
    missing += [program for program in ("curl", "sha256sum") if shutil.which(program) is None]
    if missing:
        yield Row("models", name, note=f"{' and '.join(missing)} not installed")
        return
    # Deferred: they import the plugin.
    from nginx import NGINX, Nginx  # noqa: PLC0415 -- see above

    if NGINX is None:
        yield Row("models", name, note="nginx not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        site.mkdir()
        digest = _write(site / "model.bin", size)
        server = Nginx(site)
        try:
            yield _row(name, f"{server.url}/model.bin", digest, Path(folder), effort)
        finally:
            server.close()


def _row(name: str, url: str, digest: str, folder: Path, effort: Effort) -> Row:
    # Deferred: they import the plugin.
    from cartridge_models.fetching import fetch  # noqa: PLC0415 -- see above
    from cartridge_models.remote import Patience  # noqa: PLC0415 -- see above

    order = _order(url, digest, folder / "cache")
    (file,) = order.files

    def ours() -> float:
        taken = seconds(lambda: fetch(order, Context(), Patience()))
        file.target.unlink()
        return taken

    rounds = interleave([ours, lambda: seconds(lambda: _curl(url, digest))], effort)
    return Row(
        "models",
        name,
        measured=ratio(rounds),
        budget=_LEAST,
        unit="ratio",
        note="ours also writes the file; both read it from nginx",
        samples=rounds,
    )


def _order(url: str, digest: str, folder: Path) -> Order:
    from cartridge_models.digests import Digest  # noqa: PLC0415 -- as above
    from cartridge_models.fetching import Order  # noqa: PLC0415 -- as above
    from cartridge_models.remote import RemoteFile  # noqa: PLC0415 -- as above

    file = RemoteFile(
        what="model.bin",
        name="model.bin",
        url=url,
        digest=Digest("sha256", digest),
        size_bytes=None,
        target=folder / "model.bin",
        part=folder / "model.bin.part",
    )
    return Order("model.bin", [file], folder, "use another disk")


def _write(path: Path, size: int) -> str:
    piece = bytes(range(256)) * (_PIECE_BYTES // 256)
    hasher = hashlib.sha256()
    with path.open("wb") as file:
        for start in range(0, size, len(piece)):
            part = piece[: size - start]
            hasher.update(part)
            file.write(part)
    return hasher.hexdigest()


def _curl(url: str, digest: str) -> None:
    pipe = f"curl --silent --fail {url} | sha256sum"
    done = subprocess.run(pipe, shell=True, capture_output=True, text=True, check=True)  # noqa: S602 -- our own words
    assert done.stdout.split()[0] == digest  # noqa: S101 -- or it measures something else
