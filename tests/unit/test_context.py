"""What a cartridge may say to its host, and hear from it."""

from __future__ import annotations

import threading

import pytest

from cartridge_core.context import Context
from cartridge_core.errors import CancelledError, StateError
from cartridge_core.progress import Log, Progress
from cartridge_core.testing.background import Background

_PATIENCE_S = 30.0


def test_error_cancelled_work_stops_at_its_next_check():
    """check_cancelled raises once somebody has cancelled, and before that nothing."""
    context = Context()
    context.check_cancelled()
    context.cancel()
    with pytest.raises(CancelledError, match="cancelled"):
        context.check_cancelled()


def test_error_peer_call_without_a_host_is_a_state_error():
    """Where no host answers, a peer call says which calls answer them."""
    with pytest.raises(StateError, match=r"registry\.call and registry\.stream"):
        Context().peer.call("cap:download-model;in=*;out=*")


def test_error_of_the_blocking_work_comes_out():
    """What the work under run_with_keepalive raises is the caller's."""
    with pytest.raises(ZeroDivisionError):
        Context().run_with_keepalive(lambda: 1 / 0)


def test_progress_and_log_reach_the_host():
    """What the cartridge says is given to the host as it is, in order."""
    told: list[Progress | Log] = []
    context = Context(told.append)
    context.progress(0.5, "half")
    context.log("warning", "slow")
    assert told == [Progress(0.5, "half"), Log("warning", "slow")]


def test_reports_reach_the_host_from_any_thread():
    """A report is given in the thread that makes it."""
    threads = []
    context = Context(lambda _: threads.append(threading.current_thread()))
    reporter = Background(lambda: context.progress(1.0))
    reporter.join(_PATIENCE_S)
    assert threads == [reporter]


def test_reports_without_a_listener_go_nowhere():
    """A context may be told things that nobody wants to hear."""
    context = Context()
    context.progress(0.5)
    context.log("info", "unheard")


def test_closed_context_is_dead():
    """What a context is told after its close goes nowhere."""
    told: list[Progress | Log] = []
    context = Context(told.append)
    context.close()
    context.progress(0.5)
    context.log("info", "late")
    assert told == []


def test_cancelling_twice_is_harmless():
    """Cancel may come again; what waits for it is called once."""
    calls = []
    context = Context()
    context.on_cancel(lambda: calls.append("stop"))
    context.cancel()
    context.cancel()
    assert calls == ["stop"]


def test_on_cancel_after_cancel_is_called_at_once():
    """What comes too late to wait is called at once."""
    calls = []
    context = Context()
    context.cancel()
    context.on_cancel(lambda: calls.append("stop"))
    assert calls == ["stop"]


def test_cancelling_a_parent_cancels_its_children():
    """A child is cancelled with its parent, through several levels."""
    parent = Context()
    grandchild = Context(parent=Context(parent=parent))
    parent.cancel()
    assert grandchild.cancelled


def test_cancelling_a_child_leaves_its_parent_alone():
    """A session's cancellation is its own."""
    parent = Context()
    Context(parent=parent).cancel()
    assert not parent.cancelled


@pytest.mark.parametrize(
    ("own", "parents", "expected"),
    [
        pytest.param(False, False, False, id="neither"),
        pytest.param(True, False, True, id="own"),
        pytest.param(False, True, True, id="inherited"),
    ],
)
def test_offline_is_inherited(own, parents, expected):
    """The network is forbidden where it is, or where it is for the parent."""
    assert Context(parent=Context(offline=parents), offline=own).offline is expected


def test_blocking_work_runs_in_this_thread_and_gives_its_result():
    """run_with_keepalive gives what the work gives, and says what it is."""
    told: list[Progress | Log] = []
    context = Context(told.append)
    found = context.run_with_keepalive(threading.current_thread, "Loading weights")
    assert found is threading.current_thread()
    assert told == [Log("debug", "Loading weights")]


def test_a_parents_cancel_is_heard():
    """What waits on a context is told when a parent is cancelled, and no more once forgotten."""
    told: list[str] = []

    def stop() -> None:
        told.append("stopped")

    root = Context()
    child = Context(parent=Context(parent=root))
    child.on_cancel(stop)
    root.cancel()
    assert told == ["stopped"]
    other = Context()
    Context(parent=other).on_cancel(stop)
    other.forget(stop)
    other.cancel()
    assert told == ["stopped"]
