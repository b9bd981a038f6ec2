"""Packs made, signed and verified by the command line; and that nothing in one can be changed."""

from __future__ import annotations

import base64
import json
import os
import resource
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.__main__ import main
from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import CartridgeError, LoadError, VerificationError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.manifest import verify
from cartridge_core.pack import Pack, Trust
from cartridge_core.packmaking import PackFacts, make_pack
from cartridge_core.results import Result, ResultKind
from cartridge_core.signatures import signed_message
from cartridge_core.signing import sign_manifest
from cartridge_core.testing.descriptors import fake_cap, fake_descriptor
from cartridge_core.testing.fakes import BatchEcho, FakeHandle, FakeSession
from cartridge_core.testing.registries import registry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODEL = {
    "name": "model_spec",
    "media_urn": "media:enc=utf-8;model-spec",
    "required": False,
    "sources": [{"cli_flag": "--model-spec"}],
    "default_value": "hf:someone/words",
    "metadata": {"pack": True},
}
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = base64.b64encode(KEY.public_key().public_bytes_raw()).decode()
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


class Reader(BatchEcho):
    """Puts what stands in its model's files before the text it is given."""

    plugin_name = "reader"
    descriptor = fake_descriptor("reader-text", caps=[fake_cap("read", MODEL)])

    @hookimpl
    def cartridge_open(
        self, cartridge_id: str, pack: Pack | None, options: object, context: object
    ) -> FakeHandle:
        assert pack is not None
        words = [file.read_text() for file in pack.files("model")]
        return FakeHandle(cartridge_id, {"prefix": " ".join([*words, ""])})

    @hookimpl
    def cartridge_infer(self, session: FakeSession, value: object) -> Result:
        return Result(ResultKind.FINAL, {"text": session.echo(str(value))})


@attrs.frozen
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


class Home:
    """A machine's folders, a model on it, and the command."""

    def __init__(self, folder: Path, run: Callable[[tuple[str, ...]], Ended]) -> None:
        self.folder = folder
        self.model = folder / "model"
        self.pack = folder / "pack"
        self.store = folder / "config" / "cartridge" / "trust.json"
        self.key = folder / "key.pem"
        self._run = run
        (self.model / "deep").mkdir(parents=True)
        (self.model / "a.txt").write_text("good")
        (self.model / "deep" / "b.txt").write_text("morning")
        self.store.parent.mkdir(parents=True)
        self.key.write_bytes(pem(KEY))

    def run(self, *words: str | Path) -> Ended:
        return self._run(tuple(os.fspath(word) for word in words))

    def new(self, *more: str | Path, version: str = "1.0.0") -> Ended:
        facts = ["--base", "reader-text", "--id", "tuned", "--version", version]
        licence = [] if "--license" in more else ["--license", "MIT"]
        return self.run("pack", "new", self.model, self.pack, *facts, *licence, *more)

    def sign(self, keyid: str = "me") -> Ended:
        return self.run("pack", "sign", self.pack, "--key", self.key, "--keyid", keyid)

    def verify(self, *more: str) -> Ended:
        return self.run("pack", "verify", self.pack, *more)

    def trust(self, **changes: object) -> None:
        key = {"keyid": "me", "public_key": PUBLIC, "roles": ["publisher"], "ids": ["*"]}
        document = {"schema_version": "1", "keys": [{**key, **changes}]}
        self.store.write_text(json.dumps(document))

    @property
    def manifest(self) -> dict[str, object]:
        document: dict[str, object] = json.loads((self.pack / "manifest.json").read_text())
        return document

    @manifest.setter
    def manifest(self, document: object) -> None:
        (self.pack / "manifest.json").write_text(json.dumps(document))


def pem(key: Ed25519PrivateKey | X25519PrivateKey, password: bytes | None = None) -> bytes:
    encryption = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, encryption)


