"""A cartridge's process as the host has it: its start, its hooks, its end."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cartridge_core.errors import CartridgeDiedError, StateError
from cartridge_core.packing import MalformedError
from cartridge_core.threads import HostThreads, check_process
from cartridge_core.worker.aside import Aside, Outcome
from cartridge_core.worker.conversation import Conversation
from cartridge_core.worker.line import LineError
from cartridge_core.worker.process import Process

if TYPE_CHECKING:
    import socket
    import subprocess
    from collections.abc import Callable, Sequence

    from cartridge_core.context import Context
    from cartridge_core.worker.held import Held
    from cartridge_core.worker.remote import RemotePlugin

__all__ = ["END_GRACE_S", "Worker"]

T = TypeVar("T")

END_GRACE_S = 1.5
"""How long a process may take to end once it is asked to."""

_log = logging.getLogger("cartridge.worker")

_EXIT_S = 1.0
"""How long a process may live on whose line has ended."""

_TELL_S = 5.0
"""How long a call waits to hear how the process died."""

_workers: weakref.WeakSet[Worker] = weakref.WeakSet()
_main_thread = threading.main_thread().ident


def _forget_all() -> None:
    global _main_thread  # noqa: PLW0603 -- in a fork the thread that forked is the main one
    _main_thread = threading.get_ident()
    for worker in list(_workers):
        worker.forget()
    _workers.clear()


os.register_at_fork(after_in_child=_forget_all)


class Worker:
    """
    A process that has one plugin.

    Made by `starting.start`. After a fork it refuses everything in the child, with `StateError`.

    Attributes:
        cartridge_id: Whose it is.
        plugin: The plugin as this process has it, for a `Binding`.
        pid: The process's id.
    """

    def __init__(
        self, cartridge_id: str, process: subprocess.Popen[bytes], sock: socket.socket
    ) -> None:
        self.plugin: RemotePlugin
        self.pid = process.pid
        self.cartridge_id = cartridge_id
        self._host_pid = os.getpid()
        self._helpers = HostThreads()
        self._is_parents = False
        self._why = ""
        self._is_ending = False
        self._lock = threading.Lock()
        self._on_death: list[Callable[[], None]] = []
        self._is_buried = False
        where = f"in the process of {cartridge_id}"
        self._talk = Conversation(sock, where, self._help)
        self._process = Process(
            process, cartridge_id, line=sock.fileno(), on_line=self._listen, on_end=self._bury
        )
        _workers.add(self)

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked anything."""
        check_process(self._host_pid)
        return not self._talk.is_over and not self._process.ended.is_set()

    def rss_bytes(self) -> int | None:
        """Give the memory it has resident; None where the system does not say."""
        check_process(self._host_pid)
        return self._process.rss_bytes()

    def ping(self, timeout_s: float) -> bool:
        """
        Ask for a sign of life.

        Returns:
            Whether one came in time; none may come while a native call holds Python's lock.
        """
        return self.is_alive and self._talk.ping(timeout_s)

    def told(self, how: str) -> str:
        """Give a message about how it did, with the last lines that it wrote to stderr."""
        return self._process.told(how)

    def death(self) -> CartridgeDiedError:
        """Say how it ended, once that is known."""
        process = self._process
        process.wait(_TELL_S)
        msg = process.told(self._why or process.end_text)
        return CartridgeDiedError(msg, exit_status=process.exit_status, stderr=process.stderr)

    def on_death(self, tell: Callable[[], None]) -> None:
        """
        Have something called when the process has ended without `end`; at once if it has.

        It is called once, on a thread of the worker's own.
        """
        check_process(self._host_pid)
        with self._lock:
            if not self._is_buried:
                self._on_death.append(tell)
                return
        if not self._is_ending:
            tell()

    def kill(self, why: str = "") -> None:
        """
        End the process at once; calls that are in it get `CartridgeDiedError`.

        Args:
            why: For their message: ``it gave no sign of life for 120 s``.
        """
        check_process(self._host_pid)
        self._why = self._why or (f"was killed: {why}" if why else "was killed")
        self._process.kill()
        self._process.reap()

    def end(self, grace_s: float = END_GRACE_S) -> None:
        """
        Let the process end, and be gone; again is harmless.

        Args:
            grace_s: How long it may take before it is killed.
        """
        check_process(self._host_pid)
        self._is_ending = True
        self._why = self._why or "was told to end"
        self._talk.hang_up()
        self._process.reap(grace_s)

    def ask(
        self,
        kind: str,
        values: Sequence[object],
        read: Callable[[list[object]], T],
        names: Sequence[str] = (),
        held: Held | None = None,
        undo: str = "",
    ) -> T:
        """
        Have a hook called in the process, and wait for what it gives.

        Args:
            kind: Which hook.
            values: What with.
            read: Makes the answer of the values that come.
            names: What a person calls the values.
            held: The context it is about.
            undo: What takes it back, with the context's number, where Ctrl-C ends the wait.

        Raises:
            CartridgeDiedError: The process is gone.

            Exception: What was raised there.
        """
        return self._wait(partial(self._talk.ask, kind, values, read, names, held), held, undo)

    def ask_aside(
        self, kind: str, values: Sequence[object], read: Callable[[list[object]], T]
    ) -> Aside[T]:
        """Do the same about no context, on another thread."""
        ask = partial(self._talk.ask, kind, values, read)
        return Aside(partial(self._do, ask), self._help)

    def pull(self, held: Held, read: Callable[[list[object]], T | None]) -> T | None:
        """Take the next result of a session, None where there is none; errors as for `ask`."""
        return self._wait(partial(self._talk.pull, held, read), held)

    def hold(self, context: Context) -> Held:
        """
        Give a context a number that the process knows it by, until `let_go`.

        Raises:
            CartridgeDiedError: The process is gone.
        """
        check_process(self._host_pid)
        try:
            return self._talk.hold(context)
        except LineError as exc:
            raise self._end_of(exc) from None

    def held(self, number: int) -> Held | None:
        """Give a context by its number; None where it has ended."""
        return self._talk.held(number)

    def let_go(self, held: Held | None) -> None:
        """End the use of a context."""
        if held is not None:
            self._talk.let_go(held)

    def tell(self, kind: str, number: int) -> None:
        """Tell the process something that has no answer."""
        check_process(self._host_pid)
        self._talk.tell(kind, number)

    def forget(self) -> None:
        """Close this process's copies of what the parent has open; in a fork."""
        self._is_parents = True
        self._talk.forget()
        self._process.forget()

    def _wait(self, work: Callable[[], T], held: Held | None, undo: str = "") -> T:
        if self._is_parents:
            check_process(self._host_pid)
        if threading.get_ident() != _main_thread:
            return self._do(work, held)
        return self._wait_in_main(partial(self._do, work, held), held, undo)

    def _do(self, work: Callable[[], T], held: Held | None = None) -> T:
        try:
            return work()
        except (MalformedError, LineError) as exc:
            if held is not None:
                held.let_go()
            raise self._end_of(exc) from exc

    def _wait_in_main(self, work: Callable[[], T], held: Held | None, undo: str) -> T:
        """
        Have another thread do it: Ctrl-C may stop the main one anywhere, also inside a frame.

        Raises:
            KeyboardInterrupt: As in one process; the work is cancelled.
        """
        aside = Aside(work, self._help)
        try:
            outcome = aside.wait()
        except BaseException:
            if held is not None:
                held.cancel()
                if undo:
                    self._help(lambda: self._undo(aside.wait(), undo, held))
            raise
        return outcome.get()

    def _undo(self, outcome: Outcome[T], undo: str, held: Held) -> None:
        if outcome.error is None:
            ask = partial(self._talk.ask, undo, [held.number], lambda _: None, (), held)
            Outcome.of(partial(self._do, ask, held))
        self._talk.give_back(held)

    def _end_of(self, exc: MalformedError | LineError) -> CartridgeDiedError:
        """Let it end that it cannot be talked to, and say how it did, once that is known."""
        if isinstance(exc, MalformedError):
            self._refuse(exc)
        else:
            self._lose()
        return self.death()

    def _help(self, job: Callable[[], None]) -> None:
        try:
            self._helpers.run(job)
        except (StateError, RuntimeError):
            # The process is gone, or Python ends and starts no threads: nothing here can take long.
            job()

    def _listen(self) -> bool:
        """Take what is on the line; say whether more may come."""
        try:
            self._talk.listen()
        except MalformedError as exc:
            self._refuse(exc)
        except (EOFError, OSError):
            self._lose()
        else:
            return True
        return False

    def _refuse(self, exc: MalformedError) -> None:
        self._why = self._why or f"was killed, since it sent {exc}"
        _log.warning("%s: process %s is killed: it sent %s", self.cartridge_id, self.pid, exc)
        self._process.kill()

    def _lose(self) -> None:
        """See a process out that has hung up."""
        if not self._talk.is_over:
            self._talk.hang_up()
            self._help(partial(self._process.reap, _EXIT_S))

    def _bury(self) -> None:
        """Do what is left to do for a process that has ended; on its own thread."""
        _workers.discard(self)
        self._talk.hang_up()
        while self._listen():
            pass
        self._talk.close()
        self._helpers.close()
        with self._lock:
            self._is_buried = True
            tell, self._on_death = self._on_death, []
        for one in () if self._is_ending else tell:
            try:
                one()
            except Exception:  # noqa: BLE001 -- logged; the others are told too
                _log.exception("telling of the death of %s failed", self.cartridge_id)
