"""The verb ``doctor``: what is wrong with this installation, and what to do."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

import click

from cartridge_core.cli.options import prints_result
from cartridge_core.cli.tables import table
from cartridge_core.cli.version import own_version
from cartridge_core.errors import CartridgeError, DiscoveryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cartridge_core.cli.terminal import Terminal
    from cartridge_core.registry import Registry
    from cartridge_core.reports import DiscoveryIssue

__all__ = ["doctor"]

_HUB_VARIABLES = ("HF_HOME", "HF_HUB_OFFLINE", "HF_ENDPOINT")
_VARIABLES = (
    "CARTRIDGE_CACHE",
    "CARTRIDGE_TRUST",
    "CARTRIDGE_PLUGINS",
    "CARTRIDGE_PACKS",
    "CARTRIDGE_PREFER",
    "CARTRIDGE_STRICT",
    "CARTRIDGE_OFFLINE",
)


@click.command
@click.option("--strict", is_flag=True, envvar="CARTRIDGE_STRICT", help="Fail on any issue.")
@prints_result
@click.pass_obj
def doctor(terminal: Terminal, *, strict: bool) -> None:
    """Find what cannot be used, and say what to do.

    Imports every plugin whose backend is installed and asks it for a preflight; no model is
    loaded.
    """
    terminal.capture()
    with terminal.registry() as registry:
        states = [_state(registry, offer.id) for offer in registry.offers]
        issues = registry.issues
    document = {
        "versions": {"python": platform.python_version(), "cartridge-core": own_version()},
        "environment": {name: os.environ.get(name) for name in _shown_variables()},
        "cartridges": states,
        "issues": issues,
    }
    terminal.give(document, _text(states, issues))
    if issues and strict:
        msg = f"{len(issues)} of the installed plugins, descriptors and packs cannot be used"
        raise DiscoveryError(msg, issues=issues)


def _shown_variables() -> list[str]:
    return [*_VARIABLES, *(name for name in _HUB_VARIABLES if name in os.environ)]


def _state(registry: Registry, cartridge_id: str) -> dict[str, object]:
    """Preflight one cartridge; say what is missing."""
    try:
        report = registry.preflight(cartridge_id)
    except CartridgeError as exc:
        problems = [f"{type(exc).__name__}: {exc}"]
    except Exception as exc:  # noqa: BLE001 -- a plugin may raise anything
        problems = [f"its preflight failed with {type(exc).__name__}: {exc}"]
    else:
        problems = [str(check) for check in report.failures]
    return {"id": cartridge_id, "ok": not problems, "problems": problems}


def _text(states: list[dict[str, object]], issues: Sequence[DiscoveryIssue]) -> str:
    facts = [("python", platform.python_version()), ("cartridge-core", own_version())]
    facts += [(name, os.environ.get(name) or "not set") for name in _shown_variables()]
    rows = [(state["id"], _verdict(state["problems"])) for state in states]
    none = "no cartridge can be used" if issues else "no cartridge is installed"
    parts = [table(facts), table(rows) or none, *(f"issue: {issue}" for issue in issues)]
    if issues:
        parts.append("With --strict an issue is an error.")
    return "\n\n".join(parts)


def _verdict(problems: object) -> str:
    return "; ".join(problems) if isinstance(problems, list) and problems else "ok"
