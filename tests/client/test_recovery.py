"""Workers and hubs are killed; the reader gets the same batches, each exactly once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

from penstock.client.backend import SharedDistSamplingBackend
from penstock.client.hub.hub_process import RESTARTS, HubProcess
from penstock.errors import HubGone
from penstock.graph import Graph
from tests.client.graphs import (
    PATIENCE_S,
    SPEC,
    STEPS,
    TERMS,
    backend_of,
    digests,
    expected,
    hub_of,
    kill_hub,
    pids_of_workers,
    read,
    rest,
    small_graph,
)
from tests.processes import stopped, strike, until

pytestmark = pytest.mark.usefixtures("no_leaks")


@contextmanager
def registered(graph: Graph, **channel_options: object) -> Iterator[SharedDistSamplingBackend]:
    with backend_of(graph, num_workers=2) as backend:
        backend.register_input("a", "train", **{**TERMS, "max_attempts": 20, **channel_options})
        yield backend


def test_a_worker_killed_at_any_batch_costs_nothing() -> None:
    """CONTRACT 18, 26: its batch is sampled again; it is replaced, no channel fails."""
    with small_graph() as graph, registered(graph) as backend:
        backend.start_new_epoch_sampling("a", 0)
        found, killed = [], []
        for batch in rest(backend, "a"):
            found += digests([batch])
            if batch.step % 4 == 0:  # later ones may find that nobody has come after the last
                killed += [strike(pid) for pid in pids_of_workers(backend)[-1:]]
        assert killed[0]
        assert found == expected(graph)
        assert backend.is_channel_epoch_done("a", 0)


@pytest.mark.parametrize("step", [0, 1, STEPS // 2, STEPS - 1])
def test_a_hub_killed_in_the_middle_of_an_epoch_is_replaced(step: int) -> None:
    """CONTRACT 22: the loader starts a new one, and goes on with the batch it was due."""
    with small_graph() as graph, registered(graph) as backend:
        first = hub_of(backend).pid
        backend.start_new_epoch_sampling("a", 0)
        found = []
        for batch in rest(backend, "a"):
            found += digests([batch])
            if batch.step == step:
                assert kill_hub(backend)
        assert found == expected(graph)
        if step < STEPS - 1:
            assert hub_of(backend).pid != first
        assert digests(read(backend, "a", 1)) == expected(graph, 1)


def test_deaths_of_hubs_with_a_batch_in_between_do_not_add_up() -> None:
    """CONTRACT 22: more of them than a hub may die in a row."""
    with small_graph() as graph, registered(graph) as backend:
        backend.start_new_epoch_sampling("a", 0)
        found, killed = [], set[int | None]()
        for batch in rest(backend, "a"):
            found += digests([batch])
            if batch.step % 2 == 0 and len(killed) <= RESTARTS:
                until(lambda: hub_of(backend).pid not in {None, *killed}, "another hub is up")
                killed.add(hub_of(backend).pid)
                assert kill_hub(backend)
        assert found == expected(graph)
        assert len(killed) > RESTARTS


def test_a_hub_killed_before_an_epoch_and_between_two_is_replaced() -> None:
    """CONTRACT 22."""
    with small_graph() as graph, registered(graph) as backend:
        for epoch in range(2):
            assert kill_hub(backend)
            assert digests(read(backend, "a", epoch)) == expected(graph, epoch)


@pytest.mark.parametrize("seed", range(3))
def test_hubs_killed_at_random_moments_cost_nothing(seed: int) -> None:
    """CONTRACT 22: also while one is starting, or a channel is being registered again."""
    with (
        small_graph() as graph,
        HubProcess(graph, 2, restarts=50) as hub,
        backend_of(hub) as backend,
    ):
        backend.register_input("a", "train", **{**TERMS, "slots": 3})
        with killing_hubs(random.Random(seed), times=6) as over:
            epoch = 0
            while not over.is_set():
                assert digests(read(backend, "a", epoch)) == expected(graph, epoch)
                epoch += 1
        assert digests(read(backend, "a", epoch)) == expected(graph, epoch)


@contextmanager
def killing_hubs(dice: random.Random, times: int) -> Iterator[threading.Event]:
    """A thread that kills hubs, also those that are not up yet; sets the event when it is done."""
    over = threading.Event()

    def strike() -> None:
        for _ in range(times):
            over.wait(dice.uniform(0.0, 0.8))  # not for anything: any moment is as good
            for child in psutil.Process().children():
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        over.set()

    killer = threading.Thread(target=strike)
    killer.start()
    try:
        yield over
    finally:
        killer.join()


def test_batches_outlive_the_hub_they_came_from() -> None:
    """CONTRACT 22, 23: their memory is the reader's."""
    with small_graph() as graph, registered(graph) as backend:
        backend.start_new_epoch_sampling("a", 0)
        held = [backend.next_batch("a", timeout=PATIENCE_S) for _ in range(3)]
        assert kill_hub(backend)
        later = list(rest(backend, "a"))
        assert digests([batch for batch in held if batch] + later) == expected(graph)


