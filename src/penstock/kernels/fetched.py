"""Rows of a graph that is elsewhere, fetched as kernels ask for them.

A kernel that reads the row of a node that is not here finds it empty, and the node is noted. The
caller fetches the rows that the kernel missed and runs it again, until it misses none: kernels are
pure functions, so the result is that of the whole graph. This module does not know where rows come
from.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids, as_numbers, check_integer
from penstock.kernels.topology import Adjacency


class FetchedRows:
    """Rows of some nodes of a graph that is elsewhere; notes which other rows a kernel read.

    For one thread at a time.

    Args:
        num_nodes: How many nodes there are.
        num_edges: How many edges to make room for at once.

    Examples:
        >>> import numpy as np
        >>> from penstock.kernels import draw_hop
        >>> rows = FetchedRows(4)
        >>> draw_hop(rows.adjacency, np.array([3, 1]), -1, 0).counts.tolist()
        [0, 0]
        >>> rows.take_missing().tolist()
        [3, 1]
        >>> rows.add(np.array([3]), np.array([2]), np.array([0, 1]), np.array([7, 8]))
        >>> draw_hop(rows.adjacency, np.array([3, 1]), -1, 0).edge_ids.tolist()
        [7, 8]
        >>> rows.take_missing().tolist()
        [1]
    """

    __slots__ = ("_adjacency", "_native", "_sorted_adjacency", "num_nodes")

    def __init__(self, num_nodes: int, num_edges: int = 0) -> None:
        self.num_nodes = check_integer(num_nodes, "num_nodes", 0, 2**62)
        room = check_integer(num_edges, "num_edges", 0, 2**40)
        self._native = _native.FetchedRows(self.num_nodes, room)
        self._adjacency = FetchedAdjacency(self._native, self.num_nodes, is_sorted=False)
        self._sorted_adjacency = FetchedAdjacency(self._native, self.num_nodes, is_sorted=True)

    def __len__(self) -> int:
        """Return how many rows are here."""
        return self._native.num_rows

    @property
    def adjacency(self) -> Adjacency:
        """The rows that are here, for a kernel; the same object also when others are added."""
        return self._adjacency

    @property
    def sorted_adjacency(self) -> Adjacency:
        """The neighbours of the same rows, rising within each, for kernels that look edges up."""
        return self._sorted_adjacency

    @property
    def nbytes(self) -> int:
        """How much memory the rows take."""
        return self._native.num_bytes

    def add(self, nodes: Array, counts: Array, neighbors: Array, edge_ids: Array) -> None:
        """Add rows, one after the other; arrays are int32 or int64.

        Args:
            nodes: Whose rows; they have none here yet.
            counts: How many edges each has.
            neighbors: The neighbours of all, in the order of storage.
            edge_ids: The ids of these edges.

        Raises:
            ValueError: A node is out of range or has a row already, or counts do not fit the edges.
        """
        ids, many = as_numbers(nodes, "nodes"), as_numbers(counts, "counts")
        found, edges = as_numbers(neighbors, "neighbors"), as_numbers(edge_ids, "edge_ids")
        if len(many) != len(ids) or len(edges) != len(found):
            raise ValueError(
                f"there are {len(ids)} nodes and {len(many)} counts, "
                f"{len(found)} neighbors and {len(edges)} edge_ids"
            )
        bad = self._native.add(ids, many, found, edges)
        if bad == -2:
            raise ValueError(f"counts are not those of {len(found)} neighbors")
        if bad >= 0 and 0 <= ids[bad] < self.num_nodes:
            raise ValueError(f"nodes[{bad}] is {ids[bad]}, which has a row already")
        if bad >= 0:
            raise ValueError(f"nodes[{bad}] is {ids[bad]}; expected 0 <= id < {self.num_nodes}")

    def take_missing(self) -> Ids:
        """Return the nodes whose rows were read and are not here, each once; forget them."""
        return self._native.take_missing()

    def clear(self) -> None:
        """Forget all rows and what was missing, and give the memory back."""
        self._native.clear()


class FetchedAdjacency(Adjacency):
    """The rows of a `FetchedRows`, as kernels take them. Its arrays are not Python's to see."""

    __slots__ = ("_num_nodes", "_rows")

    def __init__(self, rows: _native.FetchedRows, num_nodes: int, *, is_sorted: bool) -> None:
        self._rows = rows
        self._num_nodes = num_nodes
        self.indptr = np.zeros(1, np.int64)
        self.entries = np.empty(0 if is_sorted else (0, 2), np.int64)
        self.members = self.first_ids = None
        self.by_position = rows.adjacency(is_sorted)

    @property
    def num_nodes(self) -> int:
        return self._num_nodes

    @property
    def num_edges(self) -> int:
        return self._rows.num_edges
