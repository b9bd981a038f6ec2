"""A native cartridge: its library, held against its descriptor, and opened."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import AbiMismatchError, InvalidArgumentError, LoadError
from cartridge_core.reports import Check, PreflightReport
from cartridge_native.ports import Coder, coder_of
from cartridge_native.sessions import Session

if TYPE_CHECKING:
    from pathlib import Path

    from cartridge_core.capdefs import Cap
    from cartridge_core.pack import Pack
    from cartridge_native._library import Library

__all__ = ["Model", "coders_of", "preflight"]

_MEASURED = frozenset({"performance", "quality"})
"""What is filled in after the library was built."""


class Model:
    """
    An open cartridge.

    Args:
        library: Its library.
        handle: The library's own.
        coders: What goes in and comes out, by cap URN.
    """

    def __init__(
        self, library: Library, handle: int, coders: dict[str, tuple[Coder, Coder]]
    ) -> None:
        self._library = library
        self._handle = handle
        self._coders = coders
        self._beginning = threading.Lock()

    @classmethod
    def open(cls, pack: Pack | None) -> Self:
        """
        Open a pack.

        Raises:
            LoadError: There is no library in it, or it cannot be loaded.

            AbiMismatchError: The library is of another version of the ABI or has another
                descriptor, or the descriptor declares what the ABI cannot carry.

            CartridgeError: The library refused the pack.
        """
        library, descriptor, root = _load(pack)
        coders = coders_of(descriptor)
        return cls(library, library.open(root), coders)

    def begin(self, cap: str) -> Session:
        """
        Begin a session; all caps of a library are the same function.

        Raises:
            CartridgeError: The library failed.
        """
        with self._beginning:  # for its last error is the handle's
            native = self._library.begin(self._handle)
        return Session(native, *self._coders.get(cap, self._coders[""]))

    def close(self) -> None:
        """
        Close it.

        Raises:
            CartridgeError: The library failed.
        """
        self._library.close(self._handle)


def preflight(pack: Pack | None) -> PreflightReport:
    """
    Have a pack's library look at this machine; it loads no model.

    Raises:
        CartridgeError: As for `Model.open`.
    """
    library, descriptor, root = _load(pack)
    coders_of(descriptor)
    ok, detail = library.preflight(root)
    required = "what the library asks of this machine"
    return PreflightReport((Check("library", ok, required=required, found=detail),))


def _load(pack: Pack | None) -> tuple[Library, Descriptor, Path]:
    """Load a pack's library, and hold it against the pack's descriptor."""
    if pack is None or pack.descriptor is None:
        msg = "pack: a native cartridge is a pack with a descriptor, and none was given"
        raise InvalidArgumentError(msg, arg="pack", rule="a pack")
    files = pack.files("runtime")
    if len(files) != 1:
        msg = f"pack {pack.root}: {len(files)} artifacts have the role runtime; one library has it"
        raise LoadError(msg)
    # Deferred: it is what imports ctypes.
    from cartridge_native._library import Library  # noqa: PLC0415 -- see above

    library = Library(files[0])
    _compare(library, pack.descriptor)
    return library, pack.descriptor, pack.root


def _compare(library: Library, stated: Descriptor) -> None:
    """Refuse a library whose built-in descriptor is not the pack's."""
    try:
        built_in = Descriptor.from_json(library.descriptor_json())
    except InvalidArgumentError as exc:
        msg = f"{library.name}: ctg_descriptor_json gives no valid descriptor: {exc}"
        raise AbiMismatchError(msg) from exc
    ours, theirs = stated.to_json(), built_in.to_json()
    keys = (ours.keys() | theirs.keys()) - _MEASURED
    differing = sorted(key for key in keys if ours.get(key) != theirs.get(key))
    if differing:
        msg = (
            f"{library.name}: its built-in descriptor and the pack's descriptor.json differ in "
            f"{', '.join(differing)}; make the pack of what the library gives"
        )
        raise AbiMismatchError(msg)


def coders_of(descriptor: Descriptor) -> dict[str, tuple[Coder, Coder]]:
    """
    Give what goes in and comes out by cap URN; without one, as the ports say.

    Raises:
        AbiMismatchError: The descriptor declares what the ABI cannot carry.
    """
    io = descriptor.io
    coders = {"": (coder_of(io.input, None, "io.input"), coder_of(io.output, None, "io.output"))}
    for cap in descriptor.caps:
        _check_args(cap)
        takes = None if cap.main is None else cap.main.stdin or cap.main.media_urn
        coders[str(cap.urn)] = (
            coder_of(io.input, takes, "io.input"),
            coder_of(io.output, cap.urn.out, "io.output"),
        )
    return coders


def _check_args(cap: Cap) -> None:
    more = [arg.name for arg in cap.args if arg is not cap.main or arg.pack]
    if more:
        msg = f"{cap.urn} declares {', '.join(more)}; ABI 0.1 carries the main input and no other"
        raise AbiMismatchError(msg)
