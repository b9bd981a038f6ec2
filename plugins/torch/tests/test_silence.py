"""Nothing is printed, and what the libraries say reaches the call."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cartridge_core.context import Context
from cartridge_core.progress import Log, Progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cartridge_core.records import Record
    from cartridge_torch.text_model import TextModel

    Embed = Callable[..., Record]
    Open = Callable[..., TextModel]


EMBED = """
import os, sys
from cartridge_core.context import Context
from cartridge_core.pack import Pack
from cartridge_torch import plugin
cap = next(d for d in plugin.cartridge_descriptors() if d.id == "torch-text-embedding").caps[0]
options = {a.name: a.default for a in cap.open_args}
defaults = {a.name: a.default for a in cap.session_args if a.has_default}
for folder in sys.argv[1:]:
    pack = Pack.from_path(folder)
    model = plugin.cartridge_open("torch-text-embedding", pack, options, Context())
    session = plugin.cartridge_session_begin(model, str(cap.urn), defaults, Context())
    plugin.cartridge_infer(session, ["cat", "dog " * 100, ""] * 40)
    plugin.cartridge_session_end(session)
    plugin.cartridge_close(model)
"""

PICTURES = """
import os, sys
import numpy as np
from cartridge_core.context import Context
from cartridge_core.pack import Pack
from cartridge_torch import plugin
picture = np.random.default_rng(0).integers(0, 256, (3, 9, 3), dtype=np.uint8)
for d, folder in zip(plugin.cartridge_descriptors(), sys.argv[1:]):
    options = {a.name: a.default for a in d.caps[0].open_args}
    model = plugin.cartridge_open(d.id, Pack.from_path(folder), options, Context())
    for cap in d.caps:
        defaults = {a.name: a.default for a in cap.session_args if a.has_default}
        session = plugin.cartridge_session_begin(model, str(cap.urn), defaults, Context())
        if d.id == "torch-image-captioning":
            plugin.cartridge_push(session, picture)
            plugin.cartridge_flush(session)
            while plugin.cartridge_pull(session):
                pass
        else:
            value = [picture] * 3 if cap.urn.in_.has("image") else ["red " * 99, ""]
            plugin.cartridge_infer(session, value)
        plugin.cartridge_session_end(session)
    plugin.cartridge_close(model)
"""

FORK = """
pid = os.fork()
if not pid:
    os._exit(0)
os.waitpid(pid, 0)
"""

THREADS = """
import threading
print(*(thread.name for thread in threading.enumerate()))
"""

OTHERS = """
from sentence_transformers import SentenceTransformer
import logging
SentenceTransformer(sys.argv[1], device="cpu")
logging.getLogger("transformers.models").warning("others are heard")
logging.getLogger("sentence_transformers.models").warning("others are heard too")
"""


def run(code: str, *folders: Path) -> tuple[str, str]:
    """Run code in a process of its own; give what it printed."""
    command = [sys.executable, "-W", "default", "-c", code, *map(str, folders)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout, done.stderr


def test_nothing_is_printed(tiny: Path, plain: Path) -> None:
    """Loading, embedding and a fork afterwards leave stdout and stderr empty."""
    assert run(EMBED + FORK, tiny, plain) == ("", "")


def test_nothing_is_printed_over_pictures(blip_folder: Path, clip_folder: Path) -> None:
    """Loading CLIP and BLIP, and all they do, leave stdout and stderr empty."""
    assert run(PICTURES + FORK + THREADS, blip_folder, clip_folder) == ("MainThread\n", "")


def test_no_thread_of_the_libraries_stays(tiny: Path) -> None:
    """Nothing that we call starts tqdm's monitor."""
    assert run(EMBED + THREADS, tiny) == ("MainThread\n", "")


def test_whoever_else_uses_the_libraries_hears_them_as_before(tiny: Path) -> None:
    """The libraries' bars and warnings outside of our calls stay on stderr."""
    stdout, stderr = run(EMBED + OTHERS, tiny)
    assert stdout == ""
    assert "Loading weights" in stderr
    assert stderr.count("others are heard") == 2
    assert "[transformers] others are heard" in stderr


@pytest.mark.parametrize("library", ["transformers", "sentence_transformers"])
def test_a_warning_during_our_call_is_a_line_of_the_call(
    embed: Embed, capsys: pytest.CaptureFixture[str], library: str
) -> None:
    """What a library warns of while it works for us is given to the context."""
    said: list[Progress | Log] = []

    class Warned(Context):
        @property
        def cancelled(self) -> bool:
            logging.getLogger(library).warning("mind the %s", "gap")
            return False

    embed("cat", context=Warned(said.append))
    assert Log("warning", "mind the gap") in said
    assert capsys.readouterr() == ("", "")


def test_loading_weights_that_lack_something_is_told(
    plain: Path, tmp_path: Path, open_model: Open
) -> None:
    """Weights that the file lacks are made up by transformers; the call's log says which."""
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(plain, tmp_path / "lacking")
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    said: list[Progress | Log] = []
    open_model(folder, Context(said.append))
    lines = [item.message for item in said if isinstance(item, Log)]
    assert any("layer.1.output.dense.weight" in line for line in lines), lines
