"""A request is routed or refused, in words that say why, and no plugin is touched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cartridge_core.descriptor import Descriptor, IoMode
from cartridge_core.discovery import discover
from cartridge_core.errors import AmbiguousRouteError, LoadError, NoRouteError, NoRouteReason
from cartridge_core.modelspec import ModelSpec
from cartridge_core.registry import Registry
from cartridge_core.reports import DiscoveryIssue, Explanation
from cartridge_core.routing import Index, Offer, Request, Route, explain, route
from cartridge_core.testing import fake_cap, fake_descriptor
from cartridge_core.urn import CapUrn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

TEXT = "media:enc=utf-8"
CAP = f'cap:describe;in="{TEXT}";out="{TEXT}"'
GGUF = "hf:owner/repo-GGUF"
FOLDER = "hf:owner/repo"
EMBEDDINGS = 'cap:generate-embeddings;in="media:enc=utf-8";ml-model'


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


def an_issue(distribution: str = "cartridge-broken", *caps: str) -> DiscoveryIssue:
    fix = f"Reinstall {distribution}."
    return DiscoveryIssue(
        distribution, "1.0", what="plugin broken", why="it broke", fix=fix, caps=caps
    )


def asking(cap: str = CAP, *, model_spec: str | None = None, **asked: object) -> Request:
    spec = None if model_spec is None else ModelSpec.parse(model_spec)
    request = Request(cap=CapUrn.parse(cap), model_spec=spec)
    return attrs.evolve(request, **asked)  # type: ignore[arg-type]


def refusal(index: Index, request: Request) -> NoRouteError:
    """Give the error of a request that nothing serves."""
    with pytest.raises(NoRouteError) as caught:
        route(index, request)
    return caught.value


def test_route_says_where_it_goes() -> None:
    """A route has the cap as it is declared, the cartridge, the plugin, the mode, the request."""
    offer = an_offer("fake-both", "cap:other", CAP, plugin="fake")
    found = route(Index([offer]), asking("cap:describe"))
    assert isinstance(found, Route)
    assert (found.cartridge_id, found.plugin, found.mode) == ("fake-both", "fake", IoMode.BATCH)
    assert found.cap is offer.descriptor.caps[1]
    assert found.offer is offer
    assert str(found.request) == "cap:describe"
    assert found.reason == "nothing else serves the request"
    assert repr(found) == f"<Route fake-both (batch) {found.cap.urn}: {found.reason}>"


def test_error_tie_names_the_cartridges_and_what_decides() -> None:
    """Equals are never decided by chance: the error names them and says how to choose."""
    eager = an_offer("c-c", execution_mode="eager")
    with pytest.raises(AmbiguousRouteError) as caught:
        route(Index([an_offer("c-b"), an_offer("c-a"), eager]), asking())
    assert caught.value.cartridge_ids == ("c-a", "c-b")
    assert str(caught.value) == (
        f"{CAP} is ambiguous: c-a and c-b serve it equally well. "
        "Pass cartridge_id='c-a' or prefer=['c-a'] for one of them."
    )
    assert caught.value.explanation is not None
    assert caught.value.explanation.chosen is None


def test_error_tie_that_a_model_spec_would_decide_says_so() -> None:
    """Where equals read different formats, the text says that a model spec decides."""
    with pytest.raises(AmbiguousRouteError, match="or the model_spec, as they read different"):
        route(Index([reading("c-a", "gguf"), reading("c-b", "hf-folder")]), asking())


def test_error_tie_within_a_cartridge_names_its_caps() -> None:
    """Where one cartridge has two equally near caps, the text says which to ask for."""
    with pytest.raises(AmbiguousRouteError, match="ask for cap:x;y or cap:x;z") as caught:
        route(Index([an_offer("c", "cap:x;y", "cap:x;z")]), asking("cap:x"))
    assert caught.value.cartridge_ids == ("c",)


def test_error_nothing_offers_it() -> None:
    """A request for something nobody here has heard of says how to see what there is."""
    error = refusal(Index([an_offer("c")]), asking("cap:make-coffee"))
    assert error.reason is NoRouteReason.NOT_OFFERED
    assert str(error) == (
        "No installed cartridge offers cap:make-coffee. `cartridge caps` lists what is offered."
    )


def test_error_nothing_offers_it_and_a_known_plugin_would() -> None:
    """Where one of the project's own plugins would serve, the text says what to type."""
    error = refusal(Index(), asking(EMBEDDINGS))
    assert error.reason is NoRouteReason.NOT_OFFERED
    assert str(error) == (
        f"No installed cartridge offers {EMBEDDINGS}. "
        "Type `pip install cartridge-gguf` or `pip install cartridge-torch`."
    )


