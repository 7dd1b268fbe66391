"""A batch is the same whoever makes it: this process, or any number of workers."""

from __future__ import annotations

import numpy as np
import numpy.testing as npt
import pytest

from penstock.client.hub.hub_process import HubProcess
from penstock.sampling.spec import NeighborSpec
from tests.client.graphs import (
    NODES,
    SPEC,
    STEPS,
    TERMS,
    backend_of,
    digests,
    expected,
    inline_or_of,
    read,
    small_graph,
    typed_graph,
)

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_any_number_of_workers_gives_the_bytes_of_none(workers: int) -> None:
    """CONTRACT 5, 59: a batch does not depend on who makes it."""
    with small_graph() as graph:
        with backend_of(graph, num_workers=workers) as backend:
            backend.register_input("train", "train", **TERMS)
            for epoch in range(2):
                assert digests(read(backend, "train", epoch)) == expected(graph, epoch)


@pytest.mark.parametrize("concurrency", [1, 5])
def test_worker_concurrency_changes_no_byte(concurrency: int) -> None:
    """CONTRACT 59: more batches in flight per worker, the same bytes."""
    with small_graph() as graph:
        with backend_of(graph, num_workers=2, worker_concurrency=concurrency) as backend:
            backend.register_input("train", "train", **TERMS)
            assert digests(read(backend, "train", 0)) == expected(graph)


@pytest.mark.parametrize("workers", [0, 1])
def test_ids_a_split_by_name_and_a_mask_give_the_same_batches(
    workers: int, pool: HubProcess
) -> None:
    """CONTRACT 58: seeds as ids, or as a split by name."""
    with inline_or_of(pool, workers) as backend:
        ids = pool.graph.split("train").copy()
        mask = np.zeros(NODES, bool)
        mask[ids] = True
        channel_options = {**TERMS, "shuffle": False}
        backend.register_input("split", "train", **channel_options)
        backend.register_input("ids", ids, **channel_options)
        backend.register_input("sorted", np.sort(ids), **channel_options)
        backend.register_input("mask", mask, **channel_options)
        assert digests(read(backend, "split", 0)) == digests(read(backend, "ids", 0))
        assert digests(read(backend, "sorted", 0)) == digests(read(backend, "mask", 0))


@pytest.mark.parametrize("workers", [0, 1])
def test_without_inputs_all_nodes_are_taken(workers: int, pool: HubProcess) -> None:
    with inline_or_of(pool, workers) as backend:
        backend.register_input("all", batch_size=64, shuffle=True)
        seeds = [batch["n_id"][: batch.facts["batch_size"]] for batch in read(backend, "all", 0)]
        npt.assert_array_equal(np.sort(np.concatenate(seeds)), np.arange(NODES))


@pytest.mark.parametrize("direction", ["in", "out"])
def test_types_and_directions_are_the_same_from_a_pool(direction: str) -> None:
    """CONTRACT 60: out-edges are made once, by the rank, before the hub hears of the graph."""
    spec = NeighborSpec(num_neighbors=(3, 2), direction=direction)  # type: ignore[arg-type]
    inputs = ("paper", "train")
    with typed_graph() as graph:
        with backend_of(graph, spec, num_workers=2) as backend:
            backend.register_input("typed", inputs, **TERMS)
            found = digests(read(backend, "typed", 0))
        assert found == expected(graph, 0, spec, inputs)


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_take_turns_in_one_list(workers: int) -> None:
    """CONTRACT 6: the list does not depend on how many take from it."""
    with small_graph() as graph:
        whole = {index: digest for _, index, digest in expected(graph)}
        with backend_of(graph, num_workers=workers) as backend:
            for rank in range(4):
                backend.register_input(rank, "train", **TERMS, rank=rank, world_size=4)
            found = [digests(read(backend, rank, 0)) for rank in range(4)]
    assert [len(batches) for batches in found] == [-(-STEPS // 4)] * 4
    for rank, batches in enumerate(found):
        assert [index for _, index, _ in batches] == [
            (rank + 4 * step) % STEPS for step in range(-(-STEPS // 4))
        ]
        assert all(whole[index] == digest for _, index, digest in batches)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_can_begin_anywhere(workers: int, pool: HubProcess) -> None:
    with inline_or_of(pool, workers) as backend:
        backend.register_input("train", "train", **TERMS)
        backend.start_new_epoch_sampling("train", 3, first=4)
        found = digests(list(backend.batches("train")))
        assert [index for _, index, _ in found] == list(range(4, STEPS))
        assert [digest for *_, digest in found] == [d for *_, d in expected(pool.graph, 3)[4:]]


@pytest.mark.parametrize("kind", ["memfd", "named"])
def test_both_kinds_of_shared_memory_will_do(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SHARED_MEMORY", kind)
    with small_graph(kind) as graph:
        with backend_of(graph, SPEC, num_workers=2) as backend:
            backend.register_input("train", graph.split("train").copy(), **TERMS)
            assert digests(read(backend, "train", 0)) == expected(graph)
