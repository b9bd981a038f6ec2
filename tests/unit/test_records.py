"""Records: dicts as the caller gets them."""

from __future__ import annotations

import copy
import pickle

import pytest

from cartridge_core.records import Record, as_records

NESTED = {"text": "hi", "segments": [{"start_s": 0.0, "words": [{"text": "hi"}]}], "n": 1}


def test_fields_are_attributes():
    """A record's keys are attributes, also in records inside lists."""
    segments = Record(NESTED).segments
    assert isinstance(segments, list)
    assert segments[0].words[0].text == "hi"


def test_a_record_equals_the_dict_it_came_from():
    """A record compares equal to a plain mapping with the same items."""
    assert Record(NESTED) == NESTED


@pytest.mark.parametrize("name", ["text", "new"])
def test_error_a_record_is_immutable(name):
    """Setting a field, known or new, is refused by name."""
    with pytest.raises(AttributeError, match=f"a record is immutable: '{name}' cannot be set"):
        setattr(Record(NESTED), name, 1)


def test_error_deleting_a_field_is_refused():
    """Deleting a field is refused by name."""
    with pytest.raises(AttributeError, match="'text' cannot be deleted"):
        del Record(NESTED).text


def test_error_an_unknown_field_names_the_known_ones():
    """Asking for a field that is not there says which are."""
    with pytest.raises(AttributeError, match="no field 'txt'; it has text, segments, n"):
        _ = Record(NESTED).txt


def test_changing_the_dict_afterwards_does_not_change_the_record():
    """A record keeps what it was made from, also inside nested lists."""
    source = {"items_": [{"a": 1}]}
    record = Record(source)
    source["items_"].append({"a": 2})
    source["items_"][0]["a"] = 9
    assert record.items_ == [{"a": 1}]


def test_a_key_with_the_name_of_a_method_is_reached_by_subscript():
    """Methods win over keys as attributes; the subscript always reaches the key."""
    record = Record({"items": 3})
    assert record["items"] == 3
    assert callable(record.items)


def pickled(record):
    return pickle.loads(pickle.dumps(record))  # noqa: S301 -- our own bytes


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_a_record_can_be_copied(copied):
    """Copies and pickles of a record are equal records."""
    record = copied(Record(NESTED))
    assert isinstance(record, Record)
    assert record == NESTED


def test_the_repr_shows_the_fields():
    """A record's repr names every field with its value."""
    assert repr(Record({"a": 1, "b": {"c": "x"}})) == "Record(a=1, b=Record(c='x'))"


def test_fields_are_completed_by_dir():
    """`dir` lists the fields, so that a shell completes them."""
    assert {"text", "segments"} <= set(dir(Record(NESTED)))


@pytest.mark.parametrize("value", [None, 1, "x", b"x", [1, "x"], 1.5, True])
def test_plain_values_without_dicts_stay_as_they_are(value):
    """Only dicts become records."""
    assert as_records(value) == value
    assert type(as_records(value)) is type(value)
