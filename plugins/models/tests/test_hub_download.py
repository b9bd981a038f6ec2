"""Downloads from a hub: what refuses, what is resumed, and a cache that other tools share."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loopback import Loopback, noise

from cartridge_core.context import Context
from cartridge_core.errors import (
    BusyError,
    CancelledError,
    DownloadError,
    OfflineError,
    VerificationError,
)
from cartridge_models.locks import hold

if TYPE_CHECKING:
    from fake_hub import FakeHub

    from conftest import Ask, RecordingContext

BIG = "model.Q8_0.gguf"
ONE = f"hf:acme/tiny?include={BIG}"


@pytest.fixture
def store_folder(tmp_path: Path) -> Path:
    """The repository's folder in the hub's cache."""
    return tmp_path / "hub" / "models--acme--tiny"


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything in a folder, with what changes when it is written."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_ino)
        for path in [folder, *folder.rglob("*")]
    }


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        pytest.param((403, "GatedRepo"), "is gated; ask for access at", id="gated"),
        pytest.param((401, "GatedRepo"), "is gated; ask for access at", id="gated-not-logged-in"),
        pytest.param((401, ""), "is private and you are not logged in", id="private"),
        pytest.param((404, "EntryNotFound"), "no file of it is meant", id="gone-since"),
        pytest.param((429, ""), "limits how often it is asked: .*429", id="limited"),
        pytest.param((503, ""), "cannot be reached: .*503", id="down"),
        pytest.param((403, ""), "the hub refused: .*403", id="forbidden"),
    ],
)
def test_error_file_that_is_refused_after_the_list(
    ask: Ask, hub: FakeHub, refusal: tuple[int, str], message: str
) -> None:
    """A hub that lists files and does not give them is told apart like one that lists none."""
    hub.file_refusal = refusal
    with pytest.raises(DownloadError, match=message) as caught:
        ask("download-model", "acme/tiny")
    assert str(caught.value).startswith("model hf:acme/tiny: ")


def test_error_hub_that_limits(ask: Ask, hub: FakeHub) -> None:
    """A hub that goes on with 429 is told as that, with the way to ask more often."""
    hub.refusal = (429, "")
    with pytest.raises(DownloadError, match=r"limits how often it is asked.*hf auth login"):
        ask("download-model", "acme/tiny")
    assert len(hub.asked) == 4


def test_error_hub_that_asks_to_wait_for_long(ask: Ask, hub: FakeHub) -> None:
    """A wait that is too long is told instead of waited for."""
    hub.refusal, hub.retry_after = (429, ""), "3600"
    with pytest.raises(DownloadError, match=r"it asks to wait 3600 s"):
        ask("download-model", "acme/tiny")
    assert len(hub.asked) == 1


def test_hub_that_limits_for_a_moment_is_waited_for(
    ask: Ask, hub: FakeHub, context: RecordingContext
) -> None:
    """A hub that asks to wait a second is asked again after it, and the wait is told."""
    hub.refusal, hub.retry_after = (429, ""), "1"

    def relent() -> None:
        time.sleep(0.4)
        hub.refusal = None

    helper = threading.Thread(target=relent)
    helper.start()
    assert ask("download-model", "acme/tiny")["file_count"] == 4
    helper.join()
    assert "asking again in 1 s" in context.progress_events[0].message


def test_error_file_that_is_not_what_the_hub_states(
    ask: Ask, hub: FakeHub, store_folder: Path
) -> None:
    """A file in LFS with another digest is refused with both, and stays out of the cache."""
    hub.oddities = ["wrong"]
    with pytest.raises(VerificationError, match=f"sha256 {hub.digest(BIG)}.* what came is sha256"):
        ask("download-model", ONE)
    assert list((store_folder / "blobs").iterdir()) == []
    assert not (store_folder / "snapshots").exists()
    assert ask("download-model", ONE)["file_count"] == 1


def test_error_small_file_that_is_not_what_the_hub_states(ask: Ask, hub: FakeHub) -> None:
    """A file outside LFS is held against git's name of it."""
    hub.oddities = ["wrong"]
    with pytest.raises(VerificationError, match=f"git-sha1 {hub.digest('config.json')}"):
        ask("download-model", "hf:acme/tiny?include=config.json")


