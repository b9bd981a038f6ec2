"""The open model: what it writes, what it reuses, how it ends."""

from __future__ import annotations

import gc
import itertools
import random
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.context import Context
from cartridge_core.errors import (
    BackendError,
    BusyError,
    CancelledError,
    InvalidArgumentError,
    LoadError,
    StateError,
)
from cartridge_core.pack import Pack
from cartridge_gguf.budget import ContextOverflowError
from cartridge_gguf.engine import Generation, TextModel
from cartridge_gguf.files import ModelFiles
from cartridge_gguf.options import LoadOptions
from cartridge_gguf.sampling import Sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cartridge_core.progress import Log, Progress
    from cartridge_gguf._context import Batch

    Open = Callable[..., TextModel]

GREEDY = Sampling(
    temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0, repeat_penalty=1.0, grammar=None
)
RANDOM = attrs.evolve(GREEDY, temperature=1.0)
WORDS = attrs.evolve(RANDOM, grammar="root ::= [a-z ]+")


def open_text(path: Path, *, sessions: int | None = None, **options: int) -> TextModel:
    """Open a model with one thread and a context of 256 tokens, unless options say otherwise."""
    values = {
        "max_context_length": 256,
        "batch_size": 32,
        "rope_freq_base": 0,
        "rope_freq_scale": 0,
        "threads": 1,
        "gpu_layers": 0,
        "parallel_sequences": 1,
        **options,
    }
    files = ModelFiles.of(Pack.from_path(path), projector=False)
    return TextModel.open(files, LoadOptions.read(values), Context(), sessions=sessions)


@pytest.fixture
def open_model() -> Iterator[Open]:
    """An opener whose models are closed after the test."""
    opened: list[TextModel] = []

    def open_one(path: Path, **options: int) -> TextModel:
        opened.append(open_text(path, sessions=None, **options))
        return opened[-1]

    yield open_one
    for model in opened:
        model.close()


def write(
    model: TextModel,
    prompt: Sequence[int] | str,
    sampling: Sampling = GREEDY,
    limit: int = 12,
    context: Context | None = None,
) -> list[int]:
    """Write a text to its end."""
    return [*start(model, prompt, sampling, limit, context)]


def start(
    model: TextModel,
    prompt: Sequence[int] | str,
    sampling: Sampling = GREEDY,
    limit: int = 12,
    context: Context | None = None,
) -> Generation:
    """Begin a text."""
    if isinstance(prompt, str):
        prompt = model.tokenize(prompt, special=False, add_bos=True)
    return model.generate(prompt, sampling, limit=limit, context=context or Context())


def text_of(model: TextModel, tokens: Sequence[int]) -> str:
    """Spell tokens."""
    return b"".join(map(model.piece, tokens)).decode("utf-8", "replace")


# What is written.


def test_a_text_ends_where_the_model_ends_it(scripted: Path, open_model: Open) -> None:
    """The token that ends it is not given."""
    model = open_model(scripted)
    with closing(start(model, "dog", limit=100)) as tokens:
        assert text_of(model, [*tokens]) == " hello world, this is a tiny model speaking."
        assert tokens.finish_reason == "stop"
        assert [*tokens] == []


@pytest.mark.parametrize("limit", [1, 2, 7, 50])
def test_a_text_is_never_longer_than_its_limit(endless: Path, open_model: Open, limit: int) -> None:
    """It ends after so many tokens, and says that this is why."""
    tokens = start(open_model(endless), "hello", limit=limit)
    assert tokens.finish_reason is None
    assert len([*tokens]) == limit
    assert tokens.finish_reason == "length"


def test_no_tokens_are_none(endless: Path, open_model: Open) -> None:
    """A limit of 0 gives nothing, and computes nothing."""
    model = open_model(endless)
    tokens = start(model, "hello", limit=0)
    assert [*tokens] == []
    assert tokens.finish_reason == "length"
    assert model._lanes.lanes[0].seats[0].memory == []


