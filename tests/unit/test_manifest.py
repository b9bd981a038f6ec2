"""Verifying a pack: the manifest's form, the files on disk, and what is checked when."""

from __future__ import annotations

import bisect
import hashlib
import json
import os
import sys
import time
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from cartridge_core.digests import Digests
from cartridge_core.errors import InvalidArgumentError, VerificationError
from cartridge_core.manifest import Manifest, verify
from cartridge_core.pack import Pack, Trust

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

DESCRIPTOR = {
    "spec_version": "0.3",
    "id": "tts-tiny",
    "version": "1.0.0",
    "family": "tiny",
    "modality": "audio",
    "task": "tts",
    "io": {"mode": "batch", "input": {"dtype": "float32"}, "output": {"dtype": "utf8"}},
    "target": {"hardware": "any", "abi": "any"},
    "performance": {"measured_on": "unmeasured"},
    "execution_mode": "native",
    "license": "MIT",
}
MODEL = "artifacts/model/a.bin"
TOKENS = "artifacts/tokenizer/t.json"
CONTENT = {MODEL: b"weights", TOKENS: b"{}"}


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def artifact(path: str, data: bytes = b"", **changes: object) -> dict[str, object]:
    role = path.split("/")[1] if path.startswith("artifacts/") else "other"
    entry: dict[str, object] = {"role": role, "path": path, "license": "MIT"}
    return {**entry, "digest": digest_of(data), "size": len(data), **changes}


def make_pack(root: Path, content: Mapping[str, bytes] = CONTENT) -> Path:
    """Write a full pack whose manifest is right."""
    for path, data in content.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    descriptor = json.dumps(DESCRIPTOR).encode()
    (root / "descriptor.json").write_bytes(descriptor)
    manifest = {
        "schema_version": "2",
        "kind": "cartridge",
        "id": "tts-tiny",
        "version": "1.0.0",
        "effective_license": "MIT",
        "descriptor_digest": digest_of(descriptor),
        "digest_alg": "sha256",
        "artifacts": [artifact(path, data) for path, data in content.items()],
        "provenance": {"producer": "hand"},
    }
    (root / "manifest.json").write_text(json.dumps(manifest))
    return root


def change(root: Path, **fields: object) -> None:
    """Change fields of the manifest; None takes one away."""
    manifest = {**json.loads((root / "manifest.json").read_text()), **fields}
    kept = {name: value for name, value in manifest.items() if value is not None}
    (root / "manifest.json").write_text(json.dumps(kept))


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pack:
    """A full pack, read while it was right, on a machine without a trust store."""
    monkeypatch.delenv("CARTRIDGE_TRUST", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    monkeypatch.setenv("CARTRIDGE_CACHE", str(tmp_path / "cache"))
    return Pack.from_path(make_pack(tmp_path / "pack"))


def check(pack: Pack) -> None:
    verify(pack, Trust.IF_SIGNED)


def test_error_bare_pack_where_a_signature_is_required(tmp_path: Path) -> None:
    """A plain model has no manifest; the error names the way out."""
    (tmp_path / "m.gguf").write_bytes(b"x")
    bare = Pack.from_path(tmp_path / "m.gguf")
    with pytest.raises(VerificationError, match=r"m\.gguf: it has no manifest.*'if-signed'"):
        verify(bare, Trust.REQUIRED)


def test_error_unsigned_pack_where_a_signature_is_required(pack: Pack) -> None:
    """A right manifest that nobody signed is not enough."""
    with pytest.raises(VerificationError, match=r"\$\.signatures: there must be a signature"):
        verify(pack, Trust.REQUIRED)


def test_error_empty_signatures_are_no_signature(pack: Pack) -> None:
    """An empty list of signatures counts as unsigned."""
    change(pack.root, signatures=[])
    with pytest.raises(VerificationError, match="there must be a signature"):
        verify(pack, Trust.REQUIRED)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param('"kind"', '"id": "x", "kind"', "id: this key stands twice", id="key-twice"),
        pytest.param('"size": 7', '"size": NaN', r"size: must be a finite number", id="nan"),
        pytest.param('{"schema', '{"schema": ,', "is not JSON", id="no-json"),
    ],
)
def test_error_manifest_that_is_not_strict_json(pack: Pack, old: str, new: str, words: str) -> None:
    """What a lenient reader would take one way or the other is refused."""
    file = pack.root / "manifest.json"
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(VerificationError, match=rf"manifest\.json: \$.*{words}"):
        check(pack)


