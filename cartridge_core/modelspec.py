"""
Model specs: one text that says which model is meant, and where it comes from.

::

    hf:owner/repo[@revision][?include=globs&exclude=globs]
    file:path, or a path that starts with / ./ ../ ~
    pkg:pypi/name@version#path
    https://host/path#sha256=<64 hex digits>

A bare ``owner/repo`` is ``hf:``. Globs are separated by commas; a comma inside one is ``%2C``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import ClassVar
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit

import attrs

from cartridge_core.errors import InvalidArgumentError

__all__ = ["FileSpec", "HubSpec", "ModelSpec", "PackageSpec", "UrlSpec", "format_of"]

_HUB_FORM = "hf:owner/repo[@revision][?include=globs&exclude=globs]"
_FILE_FORM = "file:path, or a path that starts with / ./ ../ ~"
_PACKAGE_FORM = "pkg:pypi/name@version#path"
_URL_FORM = "https://host/path#sha256=<64 hex digits>"

_REPO_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_REVISION = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./+@=-]*")
_PROJECT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._!+-]*[A-Za-z0-9])?")
_DIGEST = re.compile(r"sha256=([0-9A-Fa-f]{64})")
_LONGEST_NAME = 96
"""Of a repository, as huggingface_hub checks it."""

_GLOB_SAFE = "*?[]!/:@()=~"
"""What a glob keeps unquoted, besides what a URL never quotes."""


class ModelSpec:
    """
    Which model is meant; one subclass a scheme.

    ``str(spec)`` is the canonical text and parses to an equal value.
    """

    scheme: ClassVar[str]

    @staticmethod
    def parse(text: str | os.PathLike[str]) -> ModelSpec:
        """
        Read a model spec.

        Args:
            text: A spec in any of the four forms; a path object is always a path.

        Raises:
            InvalidArgumentError: The text has none of the forms (``arg`` is ``model_spec``).
        """
        if not isinstance(text, str):
            return FileSpec.from_path(text)
        if text.startswith(("/", "./", "../", "~")) or text in {".", ".."}:
            return FileSpec.from_path(text)
        scheme, colon, rest = text.partition(":")
        if colon and "/" not in scheme:
            return _parse_scheme(text, scheme, rest)
        return _parse_hub(text, text)


@attrs.frozen
class HubSpec(ModelSpec):
    """A repository of the Hugging Face hub, or some of its files."""

    scheme: ClassVar[str] = "hf"

    repo_id: str
    revision: str | None = None
    """A branch, a tag or a commit; None is the repository's default branch."""

    include: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    """Globs over the paths in the repository; only matching files are meant. Empty is all."""

    exclude: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    """Globs of files that are not meant, stronger than ``include``."""

    def __str__(self) -> str:
        revision = "" if self.revision is None else f"@{self.revision}"
        query = "&".join(
            f"{key}=" + ",".join(quote(glob, safe=_GLOB_SAFE) for glob in globs)
            for key, globs in (("include", self.include), ("exclude", self.exclude))
            if globs
        )
        return f"hf:{self.repo_id}{revision}{'?' if query else ''}{query}"


@attrs.frozen
class FileSpec(ModelSpec):
    """A file or a folder on this machine, whether or not it exists."""

    scheme: ClassVar[str] = "file"

    path: Path
    """Absolute, ``~`` expanded, ``..`` and links as given."""

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> FileSpec:
        """
        Take a path as it is, without reading it as text in one of the forms.

        Raises:
            InvalidArgumentError: No file can have this path.
        """
        text = os.fspath(path)
        if not text or "\0" in text:
            raise _refusal(text, "no file can have this path", _FILE_FORM)
        try:
            os.fsencode(text)
            absolute = Path(text).expanduser().absolute()
        except (RuntimeError, UnicodeEncodeError) as exc:
            raise _refusal(text, f"this is no path here ({exc})", _FILE_FORM) from exc
        # POSIX keeps a second leading slash; nothing here gives it a meaning.
        return cls(Path("/" + str(absolute).lstrip("/")))

    def __str__(self) -> str:
        return "file:" + quote(os.fsencode(self.path))


