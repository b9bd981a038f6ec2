"""
Fixtures for an author's tests.

Enable them in the root ``conftest.py``, with
``pytest_plugins = ["cartridge_core.testing.fixtures"]``.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from cartridge_core.testing.registries import registry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cartridge_core.registry import Registry

__all__ = ["make_registry"]


@pytest.fixture(name="registry")
def make_registry() -> Iterator[Callable[..., Registry]]:
    """Make registries as `registry_of` does, and close them after the test."""
    with ExitStack() as stack:
        yield lambda *plugins, **given: stack.enter_context(registry_of(*plugins, **given))
