"""What every model that runs on torch needs: a device, CPU threads, and a way to be stopped."""

from __future__ import annotations

import contextlib
import math
import os
from typing import TYPE_CHECKING, cast

import torch  # noqa: TID253 -- one of the private files that import the backend
from transformers.utils.logging import set_tqdm_hook  # noqa: TID253 -- as above

from cartridge_core.errors import CartridgeError, LoadError
from cartridge_torch._voices import hearing, keep_quiet, speaker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch.utils.hooks import RemovableHandle

    from cartridge_core.context import Context

__all__ = [
    "CPU_TOKENS",
    "choose_device",
    "in_passes",
    "lanes",
    "tokens_per_pass",
    "use_threads",
    "watch",
    "working",
    "wrapped",
]

CPU_TOKENS = 1024
"""Tokens of texts, padding included, of one forward pass on the CPU: larger ones are slower there
(a batch of 32 x 256 takes a fifth more), need more memory, and answer a cancel later."""

_CPU_PRODUCTS = 3_000_000_000
"""Multiplications between two questions whether to go on: some 100 ms of one core."""

_MOST_LANES = 4
"""More would only wait for one another: what torch does between its computations needs Python's
lock."""

_SMALL = 200_000
"""Numbers in a layer below which Python, between the computations, takes longer than they do: two
forward passes at once wait for its lock, and are slower than one of all their rows."""

_LARGE = 1_000_000
"""Numbers in a part of a layer that is asked for by itself."""

keep_quiet(set_tqdm_hook)


@contextlib.contextmanager
def working(
    context: Context, threads: int, error: type[CartridgeError], doing: str
) -> Iterator[None]:
    """
    Let torch work for a call, in this thread.

    Args:
        context: Hears what the libraries say, and says whether to go on.
        threads: CPU threads; 0 leaves torch's own setting.
        error: What a failure becomes.
        doing: Begins its message.
    """
    with hearing(context), use_threads(threads), wrapped(error, doing), torch.inference_mode():
        yield


def choose_device(name: str) -> str:
    """
    Choose the device.

    Raises:
        LoadError: It is not there.
    """
    there = [
        *(["cuda"] if torch.cuda.is_available() else []),
        *(["mps"] if torch.backends.mps.is_available() else []),
        "cpu",
    ]
    if name == "auto":
        return there[0]
    if name not in there:
        msg = f"device={name!r}: torch {torch.__version__} finds none here; take device='cpu'"
        raise LoadError(msg)
    return name


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


def watch(model: torch.nn.Module) -> list[RemovableHandle]:
    """
    Have the repeated layers ask first whether their thread's work was cancelled.

    Every hook costs a short text some microseconds. A layer of a small model takes far less than
    the 250 ms that a cancel may; in a large one its large parts ask too. A model without a list of
    layers asks in its innermost modules.

    Returns:
        The hooks, to be removed when the model is closed.
    """
    layers = _layers(model)
    parts = [part for layer in layers for part in layer.modules() if _is_large(part)]
    asking = [*layers, *parts] or [one for one in model.modules() if _is_innermost(one)]
    return [module.register_forward_pre_hook(_stop_if_cancelled) for module in asking]


def _layers(model: torch.nn.Module) -> list[torch.nn.Module]:
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return [layer for one in lists for layer in one]


def _is_innermost(module: torch.nn.Module) -> bool:
    return not any(True for _ in module.children())


def _is_large(module: torch.nn.Module) -> bool:
    return _is_innermost(module) and sum(one.numel() for one in module.parameters()) >= _LARGE


def _stop_if_cancelled(module: torch.nn.Module, args: tuple[object, ...]) -> None:
    del module, args
    context = speaker()
    if context is not None:
        context.check_cancelled()


def tokens_per_pass(model: torch.nn.Module, device: torch.device) -> int:
    """
    Give how many tokens, or patches of pictures, may go through a model at a time.

    Args:
        model: The model, or the part of it that they go through.
        device: Where it runs.

    Returns:
        What lets a cancel through in time on the CPU; 0 where there is no limit.
    """
    if device.type != "cpu":
        return 0
    weights = [one.numel() for layer in _layers(model) for one in layer.parameters()]
    return _CPU_PRODUCTS // max(weights, default=1)


def lanes(model: torch.nn.Module, device: torch.device, threads: int) -> int:
    """
    Give how many forward passes it is worth to have at once.

    Args:
        model: What they go through.
        device: Where they run.
        threads: CPU threads of each; 0 is torch's own setting.
    """
    sizes = [sum(one.numel() for one in layer.parameters()) for layer in _layers(model)]
    if device.type != "cpu" or max(sizes, default=0) < _SMALL:
        return 1
    cpus = os.cpu_count() or 1
    return max(1, min(_MOST_LANES, cpus // (threads or torch.get_num_threads())))


def in_passes(
    features: Mapping[str, object], width: int, most: int
) -> Iterator[Mapping[str, object]]:
    """
    Cut a batch into forward passes, all about as large.

    Args:
        features: The batch: tensors with a row for each item, and what is common to all.
        width: How many tokens a row has.
        most: How many may go through at a time; 0 where there is no limit.
    """
    rows = max(
        (value.shape[0] for value in features.values() if isinstance(value, torch.Tensor)),
        default=0,
    )
    passes = math.ceil(rows / max(1, most // max(1, width))) if most else 1
    step = max(1, math.ceil(rows / max(1, passes)))
    for start in range(0, rows, step):
        yield {key: _rows(value, rows, start, step) for key, value in features.items()}


def _rows(value: object, rows: int, start: int, step: int) -> object:
    if isinstance(value, torch.Tensor) and value.ndim and value.shape[0] == rows:
        return cast("object", value[start : start + step])
    return value
