"""The native classes: what is logged, loaded, evaluated, forgotten and chosen."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.context import Context as HostContext
from cartridge_core.errors import BackendError, CancelledError, InvalidArgumentError, LoadError
from cartridge_core.progress import Log, Progress
from cartridge_gguf._log import NativeLog
from cartridge_gguf.sampling import Sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cartridge_gguf._context import Context
    from cartridge_gguf._model import Model

    Make = Callable[..., Context]

INFO, WARNING, ERROR, CONTINUATION = 2, 3, 4, 5
GREEDY = Sampling(temperature=0, top_k=0, top_p=1, min_p=0, seed=0, repeat_penalty=1, grammar=None)


@pytest.fixture
def model(llama: Path) -> Iterator[Model]:
    """The random language model."""
    loaded = load(llama)
    yield loaded
    loaded.close()


@pytest.fixture
def make(model: Model) -> Iterator[Make]:
    """A maker of contexts of the random model, 256 tokens long."""
    from cartridge_gguf._context import Context, ContextSettings

    made: list[Context] = []

    def make_one(sequences: int = 1) -> Context:
        settings = ContextSettings(
            length=256,
            sequences=sequences,
            batch_size=64,
            threads=1,
            rope_freq_base=0,
            rope_freq_scale=0,
        )
        made.append(Context(model, settings))
        return made[-1]

    yield make_one
    for context in made:
        context.close()


def load(path: Path, context: HostContext | None = None) -> Model:
    """Load a model."""
    from cartridge_gguf._model import Model

    return Model.load(path, context or HostContext(), gpu_layers=0)


def evaluate(context: Context, tokens: Sequence[int], position: int = 0, sequence: int = 0) -> bool:
    """Evaluate tokens of one sequence."""
    from cartridge_gguf._context import Batch

    batch = Batch(context.batch_size)
    batch.add(tokens, position, sequence, outputs=1)
    return context.decode(batch)


def last_logits(context: Context) -> list[float]:
    """Give the logits behind the last token that was evaluated."""
    logits: list[float] = context.logits(-1).tolist()
    return logits


# What it says.


def lines_of(caplog: pytest.LogCaptureFixture, *pieces: tuple[int, str]) -> list[tuple[int, str]]:
    """Give the records that a log makes of some pieces."""
    log = NativeLog("cartridge.gguf.test")
    with caplog.at_level(logging.DEBUG, "cartridge.gguf.test"):
        for level, text in pieces:
            log.write(level, text)
        log.take_complaints()
    return [(record.levelno, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([(INFO, "one\n")], [(logging.INFO, "one")], id="one-line"),
        pytest.param(
            [(WARNING, "a "), (CONTINUATION, "b"), (CONTINUATION, "\n")],
            [(logging.WARNING, "a b")],
            id="continuations-are-joined",
        ),
        pytest.param(
            [(ERROR, "a\nb\nc"), (CONTINUATION, "d\n")],
            [(logging.ERROR, "a"), (logging.ERROR, "b"), (logging.ERROR, "cd")],
            id="several-lines-in-a-piece",
        ),
        pytest.param(
            [(INFO, "cut"), (ERROR, "other\n")],
            [(logging.INFO, "cut"), (logging.ERROR, "other")],
            id="a-new-level-ends-a-line",
        ),
        pytest.param(
            [(INFO, "."), (CONTINUATION, ".")], [(logging.INFO, "..")], id="no-line-feed-at-all"
        ),
        pytest.param([(INFO, "\n"), (INFO, "  \n")], [], id="blank-lines-are-dropped"),
        pytest.param([(99, "odd\n")], [(logging.DEBUG, "odd")], id="unknown-level"),
    ],
)
def test_native_pieces_become_lines(
    caplog: pytest.LogCaptureFixture,
    pieces: list[tuple[int, str]],
    expected: list[tuple[int, str]],
) -> None:
    """Every line is one record, with the level of its first piece."""
    assert lines_of(caplog, *pieces) == expected


def test_complaints_are_the_last_ones_of_their_thread() -> None:
    """Warnings and errors can be fetched once, the last eight, by the thread they came up in."""
    log = NativeLog("cartridge.gguf.test")
    thread = threading.Thread(target=lambda: log.write(ERROR, "of another\n"))
    thread.start()
    thread.join()
    log.write(INFO, "no complaint\n")
    for number in range(10):
        log.write(WARNING, f"w{number}\n")
    assert log.take_complaints() == "w2; w3; w4; w5; w6; w7; w8; w9"
    assert log.take_complaints() == ""


def test_nothing_is_printed(
    llama: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whether a load works or not, all that the backend says goes to logging."""
    (tmp_path / "bad.gguf").write_bytes(llama.read_bytes()[:5000])
    with caplog.at_level(logging.DEBUG, "cartridge.gguf.llama"):
        load(llama).close()
        with pytest.raises(LoadError):
            load(tmp_path / "bad.gguf")
    assert capfd.readouterr() == ("", "")
    levels = {record.levelno for record in caplog.records}
    assert {logging.INFO, logging.ERROR} <= levels


