"""Packs: bare files and folders, full packs, and what tells one from another."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import LoadError
from cartridge_core.pack import Pack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DESCRIPTOR = {
    "spec_version": "0.3",
    "id": "asr-tiny-cpu",
    "version": "1.0.0",
    "family": "tiny",
    "modality": "audio",
    "task": "tts",
    "io": {
        "mode": "batch",
        "input": {"dtype": "float32"},
        "output": {"dtype": "utf8"},
    },
    "target": {"hardware": "any", "abi": "any"},
    "performance": {"measured_on": "unmeasured"},
    "execution_mode": "native",
    "license": "MIT",
}


def make_folder(root: Path, *names: str) -> Path:
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    return root


def make_full_pack(
    root: Path, *artifacts: tuple[str, str], descriptor: Mapping[str, object] = DESCRIPTOR
) -> Path:
    root.mkdir(exist_ok=True)
    (root / "descriptor.json").write_text(json.dumps(descriptor))
    listed = [{"role": role, "path": path, "digest": "sha256:0"} for role, path in artifacts]
    (root / "manifest.json").write_text(json.dumps({"id": "x", "artifacts": listed}))
    return root


def test_error_missing_path_is_named(tmp_path: Path) -> None:
    """A path that leads nowhere is a load error that names it."""
    with pytest.raises(LoadError, match=r"nowhere\.gguf: there is no such file"):
        Pack.from_path(tmp_path / "nowhere.gguf")


def test_error_impossible_path_is_a_load_error() -> None:
    """A path no file can have is a load error too, not a ValueError."""
    with pytest.raises(LoadError, match="no such file"):
        Pack.from_path("/x\0y")


def test_error_descriptor_without_manifest(tmp_path: Path) -> None:
    """A descriptor alone is half a pack, and refused as such."""
    make_full_pack(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(LoadError, match=r"no manifest\.json"):
        Pack.from_path(tmp_path)


def test_error_malformed_descriptor_is_named(tmp_path: Path) -> None:
    """A broken descriptor is a load error with the file and the place in it."""
    make_full_pack(tmp_path, descriptor={**DESCRIPTOR, "id": 3})
    with pytest.raises(LoadError, match=r"descriptor\.json: \$\.id"):
        Pack.from_path(tmp_path)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("../out", id="climbs"),
        pytest.param("/etc/passwd", id="absolute"),
        pytest.param("a\\..\\b", id="backslash"),
        pytest.param("", id="empty"),
        pytest.param(".", id="the-folder-itself"),
    ],
)
def test_error_artifact_outside_the_pack(tmp_path: Path, path: str) -> None:
    """An artifact's path stays below the pack's folder."""
    make_full_pack(tmp_path, ("model", path))
    with pytest.raises(LoadError, match=r"manifest\.json: \$\.artifacts\[0\]\.path"):
        Pack.from_path(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="no-json"),
        pytest.param('{"artifacts": [], "artifacts": []}', id="key-twice"),
        pytest.param("{}", id="no-artifacts"),
        pytest.param('{"artifacts": [{"path": "x"}]}', id="no-role"),
        pytest.param('{"artifacts": {"path": "x"}}', id="no-array"),
    ],
)
def test_error_malformed_manifest(tmp_path: Path, text: str) -> None:
    """A manifest is read strictly, and a fault in it is a load error."""
    make_full_pack(tmp_path)
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(LoadError, match=r"manifest\.json: \$"):
        Pack.from_path(tmp_path)


def test_file_is_a_bare_pack(tmp_path: Path) -> None:
    """A model file is a pack of one file, without a descriptor."""
    make_folder(tmp_path, "m.gguf", "other.gguf")
    pack = Pack.from_path(tmp_path / "m.gguf")
    assert (pack.root, pack.path, pack.descriptor) == (tmp_path, tmp_path / "m.gguf", None)
    assert pack.files() == (tmp_path / "m.gguf",)


def test_folder_is_a_bare_pack_of_its_files(tmp_path: Path) -> None:
    """A model folder is a pack of everything in it but dot entries, sorted."""
    make_folder(tmp_path, "b.json", "sub/a.bin", ".cache/x", ".hidden", "sub/.git/y")
    pack = Pack.from_path(tmp_path)
    assert (pack.root, pack.path, pack.descriptor) == (tmp_path, tmp_path, None)
    assert pack.files() == (tmp_path / "b.json", tmp_path / "sub" / "a.bin")


def test_manifest_alone_makes_no_full_pack(tmp_path: Path) -> None:
    """A model folder may hold a manifest.json of its own."""
    make_folder(tmp_path, "manifest.json")
    assert Pack.from_path(tmp_path).descriptor is None


def test_files_of_a_bare_pack_are_models(tmp_path: Path) -> None:
    """Every file of a bare pack has the role model, and none has another."""
    pack = Pack.from_path(make_folder(tmp_path, "a", "b"))
    assert pack.files("model") == pack.files()
    assert pack.files("runtime") == ()


def test_full_pack_has_a_descriptor_and_files_by_role(tmp_path: Path) -> None:
    """A full pack's files are those its manifest lists, by role and in its order."""
    make_full_pack(
        tmp_path,
        ("weights", "artifacts/weights/2.bin"),
        ("tokenizer", "artifacts/tokenizer/t.json"),
        ("weights", "artifacts/weights/1.bin"),
    )
    pack = Pack.from_path(tmp_path)
    assert pack.descriptor is not None
    assert pack.descriptor.id == "asr-tiny-cpu"
    weights = tmp_path / "artifacts" / "weights"
    assert pack.files("weights") == (weights / "2.bin", weights / "1.bin")
    assert len(pack.files()) == 3
    assert pack.files("model") == ()


