"""A worker's life in the pool: started, heard, asked to leave; and what the pool can say of it."""

from __future__ import annotations

import os
import selectors
import signal
import time

import pytest

from penstock.errors import PenstockError
from penstock.wire.messages import CloseChannel, Ready
from penstock.workers.pool import ChildState, Pool
from tests.workers.pools import rehearsal, small_graph

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_a_worker_that_is_ready_says_so() -> None:
    with rehearsal() as stage:
        worker = stage.start_ready(7)
        assert worker.state is ChildState.READY
        assert stage.until_heard(Ready).pid == worker.pid


def test_a_worker_that_is_asked_to_leave_leaves() -> None:
    with rehearsal() as stage:
        stage.start_ready(1)
        stage.pool.retire(1)
        ended = stage.until_ended(1)
    assert ended.as_asked
    assert ended.was_ready


def test_a_worker_beats_with_what_it_uses() -> None:
    """CONTRACT 49: the last memory reading is the worker's own, taken every beat."""
    with rehearsal(beat_every=0.01) as stage:
        worker = stage.start_ready(1)
        stage.until(lambda: worker.last_beat is not None and worker.last_beat.cpu > 0)
        [numbers] = stage.pool.statistics().workers
    assert numbers.private > 1 << 20
    assert numbers.cpu > 0


def test_several_workers_live_side_by_side_and_end_one_by_one() -> None:
    with rehearsal("serve") as stage:
        for number in (1, 2, 3):
            stage.pool.start(number)
        stage.until(lambda: all(worker.was_ready for worker in stage.pool.workers.values()))
        stage.pool.retire(2)
        stage.until_ended(2)
        assert set(stage.pool.workers) == {1, 3}


def test_a_worker_has_no_descriptor_but_those_it_was_given() -> None:
    with rehearsal("serve") as stage:
        worker = stage.start_ready(1)
        entries = [f"/proc/{worker.pid}/fd/{fd}" for fd in os.listdir(f"/proc/{worker.pid}/fd")]
        targets = sorted(os.readlink(entry).split(":")[0] for entry in entries)
    # The graph's came with the outfit.
    assert targets == ["/dev/null", "/memfd", "pipe", "pipe", "socket"]


def test_libraries_that_start_threads_are_told_to_start_one() -> None:
    with rehearsal("serve") as stage:
        worker = stage.start_ready(1)
        with open(f"/proc/{worker.pid}/environ", "rb") as file:
            environment = file.read().split(b"\0")
    assert {b"OMP_NUM_THREADS=1", b"OPENBLAS_NUM_THREADS=1", b"MKL_NUM_THREADS=1"} <= set(
        environment
    )


def test_a_worker_stands_where_the_hub_stands() -> None:
    with rehearsal("serve") as stage:
        worker = stage.start_ready(1)
        assert os.readlink(f"/proc/{worker.pid}/cwd") == os.getcwd()


def test_a_core_file_would_not_hold_the_graph() -> None:
    with rehearsal("serve") as stage:
        worker = stage.start_ready(1)
        with open(f"/proc/{worker.pid}/coredump_filter") as file:
            shared = 0b1010  # anonymous shared memory, mapped files
            assert int(file.read(), 16) & shared == 0


def test_what_does_not_fit_into_the_socket_goes_out_when_it_is_read() -> None:
    with rehearsal("listen_late") as stage:
        worker = stage.start_ready(1)
        for number in range(50_000):
            stage.pool.send(1, CloseChannel(channel=number))
        assert worker.stream.pending
        worker.process.signal(signal.SIGUSR1)  # its cue
        stage.until(lambda: not worker.stream.pending)
        assert stage.until_ended(1).exit.code == 0


def test_nothing_is_said_to_a_worker_that_is_gone() -> None:
    with rehearsal("serve") as stage:
        stage.start_ready(1)
        stage.pool.retire(1)
        stage.until_ended(1)
        stage.pool.send(1, CloseChannel(channel=1))
        stage.pool.retire(1)
        assert not stage.pool.workers


def test_a_quiet_pool_waits_for_nothing() -> None:
    """CONTRACT 16: nothing polls."""
    with rehearsal("serve") as stage:
        stage.start_ready(1)
        assert stage.pool.due is None
        assert stage.selector.select(0) == []


def test_starting_a_worker_twice_is_an_error() -> None:
    with rehearsal("serve") as stage:
        stage.pool.start(1)
        with pytest.raises(ValueError, match="there is a worker 1 already"):
            stage.pool.start(1)


def test_a_closed_pool_starts_nobody() -> None:
    with small_graph() as graph, selectors.DefaultSelector() as selector:
        pool = Pool(graph.handle(), graph.descriptors, selector)
        pool.close()
        with pytest.raises(PenstockError, match="closed"):
            pool.start(1)


def test_a_system_that_refuses_a_process_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with rehearsal("serve") as stage:
        monkeypatch.setattr("sys.executable", "/nowhere/python")
        with pytest.raises(FileNotFoundError):
            stage.pool.start(1)
        assert not stage.pool.workers


def test_statistics_tell_who_lives_and_how_the_others_ended() -> None:
    with rehearsal("beat_and_exit") as stage:
        stage.pool.start(1)
        stage.until_ended(1)
        before = stage.pool.start(2).pid
        numbers = stage.pool.statistics()
    assert (numbers.started, numbers.ended, numbers.exits) == (2, 1, {"exit code 3": 1})
    assert [(w.worker, w.pid, w.state) for w in numbers.workers] == [(2, before, "starting")]


def test_the_pools_clock_is_the_callers() -> None:
    with rehearsal("serve", clock=lambda: time.monotonic() + 1000.0) as stage:
        worker = stage.start_ready(1)
        assert worker.started > time.monotonic() + 900.0
