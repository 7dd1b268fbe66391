"""What tests of subgraphs share: requests, memory, and what a subgraph is by plain NumPy."""

from __future__ import annotations

import numpy as np

from penstock.graph import EdgeType, Graph
from penstock.sampling.names import qualified
from penstock.sampling.request import Request
from penstock.sampling.spec import Direction
from tests.sampling.graphs import Array


def request_of(seeds: list[int], node_type: str = "") -> Request:
    ids = np.array(seeds, np.int64)
    return Request(0, 0, 0, ids, np.arange(100, 100 + len(ids)), node_type)


class Desk:
    """Memory for a batch, as any that is handed out array by array."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
        self.arrays[name] = np.empty(shape, dtype)
        return self.arrays[name]

    def reshape(self, name: str, shape: tuple[int, ...]) -> Array:
        return self.arrays[name].reshape(-1)[: np.prod(shape)].reshape(shape)


def within(
    graph: Graph, seeds: dict[str, set[int]], num_hops: int, *, along: Direction
) -> dict[str, set[int]]:
    """By plain sets, the nodes of each type within some hops."""
    found = {name: set(seeds.get(name, set())) for name in graph.node_types}
    for _ in range(num_hops):
        before = {name: set(nodes) for name, nodes in found.items()}
        for kind in graph.edge_types:
            source, _, destination = kind
            for a, b in graph.edge_index(kind).T.tolist():
                if along == "in" and b in before[destination]:
                    found[source].add(a)
                if along == "out" and a in before[source]:
                    found[destination].add(b)
    return found


def assert_whole(
    graph: Graph, kind: EdgeType, arrays: dict[str, Array], direction: Direction
) -> None:
    """CONTRACT 43: all edges of a type among the nodes of a batch, each once, are in it."""
    ends = arrays[qualified(kind, "edge_index")]
    above, below = (kind[0], kind[2]) if direction == "in" else (kind[2], kind[0])
    found = arrays[qualified(above, "n_id")][ends[0]], arrays[qualified(below, "n_id")][ends[1]]
    edges = np.stack(found if direction == "in" else found[::-1])
    ids = arrays[qualified(kind, "e_id")]
    np.testing.assert_array_equal(graph.edge_index(kind)[:, ids], edges)
    source, destination = graph.edge_index(kind)
    among = np.isin(source, arrays[qualified(kind[0], "n_id")])
    among &= np.isin(destination, arrays[qualified(kind[2], "n_id")])
    assert sorted(ids.tolist()) == np.flatnonzero(among).tolist()
    assert np.all(np.diff(ends[1]) >= 0)
