"""Of the caps that serve a request, each rule in its turn leaves the right ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs
import pytest

from cartridge_core.descriptor import Descriptor, IoMode
from cartridge_core.errors import InvalidArgumentError
from cartridge_core.modelspec import ModelSpec
from cartridge_core.offers import Index, Offer
from cartridge_core.selection import Ground, Request, reads_value, select
from cartridge_core.testing import fake_arg, fake_cap, fake_descriptor
from cartridge_core.urn import CapUrn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TEXT = "media:enc=utf-8"
SPEC = "media:enc=utf-8;model-spec"
CAP = f'cap:describe;in="{TEXT}";out="{TEXT}"'
SPEC_CAP = f'cap:measure;in="{SPEC}";out="{TEXT}"'
GGUF = "hf:owner/repo-GGUF"
FOLDER = "hf:owner/repo"
WEB = "https://example.org/model.bin#sha256=" + 64 * "0"


def an_offer(
    cartridge_id: str,
    *urns: str,
    mode: Literal["batch", "streaming"] = "batch",
    plugin: str = "fake",
    pack: Path | None = None,
    attributes: Mapping[str, object] | None = None,
    **fields: object,
) -> Offer:
    """Give an offer of these caps, `CAP` by default; fields are the descriptor's."""
    caps = [_cap(number, CapUrn.parse(urn)) for number, urn in enumerate(urns or (CAP,))]
    document = fake_descriptor(cartridge_id, mode, caps, **(attributes or {})).to_json()
    return Offer(Descriptor.from_json({**document, **fields}), plugin, pack)


def _cap(number: int, urn: CapUrn) -> dict[str, object]:
    cap = fake_cap(f"cap-{number}", takes=str(urn.in_), gives=str(urn.out))
    return {**cap, "urn": str(urn)}


def reading(cartridge_id: str, *formats: str, cap: str = CAP) -> Offer:
    return an_offer(cartridge_id, cap, attributes={"formats": formats})


def taking(cartridge_id: str, *schemes: str, cap: str = CAP) -> Offer:
    return an_offer(cartridge_id, cap, attributes={"schemes": schemes})


def a_pack(cartridge_id: str, base: str, folder: Path) -> Offer:
    return an_offer(cartridge_id, attributes={"base": base}, pack=folder / cartridge_id)


def asking(cap: str = CAP, *, model_spec: str | None = None, **asked: object) -> Request:
    spec = None if model_spec is None else ModelSpec.parse(model_spec)
    request = Request(cap=CapUrn.parse(cap), model_spec=spec)
    return attrs.evolve(request, **asked)  # type: ignore[arg-type]


def left(
    *offers: Offer,
    cap: str = CAP,
    system: str = "linux",
    machine: str = "x86_64",
    **asked: object,
) -> list[str]:
    """Give the ids of the cartridges that are left for a request."""
    index = Index(offers, system=system, machine=machine)
    selection = select(index, asking(cap, **asked))  # type: ignore[arg-type]
    return [one.offer.id for one in selection.left]


SERVED = [
    pytest.param(CAP, CAP, id="the-very-cap"),
    pytest.param('cap:x;in="media:"', 'cap:x;in="media:image"', id="wider-input"),
    pytest.param('cap:in="media:image";x', "cap:x", id="input-not-said"),
    pytest.param(f'cap:out="{TEXT};record";x', f'cap:out="{TEXT}";x', id="narrower-output"),
    pytest.param("cap:target=a;x", "cap:target;x", id="refined-tag"),
    pytest.param("cap:target=a;x", "cap:x", id="more-tags"),
    pytest.param("cap:x", "cap:!target;x", id="absent-tag"),
    pytest.param("cap:target=b;x", "cap:target!=a;x", id="another-value"),
    pytest.param("cap:x", "cap:target?=a;x", id="anything-but-a-value"),
]

NOT_SERVED = [
    pytest.param('cap:in="media:image";x', f'cap:in="{TEXT}";x', id="other-input"),
    pytest.param('cap:in="media:image;png";x', 'cap:in="media:image";x', id="narrower-input"),
    pytest.param(f'cap:out="{TEXT}";x', f'cap:out="{TEXT};record";x', id="wider-output"),
    pytest.param("cap:target;x", "cap:target=a;x", id="vaguer-tag"),
    pytest.param("cap:x", "cap:target;x", id="missing-tag"),
    pytest.param("cap:target=a;x", "cap:!target;x", id="unwanted-tag"),
    pytest.param("cap:effect=none;x", "cap:x", id="other-effect"),
]


