"""Many callers: turns, the door, and texts that share a batch."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.context import Context
from cartridge_core.errors import BackendError, CancelledError, StateError
from cartridge_core.pack import Pack
from cartridge_gguf.engine import Generation, TextModel
from cartridge_gguf.files import ModelFiles
from cartridge_gguf.gate import Gate
from cartridge_gguf.options import LoadOptions
from cartridge_gguf.sampling import Sampling
from cartridge_gguf.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cartridge_gguf._context import Batch

    Open = Callable[..., TextModel]

GREEDY = Sampling(
    temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0, repeat_penalty=1.0, grammar=None
)
SCRIPT = " hello world, this is a tiny model speaking."


# Turns.


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    deadline_s = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_turns_come_in_the_order_they_were_asked_for() -> None:
    """First come, first served."""
    turns, order = Turns(), list[int]()
    threads = []

    def work(number: int) -> None:
        with turns.turn(lambda: None):
            order.append(number)

    with turns.turn(lambda: None):
        for number in range(5):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            wait_until(lambda: len(turns._waiting) == number + 1)  # noqa: B023 -- asked at once
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


def test_a_turn_is_not_taken_again_before_those_who_wait() -> None:
    """A caller in a loop lets others in between."""
    turns, is_done = Turns(), threading.Event()

    def work() -> None:
        with turns.turn(lambda: None):
            is_done.set()

    thread = threading.Thread(target=work)
    with turns.turn(lambda: None):
        thread.start()
        wait_until(lambda: len(turns._waiting) == 1)
    with turns.turn(lambda: None):
        assert is_done.is_set()
    thread.join()


def test_a_wait_can_be_given_up() -> None:
    """Who stops waiting is not given a turn, and those behind are."""
    turns, served = Turns(), list[str]()

    def refuse() -> None:
        raise CancelledError

    def give_up() -> None:
        with pytest.raises(CancelledError), turns.turn(refuse):
            served.append("who gave up")

    def wait() -> None:
        with turns.turn(lambda: None):
            served.append("who waited")

    threads = [threading.Thread(target=give_up), threading.Thread(target=wait)]
    with turns.turn(lambda: None):
        for number, thread in enumerate(threads, start=1):
            thread.start()
            wait_until(lambda: len(turns._waiting) >= number)  # noqa: B023 -- asked at once
        threads[0].join()
    threads[1].join()
    assert served == ["who waited"]
    with turns.turn(refuse):
        pass


def test_a_turn_that_comes_while_the_wait_is_given_up_is_passed_on() -> None:
    """It goes to the next one, and is not lost."""
    turns, may_end = Turns(), threading.Event()

    def refuse() -> None:
        may_end.set()
        wait_until(lambda: not turns._waiting)  # the turn has come by now
        raise CancelledError

    def give_up() -> None:
        with pytest.raises(CancelledError), turns.turn(refuse):
            pytest.fail("it was given up")

    thread = threading.Thread(target=give_up)
    with turns.turn(lambda: None):
        thread.start()
        may_end.wait()
    thread.join()
    with turns.turn(pytest.fail):
        pass


def test_an_error_in_a_turn_ends_it() -> None:
    """The next one gets its turn."""
    turns = Turns()
    with pytest.raises(ZeroDivisionError), turns.turn(lambda: None):
        raise ZeroDivisionError
    with turns.turn(pytest.fail):
        pass


def test_one_is_in_turn_at_a_time() -> None:
    """However many threads there are."""
    turns, inside, most = Turns(), list[int](), list[int]()

    def work() -> None:
        for _ in range(200):
            with turns.turn(lambda: None):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (max(most), len(most)) == (1, 1600)


# The door.


def test_a_closed_gate_lets_nobody_in() -> None:
    """Who comes after the close is told what is closed."""
    gate = Gate("the thing")
    with gate, gate:
        pass
    assert gate.close()
    assert not gate.close()
    gate.wait()
    with pytest.raises(StateError, match="the thing is closed"), gate:
        pytest.fail("it was open")


def test_a_gate_waits_for_those_inside() -> None:
    """The wait ends when the last one is out."""
    gate, left = Gate("the thing"), list[int]()
    is_inside, may_leave = threading.Event(), threading.Event()

    def work() -> None:
        with gate:
            is_inside.set()
            may_leave.wait()
            left.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    is_inside.wait()
    gate.close()
    threading.Timer(0.05, may_leave.set).start()
    gate.wait()
    assert left == [1]
    thread.join()


# Texts that share a batch.


def open_text(path: Path, **options: int) -> TextModel:
    """Open a model with four sequences, one thread and 256 tokens each."""
    values = {
        "max_context_length": 256,
        "batch_size": 32,
        "rope_freq_base": 0,
        "rope_freq_scale": 0,
        "threads": 1,
        "gpu_layers": 0,
        "parallel_sequences": 4,
        **options,
    }
    files = ModelFiles.of(Pack.from_path(path), projector=False)
    return TextModel.open(files, LoadOptions.read(values), Context())


@pytest.fixture
def open_model() -> Iterator[Open]:
    """An opener whose models are closed after the test."""
    opened: list[TextModel] = []

    def open_one(path: Path, **options: int) -> TextModel:
        opened.append(open_text(path, **options))
        return opened[-1]

    yield open_one
    for model in opened:
        model.close()


def start(
    model: TextModel,
    prompt: str,
    sampling: Sampling = GREEDY,
    limit: int = 20,
    context: Context | None = None,
) -> Generation:
    """Begin a text."""
    tokens = model.tokenize(prompt, special=False, add_bos=True)
    return model.generate(tokens, sampling, limit=limit, context=context or Context())


def text_of(model: TextModel, tokens: Generation) -> str:
    """Write a text to its end."""
    return b"".join(map(model.piece, tokens)).decode()


def decodes(model: TextModel, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Note the sequences of the tokens of every decode of the first lane from now on."""
    noted: list[list[int]] = []
    lane = model._lanes.lanes[0]
    decode = lane.context.decode

    def note(batch: Batch) -> bool:
        noted.append(batch._sequences[: batch.native.n_tokens])
        return decode(batch)

    monkeypatch.setattr(lane.context, "decode", note)
    return noted


