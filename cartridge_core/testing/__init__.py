"""
The author's kit: a contract to inherit, fakes, and registries of plugins that are not installed.

Needs the extra ``testing``. A plugin's tests are a class with two attributes:

    class TestEcho(BatchContract):
        plugin = cartridge_echo.plugin
        cartridge_id = "echo-text"
"""

from __future__ import annotations

import pytest

for _module in ("batch", "contract", "describing", "streaming"):
    pytest.register_assert_rewrite(f"{__name__}.{_module}")

from cartridge_core.testing.batch import (  # noqa: E402 -- rewriting goes first
    BatchContract,
    CancellableBatchContract,
)
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor  # noqa: E402
from cartridge_core.testing.fakes import (  # noqa: E402
    BatchEcho,
    FailingEcho,
    SegmentingEcho,
    SlowCounter,
    StreamingEcho,
)
from cartridge_core.testing.registries import discovered_of, registry_of  # noqa: E402
from cartridge_core.testing.streaming import StreamingContract  # noqa: E402

__all__ = [
    "BatchContract",
    "BatchEcho",
    "CancellableBatchContract",
    "FailingEcho",
    "SegmentingEcho",
    "SlowCounter",
    "StreamingContract",
    "StreamingEcho",
    "discovered_of",
    "fake_arg",
    "fake_cap",
    "fake_descriptor",
    "registry_of",
]
