"""How long a caller waits for `CancelledError` after he cancelled, at moments taken at random."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.callers import percentile_95
from benchmarks.embeddings import CAP, ID, MINILM, PLUGINS, texts_of
from benchmarks.llama_texts import INFERENCE
from benchmarks.measuring import QUICK
from benchmarks.rows import Row, version_of
from benchmarks.workers import GGUF, SMOLLM2, WRITER
from cartridge_core import CancelledError, CartridgeError, Phase, Progress, Registry
from cartridge_core.tasks import download_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring import Effort
    from cartridge_core import Call

__all__ = ["measure"]

_BUDGET_S = 0.25
_CANCELS = 40
_WORDS = 1000


def measure(effort: Effort) -> Iterator[Row]:
    """Cancel in the middle of a computation."""
    yield _embedding(effort)
    yield _prompt(effort)


def _embedding(effort: Effort) -> Row:
    name = "256 long texts, MiniLM on one thread"
    if missing := [plugin for plugin in PLUGINS if version_of(plugin) is None]:
        return Row("cancel", name, note=f"{' and '.join(missing)} not installed")
    with Registry.discover() as registry:
        try:
            folder = download_model(registry, MINILM).path
        except CartridgeError as exc:
            return Row("cancel", name, note=f"no model: {str(exc).splitlines()[0]}")
        texts = texts_of(256, 180)
        start = partial(
            registry.stream, CAP, texts, cartridge_id=ID, model_spec=folder, device="cpu"
        )
        return _row(name, start, 1.0, effort)


def _prompt(effort: Effort) -> Row:
    name = f"a prompt of {_WORDS} words, SmolLM2 on one thread, in a process"
    if missing := [one for one in GGUF if version_of(one) is None]:
        return Row("cancel", name, note=f"{' and '.join(missing)} not installed")
    with Registry.discover(isolation={WRITER: "process"}) as registry:
        try:
            model = download_model(registry, SMOLLM2).path
        except CartridgeError as exc:
            return Row("cancel", name, note=f"no model: {str(exc).splitlines()[0]}")
        # What was read before is not read again.
        prompts = iter(texts_of(_CANCELS + 1, _WORDS))

        def start() -> Call:
            return registry.stream(
                INFERENCE,
                {"prompt": next(prompts), "max_tokens": 1},
                cartridge_id=WRITER,
                model_spec=model,
                threads=1,
                max_context_length=2048,
            )

        return _row(name, start, 1.0, effort)


def _row(name: str, start: Callable[[], Call], within_s: float, effort: Effort) -> Row:
    """
    Cancel many calls.

    Args:
        name: What they do.
        start: Starts one.
        within_s: Up to so many seconds after it began to compute it is cancelled; it must take
            longer.
        effort: How much time it is worth.
    """
    chance = random.Random(0)  # noqa: S311 -- the same moments every time
    count = 5 if effort is QUICK else _CANCELS
    took = [_cancel(start(), chance.uniform(0, within_s)) for _ in range(count)]
    return Row(
        "cancel",
        f"{name}, p95",
        measured=percentile_95(took),
        budget=_BUDGET_S,
        note=f"from cancel() to CancelledError; the longest of {count} {1000 * max(took):.0f} ms",
        samples=[(seconds,) for seconds in took],
    )


def _cancel(call: Call, after_s: float) -> float:
    """Cancel a call some time after it began to compute; give the seconds that it takes to end."""
    for event in call:
        if isinstance(event, Progress) and event.phase is Phase.INFER:
            break
    time.sleep(after_s)
    start = time.perf_counter()
    call.cancel()
    try:
        call.result()
    except CancelledError:
        return time.perf_counter() - start
    msg = "the call ended before it could be cancelled"
    raise ValueError(msg)
