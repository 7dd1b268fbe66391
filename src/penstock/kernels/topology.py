"""Turns edge lists into rows of neighbours: the interface of the kernels that build a graph."""

from __future__ import annotations

import numpy as np

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import Array, raw_bytes
from penstock.kernels.members import Members


class Adjacency:
    """Rows of neighbours: `indptr` [n + 1] and `entries`, paired [E, 2] or bare [E].

    Paired entries are (neighbour, edge id), so that a sampled edge costs one cache line instead of
    two; bare entries are neighbours only, and the edge id is the position.

    With `members`, only those nodes have rows, in the order of their ids, and `indptr` has one
    entry more than there are members. To a kernel the rows of all other nodes are empty.

    With `first_ids`, entries are bare, and the edge ids of row i are `first_ids[i]` and those that
    follow it. A kernel does not know that, and takes positions for edge ids (`by_position`);
    `numbered` makes edge ids of them. A kernel whose caller does not do so gets no such rows:
    `native` is refused.
    """

    __slots__ = ("by_position", "entries", "first_ids", "indptr", "members")

    def __init__(
        self,
        indptr: Array,
        entries: Array,
        members: Members | None = None,
        first_ids: Array | None = None,
    ) -> None:
        if indptr.dtype != np.int64 or indptr.ndim != 1:
            raise ValueError(f"indptr must be one-dimensional int64, not {indptr.dtype}")
        if entries.dtype not in (np.int32, np.int64):
            raise ValueError(f"entries must be int32 or int64, not {entries.dtype}")
        if members is not None and len(indptr) != members.count + 1:
            raise ValueError(
                f"indptr has {len(indptr)} entries; expected {members.count + 1}, "
                f"one more than there are members"
            )
        if first_ids is not None and (entries.ndim != 1 or len(first_ids) != len(indptr) - 1):
            raise ValueError(
                f"first_ids has {len(first_ids)} entries; expected one for each of "
                f"{len(indptr) - 1} rows of bare entries"
            )
        self.indptr = indptr
        self.entries = entries
        self.members = members
        self.first_ids = first_ids
        if members is None:
            self.by_position = _native.Adjacency(indptr, entries)
        else:
            self.by_position = _native.Adjacency(indptr, entries, members.words, members.size)

    @property
    def native(self) -> _native.Adjacency:
        """The rows as the native module takes them."""
        if self.first_ids is not None:
            raise ValueError("these rows have edge ids of their own, which this kernel cannot read")
        return self.by_position

    @property
    def num_nodes(self) -> int:
        """How many nodes there are, whether they have rows here or not."""
        return len(self.indptr) - 1 if self.members is None else self.members.size

    @property
    def num_edges(self) -> int:
        return len(self.entries)

    @property
    def neighbors(self) -> Array:
        return self.entries if self.entries.ndim == 1 else self.entries[:, 0]

    @property
    def edge_ids(self) -> Array:
        return self.edge_ids_from(0, self.num_edges)

    def edge_ids_from(self, begin: int, end: int) -> Array:
        """Return the edge ids of consecutive entries."""
        if self.entries.ndim == 2:
            return self.entries[begin:end, 1]
        positions = np.arange(begin, min(end, self.num_edges), dtype=np.int64)
        if self.first_ids is None:
            return positions
        rows = np.searchsorted(self.indptr, positions, side="right") - 1
        return positions + self._shifts(rows)

    def numbered(self, nodes: Array, counts: Array, positions: Array) -> Array:
        """Return the edge ids of entries that a kernel found for these nodes, so many for each.

        Args:
            nodes: The nodes whose rows the entries are in.
            counts: How many entries there are of each node.
            positions: What the kernel took for edge ids.
        """
        if self.first_ids is None:
            return positions
        rows = nodes if self.members is None else self.members.rows(nodes)
        # A node without a row has no entries, whichever number stands for it.
        known = np.maximum(rows, 0) if len(self.first_ids) else rows[:0]
        ids: Array = positions + np.repeat(self._shifts(known), counts[: len(known)])
        return ids.astype(self.first_ids.dtype)

    def _shifts(self, rows: Array) -> Array:
        """Return what to add to positions in these rows to get edge ids."""
        assert self.first_ids is not None
        shifts: Array = self.first_ids[rows].astype(np.int64) - self.indptr[rows]
        return shifts


def first_outside(ids: Array, bound: int) -> int:
    """Return the first position whose id is not in [0, bound), or -1."""
    return _native.first_outside(ids, bound)


def is_sorted(ids: Array) -> bool:
    """Return whether no id is smaller than the one before it."""
    return _native.is_sorted(ids)


def fill_adjacency(keys: Array, values: Array, indptr: Array, adjacency: Array) -> None:
    """Sort edges by key, stably, into `indptr` and `adjacency`; linear time, no further memory.

    Ids must have been checked to be in range. A bare `adjacency` [E] needs sorted keys.
    """
    if keys.dtype != values.dtype:
        wide = np.promote_types(keys.dtype, values.dtype)
        keys, values = keys.astype(wide, copy=False), values.astype(wide, copy=False)
    bad = first_outside(keys, len(indptr) - 1)
    if bad >= 0:
        raise ValueError(f"keys[{bad}] is {keys[bad]}; expected 0 <= id < {len(indptr) - 1}")
    if adjacency.dtype.itemsize < values.dtype.itemsize:
        bad = first_outside(values, np.iinfo(adjacency.dtype).max + 1)
        if bad >= 0:
            raise ValueError(f"values[{bad}] is {values[bad]}, which {adjacency.dtype} cannot hold")
    if adjacency.ndim == 1 and not is_sorted(keys):
        raise ValueError("a bare adjacency needs sorted keys")
    _native.fill_adjacency(keys, values, indptr, adjacency)


def transpose(indptr: Array, adjacency: Array, out_indptr: Array, out_adjacency: Array) -> None:
    """Write the rows of the other side (CSC to CSR), in order of edge ids; output is [E, 2]."""
    if not _native.transpose(Adjacency(indptr, adjacency).native, out_indptr, out_adjacency):
        raise GraphFormatError("damaged topology: an offset, neighbour or edge id is out of range")


def digest(array: Array) -> bytes:
    """Return a digest of 16 bytes of the array's bytes; dtype and shape do not count."""
    return _native.digest(raw_bytes(array))
