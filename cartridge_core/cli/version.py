"""Which version of cartridge-core this is."""

from __future__ import annotations

__all__ = ["own_version"]


def own_version() -> str:
    """Give the version of the installed distribution."""
    # Deferred: it takes longer to import than all else that `--help` needs.
    from importlib import metadata  # noqa: PLC0415 -- see above

    try:
        return metadata.version("cartridge-core")
    except metadata.PackageNotFoundError:
        return "not installed"
