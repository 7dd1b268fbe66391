"""`SharedDistSamplingBackend`, line by line."""

from __future__ import annotations

import os
import pickle
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from penstock.client.backend import SharedDistSamplingBackend
from penstock.client.channel import channel_registry
from penstock.client.channel.description import ChannelDescription
from penstock.client.hub.hub_process import HubProcess
from penstock.errors import ChannelClosed, HubGone, WorkerDied
from penstock.graph import Graph
from penstock.sampling.spec import CustomSpec, NeighborSpec
from tests.client.graphs import (
    PATIENCE_S,
    SPEC,
    STEPS,
    TERMS,
    backend_of,
    digests,
    expected,
    hub_of,
    inline_or_of,
    pids_of_workers,
    read,
    rest,
    small_graph,
    typed_graph,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

both = pytest.mark.parametrize("workers", [0, 1])


# --- 24 --------------------------------------------------------------------------------------


def test_the_constructor_starts_nothing() -> None:
    """CONTRACT 24: no process and no thread before `init_backend`."""
    threads, children = threading.active_count(), psutil.Process().children()
    with small_graph() as graph:
        backend = SharedDistSamplingBackend(graph, SPEC, num_workers=2)
        assert psutil.Process().children() == children
        assert threading.active_count() == threads
        backend.shutdown()


def test_init_returns_when_all_workers_are_ready_and_is_idempotent() -> None:
    """CONTRACT 24: when `init_backend` returns, every worker is ready; again, it does nothing."""
    with small_graph() as graph, backend_of(graph, num_workers=3) as backend:
        group = backend.statistics().hub["scheduler"]["groups"][0]
        assert (group["ready"], group["wanted"]) == (3, 3)
        hub, workers = hub_of(backend).pid, pids_of_workers(backend)
        backend.init_backend()
        assert (hub_of(backend).pid, pids_of_workers(backend)) == (hub, workers)


def test_workers_are_fresh_interpreters() -> None:
    """CONTRACT 24: never a fork of the trainer."""
    with small_graph() as graph, backend_of(graph, num_workers=1) as backend:
        (pid,) = pids_of_workers(backend)
        assert "penstock.workers" in " ".join(psutil.Process(pid).cmdline())
        assert "penstock.hub.process" in psutil.Process(hub_of(backend).pid).cmdline()


def test_workers_that_cannot_start_fail_init_with_the_cause() -> None:
    """CONTRACT 24: within a bound, and it says why; nothing is left running."""
    children = psutil.Process().children()
    with small_graph() as graph:
        backend = SharedDistSamplingBackend(graph, SPEC, num_workers=1, hard_memory="1MB")
        with pytest.raises(WorkerDied, match="memory"):
            backend.init_backend()
        assert psutil.Process().children() == children
        backend.shutdown()


def test_init_that_failed_can_be_tried_again(tmp_path: Path) -> None:
    """CONTRACT 24: a failure leaves nothing behind that stands in the way of the next attempt."""
    folder = tmp_path / "run"
    with small_graph() as graph:
        backend = SharedDistSamplingBackend(
            graph, SPEC, num_workers=1, address=f"unix://{folder}/hub"
        )
        with pytest.raises(HubGone):
            backend.init_backend()
        folder.mkdir()
        with backend:
            backend.register_input("train", "train", **TERMS)
            assert digests(read(backend, "train", 0)) == expected(graph)


def test_a_backend_borrows_the_pool_of_a_hub_it_is_given() -> None:
    """CONTRACT 24, 29: two backends, one pool; shutting one down leaves the pool to the other."""
    other = NeighborSpec(num_neighbors=(2,))
    with small_graph() as graph, HubProcess(graph, 2) as hub:
        with backend_of(hub, other) as second:
            with backend_of(hub) as first:
                first.register_input("a", "train", **TERMS)
                second.register_input("a", "train", **TERMS)
                assert pids_of_workers(first) == pids_of_workers(second)
                assert digests(read(first, "a", 0)) == expected(graph)
            assert digests(read(second, "a", 0)) == expected(graph, spec=other)
        assert psutil.pid_exists(hub.pid or 0)


def test_a_borrowed_pool_has_its_own_size_and_settings() -> None:
    with small_graph() as graph:
        hub = HubProcess(graph, 1)
        with pytest.raises(ValueError, match="num_workers is 3"):
            SharedDistSamplingBackend(hub, SPEC, num_workers=3)
        with pytest.raises(ValueError, match="worker_concurrency"):
            SharedDistSamplingBackend(hub, SPEC, worker_concurrency=3)


def test_auto_workers_are_at_least_one() -> None:
    with small_graph() as graph:
        assert SharedDistSamplingBackend(graph, SPEC).num_workers >= 1
        assert SharedDistSamplingBackend(graph, SPEC, num_workers="auto").num_workers >= 1


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "many", 10**6])
def test_a_number_of_workers_that_is_none_is_refused(wrong: Any) -> None:
    with small_graph() as graph:
        for make in (HubProcess, partial(SharedDistSamplingBackend, sampling_config=SPEC)):
            with pytest.raises(ValueError, match=f"num_workers is {wrong!r}; expected"):
                make(graph, num_workers=wrong)


