"""The rows that a sampler's kernel reads: the graph's own, or fetched as the kernel asks for them.

    rows = Rows(graph)
    push = Push(…, rows.of(kind, "in"), …)
    sample = rows.complete(lambda: push.sample(key, seeds))

A kernel does not know where rows are. Over a graph in parts it runs again, with the rows that it
missed, until it misses none: it is a pure function, so the result is that of the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.graph import EdgeType, Graph
from penstock.graph.schema import Side
from penstock.kernels import Adjacency

_Result = TypeVar("_Result")


class Rows:
    """The rows of a graph for one sampler; for one thread at a time."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._exchange = graph.open_exchange()

    def of(self, edge_type: EdgeType, side: Side) -> Adjacency:
        """Return the in-edges or out-edges of an edge type, for a kernel."""
        if self._exchange is None:
            return self._graph.rows(edge_type, side)
        return self._exchange.rows(edge_type, side).adjacency

    def sorted(self, edge_type: EdgeType, side: Side = "in") -> Adjacency:
        """Return the same rows with rising neighbours and without edge ids, to look edges up in."""
        if self._exchange is None:
            rows = self._graph.rows(edge_type, side)
            neighbors = self._graph.sorted_rows(edge_type, side)
            return Adjacency(rows.indptr, neighbors, rows.members)
        return self._exchange.rows(edge_type, side).sorted_adjacency

    def complete(self, run: Callable[[], _Result]) -> _Result:
        """Return the result of `run`, which reads these rows, once it has missed none."""
        return run() if self._exchange is None else self._exchange.complete(run)
