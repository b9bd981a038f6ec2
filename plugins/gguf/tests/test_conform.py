"""The verb ``conform`` finds a cartridge of this plugin good, as its test class does."""

from __future__ import annotations

import contextlib
import io
import json
from typing import TYPE_CHECKING

import pytest

from cartridge_core.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.integration
def test_the_command_holds_it_to_the_contract(llama: Path, tmp_path: Path) -> None:
    """By its id, with a model on disk, and a record in a file."""
    request = tmp_path / "request.json"
    request.write_text("{}")
    out = io.StringIO()
    words = ["gguf-inspect", "--model-spec", str(llama), "--input", str(request), "--json"]
    with contextlib.redirect_stdout(out):
        status = main(["conform", *words])
    document = json.loads(out.getvalue())
    wrong = [one for one in document["rules"] if one["verdict"] == "fail"]
    assert (status, wrong) == (0, [])
    assert document["passed"] == 20
