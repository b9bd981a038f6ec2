"""Walk the installed distributions: who each one is, and the plugins it declares."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import attrs

from cartridge_core.reports import DiscoveryIssue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["GROUP", "Distribution", "Entry", "Finder", "Metadata", "normalise", "walk"]

GROUP = "cartridge_core.plugins"
"""The entry-point group that plugins declare themselves in."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_NAME_FIELD = re.compile(r"^Name:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE | re.IGNORECASE)
_VERSION_FIELD = re.compile(r"^Version:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE | re.IGNORECASE)
_METADATA_FILES = ("METADATA", "PKG-INFO", "")
"""What may hold the name; the empty file name is an ``.egg-info`` that is a file itself."""

_HEAD = 1024
"""Bytes of a metadata file."""


class Metadata(Protocol):
    """A distribution as the finders of ``sys.meta_path`` list it."""

    def read_text(self, filename: str, /) -> str | None:
        """Read one of its metadata files; None where there is no such file."""


Finder: TypeAlias = "Callable[[str], Iterable[Metadata | str]]"
"""Lists the distributions in one folder of ``sys.path``; a text is the path of its metadata."""


@attrs.frozen
class Entry:
    """One line of the plugins' group, as it stands in ``entry_points.txt``."""

    name: str
    value: str


@attrs.frozen
class Distribution:
    """An installed distribution."""

    name: str
    version: str | None
    entries: tuple[Entry, ...] = attrs.field(default=(), kw_only=True)

    @property
    def key(self) -> str:
        """The name as distributions are compared by."""
        return normalise(self.name)

    def __str__(self) -> str:
        return f"{self.name} {self.version}" if self.version else self.name


@functools.lru_cache(maxsize=4096)
def normalise(name: str) -> str:
    """
    Spell a distribution's name the one way in which two spellings are equal.

    Source: PEP 503.
    """
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def walk(
    path: Sequence[str], finders: Sequence[Finder]
) -> tuple[tuple[Distribution, ...], tuple[DiscoveryIssue, ...]]:
    """
    List the distributions on a path, each once: the first one, as an import would take it.

    Args:
        path: Folders, in the order of ``sys.path``.
        finders: Ways to list one folder's distributions; the second is for where the first
            raises.

    Returns:
        The distributions, and an issue for everything that could not be read.
    """
    scan = _Scan()
    for folder in dict.fromkeys(path):
        scan.visit(folder, finders)
    return tuple(scan.found.values()), tuple(dict.fromkeys(scan.issues))


@attrs.define
class _Scan:
    found: dict[str, Distribution] = attrs.field(factory=dict)
    issues: list[DiscoveryIssue] = attrs.field(factory=list)

    def visit(self, folder: str, finders: Sequence[Finder]) -> None:
        """Take in the distributions of one folder that no earlier folder has."""
        here: dict[str, list[Distribution]] = {}
        for metadata in self._list(folder, finders):
            distribution = self._read(metadata)
            if distribution is not None:
                here.setdefault(distribution.key, []).append(distribution)
        for key, several in here.items():
            self.found[key] = max(several, key=_recency)
            if len(several) > 1 and any(item.entries for item in several):
                self._report_leftover(folder, several)

    def _list(self, folder: str, finders: Sequence[Finder]) -> list[Metadata | str]:
        for find in finders:
            try:
                return list(find(folder))
            except Exception as exc:  # noqa: BLE001 -- anybody can add a finder, and it may raise
                self.issues.append(
                    DiscoveryIssue(
                        folder,
                        None,
                        "the list of distributions in this folder",
                        f"listing them raises {_describe(exc)}",
                        "Repair or remove that folder of sys.path, or the finder in "
                        "sys.meta_path that fails.",
                    )
                )
        return []

    def _read(self, metadata: Metadata | str) -> Distribution | None:
        place = _place(metadata)
        try:
            name, version = _identify(metadata, place)
        except Exception as exc:  # noqa: BLE001 -- whatever is wrong with it, the others count
            fix = "Delete it, or reinstall the distribution that it is left from."
            self.issues.append(
                DiscoveryIssue(place, None, "distribution metadata", _describe(exc), fix)
            )
            return None
        if normalise(name) in self.found:
            return None
        return Distribution(name, version, entries=self._entries(metadata, name, version))

    def _entries(
        self, metadata: Metadata | str, name: str, version: str | None
    ) -> tuple[Entry, ...]:
        def report(what: str, why: str) -> None:
            fix = f"Reinstall {name}, or tell its authors; its good lines still count."
            self.issues.append(DiscoveryIssue(name, version, what, why, fix))

        try:
            text = _read_file(metadata, "entry_points.txt") or ""
        except Exception as exc:  # noqa: BLE001 -- whatever is wrong with it, the others count
            report("entry_points.txt", _describe(exc))
            return ()
        entries = []
        for number, line in enumerate(_parse(text), start=1):
            if isinstance(line, Entry):
                entries.append(line)
            elif line is not None:
                report(f"entry_points.txt, line {number}", line)
        return tuple(entries)

    def _report_leftover(self, folder: str, several: list[Distribution]) -> None:
        newest = max(several, key=_recency)
        versions = ", ".join(str(item.version) for item in sorted(several, key=_recency))
        self.issues.append(
            DiscoveryIssue(
                newest.name,
                newest.version,
                "distribution metadata",
                f"{folder} holds more than one version of it ({versions}): an upgrade was "
                "interrupted",
                f"pip install --force-reinstall {newest.name}",
            )
        )


def _recency(distribution: Distribution) -> tuple[list[int], str, tuple[Entry, ...]]:
    version = distribution.version or ""
    return [int(part) for part in re.findall(r"\d+", version)], version, distribution.entries


def _place(metadata: Metadata | str) -> str:
    if isinstance(metadata, str):
        return metadata
    # Nothing public says where a distribution without a name lies.
    path: object = getattr(metadata, "_path", None)
    return repr(metadata) if path is None else os.path.abspath(str(path))


def _identify(metadata: Metadata | str, place: str) -> tuple[str, str | None]:
    """Give the name and the version, or raise ValueError saying why there is no name."""
    named = os.path.basename(place).rpartition(".")[0].partition("-")[0]
    if place.endswith((".dist-info", ".egg-info")) and not _NAME.fullmatch(named):
        msg = f"its own name starts with {named!r}, which is no distribution's name"
        raise ValueError(msg)
    for filename in _METADATA_FILES:
        # Nearly always the head says both; the whole file takes three times as long.
        head = _read_file(metadata, filename, _HEAD)
        name, version = _name_and_version(head)
        if head and (name is None or version is None):
            name, version = _name_and_version(_read_file(metadata, filename))
        if name is not None:
            return name, version
    msg = "its METADATA or PKG-INFO is missing or has no valid Name"
    raise ValueError(msg)


def _name_and_version(text: str | None) -> tuple[str | None, str | None]:
    header = (text or "").replace("\r\n", "\n").partition("\n\n")[0]
    name, version = _NAME_FIELD.search(header), _VERSION_FIELD.search(header)
    valid = name and _NAME.fullmatch(name[1])
    return valid[0] if valid else None, version[1] if version else None


def _read_file(metadata: Metadata | str, filename: str, limit: int = -1) -> str | None:
    """Read one metadata file, or the whole lines of its head; None where there is none."""
    path: object = metadata if isinstance(metadata, str) else getattr(metadata, "_path", None)
    if not isinstance(metadata, str) and not isinstance(path, Path):
        return metadata.read_text(filename)
    if not filename and os.path.isdir(str(path)):
        return None
    try:
        # Unlike ``read_text``, this tells a file that cannot be read from one that is not there,
        # and it takes a third of the time.
        with open(f"{path}/{filename}" if filename else str(path), "rb", buffering=0) as file:
            data = file.read(limit)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(data) == limit:
        data = data[: data.rfind(b"\n") + 1]
    return data.decode("utf-8")


def _parse(text: str) -> Iterator[Entry | str | None]:
    """
    Read ``entry_points.txt``, line by line.

    Yields:
        Per line: one of our entries, what is wrong with the line, or None for all others.

    Source: Python packaging user guide, "Entry points specification".
    """
    group = None
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith(("#", ";")):
            yield None
        elif line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
            yield None
        elif group is None:
            yield f"{line!r} stands before any [group]"
        else:
            name, _, value = line.partition("=")
            if not (name.strip() and value.strip()):
                yield f"{line!r} is no 'name = value'"
            else:
                yield Entry(name.strip(), value.strip()) if group == GROUP else None


def _describe(exc: Exception) -> str:
    if isinstance(exc, UnicodeDecodeError):
        return f"it is not UTF-8: byte {exc.object[exc.start]:#04x} at {exc.start}"
    if type(exc) is ValueError:
        return str(exc)
    return f"{type(exc).__name__}: {exc}"