def test_all_channels_go_on_after_the_hub_died() -> None:
    """CONTRACT 22: each with the batch that it was due."""
    with small_graph() as graph, registered(graph) as backend:
        found: dict[object, list[tuple[int, int, str]]] = {}
        names = ["a", "b", "c"]
        for name in names[1:]:
            backend.register_input(name, "train", **TERMS)
        for place, name in enumerate(names):
            backend.start_new_epoch_sampling(name, 0)
            found[name] = digests(
                [b for _ in range(place) if (b := backend.next_batch(name, PATIENCE_S))]
            )
        assert kill_hub(backend)
        for name in names:
            found[name] += digests(rest(backend, name))
        assert found == dict.fromkeys(names, expected(graph))


def test_starting_an_epoch_while_the_hub_is_dead_works() -> None:
    """CONTRACT 13, 22."""
    with small_graph() as graph, registered(graph) as backend:
        backend.start_new_epoch_sampling("a", 0)
        backend.next_batch("a", timeout=PATIENCE_S)
        assert kill_hub(backend)
        assert digests(read(backend, "a", 1)) == expected(graph, 1)


def test_an_epoch_is_done_for_who_only_looks_whatever_became_of_the_hub() -> None:
    """CONTRACT 22, 26: it is sampled again without being read, and fetched afterwards."""
    with small_graph() as graph, registered(graph, slots=STEPS) as backend:
        with stopped(hub_of(backend).pid):
            backend.start_new_epoch_sampling("a", 0)
            assert kill_hub(backend)
        until(lambda: backend.is_channel_epoch_done("a", 0), "the epoch is done")
        assert digests(rest(backend, "a")) == expected(graph)


def test_a_hub_that_dies_again_and_again_is_given_up_with_the_cause() -> None:
    """CONTRACT 22: a bound, not a storm; the error says what happened."""
    with small_graph() as graph:
        hub = HubProcess(graph, 1, restarts=2)
        hub.start()
        try:
            backend = SharedDistSamplingBackend(hub, SPEC)
            backend.init_backend()
            backend.register_input("a", "train", **TERMS)
            with pytest.raises(HubGone, match="SIGKILL"):
                kill_for_ever(hub)
            backend.start_new_epoch_sampling("a", 0)
            with pytest.raises(HubGone, match="SIGKILL"):
                backend.is_channel_epoch_done("a", 0)
            with pytest.raises(HubGone, match="SIGKILL"):
                list(rest(backend, "a"))
            backend.shutdown()
        finally:
            hub.close()


def kill_for_ever(hub: HubProcess) -> None:
    while True:
        strike(hub.pid)
        hub.statistics()


def test_a_stopped_hub_is_a_timeout_and_costs_no_batch() -> None:
    """A call that waited in vain can be made again."""
    with small_graph() as graph, registered(graph) as backend:
        backend.start_new_epoch_sampling("a", 0)
        found = digests([b for _ in range(2) if (b := backend.next_batch("a", PATIENCE_S))])
        with stopped(hub_of(backend).pid), suppress(TimeoutError):
            while True:  # what had come before the stop is still given
                batch = backend.next_batch("a", timeout=0.2)
                assert batch is not None
                found += digests([batch])
        assert found + digests(rest(backend, "a")) == expected(graph)
