"""Edges for tests of sorting out of core, and what `Graph.from_coo` makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock import Graph
from penstock.graph.external import ExternalEdges, SortedEdges
from penstock.graph.format import ArraySource, Meter, write_sources
from penstock.graph.schema import EdgeTypeInfo, NodeTypeInfo, Schema

Array = npt.NDArray[Any]

NAME = ("user", "buys", "item")
MIB = 2**20


class Edges(NamedTuple):
    """Edges of one type, and how many nodes there are on both sides."""

    sources: Array
    destinations: Array
    num_sources: int
    num_destinations: int

    def chunks(self, size: int) -> Iterator[tuple[Array, Array]]:
        for begin in range(0, len(self.sources), size):
            yield self.sources[begin : begin + size], self.destinations[begin : begin + size]

    def some(self, keep: Array) -> Edges:
        return self._replace(sources=self.sources[keep], destinations=self.destinations[keep])


class Rows(NamedTuple):
    """What is saved of a topology."""

    dtype: str
    shape: tuple[int, ...]
    indptr: bytes
    adjacency: bytes


def edges_of(shape: str, count: int = 250_000, nodes: int = 20_000, seed: int = 0) -> Edges:
    """Edges that are hard to share out evenly, in some way."""
    rng = np.random.default_rng(seed)
    dtype = np.int32 if shape == "hubs" else np.int64
    sources, destinations = rng.integers(0, nodes, (2, count), dtype)
    num_sources = nodes
    match shape:
        case "power law":
            destinations = (rng.random(count) ** 20 * nodes).astype(np.int64)
        case "hubs":
            destinations[::4] %= 1000
        case "giant":
            destinations[rng.random(count) < 0.4] = nodes // 3
        case "one node":
            nodes = 1
            destinations[:] = 0
        case "two giants":
            destinations = rng.choice([5, nodes - 1], count)
        case "sorted":
            destinations.sort()
        case "sorted giant":
            destinations[: count // 2] = 7
            destinations.sort()
        case "wide":
            return Edges(sources + 2**33, destinations, 2**33 + nodes, nodes)
    return Edges(sources, destinations, num_sources, nodes)


SHAPES = [
    "even",
    "power law",
    "hubs",
    "giant",
    "one node",
    "two giants",
    "sorted",
    "sorted giant",
    "wide",
]


def from_coo(edges: Edges) -> Rows:
    """What the bytes must be."""
    ends = np.stack([edges.sources, edges.destinations])
    sizes = {"user": edges.num_sources, "item": edges.num_destinations}
    with Graph.from_coo({NAME: ends}, num_nodes=sizes) as graph:
        rows = graph.topology(NAME)
        adjacency = rows.adjacency
        return Rows(
            str(adjacency.dtype), adjacency.shape, rows.indptr.tobytes(), adjacency.tobytes()
        )


def added(external: ExternalEdges, edges: Edges, chunk: int = 40_000) -> SortedEdges:
    for sources, destinations in edges.chunks(chunk):
        external.add(sources, destinations)
    return external.finish()


def bytes_of(source: ArraySource) -> bytes:
    return b"".join(piece.tobytes() for piece in source.pieces())


def rows_of(found: SortedEdges) -> Rows:
    adjacency = bytes_of(found.adjacency)
    return Rows(found.adjacency.dtype, found.adjacency.shape, bytes_of(found.indptr), adjacency)


def save(path: Path, edges: Edges, memory: int = MIB, **choices: Any) -> None:
    """Build a graph as users of `ExternalEdges` do."""
    with ExternalEdges(
        path.parent, edges.num_sources, edges.num_destinations, memory, **choices
    ) as external:
        found = added(external, edges)
        nodes = (
            NodeTypeInfo("user", edges.num_sources),
            NodeTypeInfo("item", edges.num_destinations),
        )
        schema = Schema(True, nodes, (EdgeTypeInfo(NAME, found.num_edges),))
        write_sources(path, schema, found.arrays(NAME), Meter(0, None))


def saved_rows(path: Path) -> Rows:
    with Graph.open(path) as graph:
        graph.validate()
        rows = graph.topology(NAME)
        adjacency = rows.adjacency
        return Rows(
            str(adjacency.dtype), adjacency.shape, rows.indptr.tobytes(), adjacency.tobytes()
        )