def test_the_same_seed_gives_the_same_text(llama: Path, open_model: Open) -> None:
    """Whatever was written before; another seed gives another text."""
    model = open_model(llama)
    first = write(model, "hello", RANDOM)
    others = [write(model, "hello", attrs.evolve(RANDOM, seed=seed)) for seed in range(1, 5)]
    assert write(model, "hello", RANDOM) == first
    assert len({tuple(text) for text in (first, *others)}) == 5


def test_temperature_0_needs_no_seed(llama: Path, open_model: Open) -> None:
    """The likeliest token is the same with any seed."""
    model = open_model(llama)
    texts = {tuple(write(model, "yes", attrs.evolve(GREEDY, seed=seed))) for seed in range(3)}
    assert len(texts) == 1


@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param(GREEDY, id="greedy"),
        pytest.param(attrs.evolve(GREEDY, repeat_penalty=1.3), id="greedy-with-a-penalty"),
        pytest.param(
            attrs.evolve(RANDOM, top_k=40, top_p=0.9, min_p=0.05, temperature=0.7), id="usual"
        ),
        pytest.param(attrs.evolve(RANDOM, repeat_penalty=1.1, seed=7), id="random-with-a-penalty"),
    ],
)
def test_texts_are_llama_cpp_pythons(llama: Path, open_model: Open, sampling: Sampling) -> None:
    """The same settings give the same tokens as its own API."""
    import llama_cpp

    model = open_model(llama)
    native = llama_cpp.Llama(
        str(llama), n_ctx=256, n_batch=32, n_threads=1, n_threads_batch=1, verbose=False
    )
    native._seed = sampling.seed
    with closing(native):
        for prompt in ("hello world", "the cat is red", "yes", "a", "this is a tiny dog " * 8):
            tokens = model.tokenize(prompt, special=False, add_bos=True)
            native.n_tokens = 0
            expected = native.generate(
                tokens,
                top_k=sampling.top_k,
                top_p=sampling.top_p,
                min_p=sampling.min_p,
                temp=sampling.temperature,
                repeat_penalty=sampling.repeat_penalty,
            )
            cut = itertools.takewhile(lambda token: not model._model.is_end(token), expected)
            assert write(model, tokens, sampling) == [*itertools.islice(cut, 12)]


QUESTIONS = (
    "Name a fruit.",
    "What is rain?",
    "Hello",
    "Who are you?",
    "1 + 1 =",
    "Once upon a time",
    "def add(a, b):",
    "The quick brown fox",
    "Why is the sky blue?",
    "Say it in French: good morning",
    "List three colours.",
    "In 1969,",
    "The meaning of life is",
    "How do I bake bread?",
    "A poem about the sea:",
    "What is 12 times 12?",
    "Der Hund",
    "2, 4, 6, 8,",
    "Explain gravity.",
    "Good night",
)


@pytest.mark.integration
def test_a_real_models_texts_are_llama_cpp_pythons(smollm2: Path, open_model: Open) -> None:
    """Twenty prompts, one after the other in one context, against its own API."""
    import llama_cpp

    model = open_model(smollm2, batch_size=512)
    native = llama_cpp.Llama(
        str(smollm2), n_ctx=256, n_batch=512, n_threads=1, n_threads_batch=1, verbose=False
    )
    with closing(native):
        for question in QUESTIONS:
            tokens = model.tokenize(question, special=True, add_bos=True)
            native.n_tokens = 0
            expected = native.generate(tokens, temp=0, repeat_penalty=1.1)
            cut = itertools.takewhile(lambda token: not model._model.is_end(token), expected)
            found = write(model, tokens, attrs.evolve(GREEDY, repeat_penalty=1.1), limit=8)
            assert found == [*itertools.islice(cut, 8)]


def test_a_grammar_is_kept(llama: Path, open_model: Open) -> None:
    """The text keeps to it, and is complete where the model ends it."""
    model = open_model(llama)
    for seed in range(5):
        sampling = attrs.evolve(RANDOM, grammar='root ::= "yes" | "no" [0-9]', seed=seed)
        tokens = start(model, "hello", sampling)
        text = text_of(model, [*tokens])
        assert text == "yes" or (text[:2] == "no" and text[2:].isdigit() and len(text) == 3)
        assert tokens.finish_reason == "constraint_satisfied"