@pytest.mark.parametrize(("offered", "asked"), SERVED)
def test_cap_that_promises_what_is_asked_serves(offered: str, asked: str) -> None:
    """A request goes to a cap of grade exact or guaranteed."""
    assert left(an_offer("c", offered), cap=asked) == ["c"]


@pytest.mark.parametrize(("offered", "asked"), NOT_SERVED)
def test_error_cap_that_does_not_promise_it_is_not_routed_to(offered: str, asked: str) -> None:
    """Nothing is routed on a cap that only might serve, or does not."""
    selection = select(Index([an_offer("c", offered)]), asking(asked))
    assert (selection.left, selection.dropped) == ([], [])


@pytest.mark.parametrize(
    ("spec", "reader"),
    [pytest.param(GGUF, "c-gguf", id="gguf"), pytest.param(FOLDER, "c-folder", id="hf-folder")],
)
def test_format_of_the_model_decides(spec: str, reader: str) -> None:
    """A cartridge that does not read the model's format is left out."""
    offers = [reading("c-folder", "hf-folder"), reading("c-gguf", "gguf")]
    assert left(*offers, model_spec=spec) == [reader]
    assert left(*offers) == ["c-folder", "c-gguf"]


@pytest.mark.parametrize(
    ("formats", "spec"),
    [
        pytest.param((), GGUF, id="cartridge-does-not-say"),
        pytest.param(("hf-folder",), "file:/no/such/model", id="model-does-not-tell"),
    ],
)
def test_unknown_format_leaves_nobody_out(formats: tuple[str, ...], spec: str) -> None:
    """A format is held against a cartridge only where both are known."""
    assert left(reading("c", *formats), model_spec=spec) == ["c"]


def test_local_folder_is_known_by_its_files(tmp_path: Path) -> None:
    """A folder on disk has the format that its files' names tell."""
    (tmp_path / "config.json").touch()
    offers = [reading("c-gguf", "gguf"), reading("c-folder", "hf-folder")]
    assert left(*offers, model_spec=str(tmp_path)) == ["c-folder"]


def test_scheme_of_the_model_decides() -> None:
    """A cartridge that does not resolve the spec's scheme is left out."""
    offers = [taking("c-hub", "hf", "pkg"), taking("c-files", "file")]
    assert left(*offers, model_spec=FOLDER) == ["c-hub"]
    assert left(*offers, model_spec="file:/a") == ["c-files"]
    assert left(*offers, an_offer("c-any"), model_spec=WEB) == ["c-any"]
    assert left(*offers) == ["c-files", "c-hub"]


def test_main_value_that_is_a_model_spec_decides() -> None:
    """The value of a cap whose main input is a model spec counts as one."""
    offers = [
        reading("c-gguf", "gguf", cap=SPEC_CAP),
        reading("c-folder", "hf-folder", cap=SPEC_CAP),
    ]
    assert left(*offers, cap=SPEC_CAP, value=GGUF) == ["c-gguf"]
    assert left(*offers, cap=SPEC_CAP, value=FOLDER) == ["c-folder"]
    assert left(*offers, cap=SPEC_CAP) == ["c-folder", "c-gguf"]


def test_main_value_that_is_a_path_decides(tmp_path: Path) -> None:
    """A path object is a model spec too."""
    hub, files = taking("c-hub", "hf", cap=SPEC_CAP), taking("c-files", "file", cap=SPEC_CAP)
    assert left(hub, files, cap=SPEC_CAP, value=tmp_path) == ["c-files"]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(GGUF, id="model-spec"),
        pytest.param("no model spec", id="text"),
        pytest.param(["a", "b"], id="list"),
        pytest.param(None, id="nothing"),
    ],
)
def test_other_main_value_does_not_count(value: object) -> None:
    """The value of a cap whose main input is something else is not read, whatever it is."""
    offers = [reading("c-a", "gguf"), reading("c-b", "hf-folder")]
    assert left(*offers, value=value) == ["c-a", "c-b"]


def test_error_malformed_main_value_is_refused() -> None:
    """A main value that should be a model spec and is none is the caller's mistake."""
    with pytest.raises(InvalidArgumentError, match="model spec 'nonsense'"):
        left(an_offer("c", SPEC_CAP), cap=SPEC_CAP, value="nonsense")


def test_default_model_spec_does_not_count() -> None:
    """Only a model spec that was passed leaves a cartridge out; its own default never does."""
    model = fake_arg("model_spec", "string", FOLDER)
    cap = fake_cap("describe", {**model, "metadata": {"pack": True}}, takes=TEXT, gives=TEXT)
    attributes: dict[str, object] = {"caps": [cap], "formats": ["gguf"], "schemes": ["pkg"]}
    document = {**fake_descriptor("c").to_json(), "attributes": attributes}
    offer = Offer(Descriptor.from_json(document), "fake")
    assert left(offer) == ["c"]
    assert left(offer, model_spec=FOLDER) == []


