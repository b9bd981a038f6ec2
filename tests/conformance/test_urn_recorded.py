"""Answers recorded from tagged-urn 1.138.43 and capdag 1.524.58, checked without the packages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cartridge_core.errors import UrnError
from cartridge_core.urn import CapUrn, TaggedUrn

DATA = Path(__file__).parent / "data"
PARSED = json.loads((DATA / "oracle_parse.json").read_text())["rows"]
MATRIX = json.loads((DATA / "oracle_tag_matrix.json").read_text())["rows"]
CLASSES: dict[str, type[TaggedUrn | CapUrn]] = {"tagged": TaggedUrn, "cap": CapUrn}


@pytest.mark.parametrize("row", PARSED, ids=lambda row: f"{row['kind']}-{row['input']!r}")
def test_text_is_read_as_recorded(row):
    """The canonical text and the specificity are the recorded ones, or both are refused."""
    urn_class = CLASSES[row["kind"]]
    if row["error"] is None:
        urn = urn_class.parse(row["input"])
        assert (str(urn), urn.specificity) == (row["canonical"], row["specificity"])
        return
    with pytest.raises(UrnError) as raised:
        urn_class.parse(row["input"])
    if row["kind"] == "tagged":
        assert raised.value.kind + "Error" == row["error"]


def test_matrix_of_one_key_is_the_recorded_one():
    """All 100 pairs of constraints on one key, six relations each."""
    for row in MATRIX:
        instance, pattern = TaggedUrn.parse(row["instance"]), TaggedUrn.parse(row["pattern"])
        for relation in row.keys() - {"instance", "pattern"}:
            assert getattr(instance, relation)(pattern) == row[relation], (row, relation)
    assert len(MATRIX) == 100