def test_a_grammar_at_the_limit_is_not_satisfied(llama: Path, open_model: Open) -> None:
    """A text that was cut says so."""
    tokens = start(open_model(llama), "hello", WORDS, limit=5)
    assert len([*tokens]) == 5
    assert tokens.finish_reason == "length"


def test_error_a_grammar_that_nothing_spells(llama: Path, open_model: Open) -> None:
    """It ends this text alone; the model goes on to write others."""
    model = open_model(llama)
    expected = write(model, "hello")
    with pytest.raises(BackendError, match="cannot spell"):
        write(model, "hello", attrs.evolve(GREEDY, grammar=r'root ::= "a\U7FFFFFFF"'))
    assert write(model, "hello") == expected


def test_error_no_prompt(llama: Path, open_model: Open) -> None:
    """The model must be told something."""
    with pytest.raises(InvalidArgumentError, match="prompt: it is empty"):
        start(open_model(llama), [])


def test_a_context_is_filled_to_the_last_token(endless: Path, open_model: Open) -> None:
    """Prompt and text may have exactly as many tokens as it holds."""
    model = open_model(endless, max_context_length=200)
    assert model.context_length == 200
    assert len(write(model, [300] * 150, limit=50)) == 50


@pytest.mark.parametrize(("prompt", "limit"), [(150, 51), (200, 1), (201, 0), (5000, 10)])
def test_error_a_context_that_overflows(
    endless: Path, open_model: Open, prompt: int, limit: int
) -> None:
    """It is refused with the numbers, before anything is computed."""
    with pytest.raises(ContextOverflowError) as caught:
        start(open_model(endless, max_context_length=200), [300] * prompt, limit=limit)
    error = caught.value
    assert (error.prompt_tokens, error.max_tokens, error.context_length) == (prompt, limit, 200)
    assert error.allowance == max(0, 200 - prompt)


# Prompts that share a beginning.


def requests(count: int) -> list[list[int]]:
    """Make prompts that share beginnings of many lengths, with each other and with answers."""
    chance = random.Random(3)  # noqa: S311 -- the same every time
    made: list[list[int]] = [[chance.randrange(300, 490) for _ in range(60)]]
    for _ in range(count):
        start = chance.choice(made)[: chance.randrange(1, 80)]
        made.append([*start, *(chance.randrange(300, 490) for _ in range(chance.randrange(70)))])
    return made


@pytest.mark.parametrize("batch_size", [1, 2, 7, 16, 64])
def test_what_is_reused_changes_no_text(llama: Path, open_model: Open, batch_size: int) -> None:
    """A model that has written others writes what a fresh one writes, greedily or not."""
    model = open_model(llama, batch_size=batch_size)
    answered: list[int] = []
    for prompt in requests(12):
        for going_on in (prompt, [*prompt, *answered[:9], 300]):
            fresh = open_text(llama, batch_size=batch_size)
            expected = write(fresh, going_on, RANDOM)
            fresh.close()
            answered = write(model, going_on, RANDOM)
            assert answered == expected


def test_logits_after_a_reuse_are_the_same_bit_for_bit(llama: Path, open_model: Open) -> None:
    """Not only the texts are equal: what they are chosen from is, after answers too."""

    def logits(model: TextModel, prompt: Sequence[int]) -> list[float]:
        write(model, prompt, limit=1)
        found: list[float] = model._lanes.lanes[0].context.logits(-1).tolist()
        return found

    model = open_model(llama, batch_size=16)
    for prompt in requests(12):
        for going_on in ([*prompt, *write(model, prompt, RANDOM), 300, 301], prompt):
            fresh = open_text(llama, batch_size=16)
            assert logits(model, going_on) == logits(fresh, going_on)
            fresh.close()