@pytest.mark.parametrize(
    ("abi", "machine"),
    [("arm64", "aarch64"), ("arm64-v8a", "arm64"), ("x86_64", "AMD64"), ("armeabi-v7a", "armv7l")],
)
def test_target_abi_decides(abi: str, machine: str) -> None:
    """A cartridge built for another processor is left out, whatever names are used for it."""
    offers = [
        an_offer("c-this", target={"hardware": "x", "abi": abi}),
        an_offer("c-other", target={"hardware": "x", "abi": "riscv64"}),
    ]
    assert left(*offers, machine=machine) == ["c-this"]
    assert left(*offers, machine="riscv64") == ["c-other"]


def test_any_abi_runs_everywhere() -> None:
    """A cartridge for any processor ties with one for this."""
    offers = [an_offer("c-any"), an_offer("c-this", target={"hardware": "x", "abi": "arm64"})]
    assert left(*offers, machine="arm64") == ["c-any", "c-this"]
    assert left(*offers, machine="x86_64") == ["c-any"]


@pytest.mark.parametrize(
    ("name", "system"),
    [("linux", "linux"), ("macos", "darwin"), ("Windows", "win32"), ("android", "android")],
)
def test_operating_system_decides(name: str, system: str) -> None:
    """A cartridge that needs another operating system is left out."""
    offers = [
        an_offer("c-this", requirements={"os": {"name": name}}),
        an_offer("c-other", requirements={"os": {"name": "plan9"}}),
    ]
    assert left(*offers, system=system) == ["c-this"]
    assert left(*offers, system="plan9") == ["c-other"]


@pytest.mark.parametrize(
    "requirements",
    [
        pytest.param({"memory_mb": 10**12}, id="memory"),
        pytest.param({"driver": {"name": "none-such", "min_version": "99"}}, id="driver"),
        pytest.param({"needs_accelerator": True}, id="accelerator"),
    ],
)
def test_what_only_preflight_can_answer_leaves_nobody_out(
    requirements: dict[str, object],
) -> None:
    """Memory, drivers and accelerators are not looked at."""
    assert left(an_offer("c", requirements=requirements)) == ["c"]


def test_pack_is_left_out_where_a_model_spec_is_given(tmp_path: Path) -> None:
    """A pack is its own model, so a request with a model spec goes to its base."""
    offers = [an_offer("c-base"), a_pack("c-pack", "c-base", tmp_path)]
    assert left(*offers, model_spec=FOLDER) == ["c-base"]
    assert left(*offers) == ["c-pack"]


def test_asked_cartridge_decides() -> None:
    """A cartridge id leaves that cartridge or nothing."""
    offers = [an_offer("c-a"), an_offer("c-b")]
    assert left(*offers, cartridge_id="c-b") == ["c-b"]
    assert left(*offers, cartridge_id="c-c") == []
    assert left(*offers) == ["c-a", "c-b"]


def test_asked_cartridge_comes_before_preference_and_rank() -> None:
    """A cartridge asked for by its id is taken though it is neither preferred nor first."""
    offers = [an_offer("c-a"), an_offer("c-b", execution_mode="eager")]
    assert left(*offers, cartridge_id="c-b", prefer=("c-a",)) == ["c-b"]
    assert left(*offers) == ["c-a"]


@pytest.mark.parametrize("name", ["c-b", "second"])
def test_preference_decides_by_cartridge_or_plugin(name: str) -> None:
    """A preferred cartridge, or one of a preferred plugin, wins."""
    offers = [an_offer("c-a", plugin="first"), an_offer("c-b", plugin="second")]
    assert left(*offers, prefer=(name,)) == ["c-b"]
    assert left(*offers) == ["c-a", "c-b"]


def test_earliest_preference_wins() -> None:
    """Of two preferences that match, the earlier decides."""
    offers = [an_offer("c-a"), an_offer("c-b")]
    assert left(*offers, prefer=("c-b", "c-a")) == ["c-b"]
    assert left(*offers, prefer=("c-a", "c-b")) == ["c-a"]


def test_later_preference_decides_among_what_an_earlier_leaves() -> None:
    """A plugin is preferred, and of its cartridges the one that is named after it."""
    offers = [
        an_offer("c-a", plugin="two"),
        an_offer("c-b", plugin="two"),
        an_offer("d", plugin="one"),
    ]
    assert left(*offers, prefer=("two", "c-b")) == ["c-b"]
    assert left(*offers, prefer=("two",)) == ["c-a", "c-b"]


