"""The verb ``conform``: does a cartridge keep the contract."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from cartridge_core.cli.options import prints_result
from cartridge_core.cli.terminal import Terminal
from cartridge_core.errors import LoadError, Status, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cartridge_core.cli.conform_run import Rule
    from cartridge_core.offers import Offer

__all__ = ["conform"]

_FAILED = 10 - Status.ABI_MISMATCH
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_LIMIT_S = 120.0
_VERDICT_COLUMNS = 14
_RULE_COLUMNS = 52

_PACK_ID = "id_starts_with_the_name_of_the_plugin"
_CANCELLED = "cancelling_stops_the_work"


@attrs.frozen(kw_only=True)
class _Trial:
    """What to try a cartridge with, as typed."""

    model_spec: str | None
    sample: Path | None
    slow: Path | None
    golden: Path | None
    varying: tuple[str, ...]
    limit_s: float


@click.command
@click.argument("name", metavar="PACK|LIBRARY|ID")
@click.option("--model-spec", metavar="SPEC", help="The model: a model spec or a path.")
@click.option(
    "--input",
    "sample",
    type=_FILE,
    metavar="FILE",
    help="An input for every cap that takes it: *.json, *.npy, or as for `cartridge run`.",
)
@click.option(
    "--slow-input",
    "slow",
    type=_FILE,
    metavar="FILE",
    help="An input that a batch cartridge works on for seconds, to see it cancelled.",
)
@click.option(
    "--golden",
    type=_FILE,
    metavar="FILE",
    help="Golden vectors, whose inputs and parameters are taken; a pack's own are anyway.",
)
@click.option(
    "--varying",
    multiple=True,
    metavar="FIELD",
    help="A field of its records that differs from run to run; repeatable.",
)
@click.option(
    "--timeout",
    "limit_s",
    type=click.FloatRange(min=0, min_open=True),
    default=_LIMIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long one rule may take, with the load of its model.",
)
@prints_result
@click.pass_context
def conform(
    context: click.Context,
    name: str,
    *,
    model_spec: str | None,
    sample: Path | None,
    slow: Path | None,
    golden: Path | None,
    varying: tuple[str, ...],
    limit_s: float,
) -> None:
    """Hold a cartridge to the contract, rule by rule.

    It is an installed cartridge by its ID, the folder PACK, or the shared LIBRARY of a native
    cartridge. Inputs that are not given are made up where the descriptor says enough. A cartridge
    that dies or hangs fails the rule it was at. Ends with status 18 where a rule is broken.
    """
    terminal = context.find_object(Terminal)
    assert terminal is not None  # noqa: S101 -- the application makes one for every command
    if importlib.util.find_spec("pytest") is None:
        msg = "the contract suite needs pytest: pip install 'cartridge-core[testing]'"
        raise LoadError(msg)
    import tempfile  # noqa: PLC0415 -- `--help` needs none

    terminal.capture()
    trial = _Trial(
        model_spec=model_spec,
        sample=sample,
        slow=slow,
        golden=golden,
        varying=varying,
        limit_s=limit_s,
    )
    rules: list[Rule] = []
    with tempfile.TemporaryDirectory(prefix="cartridge-conform-") as folder:
        for rule in _rules(terminal, name, trial, Path(folder)):
            rules.append(rule)
            _say(terminal, rule)
    counts = Counter(rule.verdict.value for rule in rules)
    passed, failed, others = (counts[word] for word in ("pass", "fail", "not applicable"))
    document = {
        "subject": name,
        "passed": passed,
        "failed": failed,
        "not_applicable": others,
        "rules": [attrs.asdict(rule, filter=_is_told) for rule in rules],
    }
    summary = f"{name}: {passed} passed, {failed} failed, {others} not applicable"
    terminal.give(document, summary)
    if failed:
        context.exit(_FAILED)


def _is_told(field: attrs.Attribute[object], _: object) -> bool:
    return field.name != "trace"


def _say(terminal: Terminal, rule: Rule) -> None:
    """Print a rule as soon as it is over."""
    if not terminal.json:
        verdict, name = rule.verdict.ljust(_VERDICT_COLUMNS), rule.rule.ljust(_RULE_COLUMNS)
        details = [f"  {line}" for line in rule.detail.splitlines()]
        terminal.write("\n".join([f"{verdict}  {name}  {rule.text}", *details]) + "\n")
    if terminal.verbose and rule.trace:
        terminal.complain(rule.trace)


def _rules(terminal: Terminal, name: str, trial: _Trial, scratch: Path) -> Iterator[Rule]:
    """Try it, and give the rules as they are over."""
    from cartridge_core.cli.conform_inputs import (  # noqa: PLC0415 -- few verbs need it
        Inputs,
        golden_of,
    )
    from cartridge_core.cli.conform_run import run_contract  # noqa: PLC0415 -- as above
    from cartridge_core.cli.conform_subject import find_tried  # noqa: PLC0415 -- as above

    tried = find_tried(name, scratch, trial.limit_s)
    yield from tried.rules
    offer = tried.offer
    if offer is None:
        return
    descriptor = offer.descriptor
    if not descriptor.caps:
        msg = f"{descriptor.id} declares no cap, and the contract is about caps"
        raise UnsupportedError(msg)
    inputs = Inputs(
        offer=offer,
        sample=trial.sample,
        slow=trial.slow,
        vectors=golden_of(offer, trial.golden),
        scratch=scratch,
    )
    given = {
        "plugin": offer.plugin,
        "cartridge_id": descriptor.id,
        "mode": descriptor.mode.value,
        "packs": [str(offer.pack)] if offer.pack is not None else [],
        "values": inputs.values(),
        "arguments": inputs.arguments(),
        "model": _model(terminal, offer, trial.model_spec),
        "varying": trial.varying,
        "not_applicable": _not_applicable(offer, trial),
    }
    yield from run_contract(given, scratch, trial.limit_s)


def _model(terminal: Terminal, offer: Offer, spec: str | None) -> str | None:
    """Have the model on this machine, the declared default where none is named; give its path."""
    arg = offer.descriptor.pack_arg
    if offer.pack is not None or arg is None:
        if spec is None:
            return None
        what = "is a pack, which is its own model" if offer.pack else "takes no model"
        msg = f"--model-spec is given, and {offer.id} {what}"
        raise click.UsageError(msg)
    if spec is None and not arg.has_default:
        msg = f"{offer.id} has no default model; name one with --model-spec"
        raise click.UsageError(msg)
    from cartridge_core.cli.fetching import fetch_model  # noqa: PLC0415 -- few verbs need it

    with terminal.registry() as registry:
        path, _ = fetch_model(registry, spec or str(arg.default))
    if not path.exists():
        msg = f"the model {path} does not exist; check the path"
        raise LoadError(msg)
    return str(path)


def _not_applicable(offer: Offer, trial: _Trial) -> dict[str, str]:
    """Say which rules say nothing about this one, and why."""
    left_out = {}
    if offer.pack is not None:
        left_out[_PACK_ID] = "a pack has an id of its own"
    if trial.slow is None:
        left_out[_CANCELLED] = "no input is known that takes seconds; give one with --slow-input"
    return left_out
