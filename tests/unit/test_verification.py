"""Golden vectors: what passes, what fails, what is skipped, and how far an output is off."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cartridge_core
from cartridge_core.__main__ import main
from cartridge_core.distances import MismatchError, distance, word_error_rate
from cartridge_core.errors import (
    BackendError,
    CancelledError,
    InvalidArgumentError,
    LoadError,
    VerificationError,
)
from cartridge_core.golden import read_vectors
from cartridge_core.hookspecs import hookimpl
from cartridge_core.packmaking import PackFacts, make_pack
from cartridge_core.reports import Check, PreflightReport
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor
from cartridge_core.testing.fakes import BatchEcho, FakeSession, StreamingEcho
from cartridge_core.testing.registries import registry_of
from cartridge_core.verification import Verdict, VerificationReport, check, record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

np = pytest.importorskip("numpy")

MODEL = {
    "name": "model_spec",
    "media_urn": "media:enc=utf-8;model-spec",
    "required": False,
    "sources": [{"cli_flag": "--model-spec"}],
    "metadata": {"pack": True},
}
UPPER = fake_arg("upper", "boolean", default=False)


class Scripted(BatchEcho):
    """Gives for a text what the script says, or raises it."""

    plugin_name = "scripted"
    descriptor = fake_descriptor(
        "scripted-text", caps=[fake_cap("say", MODEL, UPPER), fake_cap("see", takes="media:image")]
    )

    def __init__(self, script: Mapping[str, object], *checks: Check) -> None:
        super().__init__()
        self.script = script
        self.checks = checks
        self.inputs: list[object] = []

    @hookimpl
    def cartridge_preflight(
        self, cartridge_id: str, pack: object, options: object
    ) -> PreflightReport:
        return PreflightReport(self.checks)

    @hookimpl
    def cartridge_infer(self, session: FakeSession, value: object) -> Result:
        self.inputs.append(value)
        given = self.script.get(str(value), value)
        if isinstance(given, BaseException):
            raise given
        return Result(ResultKind.FINAL, session.echo(given) if isinstance(given, str) else given)


class Hearing(StreamingEcho):
    """Gives a FINAL text for each full stop; nothing for silence."""

    plugin_name = "hearing"
    descriptor = fake_descriptor(
        "hearing-text", "streaming", [fake_cap("hear", MODEL, streaming=True)], partial="replace"
    )

    def step(self, session: FakeSession, chunk: object) -> Result:
        pieces = [piece.strip() for piece in str(chunk).split(".") if piece.strip()]
        session.chunks += pieces[1:]
        kind = ResultKind.FINAL if pieces else ResultKind.PARTIAL
        return Result(kind, pieces[0] if pieces else "")

    def commit(self, session: FakeSession) -> Result:
        return Result(ResultKind.FINAL, None)


def vector(**fields: object) -> dict[str, object]:
    return {"id": "v", "input": "tea", "compare": "exact", "expected": "tea", **fields}


class Bench:
    """Makes packs with golden vectors and checks them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pack = folder / "pack"
        self.files: dict[str, bytes] = {}
        (folder / "model.bin").write_bytes(b"x")

    def make(self, plugin: BatchEcho | StreamingEcho, *vectors: Mapping[str, object]) -> None:
        golden = json.dumps({"schema_version": "1", "vectors": vectors}).encode()
        facts = PackFacts(id="tuned", version="1.0.0", license="MIT")
        files = {**self.files, "golden.json": golden}
        make_pack(self.folder / "model.bin", self.pack, plugin.descriptor, facts, files)

    def check(
        self, plugin: BatchEcho | StreamingEcho, *vectors: Mapping[str, object], as_id: str = ""
    ) -> VerificationReport:
        self.make(plugin, *vectors)
        with registry_of(plugin) as registry:
            return check(registry, as_id or plugin.descriptor.id, self.pack)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A folder of its own."""
    monkeypatch.setenv("CARTRIDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("CARTRIDGE_TRUST", raising=False)
    return Bench(tmp_path)


VECTOR = [0.6, 0.8]
VERDICTS = [
    pytest.param("exact", 0, "tea", "tea", "PASSED", 0.0, id="exact-text"),
    pytest.param("exact", 0, "tea", "Tea", "FAILED", 1.0, id="exact-other-text"),
    pytest.param("exact", 0, {"a": [1, None]}, {"a": [1.0, None]}, "PASSED", 0.0, id="exact-json"),
    pytest.param("exact", 0, [1], [True], "FAILED", 1.0, id="exact-bool-is-no-number"),
    pytest.param("exact", 0, {"a": 1}, {"a": 1, "b": 2}, "FAILED", 1.0, id="exact-more-fields"),
    pytest.param("max-abs", 1e-3, [1, 2], [1, 2.0005], "PASSED", 5e-4, id="max-abs"),
    pytest.param("max-abs", 1e-3, [1, 2], [1.002, 2], "FAILED", 2e-3, id="max-abs-beyond"),
    pytest.param("max-abs", 0, [[1]], [[1]], "PASSED", 0.0, id="max-abs-none-allowed"),
    pytest.param("max-abs", 1, [1, 2], [1, 2, 3], "FAILED", None, id="max-abs-other-shape"),
    pytest.param("max-abs", 1, [[1, 2]], [1, 2], "FAILED", None, id="max-abs-other-rank"),
    pytest.param("max-abs", 1, [1], [math.nan], "FAILED", None, id="max-abs-nan"),
    pytest.param("max-abs", 1, [1], [math.inf], "FAILED", None, id="max-abs-infinite"),
    pytest.param("max-abs", 1, [], [], "FAILED", None, id="max-abs-nothing-expected"),
    pytest.param("max-abs", 1, [1], "one", "FAILED", None, id="max-abs-text"),
    pytest.param("max-abs", 1, [[1, 2]], [[1], [1, 2]], "FAILED", None, id="max-abs-ragged"),
    pytest.param("cosine", 1e-3, VECTOR, [1.2, 1.6], "PASSED", 0.0, id="cosine-longer"),
    pytest.param("cosine", 1e-3, [VECTOR] * 2, [VECTOR, [0.8, 0.6]], "FAILED", 0.04, id="a-row"),
    pytest.param("cosine", 2, VECTOR, [-0.6, -0.8], "PASSED", 2.0, id="cosine-opposite"),
    pytest.param("cosine", 2, VECTOR, [0, 0], "FAILED", None, id="cosine-no-length"),
    pytest.param("cosine", 2, VECTOR, [0.6], "FAILED", None, id="cosine-other-shape"),
    pytest.param("wer", 0.25, "a b c d", "A, b c x!", "PASSED", 0.25, id="wer"),
    pytest.param("wer", 0.2, "a b c d", "a b c x", "FAILED", 0.25, id="wer-beyond"),
    pytest.param("wer", 9, "a", ["a"], "FAILED", None, id="wer-no-text"),
    pytest.param("exact", 0, "tea", None, "SKIPPED", None, id="no-output"),
    pytest.param("cosine", 2, VECTOR, None, "SKIPPED", None, id="no-vector"),
    pytest.param("exact", 0, None, None, "SKIPPED", None, id="nothing-expected-nothing-given"),
]


@pytest.mark.parametrize(("compare", "tolerance", "expected", "given_", "verdict", "far"), VERDICTS)
def test_verdict(
    bench: Bench,
    compare: str,
    tolerance: float,
    expected: object,
    given_: object,
    verdict: str,
    far: float | None,
) -> None:
    """Near enough passes, too far or another form fails, and nothing to compare is skipped."""
    entry = vector(compare=compare, tolerance=tolerance, expected=expected)
    report = bench.check(Scripted({"tea": given_}), entry)
    (found,) = report.vectors
    assert found.verdict == report.verdict == verdict
    assert found.distance == (None if far is None else pytest.approx(far, abs=1e-9))
    assert found.detail or far is not None


def test_arrays_are_compared_as_they_come(bench: Bench) -> None:
    """A cartridge gives float32 arrays; files beside the vectors hold arrays too."""
    np.save(bench.folder / "x.npy", np.array([VECTOR], dtype=np.float32))
    bench.files["x.npy"] = (bench.folder / "x.npy").read_bytes()
    entry = vector(compare="max-abs", tolerance=1e-6, field="vectors")
    del entry["expected"]
    given_ = {"vectors": np.array([VECTOR], dtype=np.float32)}
    report = bench.check(Scripted({"tea": given_}), {**entry, "expected_file": "x.npy"})
    assert report.verdict is Verdict.PASSED


def test_a_medium_is_given_as_its_path(bench: Bench) -> None:
    """An image or a sound lies beside the vectors, and the manifest lists it."""
    bench.files["cat.png"] = b"picture"
    plugin = Scripted({})
    entry = vector(cap="cap:see", input_file="cat.png", expected=1)
    del entry["input"]
    bench.check(plugin, entry)
    assert plugin.inputs == [str(bench.pack / "artifacts/other/golden/cat.png")]


def test_parameters_are_the_session_s(bench: Bench) -> None:
    """A vector says what else it was made with."""
    entry = vector(parameters={"upper": True}, expected="TEA")
    assert bench.check(Scripted({}), entry).verdict is Verdict.PASSED


@pytest.mark.parametrize(
    ("heard", "said"), [("a cup. of tea.", "a cup of tea"), ("tea", "tea")], ids=["two", "one"]
)
def test_segments_of_a_stream_are_one_text(bench: Bench, heard: str, said: str) -> None:
    """A streaming cartridge commits segments; together they are what was said."""
    entry = vector(input=heard, compare="wer", tolerance=0, expected=said)
    assert bench.check(Hearing(), entry).verdict is Verdict.PASSED


def test_a_stream_without_a_final_is_skipped(bench: Bench) -> None:
    """PARTIAL results are no output."""
    entry = vector(input=".", compare="wer", tolerance=9)
    assert bench.check(Hearing(), entry).verdict is Verdict.SKIPPED


def test_error_of_a_cartridge_fails_its_vector_alone(bench: Bench) -> None:
    """The others are still run, and the report says what was raised."""
    plugin = Scripted({"tea": BackendError("out of tea"), "milk": "milk"})
    report = bench.check(plugin, vector(), vector(id="w", input="milk", expected="milk"))
    assert [one.verdict for one in report.vectors] == [Verdict.FAILED, Verdict.PASSED]
    assert report.vectors[0].detail == "BackendError: out of tea"
    assert report.verdict is Verdict.FAILED


def test_error_of_an_input_that_is_refused(bench: Bench) -> None:
    """What the cap does not take fails by name."""
    report = bench.check(Scripted({}), vector(input=5), vector(id="w", cap="cap:other"))
    assert [one.verdict for one in report.vectors] == [Verdict.FAILED] * 2
    assert "InvalidArgumentError" in report.vectors[0].detail
    assert "UnsupportedError" in report.vectors[1].detail


def test_cancelling_ends_the_check(bench: Bench) -> None:
    """Who cancels wants no verdict."""
    with pytest.raises(CancelledError):
        bench.check(Scripted({"tea": CancelledError("stop")}), vector())


def test_a_machine_that_lacks_something_skips_all(bench: Bench) -> None:
    """Nothing was run, so nothing passed; the report says what is missing."""
    lacking = Check("device", ok=False, required="an NPU", fix="buy one")
    report = bench.check(Scripted({}, lacking), vector(), vector(id="w"))
    assert report.verdict is Verdict.SKIPPED
    assert all("needs an NPU" in one.detail for one in report.vectors)


def test_missing_field_names_those_that_are_there(bench: Bench) -> None:
    """An output of another form is no match."""
    report = bench.check(Scripted({"tea": {"text": "tea"}}), vector(field="vectors"))
    assert report.vectors[0].verdict is Verdict.FAILED
    assert "its fields are text" in report.vectors[0].detail


def test_a_field_that_is_null_is_no_output(bench: Bench) -> None:
    """Nothing was observed there."""
    report = bench.check(Scripted({"tea": {"text": None}}), vector(field="text"))
    assert report.verdict is Verdict.SKIPPED


@pytest.mark.parametrize("as_id", ["tuned", "scripted-text"])
@pytest.mark.parametrize("discovered", [True, False])
def test_pack_and_base_are_both_its_name(bench: Bench, as_id: str, discovered: bool) -> None:
    """The id is the pack's own, or the base's; whether or not the pack was discovered."""
    plugin = Scripted({})
    bench.make(plugin, vector())
    with registry_of(plugin, packs=[bench.pack] if discovered else []) as registry:
        report = check(registry, as_id, bench.pack)
    assert (report.cartridge_id, report.verdict) == (as_id, Verdict.PASSED)


def test_error_check_of_another_cartridge(bench: Bench) -> None:
    """A pack is for one cartridge."""
    with pytest.raises(InvalidArgumentError, match="is tuned, and narrows scripted-text; other"):
        bench.check(Scripted({}), vector(), as_id="other")


def test_error_check_of_a_pack_that_was_changed(bench: Bench) -> None:
    """The bytes are verified before anything is run: golden vectors are bytes too."""
    plugin = Scripted({"tea": "beer"})
    bench.make(plugin, vector())
    golden = bench.pack / "artifacts/other/golden/golden.json"
    golden.write_text(golden.read_text().replace('"expected": "tea"', '"expected":"beer"'))
    with registry_of(plugin) as registry:
        with pytest.raises(VerificationError, match=r"golden\.json"):
            check(registry, "tuned", bench.pack)
    assert plugin.inputs == []


def test_error_pack_without_golden_vectors(bench: Bench) -> None:
    """There is nothing to check, and that is no pass."""
    facts = PackFacts(id="tuned", version="1.0.0", license="MIT")
    make_pack(bench.folder / "model.bin", bench.pack, Scripted.descriptor, facts)
    with registry_of(Scripted({})) as registry:
        with pytest.raises(LoadError, match="it has no golden vectors"):
            check(registry, "tuned", bench.pack)


MALFORMED = [
    pytest.param({"vectors": []}, "must hold at least one", id="none"),
    pytest.param({"vectors": [vector(), vector()]}, r"\[1\]\.id: stands here twice", id="twice"),
    pytest.param({"vectors": [vector(compare="near")]}, "compare: must be", id="measure"),
    pytest.param({"vectors": [vector(compare="wer")]}, "tolerance: is missing", id="no-tolerance"),
    pytest.param(
        {"vectors": [vector(compare="wer", tolerance=-1)]}, "a number from 0", id="negative"
    ),
    pytest.param(
        {"vectors": [vector(compare="wer", tolerance=10**400)]}, "a number from 0", id="huge"
    ),
    pytest.param({"vectors": [vector(expect=1)]}, "expect: is no key here", id="other-key"),
    pytest.param({"vectors": [vector(input_file="x")]}, "one of them is meant", id="two-inputs"),
    pytest.param({"vectors": [vector(parameters=[])]}, "must be an object", id="parameters"),
    pytest.param({"schema_version": "2", "vectors": [vector()]}, 'must be "1"', id="schema"),
    *(
        pytest.param(
            {"vectors": [{"id": "v", "compare": "exact", "input_file": name}]},
            "is no file beside this one",
            id=f"file-{number}",
        )
        for number, name in enumerate(["../x", "/etc/passwd", "sub/x", "x\0", ".", "golden"])
    ),
]


@pytest.mark.parametrize(("fields", "words"), MALFORMED)
def test_error_malformed_vectors(fields: Mapping[str, object], words: str) -> None:
    """Every field has a rule; a file is one that lies beside and is listed."""
    data = json.dumps({"schema_version": "1", **fields}).encode()
    with pytest.raises(InvalidArgumentError, match=words):
        read_vectors(data, {})


def test_error_array_with_code_in_it(bench: Bench) -> None:
    """A pickled array could run code when it is read; it is not read."""
    np.save(bench.folder / "x.npy", np.array([print], dtype=object), allow_pickle=True)
    bench.files["x.npy"] = (bench.folder / "x.npy").read_bytes()
    entry = vector(compare="max-abs", tolerance=1)
    del entry["expected"]
    report = bench.check(Scripted({}), {**entry, "expected_file": "x.npy"})
    assert report.vectors[0].verdict is Verdict.FAILED
    assert "cannot be read as an array" in report.vectors[0].detail


def test_recording_fills_in_what_is_missing(bench: Bench) -> None:
    """What stands there stays; what does not is what comes out now, also of an array."""
    entry = {"id": "v", "input": "tea", "compare": "max-abs", "tolerance": 0.1, "field": "vectors"}
    golden = {"schema_version": "1", "vectors": [entry, vector(id="w", expected="kept")]}
    plugin = Scripted({"tea": {"vectors": np.array([VECTOR])}})
    with registry_of(plugin) as registry:
        model = bench.folder / "model.bin"
        data = record(registry, "scripted-text", model, json.dumps(golden).encode(), {})
    assert [one["expected"] for one in json.loads(data)["vectors"]] == [[VECTOR], "kept"]


@pytest.mark.parametrize(
    ("given_", "words"), [(None, "gave no output"), ("tea", "has no field")], ids=["none", "field"]
)
def test_error_recording_nothing(bench: Bench, given_: object, words: str) -> None:
    """A vector without an output would be skipped for ever."""
    entry = {"id": "v", "input": "tea", "compare": "exact", "field": "text"}
    golden = json.dumps({"schema_version": "1", "vectors": [entry]}).encode()
    with registry_of(Scripted({"tea": given_})) as registry:
        with pytest.raises(InvalidArgumentError, match=words):
            record(registry, "scripted-text", bench.folder / "model.bin", golden, {})


def run(plugin: BatchEcho, *words: object) -> int:
    return main([str(word) for word in words], partial(registry_of, plugin))


def test_command_line_records_and_checks(bench: Bench, capfd) -> None:
    """``pack new --golden`` records, ``check`` prints a table and ends with the verdict."""
    entry = {"id": "tea", "input": "tea", "compare": "wer", "tolerance": 0.1}
    golden = bench.folder / "vectors.json"
    golden.write_text(json.dumps({"schema_version": "1", "vectors": [entry]}))
    facts = ["--base", "scripted-text", "--id", "tuned", "--license", "MIT", "--golden", golden]
    made = run(Scripted({}), "pack", "new", bench.folder / "model.bin", bench.pack, *facts)
    assert made == 0
    capfd.readouterr()
    assert run(Scripted({}), "check", "tuned", "--pack", bench.pack) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == ["VERDICT", "VECTOR", "COMPARE", "DISTANCE", "TOLERANCE"]
    assert lines[1].split() == ["PASSED", "tea", "wer", "0", "0.1"]
    assert lines[2] == "PASSED"


STATUSES = [
    pytest.param({}, 0, "PASSED", id="passed"),
    pytest.param({"tea": "beer"}, 14, "FAILED", id="failed"),
    pytest.param({"tea": None}, 13, "SKIPPED", id="skipped"),
]


@pytest.mark.parametrize(("script", "status", "verdict"), STATUSES)
def test_command_line_status(
    bench: Bench, capfd, script: Mapping[str, object], status: int, verdict: str
) -> None:
    """Only what passed is a success to a shell."""
    bench.make(Scripted({}), vector())
    assert run(Scripted(script), "check", "tuned", "--pack", bench.pack, "--json") == status
    document = json.loads(capfd.readouterr().out)
    assert document["verdict"] == document["vectors"][0]["verdict"] == verdict
    assert document["vectors"][0].keys() >= {"distance", "tolerance", "compare", "detail"}


def test_it_is_imported_when_it_is_asked_for() -> None:
    """``cartridge_core.verification`` is there without an import of its own."""
    assert cartridge_core.verification.check is check
    assert "verification" in dir(cartridge_core)


WER = [
    pytest.param("the cat sat", "the cat sat", 0, id="same"),
    pytest.param("The cat, sat.", "the CAT sat", 0, id="case-and-points"),
    pytest.param("the cat sat", "the sat", 1 / 3, id="left-out"),
    pytest.param("the cat sat", "the big cat sat", 1 / 3, id="put-in"),
    pytest.param("the cat sat", "the bat sat", 1 / 3, id="replaced"),
    pytest.param("don\u2019t", "don't", 0, id="apostrophes"),
    pytest.param("rock 'n' roll", "rock n roll", 0, id="quotes-outside"),
    pytest.param("\ufb01ne", "fine", 0, id="ligature"),
    pytest.param("stra\u00dfe", "STRASSE", 0, id="sharp-s"),
    pytest.param("", "", 0, id="silence"),
    pytest.param("", "two words", 2, id="words-for-silence"),
    pytest.param("a", "b c d", 3, id="more-than-one"),
    pytest.param("...", "", 0, id="points-alone"),
]


@pytest.mark.parametrize(("expected", "observed", "rate"), WER)
def test_word_error_rate(expected: str, observed: str, rate: float) -> None:
    """The usual definition over words without case and points."""
    assert word_error_rate(expected, observed) == pytest.approx(rate)


WORDS = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=8).map(" ".join)


@given(WORDS, WORDS, WORDS)
def test_word_errors_are_a_distance(one: str, two: str, three: str) -> None:
    """As many from one to two as back, none to itself, and no detour is shorter."""

    def errors(wanted: str, found: str) -> int:
        return round(word_error_rate(wanted, found) * max(1, len(wanted.split())))

    assert errors(one, one) == 0
    assert errors(one, two) == errors(two, one)
    assert errors(one, three) <= errors(one, two) + errors(two, three)


NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6)


@given(NUMBERS, st.floats(0, 10))
def test_the_largest_difference_counts(numbers: list[float], off: float) -> None:
    """Max-abs is the largest difference, whichever number it is in."""
    other = [*numbers[:-1], numbers[-1] + off]
    assert distance("max-abs", numbers, other) == pytest.approx(off, abs=1e-9)


@given(NUMBERS, st.floats(0.001, 1000))
def test_length_does_not_count_for_cosine(numbers: list[float], factor: float) -> None:
    """A vector and its multiple point one way."""
    other = [number * factor for number in numbers]
    length = math.sqrt(sum(number * number for number in numbers))
    if length > 1e-100:
        assert distance("cosine", numbers, other) == pytest.approx(0, abs=1e-9)


ANYTHING: Callable[[], st.SearchStrategy[object]] = partial(
    st.recursive,
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
)


@given(st.sampled_from(["max-abs", "cosine", "exact", "wer"]), ANYTHING(), ANYTHING())
def test_any_two_outputs_have_a_distance_or_do_not_match(
    measure: str, expected: object, observed: object
) -> None:
    """Whatever a cartridge gives, it is measured or refused; nothing crashes."""
    try:
        far = distance(measure, expected, observed)
    except MismatchError:
        return
    assert math.isnan(far) or far >= 0
