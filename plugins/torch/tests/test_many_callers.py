"""Single items of many callers share forward passes, and each gets what it would get alone."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

import pytest

from cartridge_core.errors import BackendError, CancelledError, InvalidArgumentError
from cartridge_core.testing import registry_of
from cartridge_torch import plugin
from cartridge_torch.text_model import TextModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.calls import Call
    from cartridge_core.context import Context
    from cartridge_core.pack import Pack
    from cartridge_core.records import Record
    from cartridge_torch.image_model import ImageModel

    Embed = Callable[..., Record]
    Options = dict[str, object]
    Together = Callable[[Sequence[tuple[str, Options]]], list[Future[Record]]]
    Vectors = NDArray[np.float32]

TOLERANCE = 1e-5
WAIT_S = 20.0
EMBED = 'cap:generate-embeddings;in="media:enc=utf-8";out="media:embedding-vector;record"'


class Passes:
    """Counts what goes through each forward pass, and holds them, once it was told to."""

    def __init__(self, forward: Callable[..., Vectors], lanes: int) -> None:
        self.sizes: list[int] = []
        self.lanes = lanes
        self.began = self.stopped = 0
        self._forward = forward
        self._allowed = math.inf
        self._lock = threading.Lock()

    def __call__(self, batch: object, context: Context) -> Vectors:
        """Compute, when it may."""
        with self._lock:
            self.began = number = self.began + 1
        while number > self._allowed:
            time.sleep(0.001)
            self.stopped += context.cancelled
            context.check_cancelled()
        vectors = self._forward(batch, context)
        self.sizes.append(len(vectors))
        return vectors

    def let(self, count: int) -> None:
        """Let so many of those that are held go, the oldest first."""
        self._allowed += count

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold every pass that begins in a block, up to its end."""
        self.began = self.stopped = 0
        self.sizes.clear()
        self._allowed = 0
        try:
            yield
        finally:
            self._allowed = math.inf


@pytest.fixture
def passes(model: TextModel, monkeypatch: pytest.MonkeyPatch) -> Passes:
    """The forward passes of the tiny text model."""
    passes = Passes(model._encoder.forward, model._encoder.lanes)
    monkeypatch.setattr(model._encoder, "forward", passes)
    return passes


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads of callers."""
    with ThreadPoolExecutor(24) as pool:
        yield pool


def until(condition: Callable[[], bool]) -> None:
    """Wait for something."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "it never came"
        time.sleep(0.001)


@pytest.fixture
def call_together(
    model: TextModel, passes: Passes, pool: ThreadPoolExecutor, embed: Embed
) -> Together:
    """Have calls queue behind others that hold every lane, and then let all go."""
    queue = model._texts._gathering

    def run(calls: Sequence[tuple[str, Options]]) -> list[Future[Record]]:
        with passes.held():
            before = [pool.submit(embed, "one") for _ in range(passes.lanes)]
            until(lambda: queue._free == 0)
            found = []
            for number, (text, parameters) in enumerate(calls):
                found.append(pool.submit(embed, text, **parameters))
                until(lambda: len(queue._queue) > number)  # noqa: B023 -- asked here
        for future in [*before, *found]:
            future.exception(WAIT_S)
        return found

    return run


def vectors(payload: Record) -> Vectors:
    """Give the vectors."""
    return cast("Vectors", payload.vectors)


def difference(a: Vectors, b: Vectors) -> float:
    """Give the largest difference of two arrays."""
    return float(abs(a - b).max())


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param([{}], id="defaults"),
        pytest.param([{}, {"normalize": False}, {"truncate_dim": 7}], id="what-is-done-afterwards"),
        pytest.param([{"prompt": "query: "}, {"prompt_name": "query"}], id="one-prompt"),
    ],
)
def test_single_texts_that_queued_share_one_forward_pass(
    embed: Embed, passes: Passes, call_together: Together, parameters: list[Options]
) -> None:
    """Each caller gets his own vector, as he wants it, and as alone."""
    texts = ["the cat is red", "a bird", "", "hello world, hello dog", "it is a dog", "two"]
    calls = [(text, parameters[place % len(parameters)]) for place, text in enumerate(texts)]
    alone = [vectors(embed(text, **more)) for text, more in calls]
    found = [vectors(future.result()) for future in call_together(calls)]
    assert sorted(passes.sizes) == [1] * passes.lanes + [len(texts)]
    assert [one.shape for one in found] == [one.shape for one in alone]
    assert max(map(difference, found, alone)) < TOLERANCE


