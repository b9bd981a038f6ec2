"""The descriptors, the README and the rules of CapDAG agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cartridge_torch
from cartridge_core.errors import InvalidArgumentError
from cartridge_core.testing import registry_of
from cartridge_torch import plugin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.capdefs import Cap
    from cartridge_core.descriptor import Descriptor

FOLDER = Path(cartridge_torch.__file__).parent / "descriptors"
README = Path(__file__).parent.parent / "README.md"
CAPS = [
    cap
    for file in sorted(FOLDER.glob("*.json"))
    for cap in json.loads(file.read_text())["attributes"]["caps"]
]
DIMENSION = 'out="media:integer;model-dim;numeric"'
IMAGE_SPEC = 'in="media:enc=utf-8;image-embeddings;model-spec"'
MOST = ["threads", "truncate_dim", "batch_size", "chunk_size", "chunk_overlap"]


@pytest.mark.parametrize("document", CAPS, ids=lambda cap: cap["title"])
def test_the_capdag_package_accepts_the_caps(document: dict[str, object]) -> None:
    """Each cap keeps CapDAG's rules, as the package capdag holds them."""
    from capdag.cap.definition import Cap as CapdagCap
    from capdag.cap.validation import validate_cap_definition

    validate_cap_definition(CapdagCap.from_dict(document))


def test_all_caps_open_alike(descriptors: Mapping[str, Descriptor]) -> None:
    """The caps of a cartridge have the same model spec; all of the plugin the same open ones."""
    for descriptor in descriptors.values():
        packs = [cap.pack_arg for cap in descriptor.caps]
        assert None not in packs
        declared = {(pack.name, pack.media_urn, pack.default) for pack in packs if pack}
        assert len(declared) == 1, descriptor.id
    first, *others = (cap.open_args for one in descriptors.values() for cap in one.caps)
    assert all(other == first for other in others)


@pytest.mark.parametrize("value", [2**31, 10**5000], ids=["more-than-32-bits", "5001-digits"])
@pytest.mark.parametrize("name", MOST)
def test_error_a_number_too_large(caps: tuple[Cap, ...], name: str, value: int) -> None:
    """A number that no library takes is refused by its name, however large."""
    arg = caps[0].arg(name)
    assert arg is not None
    with pytest.raises(InvalidArgumentError, match=f"^{name}: must be at most") as caught:
        arg.check(value)
    assert caught.value.arg == name


def test_the_readme_lists_every_cap_and_argument(descriptors: Mapping[str, Descriptor]) -> None:
    """The README names what the descriptors declare."""
    text = README.read_text()
    caps = [cap for descriptor in descriptors.values() for cap in descriptor.caps]
    names = {arg.name for cap in caps for arg in cap.args}
    urns = {
        "describe-image",
        "embeddings-dimensions",
        "generate-embeddings",
        "generate-image-embeddings",
    }
    assert all(set(cap.urn.tags) & urns for cap in caps)
    assert not [name for name in names | urns | set(descriptors) if f"`{name}`" not in text]
    defaults = {cap.pack_arg.default for cap in caps if cap.pack_arg}
    assert not [default for default in defaults if f"`{default}`" not in text]


@pytest.mark.parametrize(
    ("request_urn", "cartridge_id"),
    [
        pytest.param("cap:generate-embeddings", "torch-text-embedding", id="text"),
        pytest.param("cap:embeddings-dimensions", "torch-text-embedding", id="any-dimension"),
        pytest.param(
            f'cap:embeddings-dimensions;in="media:enc=utf-8;model-spec";{DIMENSION}',
            "torch-text-embedding",
            id="dimension-of-texts",
        ),
        pytest.param(
            f"cap:embeddings-dimensions;{IMAGE_SPEC};{DIMENSION}",
            "torch-image-embedding",
            id="dimension-of-pictures",
        ),
        pytest.param(
            "cap:generate-image-embeddings;in=media:image", "torch-image-embedding", id="pictures"
        ),
        pytest.param(
            'cap:generate-image-embeddings;in="media:enc=utf-8"',
            "torch-image-embedding",
            id="texts-among-pictures",
        ),
        pytest.param(
            'cap:generate-image-embeddings;in="media:ext=png;image"',
            "torch-image-embedding",
            id="as-capdag-asks-for-pictures",
        ),
        pytest.param(
            'cap:describe-image;in="media:ext=png;image";ml-model;vision',
            "torch-image-captioning",
            id="as-capdag-asks-for-captions",
        ),
    ],
)
def test_a_request_finds_its_cartridge(request_urn: str, cartridge_id: str) -> None:
    """Of the three cartridges, one serves a request."""
    with registry_of(plugin) as registry:
        assert registry.route(request_urn).cartridge_id == cartridge_id


def test_a_request_for_image_embeddings_alone_means_pictures() -> None:
    """Where the input is not said, it is the pictures, and not the texts among them."""
    with registry_of(plugin) as registry:
        cap = registry.route("cap:generate-image-embeddings").cap
    assert cap.urn.in_.has("image")