def test_preference_that_matches_nothing_is_ignored() -> None:
    """A preference for something that does not serve the request decides nothing."""
    offers = [an_offer("c-a"), an_offer("c-b"), an_offer("c-c", "cap:other")]
    assert left(*offers, prefer=("missing", "c-c", "c-b")) == ["c-b"]
    assert left(*offers, prefer=("missing", "c-c")) == ["c-a", "c-b"]


def test_preference_comes_before_the_usual_mode_and_the_tier() -> None:
    """What is preferred is taken though it is eager, and of the less usual mode."""
    offers = [
        an_offer("c-native"),
        an_offer("c-eager", execution_mode="eager"),
        an_offer("c-streaming", mode="streaming"),
    ]
    assert left(*offers, prefer=("c-eager",)) == ["c-eager"]
    assert left(*offers, prefer=("c-streaming",)) == ["c-streaming"]
    assert left(*offers) == ["c-native"]


def test_preference_never_leaves_an_asked_mode_with_nothing() -> None:
    """A preferred cartridge of the other mode gives way to the mode that was asked for."""
    offers = [an_offer("c-batch"), an_offer("c-streaming", mode="streaming")]
    assert left(*offers, prefer=("c-streaming",), mode=IoMode.BATCH) == ["c-batch"]
    assert left(*offers, prefer=("c-streaming",)) == ["c-streaming"]


def test_preference_does_not_bring_back_what_does_not_fit() -> None:
    """A preferred cartridge that cannot read the model stays out."""
    offers = [reading("c-gguf", "gguf"), reading("c-folder", "hf-folder")]
    assert left(*offers, prefer=("c-gguf",), model_spec=FOLDER) == ["c-folder"]


@pytest.mark.parametrize("mode", list(IoMode))
def test_asked_mode_decides(mode: IoMode) -> None:
    """A mode that is asked for is the mode that is given, whatever is usual."""
    offers = [an_offer("c-batch"), an_offer("c-streaming", mode="streaming")]
    for usual in IoMode:
        assert left(*offers, mode=mode, usual_mode=usual) == [f"c-{mode.value}"]


@pytest.mark.parametrize("usual", list(IoMode))
def test_usual_mode_decides_where_none_is_asked_for(usual: IoMode) -> None:
    """Where both modes are left, `stream` takes streaming and everything else batch."""
    offers = [an_offer("c-batch"), an_offer("c-streaming", mode="streaming")]
    assert left(*offers, usual_mode=usual) == [f"c-{usual.value}"]


def test_batch_is_usual() -> None:
    """A request that says nothing of a mode takes batch."""
    assert left(an_offer("c-batch"), an_offer("c-a-streaming", mode="streaming")) == ["c-batch"]


def test_less_usual_mode_is_taken_where_it_is_the_only_one() -> None:
    """The usual mode is a wish, no demand."""
    assert left(an_offer("c", mode="streaming")) == ["c"]
    assert left(an_offer("c"), usual_mode=IoMode.STREAMING) == ["c"]


def test_usual_mode_comes_before_the_tier() -> None:
    """An eager cartridge of the usual mode comes before a native one of the other."""
    offers = [
        an_offer("c-eager", execution_mode="eager"),
        an_offer("c-streaming", mode="streaming"),
    ]
    assert left(*offers) == ["c-eager"]
    assert left(*offers, usual_mode=IoMode.STREAMING) == ["c-streaming"]


def test_native_comes_before_eager() -> None:
    """Of equals, the native cartridge is taken."""
    offers = [an_offer("c-a", execution_mode="eager"), an_offer("c-b")]
    assert left(*offers) == ["c-b"]
    assert left(offers[0]) == ["c-a"]
    assert left(offers[0], an_offer("c-c", execution_mode="eager")) == ["c-a", "c-c"]


def test_tier_comes_before_distance() -> None:
    """A native cartridge is taken though an eager one's cap is nearer."""
    offers = [an_offer("c-near", "cap:x", execution_mode="eager"), an_offer("c-far", "cap:x;y;z")]
    assert left(*offers, cap="cap:x") == ["c-far"]


NEAREST = [
    pytest.param("cap:x", ["cap:x", "cap:x;y"], id="exact-before-refinement"),
    pytest.param("cap:x", ["cap:x;y", "cap:x;y;z"], id="nearer-refinement"),
    pytest.param("cap:x", ["cap:x;y", "cap:x;y=1"], id="bare-tag-before-value"),
    pytest.param(
        'cap:in="media:a;b";x', ['cap:in="media:a;b";x', 'cap:in="media:a";x'], id="exact-input"
    ),
    pytest.param(
        'cap:in="media:a;b";x', ['cap:in="media:a;b";x;y', "cap:x"], id="refinement-first"
    ),
    pytest.param('cap:in="media:a;b";x', ['cap:in="media:a";x', "cap:x"], id="nearer-fallback"),
]