@pytest.fixture
def home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Home:
    """A machine of its own, on which the plugin `Reader` is."""
    monkeypatch.delenv("CARTRIDGE_TRUST", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CARTRIDGE_CACHE", str(tmp_path / "cache"))

    def run(words: tuple[str, ...]) -> Ended:
        capfd.readouterr()
        status = main(words, partial(registry_of, Reader()))
        return Ended(status, *capfd.readouterr())

    return Home(tmp_path, run)


def test_round_trip(home: Home) -> None:
    """A pack that is made and signed verifies, is routed to before its base, and opened."""
    assert home.new().status == 0
    assert home.sign().status == 0
    home.trust()
    ended = home.verify("--trust", "required")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("verified tuned 1.0.0, signed by me: 0.0 MB hashed,")
    with registry_of(Reader(), packs=[home.pack]) as registry:
        assert registry.route("cap:read").cartridge_id == "tuned"
        result = registry.call("cap:read", "all", trust="required")
    assert result.cartridge_id == "tuned"
    assert result.payload == {"text": "good morning all"}


def test_new_pack_is_unsigned_and_right(home: Home) -> None:
    """What is made verifies as it is, and is told to be unsigned."""
    assert "3 files" not in home.new().out
    ended = home.verify("--json")
    assert json.loads(ended.out)["signed_by"] == []
    assert "not signed" in home.verify().out
    assert home.verify("--trust", "required").status == 14


def test_new_pack_has_the_layout_of_the_abi(home: Home) -> None:
    """Descriptor, manifest and artifacts by role; hidden files stay out, links are followed."""
    (home.model / ".cache").mkdir()
    (home.model / ".cache" / "x.txt").touch()
    (home.model / ".hidden.txt").touch()
    (home.model / "link.txt").symlink_to("a.txt")
    home.new()
    files = sorted(str(file.relative_to(home.pack)) for file in home.pack.rglob("*.*"))
    assert files == [
        "artifacts/model/a.txt",
        "artifacts/model/deep/b.txt",
        "artifacts/model/link.txt",
        "descriptor.json",
        "manifest.json",
    ]
    assert not (home.pack / "artifacts/model/link.txt").is_symlink()
    assert home.manifest["schema_version"] == "2"


def own_folder(home: Home, **changes: object) -> Path:
    """A folder with a descriptor of its own and two files."""
    folder = home.folder / "own"
    for role, name in (("runtime", "libx.so"), ("model", "weights.bin")):
        (folder / "artifacts" / role).mkdir(parents=True)
        (folder / "artifacts" / role / name).write_text(name)
    descriptor = {**fake_descriptor("reader-own").to_json(), **changes}
    (folder / "descriptor.json").write_text(json.dumps(descriptor))
    return folder


def test_a_folder_with_its_own_descriptor_is_packed_as_it_says(home: Home) -> None:
    """Nothing is narrowed: the descriptor goes in byte for byte, and the folders are the roles."""
    folder = own_folder(home)
    (folder / ".cache").mkdir()
    ended = home.run("pack", "new", folder, home.pack)
    assert (ended.status, ended.out) == (
        0,
        f"{home.pack}: reader-own 0.1.0, 2 files, not signed\n",
    )
    data = (folder / "descriptor.json").read_bytes()
    assert (home.pack / "descriptor.json").read_bytes() == data
    manifest = Pack.from_path(home.pack)
    assert [file.name for file in manifest.files("runtime")] == ["libx.so"]
    assert home.sign().status == 0
    home.trust()
    assert home.verify("--trust", "required").status == 0


@pytest.mark.parametrize(
    ("spoil", "status", "words"),
    [
        pytest.param(
            lambda folder: (folder / "README.md").touch(), 14, "holds README.md", id="more-files"
        ),
        pytest.param(
            lambda folder: (
                (folder / "artifacts" / "libs").mkdir()
                or (folder / "artifacts" / "libs" / "x").touch()
            ),
            11,
            "role",
            id="no-role",
        ),
        pytest.param(
            lambda folder: shutil.rmtree(folder / "artifacts"), 14, "no files", id="no-files"
        ),
        pytest.param(
            lambda folder: (folder / "descriptor.json").write_text("{}"), 11, "missing", id="empty"
        ),
    ],
)
def test_error_a_folder_that_is_no_pack_in_the_making(
    spoil: Callable[[Path], object], status: int, words: str, home: Home
) -> None:
    """What would not be in the pack, or not verify, is refused before one is made."""
    folder = own_folder(home)
    spoil(folder)
    ended = home.run("pack", "new", folder, home.pack)
    assert (ended.status, words in ended.err) == (status, True), ended.err
    assert not home.pack.exists()


def test_error_a_folder_whose_descriptor_says_no_licence(home: Home) -> None:
    """Whose it is has to be known."""
    ended = home.run("pack", "new", own_folder(home, license="NOASSERTION"), home.pack)
    assert ended.status == 11
    assert "state the licence" in ended.err


def test_error_a_model_needs_a_base_an_id_and_a_licence(home: Home) -> None:
    """Without a descriptor of its own a model narrows a cartridge."""
    ended = home.run("pack", "new", home.model, home.pack)
    assert ended.status == 2
    assert "--base, --id and --license" in ended.err


def test_error_preflight_of_a_changed_pack(home: Home) -> None:
    """A plugin sees no pack that is not what its manifest says, not even to look at the machine."""
    home.new()
    (home.pack / "artifacts" / "model" / "a.txt").write_text("evil")
    with registry_of(Reader(), packs=[home.pack]) as registry:
        assert registry.preflight("reader-text", home.model).ok
        with pytest.raises(VerificationError):
            registry.preflight("tuned")


def test_what_was_measured_of_another_model_is_not_said_of_this_one(tmp_path: Path) -> None:
    """Speed, quality and memory are the base's default model's: a pack starts unmeasured."""
    (tmp_path / "model.bin").write_bytes(b"x")
    document = {
        **Reader.descriptor.to_json(),
        "task": "asr",
        "performance": {"measured_on": "a laptop", "rtf": 0.1},
        "quality": {"wer": 0.04, "dataset": "d", "measured_on": "a laptop"},
        "requirements": {"memory_mb": 600, "os": {"name": "linux"}},
        "model": {"name": "words"},
        "flavors": [{"id": "small", "model": {"name": "letters"}}],
    }
    facts = PackFacts(id="tuned", version="1.0.0", license="MIT")
    base = Descriptor.from_json(document)
    make_pack(tmp_path / "model.bin", tmp_path / "pack", base, facts)
    made = json.loads((tmp_path / "pack" / "descriptor.json").read_text())
    assert made["performance"] == {"measured_on": "unmeasured"}
    assert made["quality"]["unmeasured"] is True
    assert made["requirements"] == {"os": {"name": "linux"}}
    assert not {"model", "flavors"} & made.keys()


def test_a_single_file_is_a_model_too(home: Home) -> None:
    """A model file becomes the one artifact."""
    ended = home.run(
        *("pack", "new", home.model / "a.txt", home.pack, "--base", "reader-text"),
        *("--id", "tuned", "--license", "MIT"),
    )
    assert ended.status == 0
    assert [one["path"] for one in home.manifest["artifacts"]] == ["artifacts/model/a.txt"]  # type: ignore[attr-defined]


REFUSED = [
    pytest.param(["--license", "NOASSERTION"], 11, "license is 'NOASSERTION'", id="no-licence"),
    pytest.param(["--license", "MIT AND noassertion"], 11, "says nothing", id="half-a-licence"),
    pytest.param(["--license", " "], 11, "says nothing", id="blank-licence"),
    pytest.param(["--id", "Tuned"], 11, "kebab-case", id="id"),
    pytest.param(["--id", "reader-text"], 11, "that of the cartridge it narrows", id="own-base"),
    pytest.param(["--version", "1.0"], 11, "semantic version", id="version"),
    pytest.param(["--base", "other"], 12, "they offer reader-text", id="base"),
]


@pytest.mark.parametrize(("words", "status", "said"), REFUSED)
def test_error_new_pack_that_would_not_be_right(
    home: Home, words: list[str], status: int, said: str
) -> None:
    """What a pack may not state is refused before anything is written."""
    ended = home.new(*words)
    assert ended.status == status
    assert said in ended.err
    assert not home.pack.exists()


def test_error_target_that_exists(home: Home) -> None:
    """Nothing is written over."""
    home.new()
    assert "exists; name a folder" in home.new().err


@pytest.mark.parametrize("what", ["folder-link", "broken-link", "pipe", "nothing", "gone"])
def test_error_model_that_is_none(home: Home, what: str) -> None:
    """What can be no artifact is refused by name, and leaves nothing behind."""
    odd = home.model / "odd"
    if what == "folder-link":
        odd.symlink_to("deep")
    elif what == "broken-link":
        odd.symlink_to("nowhere")
    elif what == "pipe":
        os.mkfifo(odd)
    else:
        shutil.rmtree(home.model)
        if what == "nothing":
            home.model.mkdir()
    ended = home.new()
    assert ended.status in {11, 14}
    assert str(odd if odd.is_symlink() or what == "pipe" else home.model) in ended.err
    assert sorted(path.name for path in home.folder.iterdir() if path.name[0] == ".") == []


def test_error_pack_for_a_cartridge_without_a_model(home: Home, capfd) -> None:
    """A cartridge that takes no model has no packs."""
    words = ["pack", "new", str(home.model), str(home.pack), "--base", "batch-echo-text"]
    words += ["--id", "x", "--license", "MIT"]
    assert main(words, partial(registry_of, BatchEcho())) == 11
    assert "takes no model" in capfd.readouterr().err


@pytest.mark.parametrize("where", ["effective_license", "artifact", "descriptor"])
def test_error_verify_finds_a_licence_that_says_nothing(home: Home, where: str) -> None:
    """A pack by another tool is held to the same: NOASSERTION fails."""
    home.new()
    manifest = home.manifest
    if where == "descriptor":
        file = home.pack / "descriptor.json"
        file.write_text(file.read_text().replace('"MIT"', '"NOASSERTION"'))
        digest = subprocess.run(["sha256sum", file], capture_output=True, check=True).stdout[:64]
        manifest["descriptor_digest"] = f"sha256:{digest.decode()}"
        manifest.pop("effective_license")
    elif where == "artifact":
        manifest["artifacts"][0]["license"] = "NOASSERTION"  # type: ignore[index]
    else:
        manifest["effective_license"] = "NOASSERTION"
    home.manifest = manifest
    for ended in (home.verify(), home.sign()):
        assert ended.status == 14
        assert "'NOASSERTION', which says nothing" in ended.err


def test_error_two_licences_for_the_whole(home: Home) -> None:
    """The descriptor's licence is the manifest's."""
    home.new()
    home.manifest = {**home.manifest, "effective_license": "Apache-2.0"}
    assert "they are one" in home.verify().err


def test_error_sign_what_is_not_so(home: Home) -> None:
    """Nobody signs a manifest that is wrong about its files."""
    home.new()
    (home.pack / "artifacts" / "model" / "a.txt").write_text("evil")
    ended = home.sign()
    assert ended.status == 14
    assert "a.txt': its content is" in ended.err
    assert home.manifest["signatures"] == []


def test_error_sign_where_nothing_can_be_written(home: Home) -> None:
    """A manifest that cannot be written is named, and is what it was."""
    home.new()
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most[1]))
    try:
        with pytest.raises(LoadError, match=r"manifest\.json cannot be written"):
            sign_manifest(home.pack, home.key, keyid="me", signer="I")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert home.manifest["signatures"] == []


