"""What a registry allows."""

from __future__ import annotations

import attrs
import pytest

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.limits import Limits

TIMES = ["idle_timeout_s", "activity_timeout_s", "keepalive_s", "queue_timeout_s", "grace_s"]


def test_the_usual_limits():
    """What holds where nothing is said."""
    assert attrs.asdict(Limits()) == {
        "memory_budget_bytes": None,
        "idle_timeout_s": 300.0,
        "activity_timeout_s": 120.0,
        "keepalive_s": 30.0,
        "queue_timeout_s": 300.0,
        "grace_s": 5.0,
    }


@pytest.mark.parametrize("value", [0, 0.0, -1, float("nan"), True, "1", None, [1]], ids=repr)
@pytest.mark.parametrize("name", TIMES)
def test_error_a_time_is_a_number_above_zero(name, value):
    """Everything else is refused by name, the flag that Python takes for 1 too."""
    with pytest.raises(InvalidArgumentError, match=f"{name} is .*a number above 0") as caught:
        Limits(**{name: value})
    assert (caught.value.arg, caught.value.rule) == (name, "above 0")


@pytest.mark.parametrize("value", [0, -5, True, "1 GB"], ids=repr)
def test_error_a_budget_is_a_number_above_zero_or_none(value):
    """A budget of nothing would refuse every load."""
    with pytest.raises(InvalidArgumentError, match="memory_budget_bytes is"):
        Limits(memory_budget_bytes=value)


@pytest.mark.parametrize(
    ("given", "shortest"),
    [
        ({}, 30.0),
        ({"keepalive_s": 500.0}, 120.0),
        ({"idle_timeout_s": 0.5}, 0.5),
        ({"activity_timeout_s": 2}, 2),
        ({"grace_s": 0.1, "queue_timeout_s": 0.1}, 30.0),
    ],
)
def test_the_shortest_time_that_has_to_be_looked_at(given, shortest):
    """Grace and queue are waited for by themselves."""
    assert Limits(**given).shortest_s == shortest


def test_no_limit_is_infinity():
    """A time that never comes can be said."""
    assert Limits(idle_timeout_s=float("inf")).idle_timeout_s == float("inf")