def test_error_it_is_offered_in_the_other_mode() -> None:
    """Where only the other mode is offered, the text names who offers it and how to ask."""
    offers = [an_offer(name, mode="streaming") for name in ("c-s", "c-t")]
    error = refusal(Index(offers), asking(mode=IoMode.BATCH))
    assert error.reason is NoRouteReason.OTHER_MODE
    assert str(error) == (
        f"No cartridge offers {CAP} with io.mode batch; c-s and c-t offer it with streaming. "
        "Ask for mode='streaming', or for no mode."
    )


def test_error_other_mode_tells_why_those_of_the_asked_mode_do_not_fit() -> None:
    """A cartridge of the asked mode that does not fit is not passed over in silence."""
    index = Index([an_offer("c-s", mode="streaming"), reading("c-b", "gguf")])
    error = refusal(index, asking(mode=IoMode.BATCH, model_spec=FOLDER))
    assert error.reason is NoRouteReason.OTHER_MODE
    assert str(error).startswith(
        "No cartridge that fits this request "
        f"(c-b: it reads gguf, and {FOLDER} is hf-folder) offers {CAP} with io.mode batch; "
        "c-s offers it with streaming."
    )


def test_error_a_broken_plugin_offers_it() -> None:
    """Where a plugin that would serve is broken, its issue is told, whole."""
    issue = an_issue("cartridge-broken", "cap:other", CAP)
    error = refusal(Index([an_offer("c", "cap:x")], [issue]), asking("cap:describe"))
    assert error.reason is NoRouteReason.DISCOVERY_ISSUE
    assert str(error) == (
        "What offers cap:describe is installed, and cannot be used. "
        "cartridge-broken 1.0: plugin broken: it broke. Reinstall cartridge-broken."
    )


def test_error_a_known_plugin_is_broken_beyond_reading() -> None:
    """One of the project's own plugins is recognised by its name, and not told to be missing."""
    error = refusal(Index(issues=[an_issue("cartridge-torch")]), asking(EMBEDDINGS))
    assert error.reason is NoRouteReason.DISCOVERY_ISSUE
    assert "Reinstall cartridge-torch." in str(error)
    assert "pip install" not in str(error)


@pytest.mark.parametrize(
    "caps",
    [
        pytest.param((), id="no-caps"),
        pytest.param(("cap:other",), id="other-cap"),
        pytest.param(("no cap at all",), id="unreadable-cap"),
    ],
)
def test_error_an_unrelated_issue_is_not_blamed(caps: tuple[str, ...]) -> None:
    """An issue of something that would not serve the request is not mentioned."""
    error = refusal(Index(issues=[an_issue("cartridge-broken", *caps)]), asking("cap:describe"))
    assert error.reason is NoRouteReason.NOT_OFFERED
    assert "broken" not in str(error)


def test_broken_plugin_does_not_matter_where_another_serves() -> None:
    """A request that can be served is served, whatever else is broken."""
    index = Index([an_offer("c")], [an_issue("cartridge-broken", CAP)])
    assert route(index, asking()).cartridge_id == "c"


def test_error_other_mode_and_broken_plugin_are_both_told() -> None:
    """A broken plugin is named though the other mode is the first reason."""
    index = Index([an_offer("c-s", mode="streaming")], [an_issue("cartridge-broken", CAP)])
    error = refusal(index, asking(mode=IoMode.BATCH))
    assert error.reason is NoRouteReason.OTHER_MODE
    assert "c-s offers it with streaming" in str(error)
    assert "Reinstall cartridge-broken." in str(error)


def test_error_misfit_and_broken_plugin_are_both_told() -> None:
    """Where one plugin is broken and another does not fit, both are named."""
    index = Index([reading("c-b", "gguf")], [an_issue("cartridge-broken", CAP)])
    error = refusal(index, asking(model_spec=FOLDER))
    assert error.reason is NoRouteReason.DISCOVERY_ISSUE
    assert f"The rest does not fit this request: c-b: it reads gguf, and {FOLDER}" in str(error)
    assert "Reinstall cartridge-broken." in str(error)


