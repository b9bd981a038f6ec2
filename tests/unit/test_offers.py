"""The index finds what a full scan finds, and knows offers by their ids."""

from __future__ import annotations

from itertools import product

import pytest

from cartridge_core.descriptor import Descriptor
from cartridge_core.offers import Index, Offer
from cartridge_core.reports import DiscoveryIssue
from cartridge_core.testing import fake_cap, fake_descriptor
from cartridge_core.urn import CapUrn

MEDIA = "media:enc=utf-8"


def an_offer(cartridge_id: str, *urns: str, plugin: str = "fake", base: str | None = None) -> Offer:
    """Give an offer of these caps, by default of none."""
    caps = [_cap(number, CapUrn.parse(urn)) for number, urn in enumerate(urns)]
    document = fake_descriptor(cartridge_id).to_json()
    attributes = {"caps": caps, "base": base} if base else {"caps": caps}
    return Offer(Descriptor.from_json({**document, "attributes": attributes}), plugin)


def _cap(number: int, urn: CapUrn) -> dict[str, object]:
    cap = fake_cap(f"cap-{number}", takes=str(urn.in_), gives=str(urn.out))
    return {**cap, "urn": str(urn)}


def ids(index: Index, request: str) -> list[str]:
    return [one.offer.id for one in index.dispatchable(CapUrn.parse(request))]


# How one key can stand in a URN: not at all, and in each of the six forms.
FORMS = ("", "{}", "{}=v", "{}=w", "!{}", "?{}", "{}?=v", "{}!=v")
SOME_FORMS = ("", "{}", "{}=v", "!{}", "{}!=v")


def caps_of_every_form() -> list[str]:
    """Combine every form of a tag, of a second tag, and of a tag of the output."""
    texts = []
    for first, second, out in product(FORMS, SOME_FORMS, FORMS):
        tags = [form.format(key) for form, key in ((first, "a"), (second, "b")) if form]
        media = f'out="media:{out.format("t")}"' if out else ""
        texts.append("cap:" + ";".join(filter(None, [*tags, media, "x"])))
    return texts


def test_index_finds_what_a_full_scan_finds() -> None:
    """Looking only where the rarest need can be misses nothing and adds nothing."""
    texts = caps_of_every_form()
    offers = [an_offer(f"c-{number:03}", text) for number, text in enumerate(texts)]
    index = Index(offers)
    caps = [(offer.id, offer.descriptor.caps[0].urn) for offer in offers]
    found = 0
    for text in [*texts, "cap:?effect", "cap:in=media:image;x", "cap:in=media:image;y"]:
        request = CapUrn.parse(text)
        expected = [cartridge_id for cartridge_id, urn in caps if urn.is_dispatchable(request)]
        assert ids(index, text) == expected, text
        found += len(expected)
    assert len(texts) == 320
    assert found > 10_000


@pytest.mark.parametrize(
    ("request_urn", "found"),
    [
        pytest.param("cap:count", ["c-exact", "c-more"], id="bare-tag"),
        pytest.param("cap:count;!fast", ["c-exact"], id="unset-tag"),
        pytest.param("cap:count;fast!=no", ["c-more"], id="set-to-another-value"),
        pytest.param("cap:count;fast=yes", ["c-more"], id="exact-value"),
        pytest.param("cap:count;fast=no", [], id="other-value"),
        pytest.param('cap:count;out="media:enc=utf-8"', ["c-more"], id="output"),
        pytest.param("cap:missing", [], id="nobody-has-it"),
    ],
)
def test_request_finds_the_caps_that_serve_it(request_urn: str, found: list[str]) -> None:
    """A request is answered by the caps that have what it needs."""
    more = f'cap:count;fast=yes;in="{MEDIA}";out="{MEDIA}"'
    index = Index([an_offer("c-more", more), an_offer("c-exact", "cap:count")])
    assert ids(index, request_urn) == found


def test_every_cap_of_a_cartridge_is_found() -> None:
    """A cartridge is found by each of its caps."""
    index = Index([an_offer("c-two", "cap:count", "cap:sort")])
    assert ids(index, "cap:count") == ids(index, "cap:sort") == ["c-two"]


def test_cartridge_without_caps_is_known_and_serves_nothing() -> None:
    """A descriptor without caps can be had by its id, and no request goes to it."""
    index = Index([an_offer("c-bare")])
    assert index.get("c-bare") is index.offers[0]
    assert ids(index, "cap:?effect") == []


def test_offers_are_sorted_by_id() -> None:
    """The order in which offers come in leaves no trace."""
    one, two = an_offer("c-one", "cap:count"), an_offer("c-two", "cap:count")
    assert Index([two, one]).offers == Index([one, two]).offers == (one, two)


def test_unknown_id_is_none() -> None:
    """An id that nobody offers gives None."""
    assert Index([an_offer("c-one")]).get("c-two") is None


def test_without_drops_every_offer_of_a_plugin_and_says_why() -> None:
    """A plugin that is given up is gone from the index, and its issue is there."""
    earlier, later = (
        DiscoveryIssue("cartridge-fake", "1.0", what=what, why="it broke", fix="Reinstall it.")
        for what in ("descriptor", "plugin fake")
    )
    offers = [
        an_offer("c-one", "cap:count"),
        an_offer("c-two", "cap:count"),
        an_offer("c-other", "cap:count", plugin="other"),
    ]
    index = Index(offers, [earlier], system="plan9", machine="pdp11")
    left = index.without("fake", later)
    assert ids(left, "cap:count") == ["c-other"]
    assert left.get("c-one") is None
    assert left.issues == (earlier, later)
    assert (left.system, left.machine) == ("plan9", "pdp11")
    assert ids(index, "cap:count") == ["c-one", "c-other", "c-two"]


def test_hooks_are_given_the_base_of_a_pack() -> None:
    """A plugin knows its own cartridge ids, not the packs that narrow them."""
    pack = an_offer("c-pack", base="c-base")
    assert (pack.id, pack.hook_id) == ("c-pack", "c-base")
    assert an_offer("c-base").hook_id == "c-base"