@attrs.frozen
class PackageSpec(ModelSpec):
    """A file or a folder inside the wheel of one release on a Python package index."""

    scheme: ClassVar[str] = "pkg"

    name: str
    """The project's normalised name."""

    version: str
    subpath: str = attrs.field(kw_only=True)
    """Relative to the wheel's root, separated by ``/``; never leaves it."""

    def __str__(self) -> str:
        return f"pkg:pypi/{self.name}@{quote(self.version, safe='!')}#{quote(self.subpath)}"


@attrs.frozen
class UrlSpec(ModelSpec):
    """A file on the web, with the digest it must have."""

    scheme: ClassVar[str] = "https"

    url: str
    sha256: str
    """64 lower-case hex digits."""

    def __str__(self) -> str:
        return f"{self.url}#sha256={self.sha256}"


def format_of(spec: ModelSpec | str) -> str | None:
    """
    Tell a model's format from its spec alone.

    Pure and offline: at most the names in a local folder are read.

    Returns:
        ``gguf``, ``hf-folder``, or None where the spec does not tell.

    Raises:
        InvalidArgumentError: A text that is no model spec.
    """
    match ModelSpec.parse(spec) if isinstance(spec, str) else spec:
        case HubSpec() as hub:
            named = (hub.repo_id, *hub.include)
            return "gguf" if any(_names_gguf(text) for text in named) else "hf-folder"
        case PackageSpec() as package:
            return "gguf" if _names_gguf(f"{package.name}/{package.subpath}") else None
        case FileSpec() as file:
            return _format_of_path(file.path)
        case UrlSpec() as url:
            return "gguf" if _names_gguf(urlsplit(url.url).path) else None
        case _:
            return None


def _format_of_path(path: Path) -> str | None:
    try:
        names = [entry.name.lower() for entry in os.scandir(path)]
    except OSError:
        return "gguf" if _names_gguf(path.name) else None
    if any(name.endswith(".gguf") for name in names):
        return "gguf"
    return "hf-folder" if {"config.json", "modules.json"} & set(names) else None


def _names_gguf(text: str) -> bool:
    return "gguf" in text.lower()


def _refusal(text: str, found: str, form: str) -> InvalidArgumentError:
    msg = f"model spec {text!r}: {found}; write {form}"
    return InvalidArgumentError(msg, arg="model_spec", value=text, rule=form)


def _parse_scheme(text: str, scheme: str, rest: str) -> ModelSpec:
    match scheme:
        case "hf":
            return _parse_hub(text, rest)
        case "file":
            return _parse_file(text, rest)
        case "pkg":
            return _parse_package(text, rest)
        case "https":
            return _parse_url(text)
        case "http":
            raise _refusal(_without_secrets(text), "http is not encrypted", _URL_FORM)
        case _:
            found = f"the scheme {scheme!r} is none of hf, file, pkg, https"
            raise _refusal(text, found, f"one of them, {_HUB_FORM} for one")


def _parse_hub(text: str, rest: str) -> HubSpec:
    head, question, query = rest.partition("?")
    repo_id, at, revision = head.partition("@")
    if "/" not in repo_id:
        form = _HUB_FORM if text.startswith("hf:") else f"{_HUB_FORM}, or ./{repo_id} for a path"
        raise _refusal(text, "there is no owner before the repository", form)
    _check_repo_id(text, repo_id)
    if at and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise _refusal(text, f"{revision!r} is no branch, tag or commit", _HUB_FORM)
    globs = _parse_query(text, query) if question else {}
    return HubSpec(
        repo_id,
        revision if at else None,
        include=globs.get("include", ()),
        exclude=globs.get("exclude", ()),
    )


def _check_repo_id(text: str, repo_id: str) -> None:
    owner, _, name = repo_id.partition("/")
    if not _REPO_PART.fullmatch(owner) or not _REPO_PART.fullmatch(name):
        raise _refusal(text, f"{repo_id!r} is no owner/repo of the hub", _HUB_FORM)
    if len(name) > _LONGEST_NAME:
        raise _refusal(
            text, f"{len(name)} characters are more than a repository's name has", _HUB_FORM
        )
    if "--" in repo_id or ".." in repo_id or repo_id.endswith(".git"):
        found = f"{repo_id!r} has '--', '..' or a final '.git', which the hub forbids"
        raise _refusal(text, found, _HUB_FORM)