def test_error_manifest_that_nests_too_deep(pack: Pack) -> None:
    """A manifest made to exhaust the stack, at whatever step, is refused like any other."""
    data = (pack.root / "manifest.json").read_bytes()

    def is_refused(depth: int) -> bool:
        value = b'{"blueprint": {"x": ' + b"[" * depth + b"0" + b"]" * depth + b"}}"
        try:
            Manifest.from_json(data.replace(b'{"producer": "hand"}', value))
        except InvalidArgumentError as exc:
            assert str(exc) == "$: nests too deep"  # noqa: PT017 -- the others are not refused
            return True
        return False

    depths = range(10 * sys.getrecursionlimit())
    least = bisect.bisect_left(depths, True, key=is_refused)
    assert all(is_refused(depth) for depth in range(least, least + 30))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"schema_version": "1"}, r'\$\.schema_version: must be "2", found "1"'),
        ({"schema_version": 2}, r'\$\.schema_version: must be "2", found 2'),
        ({"kind": "other"}, r'\$\.kind: must be "cartridge" or "weights-update"'),
        ({"kind": "weights-update"}, r"\$\.base: is missing"),
        ({"digest_alg": "md5"}, r'\$\.digest_alg: must be "sha256", found "md5"'),
        ({"kinds": "x"}, r"\$\.kinds: is no key here; the keys are artifacts, base"),
        ({"id": None}, r"\$\.id: is missing"),
        ({"id": "tts-other"}, r'\$\.id: must be "tts-tiny", as in descriptor\.json, found "tts-o'),
        ({"version": "2.0.0"}, r'\$\.version: must be "1\.0\.0", as in descriptor\.json'),
        ({"descriptor_digest": None}, r"\$\.descriptor_digest: is missing"),
        ({"descriptor_digest": "sha256:0"}, r"\$\.descriptor_digest: must be .*64 lower-case hex"),
        (
            {"descriptor_digest": digest_of(b"")},
            r"\$\.descriptor_digest: must be that of descriptor\.json, sha256:\w{64}, found",
        ),
        ({"artifacts": None}, r"\$\.artifacts: is missing"),
        ({"artifacts": []}, r"\$\.artifacts: must list at least one file"),
        ({"signatures": {}}, r"\$\.signatures: must be an array"),
        ({"provenance": "hand"}, r"\$\.provenance: must be an object"),
        ({"base": []}, r"\$\.base: must be an object"),
        ({"effective_license": 1}, r"\$\.effective_license: must be a string"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_error_field_that_breaks_its_rule(
    pack: Pack, fields: Mapping[str, object], words: str
) -> None:
    """Every field of the manifest has a rule, and the error names both."""
    change(pack.root, **fields)
    with pytest.raises(VerificationError, match=rf"manifest\.json: {words}"):
        check(pack)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"role": "poem"}, r'role: must be "runtime" or .*, found "poem"'),
        ({"digest": digest_of(b"").upper()}, "digest: must be .*64 lower-case hex digits"),
        ({"digest": "0" * 64}, 'digest: must be "sha256:" and 64'),
        ({"size": -1}, "size: must be an integer of at least 0, found -1"),
        ({"size": True}, "size: must be an integer"),
        ({"license": ""}, "license: must be a string that is not empty"),
        ({"mode": "x"}, "mode: is no key here"),
        ({"encryption": "AES"}, "encryption: must be an object"),
        ({"component": 3}, "component: must be a string"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_error_artifact_that_breaks_its_rule(
    pack: Pack, changes: Mapping[str, object], words: str
) -> None:
    """Every field of an artifact has a rule, and the error names both."""
    change(pack.root, artifacts=[{**artifact(MODEL, CONTENT[MODEL]), **changes}])
    with pytest.raises(VerificationError, match=rf"\$\.artifacts\[0\]\.{words}"):
        check(pack)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("../out", id="climbs"),
        pytest.param("a/../../out", id="climbs-inside"),
        pytest.param("./a.bin", id="dot"),
        pytest.param("/etc/passwd", id="absolute"),
        pytest.param("a//b", id="empty-name"),
        pytest.param("a/", id="trailing-slash"),
        pytest.param("a\\b", id="backslash"),
        pytest.param(".cache/x", id="dot-entry"),
    ],
)
def test_error_unsafe_path(pack: Pack, path: str) -> None:
    """A listed path stays below the pack's folder, in one spelling, and is no dot-entry."""
    change(pack.root, artifacts=[artifact(path)])
    with pytest.raises(VerificationError, match=r"\[0\]\.path: must be a path below the pack's"):
        check(pack)


