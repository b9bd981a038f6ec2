"""What of a repository is on this machine, and how it goes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import BusyError
from cartridge_core.modelspec import HubSpec
from cartridge_models import _hub
from cartridge_models.choosing import chosen, single
from cartridge_models.layout import Listing, Repository
from cartridge_models.locks import owner_of
from cartridge_models.origin import Listed, Model, ModelFile, Removed

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Found", "find", "list_models", "model_of", "remove"]


@attrs.frozen
class Found:
    """What is here of what a spec means, at one commit."""

    repository: Repository
    commit: str
    listing: Listing | None
    here: tuple[str, ...]
    """The files that are whole."""

    missing: tuple[str, ...]
    """Those that are known not to be."""

    complete: bool
    certain: bool
    """Whether the repository's whole list is known, so that ``complete`` is no guess."""

    @property
    def parts(self) -> tuple[Path, ...]:
        """Give the beginnings of files that are not whole."""
        if self.listing is None:
            return ()
        digests = {self.listing.files[name].digest for name in self.missing}
        parts = (self.repository.part(digest) for digest in digests)
        return tuple(part for part in parts if part.exists())

    @property
    def owner(self) -> str | None:
        """Say who is fetching it now."""
        locks = (self.repository.locks / f"{part.name}.lock" for part in self.parts)
        return next(filter(None, map(owner_of, locks)), None)


def find(
    repository: Repository,
    spec: HubSpec,
    commit: str | None = None,
    listing: Listing | None = None,
) -> Found | None:
    """
    Look into the hub's cache, without the network.

    Args:
        repository: Where to look.
        spec: What is meant.
        commit: At which commit; the spec's revision as it was last, where not given.
        listing: The commit's files; what was kept of them, where not given.
    """
    commit = commit or repository.commit_of(spec.revision)
    if commit is None:
        return None
    listing = listing or repository.read_listing(commit)
    if listing is None:
        return _find_foreign(repository, spec, commit)
    meant = chosen(listing.files, spec)
    folder = repository.snapshot(commit)
    here = tuple(name for name in meant if _size(folder / name) == listing.files[name].size_bytes)
    missing = tuple(name for name in meant if name not in here)
    found = Found(repository, commit, listing, here, missing, not missing, certain=True)
    return found if here or found.parts else None


def _find_foreign(repository: Repository, spec: HubSpec, commit: str) -> Found | None:
    """Look for what another program fetched."""
    if not repository.snapshot(commit).is_dir():
        return None
    snapshot = _hub.find_snapshot(attrs.evolve(spec, revision=commit))
    if snapshot is None:
        return None
    complete, certain = snapshot.complete, snapshot.certain
    return Found(repository, commit, None, snapshot.names, (), complete, certain)


def model_of(found: Found, spec: HubSpec) -> Model:
    """Give what was found as a model."""
    folder = found.repository.snapshot(found.commit)
    files = tuple(ModelFile(name, (folder / name).stat().st_size) for name in found.here)
    alone = single(found.here, spec) if found.complete else None
    return Model(
        folder if alone is None else folder / alone,
        files,
        complete=found.complete,
        revision=found.commit,
        part_bytes=sum(part.stat().st_size for part in found.parts),
        coming=found.owner is not None,
    )


def list_models(cache: Path) -> Iterator[Listed]:
    """Give what a cache holds, every commit apart."""
    for repository in Repository.all_in(cache):
        commits = repository.commits() if "/" in repository.repo_id else ()
        for commit in commits:
            spec = HubSpec(repository.repo_id, commit)
            found = find(repository, spec)
            if found is not None:
                yield Listed(str(spec), "huggingface", model_of(found, spec))


def remove(found: Found, spec: HubSpec) -> Removed:
    """
    Remove files, and their content where no other commit has it.

    Raises:
        BusyError: Somebody is fetching them.
    """
    if found.owner is not None:
        msg = f"model {spec}: {found.owner} is fetching it; end that first"
        raise BusyError(msg)
    repository, folder = found.repository, found.repository.snapshot(found.commit)
    sizes = {_content(folder / name): _size(folder / name) for name in found.here}
    sizes |= {part: _size(part) for part in found.parts}
    for name in found.here:
        (folder / name).unlink()
    used = {_content(path) for path in repository.folder.glob("snapshots/*/**/*")}
    for path in sizes.keys() - used:
        path.unlink(missing_ok=True)
        path.with_name(path.name + ".from").unlink(missing_ok=True)
    freed = sum(size for path, size in sizes.items() if path not in used)
    _prune(folder)
    if not folder.exists():
        repository.listing_path(found.commit).unlink(missing_ok=True)
        for ref in repository.refs(found.commit):
            ref.unlink()
    _prune(repository.folder)
    return Removed(len(found.here), freed)


def _content(path: Path) -> Path:
    return Path(os.path.normpath(path.parent / path.readlink())) if path.is_symlink() else path


def _prune(folder: Path) -> None:
    """Remove the folders that nothing is in."""
    for path, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(path)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
