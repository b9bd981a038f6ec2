"""A hub on loopback that speaks what huggingface_hub asks of one."""

from __future__ import annotations

import json

from loopback import Asked, Loopback, git_name, quoted, sha256

__all__ = ["FakeHub"]

_REPOSITORY = "acme/tiny"


class FakeHub(Loopback):
    """
    A hub with one repository, ``acme/tiny``; files that end with ``.gguf`` are in LFS.

    Attributes:
        content: The repository's files.
        commit: The commit that its branch ``main`` is at.
        claimed_bytes: The size that it claims of each file; None is the true one.
        refusal: Status and ``X-Error-Code`` of every answer; None answers.
        file_refusal: The same for files alone.
        retry_after: What a refusal asks to wait.
        is_terse: Whether it lists names alone, as some mirrors do.
        cdn: Where files in LFS are redirected to; None sends them itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.content = {
            "config.json": b'{"model_type": "tiny"}',
            "model.Q4_0.gguf": b"GGUF" + b"4" * 400,
            "model.Q8_0.gguf": b"GGUF" + b"8" * 800,
            "sub/tokenizer.json": b"{}",
        }
        self.commit = "a" * 40
        self.refusal: tuple[int, str] | None = None
        self.file_refusal: tuple[int, str] | None = None
        self.retry_after = ""
        self.is_terse = False
        self.claimed_bytes: int | None = None
        self.cdn: Loopback | None = None

    @property
    def lines(self) -> list[str]:
        """The method and the path of every request."""
        return [f"{one.method} {one.path}" for one in self.asked]

    @property
    def fetched(self) -> list[str]:
        """The files that were sent, once for each time."""
        return [
            _name(one.path) for one in self.asked if one.method == "GET" and "/resolve/" in one.path
        ]

    def digest(self, name: str) -> str:
        """Name a file's content as the hub does."""
        data = self.content[name]
        return sha256(data) if _is_lfs(name) else git_name(data)

    def other(self, asked: Asked, query: str) -> tuple[int, dict[str, str], bytes] | None:
        """Answer what is no file."""
        del query
        is_file = "/resolve/" in asked.path
        refusal = self.refusal or (self.file_refusal if is_file else None)
        if refusal is not None:
            headers = {"X-Error-Code": refusal[1]} if refusal[1] else {}
            headers |= {"Retry-After": self.retry_after} if self.retry_after else {}
            return refusal[0], headers, b""
        if not is_file:
            found = self._listing(asked.path)
            code = "RevisionNotFound" if "/revision/" in asked.path else "RepoNotFound"
            answer = json.dumps(found).encode()
            return (200, {}, answer) if found else (404, {"X-Error-Code": code}, b"")
        name = _name(asked.path)
        if name not in self.content:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        self.files[asked.path] = self.content[name]
        if self.cdn is not None and _is_lfs(name):
            self.cdn.files[f"/{self.digest(name)}"] = self.content[name]
            place = {"Location": f"{self.cdn.url}/{self.digest(name)}"}
            return 302, place | self.more_headers(asked.path), b""
        return None

    def etag(self, path: str) -> str:
        """Give what a file's content is called."""
        return self.etags.get(path) or quoted(self.digest(_name(path)))

    def more_headers(self, path: str) -> dict[str, str]:
        """Give what the hub says of a file besides."""
        name = _name(path)
        headers = {"X-Repo-Commit": self.commit}
        if _is_lfs(name):
            headers["X-Linked-Etag"] = quoted(self.digest(name))
            headers["X-Linked-Size"] = str(len(self.content[name]))
        return headers

    def _listing(self, path: str) -> object:
        root = f"/api/models/{_REPOSITORY}"
        revisions = {"main", self.commit}
        if path == root or (
            path.startswith(f"{root}/revision/") and path.rpartition("/")[2] in revisions
        ):
            siblings = [self._sibling(name) for name in self.content]
            return {
                "id": _REPOSITORY,
                "modelId": _REPOSITORY,
                "sha": self.commit,
                "siblings": siblings,
            }
        if path.startswith(f"{root}/tree/"):
            return [
                {"type": "file", "path": name, "size": len(data), "oid": git_name(data)}
                for name, data in self.content.items()
            ]
        return None

    def _sibling(self, name: str) -> dict[str, object]:
        data = self.content[name]
        if self.is_terse:
            return {"rfilename": name}
        sibling: dict[str, object] = {
            "rfilename": name,
            "size": self.claimed_bytes or len(data),
            "blobId": git_name(data),
        }
        if _is_lfs(name):
            sibling["lfs"] = {"sha256": self.digest(name), "size": len(data), "pointerSize": 130}
        return sibling


def _name(path: str) -> str:
    return path.partition("/resolve/")[2].partition("/")[2]


def _is_lfs(name: str) -> bool:
    return name.endswith(".gguf")
