"""The descriptor, the README and the rules of CapDAG agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import cartridge_whisper
from cartridge_core.errors import InvalidArgumentError
from cartridge_core.testing import registry_of
from cartridge_whisper import plugin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.descriptor import Descriptor

FOLDER = Path(cartridge_whisper.__file__).parent / "descriptors"
README = Path(__file__).parent.parent / "README.md"
CAPS = [
    cap
    for file in sorted(FOLDER.glob("*.json"))
    for cap in json.loads(file.read_text())["attributes"]["caps"]
]


@pytest.mark.parametrize("document", CAPS, ids=lambda cap: cap["title"])
def test_the_capdag_package_accepts_the_caps(document: dict[str, object]) -> None:
    """Each cap keeps CapDAG's rules, as the package capdag holds them."""
    from capdag.cap.definition import Cap as CapdagCap
    from capdag.cap.validation import validate_cap_definition

    validate_cap_definition(CapdagCap.from_dict(document))


def test_the_languages_are_whispers(descriptor: Descriptor) -> None:
    """Every language of whisper can be asked for, and no other."""
    from whisper.tokenizer import LANGUAGES

    arg = descriptor.caps[0].arg("language")
    assert arg is not None
    assert arg.schema is not None
    document = cast("Mapping[str, object]", arg.schema.document)
    assert document["enum"] == tuple(LANGUAGES)


@pytest.mark.parametrize(
    "request_urn",
    [
        pytest.param("cap:transcribe", id="alone"),
        pytest.param("cap:in=media:audio;transcribe;whisper", id="with-whisper"),
        pytest.param(
            'cap:in="media:audio;ext=wav;speech";out="media:enc=utf-8;record;transcription"',
            id="as-capdag-asks",
        ),
    ],
)
def test_a_request_for_a_transcript_finds_it(request_urn: str) -> None:
    """What may be asked for leads to the cartridge."""
    with registry_of(plugin) as registry:
        assert registry.route(request_urn, "batch").cartridge_id == "whisper-transcription"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("language", "English"),
        ("language", "xx"),
        ("task", "summarise"),
        ("temperature", -0.1),
        ("temperature", [0.0, 3.0]),
        ("beam_size", 0),
        ("clip_start_s", -1),
        ("batch_windows", 0),
        ("silence_dbfs", 1),
        ("sample_rate_hz", 0),
    ],
)
def test_error_an_argument_breaks_its_rule(
    descriptor: Descriptor, name: str, value: object
) -> None:
    """It is refused by its name."""
    arg = descriptor.caps[0].arg(name)
    assert arg is not None
    with pytest.raises(InvalidArgumentError, match=f"^{name}"):
        arg.check(value)


def test_the_readme_lists_every_cap_and_argument_with_its_default() -> None:
    """The README names what the descriptors declare."""
    text = README.read_text()
    document = json.loads((FOLDER / "whisper-transcription.json").read_text())
    assert f"`{document['id']}`" in text
    for cap in document["attributes"]["caps"]:
        assert f"`{cap['aliases'][0].removeprefix('whisper-')}`" in text
        for arg in cap["args"]:
            row = next((line for line in text.splitlines() if f"| `{arg['name']}` |" in line), "")
            assert row, arg["name"]
            default = arg.get("default_value", "")
            shown = default if isinstance(default, str) else json.dumps(default)
            assert not shown or f"`{shown}`" in row, row
