"""Killing a worker: its stacks first, if it can show them; never waiting, whatever it does."""

from __future__ import annotations

import os
import select
import signal

import pytest

from penstock.core.events import KillReason
from penstock.wire.messages import Begun
from penstock.workers import child
from penstock.workers.autopsy import examine
from penstock.workers.pool import ChildState
from tests.workers.pools import PATIENCE_S, rehearsal, stop

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(autouse=True)
def _time_for_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: whoever can show its stacks is given the time to."""
    monkeypatch.setattr(child, "STACKS_WITHIN", PATIENCE_S)


def test_a_hung_worker_shows_where_it_hangs_and_is_killed() -> None:
    """CONTRACT 51: stacks dumped, worker killed and reaped."""
    with rehearsal("hang_by_name") as stage:
        stage.start_ready(1)
        stage.until_heard(Begun)
        stage.pool.kill(1, KillReason.DEADLINE)
        autopsy = examine(stage.until_ended(1))
    assert autopsy.ended.exit.signal == signal.SIGKILL
    assert autopsy.cause == "past its deadline"
    assert "in stuck_in_a_sampler" in autopsy.text()


def test_asking_for_stacks_does_not_wait_for_them() -> None:
    with rehearsal("hang_by_name") as stage:
        worker = stage.start_ready(1)
        stage.pool.kill(1, KillReason.DEADLINE)
        assert worker.state is ChildState.SHOWING
        assert stage.pool.due is not None
        stage.until_ended(1)


def test_a_stopped_worker_is_killed_at_once_and_said_to_have_been_stopped() -> None:
    """CONTRACT 51: a stopped process cannot dump its stacks; then its state is named."""
    with rehearsal("serve") as stage:
        worker = stage.start_ready(1)
        stop(worker)
        stage.pool.kill(1, KillReason.SILENCE)
        assert worker.state is ChildState.DYING
        autopsy = examine(stage.until_ended(1))
    assert "it was stopped (state T)" in autopsy.verdict
    assert autopsy.stacks is None


def test_a_worker_that_cannot_show_stacks_yet_is_killed_at_once() -> None:
    """CONTRACT 53: hangs before it is ready."""
    with rehearsal("hang_before_it_is_ready") as stage:
        worker = stage.pool.start(1)
        stage.pool.kill(1, KillReason.START)
        assert worker.state is ChildState.DYING
        ended = stage.until_ended(1)
    assert ended.exit.signal == signal.SIGKILL
    assert examine(ended).cause == "slow to start"


def test_one_that_never_stops_printing_is_killed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child, "STACKS_WITHIN", 0.2)
    with rehearsal("never_stop_printing") as stage:
        stage.start_ready(1)
        stage.pool.kill(1, KillReason.SILENCE)
        assert stage.until_ended(1).exit.signal == signal.SIGKILL


def test_printing_does_not_put_off_the_end_beyond_its_time() -> None:
    now = [100.0]
    with rehearsal("never_stop_printing", clock=lambda: now[0]) as stage:
        worker = stage.start_ready(1)
        stage.pool.kill(1, KillReason.SILENCE)
        now[0] = 100.0 + child.STACKS_WITHIN - 0.001
        printed = worker.output.total
        assert select.select([worker.output.fd], [], [], PATIENCE_S)[0]
        stage.pool.attend(worker, worker.output.fd)
        assert worker.output.total > printed
        assert stage.pool.due == 100.0 + child.STACKS_WITHIN


def test_being_past_the_hard_memory_limit_is_being_out_of_memory() -> None:
    """CONTRACT 52: over the hard limit it is killed, and the error says which limit struck."""
    with rehearsal("serve") as stage:
        stage.start_ready(1)
        stage.pool.kill(1, KillReason.MEMORY)
        autopsy = examine(stage.until_ended(1))
    assert autopsy.out_of_memory
    assert "hard limit" in autopsy.verdict


def test_what_it_says_while_it_is_being_killed_is_heard() -> None:
    with rehearsal("speak_when_asked_for_stacks") as stage:
        worker = stage.start_ready(1)
        stage.pool.kill(1, KillReason.DEADLINE)
        stage.until_heard(Begun)
        assert worker.state is ChildState.SHOWING


def test_killing_twice_is_killing_once() -> None:
    with rehearsal("serve") as stage:
        stage.start_ready(1)
        stage.pool.kill(1, KillReason.DEADLINE)
        stage.pool.kill(1, KillReason.SILENCE)
        ended = stage.until_ended(1)
    assert ended.killed is KillReason.DEADLINE


def test_killing_nobody_is_no_error() -> None:
    with rehearsal("serve") as stage:
        stage.pool.kill(99, KillReason.DEADLINE)


def test_a_worker_that_dies_of_itself_meanwhile_is_told_as_it_was() -> None:
    with rehearsal("crash_when_asked_for_stacks") as stage:
        stage.start_ready(1)
        stage.pool.kill(1, KillReason.DEADLINE)
        ended = stage.until_ended(1)
    assert ended.exit.signal == signal.SIGABRT
    assert examine(ended).cause == "SIGABRT"


def test_one_that_is_dead_already_is_told_as_it_died() -> None:
    """CONTRACT 49: the hub does not take the blame, nor give any."""
    with rehearsal("serve") as stage:
        worker = stage.start_ready(1)
        worker.process.kill()
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        stage.pool.kill(1, KillReason.DEADLINE)
        ended = stage.until_ended(1)
    assert ended.killed is None
    assert examine(ended).cause == "SIGKILL, no sign of memory pressure"
