"""Rows that a kernel does not have: fetched as it misses them, or kept for some nodes only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from penstock.kernels import Adjacency, Members
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.fetched import FetchedRows
from tests.kernels.strategies import Rows

_Result = TypeVar("_Result")


class Elsewhere:
    """Fetches the rows of a graph that kernels miss, and counts what it fetched."""

    def __init__(self) -> None:
        self._tables: dict[int, tuple[Rows, FetchedRows]] = {}
        self.fetched: list[Ids] = []

    def rows_of(self, rows: Rows) -> FetchedRows:
        if id(rows) not in self._tables:
            self._tables[id(rows)] = rows, FetchedRows(len(rows.indptr) - 1)
        return self._tables[id(rows)][1]

    def complete(self, run: Callable[[], _Result]) -> _Result:
        """Runs a kernel until it misses nothing."""
        for _ in range(1000):
            result = run()
            if not sum([self._fetch(*table) for table in self._tables.values()]):
                return result
        raise AssertionError("the kernel never has enough")

    def _fetch(self, rows: Rows, table: FetchedRows) -> int:
        missing = table.take_missing()
        assert len(np.unique(missing)) == len(missing)
        if len(missing):
            self.fetched.append(missing)
            table.add(missing, *edges_of(rows, missing))
        return len(missing)


def edges_of(rows: Rows, nodes: Array) -> tuple[Ids, Array, Array]:
    """Counts, neighbours and edge ids of some rows, one after the other."""
    counts = rows.indptr[nodes + 1] - rows.indptr[nodes]
    at = np.concatenate(
        [
            np.empty(0, np.int64),
            *(np.arange(rows.indptr[node], rows.indptr[node + 1]) for node in nodes),
        ]
    )
    return counts, rows.neighbors[at], rows.edge_ids[at]


def only(rows: Rows, nodes: Ids) -> Adjacency:
    """The rows of these nodes alone, which rise; of bare rows the edge ids are positions."""
    counts, neighbors, edge_ids = edges_of(rows, nodes)
    entries = np.stack([neighbors, edge_ids], axis=1).astype(rows.entries.dtype)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Adjacency(indptr, entries, Members.of(nodes, len(rows.indptr) - 1))


def emptied(rows: Rows, nodes: Ids) -> Rows:
    """The rows of all nodes, of which those that are not listed are empty; paired."""
    _, neighbors, edge_ids = edges_of(rows, nodes)
    counts = np.zeros(len(rows.indptr) - 1, np.int64)
    counts[nodes] = np.diff(rows.indptr)[nodes]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Rows(indptr, np.stack([neighbors, edge_ids], axis=1).astype(rows.entries.dtype))
