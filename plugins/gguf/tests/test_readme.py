"""README.md says what the descriptors say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast

from cartridge_core.descriptor import Descriptor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cartridge_core.capdefs import Cap

PLUGIN = Path(__file__).parents[1]
README = (PLUGIN / "README.md").read_text(encoding="utf-8")


def descriptors() -> Iterator[Descriptor]:
    """Read the static descriptors."""
    for file in sorted(PLUGIN.glob("cartridge_gguf/descriptors/*.json")):
        yield Descriptor.from_json(json.loads(file.read_text(encoding="utf-8")))


def rows(heading: str) -> list[list[str]]:
    """Give the cells of the first table below a heading, code marks taken off."""
    section = README.partition(f"# {heading}\n")[2]
    table = re.search(r"^\|.*\n\|[-|]*\n((?:\|.*\n)+)", section, re.MULTILINE)
    assert table
    lines = table[1].splitlines()
    return [[cell.strip().replace("`", "") for cell in line.split("|")[1:-1]] for line in lines]


def defaults(heading: str) -> dict[str, str]:
    """Give the default of each argument of a table."""
    return {row[0]: row[1] for row in rows(heading)}


def markers(text: str) -> set[str]:
    """Find the names of capabilities in a text."""
    return set(re.findall(r"[a-z]+(?:-[a-z]+)+", text)) - {"ml-model"}


def generation() -> Cap:
    """Give the first cap of gguf-text-generation."""
    return next(one.caps[0] for one in descriptors() if one.id == "gguf-text-generation")


def test_every_cartridge_is_listed_with_its_mode_and_caps() -> None:
    listed = {(row[0], row[1], name) for row in rows("Caps") for name in markers(row[2])}
    offered = {
        (one.id, one.io.mode.value, name)
        for one in descriptors()
        for cap in one.caps
        for name in markers(" ".join(cap.urn.tags))
    }
    assert listed == offered


def test_every_field_of_the_request_is_listed_with_its_default() -> None:
    request = next(arg for arg in generation().args if arg.name == "request")
    assert request.schema is not None
    document = cast("Mapping[str, Mapping[str, Mapping[str, object]]]", request.schema.document)
    fields = document["properties"]
    declared = {name: str(field.get("default", "")) for name, field in fields.items()}
    assert defaults("The request") == declared


def test_every_argument_of_a_load_is_listed_with_its_default() -> None:
    declared = {arg.name: str(arg.default) for arg in generation().open_args}
    assert defaults("Arguments of a load") == declared


def test_every_argument_of_an_embedding_is_listed_with_its_default() -> None:
    cap = next(one.caps[0] for one in descriptors() if one.id == "gguf-embedding")
    left_out = {cap.main, cap.pack_arg}
    declared = {
        arg.name: json.dumps(arg.default) if arg.has_default else ""
        for arg in cap.session_args
        if arg not in left_out
    }
    listed = defaults("Texts and vectors")
    assert {**listed, "truncation": '"report"'} == declared
    assert listed["truncation"] == "report"
