"""What a library in C costs through the host, and what the same calls cost a host in C."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measuring import difference, interleave, sampler
from benchmarks.rows import Row, version_of
from cartridge_core.testing import registry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring import Effort

__all__ = ["measure"]

_LOOP = Path(__file__).with_name("native_loop.c")
_RUNS = 1000
_RATE_HZ = 16_000


def measure(effort: Effort) -> Iterator[Row]:
    """Infer, and push and pull: through a session inline and in a process, and in C."""
    missing = [one for one in ("cartridge-native",) if version_of(one) is None]
    if missing or shutil.which("cc") is None:
        yield Row("native", "all", note="cartridge-native or a C compiler is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        loop = _compile(Path(folder))
        yield from _infer(Path(folder, "batch"), loop, effort)
        yield from _push(Path(folder, "streaming"), loop, effort)


def _compile(folder: Path) -> ctypes.CDLL:
    from native_packs import INCLUDE  # noqa: PLC0415 -- the plugin may be missing

    target = folder / "loop.so"
    words = ["cc", "-std=c11", "-O2", "-fPIC", "-shared", "-I", str(INCLUDE), str(_LOOP)]
    subprocess.run([*words, "-o", str(target)], check=True, timeout=60)  # noqa: S603 -- a compiler
    return ctypes.CDLL(str(target))


def _infer(folder: Path, loop: ctypes.CDLL, effort: Effort) -> Iterator[Row]:
    import numpy as np

    sound = np.random.default_rng(0).uniform(-0.5, 0.5, _RATE_HZ // 100).astype(np.float32)
    native = _Native("log_energies", folder)

    def direct() -> None:
        native.run(loop.loop_infer, ("ctg_infer", "ctg_result_release"), sound.tobytes())

    for isolation in ("inline", "process"):
        with (
            registry_of("native", packs=[native.pack], isolation=isolation) as registry,
            registry.open("native-log-energies") as cartridge,
            cartridge.session() as session,
        ):
            name = f"session.infer of 10 ms of sound, {isolation}"
            yield _over(name, lambda: session.infer(sound), direct, effort)
    yield _alone("the same in C", direct, effort)


def _push(folder: Path, loop: ctypes.CDLL, effort: Effort) -> Iterator[Row]:
    silence = bytes(2 * _RATE_HZ * 80 // 1000)
    native = _Native("endpointer", folder)
    functions = ("ctg_push", "ctg_pull", "ctg_result_release")

    def direct() -> None:
        native.run(loop.loop_push, functions, silence)

    for isolation in ("inline", "process"):
        with (
            registry_of("native", packs=[native.pack], isolation=isolation) as registry,
            registry.open("native-endpointer") as cartridge,
            cartridge.session() as session,
        ):

            def ours() -> None:
                session.push(silence)
                session.pull()

            name = f"push of 80 ms of sound and an empty pull, {isolation}"
            yield _over(name, ours, direct, effort)
    yield _alone("the same two in C", direct, effort)


class _Native:
    """A sample cartridge, and a session on it that no host of ours knows of."""

    def __init__(self, name: str, folder: Path) -> None:
        from native_packs import make_native_pack  # noqa: PLC0415 -- as above

        self.pack = make_native_pack(name, folder, "-O2")
        library = ctypes.CDLL(str(self.pack / "artifacts" / "runtime" / f"lib{name}.so"))
        cartridge, self._session = ctypes.c_void_p(), ctypes.c_void_p()
        library.ctg_open(str(self.pack).encode(), None, ctypes.byref(cartridge))
        library.ctg_session_begin(cartridge, None, ctypes.byref(self._session))
        self._library = library

    def run(self, loop: Callable[..., int], functions: tuple[str, ...], data: bytes) -> None:
        """Run a loop in C over some of its functions."""
        found = [getattr(self._library, function) for function in functions]
        status = loop(*found, self._session, data, ctypes.c_size_t(len(data)), _RUNS)
        assert status == 0  # noqa: S101 -- or it measures something else


def _over(
    name: str,
    ours: Callable[[], object],
    direct: Callable[[], object],
    effort: Effort,
) -> Row:
    turns = [sampler(ours, effort), sampler(direct, effort)]
    rounds = [(mine, theirs / _RUNS) for mine, theirs in interleave(turns, effort)]
    return Row(
        "native",
        name,
        measured=difference(rounds),
        note="over the same loop in C: Python, ctypes and the host",
        samples=rounds,
    )


def _alone(name: str, direct: Callable[[], object], effort: Effort) -> Row:
    rounds = [(times / _RUNS,) for (times,) in interleave([sampler(direct, effort)], effort)]
    return Row(
        "native",
        name,
        measured=min(times for (times,) in rounds),
        note="the best turn",
        samples=rounds,
    )
