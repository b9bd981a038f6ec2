"""Strict JSON on its own: what every reader of it relies on."""

from __future__ import annotations

import pytest

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.jsondata import at, read_json, shown, thaw


def test_error_nesting_has_an_end():
    """Text that nests too deep is an error that says so, not a crash."""
    with pytest.raises(InvalidArgumentError, match=r"^manifest: nests too deep$"):
        read_json("[" * 100_000, "manifest")


def test_read_and_thaw_give_plain_data():
    """What was read comes back as dicts and lists."""
    assert thaw(read_json(b'{"a": [1, null, {"b": "\xc3\xa9"}]}', "$")) == {
        "a": [1, None, {"b": "é"}]
    }


@pytest.mark.parametrize(
    ("step", "place"),
    [("io", "$.io"), (3, "$[3]"), ("a b", '$["a b"]'), ("é", '$["\\u00e9"]'), ("", '$[""]')],
    ids=str,
)
def test_place_can_be_read_back(step, place):
    """A step that is no plain word is quoted."""
    assert at("$", step) == place


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", '"a"'),
        (None, "null"),
        (True, "true"),
        (b"abc", "3 bytes"),
        (("a", 1), "['a', 1]"),
        (10**5000, "a int too large to show"),
    ],
    ids=["text", "null", "boolean", "bytes", "array", "endless-number"],
)
def test_value_is_shown_in_one_line(value, text):
    """Scalars are shown as JSON, everything in one short line."""
    assert shown(value) == text


def test_long_value_is_cut():
    """No value fills a screen."""
    assert len(shown("x" * 1000)) == len(shown([["x" * 100] * 10] * 10)) == 80
