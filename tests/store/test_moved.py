"""What moves between parts and their reader: every row once, and it is counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.client.backend import SharedDistSamplingBackend
from penstock.sampling.spec import LinkSpec, NeighborSpec, PPRSpec, SubgraphSpec, WalkSpec
from penstock.store.graph import StoreGraph
from penstock.store.handles import open_parts
from tests.store.loading import NODES, everyday, joined, small_graph
from tests.store.servers import StoreProcesses

ROW_BYTES = 6 * 4 + 8  # x and y
HOPS = NeighborSpec(num_neighbors=(4, 3), edge_attributes=())
SPECS: dict[str, Any] = {
    "plain": HOPS,
    "all of many": NeighborSpec(num_neighbors=(-1, -1), edge_attributes=()),
    "disjoint": NeighborSpec(num_neighbors=(4, 3), disjoint=True, edge_attributes=()),
    "links": LinkSpec(neighbors=HOPS, negatives="binary"),
    "PPR": PPRSpec(max_ppr_nodes=10),
    "walks": WalkSpec(walk_length=4, direction="in"),
    "subgraphs": SubgraphSpec(num_hops=1, edge_attributes=()),
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    with small_graph() as graph:
        return list(graph.partition(3, tmp_path_factory.mktemp("moved") / "parts", "hash"))


@pytest.fixture
def parts(paths: list[Path]) -> Iterator[StoreGraph]:
    with open_parts([str(path) for path in paths]) as graph:
        yield graph


@pytest.mark.parametrize("name", SPECS)
def test_a_row_moves_once_for_a_batch_that_has_it_often(parts: StoreGraph, name: str) -> None:
    """CONTRACT 70: seeds that are named twice and trees of their own share one copy of a row."""
    spec = SPECS[name]
    seeds = np.tile(np.arange(0, 40), 2)
    pairs = np.stack([seeds, seeds[::-1]])
    with SharedDistSamplingBackend(parts, spec, num_workers=0) as backend:
        backend.register_input("all", pairs if name == "links" else seeds, batch_size=80)
        before, total = parts.moved, 0
        backend.start_new_epoch_sampling("all", 0)
        for batch in backend.batches("all"):
            total += len(np.unique(batch["n_id"]))
        after = parts.moved
    assert after.rows - before.rows == 2 * total > 0  # of x and of y
    assert after.hits == 0


def test_rows_of_edges_move_once(parts: StoreGraph) -> None:
    """CONTRACT 70: also those of edges that were drawn twice, with replacement."""
    spec = NeighborSpec(
        num_neighbors=(9,), replace=True, node_attributes=(), edge_attributes=("edge_attr",)
    )
    with SharedDistSamplingBackend(parts, spec, num_workers=0) as backend:
        backend.register_input("all", np.arange(80), batch_size=40)
        before, total = parts.moved, 0
        backend.start_new_epoch_sampling("all", 0)
        for batch in backend.batches("all"):
            total += len(np.unique(batch["e_id"]))
            assert len(batch["e_id"]) > len(np.unique(batch["e_id"]))
        assert parts.moved.rows - before.rows == total
        # Nodes and edges are asked for where they are, and nowhere else.
        assert parts.moved.bytes_out - before.bytes_out == 4 * (80 + total)


@pytest.mark.usefixtures("no_leaks")
def test_bytes_hits_and_waits_are_in_the_statistics(paths: list[Path]) -> None:
    """CONTRACT 70: of this process, and of workers; rows that the cache has do not move."""
    with StoreProcesses(paths[:]) as store:
        with joined(store.addresses) as data, everyday(data, "workers") as loader:
            nodes = sum(len(batch.n_id) for batch in loader)
            moved = data.hub_statistics()["moved"]
            assert moved["rows"] >= nodes  # of x, y and those of edges
            assert moved["hits"] == 0
            assert moved["bytes_in"] >= nodes * ROW_BYTES
            assert moved["bytes_out"] > 0
            assert moved["calls"] > 0
            assert moved["waited"] > 0
        everything = NODES * ROW_BYTES
        with joined(store.addresses, cache=everything) as data:
            with everyday(data, "workers") as loader:
                edges = sum(len(batch.e_id) for batch in loader)
                moved = data.hub_statistics()["moved"]
                assert moved["hits"] == 2 * nodes
                assert moved["rows"] == 2 * edges  # which it does not keep