def test_path_may_be_text_and_relative_to_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path may be a text; ~ is the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    make_folder(tmp_path, "m.bin")
    assert Pack.from_path("~/m.bin") == Pack.from_path(str(tmp_path / "m.bin"))


def test_identity_is_hashable_and_stable(tmp_path: Path) -> None:
    """Two packs of the same untouched files have one identity."""
    make_folder(tmp_path, "a", "sub/b")
    one, two = Pack.from_path(tmp_path), Pack.from_path(tmp_path)
    assert one.identity == two.identity
    assert hash(one.identity) == hash(two.identity)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda root: (root / "a").write_bytes(b"longer"), id="size"),
        pytest.param(lambda root: os.utime(root / "a", ns=(1, 1)), id="time"),
        pytest.param(lambda root: (root / "a").rename(root / "c"), id="name"),
        pytest.param(lambda root: (root / "sub" / "new").touch(), id="new-file"),
    ],
)
def test_identity_follows_a_change(tmp_path: Path, change: Callable[[Path], object]) -> None:
    """A changed file makes another pack, and the one made before knows."""
    pack = Pack.from_path(make_folder(tmp_path, "a", "sub/b"))
    assert pack.is_unchanged()
    change(tmp_path)
    assert not pack.is_unchanged()
    assert Pack.from_path(tmp_path).identity != pack.identity


def test_a_pack_whose_file_was_put_in_place_of_another_has_changed(tmp_path: Path) -> None:
    """A file of the same name, size and time that is another file counts as a change."""
    pack = Pack.from_path(make_folder(tmp_path, "a") / "a")
    stamp = (tmp_path / "a").stat().st_mtime_ns
    (tmp_path / "new").write_bytes((tmp_path / "a").read_bytes())
    os.utime(tmp_path / "new", ns=(stamp, stamp))
    (tmp_path / "new").replace(tmp_path / "a")
    assert not pack.is_unchanged()


def test_a_pack_whose_folder_is_gone_has_changed(tmp_path: Path) -> None:
    """Nothing where the pack was is a change, and no error."""
    pack = Pack.from_path(make_folder(tmp_path / "model", "a"))
    (tmp_path / "model" / "a").unlink()
    (tmp_path / "model").rmdir()
    assert not pack.is_unchanged()


def test_identity_ignores_dot_entries(tmp_path: Path) -> None:
    """What begins with a dot is no part of a pack."""
    before = Pack.from_path(make_folder(tmp_path, "a")).identity
    make_folder(tmp_path, ".cache/x")
    assert Pack.from_path(tmp_path).identity == before


def test_identity_is_the_same_through_a_link(tmp_path: Path) -> None:
    """A linked folder is the folder it leads to; a cache's linked files count as files."""
    real = make_folder(tmp_path / "real", "a")
    (real / "b").symlink_to(real / "a")
    link = tmp_path / "link"
    link.symlink_to(real)
    assert Pack.from_path(link).identity == Pack.from_path(real).identity
    assert Pack.from_path(real).files() == (real / "a", real / "b")


def test_error_identity_of_a_pack_whose_file_is_gone(tmp_path: Path) -> None:
    """A link whose file was deleted is a load error, not a silent gap."""
    (tmp_path / "a").symlink_to(Path("nowhere"))
    with pytest.raises(LoadError, match="cannot be read"):
        Pack.from_path(tmp_path)
