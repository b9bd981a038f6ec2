"""Readers of what comes from outside: nothing crashes them, and nothing forbidden gets through."""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import InvalidArgumentError, VerificationError
from cartridge_core.golden import read_vectors
from cartridge_core.jsondata import read_json
from cartridge_core.manifest import Manifest
from cartridge_core.modelspec import FileSpec, HubSpec, ModelSpec, PackageSpec, UrlSpec
from cartridge_core.signatures import TrustStore, signed_message
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor
from cartridge_core.versions import SEMVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DIGEST = f"sha256:{'0' * 64}"
SIGNATURE = f"{'A' * 86}=="
ARTIFACT: dict[str, object] = {
    "role": "model",
    "path": "artifacts/model/a.bin",
    "digest": DIGEST,
    "size": 1,
    "license": "MIT",
    "derived_from": {"source": "x", "license": "MIT"},
    "encryption": {"alg": "AES-256-GCM", "key_ref": "slot-0"},
    "delivery": {"timing": "on-demand", "group": "g"},
    "component": "encoder",
}
MANIFEST: dict[str, object] = {
    "schema_version": "2",
    "kind": "cartridge",
    "id": "tts-tiny",
    "version": "1.0.0",
    "effective_license": "MIT",
    "descriptor_digest": DIGEST,
    "base": {"kind": "cartridge", "id": "tts-tiny", "version": "1.0.0", "digest": DIGEST},
    "digest_alg": "sha256",
    "artifacts": [ARTIFACT, {**ARTIFACT, "path": "artifacts/model/b.bin"}],
    "provenance": {
        "producer": "p",
        "built_at": "2026-07-16T00:00:00Z",
        "inputs": [{"name": "n", "digest": DIGEST}],
        "training": {"round": 1, "method": "m", "participants_count": 2, "dp_epsilon": 3.0},
        "evaluation": {"dataset_digest": DIGEST, "metric": "wer", "value": 0.1, "baseline": 0.2},
    },
    "signatures": [
        {
            "keyid": "k",
            "alg": "ed25519",
            "signer": "s",
            "signature": SIGNATURE,
            "signed_at": "2026-09-14T00:00:00Z",
        }
    ],
}
DESCRIPTOR = fake_descriptor(
    "fake-one",
    caps=[fake_cap("echo", fake_arg("upper", "boolean", default=False))],
    backend={"distribution": "x", "min_version": "1.0"},
    formats=["gguf"],
    isolation="process",
).to_json()
VECTORS: dict[str, object] = {
    "schema_version": "1",
    "vectors": [
        {
            "id": "v",
            "cap": "cap:echo",
            "input": "x",
            "parameters": {"upper": True},
            "field": "text",
            "compare": "wer",
            "tolerance": 0.1,
            "expected": "x",
        }
    ],
}


def text_field(**rules: object) -> dict[str, object]:
    return {"type": "string", **rules}


def closed(required: str, **properties: object) -> dict[str, object]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": properties,
    }


def array(items: object, least: int = 0) -> dict[str, object]:
    return {"type": "array", "minItems": least, "items": items}


