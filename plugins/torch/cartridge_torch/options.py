"""The open arguments, which all cartridges of the plugin have."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LoadOptions"]


@attrs.frozen
class LoadOptions:
    """Where and how a model runs."""

    device: str
    dtype: str
    threads: int = attrs.field(kw_only=True)

    @classmethod
    def read(cls, options: Mapping[str, object]) -> LoadOptions:
        """Take them as the host gives them, checked and with defaults filled in."""
        return cls(
            cast("str", options["device"]),
            cast("str", options["dtype"]),
            threads=cast("int", options["threads"]),
        )