KEYS = [
    pytest.param(pem(KEY, b"x"), "is encrypted", id="encrypted"),
    pytest.param(pem(X25519PrivateKey.generate()), "is no Ed25519 key", id="other-algorithm"),
    pytest.param(b"key", "no private key in PEM", id="no-pem"),
    pytest.param(b"", "no private key in PEM", id="empty"),
    pytest.param(None, "cannot be read", id="gone"),
]


@pytest.mark.parametrize(("data", "said"), KEYS)
def test_error_key_that_cannot_sign(home: Home, data: bytes | None, said: str) -> None:
    """A file that is no plain Ed25519 key is refused by name."""
    home.new()
    if data is None:
        home.key.unlink()
    else:
        home.key.write_bytes(data)
    ended = home.sign()
    assert ended.status == 14
    assert f"key {home.key}" in ended.err
    assert said in ended.err


def test_signing_again_replaces_its_own_signature_alone(home: Home) -> None:
    """One key has one signature; others keep theirs."""
    home.new()
    for keyid in ("me", "other", "me"):
        assert home.sign(keyid).status == 0
    keyids = [one["keyid"] for one in home.manifest["signatures"]]  # type: ignore[attr-defined]
    assert keyids == ["other", "me"]


def test_sign_says_what_a_trust_store_needs(home: Home) -> None:
    """The public key is printed as the trust store has it."""
    home.new()
    ended = home.run(*("pack", "sign", home.pack, "--key", home.key, "--keyid", "me", "--json"))
    assert json.loads(ended.out)["public_key"] == PUBLIC