def evaluated(model: TextModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have the tokens of every decode counted from now on."""
    counts: list[int] = []
    context = model._lanes.lanes[0].context
    decode = context.decode

    def count(batch: Batch) -> bool:
        counts.append(batch.native.n_tokens)
        return decode(batch)

    monkeypatch.setattr(context, "decode", count)
    return counts


@pytest.mark.parametrize(
    ("shared", "length", "count"),
    [
        pytest.param(50, 60, 10, id="the-rest"),
        pytest.param(59, 60, 2, id="the-last-two"),
        pytest.param(60, 60, 2, id="all-but-the-last-two"),
        pytest.param(64, 65, 1, id="the-last-alone-as-in-a-fresh-context"),
        pytest.param(0, 60, 60, id="nothing-shared"),
    ],
)
def test_a_shared_beginning_is_evaluated_once(
    llama: Path,
    open_model: Open,
    monkeypatch: pytest.MonkeyPatch,
    shared: int,
    length: int,
    count: int,
) -> None:
    """Of a prompt that begins as the last one, only the rest is evaluated."""
    model = open_model(llama)
    old = [300 + number for number in range(70)]
    write(model, old, limit=3)
    counts = evaluated(model, monkeypatch)
    write(model, [*old[:shared], *[400] * (length - shared)], limit=1)
    assert sum(counts) == count


@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param(GREEDY, id="greedy"),
        pytest.param(RANDOM, id="random"),
        pytest.param(attrs.evolve(RANDOM, repeat_penalty=1.3), id="penalty"),
        pytest.param(attrs.evolve(GREEDY, grammar='root ::= ("a" | "b")+'), id="grammar"),
        pytest.param(attrs.evolve(RANDOM, grammar='root ::= ("a" | "b")+'), id="random-grammar"),
    ],
)
@pytest.mark.parametrize("sequences", [1, 2])
def test_a_prompt_that_was_asked_before_is_not_evaluated(
    llama: Path,
    open_model: Open,
    monkeypatch: pytest.MonkeyPatch,
    sampling: Sampling,
    sequences: int,
) -> None:
    """Who asks the same again gets the same, from the logits that were kept."""
    model = open_model(llama, parallel_sequences=sequences)
    prompt = [300 + number for number in range(60)]
    counts = evaluated(model, monkeypatch)
    expected = write(model, prompt, sampling)
    answer = counts.count(1)
    assert [write(model, prompt, sampling) for _ in range(2)] == [expected] * 2
    assert counts == [32, 28, *[1] * answer * 3]


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(range(300, 359), id="shorter"),
        pytest.param(range(300, 361), id="longer"),
        pytest.param([*range(300, 359), 400], id="another-end"),
        pytest.param([400], id="another"),
    ],
)
def test_what_was_kept_is_of_the_last_prompt(
    llama: Path, open_model: Open, between: Sequence[int]
) -> None:
    """Another prompt in between leaves nothing behind that an answer could come from."""
    model = open_model(llama)
    prompt = [*range(300, 360)]
    for tokens in (prompt, between, prompt, between):
        assert write(model, tokens, RANDOM) == write(open_model(llama), tokens, RANDOM)


def test_what_was_kept_goes_with_its_prompt(llama: Path, open_model: Open) -> None:
    """A prompt that was read half, over the one before, is not answered by what that came to."""
    model = open_model(llama)
    context = Context(lambda _event: context.cancel())
    write(model, [*range(300, 360)], RANDOM)
    other = [*range(300, 359), *range(400, 440)]
    with pytest.raises(CancelledError):
        write(model, other, RANDOM, context=context)
    assert write(model, other[:60], RANDOM) == write(open_model(llama), other[:60], RANDOM)


def test_the_context_that_knows_most_is_taken(llama: Path, open_model: Open) -> None:
    """Of two contexts, a prompt goes to the one that has its beginning."""
    model = open_model(llama)
    first, second = [[base + number for number in range(40)] for base in (300, 400)]
    with closing(start(model, first)) as one, closing(start(model, second)) as other:
        next(one)
        next(other)
    for prompt in (second, first, second):
        write(model, [*prompt, 350], limit=1)
    memories = [lane.seats[0].memory for lane in model._lanes.lanes]
    assert [memory[:40] for memory in memories] == [first, second]
    assert memories[0][40] == memories[1][40] == 350


def test_a_model_that_forgets_no_part_writes_the_same(
    llama: Path, open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a beginning cannot be kept, all is evaluated again."""
    from cartridge_gguf._llama import C

    model = open_model(llama)
    prompts = requests(4)
    expected = [write(model, prompt) for prompt in prompts]
    remove = C.llama_memory_seq_rm

    def refuse(memory: int, sequence: int, start: int, end: int) -> bool:
        return start < 0 and bool(remove(memory, sequence, start, end))

    monkeypatch.setattr(C, "llama_memory_seq_rm", refuse)
    assert [write(model, prompt) for prompt in prompts] == expected


@pytest.mark.integration
def test_a_real_model_reuses_without_a_difference(smollm2: Path, open_model: Open) -> None:
    """A chat that goes on, and others with the same system prompt, are what they are alone."""
    turn = "<|im_start|>{}\n{}<|im_end|>\n"
    system = turn.format("system", "You are a helpful assistant. Answer in one sentence.")
    model, chat = open_model(smollm2, max_context_length=1024, batch_size=512), system
    for question in ("Name a fruit.", "Another one?"):
        for beginning in (chat, system):
            prompt = beginning + turn.format("user", question) + "<|im_start|>assistant\n"
            tokens = model.tokenize(prompt, special=True, add_bos=True)
            fresh = open_text(smollm2, max_context_length=1024, batch_size=512)
            expected = write(fresh, tokens, limit=4)
            fresh.close()
            answer = write(model, tokens, limit=4)
            assert answer == expected
            if beginning is chat:
                chat = prompt + text_of(model, answer) + "<|im_end|>\n"


# Cancelling.


@attrs.frozen
class Slow:
    """A model that takes its time to read."""

    path: Path
    prompt: list[int]


@pytest.fixture(scope="module")
def slow(models: Path) -> Slow:
    """A model whose evaluation of 4000 tokens takes several seconds."""
    from tiny_models import Shape, write_llama

    shape = Shape(width=256, layers=8, hidden=1024, context=8192)
    path = write_llama(models / "slow.gguf", shape=shape)[0]
    return Slow(path, [300 + number % 150 for number in range(4000)])


@pytest.mark.parametrize(
    ("tokens", "batch_size", "after_s"),
    [
        pytest.param(4000, 32, 0.05, id="a12-long-prompt-small-batch"),
        pytest.param(4000, 512, 0.05, id="a12-long-prompt-large-batch"),
        pytest.param(1500, 512, 0.02, id="a12-shorter-prompt"),
        pytest.param(4000, 64, 0.3, id="a12-later"),
        pytest.param(4000, 512, 0.0, id="a12-at-once"),
    ],
)
def test_a_cancel_ends_the_reading_of_a_prompt(
    slow: Slow, tokens: int, batch_size: int, after_s: float
) -> None:
    """It comes out before the first token; the model is idle then, and no thread is left."""
    model = open_text(slow.path, max_context_length=4096, batch_size=batch_size)
    expected = write(model, [300, 301, 302], limit=3)
    threads, context = threading.active_count(), Context()
    timer = threading.Timer(after_s, context.cancel)
    timer.start()
    begun_s = time.monotonic()
    with pytest.raises(CancelledError):
        write(model, slow.prompt[:tokens], limit=1, context=context)
    passed_s = time.monotonic() - begun_s
    timer.join()
    assert passed_s < after_s + 1.0
    assert threading.active_count() == threads
    assert write(model, [300, 301, 302], limit=3) == expected
    model.close()


def watch(model: TextModel, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note of every decode from now on whether it came to its end."""
    native, outcomes = model._lanes.lanes[0].context, list[bool]()
    decode = native.decode

    def note(batch: Batch) -> bool:
        outcomes.append(decode(batch))
        return outcomes[-1]

    monkeypatch.setattr(native, "decode", note)
    return outcomes


def test_a_cancel_ends_a_batch_half_way(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed stops, not only what comes after it."""
    model, context = open_text(slow.path, max_context_length=4096, batch_size=512), Context()
    outcomes = watch(model, monkeypatch)
    timer = threading.Timer(0.05, context.cancel)
    timer.start()
    with pytest.raises(CancelledError):
        write(model, slow.prompt, limit=1, context=context)
    timer.join()
    assert outcomes[-1] is False
    model.close()


def test_what_was_read_before_a_cancel_is_reused(slow: Slow) -> None:
    """The batches before the one that was stopped stay, and change no text."""
    model = open_text(slow.path, max_context_length=4096, batch_size=32)
    prompt, context = slow.prompt[:400], Context()
    expected = write(model, prompt, limit=3)
    write(model, [301], limit=1)
    context.report = lambda _: (
        context.cancel() if model._lanes.lanes[0].seats[0].memory[160:] else None
    )
    with pytest.raises(CancelledError):
        write(model, prompt, limit=1, context=context)
    assert 160 < len(model._lanes.lanes[0].seats[0].memory) < 200
    assert write(model, prompt, limit=3) == expected
    model.close()


def test_a_cancel_between_tokens(endless: Path, open_model: Open) -> None:
    """The next token does not come, and the text is over."""
    model, context = open_model(endless), Context()
    tokens = start(model, "hello", limit=100, context=context)
    next(tokens)
    context.cancel()
    with pytest.raises(CancelledError):
        next(tokens)
    assert [*tokens] == []
    assert len(write(model, "hello")) == 12


class Asked(Context):
    """Is cancelled once it was asked so many times; it calls nobody."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    @property
    def cancelled(self) -> bool:
        """Count, and say yes after enough questions."""
        self.after -= 1
        return self.after < 0


def test_a_cancel_is_asked_for_between_batches(slow: Slow) -> None:
    """A host that only answers when asked is asked before every batch."""
    model = open_text(slow.path, max_context_length=4096, batch_size=32)
    with pytest.raises(CancelledError):
        write(model, slow.prompt[:400], limit=1, context=Asked(after=9))
    assert len(model._lanes.lanes[0].seats[0].memory) < 160
    model.close()


def test_a_cancel_while_others_compute(slow: Slow) -> None:
    """Who waits for a turn comes out while another one's batch is evaluated."""
    model = open_text(slow.path, max_context_length=4096, batch_size=512)
    context, other = Context(), Context()
    reading = threading.Event()
    other.report = lambda _: reading.set()

    def read() -> None:
        with pytest.raises(CancelledError):
            write(model, slow.prompt, limit=1, context=other)

    thread = threading.Thread(target=read)
    thread.start()
    reading.wait(30)
    timer = threading.Timer(0.05, context.cancel)
    timer.start()
    begun_s = time.monotonic()
    with pytest.raises(CancelledError):
        write(model, [300] * 4000, limit=1, context=context)
    assert time.monotonic() - begun_s < 1.0
    assert thread.is_alive()
    other.cancel()
    thread.join()
    model.close()


def test_reading_a_long_prompt_shows_signs_of_life(slow: Slow) -> None:
    """The host is told after every batch that does not give a token."""
    said: list[Progress | Log] = []
    model = open_text(slow.path, max_context_length=4096, batch_size=32)
    write(model, slow.prompt[:100], limit=1, context=Context(said.append))
    assert [item.message for item in said] == [f"{n} of 100 tokens read" for n in (32, 64, 96)]
    model.close()


def test_waiting_shows_signs_of_life(
    endless: Path, open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that waits for long tells its host."""
    monkeypatch.setattr("cartridge_gguf.patience._REPORT_S", 0.0)
    model = open_model(endless)
    said, is_told = [], threading.Event()

    def report(item: Progress | Log) -> None:
        said.append(item.message)
        is_told.set()

    with model._turns.turn(lambda: None):
        thread = threading.Thread(
            target=write, args=(model, "hello"), kwargs={"context": Context(report)}
        )
        thread.start()
        assert is_told.wait(10)
    thread.join()
    assert said[0] == "waiting for the model, which computes for others"


# Ending.


def test_closing_a_text_frees_its_context(endless: Path, open_model: Open) -> None:
    """The next text takes it, and a closed text is over."""
    model = open_model(endless)
    for _ in range(3):
        tokens = start(model, "hello")
        next(tokens)
        tokens.close()
        assert [*tokens] == []
    assert len(model._lanes.lanes) == 1


def test_garbage_frees_its_context(endless: Path, open_model: Open) -> None:
    """A text that is dropped half way needs no close, in a cycle neither."""
    model, context = open_model(endless), Context()
    for _ in range(3):
        tokens = start(model, "hello", context=context)
        next(tokens)
        cycle: list[object] = [tokens]
        cycle.append(cycle)
        del tokens, cycle
        gc.collect()
    write(model, "hello")
    assert len(model._lanes.lanes) == 1


def test_a_text_that_never_began_holds_nothing(endless: Path, open_model: Open) -> None:
    """Without a first token there is no context, and nothing to free."""
    model = open_model(endless)
    begun = [start(model, "hello") for _ in range(9)]
    assert len(write(model, "hello")) == 12
    assert len(model._lanes.lanes) == 1
    del begun


def test_error_after_the_close(endless: Path) -> None:
    """Nothing after the close crashes: every use is a StateError, a text that is over is over."""
    model = open_text(endless)
    running, waiting, over = (
        start(model, "hello"),
        start(model, "hello"),
        start(model, "hello", limit=1),
    )
    next(running)
    next(over)
    known = model.tokenize("hello", special=False, add_bos=False)[0]
    model.piece(known)
    model.close()
    model.close()
    uses: list[Callable[[], object]] = [
        lambda: next(running),
        lambda: next(waiting),
        lambda: start(model, [300]),
        lambda: model.tokenize("hello", special=False, add_bos=False),
        lambda: model.piece(known + 1),
    ]
    for use in uses:
        with pytest.raises(StateError, match="is closed"):
            use()
    assert [*running] == [*waiting] == []
    running.close()
    assert model.piece(known)


def test_a_close_ends_what_runs(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch ends half way with a StateError, and so does who waits for a turn."""
    model = open_text(slow.path, max_context_length=4096, batch_size=512)
    outcomes, errors = watch(model, monkeypatch), list[StateError]()

    def read() -> None:
        try:
            write(model, slow.prompt, limit=5)
        except StateError as exc:
            errors.append(exc)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    model.close()
    for thread in threads:
        thread.join()
    assert len(errors) == 3
    assert outcomes[-1] is False


def test_error_more_texts_than_sessions(endless: Path) -> None:
    """One more than may be written at once is refused; a seat that is freed is taken."""
    model = open_text(endless, sessions=2)
    first, second, third = (start(model, "hello") for _ in range(3))
    next(first)
    next(second)
    with pytest.raises(BusyError, match="2 texts already"):
        next(third)
    first.close()
    assert len(write(model, "hello")) == 12
    second.close()
    model.close()


def test_error_no_memory_for_a_text_more(
    endless: Path, open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context that does not fit is refused before it is made; the text that runs goes on."""
    model = open_model(endless)
    monkeypatch.setattr("cartridge_gguf.lanes.available_bytes", lambda: 1 << 10)
    with closing(start(model, [300, 301])) as first:
        next(first)
        with pytest.raises(
            BusyError, match=r"writes 1 texts .* takes \d+ MiB, of which 0 are free"
        ):
            write(model, [300, 302])
        assert next(first)
    assert write(model, [300, 302])


def test_error_a_model_that_writes_no_text(bert: Path) -> None:
    """An embedding model is not opened, and the message says what it is."""
    with pytest.raises(LoadError, match="architecture bert does not write texts"):
        open_text(bert, max_context_length=0)


def test_error_no_room_for_a_context(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose first context cannot be made is not opened."""
    from cartridge_gguf._llama import C

    monkeypatch.setattr(C, "llama_init_from_model", lambda *_: None)
    with pytest.raises(LoadError, match="try a smaller max_context_length"):
        open_text(llama)
