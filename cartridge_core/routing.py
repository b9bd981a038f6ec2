"""
Route a request to the one cap that serves it, and explain why it is that one.

No plugin is imported or called: all that is said here is read from descriptors.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import attrs

from cartridge_core._known_plugins import find_distributions
from cartridge_core.errors import AmbiguousRouteError, NoRouteError, NoRouteReason, UrnError
from cartridge_core.offers import Index, Offer
from cartridge_core.reports import Candidate, DiscoveryIssue, Explanation
from cartridge_core.selection import Ground, Request, Selection, reads_value, select
from cartridge_core.urn import CapUrn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cartridge_core.capdefs import Cap
    from cartridge_core.descriptor import IoMode
    from cartridge_core.offers import OfferedCap
    from cartridge_core.selection import Dropped

__all__ = ["Index", "Offer", "Request", "Route", "explain", "reads_value", "route"]


@attrs.frozen(kw_only=True, repr=False)
class Route:
    """The cap of the cartridge that serves a request, and why."""

    request: CapUrn
    offer: Offer
    cap: Cap

    reason: str
    """What decided, for a person."""

    @property
    def cartridge_id(self) -> str:
        """The id of the chosen cartridge."""
        return self.offer.id

    @property
    def plugin(self) -> str:
        """The name of the plugin that opens it."""
        return self.offer.plugin

    @property
    def mode(self) -> IoMode:
        """The cartridge's ``io.mode``."""
        return self.offer.descriptor.mode

    def __str__(self) -> str:
        return f"{self.cartridge_id} ({self.mode.value}) {self.cap.urn}: {self.reason}"

    def __repr__(self) -> str:
        return f"<Route {self}>"


def route(index: Index, request: Request) -> Route:
    """
    Choose the one cap that serves a request.

    Raises:
        NoRouteError: Nothing serves it; ``reason`` and the text tell the four situations apart.

        AmbiguousRouteError: Several serve it equally well.

        InvalidArgumentError: The main value stands for a model spec, and is malformed.
    """
    selection = select(index, request)
    if len(selection.left) == 1:
        chosen = selection.left[0]
        reason = _why_chosen(selection)
        return Route(request=request.cap, offer=chosen.offer, cap=chosen.cap, reason=reason)
    explanation = _explanation(index, request, selection)
    if selection.left:
        ids = tuple(_ids(selection.left))
        raise AmbiguousRouteError(explanation.summary, cartridge_ids=ids, explanation=explanation)
    reason_code = _why_none(index, request, selection)
    raise NoRouteError(explanation.summary, reason=reason_code, explanation=explanation)


def explain(index: Index, request: Request) -> Explanation:
    """
    Say of every candidate why it is chosen or not; also where `route` refuses.

    Raises:
        InvalidArgumentError: The main value stands for a model spec, and is malformed.
    """
    return _explanation(index, request, select(index, request))


_MIGHT = "it only might serve the request, and nothing is routed on that"


def _explanation(index: Index, request: Request, selection: Selection) -> Explanation:
    """Give a row to each that is left, each that was dropped, and each that only might do."""
    left, dropped, asked = selection.left, selection.dropped, request.cap
    chosen = len(left) == 1
    why = _why_chosen(selection) if chosen else "nothing decides between it and the others left"
    rows = [_row(one, asked, why, chosen=chosen) for one in left]
    rows += [_row(one.offered, asked, one.why) for one in dropped]
    serving = {*left, *(one.offered for one in dropped)}
    might = [one for one in index.caps if one not in serving and one.cap.urn.may_dispatch(asked)]
    rows += [_row(one, asked, _MIGHT) for one in might]
    return Explanation(
        request=str(asked),
        mode=request.mode.value if request.mode else None,
        candidates=tuple(rows),
        summary=_summary(index, request, selection),
    )


def _row(offered: OfferedCap, asked: CapUrn, reason: str, *, chosen: bool = False) -> Candidate:
    offer, urn = offered.offer, offered.cap.urn
    return Candidate(
        cartridge_id=offer.id,
        plugin=offer.plugin,
        cap=str(urn),
        mode=offer.descriptor.mode.value,
        grade=urn.grade(asked).value,
        chosen=chosen,
        reason=reason,
    )


def _why_chosen(selection: Selection) -> str:
    """Name the rules that decided, in their order."""
    if not selection.dropped:
        return "nothing else serves the request"
    decisive = [one.why for one in reversed(selection.dropped) if one.ground is not Ground.MISFIT]
    return "; ".join(dict.fromkeys(decisive)) or "nothing else that serves the request fits"