def test_the_signature_is_over_the_hex_digest(home: Home) -> None:
    """What is signed is 64 hex digits as ASCII."""
    home.new()
    home.sign()
    signature = base64.b64decode(home.manifest["signatures"][0]["signature"])  # type: ignore[index]
    message = signed_message(home.manifest)
    assert len(message) == 64
    Ed25519PublicKey.from_public_bytes(base64.b64decode(PUBLIC)).verify(signature, message)


@needs_openssl
def test_openssl_verifies_what_is_signed_here(home: Home) -> None:
    """The other direction: ``openssl pkeyutl -verify -rawin`` takes our signature."""
    home.new()
    home.sign()
    text, signature = home.folder / "text", home.folder / "signature"
    # Spelt out as the manifest's schema has it, not by our own code.
    unsigned = {name: value for name, value in home.manifest.items() if name != "signatures"}
    canonical = json.dumps(unsigned, sort_keys=True, separators=(",", ":")).encode()
    digest = subprocess.run(["sha256sum"], input=canonical, capture_output=True, check=True)
    text.write_bytes(digest.stdout[:64])
    encoded = home.manifest["signatures"][0]["signature"]  # type: ignore[index]
    signature.write_bytes(base64.b64decode(encoded))
    command = f"openssl pkeyutl -verify -rawin -inkey {home.key} -in {text} -sigfile {signature}"
    subprocess.run(command.split(), check=True, capture_output=True)


