"""What core says of the project's own plugins is what their descriptors say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cartridge_core._known_plugins import KNOWN, find_distributions
from cartridge_core.descriptor import Descriptor
from cartridge_core.urn import CapUrn

PLUGINS = Path(__file__).parents[2] / "plugins"


def offered() -> dict[str, set[str]]:
    """Give the caps of every descriptor of the project's plugins, by distribution."""
    found: dict[str, set[str]] = {}
    for file in PLUGINS.glob("*/cartridge_*/descriptors/*.json"):
        plugin = file.relative_to(PLUGINS).parts[0]
        descriptor = Descriptor.from_json(json.loads(file.read_text(encoding="utf-8")))
        urns = {str(cap.urn) for cap in descriptor.caps}
        found.setdefault(f"cartridge-{plugin}", set()).update(urns)
    return found


def test_table_is_what_the_descriptors_offer() -> None:
    """Every cap of every own plugin is in the table, canonical and once, and no other is."""
    assert {name: sorted(caps) for name, caps in KNOWN.items()} == {
        name: sorted(caps) for name, caps in offered().items()
    }


@pytest.mark.parametrize(
    ("request_urn", "distributions"),
    [
        pytest.param("cap:generate-image-embeddings", ["cartridge-torch"], id="torch"),
        pytest.param(
            "cap:generate-embeddings", ["cartridge-gguf", "cartridge-torch"], id="gguf-and-torch"
        ),
        pytest.param("cap:download-model", ["cartridge-models"], id="models"),
        pytest.param("cap:llm;llm-inference;ml-model", ["cartridge-gguf"], id="gguf"),
        pytest.param("cap:generate-embeddings;mlx", [], id="what-no-plugin-offers"),
        pytest.param(
            "cap:?effect",
            ["cartridge-gguf", "cartridge-models", "cartridge-torch", "cartridge-whisper"],
            id="several",
        ),
        pytest.param("cap:transcribe", ["cartridge-whisper"], id="whisper"),
    ],
)
def test_request_finds_the_distributions_to_install(
    request_urn: str, distributions: list[str]
) -> None:
    """A request names the distributions that would serve it, as in dispatch."""
    assert find_distributions(CapUrn.parse(request_urn)) == distributions