@both
@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"worker_concurrency": 0}, "worker_concurrency is 0; expected an integer above 0"),
        ({"worker_concurrency": None}, "worker_concurrency is None; expected an integer above 0"),
        ({"max_channels": 1.5}, "max_channels is 1.5; expected an integer above 0"),
        ({"silence": "long"}, "silence is 'long'; expected a number above 0"),
        ({"hard_memory": "much"}, "hard_memory is 'much'"),
        ({"address": "tcp://host:1"}, "tcp://host:1"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(
    option: dict[str, Any], words: str, workers: int
) -> None:
    """CONTRACT 59: also where batches are made without a pool, which has no use for them."""
    with small_graph() as graph:
        with pytest.raises(ValueError, match=words):
            SharedDistSamplingBackend(graph, SPEC, num_workers=workers, **option)
        with pytest.raises(TypeError, match="no option 'no_such_option'"):
            SharedDistSamplingBackend(graph, SPEC, num_workers=workers, no_such_option=1)  # type: ignore[call-arg]
        SharedDistSamplingBackend(graph, SPEC, num_workers=workers, max_batches=np.int64(3))


# --- 61 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["link", "SUBGRAPH", "edge"])
def test_a_kind_of_input_that_cannot_be_sampled_is_refused_at_once(kind: str) -> None:
    """CONTRACT 61: when the backend is made, not when the first batch fails."""
    with small_graph() as graph, pytest.raises(ValueError, match="input_kind"):
        SharedDistSamplingBackend(graph, SPEC, num_workers=0, input_kind=kind)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (NeighborSpec(num_neighbors=(-2,)), "num_neighbors"),
        (NeighborSpec(num_neighbors=(2,), node_attributes=("z",)), "'z'"),
        (NeighborSpec(num_neighbors=(2,), direction="up"), "direction"),  # type: ignore[arg-type]
        (CustomSpec(sampler="nonsense"), "nonsense"),
    ],
)
def test_a_config_this_graph_cannot_be_sampled_by_is_refused_at_once(spec: Any, words: str) -> None:
    """CONTRACT 61: refused when the backend is made."""
    with small_graph() as graph, pytest.raises(ValueError, match=words):
        SharedDistSamplingBackend(graph, spec, num_workers=1)


# --- 25 --------------------------------------------------------------------------------------


@both
def test_registering_before_init_is_an_error(workers: int) -> None:
    """CONTRACT 25."""
    with small_graph() as graph:
        backend = SharedDistSamplingBackend(graph, SPEC, num_workers=workers)
        with pytest.raises(RuntimeError, match="init_backend"):
            backend.register_input("a", "train", **TERMS)


@both
def test_an_id_can_be_registered_once(workers: int, pool: HubProcess) -> None:
    """CONTRACT 25: until it is unregistered."""
    with inline_or_of(pool, workers) as backend:
        backend.register_input("a", "train", **TERMS)
        with pytest.raises(ValueError, match="'a'"):
            backend.register_input("a", "train", **TERMS)
        backend.unregister_input("a")
        backend.register_input("a", "train", **TERMS)
        assert len(read(backend, "a", 0)) == STEPS