def test_inspect_shows_what_is_stated(home: Home) -> None:
    """``inspect`` verifies nothing."""
    home.new()
    home.sign()
    (home.pack / "artifacts" / "model" / "a.txt").unlink()
    ended = home.run("pack", "inspect", home.pack)
    assert ended.status == 0
    for word in ("tuned", "MIT", "artifacts/model/a.txt", "me: publisher", "sha256:"):
        assert word in ended.out
    document = json.loads(home.run("pack", "inspect", home.pack, "--json").out)
    assert document["files"][0]["size"] == 4


@pytest.mark.parametrize("verb", ["verify", "inspect"])
def test_error_no_pack(home: Home, verb: str) -> None:
    """A plain model is nothing to verify or inspect."""
    assert "it has no manifest.json" in home.run("pack", verb, home.model).err


@pytest.mark.timeout(20)
@pytest.mark.parametrize("verb", ["verify", "inspect"])
def test_error_a_manifest_that_is_no_file_is_not_waited_for(home: Home, verb: str) -> None:
    """Reading a named pipe would never end."""
    home.new()
    (home.pack / "manifest.json").unlink()
    os.mkfifo(home.pack / "manifest.json")
    ended = home.run("pack", verb, home.pack)
    assert (ended.status, ended.out) == (14, "")
    assert "manifest.json is no regular file" in ended.err


def test_error_half_a_pack_is_no_bare_model(home: Home) -> None:
    """Without its descriptor a pack would be opened without a look at its manifest."""
    home.new()
    (home.pack / "descriptor.json").unlink()
    with pytest.raises(CartridgeError, match=r"has manifest\.json but no descriptor\.json"):
        Pack.from_path(home.pack)


@pytest.mark.parametrize(
    "text", ["[]", "{}", "{", '{"name": "An app", "icons": []}', '{"schema_version": "2"}']
)
def test_a_model_s_own_manifest_is_a_file_like_others(tmp_path: Path, text: str) -> None:
    """Other kinds of manifest have that name too."""
    (tmp_path / "manifest.json").write_text(text)
    assert Pack.from_path(tmp_path).files() == (tmp_path / "manifest.json",)


def test_error_older_version_after_a_newer_one(home: Home) -> None:
    """Once a signed version was accepted, an older one is refused, rightly signed or not."""
    home.trust()
    for version, status in (("1.2.0", 0), ("1.1.0", 14), ("1.2.0", 0), ("1.2.1-rc.1", 0)):
        shutil.rmtree(home.pack, ignore_errors=True)
        home.new(version=version)
        home.sign()
        ended = home.verify()
        assert ended.status == status
    shutil.rmtree(home.pack)
    home.new(version="1.2.0")
    ended = home.verify()
    assert "must be at least 1.2.1-rc.1, which was accepted before" in ended.err


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A signed pack, for tests that change it and change it back."""
    folder = tmp_path_factory.mktemp("signed")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CARTRIDGE_TRUST", raising=False)
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.setenv("CARTRIDGE_CACHE", str(folder / "cache"))

        def run(words: tuple[str, ...]) -> Ended:
            return Ended(main(words, partial(registry_of, Reader())), "", "")

        home = Home(folder, run)
        assert home.new().status == home.sign().status == 0
        home.trust()
        yield home


def refused(home: Home) -> str:
    """Verify as an open does; give what is said against it."""
    try:
        verify(Pack.from_path(home.pack), Trust.REQUIRED)
    except CartridgeError as exc:
        return str(exc)
    return ""


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_error_any_byte_of_a_listed_file(signed: Home, data: st.DataObject) -> None:
    """Whichever byte is flipped, the file is named."""
    listed = [*signed.manifest["artifacts"], {"path": "descriptor.json"}]  # type: ignore[misc]
    path = data.draw(st.sampled_from([one["path"] for one in listed]))
    file = signed.pack / path
    before = file.read_bytes()
    at = data.draw(st.integers(0, len(before) - 1))
    bit = data.draw(st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128]))
    try:
        file.write_bytes(before[:at] + bytes([before[at] ^ bit]) + before[at + 1 :])
        said = refused(signed)
    finally:
        file.write_bytes(before)
    assert Path(path).name in said or "descriptor_digest" in said
    assert refused(signed) == ""


def places(value: object, trail: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Give the place of every value in a JSON document."""
    if trail:
        yield trail
    pairs = value.items() if isinstance(value, dict) else ()
    for step, item in enumerate(value) if isinstance(value, list) else pairs:
        yield from places(item, (*trail, step))


