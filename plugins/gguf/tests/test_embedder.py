"""The open model that embeds: batches, many callers, cancel and close."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.context import Context
from cartridge_core.errors import CancelledError, StateError
from cartridge_core.pack import Pack
from cartridge_gguf import tokenizing
from cartridge_gguf.embedder import Embedder
from cartridge_gguf.files import ModelFiles
from cartridge_gguf.memory import estimate
from cartridge_gguf.options import LoadOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_gguf._context import Batch

    Vectors = NDArray[np.float32]


def options(**changed: int) -> LoadOptions:
    """Give the declared defaults with one thread, but for what is changed."""
    values = {
        "max_context_length": 0,
        "batch_size": 2048,
        "rope_freq_base": 0,
        "rope_freq_scale": 0,
        "threads": 1,
        "gpu_layers": 0,
        **changed,
    }
    return LoadOptions.read(values)


def open_embedder(path: Path, context: Context | None = None, **changed: int) -> Embedder:
    """Open a model with one thread, unless options say otherwise."""
    files = ModelFiles.of(Pack.from_path(path), projector=False)
    return Embedder.open(files, options(**changed), context or Context())


@pytest.fixture(scope="module")
def model(bert: Path) -> Iterator[Embedder]:
    """The random BERT."""
    opened = open_embedder(bert)
    yield opened
    opened.close()


@attrs.frozen
class Slow:
    """A model that takes seconds for a text."""

    path: Path
    text: Sequence[int]
    """Of 2048 tokens."""


@pytest.fixture(scope="module")
def slow(models: Path) -> Slow:
    """A random model of 8 layers."""
    from tiny_models import Shape, write_llama

    shape = Shape(width=256, layers=8, hidden=1024, context=2048)
    path = write_llama(models / "slow-embedding.gguf", shape=shape)[0]
    return Slow(path, random.Random(0).choices(range(300, 480), k=2048))  # noqa: S311 -- a test


def embed(
    model: Embedder, texts: Sequence[Sequence[int]], context: Context | None = None
) -> Vectors:
    """Embed tokens, pooled by their mean."""
    return model.embed(texts, "mean", context or Context())


def texts_of(count: int) -> list[list[int]]:
    """Give texts of all lengths up to 90 tokens, always the same."""
    source = random.Random(count)  # noqa: S311 -- a test
    return [[2, *source.choices(range(5, 100), k=source.randint(0, 88)), 3] for _ in range(count)]


# Batches.


def test_texts_share_decodes(model: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short ones are put together, up to 63 tokens; a longer one has a decode to itself."""
    from cartridge_gguf._context import Context as Native

    sizes, decode = list[int](), Native.decode

    def note(native: Native, batch: Batch) -> bool:
        sizes.append(batch.native.n_tokens)
        return decode(native, batch)

    monkeypatch.setattr(Native, "decode", note)
    embed(model, [[2, 9, 9, 9, 3]] * 30 + [[2, *[9] * 70, 3]])
    assert sizes == [72, 60, 60, 30]


def test_a_vector_is_bit_for_bit_what_it_is_alone(model: Embedder) -> None:
    """Whatever company it has, in whatever order; the mean alone is rounded in another one."""
    texts = texts_of(60)
    together = model.embed(texts, "cls", Context())
    backwards = model.embed(texts[::-1], "cls", Context())[::-1]
    alone = [model.embed([text], "cls", Context())[0] for text in texts]
    assert (together == alone).all()
    assert (backwards == alone).all()


@pytest.mark.parametrize("weights", ["F32", "F16", "Q8_0"])
def test_rounding_inside_the_model_does_not_see_the_company(models: Path, weights: str) -> None:
    """Nor where activations are rounded to the type of the weights."""
    import gguf
    from tiny_models import write_llama

    kind = gguf.GGMLQuantizationType[weights]
    model = open_embedder(write_llama(models / f"company-{weights}.gguf", weights=kind)[0])
    texts = texts_of(40)
    together = embed(model, texts)
    alone = [embed(model, [text])[0] for text in texts]
    model.close()
    assert abs(together - alone).max() < 1e-5


def test_many_callers_get_what_they_would_get_alone(bert: Path) -> None:
    """One model serves many threads at once, with several poolings."""
    model, found = open_embedder(bert), dict[int, "Vectors"]()
    texts, poolings = [texts_of(count) for count in range(1, 13)], ["mean", "cls", "last"]

    def work(number: int) -> None:
        for _ in range(4):
            found[number] = model.embed(texts[number], poolings[number % 3], Context())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, vectors in found.items():
        assert (vectors == model.embed(texts[number], poolings[number % 3], Context())).all()
    assert len(found) == len(texts)
    model.close()


# Cancel and close.


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.3])
def test_a_cancel_ends_a_decode(slow: Slow, after_s: float) -> None:
    """A text of many tokens is not waited for, and the model can be used further."""
    model, context = open_embedder(slow.path), Context()
    expected = embed(model, [[1, 300, 301]])
    timer = threading.Timer(after_s, context.cancel)
    timer.start()
    begun_s = time.monotonic()
    with pytest.raises(CancelledError):
        embed(model, [slow.text] * 3, context)
    assert time.monotonic() - begun_s < after_s + 1.0
    timer.join()
    assert (embed(model, [[1, 300, 301]]) == expected).all()
    model.close()


def test_a_cancel_of_one_call_is_not_one_of_another(slow: Slow) -> None:
    """What stops a call stops no other one, be it under way or waiting."""
    model, texts = open_embedder(slow.path), [slow.text[:400]] * 3
    expected = embed(model, texts)
    found = list["Vectors"]()
    other = threading.Thread(target=lambda: found.append(embed(model, texts)))
    other.start()
    for _ in range(5):
        context = Context()
        timer = threading.Timer(0.03, context.cancel)
        timer.start()
        with pytest.raises(CancelledError):
            embed(model, [slow.text] * 2, context)
        timer.join()
    other.join()
    assert (found[0] == expected).all()
    model.close()


