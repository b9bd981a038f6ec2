"""The benchmarks' pure parts: figures, table, document, generated URNs."""

from __future__ import annotations

import json
import os
import sys
import threading
from datetime import UTC, datetime

import pytest

from benchmarks.measuring import difference, on_cores, ratio
from benchmarks.rows import Outcome, Row, document, format_table, machine
from benchmarks.shapes import SHAPES, unseen, unseen_in_and_out
from cartridge_core.urn import CapUrn

ROUNDS = [(3.0, 1.0), (8.0, 2.0), (9.0, 8.0)]


def test_the_difference_is_taken_within_rounds():
    """The figure is the median of differences, not the difference of medians."""
    assert difference(ROUNDS) == 2.0


def test_the_ratio_is_above_one_where_ours_is_faster():
    """The figure is the median of direct over ours, round by round."""
    assert ratio([(1.0, 2.0), (4.0, 4.0), (1.0, 3.0)]) == 2.0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps threads on cores")
def test_threads_are_kept_on_cores_and_let_go():
    """One that runs already is kept too; afterwards each may be anywhere again."""
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    everywhere = os.sched_getaffinity(0)
    assert thread.native_id is not None
    with on_cores(1):
        kept = [os.sched_getaffinity(number) for number in (0, thread.native_id)]
    free = os.sched_getaffinity(thread.native_id)
    go.set()
    thread.join()
    assert kept == [{min(everywhere)}] * 2
    assert free == os.sched_getaffinity(0) == everywhere


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        pytest.param(Row("g", "n", measured=1.0, budget=1.0), Outcome.OK, id="time-kept"),
        pytest.param(Row("g", "n", measured=1.1, budget=1.0), Outcome.OVER, id="time-over"),
        pytest.param(
            Row("g", "n", measured=0.98, budget=0.98, unit="ratio"), Outcome.OK, id="ratio-kept"
        ),
        pytest.param(
            Row("g", "n", measured=0.97, budget=0.98, unit="ratio"), Outcome.OVER, id="ratio-under"
        ),
        pytest.param(Row("g", "n", note="why"), Outcome.NOT_MEASURED, id="no-figure"),
        pytest.param(Row("g", "n", broken=True), Outcome.BROKEN, id="broken"),
    ],
)
def test_a_row_says_how_it_stands(row, outcome):
    """Times may not be longer than their budget, ratios not smaller."""
    assert row.outcome is outcome


def test_the_table_has_columns_and_units():
    """Figures stand on the right of their column, in a unit of a readable size."""
    rows = [
        Row("call", "short", measured=12.34e-6, budget=10e-6),
        Row("start", "a longer name", measured=0.0456, budget=0.3, note="whole process"),
        Row("embedding", "ratio", measured=0.991, budget=0.98, unit="ratio"),
        Row("embedding", "none", note="no model"),
    ]
    assert format_table(rows).splitlines() == [
        "group      row            measured    budget                note",
        "call       short           12.3 µs  <= 10 µs  over",
        "start      a longer name   45.6 ms  <= 0.3 s  ok            whole process",
        "embedding  ratio             0.991  >= 0.980  ok",
        "embedding  none                  -         -  not measured  no model",
    ]


def test_the_document_is_json_with_machine_and_samples():
    """What is written says where, how, and what is behind each figure."""
    where = machine(datetime(2026, 1, 2, tzinfo=UTC), (0.1, 0.2, 0.3), quick=True)
    found = json.loads(json.dumps(document([Row("g", "n", measured=2.0, samples=ROUNDS)], where)))
    assert (found["started"], found["load"], found["quick"]) == (
        "2026-01-02T00:00:00+00:00",
        [0.1, 0.2, 0.3],
        True,
    )
    assert found["rows"] == [
        {
            "group": "g",
            "name": "n",
            "measured": 2.0,
            "budget": None,
            "unit": "s",
            "note": "",
            "samples": [[3.0, 1.0], [8.0, 2.0], [9.0, 8.0]],
            "outcome": "ok",
        }
    ]


def test_generated_caps_are_canonical_and_never_the_same():
    """Every number gives another cap URN, written as it would be printed."""
    generated = [
        generate(number) for generate in (unseen, unseen_in_and_out) for number in range(60)
    ]
    texts = [shape.cap(backend, language) for shape, backend, language in generated]
    assert len(set(texts)) == len(texts)
    assert [str(CapUrn.parse(text)) for text in texts[:60]] == texts[:60]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(shape.markers))
def test_a_shape_serves_its_own_request(shape):
    """The request that names a backend goes to that backend's cap and to no other's."""
    request = CapUrn.parse(shape.request("gguf"))
    assert CapUrn.parse(shape.cap("gguf", "en")).is_dispatchable(request)
    assert not CapUrn.parse(shape.cap("mlx", "en")).is_dispatchable(request)