def other_than(value: object) -> st.SearchStrategy[object]:
    """Give JSON values of any kind, none of them this one."""
    leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.floats(width=32))
    near: list[object] = []
    if isinstance(value, str):
        near = [value + "x", value.upper(), value[1:], f" {value}"]
    if isinstance(value, int):
        near = [value + 1, -value, str(value)]
    return st.one_of(st.sampled_from(near or [None]), leaves).filter(
        lambda one: json.dumps(one) != json.dumps(value)
    )


UNSIGNED = {"signer", "signed_at"}


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_error_any_field_of_the_manifest(signed: Home, data: st.DataObject) -> None:
    """Whichever field is changed, taken away or put in, the manifest is refused by place."""
    before = (signed.pack / "manifest.json").read_bytes()
    document = json.loads(before)
    every = [place for place in places(document) if place[-1] not in UNSIGNED]
    place = data.draw(st.sampled_from(every))
    holder = document
    for step in place[:-1]:
        holder = holder[step]
    how = data.draw(st.sampled_from(["change", "remove", "add"]))
    if how == "change":
        holder[place[-1]] = data.draw(other_than(holder[place[-1]]))
    elif how == "remove":
        del holder[place[-1]]
    elif isinstance(holder, dict):
        holder[data.draw(st.text().filter(lambda key: key not in holder))] = 1
    else:
        holder.append(holder[-1])
    try:
        (signed.pack / "manifest.json").write_text(json.dumps(document))
        said = refused(signed)
    finally:
        (signed.pack / "manifest.json").write_bytes(before)
    assert "manifest.json" in said


@pytest.mark.parametrize("field", sorted(UNSIGNED))
def test_signer_and_time_may_change(signed: Home, field: str) -> None:
    """They are not signed: nothing vouches for them."""
    before = (signed.pack / "manifest.json").read_bytes()
    document = json.loads(before)
    document["signatures"][0][field] = "anybody"
    try:
        (signed.pack / "manifest.json").write_text(json.dumps(document))
        assert refused(signed) == ""
    finally:
        (signed.pack / "manifest.json").write_bytes(before)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_error_signature_written_another_way(signed: Home, bits: int) -> None:
    """Base64 leaves bits of the last digit unused; one spelling counts."""
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    before = (signed.pack / "manifest.json").read_bytes()
    document = json.loads(before)
    text = document["signatures"][0]["signature"]
    other = text[:85] + digits[digits.index(text[85]) ^ bits] + text[86:]
    assert base64.b64decode(text) == base64.b64decode(other)
    document["signatures"][0]["signature"] = other
    try:
        (signed.pack / "manifest.json").write_text(json.dumps(document))
        assert "signature: must be the base64 of 64 bytes" in refused(signed)
    finally:
        (signed.pack / "manifest.json").write_bytes(before)


def test_error_signature_by_a_key_for_other_ids(home: Home) -> None:
    """A key of the trust store signs what it is there for."""
    home.new()
    home.sign()
    home.trust(ids=["other-*"])
    assert "may sign other-*" in home.verify().err


def test_error_verification_has_one_class(home: Home) -> None:
    """What is not so is a `VerificationError`, whoever asks."""
    home.new()
    (home.pack / "extra").touch()
    with registry_of(Reader(), packs=[home.pack]) as registry:
        with pytest.raises(VerificationError, match="'extra' is not listed"):
            registry.call("cap:read", "x")