@pytest.mark.parametrize("name", ["../escaped", "/nowhere/escaped", "a/../../x", "a\\b"])
def test_error_name_that_leads_outside(ask: Ask, hub: FakeHub, name: str, tmp_path: Path) -> None:
    """A hub that lists a file outside its repository is refused."""
    hub.content[name] = b"x"
    with pytest.raises(DownloadError, match="which would lie outside"):
        ask("download-model", "acme/tiny")
    assert not list(tmp_path.rglob("*escaped*"))


def test_error_a06_login_page_of_a_network(ask: Ask, hub: FakeHub, store_folder: Path) -> None:
    """A portal's page in place of the model is told as a page, and nothing of it is kept."""
    hub.oddities = ["page"]
    with pytest.raises(DownloadError, match=r"a web page \(text/html, 27 bytes\)"):
        ask("download-model", ONE)
    assert list((store_folder / "blobs").iterdir()) == []


def test_error_offline_says_what_is_missing(
    ask: Ask, hub: FakeHub, context: RecordingContext
) -> None:
    """Without the network, the files that are missing of a model are named."""
    ask("download-model", "hf:acme/tiny?include=*.json")
    context.offline = True
    hub.asked.clear()
    with pytest.raises(OfflineError, match=r"\(model\.Q4_0\.gguf, model\.Q8_0\.gguf missing\)"):
        ask("download-model", "acme/tiny")
    assert hub.lines == []


def test_hub_finds_what_we_fetched(ask: Ask, hub: FakeHub, tmp_path: Path) -> None:
    """huggingface_hub takes our files as its own: it finds them, and fetches nothing again."""
    from huggingface_hub import scan_cache_dir, snapshot_download, try_to_load_from_cache

    path = ask("download-model", "acme/tiny")["path"]
    hub.asked.clear()
    cache = tmp_path / "hub"
    assert snapshot_download("acme/tiny", cache_dir=cache, local_files_only=True) == path
    assert snapshot_download("acme/tiny", cache_dir=cache, endpoint=hub.url) == path
    assert hub.fetched == []
    assert try_to_load_from_cache("acme/tiny", BIG, cache) == f"{path}/{BIG}"
    scanned = scan_cache_dir(cache)
    (repo,) = scanned.repos
    assert scanned.warnings == []
    assert {file.file_name for revision in repo.revisions for file in revision.files} == {
        "config.json",
        "model.Q4_0.gguf",
        BIG,
        "tokenizer.json",
    }
    assert repo.refs.keys() == {"main"}


def test_we_find_what_the_hub_fetched(ask: Ask, hub: FakeHub, tmp_path: Path) -> None:
    """What huggingface_hub fetched is ours: it is found, and not fetched again."""
    from huggingface_hub import hf_hub_download

    cache = tmp_path / "hub"
    hf_hub_download("acme/tiny", BIG, cache_dir=cache, endpoint=hub.url)
    hub.asked.clear()
    assert ask("model-status", ONE)["state"] == "ready"
    assert hub.lines == []
    assert ask("download-model", "acme/tiny")["file_count"] == 4
    assert sorted(hub.fetched) == ["config.json", "model.Q4_0.gguf", "sub/tokenizer.json"]


def test_part_of_another_tool_is_left_alone(ask: Ask, hub: FakeHub, store_folder: Path) -> None:
    """A part and a lock of another program in the shared cache are neither used nor harmed."""
    blobs = store_folder / "blobs"
    blobs.mkdir(parents=True)
    left = blobs / f"{hub.digest(BIG)}.12345678.incomplete"
    left.write_bytes(b"x")
    lock = store_folder.parent / ".locks" / store_folder.name / f"{hub.digest(BIG)}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert ask("download-model", ONE)["file_count"] == 1
    assert left.read_bytes() == b"x"
    assert lock.exists()


def test_content_that_two_commits_share_is_fetched_once(ask: Ask, hub: FakeHub) -> None:
    """A new commit costs the files that changed."""
    ask("download-model", "acme/tiny")
    hub.asked.clear()
    hub.commit = "b" * 40
    hub.content["config.json"] = b"{}"
    record = ask("download-model", "acme/tiny")
    # The file that has the same content already is one of them.
    assert hub.fetched == []
    assert record["revision"] == "b" * 40
    assert (Path(str(record["path"])) / BIG).read_bytes() == hub.content[BIG]