def test_a_late_stop_of_an_earlier_call_costs_nothing(
    model: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decode that it ends is done again."""
    from cartridge_gguf._context import Context as Native

    texts = texts_of(20)
    expected, forget, stops = embed(model, texts), Native.forget, [True, True, False, True]

    def forget_and_stop(native: Native) -> None:
        forget(native)
        if stops and stops.pop():
            native.stop()

    monkeypatch.setattr(Native, "forget", forget_and_stop)
    assert (embed(model, texts) == expected).all()
    assert stops == []


def test_a_close_ends_what_runs(slow: Slow) -> None:
    """Those that compute and those that wait get a StateError; close waits for them."""
    model, errors = open_embedder(slow.path), list[StateError]()

    def work() -> None:
        try:
            embed(model, [slow.text] * 3)
        except StateError as exc:
            errors.append(exc)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    begun_s = time.monotonic()
    model.close()
    assert time.monotonic() - begun_s < 1.0
    for thread in threads:
        thread.join()
    assert len(errors) == 3


def test_error_after_the_close(bert: Path) -> None:
    """Nothing after the close crashes: every use is a StateError."""
    model = open_embedder(bert)
    embed(model, [[2, 3]])
    model.close()
    model.close()
    uses: list[Callable[[], object]] = [
        lambda: embed(model, [[2, 3]]),
        lambda: model.tokenize("cat", Context()),
    ]
    for use in uses:
        with pytest.raises(StateError, match=r"bert\.gguf is closed"):
            use()


def test_a_cancel_ends_the_load(bert: Path) -> None:
    """It comes out, and nothing stays."""
    context = Context()
    context.cancel()
    with pytest.raises(CancelledError):
        open_embedder(bert, context)


# Memory.

HELD = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy
from pathlib import Path
from cartridge_core.context import Context
from cartridge_gguf import _model
from test_embedder import open_embedder

def held():
    with open("/proc/self/status") as lines:
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Rss"))

before = held()
model = open_embedder(Path(sys.argv[2]), batch_size=int(sys.argv[3]))
model.embed([[5] * model.limit], "mean", Context())
print(held() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="measures by /proc")
@pytest.mark.parametrize("batch_size", [512, 2048])
def test_the_estimate_is_what_llama_cpp_takes(models: Path, batch_size: int) -> None:
    """With a text as long as the model takes, measured in a process, within a tenth."""
    from tiny_models import Shape, write_llama

    shape = Shape(width=256, layers=4, hidden=1024, context=4096)
    path = models / "held.gguf"
    files = ModelFiles.of(Pack.from_path(write_llama(path, shape=shape)[0]), projector=False)
    folder = str(Path(__file__).parent)
    run = subprocess.run(
        [sys.executable, "-c", HELD, folder, path, str(batch_size)], check=True, capture_output=True
    )
    guess = estimate(files, options(batch_size=batch_size), embeds=True).nbytes
    assert guess == pytest.approx(int(run.stdout), rel=0.1, abs=4 << 20)


# Tokens.


@pytest.mark.parametrize("fixture", ["bert", "llama", "byte_pair"])
@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_tokens_are_those_of_the_model(
    request: pytest.FixtureRequest, fixture: str, text: str
) -> None:
    """With what the model wants around a text."""
    model = _opened(request.getfixturevalue(fixture))
    expected = model._model.tokenize(text, special=False, add_bos=True)
    found = model.tokenize(text, Context())
    assert (found.ids, found.count) == (expected[:128], len(expected))


_OPENED = dict[Path, Embedder]()


def _opened(path: Path) -> Embedder:
    """Open a model once for many examples; the process's end frees it."""
    if path not in _OPENED:
        _OPENED[path] = open_embedder(path, max_context_length=128)
    return _OPENED[path]


@pytest.fixture(scope="module", autouse=True)
def _close_opened() -> Iterator[None]:
    yield
    while _OPENED:
        _OPENED.popitem()[1].close()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("the cat is red " * 1_000, id="words"),
        pytest.param("cat, dog; bird.\n\n" * 800, id="punctuation-and-newlines"),
        pytest.param("\u65e5\u672c" * 3_000, id="no-white-space"),
        pytest.param("x," * 5_000, id="no-white-space-but-commas"),
        pytest.param("cat " * 600 + " \n" * 3_000 + "dog", id="much-white-space"),
        pytest.param(" " * 9_000 + "the cat", id="white-space-first"),
        pytest.param("e\u0301 \U0001f469\u200d\U0001f680 " * 900, id="combined-characters"),
    ],
)
def test_a_long_text_is_read_in_pieces(
    model: Embedder, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Its beginning, and the count of the rest, are those of all at once."""
    whole = model._model.tokenize(text, special=False, add_bos=True)
    monkeypatch.setattr(tokenizing, "_CHARACTERS", 250)
    monkeypatch.setattr(tokenizing, "_COUNTED_CHARACTERS", 250)
    found = model.tokenize(text, Context())
    assert found.count == len(whole)
    assert found.ids == (whole if len(whole) <= 128 else [*whole[:127], 3])


def test_a_cancel_ends_the_reading_of_a_text(llama: Path) -> None:
    """Of this one, llama.cpp would need minutes if it were given it at once."""
    model, context = open_embedder(llama), Context()
    threading.Timer(0.2, context.cancel).start()
    begun_s = time.monotonic()
    with pytest.raises(CancelledError):
        model.tokenize("\u65e5\u672c\u8a9e" * 500_000, context)
    assert time.monotonic() - begun_s < 1.0
    model.close()