@both
def test_a_config_that_is_not_the_backends_is_refused(workers: int, pool: HubProcess) -> None:
    """CONTRACT 25."""
    with inline_or_of(pool, workers) as backend:
        backend.register_input("same", "train", NeighborSpec(num_neighbors=(4, 3)), **TERMS)
        with pytest.raises(ValueError, match="sampling_config"):
            backend.register_input("a", "train", NeighborSpec(num_neighbors=(9,)), **TERMS)


NONSENSE: list[tuple[Any, dict[str, Any], str]] = [
    ([0, 400], {}, "400"),
    ([-1], {}, "-1"),
    ([0.5], {}, "float"),
    ([[1]], {}, "shape"),
    ("nobody", {}, "nobody"),
    (("paper", [1]), {}, "paper"),
    ("train", {"batch_size": 0}, "batch_size"),
    ("train", {"rank": 2, "world_size": 2}, "rank"),
    ("train", {"slots": 0}, "slots"),
    ("train", {"slots": 2, "buffer_capacity": 3}, "buffer_capacity"),
    ("train", {"buffer_size": "64 XB"}, "buffer_size"),
    ("train", {"on_error": "ignore"}, "ignore"),
    ("train", {"seed": -1}, "seed"),
    ("train", {"weight": 0.0}, "weight"),
]


@both
def test_inputs_and_terms_that_make_no_sense_are_refused(workers: int, pool: HubProcess) -> None:
    """CONTRACT 25: the same refusals with and without a pool, and nothing is left behind."""
    with inline_or_of(pool, workers) as backend:
        for inputs, channel_options, words in NONSENSE:
            with pytest.raises(ValueError, match=words):
                backend.register_input("a", inputs, **{**TERMS, **channel_options})
            assert backend.describe_channel("a").epoch == -1


def test_an_unknown_term_is_refused_by_name() -> None:
    with small_graph() as graph, backend_of(graph, num_workers=0) as backend:
        with pytest.raises(TypeError, match="no_such_term"):
            backend.register_input("a", "train", batch_size=2, no_such_term=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="batch_size"):
            backend.register_input("a", "train")


def test_inputs_of_a_graph_with_types_name_theirs() -> None:
    with typed_graph() as graph, backend_of(graph, num_workers=0) as backend:
        with pytest.raises(ValueError, match="'paper', 'author'"):
            backend.register_input("a", "train", **TERMS)


@both
def test_a_split_of_a_graph_on_disk_outlives_the_channels_that_read_it(
    workers: int, tmp_path: Path
) -> None:
    """CONTRACT 28: the split is the graph's own, whoever lets go of a channel."""
    with small_graph() as graph:
        graph.save(tmp_path / "graph")
    with Graph.open(tmp_path / "graph") as graph, backend_of(graph, num_workers=workers) as backend:
        for channel in ("a", "b"):
            backend.register_input(channel, "train", **TERMS)
            assert digests(read(backend, channel, 0)) == expected(graph)
            backend.unregister_input(channel)


def test_a_term_with_two_names_may_be_none_under_one_of_them() -> None:
    with small_graph() as graph, backend_of(graph, num_workers=0) as backend:
        backend.register_input("a", "train", **{**TERMS, "slots": None}, buffer_capacity=4)
        with pytest.raises(ValueError, match="slots and buffer_capacity"):
            backend.register_input("b", "train", **{**TERMS, "slots": 3}, buffer_capacity=4)


# --- 26 --------------------------------------------------------------------------------------


@both
def test_an_epoch_is_done_when_every_batch_of_it_has_ended(workers: int, pool: HubProcess) -> None:
    """CONTRACT 26: not before, and for good; one never started is not done."""
    with inline_or_of(pool, workers) as backend:
        backend.register_input("a", "train", **TERMS)
        assert not backend.is_channel_epoch_done("a", 0)
        backend.start_new_epoch_sampling("a", 0)
        for _ in rest(backend, "a"):
            assert not backend.is_channel_epoch_done("a", 1)
        assert backend.is_channel_epoch_done("a", 0)
        backend.start_new_epoch_sampling("a", 2)
        assert backend.is_channel_epoch_done("a", 0)
        assert not backend.is_channel_epoch_done("a", 1)
        assert not backend.is_channel_epoch_done("a", 2)
        assert not backend.is_channel_epoch_done("nobody", 0)


