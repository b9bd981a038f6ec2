"""A wrapper that watches a plugin's hooks while facts about it are checked."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from cartridge_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Watch"]

R = TypeVar("R")


class Watch:
    """
    What a plugin's hooks did, as a wrapper among a registry's ``wrappers`` sees it.

    Attributes:
        calls: The hooks called, in order, without ``cartridge_``; not those that describe.
        working: Set from the first infer or pull on.
        raised: What the last infer or pull raised; None where it gave a result.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.working = threading.Event()
        self.raised: BaseException | None = None

    @hookimpl(wrapper=True)
    def cartridge_open(self) -> Generator[None, R, R]:
        """Note it."""
        self.calls.append("open")
        return (yield)

    @hookimpl(wrapper=True)
    def cartridge_close(self) -> Generator[None, R, R]:
        """Note it."""
        self.calls.append("close")
        return (yield)

    @hookimpl(wrapper=True)
    def cartridge_session_end(self) -> Generator[None, R, R]:
        """Note it."""
        self.calls.append("session_end")
        return (yield)

    @hookimpl(wrapper=True)
    def cartridge_infer(self) -> Generator[None, R, R]:
        """Note it, and how it ends."""
        return (yield from self._work("infer"))

    @hookimpl(wrapper=True)
    def cartridge_pull(self) -> Generator[None, R, R]:
        """Note it, and how it ends."""
        return (yield from self._work("pull"))

    def _work(self, hook: str) -> Generator[None, R, R]:
        self.calls.append(hook)
        self.working.set()
        self.raised = None
        try:
            return (yield)
        except BaseException as exc:
            self.raised = exc
            raise