def test_error_path_that_no_file_can_have(pack: Pack) -> None:
    """A path has an end, so that looking at its folders has one too."""
    change(pack.root, artifacts=[artifact("a/" * 512 + "b")])
    with pytest.raises(VerificationError, match=r"\[0\]\.path: must have at most 1024"):
        check(pack)


def test_error_empty_path(pack: Pack) -> None:
    """A listed path says something."""
    change(pack.root, artifacts=[artifact("")])
    with pytest.raises(VerificationError, match=r"\[0\]\.path: must be a string that is not empty"):
        check(pack)


def test_error_manifest_that_lists_itself(pack: Pack) -> None:
    """No manifest can hold its own digest."""
    change(pack.root, artifacts=[artifact("manifest.json")])
    with pytest.raises(VerificationError, match=r"path: the manifest cannot list itself"):
        check(pack)


def test_error_path_listed_twice(pack: Pack) -> None:
    """One file has one entry."""
    change(pack.root, artifacts=[artifact(MODEL), artifact(MODEL)])
    with pytest.raises(VerificationError, match=r"artifacts\[1\]\.path: stands here twice"):
        check(pack)


@pytest.mark.parametrize(
    "paths",
    [
        pytest.param(("a/b", "a/B"), id="file"),
        pytest.param(("A/x", "a/y"), id="folder"),
        pytest.param(("stra\u00dfe", "STRASSE"), id="not-ascii"),
        pytest.param(("x", "Descriptor.json"), id="descriptor"),
        pytest.param(("x", "MANIFEST.JSON"), id="manifest"),
        pytest.param(("caf\u00e9", "cafe\u0301"), id="accent"),
        pytest.param(("cafe\u0301/x", "CAF\u00c9/y"), id="accent-and-case"),
    ],
)
def test_error_paths_that_differ_only_in_case(pack: Pack, paths: tuple[str, str]) -> None:
    """What is one file where case or an accent's encoding does not count is refused everywhere."""
    change(pack.root, artifacts=[artifact(path) for path in paths])
    words = r"artifacts\[1\]\.path: differs only in (case|its encoding) from"
    with pytest.raises(VerificationError, match=words):
        check(pack)


def test_error_file_changed_after_the_manifest(pack: Pack) -> None:
    """The same size is not the same content; the error has both digests."""
    (pack.root / MODEL).write_bytes(b"WEIGHTS")
    found, wanted = digest_of(b"WEIGHTS"), digest_of(b"weights")
    words = rf"a\.bin': its content is {found}, and manifest\.json says {wanted}; fetch"
    with pytest.raises(VerificationError, match=words):
        check(pack)