def _why_none(index: Index, request: Request, selection: Selection) -> NoRouteReason:
    if _in_other_mode(selection):
        return NoRouteReason.OTHER_MODE
    if _broken(index, request.cap):
        return NoRouteReason.DISCOVERY_ISSUE
    return NoRouteReason.EXCLUDED if selection.dropped else NoRouteReason.NOT_OFFERED


def _summary(index: Index, request: Request, selection: Selection) -> str:
    """Say in a sentence or two how the request ends, and what to do where it fails."""
    if len(selection.left) == 1:
        return f"{request.cap} goes to {selection.left[0].offer.id}."
    if selection.left:
        return _text_ambiguous(request, selection.left)
    match _why_none(index, request, selection):
        case NoRouteReason.OTHER_MODE:
            text = _text_other_mode(request, selection)
        case NoRouteReason.DISCOVERY_ISSUE:
            text = _text_broken(request.cap, selection)
        case NoRouteReason.EXCLUDED:
            text = _text_excluded(request, selection.dropped)
        case NoRouteReason.NOT_OFFERED:
            text = _text_not_offered(index, request.cap)
    return " ".join([text, *map(_sentence, _broken(index, request.cap))])


def _text_ambiguous(request: Request, left: list[OfferedCap]) -> str:
    ids = _ids(left)
    if len(ids) == 1:
        caps = " or ".join(sorted(str(one.cap.urn) for one in left))
        return f"{request.cap} is ambiguous within {ids[0]}: ask for {caps}."
    by_model = len({one.offer.descriptor.formats for one in left}) > 1
    return (
        f"{request.cap} is ambiguous: {' and '.join(ids)} serve it equally well. Pass "
        f"cartridge_id={ids[0]!r} or prefer=[{ids[0]!r}] for one of them"
        f"{', or the model_spec, as they read different formats.' if by_model else '.'}"
    )


def _text_other_mode(request: Request, selection: Selection) -> str:
    others = _in_other_mode(selection)
    ids = _ids(one.offered for one in others)
    mode = others[0].offered.offer.descriptor.mode
    rest = _reasons(one for one in selection.dropped if one not in others)
    unfit = f" that fits this request ({rest})" if rest else ""
    return (
        f"No cartridge{unfit} offers {request.cap} with io.mode {request.mode}; "
        f"{' and '.join(ids)} {'offers' if len(ids) == 1 else 'offer'} it with {mode}. "
        f"Ask for mode={mode.value!r}, or for no mode."
    )


def _text_broken(asked: CapUrn, selection: Selection) -> str:
    rest = _reasons(selection.dropped)
    unfit = f" The rest does not fit this request: {rest}." if rest else ""
    return f"What offers {asked} is installed, and cannot be used.{unfit}"


def _text_excluded(request: Request, dropped: list[Dropped]) -> str:
    return f"{request.cap} is offered, but not for this request: {_reasons(dropped)}."


def _reasons(dropped: Iterable[Dropped]) -> str:
    """List why caps were dropped, each reason once, after the cartridges it is about."""
    caps = defaultdict(list)
    for one in dropped:
        caps[one.why].append(one.offered)
    return "; ".join(f"{', '.join(_ids(offered))}: {why}" for why, offered in caps.items())


def _text_not_offered(index: Index, asked: CapUrn) -> str:
    commands = " or ".join(f"`pip install {name}`" for name in find_distributions(asked))
    fix = f"Type {commands}" if commands else "`cartridge caps` lists what is offered"
    text = f"No installed cartridge offers {asked}. {fix}."
    if index.issues:
        text += " Some of what is installed cannot be used: `cartridge doctor` says what."
    return text


def _in_other_mode(selection: Selection) -> list[Dropped]:
    """Give what the asked mode alone ruled out, where that left nothing."""
    if selection.left:
        return []
    return [one for one in selection.dropped if one.ground is Ground.OTHER_MODE]


def _broken(index: Index, asked: CapUrn) -> list[DiscoveryIssue]:
    """Give the issues that keep something from serving the request."""
    known = find_distributions(asked) if index.issues else []
    return [
        issue
        for issue in index.issues
        if issue.distribution in known or any(_serves(text, asked) for text in issue.caps)
    ]


def _serves(text: str, asked: CapUrn) -> bool:
    try:
        return CapUrn.parse(text).is_dispatchable(asked)
    except UrnError:
        return False


def _sentence(issue: DiscoveryIssue) -> str:
    text = str(issue)
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _ids(caps: Iterable[OfferedCap]) -> list[str]:
    return sorted({one.offer.id for one in caps})