def test_done_does_not_wait_for_the_reader_to_fetch_what_has_come(pool: HubProcess) -> None:
    """CONTRACT 26: ended is what counts, not fetched."""
    with backend_of(pool) as backend:
        backend.register_input("a", "train", **{**TERMS, "slots": STEPS})
        backend.start_new_epoch_sampling("a", 0)
        until = time.monotonic() + PATIENCE_S
        while not backend.is_channel_epoch_done("a", 0):
            assert time.monotonic() < until
            backend.wait_any(["a"], timeout=PATIENCE_S)
        assert len(list(rest(backend, "a"))) == STEPS


@both
def test_an_epoch_without_batches_is_done_at_once(workers: int, pool: HubProcess) -> None:
    """CONTRACT 11, 26."""
    with inline_or_of(pool, workers) as backend:
        backend.register_input("empty", np.empty(0, np.int64), **TERMS)
        backend.start_new_epoch_sampling("empty", 0)
        assert backend.is_channel_epoch_done("empty", 0)
        assert backend.next_batch("empty", timeout=PATIENCE_S) is None


# --- 10, 13 ----------------------------------------------------------------------------------


@both
def test_an_old_epoch_is_not_started_again_and_gaps_are_allowed(
    workers: int, pool: HubProcess
) -> None:
    """CONTRACT 10."""
    with inline_or_of(pool, workers) as backend:
        backend.register_input("a", "train", **TERMS)
        assert digests(read(backend, "a", 4)) == expected(pool.graph, 4)
        backend.start_new_epoch_sampling("a", 4)
        backend.start_new_epoch_sampling("a", 1)
        assert backend.next_batch("a", timeout=PATIENCE_S) is None
        assert digests(read(backend, "a", 9)) == expected(pool.graph, 9)


@both
def test_starting_an_unknown_channel_is_an_error_that_names_it(
    workers: int, pool: HubProcess
) -> None:
    """CONTRACT 10: and one that was unregistered is passed over in silence."""
    with inline_or_of(pool, workers) as backend:
        with pytest.raises(KeyError, match="never_there"):
            backend.start_new_epoch_sampling("never_there", 0)
        backend.register_input("a", "train", **TERMS)
        backend.unregister_input("a")
        backend.start_new_epoch_sampling("a", 0)
        with pytest.raises(ChannelClosed):
            backend.next_batch("a")