def test_mirror_that_lists_names_alone_is_asked_for_the_rest(ask: Ask, hub: FakeHub) -> None:
    """Where the list has no digests, each file's own answer has them, and they are held to."""
    hub.is_terse = True
    assert ask("download-model", "acme/tiny")["file_count"] == 4
    hub.commit, hub.content = "b" * 40, {"m.gguf": b"GGUF"}
    hub.oddities = ["plain", "wrong"]
    with pytest.raises(VerificationError, match=f"sha256 {hub.digest('m.gguf')}"):
        ask("download-model", "acme/tiny")


def test_error_mirror_that_states_no_digest(ask: Ask, hub: FakeHub) -> None:
    """What nobody states a digest of is not fetched."""
    hub.is_terse = True
    hub.etags = {f"/acme/tiny/resolve/{hub.commit}/config.json": '"x"'}
    with pytest.raises(DownloadError, match=r"no size and digest of 'config\.json'"):
        ask("download-model", "acme/tiny")


def test_revision_is_pinned_in_what_is_recorded(ask: Ask, hub: FakeHub, cache: Path) -> None:
    """The record names the commit, and the list that is kept has each file's digest."""
    record = ask("download-model", "acme/tiny@main")
    assert record["revision"] == hub.commit
    kept = json.loads((cache / "hub" / "models--acme--tiny" / f"{hub.commit}.json").read_text())
    assert kept["files"][BIG] == [804, "sha256", hub.digest(BIG)]
    assert kept["files"]["config.json"] == [22, "git-sha1", hub.digest("config.json")]


def test_branch_that_moves_while_it_is_fetched_is_the_old_one_until_then(
    ask: Ask, hub: FakeHub, context: RecordingContext
) -> None:
    """A download that fails leaves the branch where it was, complete."""
    first = ask("download-model", "acme/tiny")["path"]
    hub.commit = "b" * 40
    hub.content["new.gguf"] = b"GGUF"
    hub.file_refusal = (403, "GatedRepo")
    with pytest.raises(DownloadError, match="gated"):
        ask("download-model", "acme/tiny")
    context.offline = True
    assert ask("download-model", "acme/tiny")["path"] == first


@pytest.mark.parametrize("shared", ["one-shard", "all-shards"])
def test_shards_are_fetched_together(ask: Ask, hub: FakeHub, shared: str) -> None:
    """Asking for one shard of a model brings all of them; the model is the first one."""
    for number in (1, 2, 3):
        hub.content[f"big-0000{number}-of-00003.gguf"] = b"GGUF" + bytes([number])
    glob = "big-00002*" if shared == "one-shard" else "big-*"
    record = ask("download-model", f"hf:acme/tiny?include={glob}")
    assert Path(str(record["path"])).name == "big-00001-of-00003.gguf"
    assert record["file_count"] == 3