@pytest.mark.parametrize(
    ("odd", "more"),
    [
        pytest.param("the cat", {"prompt": "query: "}, id="another-prompt"),
        pytest.param("cat " * 30, {}, id="a-much-longer-text"),
        pytest.param("cat " * 3_000, {}, id="a-very-long-text"),
    ],
)
def test_what_does_not_go_with_the_others_has_a_pass_of_its_own(
    embed: Embed,
    passes: Passes,
    model: TextModel,
    pool: ThreadPoolExecutor,
    odd: str,
    more: Options,
) -> None:
    """And is neither in their way nor they in its."""
    alone = vectors(embed(odd, **more))
    with passes.held():
        found = [pool.submit(embed, "one") for _ in range(passes.lanes)]
        until(lambda: model._texts._gathering._free == 0)
        found += [pool.submit(embed, odd, **more), *(pool.submit(embed, "two") for _ in range(5))]
        time.sleep(0.1)
    assert difference(vectors(found[passes.lanes].result(WAIT_S)), alone) < TOLERANCE
    for future in found:
        future.result(WAIT_S)
    assert sorted(passes.sizes) == [1] * passes.lanes + [1, 5]


def test_each_is_told_what_was_cut_off_its_own_text(
    embed: Embed, passes: Passes, call_together: Together
) -> None:
    """However many share a pass."""
    long = "cat " * 70
    calls: list[tuple[str, Options]] = [
        (long, {}),
        ("dog " * 40, {}),
        (long + "a dog", {}),
    ]
    found = call_together(calls)
    assert sorted(passes.sizes) == [1] * passes.lanes + [3]
    assert [future.result().truncated for future in found] == [
        [{"item": 0, "tokens": 72, "limit": 64}],
        [],
        [{"item": 0, "tokens": 74, "limit": 64}],
    ]


