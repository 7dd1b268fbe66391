"""Waiting for batches: for one channel, for many, and never by looking again and again."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.client.hub.hub_process import HubProcess
from tests.client.graphs import (
    PATIENCE_S,
    STEPS,
    TERMS,
    backend_of,
    channel_of,
    digests,
    expected,
    hub_of,
    inline_or_of,
    kill_hub,
    read,
    rest,
    small_graph,
)
from tests.processes import stopped, until

pytestmark = pytest.mark.usefixtures("no_leaks")

both = pytest.mark.parametrize("workers", [0, 2])


@both
def test_whichever_channel_is_ready_can_be_waited_for(workers: int, pool: HubProcess) -> None:
    with inline_or_of(pool, workers) as backend:
        names = [f"rank {number}" for number in range(3)]
        for name in names:
            backend.register_input(name, "train", **TERMS)
            backend.start_new_epoch_sampling(name, 0)
        found: dict[object, list[tuple[int, int, str]]] = {name: [] for name in names}
        reading = set(names)
        while reading:
            ready = backend.wait_any(sorted(reading), timeout=PATIENCE_S)
            assert ready
            for name in ready:
                batch = backend.next_batch(name, timeout=0)
                if batch is None:
                    reading.discard(str(name))
                else:
                    found[name] += digests([batch])
        assert found == dict.fromkeys(names, expected(pool.graph))


def test_waiting_for_many_survives_the_death_of_the_hub() -> None:
    """CONTRACT 22."""
    with small_graph() as graph, backend_of(graph, num_workers=1) as backend:
        for name in ("a", "b"):
            backend.register_input(name, "train", **TERMS)
            backend.start_new_epoch_sampling(name, 0)
        assert kill_hub(backend)
        found: dict[object, int] = {"a": 0, "b": 0}
        while sum(found.values()) < 2 * STEPS:
            for name in backend.wait_any(["a", "b"], timeout=PATIENCE_S):
                found[name] += backend.next_batch(name, timeout=0) is not None
        assert found == {"a": STEPS, "b": STEPS}


def test_nothing_is_ready_when_the_time_is_over() -> None:
    with small_graph() as graph, backend_of(graph, num_workers=1) as backend:
        backend.register_input("a", "train", **TERMS)
        with stopped(hub_of(backend).pid):
            backend.start_new_epoch_sampling("a", 0)
            assert backend.wait_any(["a"], timeout=0.05) == []
            assert backend.wait_any([], timeout=0.05) == []
            with pytest.raises(TimeoutError):
                backend.next_batch("a", timeout=0)
        assert backend.wait_any(["a"], timeout=PATIENCE_S) == ["a"]


def test_a_month_can_be_waited_for() -> None:
    """CONTRACT 16, 51: it is more than the system takes at once, and no hub dies of that."""
    month = 30 * 86400.0
    times = {"silence": month, "start_limit": month}
    with small_graph() as graph, backend_of(graph, num_workers=1, **times) as backend:
        backend.register_input("a", "train", **TERMS, deadline=month)
        backend.start_new_epoch_sampling("a", 0)
        assert backend.wait_any(["a"], timeout=month) == ["a"]
        assert digests(list(rest(backend, "a"))) == expected(graph)
        assert backend.statistics().channels["a"].recoveries == 0


@pytest.fixture
def _no_collecting() -> Iterator[None]:
    """Where much is loaded, collecting garbage takes as long as a test that measures time."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collecting")
def test_a_reader_that_waits_uses_no_processor() -> None:
    """CONTRACT 16: it sleeps until the socket wakes it."""
    with small_graph() as graph, backend_of(graph, num_workers=1) as backend:
        backend.register_input("a", "train", **TERMS)
        with stopped(hub_of(backend).pid):
            backend.start_new_epoch_sampling("a", 0)
            used = time.thread_time()
            with pytest.raises(TimeoutError):
                backend.next_batch("a", timeout=0.5)
            # By looking again and again it would have used what it could get of the half second.
            assert time.thread_time() - used < 0.1


def test_a_reader_that_stops_holds_up_nobody_else() -> None:
    """CONTRACT 9: its own slots are full; the others have theirs."""
    with small_graph() as graph, backend_of(graph, num_workers=1) as backend:
        backend.register_input("stopped", "train", **TERMS)
        backend.start_new_epoch_sampling("stopped", 0)
        backend.register_input("reading", "train", **TERMS)
        for epoch in range(3):
            assert digests(read(backend, "reading", epoch)) == expected(graph, epoch)
        assert not backend.is_channel_epoch_done("stopped", 0)
        assert digests(list(backend.batches("stopped"))) == expected(graph)


def test_a_channel_can_be_given_another_weight_while_it_is_read() -> None:
    """CONTRACT 7: also one that outlives the hub."""
    with small_graph() as graph, backend_of(graph, num_workers=1) as backend:
        backend.register_input("a", "train", **TERMS)
        backend.reweigh("a", 3.0)
        assert [c["weight"] for c in backend.statistics().hub["scheduler"]["channels"]] == [3.0]
        assert kill_hub(backend)
        read(backend, "a", 0)
        assert [c["weight"] for c in backend.statistics().hub["scheduler"]["channels"]] == [3.0]
        for wrong in (-1.0, 1e9):
            with pytest.raises(ValueError, match="weight"):
                backend.reweigh("a", wrong)


def test_a_second_thread_is_told_that_the_channel_is_being_read() -> None:
    with small_graph() as graph, backend_of(graph, num_workers=1) as backend:
        backend.register_input("a", "train", **TERMS)
        channel = channel_of(backend, "a")
        reading = threading.Thread(target=channel.next)
        with stopped(hub_of(backend).pid):
            channel.start(0)
            reading.start()
            until(lambda: channel._occupied, "the channel is being read")
            for use in (channel.next, lambda: channel.start(1)):
                with pytest.raises(RuntimeError, match="another thread"):
                    use()
        reading.join()
        assert len(list(channel)) == STEPS - 1


@both
def test_reading_before_an_epoch_was_started_is_an_error(workers: int, pool: HubProcess) -> None:
    with inline_or_of(pool, workers) as backend:
        backend.register_input("a", "train", **TERMS)
        with pytest.raises(RuntimeError, match="start one"):
            backend.next_batch("a")
        with pytest.raises(KeyError, match="nobody"):
            backend.next_batch("nobody")


def test_fetches_are_counted_and_slow_ones_named(caplog: pytest.LogCaptureFixture) -> None:
    """CONTRACT 55, 56: from a threshold on, and every so many fetches."""
    caplog.set_level("INFO", "penstock.client.channel.reader")
    with small_graph() as graph, backend_of(graph, num_workers=0) as backend:
        backend.register_input("a", "train", **TERMS)
        channel = channel_of(backend, "a")
        channel._slow_fetch, channel._report_every = 0.0, 5
        read(backend, "a", 0)
        fetches = channel.statistics().fetches
    assert (fetches["count"], fetches["slow"]) == (STEPS, STEPS)
    assert fetches["slow_ones"][-1]["batch"] == [-1, 0, STEPS - 1]
    assert sum("on average" in line for line in caplog.messages) == STEPS // 5
    assert any("waited" in line and "step 3" in line for line in caplog.messages)
