"""The plugin as a host sees it: descriptor, hooks, refusals, and what it does not import."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import DownloadError, InvalidArgumentError
from cartridge_core.urn import CapUrn
from cartridge_models import plugin, settings

if TYPE_CHECKING:
    from cartridge_core.hookspecs import BatchPlugin
    from cartridge_models.session import Session
    from cartridge_models.store import Store
    from conftest import Ask

_: BatchPlugin[Store, Session] = plugin

PLUGIN = Path(plugin.__file__).parent

REQUESTS = [
    pytest.param(
        'cap:download-model;in="media:enc=utf-8;model-spec";out="media:enc=utf-8;file-path"',
        "download-model",
        id="download-to-a-file-path",
    ),
    pytest.param(
        'cap:download-model;in="media:enc=utf-8;model-spec";'
        'out="media:download-result;enc=utf-8;record"',
        "download-model",
        id="download-to-a-record",
    ),
    pytest.param(
        'cap:in="media:enc=utf-8;model-spec";model-status;out="media:enc=utf-8;model-status;record"',
        "model-status",
        id="status",
    ),
    pytest.param(
        'cap:in="media:enc=utf-8;model-spec";model-path;out="media:enc=utf-8;model-path;record"',
        "model-path",
        id="path",
    ),
    pytest.param(
        'cap:in="media:enc=utf-8;model-spec";model-contents;'
        'out="media:enc=utf-8;model-contents;record"',
        "model-contents",
        id="contents",
    ),
    pytest.param(
        'cap:in="media:enc=utf-8;model-spec";model-availability;'
        'out="media:enc=utf-8;model-availability;record"',
        "model-availability",
        id="availability",
    ),
    pytest.param(
        'cap:in="media:enc=utf-8;model-repo;record";list-models;'
        'out="media:enc=utf-8;model-list;record"',
        "list-models",
        id="list",
    ),
    pytest.param("cap:remove-model", "remove-model", id="remove"),
]


def test_error_text_that_is_no_spec(ask: Ask) -> None:
    """A text that is no model spec is refused as the argument it is."""
    with pytest.raises(InvalidArgumentError, match="no owner") as caught:
        ask("download-model", "gpt2")
    assert caught.value.arg == "model_spec"


def test_error_value_that_is_no_text(ask: Ask) -> None:
    """Another value than a text is refused."""
    with pytest.raises(InvalidArgumentError, match="a text, not dict"):
        ask("download-model", {"repo_id": "a/b"})  # type: ignore[arg-type]


@pytest.mark.parametrize(("request_text", "marker"), REQUESTS)
def test_cap_serves_the_request(request_text: str, marker: str) -> None:
    """Each published request for a model is served by one cap, and by no other."""
    (descriptor,) = plugin.cartridge_descriptors()
    request = CapUrn.parse(request_text)
    serving = [cap for cap in descriptor.caps if cap.urn.is_dispatchable(request)]
    assert [cap.aliases for cap in serving] == [(marker,)]


def test_no_cap_has_a_pack() -> None:
    """The model spec is the value itself: there is no pack to resolve before."""
    (descriptor,) = plugin.cartridge_descriptors()
    assert [cap.pack_arg for cap in descriptor.caps] == [None] * 7
    names = ["model_spec"] * 5 + ["model_repo", "model_spec"]
    assert [cap.main and cap.main.name for cap in descriptor.caps] == names
    assert descriptor.schemes == ("hf", "pkg", "https", "file")


def test_caps_are_valid_cap_definitions() -> None:
    """The reference implementation reads every cap definition, and writes the same URN."""
    capdag = importlib.import_module("capdag")
    document = json.loads((PLUGIN / "descriptors" / "models-store.json").read_text())
    for cap in document["attributes"]["caps"]:
        assert str(capdag.Cap.from_dict(cap).urn) == str(CapUrn.parse(cap["urn"]))


def test_readme_lists_the_caps_and_their_fields() -> None:
    """README names every cap, and every field of its record."""
    readme = (PLUGIN.parent / "README.md").read_text()
    document = json.loads((PLUGIN / "descriptors" / "models-store.json").read_text())
    for cap in document["attributes"]["caps"]:
        row = re.search(rf"^\| `{cap['aliases'][0]}` \|.*$", readme, re.MULTILINE)
        assert row is not None
        (output,) = cap["outputs"]
        assert set(re.findall(r"`(\w+)`", row[0])) >= set(
            output["metadata"]["schema"]["properties"]
        )


def test_preflight_says_what_to_type_where_the_library_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the hub's library, preflight fails with the command that brings it."""
    assert plugin.cartridge_preflight("models-store", None, {}).ok

    def missing(name: str) -> str:
        raise plugin_metadata.PackageNotFoundError(name)

    from importlib import metadata as plugin_metadata

    monkeypatch.setattr(plugin_metadata, "version", missing)
    (failure,) = plugin.cartridge_preflight("models-store", None, {}).failures
    assert failure.fix == "pip install huggingface_hub"


def test_nothing_heavy_is_imported() -> None:
    """Descriptors, preflight, open and a look for a wheel import no backend and no HTTP library."""
    code = (
        "import sys\n"
        "from cartridge_core.context import Context\n"
        "from cartridge_models import plugin\n"
        "(descriptor,) = plugin.cartridge_descriptors()\n"
        "plugin.cartridge_preflight(descriptor.id, None, {})\n"
        "store = plugin.cartridge_open(descriptor.id, None, {}, Context())\n"
        "urn = next(str(cap.urn) for cap in descriptor.caps if 'model-path' in cap.aliases)\n"
        "session = plugin.cartridge_session_begin(store, urn, {}, Context())\n"
        "plugin.cartridge_infer(session, 'pkg:pypi/no-such-project@1#x')\n"
        "plugin.cartridge_session_end(session)\n"
        "plugin.cartridge_close(store)\n"
        "heavy = {'huggingface_hub', 'httpx', 'httpx2', 'requests', 'tqdm', 'numpy', 'pip'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({"CARTRIDGE_CACHE": "/c"}, "/c", id="named"),
        pytest.param({"XDG_CACHE_HOME": "/x"}, "/x/cartridge", id="xdg"),
        pytest.param({"HOME": "/h"}, "/h/.cache/cartridge", id="home"),
        pytest.param({"HOME": "/h", "CARTRIDGE_CACHE": "~/m"}, "/h/m", id="home-in-the-name"),
    ],
)
def test_cache_folder(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    """The cache is where the environment says, at the time it is asked."""
    for name in ("CARTRIDGE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert settings.cache_folder() == Path(expected)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        pytest.param("CARTRIDGE_CACHE", "~nosuch/x", id="named"),
        pytest.param("XDG_CACHE_HOME", "~nosuch", id="xdg"),
    ],
)
def test_error_cache_folder_of_nobody(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """A cache in the home of somebody who does not exist is an error with variable and value."""
    monkeypatch.delenv("CARTRIDGE_CACHE", raising=False)
    monkeypatch.setenv(variable, value)
    for marker in ("model-status", "download-model"):
        with pytest.raises(DownloadError, match=f"{variable}: '{value}' names no home folder"):
            ask(marker, "pkg:pypi/tiny-model@1.0#x")