def test_error_a_text_that_the_backend_cannot_take_harms_no_other(
    embed: Embed, model: TextModel, call_together: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its caller gets the error."""
    tokenize = model._encoder.tokenize

    def refuse(texts: Sequence[str], prompt: str | None, context: Context) -> object:
        if "bird" in texts:
            msg = "no birds"
            raise BackendError(msg)
        return tokenize(texts, prompt, context)

    alone = [vectors(embed(text)) for text in ("cat", "dog")]
    monkeypatch.setattr(model._encoder, "tokenize", refuse)
    found = call_together([("cat", {}), ("bird", {}), ("dog", {})])
    with pytest.raises(BackendError, match="no birds"):
        found[1].result()
    assert difference(vectors(found[0].result()), alone[0]) < TOLERANCE
    assert difference(vectors(found[2].result()), alone[1]) < TOLERANCE


def test_many_threads_of_single_texts_get_what_they_would_get_alone(
    embed: Embed, passes: Passes, pool: ThreadPoolExecutor
) -> None:
    """Of every length, and with every option, as they come."""
    texts = [f"{'the cat ' * (number % 9)} dog {number % 5}" for number in range(90)]
    options: list[Options] = [{}, {"prompt": "query: "}, {"truncate_dim": 9}]
    alone = {
        (text, place): vectors(embed(text, **options[place]))
        for place in range(3)
        for text in dict.fromkeys(texts)
    }
    passes.sizes.clear()
    calls = [(text, number % 3) for number, text in enumerate(texts)]
    found = list(pool.map(lambda one: vectors(embed(one[0], **options[one[1]])), calls))
    assert max(difference(row, alone[one]) for row, one in zip(found, calls, strict=True)) < (
        TOLERANCE
    )
    assert sum(passes.sizes) == len(texts)
    assert len(passes.sizes) < len(texts)


def noise(seed: int, height: int = 40) -> NDArray[np.uint8]:
    """Make a picture of noise."""
    import numpy as np

    return np.random.default_rng(seed).integers(0, 256, (height, 33, 3), dtype=np.uint8)


def test_single_pictures_that_queued_share_one_forward_pass(
    clip: ImageModel,
    embed_images_with: Embed,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of every size; one that cannot be read is refused before, and disturbs nobody."""
    pictures = [noise(seed, 20 + 9 * seed) for seed in range(6)]
    alone = [vectors(embed_images_with(clip, one, normalize=False)) for one in pictures]
    passes = Passes(clip._clip.forward_pictures, clip._clip.lanes)
    monkeypatch.setattr(clip._clip, "forward_pictures", passes)
    queue = clip._pictures
    with passes.held():
        before = [pool.submit(embed_images_with, clip, noise(9)) for _ in range(passes.lanes)]
        until(lambda: queue._free == 0)
        found = [pool.submit(embed_images_with, clip, one, normalize=False) for one in pictures]
        with pytest.raises(InvalidArgumentError, match=r"^image: "):
            embed_images_with(clip, b"no picture")
        until(lambda: len(queue._queue) == len(pictures))
    rows = [vectors(future.result(WAIT_S)) for future in found]
    assert [vectors(future.result(WAIT_S)).shape for future in before] == [(1, 64)] * passes.lanes
    assert sorted(passes.sizes) == [1] * passes.lanes + [len(pictures)]
    assert max(map(difference, rows, alone)) < TOLERANCE


@pytest.mark.parametrize("leaving", [[0], [5], [1, 2, 3], [0, 1, 2, 3, 4, 5]], ids=str)
def test_a_call_that_is_cancelled_returns_at_once_and_the_others_go_on(
    tiny: Path, leaving: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a registry, with the model in the middle of their forward pass."""
    opened: list[TextModel] = []

    def remember(pack: Pack, options: Mapping[str, object], context: Context) -> TextModel:
        opened.append(TextModel.open(pack, options, context))
        return opened[-1]

    openers = {**plugin.OPENERS, "torch-text-embedding": remember}
    monkeypatch.setattr(plugin, "OPENERS", openers)
    with registry_of(plugin) as registry:

        def start(number: int) -> Call:
            return registry.stream(EMBED, f"dog {number}", model_spec=tiny, device="cpu")

        alone = [vectors(cast("Record", start(number).result().payload)) for number in range(6)]
        encoder, queue = opened[0]._encoder, opened[0]._texts._gathering
        passes = Passes(encoder.forward, encoder.lanes)
        monkeypatch.setattr(encoder, "forward", passes)
        with passes.held():
            ahead = [start(0) for _ in range(passes.lanes)]
            until(lambda: passes.began == passes.lanes)
            calls = []
            for number in range(6):
                calls.append(start(number))
                until(lambda: len(queue._queue) == len(calls))
            passes.let(passes.lanes)
            until(lambda: passes.began == passes.lanes + 1 and passes.sizes == [1] * passes.lanes)
            for number in leaving:
                calls[number].cancel()
                with pytest.raises(CancelledError):
                    calls[number].result()
                assert passes.sizes == [1] * passes.lanes
            if len(leaving) == len(calls):
                until(lambda: passes.stopped == 1)
        for number in set(range(6)) - set(leaving):
            found = vectors(cast("Record", calls[number].result().payload))
            assert difference(found, alone[number]) < TOLERANCE
        for call in ahead:
            call.result()
        assert (passes.began, passes.stopped) == (passes.lanes + 1, int(len(leaving) == 6))


@pytest.mark.parametrize(
    ("width", "threads", "lanes"),
    [
        pytest.param(600, 1, 4, id="four-at-most"),
        pytest.param(600, 3, 2, id="as-many-as-there-are-cpus-for"),
        pytest.param(600, 8, 1, id="all-cpus-for-one"),
        pytest.param(600, 16, 1, id="more-threads-than-cpus"),
        pytest.param(300, 1, 1, id="a-small-model"),
    ],
)
def test_passes_run_side_by_side_where_that_is_faster(
    monkeypatch: pytest.MonkeyPatch, width: int, threads: int, lanes: int
) -> None:
    """Of a small model one pass of all rows is faster than two that wait for Python's lock."""
    import torch

    from cartridge_torch import _torch

    monkeypatch.setattr("os.cpu_count", lambda: 8)
    layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(3))
    model = torch.nn.Sequential(torch.nn.Embedding(9, width), layers)
    assert _torch.lanes(model, torch.device("cpu"), threads) == lanes
