"""What the cartridge is once it is open: who answers for which model spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import UnsupportedError
from cartridge_core.modelspec import HubSpec, ModelSpec, PackageSpec
from cartridge_models.hub import HubOrigin
from cartridge_models.wheels import WheelOrigin

if TYPE_CHECKING:
    from cartridge_models.origin import Origin

__all__ = ["Store"]


@attrs.define
class Store:
    """The open cartridge; it holds no model, only what it has verified."""

    _verified: set[tuple[object, ...]] = attrs.field(init=False, factory=set)

    def origin(self, spec: ModelSpec) -> Origin:
        """
        Give who answers for a spec.

        Raises:
            UnsupportedError: Its scheme is not resolved here.
        """
        match spec:
            case HubSpec():
                return HubOrigin(spec)
            case PackageSpec():
                return WheelOrigin(spec, self._verified)
            case _:
                msg = f"model {spec}: {spec.scheme} is not resolved here; hf and pkg are"
                raise UnsupportedError(msg)