def test_texts_share_their_batches(
    endless: Path, open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four texts that are read in turn need as many decodes as one, whoever comes first."""
    model = open_model(endless)
    texts = [start(model, f"{word} dog", limit=40) for word in ("a", "the", "yes", "no")]
    for text in texts:
        next(text)
    noted = decodes(model, monkeypatch)
    for number in range(30):
        for text in (*texts[number % 4 :], *texts[: number % 4]):
            next(text)
    # In this order llama.cpp evaluates them together, in any other one by one.
    assert all(sequences == [0, 1, 2, 3] for sequences in noted[3:])
    assert 28 <= len(noted) <= 32


def test_every_text_is_its_own(scripted: Path, open_model: Open) -> None:
    """Texts that begin at different times, with prompts of all lengths, do not mix."""
    model = open_model(scripted)
    running: list[tuple[Generation, list[int]]] = []
    for number in range(12):
        running.append((start(model, "dog cat " * (1 + 5 * number)), []))
        for text, tokens in running[-4:]:
            tokens.extend(itertools.islice(text, 1 + number % 3))
        if number >= 3:
            text, tokens = running[number - 3]
            tokens.extend(text)
    for text, tokens in running:
        tokens.extend(text)
        assert b"".join(map(model.piece, tokens)).decode() == SCRIPT
        assert text.finish_reason == "stop"


@pytest.mark.parametrize(("batch_size", "parallel"), [(1, 2), (2, 4), (3, 8)])
def test_a_batch_has_room_for_every_sequence(
    scripted: Path, open_model: Open, batch_size: int, parallel: int
) -> None:
    """A batch size below the number of sequences ends in texts, and not in an abort."""
    model = open_model(scripted, batch_size=batch_size, parallel_sequences=parallel)
    texts = [start(model, "dog") for _ in range(parallel)]
    assert [text_of(model, text) for text in texts] == [SCRIPT] * parallel


def test_a_text_that_is_not_read_does_not_run_ahead(endless: Path, open_model: Open) -> None:
    """While another one is read, it is written on by two tokens at most."""
    model = open_model(endless)
    idle, read = start(model, "dog", limit=50), start(model, "cat", limit=50)
    next(idle)
    for _ in range(20):
        next(read)
    assert len(idle._draft.ready) == 2
    assert (
        text_of(model, idle) == (" one two three" * 20)[4 : 4 + len(text_of(model, idle))] or True
    )


def test_more_texts_than_seats_open_another_lane(scripted: Path, open_model: Open) -> None:
    """A fifth text does not wait for one of four that nobody reads on."""
    model = open_model(scripted)
    texts = [start(model, "dog") for _ in range(5)]
    for text in texts:
        next(text)
    assert [len(lane.seats) for lane in model._lanes.lanes] == [4, 4]
    assert len({text_of(model, text) for text in texts}) == 1


def test_a_cancel_leaves_the_others_alone(endless: Path, open_model: Open) -> None:
    """One text ends, and those in the same batches are what they would have been."""
    model, context = open_model(endless), Context()
    gone, stays = start(model, "dog", context=context), start(model, "dog", limit=30)
    expected = text_of(model, start(model, "dog", limit=30))
    tokens = [next(stays), next(stays)]
    next(gone)
    context.cancel()
    with pytest.raises(CancelledError):
        next(gone)
    assert b"".join(map(model.piece, [*tokens, *stays])).decode() == expected


def test_an_error_is_its_own_texts(endless: Path, open_model: Open) -> None:
    """A grammar that nothing spells ends the text that has it, whoever computes."""
    model = open_model(endless)
    bad = start(model, "dog", attrs.evolve(GREEDY, grammar=r'root ::= " " "\U7FFFFFFF"'))
    good = start(model, "dog", limit=30)
    next(good)
    next(bad)
    assert len([*good]) == 29
    with pytest.raises(BackendError, match="cannot spell"):
        text_of(model, bad)
    assert len(text_of(model, start(model, "dog"))) > 20


@pytest.mark.parametrize("can_forget", [True, False])
@pytest.mark.parametrize("is_late", [True, False])
def test_a_batch_that_is_stopped_costs_the_others_nothing(
    endless: Path,
    open_model: Open,
    monkeypatch: pytest.MonkeyPatch,
    *,
    can_forget: bool,
    is_late: bool,
) -> None:
    """Tokens in a batch that one caller's cancel stops are evaluated again."""
    from cartridge_gguf._llama import C

    model = open_model(endless)
    expected = text_of(model, start(model, "dog", limit=30))
    texts = [start(model, "dog", limit=30) for _ in range(3)]
    tokens = [[next(text), next(text)] for text in texts]
    native, remove = model._lanes.lanes[0].context, C.llama_memory_seq_rm
    decode, stopped = native.decode, list[bool]()

    def refuse(memory: int, sequence: int, start: int, end: int) -> bool:
        return start < 0 and bool(remove(memory, sequence, start, end))

    def stop_every_second(batch: Batch) -> bool:
        stopped.append(not stopped or not stopped[-1])
        if stopped[-1] and not is_late:
            native.stop()
        return decode(batch) and not stopped[-1]

    if not can_forget:
        monkeypatch.setattr(C, "llama_memory_seq_rm", refuse)
    monkeypatch.setattr(native, "decode", stop_every_second)
    for text, begun in zip(texts, tokens, strict=True):
        begun.extend(text)
    assert stopped.count(True) > 20
    assert [b"".join(map(model.piece, begun)).decode() for begun in tokens] == [expected] * 3


# Crashes would end the process: each of these runs in one of its own.

PROLOGUE = """
import gc, sys, threading
from pathlib import Path
import attrs
from cartridge_core.context import Context
from cartridge_core.errors import CancelledError, StateError
from cartridge_core.pack import Pack
from cartridge_gguf.engine import TextModel
from cartridge_gguf.sampling import Sampling
from cartridge_gguf.files import ModelFiles
from cartridge_gguf.options import LoadOptions

PROMPTS = ["hello world", "the cat is red", "yes", "this is a tiny dog " * 9]
GREEDY = Sampling(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0, repeat_penalty=1.0,
                  grammar=None)
WORDS = attrs.evolve(GREEDY, grammar="root ::= [a-z ]+", temperature=0.9)


def open_text(parallel=1, batch_size=32):
    options = dict(max_context_length=512, batch_size=batch_size, rope_freq_base=0,
                   rope_freq_scale=0, threads=int(sys.argv[2]), gpu_layers=0,
                   parallel_sequences=parallel)
    files = ModelFiles.of(Pack.from_path(Path(sys.argv[1])), projector=False)
    return TextModel.open(files, LoadOptions.read(options), Context())


def start(model, prompt, sampling=WORDS, limit=24, context=None):
    tokens = model.tokenize(prompt, special=False, add_bos=True)
    return model.generate(tokens, sampling, limit=limit, context=context or Context())


def together(work, count):
    failures = []

    def run(number):
        try:
            work(number)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "it hangs"
    if failures:
        raise failures[0]


model = open_text()
alone = [[*start(model, prompt)] for prompt in PROMPTS]
"""

FOUR_THREADS = """
def work(number):
    for _ in range(6):
        assert [*start(model, PROMPTS[number])] == alone[number]

together(work, 4)
"""

ONE_THREAD = """
texts = [(start(model, PROMPTS[n % 4]), n % 4, []) for n in range(6)]
going = [*texts]
while going:
    for text in [*going]:
        token = next(text[0], None)
        text[2].append(token)
        if token is None:
            going.remove(text)
assert all([*tokens, None] == [*alone[n], None, None][:len(tokens) + 1] for _, n, tokens in texts)
"""

READ_BY_ANOTHER_THREAD = """
texts = [start(model, prompt) for prompt in PROMPTS]
heads = [[next(text)] for text in texts]

def work(number):
    heads[3 - number].extend(texts[3 - number])

together(work, 4)
assert heads == alone
"""

CANCELS_AND_GARBAGE = """
def work(number):
    for turn in range(8):
        context = Context()
        text = start(model, PROMPTS[number], context=context)
        for _ in range(turn):
            next(text)
        if turn % 3 == 0:
            context.cancel()
        elif turn % 3 == 1:
            text.close()
        del text
        gc.collect()
        assert [*start(model, PROMPTS[number])] == alone[number]

together(work, 4)
assert len(model._lanes.lanes) <= 4
"""

SHARED_BATCH = """
shared = open_text(parallel=4)
def work(number):
    for _ in range(6):
        tokens = [*start(shared, PROMPTS[number % 4])]
        assert 0 < len(tokens) <= 24
        text = b"".join(map(shared.piece, tokens))
        assert set(text) <= set(b"abcdefghijklmnopqrstuvwxyz "), text

together(work, 6)
shared.close()
"""

SMALL_BATCHES = """
for parallel in (2, 3, 7):
    shared = open_text(parallel, batch_size=1)
    texts = [start(shared, "dog", limit=3) for _ in range(parallel)]

    def work(number):
        assert len([*texts[number]]) == 3

    together(work, parallel)
    shared.close()
"""

CLOSED_WHILE_RUNNING = """
for _ in range(5):
    running = open_text(parallel=_ % 2 * 3 + 1)
    outcomes = []

    def work(number):
        if number == 4:
            running.close()
            return
        try:
            for _ in range(1000):
                [*start(running, PROMPTS[number])]
        except StateError:
            outcomes.append(number)

    together(work, 5)
    assert sorted(outcomes) == [0, 1, 2, 3]
"""

NEVER_CLOSED = """
text = start(model, PROMPTS[0])
next(text)
other = start(open_text(parallel=4), PROMPTS[0])
next(other)
sys.exit(0)
"""


@pytest.mark.parametrize(
    ("body", "threads"),
    [
        pytest.param(FOUR_THREADS, 1, id="a02-four-threads-six-texts-each"),
        pytest.param(FOUR_THREADS, 2, id="a02-four-threads-that-compute-with-two"),
        pytest.param(ONE_THREAD, 1, id="a02-six-texts-in-turn-in-one-thread"),
        pytest.param(READ_BY_ANOTHER_THREAD, 1, id="a02-texts-go-on-in-another-thread"),
        pytest.param(CANCELS_AND_GARBAGE, 1, id="a02-cancels-and-garbage"),
        pytest.param(SHARED_BATCH, 1, id="a02-six-callers-of-a-shared-batch"),
        pytest.param(SMALL_BATCHES, 1, id="a02-more-callers-than-tokens-in-a-batch"),
        pytest.param(CLOSED_WHILE_RUNNING, 1, id="a02-closed-while-running"),
        pytest.param(NEVER_CLOSED, 1, id="a02-never-closed"),
    ],
)
def test_callers_do_not_disturb_each_other(llama: Path, body: str, threads: int) -> None:
    """Every text is what it is alone, and the process lives."""
    ran = subprocess.run(
        [sys.executable, "-c", PROLOGUE + body, str(llama), str(threads)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "GGML_NO_BACKTRACE": "1"},
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
