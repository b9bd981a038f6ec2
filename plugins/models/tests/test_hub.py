"""Models of the hub, with the real library against a hub on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import DownloadError, InvalidArgumentError, OfflineError

if TYPE_CHECKING:
    from fake_hub import FakeHub

    from conftest import Ask, RecordingContext

GATED = "https?://.*/acme/tiny, then type `hf auth login`"

REFUSALS = [
    pytest.param((404, "RepoNotFound"), "no such repository, or it is private", id="repository"),
    pytest.param((401, "RepoNotFound"), "or type `hf auth login`", id="not-logged-in"),
    pytest.param((403, "GatedRepo"), GATED, id="gated"),
    pytest.param((503, ""), "cannot be reached: .*503", id="hub-is-down"),
    pytest.param((403, "DisabledRepo"), "the hub refused: ", id="disabled"),
    pytest.param((404, "EntryNotFound"), "no file of it is meant", id="no-entry"),
]


@pytest.mark.parametrize(("refusal", "message"), REFUSALS)
def test_error_refusal_says_what_to_do(
    ask: Ask, hub: FakeHub, refusal: tuple[int, str], message: str
) -> None:
    """Each refusal of the hub is a download error that names the spec and the way out."""
    hub.refusal = refusal
    with pytest.raises(DownloadError, match=message) as caught:
        ask("download-model", "acme/tiny")
    assert str(caught.value).startswith("model hf:acme/tiny: ")
    assert not isinstance(caught.value, OfflineError)


def test_error_unknown_revision(ask: Ask, hub: FakeHub) -> None:
    """A revision that the repository has not is named."""
    with pytest.raises(DownloadError, match="no branch, tag or commit v9"):
        ask("download-model", "acme/tiny@v9")


@pytest.mark.parametrize("marker", ["model-status", "download-model"])
def test_error_name_that_the_hub_cannot_have(ask: Ask, hub: FakeHub, marker: str) -> None:
    """A name longer than the hub's are is refused as the argument it is."""
    with pytest.raises(InvalidArgumentError, match="more than a repository's name has") as caught:
        ask(marker, "hf:acme/" + "a" * 300)
    assert caught.value.arg == "model_spec"


def test_error_no_file_matches(ask: Ask, hub: FakeHub) -> None:
    """Globs that match nothing are an error with the names that come nearest."""
    with pytest.raises(DownloadError, match=r"nearest: model\.Q[48]_0\.gguf"):
        ask("download-model", "hf:acme/tiny?include=*Q9_0.gguf")


