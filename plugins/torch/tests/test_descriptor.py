"""The descriptor, the README and the rules of CapDAG agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cartridge_torch
from cartridge_core.errors import InvalidArgumentError
from cartridge_torch import plugin

if TYPE_CHECKING:
    from cartridge_core.capdefs import Cap
    from cartridge_core.hookspecs import BatchPlugin
    from cartridge_torch.model import Model
    from cartridge_torch.session import Session

    _: BatchPlugin[Model, Session] = plugin

FILE = Path(cartridge_torch.__file__).parent / "descriptors" / "torch-text-embedding.json"
README = Path(__file__).parent.parent / "README.md"
DOCUMENT = json.loads(FILE.read_text())


@pytest.mark.parametrize("document", DOCUMENT["attributes"]["caps"], ids=lambda cap: cap["title"])
def test_the_capdag_package_accepts_the_caps(document: dict[str, object]) -> None:
    """Each cap keeps CapDAG's rules, as the package capdag holds them."""
    from capdag.cap.definition import Cap as CapdagCap
    from capdag.cap.validation import validate_cap_definition

    validate_cap_definition(CapdagCap.from_dict(document))


def test_both_caps_open_alike(caps: tuple[Cap, ...]) -> None:
    """The caps have the same open arguments, and the same model spec."""
    embeddings, dimensions = caps
    assert embeddings.open_args == dimensions.open_args
    a, b = embeddings.pack_arg, dimensions.pack_arg
    assert a is not None
    assert b is not None
    assert (a.name, a.media_urn, a.default) == (b.name, b.media_urn, b.default)
    assert dimensions.main == b


@pytest.mark.parametrize("value", [2**31, 10**5000], ids=["more-than-32-bits", "5001-digits"])
@pytest.mark.parametrize(
    "name", ["threads", "truncate_dim", "batch_size", "chunk_size", "chunk_overlap"]
)
def test_error_a_number_too_large(caps: tuple[Cap, ...], name: str, value: int) -> None:
    """A number that no library takes is refused by its name, however large."""
    arg = caps[0].arg(name)
    assert arg is not None
    with pytest.raises(InvalidArgumentError, match=f"^{name}: must be at most") as caught:
        arg.check(value)
    assert caught.value.arg == name


def test_the_readme_lists_every_cap_and_argument(caps: tuple[Cap, ...]) -> None:
    """The README names what the descriptor declares."""
    text = README.read_text()
    names = {arg.name for cap in caps for arg in cap.args}
    urns = {"generate-embeddings", "embeddings-dimensions"}
    assert all(set(cap.urn.tags) & urns for cap in caps)
    assert not [name for name in names | urns if f"`{name}`" not in text]
