"""The contract that every cartridge keeps."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from cartridge_core.testing import BatchContract
from cartridge_models import plugin

if TYPE_CHECKING:
    from cartridge_core.capdefs import Cap
    from cartridge_core.hookspecs import BatchPlugin
    from cartridge_models.session import Session
    from cartridge_models.store import Store

    _: BatchPlugin[Store, Session] = plugin


class TestStore(BatchContract):
    """On what is installed anyway, so that no network is needed."""

    plugin = plugin
    cartridge_id = "models-store"
    varying = ("duration_ms",)

    def value(self, cap: Cap) -> object:
        """Ask for a path that is here, for what removes it a package that is not."""
        match cap.aliases[0]:
            case "list-models":
                return "https"
            case "remove-model":
                return "pkg:pypi/no-such-project@1#x"
        return f"pkg:pypi/pluggy@{version('pluggy')}#pluggy"