def test_error_what_offers_it_does_not_fit(tmp_path: Path) -> None:
    """Where all are ruled out, the text says each reason once, with those it is about."""
    offers = [
        reading("c-a", "gguf"),
        reading("c-b", "gguf"),
        taking("c-c", "pkg", "file"),
        a_pack("c-d", "c-a", tmp_path),
        an_offer("c-e", target={"hardware": "x", "abi": "sparc"}),
        an_offer("c-f", requirements={"os": {"name": "beos"}}),
    ]
    index = Index(offers, system="linux", machine="x86_64")
    error = refusal(index, asking(model_spec=FOLDER))
    assert error.reason is NoRouteReason.EXCLUDED
    assert str(error) == (
        f"{CAP} is offered, but not for this request: "
        f"c-a, c-b: it reads gguf, and {FOLDER} is hf-folder; "
        f"c-c: it takes pkg and file, and {FOLDER} is hf; "
        f"c-d: it is a pack, its own model, and {FOLDER} was asked for; "
        "c-e: it is built for sparc, and this machine is x86_64; "
        "c-f: it needs beos, and this system is linux."
    )


def test_error_asked_cartridge_does_not_offer_it() -> None:
    """A cartridge id that does not serve the request is told beside those that do."""
    error = refusal(Index([an_offer("c-a"), an_offer("c-b")]), asking(cartridge_id="c-c"))
    assert error.reason is NoRouteReason.EXCLUDED
    assert str(error).endswith("not for this request: c-a, c-b: cartridge_id c-c was asked for.")


def test_error_carries_the_explanation() -> None:
    """The error's text is its explanation's summary."""
    error = refusal(Index([an_offer("c", "cap:target;x")]), asking("cap:target=a;x"))
    assert isinstance(error.explanation, Explanation)
    assert error.explanation.summary == str(error)
    assert [row.cartridge_id for row in error.explanation.candidates] == ["c"]


def test_explanation_lists_every_candidate_with_its_reason(tmp_path: Path) -> None:
    """Chosen first, then who came furthest, then who only might; each says why."""
    offers = [
        an_offer("a-other", "cap:unrelated"),
        an_offer("a-possible", f'cap:describe;in="{TEXT};markdown";out="{TEXT}"'),
        reading("b-misfit", "hf-folder"),
        an_offer("c-streaming", mode="streaming"),
        an_offer("d-eager", execution_mode="eager"),
        an_offer("e-far", f'cap:describe;in="{TEXT}";out="{TEXT}";quickly'),
        an_offer("f-chosen"),
    ]
    request = asking(mode=IoMode.BATCH, model_spec=GGUF)
    native = "a native cartridge comes before an eager one"
    nearest = "the cap nearest to the request wins"
    explanation = explain(Index(offers), request)
    assert [(row.cartridge_id, row.grade, row.reason) for row in explanation.candidates] == [
        (
            "f-chosen",
            "exact",
            f"io.mode batch was asked for; {native}; {nearest}",
        ),
        ("e-far", "exact", nearest),
        ("d-eager", "exact", native),
        ("c-streaming", "exact", "io.mode batch was asked for"),
        ("b-misfit", "exact", f"it reads hf-folder, and {GGUF} is gguf"),
        (
            "a-possible",
            "possible",
            "it only might serve the request, and nothing is routed on that",
        ),
    ]
    assert [row.chosen for row in explanation.candidates] == [True] + 5 * [False]
    assert explanation.chosen is explanation.candidates[0]
    assert (explanation.request, explanation.mode) == (str(request.cap), "batch")
    assert explanation.summary == f"{CAP} goes to f-chosen."


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        pytest.param([], "nothing else serves the request", id="alone"),
        pytest.param(["gguf"], "nothing else that serves the request fits", id="misfits"),
    ],
)
def test_route_without_a_rule_says_that_nothing_else_will_do(
    others: list[str], reason: str
) -> None:
    """A route says so where there was nothing to decide."""
    offers = [reading("c", "hf-folder"), *(reading(f"d-{name}", name) for name in others)]
    assert route(Index(offers), asking(model_spec=FOLDER)).reason == reason


