"""The cartridge that a contract is checked on, and what its author may say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cartridge_core.testing.registries import registry_of
from cartridge_core.testing.samples import find_sample
from cartridge_core.testing.watching import Watch

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from cartridge_core.capdefs import Cap
    from cartridge_core.cartridge import Cartridge
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack
    from cartridge_core.registry import Registry

__all__ = ["Subject"]


class Subject:
    """
    Two attributes that a test class must set, and what it may override.

    Attributes:
        plugin: The plugin's module, another object with its hooks, or the name of an installed
            plugin.
        cartridge_id: Which of its cartridges.
    """

    plugin: object
    cartridge_id: str

    varying: tuple[str, ...] = ()
    """Fields of its records that differ from run to run, a duration for one."""

    patience_s: float = 10.0
    """Seconds to wait for what should come at once."""

    @pytest.fixture
    def model_spec(self) -> Pack | str | os.PathLike[str] | None:
        """Give the model to open with; None, the usual, takes the declared default."""
        return None

    def value(self, cap: Cap) -> object:
        """
        Give a main value that works.

        The usual one is found by the main argument's declaration; records, images, audio, model
        specs and files have none.
        """
        if cap.main is None or cap.main.pack:
            return None
        value = find_sample(cap.main)
        if value is None:
            pytest.fail(
                f"{type(self).__name__} must say a value that works for {cap.urn}: its main "
                f"argument {cap.main.name} is {cap.main.media_urn}; override value(self, cap)"
            )
        return value

    def other_value(self, cap: Cap) -> object:
        """Give another main value that works; the usual one falls back to `value`."""
        main = cap.main
        found = None if main is None or main.pack else find_sample(main, other=True)
        return self.value(cap) if found is None else found

    def parameters(self, cap: Cap) -> dict[str, object]:
        """
        Give the session arguments to use; no more than the cap requires.

        A cartridge that draws at random is made to repeat itself here.
        """
        return {
            arg.name: find_sample(arg)
            for arg in cap.session_args
            if arg.required and not arg.has_default
        }

    @pytest.fixture
    def watch(self) -> Watch:
        """Watch the hooks."""
        return Watch()

    @pytest.fixture
    def registry(self, watch: Watch) -> Iterator[Registry]:
        """Give a registry of this plugin alone."""
        with registry_of(self.plugin, wrappers=[watch]) as registry:
            yield registry

    @pytest.fixture
    def descriptor(self, registry: Registry) -> Descriptor:
        """Give the cartridge's descriptor."""
        known = registry.descriptors
        if self.cartridge_id not in known:
            issues = "".join(f"\n{issue}" for issue in registry.issues)
            pytest.fail(f"no cartridge {self.cartridge_id} among {', '.join(known)}{issues}")
        return known[self.cartridge_id]

    @pytest.fixture
    def cartridge(
        self,
        registry: Registry,
        descriptor: Descriptor,
        model_spec: Pack | str | os.PathLike[str] | None,
    ) -> Iterator[Cartridge]:
        """Give the open cartridge."""
        with registry.open(descriptor.id, model_spec) as cartridge:
            yield cartridge
