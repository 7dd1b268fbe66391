"""What the guide to clusters says a store takes is what real graphs take, cut, saved and read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pytest

import penstock as ps
from benchmarks.sizing import LARGE, TABLES, Batch, Stored
from penstock.store.handles import open_parts
from tests.examples.running import torch  # loaded now: it starts a thread of its own

GUIDE: Final = Path(__file__).parents[2] / "docs" / "guides" / "cluster.md"
NODES, EDGES, WIDTH = 20_000, 200_000, 25
Topology = Literal["parts", "whole"]
ROW_BYTES: Final = {"float32": 4 * WIDTH, "float16": 2 * WIDTH, "int8": WIDTH}


def graph(rows: str = "float32", *, is_sorted: bool = False) -> ps.Graph:
    rng = np.random.default_rng(0)
    edges = rng.integers(0, NODES, (2, EDGES))
    if is_sorted:
        edges = edges[:, np.argsort(edges[1], kind="stable")]
    x = rng.random((NODES, WIDTH), dtype=np.float32)
    features: Any = {"x": x if rows == "float32" else ps.quantize(rows)}
    given = {"x": x} if rows == "float32" else {"x": x, "features": features}
    return ps.Graph.from_coo(edges, NODES, train=np.arange(0, NODES, 4), **given)


@contextmanager
def cut(
    folder: Path, parts: int, topology: Topology = "parts", method: str = "hash", **options: Any
) -> Iterator[list[Path]]:
    with graph(**options) as whole:
        yield list(whole.partition(parts, folder / "parts", method=method, topology=topology))


def arrays_of(part: Path) -> int:
    """Bytes of all arrays of a part on disk."""
    return sum(file.stat().st_size for file in part.glob("data-*/*.bin"))


@pytest.mark.parametrize("rows", ROW_BYTES)
@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("topology", ["parts", "whole"])
def test_parts_take_what_the_guide_says(
    tmp_path: Path, topology: Topology, is_sorted: bool, rows: str
) -> None:
    stored = Stored(
        NODES,
        EDGES,
        ROW_BYTES[rows],
        servers=4,
        topology=topology,
        edges_sorted=is_sorted,
        split_nodes=NODES // 4,
    )
    with cut(tmp_path, 4, topology, rows=rows, is_sorted=is_sorted) as parts:
        assert sum(map(arrays_of, parts)) == pytest.approx(stored.total_bytes(), rel=0.001)


def test_parts_by_no_rule_take_a_book_more(tmp_path: Path) -> None:
    stored = Stored(NODES, EDGES, 4 * WIDTH, servers=2, with_book=True, split_nodes=NODES // 4)
    with cut(tmp_path, 2, method="streaming") as parts:
        assert sum(map(arrays_of, parts)) == pytest.approx(stored.total_bytes(), rel=0.001)


@pytest.mark.parametrize("rows", ["float32", "int8"])
@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("topology", ["parts", "whole"])
def test_batches_move_and_take_what_the_guide_says(
    tmp_path: Path, topology: Topology, is_sorted: bool, rows: str
) -> None:
    stored = Stored(
        NODES, EDGES, ROW_BYTES[rows], servers=2, topology=topology, edges_sorted=is_sorted
    )
    with cut(tmp_path, 2, topology, rows=rows, is_sorted=is_sorted) as parts:
        with open_parts([str(part) for part in parts]) as store:
            with ps.NeighborLoader(store, [5, 4], "train", batch_size=256, seed=0) as loader:
                batches = iter(loader)
                next(batches)  # asks for what is fetched once
                before = store.moved
                batch = next(batches)
                after = store.moved
    per_hop = batch.num_sampled_nodes
    found = Batch(256, batch.num_nodes, batch.num_edges, int(sum(per_hop[:-1])))
    assert after.bytes_in - before.bytes_in == pytest.approx(found.to_reader(stored), rel=0.02)
    assert after.bytes_out - before.bytes_out == pytest.approx(found.to_servers(stored), rel=0.02)
    there = (batch.x, batch.n_id, batch.edge_index, batch.e_id)
    read = {"float32": 4 * WIDTH, "int8": 4 * WIDTH}[rows]  # a rank reads float32
    assert sum(each.nbytes for each in there) == pytest.approx(found.slot_bytes(read), rel=0.02)


def test_the_largest_batch_is_where_every_node_has_neighbours_of_its_own() -> None:
    """A tree: 4 seeds, with 3 neighbours each, which have 2 each."""
    parents = np.concatenate([np.repeat(np.arange(4), 3), np.repeat(np.arange(4, 16), 2)])
    with ps.Graph.from_coo(np.stack([np.arange(4, 40), parents]), 40) as tree:
        with ps.NeighborLoader(tree, [3, 2], torch.arange(4), batch_size=4, seed=0) as loader:
            (batch,) = loader
    most = Batch.most(4, [3, 2])
    assert most == Batch(
        4, batch.num_nodes, batch.num_edges, int(sum(batch.num_sampled_nodes[:-1]))
    )


def test_ids_take_eight_bytes_where_four_do_not_suffice() -> None:
    assert LARGE.edge_bytes == 16
    assert replace(LARGE, edges=10**9).edge_bytes == 8
    in_order = replace(LARGE, edges_sorted=True)
    assert in_order.edge_bytes == 4
    assert replace(in_order, nodes=10**10).edge_bytes == 8


@pytest.mark.parametrize("name", TABLES)
def test_the_guide_has_the_tables_as_they_are_computed(name: str) -> None:
    assert TABLES[name]() in GUIDE.read_text(), "python benchmarks/sizing.py --guide prints them"
