"""Faults on order: each strikes where it was told to, so that tests of faults test something."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.graph import Graph
from penstock.wire.messages import Begun, Done, OutOfMemory
from penstock.workers.exits import EXIT_MEMORY
from penstock.workers.faults import VARIABLE
from penstock.workers.worker import FAULTS_VARIABLE
from tests.sampling.graphs import web
from tests.workers.benches import FEED, SPEC, bench

pytestmark = pytest.mark.usefixtures("no_leaks")

# What a worker has said of its second batch when a fault strikes it at each stage.
SAID: dict[str, list[type]] = {
    "received": [],
    "sampling": [Begun],
    "writing": [Begun],
    "before-message": [Begun],
    "mid-message": [Begun],
    "after-message": [Begun, Done],
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return web()


def fault(stage: str, action: str, **more: Any) -> list[dict[str, Any]]:
    return [{"stage": stage, "action": action, **more}]


@pytest.mark.parametrize(
    ("stage", "name"),
    [*((stage, "SIGKILL") for stage in SAID), ("writing", "SIGSEGV"), ("writing", "SIGTERM")],
)
def test_a_signal_ends_a_worker_at_the_stage_that_was_named(
    graph: Graph, stage: str, name: str
) -> None:
    order = fault(stage, f"signal:{name}", match={"index": 1})
    with bench(graph, faults=order) as worker:
        worker.open(SPEC, FEED)
        worker.ask(0)
        worker.done()
        worker.ask(1)
        assert worker.ended() == -signal.Signals[name]
        assert [type(message) for message in worker.last_words()] == SAID[stage]


@pytest.mark.parametrize("stage", list(SAID))
def test_a_worker_that_is_stopped_goes_on_where_it_was(graph: Graph, stage: str) -> None:
    order = fault(stage, "signal:SIGSTOP", match={"index": 1})
    with bench(graph, faults=order) as worker:
        worker.open(SPEC, FEED)
        worker.ask(1)
        wait_until_stopped(worker.process.pid)
        os.kill(worker.process.pid, signal.SIGCONT)
        worker.done()
        worker.ask(0)
        worker.done()


def test_an_idle_worker_can_be_struck(graph: Graph) -> None:
    order = fault("idle", "signal:SIGKILL", match={"batches": 1})
    with bench(graph, faults=order) as worker:
        worker.open(SPEC, FEED)
        worker.ask(0)
        assert worker.ended() == -signal.SIGKILL
        assert [type(message) for message in worker.last_words()] == [Begun, Done]


def test_a_worker_can_be_struck_before_it_is_ready(graph: Graph) -> None:
    with bench(graph, ready=False, faults=fault("starting", "exit3")) as worker:
        assert worker.ended() == 3
        assert worker.last_words() == []


def test_only_one_process_is_struck_once(graph: Graph, tmp_path: Path) -> None:
    order = fault("sampling", "exit0", once=str(tmp_path / "struck"))
    statuses = []
    for _ in range(2):
        with bench(graph, faults=order) as worker:
            worker.open(SPEC, FEED)
            worker.ask(0)
            worker.next(Begun)
            statuses.append(worker.retire())
            assert len(worker.last_words()) == len(statuses) - 1
    assert statuses == [0, 0]


def test_a_fault_that_raises_fails_the_batch(graph: Graph) -> None:
    with bench(graph, faults=fault("writing", "raise", match={"index": 1})) as worker:
        worker.open(SPEC, FEED)
        worker.ask(1)
        worker.ask(2)
        assert "RuntimeError: a fault on order" in worker.failed().report.message
        worker.done()


def test_a_native_hang_silences_the_heart_and_one_in_python_does_not(graph: Graph) -> None:
    with bench(graph, faults=fault("sampling", "hang")) as worker:
        worker.open(SPEC, FEED)
        worker.ask(0)
        worker.next(Begun)
        worker.until_beat()
    with bench(graph, faults=fault("sampling", "hang-native"), beat_every=0.01) as worker:
        worker.open(SPEC, FEED)
        worker.ask(0)
        worker.next(Begun)
        while worker.stream.wait(0.5):  # fifty times as long as between two beats
            worker.stream.receive()
        assert worker.process.poll() is None


def test_a_leak_grows_with_every_batch(graph: Graph) -> None:
    with bench(graph, faults=fault("sampling", "leak")) as worker:
        worker.open(SPEC, FEED)
        before = worker.until_beat().private
        for index in range(3):
            worker.ask(index)
            worker.done()
        assert worker.until_beat(3).private >= before + 3 * (32 << 20)


def test_memory_fills_up_to_the_limit(graph: Graph) -> None:
    with bench(graph, faults=fault("writing", "fill-memory"), hard_memory=160 << 20) as worker:
        worker.open(SPEC, FEED)
        worker.ask(0)
        assert worker.ended() == EXIT_MEMORY
        assert isinstance(worker.last_words()[-1], OutOfMemory)


def test_an_overrun_hits_the_guard_and_no_neighbour(graph: Graph) -> None:
    """CONTRACT 21: writing past a slot is detected."""
    with bench(graph, faults=fault("writing", "overrun")) as worker:
        worker.open(SPEC, FEED, slots=2)
        worker.ask(0, slot=0)
        assert worker.ended() == -signal.SIGSEGV
        assert not worker.arenas[1].memory(1).any()


def test_a_flood_of_words_is_only_words(graph: Graph) -> None:
    with bench(graph, faults=fault("sampling", "flood")) as worker:
        worker.open(SPEC, FEED)
        worker.ask(0)
        worker.done()
        assert len(worker.printed()) > 15 << 20


def test_an_order_that_makes_no_sense_is_refused_at_the_start(graph: Graph) -> None:
    with bench(graph, ready=False, faults=fault("napping", "exit0")) as worker:
        assert worker.ended() == 1
        assert "Invalid enum value 'napping'" in worker.printed()


def test_the_worker_knows_the_variable_without_the_module() -> None:
    assert VARIABLE == FAULTS_VARIABLE


def wait_until_stopped(pid: int) -> None:
    process = psutil.Process(pid)
    while process.status() != psutil.STATUS_STOPPED:
        os.sched_yield()