def test_ids_that_have_gone_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRACT 10: the last of them are remembered."""
    monkeypatch.setattr(channel_registry, "REMEMBERED", 2)
    with small_graph() as graph, backend_of(graph, num_workers=0) as backend:
        for channel in "abcb":
            backend.register_input(channel, "train", **TERMS)
            backend.unregister_input(channel)
        for channel in "bc":
            backend.start_new_epoch_sampling(channel, 0)
        with pytest.raises(KeyError, match="'a'"):
            backend.start_new_epoch_sampling("a", 0)


@both
@pytest.mark.parametrize("fetched", [0, 1, 5])
def test_starting_over_cancels_what_is_left(workers: int, fetched: int, pool: HubProcess) -> None:
    """CONTRACT 13: nothing of the old epoch is ever seen in the new one."""
    with inline_or_of(pool, workers) as backend:
        backend.register_input("a", "train", **TERMS)
        for epoch in range(4):
            backend.start_new_epoch_sampling("a", epoch)
            for _ in range(fetched):
                assert backend.next_batch("a", timeout=PATIENCE_S) is not None
        assert digests(read(backend, "a", 4)) == expected(pool.graph, 4)


# --- 27, 28 ----------------------------------------------------------------------------------


@both
def test_an_unknown_channel_is_described_as_empty(workers: int) -> None:
    """CONTRACT 27."""
    with small_graph() as graph:
        backend = SharedDistSamplingBackend(graph, SPEC, num_workers=workers)
        empty = ChannelDescription("nobody")
        assert backend.describe_channel("nobody") == empty
        with backend:
            assert backend.describe_channel("nobody") == empty
        assert backend.describe_channel("nobody") == empty
        assert (empty.epoch, empty.total, empty.split) == (-1, 0, ())


@both
def test_what_cannot_be_an_id_is_no_channels(workers: int, pool: HubProcess) -> None:
    """CONTRACT 10, 25, 26, 27, 28: a list, which nothing can be found by."""
    never: Any = [1]
    with inline_or_of(pool, workers) as backend:
        assert backend.describe_channel(never) == ChannelDescription(never)
        assert not backend.is_channel_epoch_done(never, 0)
        backend.unregister_input(never)
        with pytest.raises(KeyError, match=r"no channel \[1\] was registered"):
            backend.start_new_epoch_sampling(never, 0)
        with pytest.raises(ValueError, match=r"channel_id is \[1\]; expected"):
            backend.register_input(never, "train", **TERMS)


def test_a_channel_is_described_with_the_static_split_of_its_inputs() -> None:
    """CONTRACT 3, 27."""
    with small_graph() as graph, backend_of(graph, num_workers=3) as backend:
        backend.register_input("a", np.arange(7), batch_size=2)
        assert backend.describe_channel("a").split == ((0, 2), (2, 4), (4, 7))
        backend.start_new_epoch_sampling("a", 5)
        backend.next_batch("a", timeout=PATIENCE_S)
        described = backend.describe_channel("a")
        assert (described.epoch, described.total, described.given) == (5, 4, 1)


@both
def test_unregistering_returns_without_waiting(workers: int, pool: HubProcess) -> None:
    """CONTRACT 28: in the middle of an epoch, twice, and for one that never was."""
    with inline_or_of(pool, workers) as backend:
        backend.register_input("a", "train", **TERMS)
        backend.start_new_epoch_sampling("a", 0)
        backend.unregister_input("a")
        backend.unregister_input("a")
        backend.unregister_input("never_there")
        assert backend.describe_channel("a") == ChannelDescription("a")


# --- 29 --------------------------------------------------------------------------------------


@both
def test_shutdown_is_idempotent_and_ends_everything(workers: int) -> None:
    """CONTRACT 29: channels in the middle of an epoch included."""
    children = psutil.Process().children()
    with small_graph() as graph:
        backend = SharedDistSamplingBackend(graph, SPEC, num_workers=workers)
        backend.init_backend()
        backend.register_input("a", "train", **TERMS)
        backend.start_new_epoch_sampling("a", 0)
        batch = backend.next_batch("a", timeout=PATIENCE_S)
        backend.shutdown()
        backend.shutdown()
        assert psutil.Process().children() == children
        assert batch is not None
        assert digests([batch]) == expected(graph)[:1]
        with pytest.raises(ChannelClosed):
            backend.register_input("b", "train", **TERMS)
        with pytest.raises(ChannelClosed):
            backend.init_backend()


def test_shutdown_before_init_has_nothing_to_do() -> None:
    """CONTRACT 29."""
    with small_graph() as graph:
        SharedDistSamplingBackend(graph, SPEC, num_workers=1).shutdown()


def test_a_backend_cannot_be_pickled() -> None:
    with small_graph() as graph, pytest.raises(TypeError, match=r"penstock\.connect"):
        pickle.dumps(SharedDistSamplingBackend(graph, SPEC, num_workers=0))


def test_a_graph_that_was_attached_cannot_be_given_a_hub() -> None:
    with small_graph() as graph:
        attached = Graph.attach(graph.handle(), [os.dup(fd) for fd in graph.descriptors])
        with attached, pytest.raises(ValueError, match=r"penstock\.connect"):
            SharedDistSamplingBackend(attached, SPEC, num_workers=1)


# --- 57, sizes -------------------------------------------------------------------------------


def test_statistics_have_the_hubs_numbers_and_the_readers() -> None:
    """CONTRACT 56, 57."""
    with small_graph() as graph, backend_of(graph, num_workers=1) as backend:
        backend.register_input("a", "train", **TERMS)
        read(backend, "a", 0)
        numbers = backend.statistics()
        seen = numbers.channels["a"]
        assert (seen.epoch, seen.given, seen.due, seen.failed) == (0, STEPS, STEPS, 0)
        assert seen.fetches["count"] == STEPS
        assert numbers.hub["scheduler"]["groups"][0]["done"] == STEPS


@both
def test_buffers_have_the_size_they_are_given_in_words(workers: int, pool: HubProcess) -> None:
    """CONTRACT 21: batches that do not fit their part of it get memory of their own."""
    with inline_or_of(pool, workers) as backend:
        backend.register_input("a", "train", **TERMS, buffer_capacity=4, buffer_size="16KB")
        assert digests(read(backend, "a", 0)) == expected(pool.graph)
