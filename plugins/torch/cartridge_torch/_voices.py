"""
What the libraries say while they work for us goes to the call, and not to the terminal.

transformers writes progress bars and warnings to stderr by handlers of its own. Both stay as they
are for whoever else uses it in this process: only what is said in a thread that works for us,
found by a context variable, is taken away and given to the call's context.
"""

from __future__ import annotations

import contextlib
import logging
import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sized

    from cartridge_core.context import Context

    Factory = Callable[..., object]
    Hook = Callable[[Factory, tuple[object, ...], dict[str, object]], object]

__all__ = ["hearing", "keep_quiet", "speaker"]

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_context: ContextVar[Context | None] = ContextVar("cartridge_torch_context", default=None)


def speaker() -> Context | None:
    """Give the context that this thread works for."""
    return _context.get()


@contextlib.contextmanager
def hearing(context: Context) -> Iterator[None]:
    """Give what is said in this thread to a context."""
    token = _context.set(context)
    try:
        yield
    finally:
        _context.reset(token)


def keep_quiet(set_bar_hook: Callable[[Hook | None], Hook | None]) -> None:
    """
    Listen to the libraries; once in a process, and without effect outside of `hearing`.

    Args:
        set_bar_hook: ``transformers.utils.logging.set_tqdm_hook``.
    """
    for handler in logging.getLogger("transformers").handlers:
        handler.addFilter(_is_not_ours)
    for library in ("transformers", "sentence_transformers"):
        logging.getLogger(library).addHandler(_Listener(logging.WARNING))
    set_bar_hook(_bars(set_bar_hook(None)))


def _is_not_ours(record: logging.LogRecord) -> bool:
    del record
    return speaker() is None


class _Listener(logging.Handler):
    """Gives our threads' records to their context; leaves the others as they were without it."""

    def emit(self, record: logging.LogRecord) -> None:
        context = speaker()
        if context is not None:
            for line in _COLOURS.sub("", record.getMessage()).splitlines():
                context.log(record.levelname.lower(), line)
        elif not logging.root.handlers and record.name.startswith("sentence_transformers"):
            # logging's handler of last resort serves only loggers that have none.
            cast("logging.Handler", logging.lastResort).handle(record)


def _bars(previous: Hook | None) -> Hook:
    """Make the hook that transformers asks for every progress bar."""

    def bar(factory: Factory, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        context = speaker()
        if context is not None:
            iterable = args[0] if args else kwargs.get("iterable")
            return _Bar(cast("Iterable[object]", iterable or ()), context)
        if previous is not None:
            return previous(factory, args, kwargs)
        return factory(*args, **kwargs)

    return bar


class _Bar:
    """A progress bar that reports to a context, and stops where that is cancelled."""

    def __init__(self, iterable: Iterable[object], context: Context) -> None:
        self._iterable = iterable
        self._context = context

    def __iter__(self) -> Iterator[object]:
        total = len(cast("Sized", self._iterable)) if hasattr(self._iterable, "__len__") else 0
        for done, item in enumerate(self._iterable):
            self._context.check_cancelled()
            if total:
                self._context.progress(done / total, f"{done} of {total} weights loaded")
            yield item

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Stand for ``update``, ``set_postfix``, ``close``, and what else a bar can do."""
        return lambda *args, **kwargs: None
