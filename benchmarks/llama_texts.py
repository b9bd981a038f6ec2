"""Writing texts: tokens a second, the first token, and reading the prompt."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Protocol, cast

from benchmarks.embeddings import texts_of
from benchmarks.measuring import QUICK, interleave, on_another_core, on_cores, ratio, seconds
from benchmarks.rows import Row
from cartridge_core import Registry, Result, ResultKind

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.measuring import Effort

    Messages = Sequence[Mapping[str, str]]

__all__ = ["BATCH", "CONTEXT", "INFERENCE", "WAYS", "greedy", "measure_texts"]

INFERENCE = "cap:gguf;llm;llm-inference;ml-model"
WAYS = ("inline", "process")
"""Where our side runs."""

CONTEXT, BATCH = 2048, 512
_PARITY = 0.98
_FASTER = 1.03


class _Write(Protocol):
    """Writes an answer; gives its pieces as they come."""

    def __call__(self, messages: Messages, max_tokens: int) -> Generator[str]:
        """Answer a chat, greedily."""


def measure_texts(model: Path, threads: int, effort: Effort) -> Iterator[Row]:
    """Measure with a model and so many threads."""
    tokens, words = (16, 40) if effort is QUICK else (64, 300)
    with on_cores(threads), _writers(model, threads) as writers:
        chat = _chat("Write about the sea.")
        _check_equal(["".join(write(chat, tokens)) for write in writers])

        def rows(
            name: str, turn: Callable[[_Write], Callable[[], float]], least: float
        ) -> Iterator[Row]:
            rounds = interleave([turn(write) for write in writers], effort)
            for place, way in enumerate(WAYS):
                yield Row(
                    "gguf",
                    f"{name}, threads={threads}, {way}",
                    measured=ratio(rounds, place, len(WAYS)),
                    budget=least,
                    unit="ratio",
                    note="llama_cpp.Llama's time over ours",
                    samples=[(times[place], times[-1]) for times in rounds],
                )

        least = _FASTER if threads == 1 else _PARITY
        yield from rows(f"{tokens} tokens", lambda write: _whole(write, chat, tokens), least)
        yield from rows("the first token", lambda write: _first(write, 40), _PARITY)
        yield from rows(f"a prompt of {words} words", lambda write: _first(write, words), _PARITY)


def greedy(messages: Messages, max_tokens: int) -> dict[str, object]:
    """Make the request of an answer that is the same every time."""
    return {
        "messages": [dict(message) for message in messages],
        "max_tokens": max_tokens,
        "temperature": 0.0,
        "repeat_penalty": 1.0,
    }


@contextlib.contextmanager
def _writers(model: Path, threads: int) -> Iterator[list[_Write]]:
    """Give our ways to write, and last the backend's own."""
    from llama_cpp import Llama

    llama = Llama(
        str(model),
        n_ctx=CONTEXT,
        n_batch=BATCH,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
    )

    def direct(messages: Messages, max_tokens: int) -> Generator[str]:
        chunks = llama.create_chat_completion(
            cast("list[object]", messages),  # type: ignore[arg-type]
            max_tokens=max_tokens,
            temperature=0.0,
            stream=True,
        )
        for chunk in chunks:
            delta = cast("dict[str, list[dict[str, dict[str, str]]]]", chunk)["choices"][0]["delta"]
            if delta.get("content"):
                yield delta["content"]

    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(llama))
        registries = [stack.enter_context(Registry.discover(isolation=way)) for way in WAYS]
        yield [*(_ours(registry, model, threads) for registry in registries), direct]


def _ours(registry: Registry, model: Path, threads: int) -> _Write:
    def write(messages: Messages, max_tokens: int) -> Generator[str]:
        started = registry.stream(
            INFERENCE,
            greedy(messages, max_tokens),
            model_spec=model,
            threads=threads,
            max_context_length=CONTEXT,
            batch_size=BATCH,
        )
        with started as call, on_another_core():
            for event in call:
                if isinstance(event, Result) and event.kind is ResultKind.PARTIAL:
                    yield str(event.payload)

    return write


def _whole(write: _Write, chat: Messages, tokens: int) -> Callable[[], float]:
    """Time a whole answer to a prompt that was read before."""
    return lambda: seconds(lambda: list(write(chat, tokens)))


def _first(write: _Write, words: int) -> Callable[[], float]:
    """Time the first piece of answers to prompts that nobody read before."""
    numbers = itertools.count()
    (text,) = texts_of(1, words)

    def turn() -> float:
        # The number comes first, so that nothing is reused of the prompt before.
        pieces = write(_chat(text, f"Chat {next(numbers)}"), 8)
        with contextlib.closing(pieces):
            return seconds(lambda: next(pieces))

    return turn


def _chat(text: str, system: str = "Be brief.") -> Messages:
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


def _check_equal(texts: Sequence[str]) -> None:
    """Make sure that all write the same; else their times say nothing."""
    if len(set(texts)) > 1 or not texts[0]:
        msg = f"the texts differ: {texts!r}"
        raise ValueError(msg)