def test_error_hub_is_unreachable(ask: Ask, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that does not answer is a download error that names the settings to look at."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"cannot be reached.*HF_ENDPOINT"):
        ask("download-model", "acme/tiny")


@pytest.mark.parametrize("marker", ["download-model", "model-contents"])
@pytest.mark.parametrize(
    "refusal", [(503, ""), (404, "RevisionNotFound"), (404, "RepoNotFound"), (403, "GatedRepo")]
)
def test_error_of_the_hub_is_of_a_class_that_users_know(
    ask: Ask, hub: FakeHub, marker: str, refusal: tuple[int, str]
) -> None:
    """It is core's own class, and none of the plugin's below it."""
    hub.refusal = refusal
    with pytest.raises(DownloadError) as caught:
        ask(marker, "acme/tiny")
    assert type(caught.value) is DownloadError


@pytest.mark.parametrize("switch", ["CARTRIDGE_OFFLINE", "HF_HUB_OFFLINE"])
def test_error_offline(
    ask: Ask,
    hub: FakeHub,
    context: RecordingContext,
    monkeypatch: pytest.MonkeyPatch,
    switch: str,
) -> None:
    """Without the network, a model that is not here is an error, and the hub is not asked."""
    context.offline = switch == "CARTRIDGE_OFFLINE"
    if switch == "HF_HUB_OFFLINE":
        monkeypatch.setenv(switch, "1")
    with pytest.raises(OfflineError, match=f"{switch} forbids the network; type `cartridge models"):
        ask("download-model", "acme/tiny")
    with pytest.raises(OfflineError):
        ask("model-contents", "acme/tiny")
    assert hub.lines == []


def test_error_disk_without_room(
    ask: Ask, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A model larger than what is free is refused before its first byte."""
    hub.content = {"config.json": b"{}"}
    hub.claimed_bytes = 1 << 60
    with pytest.raises(DownloadError, match=r"it needs .* MB, .* free; make room, or set HF_HOME"):
        ask("download-model", "acme/tiny")
    assert not any("/resolve/" in line for line in hub.lines)


def test_snapshot_is_fetched_and_told(ask: Ask, hub: FakeHub, tmp_path: Path) -> None:
    """A repository is fetched whole into the hub's cache; the record says where and how much."""
    record = ask("download-model", "acme/tiny")
    folder = tmp_path / "hub" / "models--acme--tiny" / "snapshots" / hub.commit
    assert isinstance(record.pop("duration_ms"), int)
    assert record == {
        "revision": hub.commit,
        "path": str(folder),
        "success": True,
        "model_spec": "hf:acme/tiny",
        "total_bytes": sum(map(len, hub.content.values())),
        "file_count": 4,
    }
    assert (folder / "sub" / "tokenizer.json").read_bytes() == b"{}"


def test_include_and_exclude_choose_the_files(ask: Ask, hub: FakeHub) -> None:
    """Only files that include matches and exclude does not are fetched; the model is a folder."""
    record = ask("download-model", "hf:acme/tiny?include=*.gguf,*.json&exclude=*Q4*")
    folder = Path(str(record["path"]))
    here = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert here == {"config.json", "model.Q8_0.gguf", "sub/tokenizer.json"}
    assert record["file_count"] == 3


def test_one_glob_that_matches_one_file_gives_the_file(ask: Ask, hub: FakeHub) -> None:
    """One glob and one matching file: the model is that file."""
    spec = "hf:acme/tiny?include=*Q8_0.gguf"
    path = Path(str(ask("download-model", spec)["path"]))
    assert path.name == "model.Q8_0.gguf"
    assert path.read_bytes() == hub.content["model.Q8_0.gguf"]
    assert ask("model-path", spec)["path"] == str(path)


def test_one_glob_that_matches_several_files_gives_the_folder(ask: Ask, hub: FakeHub) -> None:
    """One glob and several matching files: the model is the folder."""
    assert Path(str(ask("download-model", "hf:acme/tiny?include=*.gguf")["path"])).is_dir()


def test_cached_model_is_found_offline(ask: Ask, hub: FakeHub, context: RecordingContext) -> None:
    """What was fetched once needs no network any more."""
    path = ask("download-model", "acme/tiny")["path"]
    context.offline = True
    hub.asked.clear()
    assert ask("download-model", "acme/tiny")["path"] == path
    assert ask("model-status", "acme/tiny")["state"] == "ready"
    assert hub.lines == []


def test_cached_model_is_taken_when_the_hub_is_unreachable(
    ask: Ask, hub: FakeHub, context: RecordingContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the hub does not answer, what is here is taken, with a warning."""
    path = ask("download-model", "acme/tiny")["path"]
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert ask("download-model", "acme/tiny")["path"] == path
    assert "may be out of date" in context.logged("warning")


def test_cached_commit_asks_nobody(ask: Ask, hub: FakeHub) -> None:
    """A commit never changes: once here, the hub is not asked."""
    spec = f"acme/tiny@{hub.commit}"
    path = ask("download-model", spec)["path"]
    hub.asked.clear()
    assert ask("download-model", spec)["path"] == path
    assert hub.lines == []


def test_commit_that_another_program_fetched_in_part_is_completed(
    ask: Ask, hub: FakeHub, tmp_path: Path
) -> None:
    """Where nobody kept the list of a commit's files, what is here is not taken for all of them."""
    folder = tmp_path / "hub" / "models--acme--tiny" / "snapshots" / hub.commit
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(hub.content["config.json"])
    assert ask("download-model", f"acme/tiny@{hub.commit}")["file_count"] == 4


def test_branch_is_followed(ask: Ask, hub: FakeHub) -> None:
    """A branch that moved on is fetched anew."""
    first = ask("download-model", "acme/tiny")["path"]
    hub.commit = "b" * 40
    hub.content["config.json"] = b"{}"
    second = Path(str(ask("download-model", "acme/tiny")["path"]))
    assert str(second) != first
    assert (second / "config.json").read_bytes() == b"{}"


def test_part_of_a_model_is_not_the_model(ask: Ask, hub: FakeHub) -> None:
    """With some of the files here, the status is paused, and the path is not told."""
    ask("download-model", "hf:acme/tiny?include=*.json")
    status = ask("model-status", "acme/tiny")
    assert (status["state"], status["file_count"], "path" in status) == ("paused", 2, False)
    assert ask("model-path", "acme/tiny") == {"model_spec": "hf:acme/tiny", "exists": False}
    assert ask("download-model", "acme/tiny")["file_count"] == 4


def test_model_that_is_nowhere_is_not_found(ask: Ask, hub: FakeHub) -> None:
    """Status and path of a model that is not here ask nobody and say so."""
    assert ask("model-status", "acme/tiny")["state"] == "not_found"
    assert ask("model-path", "acme/tiny")["exists"] is False
    assert hub.lines == []


def test_contents_are_the_hubs_until_the_model_is_here(ask: Ask, hub: FakeHub) -> None:
    """Before the download the hub lists the files that are meant; after it, the disk does."""
    spec = "hf:acme/tiny?include=*.gguf"
    before = ask("model-contents", spec)
    assert before == {
        "model_spec": spec,
        "model_name": "tiny",
        "repository": "acme/tiny",
        "local": False,
        "all_files": [
            {"path": "model.Q4_0.gguf", "size_bytes": 404},
            {"path": "model.Q8_0.gguf", "size_bytes": 804},
        ],
        "total_bytes": 1208,
        "file_count": 2,
    }
    assert not any("/resolve/" in line for line in hub.lines)
    ask("download-model", spec)
    assert ask("model-contents", spec) == {**before, "local": True}


def test_progress_tells_files_and_bytes(ask: Ask, hub: FakeHub, context: RecordingContext) -> None:
    """Progress never goes back, ends at 1, and its lines count files and bytes."""
    hub.content["big.bin"] = b"x" * 25_000_000
    ask("download-model", "acme/tiny")
    fractions = [event.fraction for event in context.progress_events]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert "5 of 5 files, 25.0 MB of 25.0 MB" in context.progress_events[-2].message


def test_nothing_is_drawn_or_printed(
    ask: Ask, hub: FakeHub, capfd: pytest.CaptureFixture[str]
) -> None:
    """The library's bars and warnings reach neither stdout nor stderr."""
    ask("download-model", "acme/tiny")
    assert capfd.readouterr() == ("", "")
