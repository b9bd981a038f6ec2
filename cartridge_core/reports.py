"""Values that say what was found: preflight checks, discovery issues, explained routes."""

from __future__ import annotations

import attrs

__all__ = ["Candidate", "Check", "DiscoveryIssue", "Explanation", "PreflightReport"]


@attrs.frozen
class Check:
    """One requirement and whether this machine meets it."""

    name: str
    ok: bool
    required: str = attrs.field(default="", kw_only=True)
    found: str = attrs.field(default="", kw_only=True)
    fix: str = attrs.field(default="", kw_only=True)
    """What to do where it is not met; a command to type where there is one."""

    def __str__(self) -> str:
        parts = [f"{self.name}: needs {self.required}" if self.required else self.name]
        if self.found:
            parts.append(f"found {self.found}")
        if not self.ok and self.fix:
            parts.append(self.fix)
        return "; ".join(parts)


@attrs.frozen
class PreflightReport:
    """
    What was checked before a load, without loading anything.

    Source: Cartridge ABI 0.1, ``ctg_preflight``.
    """

    checks: tuple[Check, ...] = ()

    memory_bytes: int | None = attrs.field(default=None, kw_only=True)
    """What the open cartridge is expected to hold; None where it cannot be told."""

    @property
    def ok(self) -> bool:
        """Whether every check is met."""
        return all(check.ok for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that are not met."""
        return tuple(check for check in self.checks if not check.ok)

    def __str__(self) -> str:
        return "\n".join(f"{'ok  ' if check.ok else 'FAIL'} {check}" for check in self.checks)


@attrs.frozen
class DiscoveryIssue:
    """Something installed that cannot be used as it is; the rest works without it."""

    distribution: str
    """The distribution's name, or the path of what has no readable name."""

    version: str | None
    what: str
    """What cannot be used: a plugin, a descriptor file, a pack."""

    why: str
    fix: str

    plugin: str | None = attrs.field(default=None, kw_only=True)
    """The plugin's name, where it could be read."""

    caps: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    """Texts of the cap URNs that would have been offered, as far as they could be read."""

    def __str__(self) -> str:
        version = f" {self.version}" if self.version else ""
        return f"{self.distribution}{version}: {self.what}: {self.why}. {self.fix}"


@attrs.frozen
class Candidate:
    """One cap of one cartridge, and why it was chosen or not."""

    cartridge_id: str
    plugin: str
    cap: str
    mode: str
    grade: str
    """How it serves the request: ``exact``, ``guaranteed``, ``possible`` or ``none``."""

    chosen: bool
    reason: str


@attrs.frozen
class Explanation:
    """Every candidate for a request, best first, each with its reason."""

    request: str
    mode: str | None
    candidates: tuple[Candidate, ...]
    summary: str

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that `route` takes; None where it refuses."""
        return next((item for item in self.candidates if item.chosen), None)

    def __str__(self) -> str:
        lines = [self.summary]
        for item in self.candidates:
            mark = "->" if item.chosen else "  "
            lines.append(f"{mark} {item.cartridge_id} ({item.mode}) {item.cap}: {item.reason}")
        return "\n".join(lines)
