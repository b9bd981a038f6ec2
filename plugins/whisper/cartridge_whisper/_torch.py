"""What all work on torch needs: a device, CPU threads, and errors with our names."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch  # noqa: TID253 -- one of the private files that import the backend

from cartridge_core.errors import CartridgeError, LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["choose_device", "use_threads", "working", "wrapped"]


def choose_device(name: str) -> torch.device:
    """
    Choose the device.

    Raises:
        LoadError: It is not there.
    """
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        msg = f"device='cuda': torch {torch.__version__} finds none here; take device='cpu'"
        raise LoadError(msg)
    return torch.device("cuda" if has_cuda and name != "cpu" else "cpu")


@contextlib.contextmanager
def use_threads(count: int) -> Iterator[None]:
    """
    Let torch use so many CPU threads in this thread; 0 leaves its own setting.

    torch keeps the number for each thread, so calls side by side do not disturb one another.
    A thread that uses torch for the first time during such a call begins with its number.
    """
    before = torch.get_num_threads()
    if count in {0, before}:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def wrapped(error: type[CartridgeError], doing: str) -> Iterator[None]:
    """Turn whatever the backend raises into one of our errors."""
    try:
        yield
    except CartridgeError:
        raise
    except Exception as exc:
        msg = f"{doing}: {type(exc).__name__}: {exc}"
        raise error(msg) from exc


@contextlib.contextmanager
def working(threads: int, error: type[CartridgeError], doing: str) -> Iterator[None]:
    """
    Let torch compute for a call, in this thread.

    Both the number of threads and the inference mode are torch's for each thread, so they are
    entered by every call.

    Args:
        threads: CPU threads; 0 leaves torch's own setting.
        error: What a failure becomes.
        doing: Begins its message.
    """
    with use_threads(threads), wrapped(error, doing), torch.inference_mode():
        yield
