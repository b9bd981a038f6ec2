"""
The rules that hold between the parts of one cap.

Source: CapDAG, cap definitions; the rules carry its numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cartridge_core.jsondata import at, refusal
from cartridge_core.urn import MediaUrn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cartridge_core.capparts import Arg, Output
    from cartridge_core.urn import CapUrn

__all__ = ["check_args", "check_outputs", "find_main_arg"]

_VOID = MediaUrn.parse("media:void")


def find_main_arg(urn: CapUrn, args: Sequence[Arg]) -> Arg | None:
    """Give the main input: the argument whose stdin source is equivalent to ``in=``."""
    for arg in args:
        if arg.stdin is not None and arg.stdin.is_equivalent(urn.in_):
            return arg
    return None


def check_args(urn: CapUrn, args: Sequence[Arg], where: str) -> None:
    """
    Hold a cap's arguments to the rules between them.

    Args:
        urn: The cap's URN.
        args: Its arguments, in order.
        where: The place of the array.

    Raises:
        InvalidArgumentError: They break a rule.
    """
    _check_distinct(args, where, name_rule=17, urn_rule=1)
    _check_main(urn, args, where)
    _check_positions(args, where)
    _check_flags(args, where)
    _check_scope(find_main_arg(urn, args), args, where)


class _Part(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def media_urn(self) -> MediaUrn: ...


def _check_distinct(parts: Sequence[_Part], where: str, *, name_rule: int, urn_rule: int) -> None:
    for index, part in enumerate(parts):
        for earlier in parts[:index]:
            if part.name == earlier.name:
                rule = f"this name stands twice in one cap (CapDAG RULE{name_rule})"
                raise refusal(at(at(where, index), "name"), rule, part.name)
            if _is_same(part.media_urn, earlier.media_urn):
                rule = f"is that of {earlier.name!r} too; it identifies one (CapDAG RULE{urn_rule})"
                raise refusal(at(at(where, index), "media_urn"), rule, str(part.media_urn))


def _is_same(one: MediaUrn, two: MediaUrn) -> bool:
    return one.specificity == two.specificity and one.is_equivalent(two)


def _check_main(urn: CapUrn, args: Sequence[Arg], where: str) -> None:
    piped = [index for index, arg in enumerate(args) if arg.stdin is not None]
    if len(piped) > 1:
        rule = "a second argument has a stdin source; a cap has one main input (CapDAG RULE3)"
        raise refusal(at(at(where, piped[1]), "sources"), rule)
    main = find_main_arg(urn, args)
    if urn.in_ == _VOID and piped:
        rule = "has a stdin source, and in= is media:void: the cap takes no input (CapDAG RULE15)"
        raise refusal(at(at(where, piped[0]), "sources"), rule)
    if urn.in_ != _VOID and main is None:
        rule = f"no argument has a stdin source equivalent to in={urn.in_} (CapDAG RULE15)"
        raise refusal(where, rule)
    for index, arg in enumerate(args):
        if arg.streaming and arg is not main:
            rule = "only the main input may be streaming (CapDAG RULE14)"
            raise refusal(at(at(where, index), "streaming"), rule)


def _check_positions(args: Sequence[Arg], where: str) -> None:
    placed: dict[int, str] = {}
    for index, arg in enumerate(args):
        for source in arg.sources:
            if source.kind == "position" and isinstance(source.value, int):
                if source.value in placed:
                    rule = f"has the position of {placed[source.value]!r} (CapDAG RULE5)"
                    raise refusal(at(at(where, index), "sources"), rule, source.value)
                placed[source.value] = arg.name
    for expected, position in enumerate(sorted(placed)):
        if position != expected:
            rule = f"positions leave no gap; {expected} is missing (CapDAG RULE6)"
            raise refusal(where, rule, position)


def _check_flags(args: Sequence[Arg], where: str) -> None:
    taken: dict[object, str] = {}
    for index, arg in enumerate(args):
        for source in arg.sources:
            if source.kind == "cli_flag":
                if source.value in taken:
                    rule = f"has the cli_flag of {taken[source.value]!r} (CapDAG RULE9)"
                    raise refusal(at(at(where, index), "sources"), rule, source.value)
                taken[source.value] = arg.name


def _check_scope(main: Arg | None, args: Sequence[Arg], where: str) -> None:
    for index, arg in enumerate(args):
        if arg is main and arg.scope == "open" and not arg.pack:
            place = at(at(at(where, index), "metadata"), "scope")
            rule = "the main input is given to a session; it cannot take effect at load"
            raise refusal(place, rule, arg.scope)


def check_outputs(urn: CapUrn, outputs: Sequence[Output], where: str) -> None:
    """
    Hold a cap's outputs to the rules between them.

    Args:
        urn: The cap's URN.
        outputs: Its outputs, in order.
        where: The place of the array.

    Raises:
        InvalidArgumentError: They break a rule.
    """
    _check_distinct(outputs, where, name_rule=19, urn_rule=20)
    main = [output for output in outputs if output.media_urn.is_equivalent(urn.out)]
    if urn.out == _VOID and outputs:
        rule = "out= is media:void: the cap has no output (CapDAG RULE21)"
        raise refusal(where, rule)
    if urn.out != _VOID and not main:
        rule = f"no output has a media_urn equivalent to out={urn.out} (CapDAG RULE21)"
        raise refusal(where, rule)
    for index, output in enumerate(outputs):
        place = at(at(where, index), "carries")
        if output.carries and output in main:
            raise refusal(place, "the main output carries its own type (CapDAG RULE22)")
        if output.carries and urn.in_ == _VOID:
            raise refusal(place, "the cap takes no input to carry (CapDAG RULE22)")
