"""Which files of a repository are meant."""

from __future__ import annotations

import fnmatch
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cartridge_core.modelspec import HubSpec

__all__ = ["chosen", "is_plain", "single"]

_SHARD = re.compile(r"(.+)-\d{5}(-of-\d{5}\.[^/]+)")


def chosen(names: Iterable[str], spec: HubSpec) -> tuple[str, ...]:
    """
    Give the files that include matches and exclude does not, sorted.

    Whoever asks for one shard of a model gets all of them.
    """
    known = sorted(names)
    wanted = {name for name in known if _matches(name, spec.include, empty=True)}
    sets = {_shard_set(name) for name in wanted} - {None}
    return tuple(
        name
        for name in known
        if (name in wanted or _shard_set(name) in sets)
        and not _matches(name, spec.exclude, empty=False)
    )


def single(names: tuple[str, ...], spec: HubSpec) -> str | None:
    """
    Give the one file that the model is; None where it is the folder.

    It is one where ``include`` is one glob, and what is meant is one file or the shards of one
    model; then it is the first of them.
    """
    is_one = len(names) == 1 or (names and len({_shard_set(name) for name in names}) == 1)
    is_shards = len(names) == 1 or (names and _shard_set(names[0]) is not None)
    return names[0] if len(spec.include) == 1 and is_one and is_shards else None


def is_plain(name: str) -> bool:
    """Tell whether a name from a list stays inside its folder."""
    path = PurePosixPath(name)
    return (
        bool(path.parts)
        and not path.is_absolute()
        and ".." not in path.parts
        and not set(name) & set("\\\0")
        and path.as_posix() == name
    )


def _matches(name: str, globs: tuple[str, ...], *, empty: bool) -> bool:
    """
    Match as huggingface_hub does: ``*`` takes ``/`` too, and a final ``/`` means all below it.

    Source: huggingface_hub, ``filter_repo_objects``.
    """
    if not globs:
        return empty
    return any(fnmatch.fnmatch(name, f"{glob}*" if glob.endswith("/") else glob) for glob in globs)


def _shard_set(name: str) -> tuple[str, ...] | None:
    found = _SHARD.fullmatch(name)
    return None if found is None else found.groups()