def test_explanation_gives_what_route_gives() -> None:
    """The reason of the chosen row is the route's."""
    index, request = Index([an_offer("c"), an_offer("d", mode="streaming")]), asking()
    row = explain(index, request).chosen
    found = route(index, request)
    assert row is not None
    assert (row.cartridge_id, row.plugin, row.mode) == (found.cartridge_id, found.plugin, "batch")
    assert (row.cap, row.reason) == (str(found.cap.urn), found.reason)


def test_explanation_of_a_tie_marks_nobody() -> None:
    """Equals that are left come first, and none of them is chosen."""
    offers = [an_offer("a-eager", execution_mode="eager"), an_offer("c-b"), an_offer("c-a")]
    explanation = explain(Index(offers), asking())
    ids = [row.cartridge_id for row in explanation.candidates]
    assert ids == ["c-a", "c-b", "a-eager"]
    assert explanation.chosen is None
    assert {row.reason for row in explanation.candidates[:2]} == {
        "nothing decides between it and the others left"
    }


def test_explanation_of_a_refusal_has_the_errors_text() -> None:
    """Where `route` raises, `explain` says the same."""
    index, request = Index([an_offer("c", mode="streaming")]), asking(mode=IoMode.BATCH)
    assert explain(index, request).summary == str(refusal(index, request))


def test_explanation_as_text_has_a_line_for_each_candidate() -> None:
    """Printed, an explanation is the summary and a line for each candidate."""
    text = str(explain(Index([an_offer("c"), an_offer("d", mode="streaming")]), asking()))
    assert text.splitlines() == [
        f"{CAP} goes to c.",
        f"-> c (batch) {CAP}: io.mode batch is usual here",
        f"   d (streaming) {CAP}: io.mode batch is usual here",
    ]


MANY = (
    an_offer("a-native"),
    an_offer("a-near", f'cap:describe;in="{TEXT}";out="{TEXT}";quickly', plugin="other"),
    an_offer("b-eager", execution_mode="eager"),
    an_offer("c-streaming", mode="streaming", plugin="other"),
    an_offer("c-twin", mode="streaming", plugin="other"),
    reading("d-gguf", "gguf"),
    an_offer("e-possible", f'cap:describe;in="{TEXT};markdown";out="{TEXT}"'),
)
REQUESTS = (
    asking(),
    asking("cap:describe;quickly"),
    asking(mode=IoMode.STREAMING),
    asking(model_spec=FOLDER),
    asking(prefer=("other",)),
    asking(cartridge_id="missing"),
    asking("cap:missing"),
)


def outcome(index: Index, request: Request) -> str:
    try:
        return str(route(index, request))
    except (AmbiguousRouteError, NoRouteError) as exc:
        return f"{exc}\n{exc.explanation}"


EXPECTED = tuple(outcome(Index(MANY), request) for request in REQUESTS)


@given(st.permutations(MANY))
def test_order_of_installation_decides_nothing(offers: list[Offer]) -> None:
    """Every outcome, its text and its explanation are the same in whatever order offers come."""
    index = Index(offers)
    assert tuple(outcome(index, request) for request in REQUESTS) == EXPECTED


def install(folder: Path, *offers: Offer) -> None:
    """Install plugins that end the process when they are imported."""
    for offer in offers:
        name = f"cartridge_{offer.plugin}"
        descriptors, info = folder / name / "descriptors", folder / f"{name}-1.0.dist-info"
        descriptors.mkdir(parents=True, exist_ok=True)
        info.mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text("raise SystemExit('it was imported')")
        (folder / name / "plugin.py").touch()
        (descriptors / f"{offer.id}.json").write_text(json.dumps(offer.descriptor.to_json()))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        entry = f"[cartridge_core.plugins]\n{offer.plugin} = {name}.plugin\n"
        (info / "entry_points.txt").write_text(entry)


def a_registry(folder: Path, *offers: Offer, prefer: Iterable[str] = ()) -> Registry:
    """Give a registry of these plugins, installed in a folder."""
    install(folder, *offers)
    return Registry(discover(path=[str(folder)]), prefer=prefer)