def test_mtmd_is_heard(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    """The logs of mtmd go to a logger of their own."""
    from cartridge_gguf._llama import mtmd_cpp

    with caplog.at_level(logging.DEBUG, "cartridge.gguf.mtmd"):
        parameters = mtmd_cpp.mtmd_context_params_default()
        assert mtmd_cpp.mtmd_init_from_file(b"/nonesuch", None, parameters) is None
    assert capfd.readouterr() == ("", "")
    assert "cartridge.gguf.mtmd" in {record.name for record in caplog.records}


# Loading.


def test_error_the_backend_refuses_a_file(tmp_path: Path) -> None:
    """A LoadError names the file and quotes what the backend said about it."""
    import gguf

    path = tmp_path / "odd.gguf"
    writer = gguf.GGUFWriter(path, "nonesuch")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(LoadError, match="unknown model architecture: 'nonesuch'") as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_loading_tells_its_progress(llama: Path) -> None:
    """The fractions rise to 1."""
    said: list[Progress | Log] = []
    load(llama, HostContext(said.append)).close()
    fractions = [item.fraction for item in said if isinstance(item, Progress)]
    assert len(fractions) > 10
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1


def test_loading_can_be_cancelled(llama: Path) -> None:
    """A cancel stops it, and the next load works."""
    context = HostContext(lambda _: context.cancel())
    with pytest.raises(CancelledError):
        load(llama, context)
    load(llama).close()


def test_an_error_of_the_host_ends_the_load(llama: Path) -> None:
    """What the host raises where it is told the progress comes out as it is."""

    def fail(item: Progress | Log) -> None:
        raise ZeroDivisionError(item.message)

    with pytest.raises(ZeroDivisionError, match=llama.name):
        load(llama, HostContext(fail))


def test_a_model_in_two_files_is_loaded(shards: Sequence[Path], model: Model) -> None:
    """The first file brings the others."""
    split = load(shards[0])
    assert split.vocabulary_size == model.vocabulary_size
    split.close()


# Vocabulary.


@pytest.mark.parametrize("text", ["", "hello world", "漢字 é 🦙", "a\0b", "x" * 5000, "<|im_end|>"])
def test_tokens_spell_their_text(model: Model, text: str) -> None:
    """What was taken apart is put together again, but for the space that goes before."""
    tokens = model.tokenize(text, special=False, add_bos=False)
    assert b"".join(map(model.piece, tokens)).decode().removeprefix(" ") == text


def test_special_tokens_are_read_where_asked_for(model: Model) -> None:
    """The text of a control token is that token, or is spelled."""
    (end,) = model.tokenize("<|im_end|>", special=True, add_bos=False)
    assert model.spelling(end) == "<|im_end|>"
    assert model.is_end(end)
    assert (model.piece(end), model.piece(end, special=True)) == (b"", b"<|im_end|>")
    assert len(model.tokenize("<|im_end|>", special=False, add_bos=False)) > 1


def test_bos_is_added_where_asked_for(model: Model) -> None:
    """The token that begins a sequence comes first, once."""
    plain = model.tokenize("hello", special=False, add_bos=False)
    assert model.tokenize("hello", special=False, add_bos=True)[1:] == plain
    assert (model.bos, model.eos) == ("<s>", "</s>")


def test_control_texts_are_all_there_are(model: Model) -> None:
    """Each of them is one token where special ones are read, and several elsewhere."""
    texts = model.control_texts
    assert {"<s>", "</s>", "<|im_start|>", "<|im_end|>"} <= {*texts}
    for text in texts:
        assert (
            model.tokenize(text, special=True, add_bos=False)[-1:]
            != (model.tokenize(text, special=False, add_bos=False)[-1:])
        )


def test_the_chat_template_is_the_files(model: Model, bare: Path) -> None:
    """None where the file has none."""
    assert "im_start" in (model.chat_template or "")
    plain = load(bare)
    assert plain.chat_template is None
    plain.close()


# Evaluating.


def test_what_is_evaluated_together_or_in_two_parts_is_the_same(make: Make) -> None:
    """A token's logits depend, bit for bit, on nothing but whether it was alone in its batch."""
    tokens = [*range(300, 340)]
    whole, parts, alone = make(), make(), make()
    evaluate(whole, tokens)
    for start, end in ((0, 7), (7, 38), (38, 40)):
        evaluate(parts, tokens[start:end], start)
    evaluate(alone, tokens[:39])
    evaluate(alone, tokens[39:], 39)
    assert last_logits(parts) == last_logits(whole)
    assert last_logits(alone) == pytest.approx(last_logits(whole), abs=1e-4)


def test_a_part_is_forgotten(make: Make) -> None:
    """What was kept is gone on from."""
    tokens = [*range(300, 340)]
    fresh, used = make(), make()
    evaluate(fresh, tokens)
    evaluate(used, [*tokens[:20], *range(400, 430)])
    assert used.keep(0, 20) == 20
    evaluate(used, tokens[20:], 20)
    assert last_logits(used) == last_logits(fresh)


def test_a_model_that_cannot_forget_a_part_forgets_all(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the backend refuses, nothing is kept."""
    from cartridge_gguf._llama import C

    remove = C.llama_memory_seq_rm
    context = make()
    evaluate(context, [1, 2, 3, 4])

    def refuse(memory: int, sequence: int, start: int, end: int) -> bool:
        return start < 0 and bool(remove(memory, sequence, start, end))

    monkeypatch.setattr(C, "llama_memory_seq_rm", refuse)
    assert context.keep(0, 2) == 0
    assert C.llama_memory_seq_pos_max(context._memory, 0) == -1


def test_a_window_that_has_moved_on_keeps_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the backend has dropped what lies further back, the part is of no use."""
    from cartridge_gguf._llama import C

    context = make()
    evaluate(context, [1, 2, 3, 4])
    monkeypatch.setattr(C, "llama_memory_seq_pos_min", lambda *_: 1)
    assert context.keep(0, 3) == 0
    assert C.llama_memory_seq_pos_max(context._memory, 0) == -1


def test_a_stop_ends_a_decode_until_it_is_taken_back(make: Make) -> None:
    """A stopped decode says so, and its context works afterwards."""
    context, fresh = make(), make()
    context.stop()
    assert not evaluate(context, [1, 2, 3])
    context.go_on()
    assert context.keep(0, 0) == 0
    assert evaluate(context, [1, 2, 3])
    evaluate(fresh, [1, 2, 3])
    assert last_logits(context) == last_logits(fresh)


def test_a_stop_reaches_a_running_decode(tmp_path: Path) -> None:
    """From another thread, it ends within a part of the batch's time."""
    import time

    from tiny_models import Shape, write_llama

    from cartridge_gguf._context import Context, ContextSettings

    shape = Shape(width=256, layers=8, hidden=1024, context=4096)
    slow = load(write_llama(tmp_path / "slow.gguf", shape=shape)[0])
    settings = ContextSettings(
        length=4096, batch_size=4096, threads=1, rope_freq_base=0, rope_freq_scale=0
    )
    context = Context(slow, settings)
    timer = threading.Timer(0.05, context.stop)
    timer.start()
    begun_s = time.monotonic()
    is_done = evaluate(context, [300] * 4096)
    passed_s = time.monotonic() - begun_s
    timer.join()
    assert not is_done
    assert passed_s < 2
    context.close()
    slow.close()


def test_error_a_token_that_is_none(make: Make) -> None:
    """What the backend refuses is a BackendError with its own words."""
    with pytest.raises(BackendError, match=r"1 tokens: status -1 \(.*invalid token"):
        evaluate(make(), [100_000])


def test_error_a_context_that_cannot_be_made(make: Make) -> None:
    """What the backend says against a context is quoted."""
    with pytest.raises(BackendError, match=r"cannot make a context .* \(.*n_seq_max"):
        make(sequences=300)


# Choosing.


def choose(context: Context, tokens: Sequence[int], sampling: Sampling, count: int = 1) -> int:
    """Choose tokens that follow a prompt, as if each were the first; give the last one."""
    from cartridge_gguf._sampler import Sampler

    evaluate(context, tokens)
    with contextlib.closing(Sampler(context.model, sampling)) as sampler:
        return [sampler.sample(context.logits(-1), (context, -1)) for _ in range(count)][-1]


def test_the_likeliest_is_chosen(make: Make) -> None:
    """Temperature 0 takes the largest logit."""
    context = make()
    token = choose(context, [1, 300, 301], GREEDY)
    assert last_logits(context)[token] == max(last_logits(context))


def test_logits_apart_are_sampled_as_those_in_the_context(make: Make) -> None:
    """With one seed, a copy of the logits comes to the tokens that llama.cpp samples in place."""
    from cartridge_gguf._sampler import Sampler

    context = make()
    evaluate(context, [1, 300, 301])
    logits = context.logits(-1)
    sampling = attrs.evolve(GREEDY, temperature=1.5, seed=3)
    with (
        contextlib.closing(Sampler(context.model, sampling)) as here,
        contextlib.closing(Sampler(context.model, sampling)) as apart,
    ):
        tokens = [
            (here.sample(logits, (context, -1)), apart.sample(logits.copy())) for _ in range(30)
        ]
    assert all(one == other for one, other in tokens)
    assert len(set(tokens)) > 5


def test_a_repeat_penalty_is_llama_cpps(make: Make) -> None:
    """What it makes of the logits is what the backend's own sampler makes of them."""
    import ctypes

    import numpy as np

    from cartridge_gguf._llama import C
    from cartridge_gguf._sampler import _CANDIDATE, Sampler, _array_of

    context = make()
    evaluate(context, [1, 300, 301])
    logits, recent = last_logits(context), [5, 6, 7, 7, *range(300, 400)]
    native = C.llama_sampler_init_penalties(len(logits), 64, 1.3, 0.0, 0.0)
    sampler = Sampler(context.model, attrs.evolve(GREEDY, repeat_penalty=1.3))
    for token in recent:
        C.llama_sampler_accept(native, token)
        sampler._recent.append(token)
    candidates = np.array([(i, x, 0) for i, x in enumerate(logits)], dtype=_CANDIDATE)
    C.llama_sampler_apply(native, ctypes.byref(_array_of(candidates)))
    sampler._penalize(context.logits(-1))
    assert last_logits(context) == candidates["logit"].tolist() != logits
    C.llama_sampler_free(native)
    sampler.close()


@pytest.mark.parametrize("grammar", ["", " \n", 'root ::= "abc', 'foo ::= "a"', "root ::= missing"])
def test_error_a_grammar_that_the_backend_refuses(make: Make, grammar: str) -> None:
    """It is refused before anything is chosen; an empty one is none, and not taken for none."""
    with pytest.raises(InvalidArgumentError, match=r"grammar: .* refuses it"):
        choose(make(), [1, 300], attrs.evolve(GREEDY, grammar=grammar))


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_error_a_text_that_no_token_spells(make: Make, temperature: float) -> None:
    """Where the grammar allows no token at all, that is said, and the process lives."""
    nothing = r'root ::= "a\U7FFFFFFF"'
    sampling = attrs.evolve(GREEDY, grammar=nothing, temperature=temperature)
    with pytest.raises(BackendError, match="cannot spell"):
        choose(make(), [1, 300], sampling, count=8)