SHA256 = text_field(pattern="^sha256:[0-9a-f]{64}$", maxLength=71)
COUNT = {"type": "integer", "minimum": 0}
KIND = {"enum": ["cartridge", "weights-update"]}
ROLES = ["runtime", "model", "weights", "tokenizer", "calibration", "descriptor", "other"]
TIMING = {"enum": ["install-time", "fast-follow", "on-demand"]}
TRAINING = closed(
    "",
    round=COUNT,
    method=text_field(),
    participants_count=COUNT,
    dp_epsilon={"type": "number", "exclusiveMinimum": 0},
)
EVALUATION = closed(
    "dataset_digest metric value baseline",
    dataset_digest=SHA256,
    metric=text_field(),
    value={"type": "number"},
    baseline={"type": "number"},
    waiver=text_field(),
)
PROVENANCE = closed(
    "",
    producer=text_field(),
    built_at=text_field(),
    inputs=array(closed("name digest", name=text_field(), digest=SHA256)),
    training=TRAINING,
    evaluation=EVALUATION,
    blueprint={"type": "object"},
    materialization={"type": "object"},
)
LISTED = closed(
    "role path digest size license",
    role={"enum": ROLES},
    path=text_field(),
    digest=SHA256,
    size=COUNT,
    license=text_field(),
    derived_from=closed("", source=text_field(), license=text_field()),
    encryption=closed("alg key_ref", alg=text_field(), key_ref=text_field()),
    delivery=closed("timing", timing=TIMING, group=text_field()),
    component=text_field(),
)
SIGNED = closed(
    "keyid alg signer signature signed_at",
    keyid=text_field(),
    alg={"const": "ed25519"},
    signer=text_field(),
    signature=text_field(),
    signed_at=text_field(),
)
# Cartridge ABI 0.1, manifest schema 2, as far as a JSON Schema says it; unsigned is allowed here.
SCHEMA = Draft202012Validator(
    closed(
        "schema_version kind id version digest_alg artifacts",
        schema_version={"const": "2"},
        effective_license=text_field(),
        kind=KIND,
        id=text_field(),
        version=text_field(),
        descriptor_digest=SHA256,
        base=closed(
            "kind id version digest",
            kind=KIND,
            id=text_field(),
            version=text_field(),
            digest=SHA256,
        ),
        digest_alg={"const": "sha256"},
        artifacts=array(LISTED, 1),
        provenance=PROVENANCE,
        signatures=array(SIGNED),
    )
)

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([0.0, 1.0, 1.5, -0.0, 1e300, 10**400, 10**18]),
    st.sampled_from(["", "x", "2", "sha256", DIGEST, "cartridge", "weights-update", "é", "\ud800"]),
    st.text(max_size=4),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def places(value: object, trail: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Give the place of every value in a JSON document."""
    if trail:
        yield trail
    pairs = value.items() if isinstance(value, dict) else ()
    for step, item in enumerate(value) if isinstance(value, list) else pairs:
        yield from places(item, (*trail, step))


@st.composite
def changed(draw: st.DrawFn, document: dict[str, object]) -> dict[str, object]:
    """Give a right document with one to three things changed, taken away or put in."""
    new: dict[str, object] = json.loads(json.dumps(document))
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        every = list(places(new))
        if not every:
            break
        place = draw(st.sampled_from(every))
        holder: object = new
        for step in place[:-1]:
            holder = holder[step]  # type: ignore[index]
        assert isinstance(holder, dict | list)
        how = draw(st.sampled_from(["change", "change", "remove", "add"]))
        if how == "remove":
            del holder[place[-1]]  # type: ignore[arg-type]
        elif how == "change":
            holder[place[-1]] = draw(VALUES)  # type: ignore[call-overload]
        elif isinstance(holder, dict):
            keys = st.sampled_from([*MANIFEST, *ARTIFACT, "x"]) | st.text(max_size=3)
            holder[draw(keys)] = draw(VALUES)
        else:
            holder.append(draw(st.sampled_from([*holder, None])) if holder else draw(VALUES))
    return new


def is_safe(path: str) -> bool:
    """Say whether a path leads to a plain place below a folder, and is spelt one way only."""
    joined = os.path.join("/root/pack", path)
    parts = path.split("/")
    return (
        os.path.normpath(joined) == joined == f"/root/pack/{path}"
        and not any(part.startswith(".") for part in parts)
        and not set(path) & set("\\\0")
    )


def folded(path: str) -> list[str]:
    names = [unicodedata.normalize("NFC", name.casefold()).casefold() for name in path.split("/")]
    return ["/".join(names[: count + 1]) for count in range(len(names))]


def check_paths(paths: list[str]) -> None:
    """Hold paths that were accepted against the rules."""
    assert len(set(paths)) == len(paths)
    spelt: dict[str, str] = {"descriptor.json": "descriptor.json", "manifest.json": "manifest.json"}
    for path in paths:
        assert is_safe(path)
        assert path != "manifest.json"
        for part, name in zip(folded(path), path.split("/"), strict=True):
            assert spelt.setdefault(part, name) == name


def check_manifest(text: str) -> None:
    """Read a manifest; what is accepted keeps every rule."""
    try:
        manifest = Manifest.from_json(text.encode("utf-8", "surrogatepass"))
    except InvalidArgumentError:
        return
    document = json.loads(text)
    assert list(SCHEMA.iter_errors(document)) == []
    check_paths([file.path for file in manifest.files])
    assert manifest.message == signed_message(document)
    if manifest.kind == "cartridge":
        assert manifest.descriptor_digest is not None
    else:
        assert manifest.base is not None


def test_the_right_ones_are_accepted() -> None:
    """What the fuzzing starts from is right."""
    Manifest.from_json(json.dumps(MANIFEST).encode())
    Descriptor.from_json(DESCRIPTOR)
    read_vectors(json.dumps(VECTORS).encode(), {})
    SCHEMA.validate(MANIFEST)


@settings(max_examples=200, deadline=None)
@given(changed(MANIFEST))
def test_manifest_that_was_changed(document: dict[str, object]) -> None:
    """What the schema forbids is refused, by place."""
    check_manifest(json.dumps(document))


NAMES = st.sampled_from(
    ["a", "A", "b", "..", ".", "", ".git", "\\", "é", "e\u0301", "É", "ß", "ss"]
)
PATHS = st.one_of(
    st.lists(NAMES, min_size=1, max_size=4).map("/".join),
    st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names)),
    st.sampled_from(["Manifest.json", "DESCRIPTOR.JSON", "manifest.json", "C:\\x", "a\0b", "~"]),
    st.text(max_size=6),
)


@settings(max_examples=160, deadline=None)
@given(st.lists(PATHS, min_size=1, max_size=4))
def test_paths(paths: list[str]) -> None:
    """Whatever the paths, those accepted stay below the folder and are no two for one file."""
    document = {**MANIFEST, "artifacts": [{**ARTIFACT, "path": path} for path in paths]}
    check_manifest(json.dumps(document))


@settings(max_examples=120, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "é", "ß"]), min_size=1, max_size=4).map("/".join))
def test_a_plain_path_is_accepted(path: str) -> None:
    """The rules keep no honest path out."""
    document = {**MANIFEST, "artifacts": [{**ARTIFACT, "path": path}]}
    (file,) = Manifest.from_json(json.dumps(document).encode()).files
    assert file.path == path


RIGHT: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "manifest": (json.dumps(MANIFEST).encode(), Manifest.from_json),
    "descriptor": (json.dumps(DESCRIPTOR).encode(), Descriptor.from_json),
    "vectors": (json.dumps(VECTORS).encode(), partial(read_vectors, files={})),
}
TOKENS = [b"{", b"}", b"[", b"]", b'"', b",", b":", b"NaN", b"-Infinity", b"1e999", b"9" * 5000]
TOKENS += [b"\\u0000", b"\\ud800", b"\xff", b"\xef\xbb\xbf", b"null", b"0", b"//", b"\x00"]


@pytest.mark.parametrize("which", RIGHT)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_bytes_that_were_changed(which: str, data: st.DataObject) -> None:
    """A cut, a piece put in, a piece taken out: read or refused, never a crash."""
    right, read = RIGHT[which]
    start = data.draw(st.integers(0, len(right)))
    end = data.draw(st.integers(start, min(len(right), start + 30)))
    piece = data.draw(st.sampled_from(TOKENS) | st.binary(max_size=3))
    refuse_or_read(read, right[:start] + piece + right[end:])


@pytest.mark.parametrize("which", RIGHT)
@settings(max_examples=60, deadline=None)
@given(noise=st.binary(max_size=40) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_anything_at_all(which: str, noise: bytes) -> None:
    """Bytes without a meaning, and JSON of any other kind."""
    refuse_or_read(RIGHT[which][1], noise)


def refuse_or_read(read: Callable[[bytes], object], data: bytes) -> None:
    try:
        read(data)
    except InvalidArgumentError:
        return
    # What is accepted is JSON for everybody: each key once, no NaN.
    constants: list[str] = []
    json.loads(data, parse_constant=constants.append, object_pairs_hook=keys_once)
    assert constants == []


def keys_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@settings(max_examples=160, deadline=None)
@given(changed(DESCRIPTOR))
def test_descriptor_that_was_changed(document: dict[str, object]) -> None:
    """What is accepted is closed, has an id, one mode, and reads the same a second time."""
    try:
        descriptor = Descriptor.from_json(json.dumps(document))
    except InvalidArgumentError:
        return
    assert KEBAB.fullmatch(descriptor.id)
    assert document["io"]["mode"] in {"batch", "streaming"}  # type: ignore[index]
    assert set(document) <= {*DESCRIPTOR, "quality", "model", "requirements", "flavors"}
    again = Descriptor.from_json(json.dumps(descriptor.to_json()))
    assert again == descriptor
    assert [str(cap.urn) for cap in again.caps] == [str(cap.urn) for cap in descriptor.caps]


STORE: dict[str, object] = {
    "schema_version": "1",
    "keys": [
        {"keyid": "k", "public_key": f"{'A' * 43}=", "roles": ["publisher"], "ids": ["asr-*"]},
        {"keyid": "l", "public_key": f"{'A' * 43}=", "roles": ["aggregator"], "ids": ["*"]},
    ],
    "min_versions": {"asr-tiny": "1.2.0"},
}
FLOORS: dict[str, object] = {
    "schema_version": "1",
    "cartridge": {"asr-tiny": "1.2.0-rc.1"},
    "weights-update": {"asr-tiny": "1.3.0"},
}


@settings(max_examples=120, deadline=None)
@given(store=changed(STORE), floors=changed(FLOORS))
def test_trust_store_and_floors_that_were_changed(
    tmp_path_factory: pytest.TempPathFactory, store: object, floors: object
) -> None:
    """A key is whole and for somebody, a floor is a version, or nothing is trusted at all."""
    folder = tmp_path_factory.getbasetemp() / "stores"
    folder.mkdir(exist_ok=True)
    (folder / "trust.json").write_text(json.dumps(store))
    for document in (FLOORS, floors):
        (folder / "trust.versions.json").write_text(json.dumps(document))
        try:
            read = TrustStore.read(folder / "trust.json")
        except VerificationError:
            continue
        for key in read.keys.values():
            assert len(key.public_key) == 32
            assert key.ids
            assert set(key.roles) <= {"publisher", "aggregator"} != set()
        for floor in [*read.accepted["cartridge"].values(), *read.min_versions.values()]:
            assert SEMVER.fullmatch(floor)


@settings(max_examples=80, deadline=None)
@given(changed(VECTORS))
def test_vectors_that_were_changed(document: dict[str, object]) -> None:
    """Golden vectors are read or refused; a tolerance is a number from 0."""
    try:
        vectors = read_vectors(json.dumps(document).encode(), {})
    except InvalidArgumentError:
        return
    for vector in vectors:
        assert vector.tolerance >= 0
        assert vector.compare in {"max-abs", "cosine", "exact", "wer"}


TEXTS = st.text(max_size=20)
PIECES = [
    "hf:",
    "file:",
    "pkg:",
    "pkg:pypi/",
    "https://",
    "http://",
    "a",
    "b/c",
    "/",
    "//",
    "..",
    "~",
]
PIECES += ["@", "?", "include=", "&exclude=", "*.gguf", "%2C", ",", "#", "sha256=", "0" * 64, "1.0"]
PIECES += [" ", "\n", "\\", "é", "\ud800", ":", "C:", "@refs/pr/1", "?x=1", "%2e%2e/", "%"]


@settings(max_examples=240, deadline=None)
@example("file:\ud800")
@example("hf:b/c?include=\ud800")
@example("hf:b/c?include=\udcff")
@example("pkg:pypi/a@1.0#\udcff")
@example("file:/\udcff")
@example("~\0")
@given(st.lists(st.sampled_from(PIECES), max_size=7).map("".join) | TEXTS)
def test_model_specs(text: str) -> None:
    """A text is one of the four forms, whose own text is read as the same; or it is refused."""
    try:
        spec = ModelSpec.parse(text)
    except InvalidArgumentError:
        return
    assert ModelSpec.parse(str(spec)) == spec
    assert isinstance(spec, HubSpec | FileSpec | PackageSpec | UrlSpec)
    if isinstance(spec, HubSpec):
        owner, name = spec.repo_id.split("/")
        assert ".." not in (owner, name)
        assert not set(spec.repo_id) & set(" \\%?#@:\n\0")
    if isinstance(spec, FileSpec):
        assert spec.path.is_absolute()
    if isinstance(spec, UrlSpec):
        assert text.startswith("https://")


@settings(max_examples=80, deadline=None)
@given(VALUES)
def test_canonical_json_is_that_of_python(value: object) -> None:
    """What is signed is Python's canonical form of what any JSON reader would read."""
    text = json.dumps({"b": value, "a": 1, "signatures": [value]})
    try:
        document = read_json(text, "$")
    except InvalidArgumentError:
        return
    assert isinstance(document, type(read_json("{}", "$")))
    plain = json.loads(text)
    plain.pop("signatures")
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode("ascii")
    assert signed_message(document) == hashlib.sha256(canonical).hexdigest().encode()  # type: ignore[arg-type]