@pytest.mark.parametrize(("asked", "urns"), NEAREST)
def test_nearest_cap_wins(asked: str, urns: Sequence[str]) -> None:
    """The exact cap comes first, then the nearest refinement, then the nearest fallback."""
    near, far = urns
    assert left(an_offer("c-a", far), an_offer("c-b", near), cap=asked) == ["c-b"]
    assert left(an_offer("c-a", near), an_offer("c-b", far), cap=asked) == ["c-a"]
    assert left(an_offer("c-a", near), an_offer("c-b", near), cap=asked) == ["c-a", "c-b"]


def test_nearest_cap_of_one_cartridge_wins() -> None:
    """A cartridge that serves a request with two caps is asked for the nearer one."""
    selection = select(Index([an_offer("c", "cap:x;y", "cap:x")]), asking("cap:x"))
    assert [str(one.cap.urn) for one in selection.left] == ["cap:x"]


def test_pack_comes_before_its_base(tmp_path: Path) -> None:
    """A pack is taken in place of the cartridge that it narrows."""
    assert left(an_offer("c-base"), a_pack("c-pack", "c-base", tmp_path)) == ["c-pack"]


def test_pack_comes_before_no_other_cartridge(tmp_path: Path) -> None:
    """A pack and a cartridge that is not its base stay equal."""
    offers = [an_offer("c-base"), an_offer("c-other"), a_pack("c-pack", "c-base", tmp_path)]
    assert left(*offers) == ["c-other", "c-pack"]


def test_two_packs_of_one_base_stay_equal(tmp_path: Path) -> None:
    """Of two packs none comes first, and their base is no way out."""
    packs = [a_pack(name, "c-base", tmp_path) for name in ("c-pack-1", "c-pack-2")]
    assert left(an_offer("c-base"), *packs) == ["c-pack-1", "c-pack-2"]


def test_base_is_taken_where_it_is_asked_for(tmp_path: Path) -> None:
    """A pack does not hide its base from those who name it."""
    offers = [an_offer("c-base"), a_pack("c-pack", "c-base", tmp_path)]
    assert left(*offers, cartridge_id="c-base") == ["c-base"]
    assert left(*offers, prefer=("c-base",)) == ["c-base"]


@pytest.mark.parametrize(
    ("cap", "reads"),
    [
        pytest.param(SPEC_CAP, True, id="model-spec"),
        pytest.param(CAP, False, id="text"),
        pytest.param("cap:missing", False, id="nobody"),
    ],
)
def test_it_can_be_told_whether_the_value_matters(cap: str, reads: bool) -> None:
    """A value decides only where a cap that serves the request reads it as a model spec."""
    index = Index([an_offer("c", CAP), an_offer("d", SPEC_CAP)])
    assert reads_value(index, asking(cap)) is reads


def test_what_is_dropped_is_kept_with_its_ground() -> None:
    """Every cap that serves is left or dropped on a ground; who came furthest comes first."""
    offers = [
        an_offer("a-id"),
        an_offer("b-mode", "cap:x", mode="streaming"),
        an_offer("c-far", "cap:x;y"),
        an_offer("c-left", "cap:x"),
        an_offer("c-twin", "cap:x", "cap:x;z"),
        reading("d-misfit", "gguf", cap="cap:x"),
    ]
    request = asking("cap:x", mode=IoMode.BATCH, model_spec=FOLDER, prefer=("c-left", "c-far"))
    selection = select(Index(offers), request)
    assert [one.offer.id for one in selection.left] == ["c-left"]
    assert [(one.offered.offer.id, one.ground, one.why) for one in selection.dropped] == [
        ("c-far", Ground.OUTRANKED, "c-left is preferred"),
        ("c-twin", Ground.OUTRANKED, "c-left is preferred"),
        ("c-twin", Ground.OUTRANKED, "c-left is preferred"),
        ("b-mode", Ground.OTHER_MODE, "io.mode batch was asked for"),
        ("d-misfit", Ground.MISFIT, f"it reads gguf, and {FOLDER} is hf-folder"),
    ]
    selection = select(Index(offers), asking("cap:x", cartridge_id="b-mode"))
    assert {one.ground for one in selection.dropped} == {Ground.OTHER_ID}