def test_routing_imports_no_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry routes and explains over plugins that cannot even be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    other = an_offer("other-a", mode="streaming", plugin="other")
    with a_registry(tmp_path, an_offer("fake-a"), other) as registry:
        assert registry.route(CAP).cartridge_id == "fake-a"
        assert registry.route(CAP, "streaming").cartridge_id == "other-a"
        assert len(registry.explain(CAP).candidates) == 2
        with pytest.raises(NoRouteError):
            registry.route("cap:missing")
        assert registry.issues == ()


def test_call_prefers_before_the_registry_does(tmp_path: Path) -> None:
    """The registry's preferences decide where the call's do not."""
    offers = [an_offer("fake-a"), an_offer("fake-b")]
    with a_registry(tmp_path, *offers, prefer=("fake-b", "fake-a")) as registry:
        assert registry.route(CAP).cartridge_id == "fake-b"
        assert registry.route(CAP, prefer=["fake-a"]).cartridge_id == "fake-a"
        assert registry.route(CAP, prefer=["missing"]).cartridge_id == "fake-b"


def test_environment_prefers_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``CARTRIDGE_PREFER`` names decides where the registry's preferences do not."""
    install(tmp_path, an_offer("fake-a"), an_offer("fake-b"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CARTRIDGE_PLUGINS", "fake")
    monkeypatch.setenv("CARTRIDGE_PREFER", "missing, fake-b,fake-a")
    with Registry.discover() as registry:
        assert registry.route(CAP).cartridge_id == "fake-b"
        assert registry.route(CAP, prefer=["fake-a"]).cartridge_id == "fake-a"
    with Registry.discover(prefer=["fake-a"]) as registry:
        assert registry.route(CAP).cartridge_id == "fake-a"


def test_registry_remembers_routes(tmp_path: Path) -> None:
    """A request that was routed before gives the very same route."""
    with a_registry(tmp_path, an_offer("fake-a")) as registry:
        assert registry.route(CAP) is registry.route(CAP)


def test_registry_keeps_requests_apart(tmp_path: Path) -> None:
    """What is remembered for one request is not given for another."""
    offers = [
        reading("fake-folder", "hf-folder"),
        reading("fake-gguf", "gguf"),
        an_offer("fake-streaming", mode="streaming"),
    ]
    with a_registry(tmp_path, *offers) as registry:
        for _ in range(2):
            assert registry.route(CAP, model_spec=GGUF).cartridge_id == "fake-gguf"
            assert registry.route(CAP, model_spec=FOLDER).cartridge_id == "fake-folder"
            assert registry.route(CAP, cartridge_id="fake-gguf").cartridge_id == "fake-gguf"
            assert registry.route(CAP, prefer=["fake-folder"]).cartridge_id == "fake-folder"
            assert registry.route(CAP, "streaming").cartridge_id == "fake-streaming"


def test_registry_looks_at_a_local_model_each_time(tmp_path: Path) -> None:
    """A route that the files of a folder decided is not remembered."""
    model = tmp_path / "model"
    model.mkdir()
    offers = [reading("fake-gguf", "gguf"), reading("fake-folder", "hf-folder")]
    with a_registry(tmp_path / "site", *offers) as registry:
        (model / "config.json").touch()
        assert registry.route(CAP, model_spec=model).cartridge_id == "fake-folder"
        assert registry.route(CAP, model_spec=str(model)).cartridge_id == "fake-folder"
        (model / "config.json").rename(model / "model.gguf")
        assert registry.route(CAP, model_spec=model).cartridge_id == "fake-gguf"
        assert registry.route(CAP, model_spec=str(model)).cartridge_id == "fake-gguf"


def test_plugin_that_fails_takes_its_routes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a plugin could not be imported, its routes are forgotten and its issue is told."""
    monkeypatch.syspath_prepend(tmp_path)
    other = an_offer("other-a", "cap:x", plugin="other")
    with a_registry(tmp_path, an_offer("fake-a"), other) as registry:
        assert registry.route(CAP).cartridge_id == "fake-a"
        assert registry.route("cap:x").cartridge_id == "other-a"
        with pytest.raises(LoadError, match="it was imported"):
            registry.preflight("fake-a")
        with pytest.raises(NoRouteError, match="it was imported") as caught:
            registry.route(CAP)
        assert caught.value.reason is NoRouteReason.DISCOVERY_ISSUE
        assert registry.route("cap:x").cartridge_id == "other-a"