def test_token_is_sent_to_the_hub_and_nobody_else(
    ask: Ask,
    hub: FakeHub,
    context: RecordingContext,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The user's token goes to the hub; a site it redirects to and the log never see it."""
    monkeypatch.setenv("HF_TOKEN", "hf_s3cret")
    caplog.set_level(logging.DEBUG)
    hub.cdn = Loopback()
    ask("download-model", "acme/tiny")
    hub.refusal = (401, "RepoNotFound")
    with pytest.raises(DownloadError) as caught:
        ask("download-model", "acme/tiny@v2")
    hub.cdn.close()
    assert {one.token for one in hub.asked} == {"Bearer hf_s3cret"}
    assert [one.token for one in hub.cdn.asked] == ["", ""]
    said = f"{context.events} {caplog.text} {caught.value} {caught.value.__cause__}"
    assert "s3cret" not in said


def test_cancel_keeps_the_part_and_the_next_call_goes_on(
    ask: Ask, hub: FakeHub, context: RecordingContext, store_folder: Path
) -> None:
    """A cancelled download ends within a quarter of a second; the next one transfers the rest."""
    hub.content = {BIG: noise(2_000_000, 1)}
    hub.hold_at = 1_500_000
    part = store_folder / "blobs" / f"{hub.digest(BIG)}.cartridge"
    cancelled_s: list[float] = []

    def cancel() -> None:
        hub.held.wait(60)
        while part.stat().st_size < 1_500_000:
            time.sleep(0.01)
        cancelled_s.append(time.monotonic())
        context.cancel()

    helper = threading.Thread(target=cancel)
    helper.start()
    with pytest.raises(CancelledError):
        ask("download-model", "acme/tiny")
    assert time.monotonic() - cancelled_s[0] < 0.25
    helper.join()
    hub.go.set()
    hub.hold_at = None
    status = ask("model-status", "acme/tiny", context=Context())
    assert (status["state"], status["total_bytes"]) == ("paused", 1_500_000)
    before = hub.sent_bytes
    again = type(context)()
    assert ask("download-model", "acme/tiny", context=again)["success"] is True
    assert hub.sent_bytes - before == 500_000
    assert again.progress_events[0].fraction >= 0.74
    fractions = [event.fraction for event in again.progress_events]
    assert fractions == sorted(fractions)


def test_cancel_while_the_hub_does_not_answer(
    ask: Ask, hub: FakeHub, context: RecordingContext
) -> None:
    """Cancelling while the list is waited for does not wait for it."""
    hub.lock.acquire()
    cancelled_s: list[float] = []

    def cancel() -> None:
        time.sleep(0.5)
        cancelled_s.append(time.monotonic())
        context.cancel()

    helper = threading.Thread(target=cancel)
    helper.start()
    with pytest.raises(CancelledError):
        ask("download-model", "acme/tiny")
    assert time.monotonic() - cancelled_s[0] < 0.25
    hub.lock.release()
    helper.join()


def test_progress_counts_files_and_bytes_and_never_goes_back(
    ask: Ask, hub: FakeHub, context: RecordingContext
) -> None:
    """Whatever the answers, neither fraction, bytes nor files go back."""
    hub.content = {f"{n}.gguf": noise(1_000_000, n) for n in range(6)}
    hub.oddities = ["short", "whole", "short", "gzip", "reset", "new-etag", "503", "whole"]
    ask("download-model", "acme/tiny")
    told = [event for event in context.progress_events if event.message.startswith("downloading")]
    counts = [
        (event.fraction, int(words[2]), float(words[6]))
        for event in told
        for words in [event.message.split()]
    ]
    for column in zip(*counts, strict=True):
        assert list(column) == sorted(column)
    assert counts[-1] == (1.0, 6, 6.0)
    assert "6 of 6 files, 6.0 MB of 6.0 MB" in told[-1].message


@pytest.mark.parametrize("is_known", [True, False], ids=["with-the-list", "without-the-list"])
def test_complete_cache_is_used_without_writing(
    ask: Ask, hub: FakeHub, cache: Path, tmp_path: Path, is_known: bool
) -> None:
    """A cache that nobody can write to serves what it has, with the network and without."""
    import shutil

    path = ask("download-model", "acme/tiny")["path"]
    if not is_known:
        shutil.rmtree(cache)
    before = tree(tmp_path / "hub")
    assert ask("download-model", "acme/tiny")["path"] == path
    offline = Context(offline=True)
    assert ask("download-model", "acme/tiny", context=offline)["path"] == path
    assert tree(tmp_path / "hub") == before


def test_file_that_a_power_cut_left_short_is_fetched_again(
    ask: Ask, hub: FakeHub, store_folder: Path
) -> None:
    """A file in the cache that is shorter than the hub states does not count as here."""
    ask("download-model", ONE)
    blob = store_folder / "blobs" / hub.digest(BIG)
    blob.write_bytes(b"")
    assert ask("model-path", ONE)["exists"] is False
    ask("download-model", ONE)
    assert blob.read_bytes() == hub.content[BIG]


def test_status_of_a_download_under_way(ask: Ask, hub: FakeHub, store_folder: Path) -> None:
    """While somebody fetches a model, that is its status, and it is not removed."""
    hub.content = {BIG: noise(1_000_000, 1)}
    hub.hold_at = 500_000
    context = Context()

    def download() -> None:
        with pytest.raises(CancelledError):
            ask("download-model", ONE, context=context)

    helper = threading.Thread(target=download)
    helper.start()
    assert hub.held.wait(60)
    part = store_folder / "blobs" / f"{hub.digest(BIG)}.cartridge"
    while not part.exists():
        time.sleep(0.01)
    assert ask("model-status", ONE)["state"] == "downloading"
    with pytest.raises(BusyError, match=rf"process {os.getpid()} .* is fetching it"):
        ask("remove-model", ONE)
    context.cancel()
    helper.join()
    assert ask("model-status", ONE)["state"] == "paused"


def test_wait_for_another_download_is_told(
    ask: Ask, hub: FakeHub, context: RecordingContext, store_folder: Path
) -> None:
    """Whoever waits for somebody else's download says so, and who that is."""
    name = f"{hub.digest(BIG)}.cartridge.lock"
    lock = store_folder.parent / ".locks" / store_folder.name / name
    told = threading.Event()
    context.report = lambda event: told.set() if "waiting for" in event.message else None
    with hold(lock, lambda _: None):
        helper = threading.Thread(target=ask, args=("download-model", ONE))
        helper.start()
        assert told.wait(30)
    helper.join()
    assert ask("model-path", ONE)["exists"] is True


def test_availability_asks_the_hub(ask: Ask, hub: FakeHub, context: RecordingContext) -> None:
    """A model may be here, there, both or nowhere; without the network only here is told."""
    spec = {"model_spec": ONE}
    there = {**spec, "local_available": False, "remote_available": True}
    assert ask("model-availability", ONE) == there
    ask("download-model", ONE)
    assert ask("model-availability", ONE) == {**there, "local_available": True}
    missing = ask("model-availability", "hf:acme/none")
    assert (missing["local_available"], missing["remote_available"]) == (False, False)
    assert ask("model-availability", "hf:acme/tiny@v9")["remote_available"] is False
    hub.asked.clear()
    context.offline = True
    assert ask("model-availability", ONE) == {**spec, "local_available": True}
    assert hub.lines == []


def test_list_names_every_commit(ask: Ask, hub: FakeHub) -> None:
    """What was fetched of the hub is listed commit by commit, with its state."""
    assert ask("list-models", "all") == {"models": [], "count": 0, "filter": "all"}
    ask("download-model", ONE)
    hub.commit = "b" * 40
    ask("download-model", "acme/tiny")
    listed = ask("list-models", "huggingface")
    assert isinstance(listed["models"], list)
    assert [(one["model_spec"], one["state"], one["file_count"]) for one in listed["models"]] == [
        (f"hf:acme/tiny@{'a' * 40}", "paused", 1),
        (f"hf:acme/tiny@{'b' * 40}", "ready", 4),
    ]
    assert ask("list-models", "pypi")["count"] == 0


def test_remove_takes_what_nobody_else_has(ask: Ask, hub: FakeHub, store_folder: Path) -> None:
    """A removed model is gone; content that another commit has stays, and the rest is freed."""
    ask("download-model", "acme/tiny")
    hub.commit = "b" * 40
    hub.content["config.json"] = b'{"new": 1}'
    ask("download-model", "acme/tiny")
    removed = ask("remove-model", f"acme/tiny@{'b' * 40}")
    assert (removed["removed"], removed["file_count"], removed["freed_bytes"]) == (True, 4, 10)
    assert ask("model-status", f"acme/tiny@{'a' * 40}")["state"] == "ready"
    removed = ask("remove-model", f"acme/tiny@{'a' * 40}")
    assert removed["freed_bytes"] == 22 + 404 + 804 + 2
    assert not store_folder.exists()
    assert ask("remove-model", "acme/tiny")["removed"] is False
    assert ask("list-models", "all")["count"] == 0


def test_error_what_cannot_be_removed(ask: Ask, hub: FakeHub, store_folder: Path) -> None:
    """A cache that does not let go of a file is a `DownloadError` that names the model."""
    ask("download-model", ONE)
    (store_folder / "blobs" / f"{hub.digest(BIG)}.from").mkdir()  # in the way, and no file
    with pytest.raises(DownloadError, match=r"^model hf:acme/tiny.*: it cannot be removed: "):
        ask("remove-model", ONE)


def test_remove_of_some_files_leaves_the_others(ask: Ask, hub: FakeHub) -> None:
    """Only the files that a spec means go."""
    ask("download-model", "acme/tiny")
    assert ask("remove-model", ONE)["file_count"] == 1
    status = ask("model-status", "acme/tiny")
    assert (status["state"], status["file_count"]) == ("paused", 3)
    assert ask("download-model", "acme/tiny")["file_count"] == 4
