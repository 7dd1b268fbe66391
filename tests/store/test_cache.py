"""The cache of hot rows: no byte changes, and few rows are fetched that it could have had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.rmat import rmat_edges
from penstock.client.backend import SharedDistSamplingBackend
from penstock.graph import Graph
from penstock.sampling.inputs import ChannelInputs, request_of
from penstock.sampling.spec import Feed, NeighborSpec
from penstock.store.cache import Degrees, Rates, chosen, estimated
from penstock.store.graph import StoreGraph
from penstock.store.handles import open_parts
from penstock.store.warming import PRESAMPLED, warm

NODES, EDGES, WIDTH = 30_000, 600_000, 8
SPEC = NeighborSpec(num_neighbors=(10, 5))
BATCH = 256


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cache") / "parts"
    rng = np.random.default_rng(1)
    x = rng.random((NODES, WIDTH), np.float32)
    with Graph.from_coo(rmat_edges(NODES, EDGES), NODES, x=x) as graph:
        graph.partition(2, path)
    return path


@pytest.fixture
def parts(folder: Path) -> Iterator[StoreGraph]:
    with open_parts([str(folder / f"part-{number}") for number in range(2)]) as graph:
        yield graph


def feed_of(seeds: Any) -> tuple[Feed, ChannelInputs]:
    feed = Feed(num_inputs=len(seeds), batch_size=BATCH, shuffle=True, seed=4)
    return feed, ChannelInputs(seeds)


def few_seeds() -> Any:
    """One node in a hundred: which rows are read is decided by them."""
    return np.random.default_rng(7).permutation(NODES)[: NODES // 100]


def epochs(graph: StoreGraph, seeds: Any, count: int) -> list[Any]:
    with SharedDistSamplingBackend(graph, SPEC, num_workers=0) as backend:
        backend.init_backend()
        backend.register_input("all", seeds, batch_size=BATCH, shuffle=True, seed=4)
        found = []
        for epoch in range(count):
            backend.start_new_epoch_sampling("all", epoch)
            for batch in backend.batches("all"):
                found.append({name: array.copy() for name, array in batch.arrays.items()})
        return found


@pytest.mark.parametrize("of", ["all", "one in a hundred"])
@pytest.mark.parametrize("share", [0.1, 0.2])
def test_the_cache_meets_nearly_as_many_reads_as_the_best_choice(
    parts: StoreGraph, of: str, share: float
) -> None:
    """CONTRACT 70."""
    seeds = np.arange(NODES) if of == "all" else few_seeds()
    count = 1 if of == "all" else 100  # so many that chance decides little
    without = epochs(parts, seeds, count)
    reads = np.zeros(NODES, np.int64)
    for batch in without:
        reads[batch["n_id"]] += 1
    best = np.sort(reads)[::-1][: int(share * NODES)].sum() / reads.sum()
    parts.cache_bytes = int(share * NODES) * WIDTH * 4
    feed, given = feed_of(seeds)
    total = -(-len(seeds) // BATCH)
    warm(
        parts,
        SPEC,
        (request_of(feed, given, 1000 + number, number % total) for number in range(PRESAMPLED)),
    )
    before = parts.moved
    cached = epochs(parts, seeds, count)
    moved = parts.moved.since(before)
    assert moved.hits + moved.rows == reads.sum()
    assert moved.hits / reads.sum() > best - 0.02
    for one, other in zip(cached, without, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert np.array_equal(one[name], other[name])


def test_rows_are_chosen_by_reads_for_their_bytes_within_the_budget() -> None:
    """CONTRACT 70."""
    counts = {
        "a": Rates(np.array([3, 5, 9]), np.array([5.0, 1.0, 3.0])),
        "b": Rates(np.array([0, 1]), np.array([100.0, 10.0])),
    }
    found = chosen(counts, {"a": 4, "b": 40}, 48)
    assert {name: ids.tolist() for name, ids in found.items()} == {"a": [3, 9], "b": [0]}
    assert chosen(counts, {"a": 4, "b": 40}, 3) == {}
    assert chosen(counts, {"a": 0}, 100) == {}


def test_degrees_decide_where_the_sample_says_nothing() -> None:
    """CONTRACT 70."""
    degrees = {"": Degrees(np.array([0, 4, 7]), np.array([1.0, 9.0, 3.0]), 10)}
    ids, rates, *_ = estimated(degrees, [])[""]
    assert ids[np.argsort(-rates)].tolist() == [4, 7, 0]


def test_nodes_that_are_only_read_count_by_their_reads() -> None:
    """CONTRACT 70: of nodes that nobody leads to, most were not read."""
    degrees = {"": Degrees(np.array([0, 4]), np.array([1.0, 1.0]), 100)}
    batches = [{"": np.array([4, 50])}, {"": np.array([0, 4, 50])}, {"": np.array([0, 60])}]
    ids, rates, others, rate_of_others = estimated(degrees, batches)[""]
    assert others == 96
    assert 0 < rate_of_others < rates[3]
    assert ids.tolist() == [0, 4, 50, 60]
    assert rates[2] > rates[3] > 0
    assert rates[0] == rates[1] > rates[3]


def test_what_is_left_of_the_budget_is_for_nodes_that_nothing_is_known_of() -> None:
    """CONTRACT 70: seeds that nobody leads to are read as often as those that were seen."""
    degrees = {"": Degrees(np.array([5]), np.array([1.0]), 1000)}
    batches = [{"": np.random.default_rng(number).permutation(1000)[:50]} for number in range(8)]
    rates = estimated(degrees, batches)
    assert len(chosen(rates, {"": 4}, 4000)[""]) == 1000
    few = chosen(rates, {"": 4}, 4 * 400)[""]
    assert len(few) == 400
    assert np.isin(few, np.concatenate([batch[""] for batch in batches])).sum() > 300
    # Nothing is kept of a type that was never read.
    assert chosen({"": Rates(few, np.zeros(len(few)), 600, 0.0)}, {"": 4}, 4000) == {}


def test_parts_name_no_more_nodes_than_are_asked_for(parts: StoreGraph) -> None:
    """However many nodes there are, few counts move: those of the most frequent neighbours."""
    everybody = parts.neighbor_counts("", NODES)
    assert everybody.counts.sum() == EDGES
    few = parts.neighbor_counts("", 100)
    assert 100 <= len(few.ids) <= 200
    whole = np.zeros(NODES)
    whole[everybody.ids] = everybody.counts
    assert (few.counts <= whole[few.ids]).all()
    assert few.ids[np.argmax(few.counts)] == np.argmax(whole)
