"""Entry points as claims: which distribution may have which plugin name, and what it must name."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import attrs

from cartridge_core._descriptor_files import (
    Owner,
    RefusedError,
    cap_texts,
    descriptor_files,
    module_folder,
)
from cartridge_core._distributions import Distribution, normalise

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from cartridge_core.reports import DiscoveryIssue

__all__ = ["Claim", "allow", "claims_of", "listed", "without_rivals"]

_PLUGIN_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@attrs.frozen
class Claim:
    """An entry point: a distribution says that a module is the plugin of this name."""

    distribution: Distribution
    name: str
    value: str = attrs.field(kw_only=True)

    @property
    def owner(self) -> Owner:
        """Who makes the claim."""
        return Owner(self.distribution.name, self.distribution.version, plugin=self.name)

    @property
    def what(self) -> str:
        """What an issue about it is about."""
        return f"plugin {self.name}"

    @property
    def module(self) -> str:
        """
        The plugin's module.

        Raises:
            RefusedError: The plugin's name is malformed, or the value is no module in a package.
        """
        module, colon, attribute = (part.strip() for part in self.value.partition(":"))
        if not _PLUGIN_NAME.fullmatch(self.name):
            why = f"{self.name!r} is no plugin name: words of a-z and 0-9 with - between them"
        elif "[" in self.value:
            why = f"its entry point {self.value!r} asks for extras; a plugin has none"
        elif colon:
            why = f"its entry point {self.value!r} names the attribute {attribute!r}, not a module"
        elif "." not in module or not all(part.isidentifier() for part in module.split(".")):
            why = f"its entry point {self.value!r} is not the dotted name of a module in a package"
        else:
            return module
        raise RefusedError(why, f"Its authors must write it like this: {_example(self.name)}")

    def __str__(self) -> str:
        return f"{self.distribution} ({self.value})"


def _example(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", name.lower()) or ["example"]
    return f'{"-".join(words)} = "cartridge_{"_".join(words)}.plugin"'


def claims_of(distributions: Iterable[Distribution]) -> tuple[Claim, ...]:
    """Give every claim that the distributions make."""
    return tuple(
        Claim(distribution, entry.name, value=entry.value)
        for distribution in distributions
        for entry in distribution.entries
    )


def allow(
    claims: Sequence[Claim], allowed: Collection[str]
) -> tuple[tuple[Claim, ...], tuple[DiscoveryIssue, ...]]:
    """
    Leave what a user allows.

    Args:
        claims: Every claim.
        allowed: Names of plugins or of distributions; a plugin name that several distributions
            claim is left to those named as distributions.

    Returns:
        The claims that are left, and an issue for each name that nothing bears.
    """
    wanted = {normalise(name) for name in allowed if name.strip()}
    left: list[Claim] = []
    known: set[str] = set()
    for name, rivals in _by_name(claims).items():
        named = [claim for claim in rivals if claim.distribution.key in wanted]
        left += named or (rivals if normalise(name) in wanted else [])
        known |= {normalise(name), *(claim.distribution.key for claim in rivals)}
    why = "no installed plugin, and no distribution that has one, bears this name"
    fix = f"Install it, or correct CARTRIDGE_PLUGINS; installed: {listed(known) or 'none'}."
    issues = (Owner(name, None).issue("allowed name", why, fix) for name in sorted(wanted - known))
    return tuple(left), tuple(issues)


def without_rivals(
    claims: Sequence[Claim], path: Sequence[str] | None
) -> tuple[tuple[Claim, ...], tuple[DiscoveryIssue, ...]]:
    """
    Leave the plugin names that one distribution alone claims.

    Args:
        claims: What is allowed.
        path: Where packages are, to say which caps are lost; None is as an import would.

    Returns:
        The claims that are left, and an issue for each of the others, naming its rivals.
    """
    left: list[Claim] = []
    issues: list[DiscoveryIssue] = []
    for rivals in _by_name(claims).values():
        if len(rivals) == 1:
            left += rivals
            continue
        why = f"its name is claimed by {listed(map(str, rivals))}"
        fix = _choice(sorted({claim.distribution.name for claim in rivals}))
        issues += [claim.owner.issue(claim.what, why, fix, _caps(claim, path)) for claim in rivals]
    return tuple(left), tuple(issues)


def _choice(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"Reinstall {names[0]}, or tell its authors."
    return (
        f"Uninstall all but one, or choose one by its distribution's name in CARTRIDGE_PLUGINS, "
        f"which lists all plugins to use (CARTRIDGE_PLUGINS={names[0]} for one)."
    )


def _caps(claim: Claim, path: Sequence[str] | None) -> tuple[str, ...]:
    try:
        files = descriptor_files(module_folder(claim.module, path))
    except Exception:  # noqa: BLE001 -- the plugin is refused already
        return ()
    return tuple(text for file in files for text in cap_texts(file))


def _by_name(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    named = defaultdict(list)
    for claim in claims:
        named[claim.name].append(claim)
    return named


def listed(names: Iterable[str]) -> str:
    """Write names as a sentence does, in alphabetical order: ``a, b and c``; empty for none."""
    *most, last = sorted(names) or [""]
    return f"{', '.join(most)} and {last}" if most else last
