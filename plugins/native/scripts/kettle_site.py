"""Install the plugin ``kettle`` on a path, and export its cartridges with the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from cartridge_core.testing import fake_arg, fake_cap, fake_descriptor

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DRIVER", "environment", "export", "install"]

_SOURCES = Path(__file__).parents[1] / "tests" / "kettle"
DRIVER = _SOURCES / "drive.py"
_TIMEOUT_S = 120.0
_NUMBERS = {"dtype": "float32", "shape": [None]}
_PAIRS = {"dtype": "float32", "shape": [None, 2]}


def install(folder: Path) -> None:
    """Make a distribution with the plugin in a folder that is to be on ``sys.path``."""
    package, info = folder / "cartridge_kettle", folder / "cartridge_kettle-1.0.dist-info"
    (package / "descriptors").mkdir(parents=True)
    info.mkdir()
    shutil.copy(_SOURCES / "kettle_plugin.py", package / "plugin.py")
    (package / "__init__.py").write_text("")
    for document in _descriptors():
        (package / "descriptors" / f"{document['id']}.json").write_text(json.dumps(document))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cartridge-kettle\nVersion: 1.0\n")
    point = "kettle = cartridge_kettle.plugin\n"
    (info / "entry_points.txt").write_text(f"[cartridge_core.plugins]\n{point}")


def _descriptors() -> list[dict[str, object]]:
    knobs = [fake_arg("times", "integer", 1), fake_arg("prefix", "string", scope="open")]
    echo = fake_cap("echo", *knobs, gives="media:echo;enc=utf-8")
    cast("list[dict[str, object]]", echo["args"])[0]["is_sequence"] = True
    factor = fake_arg("factor", "number", 2)
    scale = fake_cap("scale", factor, takes="media:levels", gives="media:list;numeric;pairs")
    levels = fake_descriptor("kettle-levels", caps=[scale]).to_json()
    levels["io"] = {"mode": "batch", "input": _NUMBERS, "output": _PAIRS}
    hear = fake_cap("hear", gives="media:enc=utf-8;heard;record", streaming=True)
    says = {"partial": "replace", "endpointing": "signal"}
    return [
        fake_descriptor("kettle-echo", caps=[echo]).to_json(),
        fake_descriptor("kettle-aside", caps=[echo], isolation="process").to_json(),
        fake_descriptor("kettle-stream", "streaming", [hear], **says).to_json(),
        levels,
    ]


def environment(site: Path, **more: str) -> dict[str, str]:
    """Give the variables of a process that has the plugin installed, and no other but native."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("CARTRIDGE_")}
    own = {"PYTHONPATH": str(site), "CARTRIDGE_PLUGINS": "kettle,native"}
    return {**inherited, **own, **more}


def export(site: Path, cartridge_id: str, target: Path, *words: str) -> Mapping[str, object]:
    """Export a cartridge of the plugin; give what the command says."""
    verb = [sys.executable, "-m", "cartridge_core", "export-c", cartridge_id, "--json"]
    done = subprocess.run(  # noqa: S603 -- this Python, and words of ours
        [*verb, "--out", str(target), *words],
        env=environment(site),
        check=True,
        capture_output=True,
        timeout=_TIMEOUT_S,
    )
    said: Mapping[str, object] = json.loads(done.stdout)
    return said
