"""Closing the pool: bounded, and nobody is left."""

from __future__ import annotations

import os
import selectors
import signal
import time

import pytest

from penstock.core.events import KillReason
from penstock.workers.autopsy import examine
from penstock.workers.pool import Pool
from tests.workers.pools import rehearsal, small_graph, stop

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_workers_that_can_are_let_go_in_peace() -> None:
    """CONTRACT 29: ask, wait."""
    with rehearsal() as stage:
        stage.start_ready(1)
        stage.start_ready(2)
        ended = stage.pool.close(ask=60.0)
    assert sorted(one.worker for one in ended) == [1, 2]
    assert all(one.as_asked for one in ended)


def test_one_that_does_not_listen_is_terminated() -> None:
    """CONTRACT 29: terminate."""
    with rehearsal("hang_by_name") as stage:
        stage.start_ready(1)
        [ended] = stage.pool.close(ask=0.01, terminate=60.0)
    assert ended.exit.signal == signal.SIGTERM
    assert examine(ended).cause == "closed"


def test_one_that_minds_nothing_is_killed() -> None:
    """CONTRACT 29: kill."""
    with rehearsal("stay") as stage:
        stage.start_ready(1)
        [ended] = stage.pool.close(ask=0.01, terminate=0.01, kill=60.0)
    assert ended.exit.signal == signal.SIGKILL


@pytest.mark.parametrize("pidfds", [True, False])
def test_one_that_is_stopped_is_killed_without_waiting(pidfds: bool) -> None:
    """CONTRACT 29: bounded, also with a worker that cannot hear."""
    with rehearsal("serve", pidfds=pidfds) as stage:
        stop(stage.start_ready(1))
        began = time.monotonic()
        [ended] = stage.pool.close(ask=60.0, terminate=60.0, kill=60.0)
        assert time.monotonic() - began < 60.0
    assert (ended.exit.signal, ended.state) == (signal.SIGKILL, "T")


def test_one_that_has_just_been_started_is_no_obstacle() -> None:
    with rehearsal() as stage:
        stage.pool.start(1)
        [ended] = stage.pool.close(ask=60.0, terminate=60.0, kill=60.0)
    assert ended.worker == 1


def test_one_that_was_showing_its_stacks_is_killed() -> None:
    with rehearsal("hang_by_name") as stage:
        stage.start_ready(1)
        stage.pool.kill(1, KillReason.DEADLINE)
        [ended] = stage.pool.close(ask=60.0)
    assert ended.killed is KillReason.DEADLINE


def test_closing_twice_is_closing_once() -> None:
    with rehearsal("serve") as stage:
        stage.start_ready(1)
        assert len(stage.pool.close(ask=60.0)) == 1
        assert stage.pool.close() == []


def test_the_hubs_selector_is_left_as_it_was() -> None:
    with rehearsal("serve") as stage:
        reader, writer = os.pipe()
        stage.selector.register(reader, selectors.EVENT_READ, "the hub's own")
        stage.start_ready(1)
        stage.pool.close(ask=60.0)
        assert [key.data for key in stage.selector.get_map().values()] == ["the hub's own"]
        os.close(reader)
        os.close(writer)


def test_the_hubs_selector_may_be_closed_before_the_pool() -> None:
    with small_graph() as graph:
        selector = selectors.DefaultSelector()
        pool = Pool(graph.handle(), graph.descriptors, selector)
        pool.start(1)
        selector.close()
        assert [ended.worker for ended in pool.close()] == [1]