def test_error_truncated_file_is_found_by_its_size(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes are compared before anything is hashed."""
    monkeypatch.setattr(Digests, "_hashed", lambda *_: pytest.fail("a file was hashed"))
    os.truncate(pack.root / TOKENS, 1)
    with pytest.raises(
        VerificationError, match=r"t\.json': it has 1 bytes, and manifest\.json says 2"
    ):
        check(pack)


def test_error_missing_file(pack: Pack) -> None:
    """A listed file must be there."""
    (pack.root / TOKENS).unlink()
    with pytest.raises(
        VerificationError, match=r"t\.json': manifest\.json lists it, and it is not"
    ):
        check(pack)


@pytest.mark.parametrize("path", ["README.md", "artifacts/model/b.bin", "new/x"])
def test_error_unlisted_file(pack: Pack, path: str) -> None:
    """A file that the manifest does not know is no part of what was checked."""
    (pack.root / path).parent.mkdir(exist_ok=True)
    (pack.root / path).write_bytes(b"")
    with pytest.raises(VerificationError, match=f"file '{path}' is not listed in manifest"):
        check(pack)


def test_error_unlisted_file_whose_name_is_no_text(pack: Pack) -> None:
    """A name that no encoding can read is shown so that it can be printed."""
    (pack.root / os.fsdecode(b"\xff.bin")).write_bytes(b"")
    with pytest.raises(VerificationError, match=r"'\\udcff\.bin' is not listed") as caught:
        check(pack)
    assert str(caught.value).isascii()


def test_error_linked_file(pack: Pack, tmp_path: Path) -> None:
    """A link is refused, also to a file of the right content."""
    (tmp_path / "same").write_bytes(CONTENT[MODEL])
    (pack.root / MODEL).unlink()
    (pack.root / MODEL).symlink_to(tmp_path / "same")
    with pytest.raises(VerificationError, match=r"model/a\.bin' is a symbolic link"):
        check(pack)


def test_error_linked_folder(pack: Pack, tmp_path: Path) -> None:
    """A file behind a linked folder is refused, even where the link stays in the pack."""
    (pack.root / "artifacts" / "model").rename(pack.root / "artifacts" / ".model")
    (pack.root / "artifacts" / "model").symlink_to(".model")
    with pytest.raises(VerificationError, match=r"'artifacts/model' is a symbolic link"):
        check(pack)


@pytest.mark.parametrize("name", ["descriptor.json", "manifest.json"])
def test_error_linked_root_file(pack: Pack, tmp_path: Path, name: str) -> None:
    """The descriptor and the manifest are files of their own too."""
    (pack.root / name).rename(tmp_path / name)
    (pack.root / name).symlink_to(tmp_path / name)
    with pytest.raises(VerificationError, match=f"'{name}' is a symbolic link"):
        check(pack)


def test_error_pipe(pack: Pack) -> None:
    """What is no regular file is refused without being opened."""
    (pack.root / MODEL).unlink()
    os.mkfifo(pack.root / MODEL)
    with pytest.raises(VerificationError, match=r"model/a\.bin' is no regular file"):
        check(pack)


def test_error_descriptor_changed_since_the_manifest(pack: Pack) -> None:
    """The descriptor counts byte for byte: a blank is a change."""
    file = pack.root / "descriptor.json"
    file.write_bytes(file.read_bytes() + b"\n")
    with pytest.raises(VerificationError, match=r"\$\.descriptor_digest: must be that of"):
        check(pack)


def test_error_descriptor_replaced_since_the_pack_was_read(pack: Pack) -> None:
    """A right pack that is another than the one read is not what will be opened."""
    data = json.dumps(DESCRIPTOR | {"family": "huge"}).encode()
    (pack.root / "descriptor.json").write_bytes(data)
    change(pack.root, descriptor_digest=digest_of(data))
    with pytest.raises(VerificationError, match=r"descriptor\.json has changed since the pack was"):
        check(pack)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param({MODEL: CONTENT[MODEL]}, id="other-files"),
        pytest.param({TOKENS: CONTENT[TOKENS], MODEL: CONTENT[MODEL]}, id="other-order"),
    ],
)
def test_error_manifest_replaced_since_the_pack_was_read(
    pack: Pack, content: Mapping[str, bytes]
) -> None:
    """The files that are verified are those that the pack will give."""
    for path in CONTENT.keys() - content.keys():
        (pack.root / path).unlink()
    make_pack(pack.root, content)
    with pytest.raises(VerificationError, match=r"manifest\.json has changed since the pack was"):
        check(pack)


def test_error_roles_changed_since_the_pack_was_read(pack: Pack) -> None:
    """A file that has changed its role is another pack's file."""
    entries = [artifact(path, data, role="other") for path, data in CONTENT.items()]
    change(pack.root, artifacts=entries)
    with pytest.raises(VerificationError, match=r"manifest\.json has changed since the pack was"):
        check(pack)


@pytest.mark.parametrize("name", ["manifest.json", "descriptor.json"])
def test_error_root_file_gone(pack: Pack, name: str) -> None:
    """A pack that lost half of itself is a verification error, not the system's."""
    (pack.root / name).unlink()
    with pytest.raises(VerificationError, match=rf"it cannot be read: .*{name}"):
        check(pack)


def test_full_pack_passes(pack: Pack) -> None:
    """A pack that is what its manifest says passes, without a signature too."""
    check(pack)


def test_empty_file_and_listed_descriptor_pass(pack: Pack) -> None:
    """A file may be empty, and the descriptor may be listed."""
    root = make_pack(pack.root, {"a.txt": b"", "descriptor.json": b""} | CONTENT)
    data = (root / "descriptor.json").read_bytes()
    entries = [artifact(path, body) for path, body in CONTENT.items()]
    entries += [artifact("a.txt"), artifact("descriptor.json", data, role="descriptor")]
    change(root, artifacts=entries)
    check(Pack.from_path(root))


@pytest.mark.parametrize("path", [".hidden", ".cache/x", "artifacts/model/.git/y"])
def test_dot_entries_are_ignored(pack: Pack, path: str) -> None:
    """Names that start with a dot are not looked at, at any depth."""
    (pack.root / path).parent.mkdir(exist_ok=True)
    (pack.root / path).symlink_to("nowhere")
    check(pack)


def test_hard_link_is_a_file(pack: Pack, tmp_path: Path) -> None:
    """A second name of the same file is as good as a copy."""
    os.link(pack.root / MODEL, tmp_path / "second")
    check(pack)


def test_pack_behind_a_link_passes(pack: Pack, tmp_path: Path) -> None:
    """Only what is inside the pack must be no link; the way to it may be."""
    (tmp_path / "link").symlink_to(pack.root)
    check(Pack.from_path(tmp_path / "link"))


def test_bare_pack_has_nothing_to_verify(tmp_path: Path) -> None:
    """A plain folder passes, with links and all."""
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").symlink_to("a")
    verify(Pack.from_path(tmp_path), Trust.IF_SIGNED)


def test_nothing_is_checked_where_trust_is_off(pack: Pack) -> None:
    """``off`` is off: nothing is read."""
    (pack.root / "manifest.json").write_text("{")
    (pack.root / MODEL).unlink()
    verify(pack, Trust.OFF)


def test_large_file_is_read_in_chunks_and_to_its_end(pack: Pack) -> None:
    """A file is never held in memory, and its last byte counts."""
    size = 32 * 2**20
    data = bytes(size)
    root = make_pack(pack.root, {MODEL: data, TOKENS: b"{}"})
    large = Pack.from_path(root)
    tracemalloc.start()
    try:
        check(large)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size // 8
    with (root / MODEL).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\1")
    with pytest.raises(VerificationError, match="its content is"):
        check(large)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by which every file was written a minute ago."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 60 * 10**9)


@pytest.mark.usefixtures("later")
def test_unchanged_file_is_hashed_once(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a pack again costs no second hashing."""
    check(pack)
    monkeypatch.setattr(Digests, "_hashed", lambda *_: pytest.fail("a file was hashed"))
    check(pack)


def test_file_just_written_is_hashed_each_time(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stamps have ticks: a digest is remembered only once the last change is settled."""
    check(pack)
    monkeypatch.setattr(Digests, "_hashed", lambda *_: (_ for _ in ()).throw(OSError("again")))
    with pytest.raises(VerificationError, match="again"):
        check(pack)


def rewrite(file: Path) -> None:
    file.write_bytes(b"WEIGHTS")


def rewrite_and_set_the_time_back(file: Path) -> None:
    stat = file.stat()
    rewrite(file)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def replace(file: Path) -> None:
    stat = file.stat()
    other = file.with_name(".other")
    rewrite(other)
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(file)


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("alter", [rewrite, rewrite_and_set_the_time_back, replace])
def test_error_remembered_file_that_has_changed(pack: Pack, alter: Callable[[Path], None]) -> None:
    """A digest is remembered for one state of a file only; the old time does not hide a change."""
    check(pack)
    time.sleep(0.02)  # more than a tick of the file system's clock
    alter(pack.root / MODEL)
    with pytest.raises(VerificationError, match=r"a\.bin': its content is"):
        check(pack)
