"""What a registry allows: memory, and every time after which it does something by itself."""

from __future__ import annotations

import attrs

from cartridge_core.errors import InvalidArgumentError

__all__ = ["Limits"]


@attrs.frozen(kw_only=True)
class Limits:
    """The limits of one registry; times in seconds."""

    memory_budget_bytes: int | None = None
    """What all open cartridges may need together, by their preflights; None is no limit."""

    idle_timeout_s: float = 300.0
    """How long a cartridge that nobody uses stays open."""

    activity_timeout_s: float = 120.0
    """How long a cartridge at work may show no sign of life."""

    keepalive_s: float = 30.0
    """How long a caller hears nothing before the host speaks for the cartridge."""

    queue_timeout_s: float = 300.0
    """How long a call waits for a free session, a device or memory."""

    grace_s: float = 5.0
    """How long a cartridge may take to stop once it was asked to."""

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(type(self)):
            value: object = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
                msg = f"{field.name} is {value!r}; a number above 0 is expected"
                raise InvalidArgumentError(msg, arg=field.name, value=value, rule="above 0")

    @property
    def shortest_s(self) -> float:
        """The shortest of the times that something has to be looked at for."""
        return min(self.idle_timeout_s, self.activity_timeout_s, self.keepalive_s)
