"""
Every error a user can meet, one tree, each with the ABI's status.

::

    CartridgeError
    ├── InvalidArgumentError     -1   an argument breaks its declared rule
    │   ├── UrnError                  a URN is malformed (also a ValueError)
    │   └── AmbiguousRouteError       several cartridges fit and nothing decides
    ├── UnsupportedError         -2   the other io family, or a thing not offered
    │   └── NoRouteError              no cartridge serves the request
    ├── PreflightError           -3   this machine lacks something
    ├── LoadError                -4   a plugin, a model or a file cannot be loaded
    │   ├── VerificationError         a digest or a signature does not match
    │   └── DownloadError             a model cannot be fetched
    │       └── OfflineError          it would need the network, which is forbidden
    ├── BackendError             -5   the inference library failed
    │   ├── ActivityTimeoutError      no sign of life for too long
    │   └── CartridgeDiedError        the cartridge's process ended
    ├── CancelledError           -6   somebody cancelled
    ├── StateError               -7   a call in the wrong order, or from a second thread
    │   └── BusyError                 no room within the time allowed
    ├── AbiMismatchError         -8   built for another version of the contract
    │   └── DiscoveryError            an installed plugin is broken (CARTRIDGE_STRICT=1)
    └── InternalError           -99   a bug in cartridge itself

A message says what was asked, what was found and what to do. The data are attributes too, all
plain values, so that an error keeps them across a process border.

Source: Cartridge ABI 0.1, ``ctg_status``.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from cartridge_core.reports import DiscoveryIssue, Explanation, PreflightReport

__all__ = [
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
]


class Status(enum.IntEnum):
    """
    The ABI's number for the outcome of a call.

    Source: Cartridge ABI 0.1, ``ctg_status``.
    """

    OK = 0
    INVALID_ARG = -1
    UNSUPPORTED = -2
    PREFLIGHT = -3
    LOAD = -4
    BACKEND = -5
    CANCELLED = -6
    STATE = -7
    ABI_MISMATCH = -8
    INTERNAL = -99


class CartridgeError(Exception):
    """The root: catch it to catch everything that cartridge raises on purpose."""

    status: ClassVar[Status] = Status.INTERNAL


class InvalidArgumentError(CartridgeError):
    """
    An argument breaks the rule that its cap declares.

    Attributes:
        arg: The argument's name, with the place inside it (``texts[3]``) where there is one.
        value: What was given.
        rule: What the descriptor asks for.
    """

    status = Status.INVALID_ARG

    def __init__(
        self,
        message: str,
        *,
        arg: str | None = None,
        value: object = None,
        rule: str | None = None,
    ) -> None:
        super().__init__(message)
        self.arg = arg
        self.value = value
        self.rule = rule


class UrnError(InvalidArgumentError, ValueError):
    """
    A URN is malformed, or two of different kinds are compared.

    Attributes:
        kind: What is wrong, in one word (``DuplicateKey``).
        text: The whole text that was read.
        position: Index of the character where it goes wrong; None where there is no one place.
    """

    def __init__(
        self, message: str, *, kind: str = "", text: str = "", position: int | None = None
    ) -> None:
        super().__init__(message, value=text, rule=kind)
        self.kind = kind
        self.text = text
        self.position = position


class AmbiguousRouteError(InvalidArgumentError):
    """
    Several cartridges serve the request equally well; install order never decides.

    Attributes:
        cartridge_ids: The cartridges that are left.
        explanation: Every candidate with its reason.
    """

    def __init__(
        self,
        message: str,
        *,
        cartridge_ids: tuple[str, ...] = (),
        explanation: Explanation | None = None,
    ) -> None:
        super().__init__(message)
        self.cartridge_ids = cartridge_ids
        self.explanation = explanation


class UnsupportedError(CartridgeError):
    """The cartridge does not offer what was called, the other io family for one."""

    status = Status.UNSUPPORTED


class NoRouteReason(enum.Enum):
    """Why nothing serves a request."""

    NOT_OFFERED = "not-offered"
    """Nothing installed offers it."""

    OTHER_MODE = "other-mode"
    """It is offered, in the other ``io.mode``."""

    DISCOVERY_ISSUE = "discovery-issue"
    """A plugin that offers it is broken."""

    EXCLUDED = "excluded"
    """It is offered, and a static constraint of this request rules it out."""


class NoRouteError(UnsupportedError):
    """
    No cartridge serves the request.

    Attributes:
        reason: Which of the four situations it is.
        explanation: Every candidate with its reason.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: NoRouteReason = NoRouteReason.NOT_OFFERED,
        explanation: Explanation | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.explanation = explanation


class PreflightError(CartridgeError):
    """
    This machine lacks something the cartridge needs; nothing was loaded.

    Attributes:
        report: Every check, met or not.
    """

    status = Status.PREFLIGHT

    def __init__(self, message: str, *, report: PreflightReport | None = None) -> None:
        super().__init__(message)
        self.report = report


class LoadError(CartridgeError):
    """A plugin, a model or a file cannot be loaded."""

    status = Status.LOAD


class VerificationError(LoadError):
    """A digest, a size or a signature does not match what is stated."""


class DownloadError(LoadError):
    """A model cannot be fetched."""


class OfflineError(DownloadError):
    """It would need the network, which ``CARTRIDGE_OFFLINE=1`` forbids."""


class BackendError(CartridgeError):
    """The inference library failed; its own exception is the cause."""

    status = Status.BACKEND


class ActivityTimeoutError(BackendError):
    """The cartridge gave no sign of life for too long."""


class CartridgeDiedError(BackendError):
    """
    The cartridge's process ended during a call, or before it.

    Attributes:
        exit_status: How it ended: its exit status, or the negative number of the signal that
            killed it; None where that cannot be told.
        stderr: The last lines that it wrote there.
    """

    def __init__(self, message: str, *, exit_status: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.exit_status = exit_status
        self.stderr = stderr


class CancelledError(CartridgeError):
    """The session or the call was cancelled."""

    status = Status.CANCELLED


class StateError(CartridgeError):
    """A call came in the wrong order, after the end, or from a second thread."""

    status = Status.STATE


class BusyError(StateError):
    """There was no free session, device or memory within the time allowed."""


class AbiMismatchError(CartridgeError):
    """A plugin or a pack was built for another version of the contract."""

    status = Status.ABI_MISMATCH


class DiscoveryError(AbiMismatchError):
    """
    Something installed cannot be used, and ``CARTRIDGE_STRICT=1`` makes that an error.

    Attributes:
        issues: What was found.
    """

    def __init__(self, message: str, *, issues: tuple[DiscoveryIssue, ...] = ()) -> None:
        super().__init__(message)
        self.issues = issues


class InternalError(CartridgeError):
    """A bug in cartridge itself; please report it."""

    status = Status.INTERNAL