def _parse_query(text: str, query: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for pair in query.split("&"):
        key, _, value = pair.partition("=")
        if key not in {"include", "exclude"}:
            raise _refusal(text, f"{key!r} is neither include nor exclude", _HUB_FORM)
        if key in found:
            found_twice = f"{key} is given twice; separate its globs by commas"
            raise _refusal(text, found_twice, _HUB_FORM)
        found[key] = tuple(_decode(text, glob, _HUB_FORM) for glob in value.split(","))
        if not all(found[key]):
            raise _refusal(text, f"{key} has an empty glob", _HUB_FORM)
    return found


def _parse_file(text: str, rest: str) -> FileSpec:
    if rest.startswith("//"):
        host, slash, tail = rest[2:].partition("/")
        if host not in {"", "localhost"}:
            raise _refusal(text, f"the file is on another host, {host!r}", _FILE_FORM)
        rest = slash + tail
    if not rest:
        raise _refusal(text, "there is no path", _FILE_FORM)
    try:
        path = os.fsdecode(unquote_to_bytes(os.fsencode(rest)))
    except UnicodeEncodeError as exc:
        raise _refusal(text, f"this is no path here ({exc})", _FILE_FORM) from exc
    return FileSpec.from_path(path)


def _parse_package(text: str, rest: str) -> PackageSpec:
    kind, _, rest = rest.partition("/")
    if kind != "pypi":
        raise _refusal(text, f"the package type {kind!r} is not pypi", _PACKAGE_FORM)
    head, _, subpath = rest.partition("#")
    name, _, version = head.partition("@")
    version = _decode(text, version, _PACKAGE_FORM)
    if not _PROJECT.fullmatch(name):
        raise _refusal(text, f"{name!r} is no project name", _PACKAGE_FORM)
    if not _VERSION.fullmatch(version):
        found = f"{version!r} is no version" if version else "there is no version"
        raise _refusal(text, found, _PACKAGE_FORM)
    steps = [_decode(text, step, _PACKAGE_FORM) for step in subpath.strip("/").split("/")]
    if steps == [""]:
        raise _refusal(text, "there is no path inside the wheel", _PACKAGE_FORM)
    if any(step in {"", ".", ".."} or set(step) & set("/\\\0") for step in steps):
        raise _refusal(text, f"{subpath!r} is no plain path inside the wheel", _PACKAGE_FORM)
    normalised = re.sub(r"[-_.]+", "-", name).lower()
    return PackageSpec(normalised, version, subpath=str(PurePosixPath(*steps)))


def _without_secrets(address: str) -> str:
    """Hide a user and a password, and what stands after a ``?``, which may be a key to the file."""
    hidden = re.sub(r"(?<=//)[^?#]*@", "***@", address, count=1)
    return re.sub(r"(?<=\?)[^#]+", "***", hidden, count=1)


def _parse_url(text: str) -> UrlSpec:
    url, _, fragment = text.partition("#")
    shown = _without_secrets(text)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as exc:
        raise _refusal(shown, f"this is no URL ({exc})", _URL_FORM) from exc
    if "@" in parts.netloc:
        raise _refusal(shown, "an address may hold no user and password", _URL_FORM)
    if not host or not url.isprintable() or " " in url:
        raise _refusal(shown, "this is no URL with a host", _URL_FORM)
    digest = _DIGEST.fullmatch(fragment)
    if digest is None:
        raise _refusal(shown, "the file's SHA-256 is not given", _URL_FORM)
    return UrlSpec(url, digest[1].lower())


def _decode(text: str, part: str, form: str) -> str:
    try:
        decoded = unquote(part, errors="strict")
        decoded.encode()  # half a surrogate pair cannot be written again
    except UnicodeError as exc:
        raise _refusal(text, f"{part!r} is not UTF-8 once its %-escapes are read", form) from exc
    return decoded
