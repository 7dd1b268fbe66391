"""One line in the log for each restart: a warning, at once, in the process that owns the hub."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.hub import child
from tests.loader.epochs import digests, everyday, hub_of, pids_of, small_data
from tests.processes import strike

pytestmark = pytest.mark.usefixtures("no_leaks")

LONG_S = 60.0


@pytest.fixture
def told(caplog: Any) -> Callable[[], list[logging.LogRecord]]:
    """What the log has of warnings; nobody asks a hub for anything meanwhile."""
    caplog.set_level(logging.WARNING, logger="penstock")
    return lambda: list(caplog.records)


def until(condition: Callable[[], Any], what: str) -> None:
    """Keeps this thread busy until it is so, as training would."""
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, what


def test_a_killed_worker_is_one_warning_while_the_rank_is_busy(told: Any) -> None:
    """Nobody has to ask for statistics, or for a batch."""
    with everyday(small_data(), num_workers=1) as loader:
        digests(loader)
        _, worker = pids_of(loader)
        assert strike(worker)
        until(told, "the worker is told of")
        digests(loader)
    [line] = told()
    assert line.name == "penstock.client.hub.restart_log"
    assert line.getMessage().startswith(f"worker 1 (pid {worker}) is lost: SIGKILL, ")


def test_however_many_loaders_share_a_worker_its_death_is_one_line(told: Any) -> None:
    data = small_data()
    with everyday(data, num_workers=1) as one, everyday(data, num_workers=1) as other:
        with everyday(one.address, input_nodes=data.train_mask, num_workers=None) as joined:
            digests(one), digests(other), digests(joined)
            assert strike(pids_of(one)[1])
            until(told, "the worker is told of")
            digests(one), digests(other), digests(joined)
            one.statistics(), other.statistics(), joined.statistics()
    assert len(told()) == 1


def test_each_of_several_deaths_has_a_line(told: Any) -> None:
    with everyday(small_data(), num_workers=2) as loader:
        digests(loader)
        hub_of(loader).resize(2)  # returns when both are there
        workers = pids_of(loader)[1:]
        for number, worker in enumerate(workers, 1):
            assert strike(worker)
            until(lambda number=number: len(told()) == number, "the worker is told of")
        digests(loader)
    for worker in workers:
        assert len([line for line in told() if f"(pid {worker}) is lost" in line.getMessage()]) == 1
    assert len(told()) == 2


def test_a_killed_hub_is_one_warning_and_its_workers_are_none(told: Any) -> None:
    data = small_data()
    with everyday(data, num_workers=1) as one, everyday(data, num_workers=1) as other:
        expected = digests(one), digests(other)
        hub = hub_of(one).pid
        assert strike(hub)
        until(told, "the hub is told of")
        one.set_epoch(0), other.set_epoch(0)
        assert (digests(one), digests(other)) == expected
    [line] = told()
    assert line.name == "penstock.client.hub.restart_log"
    assert line.getMessage() == f"the hub (pid {hub}) is lost: it ended by SIGKILL; another in 0 s"


def test_a_worker_of_the_next_hub_is_told_of_as_well(told: Any) -> None:
    with everyday(small_data(), num_workers=1) as loader:
        digests(loader)
        assert strike(hub_of(loader).pid)
        digests(loader)
        assert strike(pids_of(loader)[1])
        until(lambda: len(told()) == 2, "both are told of")
        digests(loader)
    hub, worker = (line.getMessage() for line in told())
    assert hub.startswith("the hub (pid ")
    assert worker.startswith("worker 1 (pid ")


def test_it_is_the_same_where_processes_have_no_descriptors(
    told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_pidfd_of", lambda pid: -1)
    with everyday(small_data(), num_workers=1) as loader:
        digests(loader)
        assert strike(pids_of(loader)[1])
        until(told, "the worker is told of")
        hub = hub_of(loader).pid
        assert strike(hub)
        until(lambda: len(told()) == 2, "both are told of")
        digests(loader)
    assert "worker 1 (pid " in told()[0].getMessage()
    assert told()[1].getMessage().startswith(f"the hub (pid {hub}) is lost: it ended by SIGKILL")


def test_workers_that_end_with_their_loader_are_not_told_of(told: Any) -> None:
    with everyday(small_data(), num_workers=2) as loader:
        digests(loader)
        hub_of(loader).resize(1)
        digests(loader)
    assert told() == []
