"""The model that is named on a command line, on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cartridge_core.registry import Registry

__all__ = ["fetch_model"]


def fetch_model(registry: Registry, text: str) -> tuple[Path, str | None]:
    """
    Give a model's path, and where it came from if that is a model spec.

    Args:
        registry: Fetches what is not on this machine.
        text: A path or a model spec.

    Raises:
        CartridgeError: It is malformed, or cannot be fetched.
    """
    from cartridge_core.modelspec import FileSpec, ModelSpec  # noqa: PLC0415 -- few verbs need it
    from cartridge_core.tasks import download_model  # noqa: PLC0415 -- few verbs need it

    here = Path(text).expanduser()
    if here.exists():
        return here.absolute(), None
    spec = ModelSpec.parse(text)
    if isinstance(spec, FileSpec):
        return spec.path, None
    return download_model(registry, str(spec)).path, str(spec)
