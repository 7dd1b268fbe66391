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
    """

    __slots__ = ("entries", "indptr", "members", "native")

    def __init__(self, indptr: Array, entries: Array, members: Members | None = None) -> None:
        if indptr.dtype != np.int64 or indptr.ndim != 1:
            raise ValueError(f"indptr must be one-dimensional int64, not {indptr.dtype}")
        if entries.dtype not in (np.int32, np.int64):
            raise ValueError(f"entries must be int32 or int64, not {entries.dtype}")
        if members is not None and len(indptr) != members.count + 1:
            raise ValueError(
                f"indptr has {len(indptr)} entries; expected {members.count + 1}, "
                f"one more than there are members"
            )
        self.indptr = indptr
        self.entries = entries
        self.members = members
        if members is None:
            self.native = _native.Adjacency(indptr, entries)
        else:
            self.native = _native.Adjacency(indptr, entries, members.words, members.size)

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
        if self.entries.ndim == 1:
            return np.arange(self.num_edges, dtype=np.int64)
        return self.entries[:, 1]


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
