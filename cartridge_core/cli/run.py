"""The verb ``run``: ask for a capability and print what it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import click

from cartridge_core.arguments import bind
from cartridge_core.cli.meter import Meter
from cartridge_core.cli.options import KeepsDashes, prints_result, read_sets, routes, sets
from cartridge_core.cli.printing import print_events, print_result
from cartridge_core.cli.source import read_source
from cartridge_core.cli.values import read_value, read_values, split_words
from cartridge_core.descriptor import IoMode
from cartridge_core.errors import NoRouteError
from cartridge_core.urn import CapUrn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cartridge_core.calls import Call
    from cartridge_core.cli.terminal import Terminal
    from cartridge_core.registry import Registry
    from cartridge_core.results import Result
    from cartridge_core.routing import Route

__all__ = ["run"]


@attrs.frozen(kw_only=True)
class _Request:
    """What decides where a call goes."""

    cap: str
    mode: str | None
    cartridge_id: str | None
    prefer: tuple[str, ...]
    model_spec: str | None


@click.command(cls=KeepsDashes, context_settings={"ignore_unknown_options": True})
@click.argument("cap")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[VALUE]... [--ARG VALUE]...")
@sets
@routes
@click.option("--input", "source", metavar="FILE", help="Read VALUE from a file; - is stdin.")
@click.option("--stream", is_flag=True, help="Print results as they come.")
@prints_result
@click.pass_obj
def run(
    terminal: Terminal,
    cap: str,
    words: tuple[str, ...],
    settings: tuple[str, ...],
    mode: str | None,
    cartridge_id: str | None,
    prefer: tuple[str, ...],
    model_spec: str | None,
    source: str | None,
    *,
    stream: bool,
) -> None:
    """Ask for the capability CAP, a cap URN, with VALUE as its input.

    Several VALUEs are a list where the input takes one, as in `cartridge run
    cap:generate-embeddings 'a cat' 'a dog'`, and chunks where it is streaming. After -- every word
    is a VALUE. Without VALUE and --input the input is stdin, unless that is a terminal; a
    streaming input takes its text line by line.

    Other arguments are given by --set, or by the flags that the cap declares: `cartridge caps`
    lists them. A flag of an argument that is true or false is true where it stands alone. It takes
    its value as --flag=false, or as the next word where that reads like one (true, false, yes, no,
    on, off, 1, 0); it must be true or false.

    --stream prints text as it grows. With --stream --json every event is one JSON object on a
    line of its own.
    """
    pairs = read_sets(settings)
    if model_spec is not None:
        pairs.append(("model_spec", model_spec))
    request = _Request(
        cap=cap,
        mode=mode,
        cartridge_id=cartridge_id,
        prefer=prefer,
        model_spec=dict(pairs).get("model_spec"),
    )
    terminal.capture()
    with terminal.registry() as registry:
        route = _route(registry, request, words, stream=stream)
        value, args = _read(route, words, pairs, source)
        _call(terminal, registry, route, value, args, stream=stream)


def _route(registry: Registry, request: _Request, words: Sequence[str], *, stream: bool) -> Route:
    """Find whose arguments the words are, before they can be read."""
    spec = request.model_spec
    if spec is None and words and not words[0].startswith("--") and _takes_spec(registry, request):
        spec = words[0]

    def find(mode: str | None) -> Route:
        return registry.route(
            request.cap,
            mode,
            cartridge_id=request.cartridge_id,
            prefer=request.prefer,
            model_spec=spec,
        )

    if request.mode is None and stream:
        try:
            return find("streaming")
        except NoRouteError:
            pass
    return find(request.mode)


def _takes_spec(registry: Registry, request: _Request) -> bool:
    """Say whether the input itself is the model spec, which then decides on the route."""
    explanation = registry.explain(request.cap, request.mode, cartridge_id=request.cartridge_id)
    return any(CapUrn.parse(one.cap).in_.has("model-spec") for one in explanation.candidates)


def _read(
    route: Route, words: Sequence[str], pairs: list[tuple[str, str]], source: str | None
) -> tuple[object, dict[str, object]]:
    """Give the value of the main argument, None where none is given, and the other arguments."""
    main = route.cap.main
    chunked = main is not None and main.streaming and route.mode is IoMode.STREAMING
    several = main is not None and (main.is_sequence or chunked)
    inputs, flagged = split_words(route.cap, words, several=several)
    args = read_values(route.cap.args, [*pairs, *flagged])
    if inputs and source is not None:
        msg = "VALUE and --input are given; one of them is the input"
        raise click.UsageError(msg)
    if inputs:
        values = [text if main is None else read_value(main, text) for text in inputs]
        return (values[0] if len(values) == 1 else values), args
    if main is not None and main.name in args and source is None:
        return None, args
    return read_source(main, source, chunked=chunked), args


def _call(
    terminal: Terminal,
    registry: Registry,
    route: Route,
    value: object,
    args: dict[str, object],
    *,
    stream: bool,
) -> None:
    """Make the call on the cartridge that the words were read for, and print its results."""
    # Names that the cap does not declare are refused here: some are the registry's own.
    bind(route.cap, args, value)
    request, mode, cartridge_id = route.request, route.mode, route.cartridge_id
    with Meter(terminal) as meter:
        if stream:
            start: Callable[..., Call] = registry.stream
            with start(request, value, mode=mode, cartridge_id=cartridge_id, **args) as call:
                print_events(terminal, call, meter)
            return
        wait: Callable[..., Result] = registry.call
        result = wait(
            request,
            value,
            mode=mode,
            cartridge_id=cartridge_id,
            on_progress=meter.note,
            **args,
        )
    print_result(terminal, result)
