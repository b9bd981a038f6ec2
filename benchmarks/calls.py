"""What the host adds to a backend's own work."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import isolated
from benchmarks.backend import Answering, AnsweringWithModel, Counting
from benchmarks.measuring import difference, interleave, on_cores, sampler
from benchmarks.nothing import answer, count
from benchmarks.rows import Row
from cartridge_core.testing import registry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring import Effort
    from cartridge_core import Registry

__all__ = ["measure"]

_INFER_S = 10e-6
_CALL_S = 80e-6
_EVENT_S = 20e-6
_PROCESS_CALL_S = 250e-6
_PROCESS_EVENT_S = 80e-6

_TEXT = "The cat sleeps on the warm windowsill."
_ANSWER = 'cap:answer;in="media:enc=utf-8";out="media:record"'
_COUNT = 'cap:count;in="media:integer;numeric";out="media:piece"'
_PIECES = 1000
_MODEL_FILES = 12
_OVER = "over the backend's own function"


def measure(effort: Effort) -> Iterator[Row]:
    """Infer in an open session, call what is resident, stream."""
    with registry_of(Answering()) as registry:
        yield _infer(registry, effort)
        yield _call("registry.call, resident", registry, effort)
        with on_cores(1):
            yield _call("registry.call, resident, on one core", registry, effort)
    with registry_of(AnsweringWithModel()) as registry, _model() as folder:
        name = f"registry.call, resident, a model of {_MODEL_FILES} files"
        note = f"{_OVER}; one stat a file is what identity costs"
        yield _call(name, registry, effort, model_spec=folder, budget=None, note=note)
    with registry_of(Counting()) as registry:
        yield _stream("registry.stream, per event", registry, _EVENT_S, effort)
    with registry_of(isolated, isolation="process") as registry:
        yield _call("registry.call, in a process", registry, effort, budget=_PROCESS_CALL_S)
        yield _stream("registry.stream, in a process", registry, _PROCESS_EVENT_S, effort)
    with on_cores(1), registry_of(isolated, isolation="process") as registry:
        name = "registry.call, in a process, on one core"
        yield _call(name, registry, effort, budget=_PROCESS_CALL_S)


def _infer(registry: Registry, effort: Effort) -> Row:
    with registry.open("answering-text") as cartridge, cartridge.session() as session:
        return _over("session.infer", lambda: session.infer(_TEXT), _INFER_S, effort)


def _call(
    name: str,
    registry: Registry,
    effort: Effort,
    *,
    model_spec: Path | None = None,
    budget: float | None = _CALL_S,
    note: str = _OVER,
) -> Row:
    def ours() -> object:
        return registry.call(_ANSWER, _TEXT, model_spec=model_spec)

    return _over(name, ours, budget, effort, note=note)


def _over(
    name: str,
    ours: Callable[[], object],
    budget: float | None,
    effort: Effort,
    *,
    note: str = _OVER,
) -> Row:
    turns = [sampler(ours, effort), sampler(lambda: answer(_TEXT), effort)]
    rounds = interleave(turns, effort)
    return Row(
        "call",
        name,
        measured=difference(rounds),
        budget=budget,
        note=note,
        samples=rounds,
    )


def _stream(name: str, registry: Registry, budget: float, effort: Effort) -> Row:
    def ours() -> None:
        events = sum(1 for _ in registry.stream(_COUNT, _PIECES))
        assert events > _PIECES  # noqa: S101 -- or it measures something else

    def direct() -> None:
        for _ in count(_PIECES):
            pass

    turns = [sampler(ours, effort), sampler(direct, effort)]
    rounds = [tuple(seconds / _PIECES for seconds in times) for times in interleave(turns, effort)]
    return Row(
        "call",
        f"{name}, {_PIECES} PARTIALs",
        measured=difference(rounds),
        budget=budget,
        note="over a plain generator",
        samples=rounds,
    )


@contextlib.contextmanager
def _model() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(_MODEL_FILES):
            Path(folder, f"{number}.json").write_text("{}")
        yield Path(folder)
