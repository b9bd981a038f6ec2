"""
One registry for local AI models.

::

    from cartridge_core import Registry

    with Registry.discover() as registry:
        result = registry.call("cap:generate-embeddings", ["tea", "coffee"])

`Registry` is what callers need; `hookimpl`, `Descriptor`, `Pack`, `Context` and `Result` are what
authors of cartridges need; `cartridge_core.errors` has every error, ``tasks`` typed one-liners,
``verification`` what runs a pack's golden vectors, and ``testing`` the author's kit.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cartridge_core.calls import Call
    from cartridge_core.cartridge import Cartridge
    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor, IoMode, read_descriptors
    from cartridge_core.errors import (
        AbiMismatchError,
        ActivityTimeoutError,
        AmbiguousRouteError,
        BackendError,
        BusyError,
        CancelledError,
        CartridgeDiedError,
        CartridgeError,
        DiscoveryError,
        DownloadError,
        InternalError,
        InvalidArgumentError,
        LoadError,
        NoRouteError,
        NoRouteReason,
        OfflineError,
        PreflightError,
        StateError,
        Status,
        UnsupportedError,
        UrnError,
        VerificationError,
    )
    from cartridge_core.hookspecs import BatchPlugin, StreamingPlugin, hookimpl
    from cartridge_core.modelspec import ModelSpec
    from cartridge_core.pack import Pack
    from cartridge_core.progress import Log, Phase, Progress
    from cartridge_core.records import Record
    from cartridge_core.registry import Registry
    from cartridge_core.reports import Check, DiscoveryIssue, Explanation, PreflightReport
    from cartridge_core.resident import Loaded, LoadState
    from cartridge_core.results import Result, ResultKind
    from cartridge_core.routing import Route
    from cartridge_core.session import Session, SessionState
    from cartridge_core.urn import CapUrn, Grade, MediaUrn

__all__ = [
    "AbiMismatchError",
    "ActivityTimeoutError",
    "AmbiguousRouteError",
    "BackendError",
    "BatchPlugin",
    "BusyError",
    "Call",
    "CancelledError",
    "CapUrn",
    "Cartridge",
    "CartridgeDiedError",
    "CartridgeError",
    "Check",
    "Context",
    "Descriptor",
    "DiscoveryError",
    "DiscoveryIssue",
    "DownloadError",
    "Explanation",
    "Grade",
    "InternalError",
    "InvalidArgumentError",
    "IoMode",
    "LoadError",
    "LoadState",
    "Loaded",
    "Log",
    "MediaUrn",
    "ModelSpec",
    "NoRouteError",
    "NoRouteReason",
    "OfflineError",
    "Pack",
    "Phase",
    "PreflightError",
    "PreflightReport",
    "Progress",
    "Record",
    "Registry",
    "Result",
    "ResultKind",
    "Route",
    "Session",
    "SessionState",
    "StateError",
    "Status",
    "StreamingPlugin",
    "UnsupportedError",
    "UrnError",
    "VerificationError",
    "hookimpl",
    "read_descriptors",
]

_WHERE = {
    "calls": ("Call",),
    "cartridge": ("Cartridge",),
    "context": ("Context",),
    "descriptor": ("Descriptor", "IoMode", "read_descriptors"),
    "errors": (
        "AbiMismatchError",
        "ActivityTimeoutError",
        "AmbiguousRouteError",
        "BackendError",
        "BusyError",
        "CancelledError",
        "CartridgeDiedError",
        "CartridgeError",
        "DiscoveryError",
        "DownloadError",
        "InternalError",
        "InvalidArgumentError",
        "LoadError",
        "NoRouteError",
        "NoRouteReason",
        "OfflineError",
        "PreflightError",
        "StateError",
        "Status",
        "UnsupportedError",
        "UrnError",
        "VerificationError",
    ),
    "hookspecs": ("BatchPlugin", "StreamingPlugin", "hookimpl"),
    "modelspec": ("ModelSpec",),
    "pack": ("Pack",),
    "progress": ("Log", "Phase", "Progress"),
    "records": ("Record",),
    "registry": ("Registry",),
    "reports": ("Check", "DiscoveryIssue", "Explanation", "PreflightReport"),
    "resident": ("LoadState", "Loaded"),
    "results": ("Result", "ResultKind"),
    "routing": ("Route",),
    "session": ("Session", "SessionState"),
    "urn": ("CapUrn", "Grade", "MediaUrn"),
}
"""The module of every public name; imported when the name is first asked for."""

# Without a handler of its own the lines of a plugin would end on the user's stderr.
logging.getLogger("cartridge").addHandler(logging.NullHandler())


def __getattr__(name: str) -> object:
    """Import what is asked for first now: a program pays for no more of core than it uses."""
    if name in {"tasks", "testing", "verification"}:
        return importlib.import_module(f"cartridge_core.{name}")
    for module, names in _WHERE.items():
        if name in names:
            found: object = getattr(importlib.import_module(f"cartridge_core.{module}"), name)
            globals()[name] = found
            return found
    msg = f"module 'cartridge_core' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    """Name what can be asked for."""
    return [*globals(), *__all__, "tasks", "testing", "verification"]
