"""Which part the rows of an array belong to: nodes by a book, edges by one of their ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from penstock.graph.partition.book import PartitionBook, RangeBook, part_dtype
from penstock.ingest.tables import MOST_ROWS
from penstock.ingest.workspace import Spool, Workspace
from penstock.kernels.members import WORD_BITS, Members

Array = npt.NDArray[Any]

# As many rows at a time as make whole words of members.
_ROWS: Final = 1 << 17


class Owners(Protocol):
    """The part of each row."""

    @property
    def size(self) -> int: ...
    def parts(self, begin: int, end: int) -> Array:
        """Return the parts of some rows."""
        ...


class NodeOwners:
    """The parts of nodes."""

    def __init__(self, book: PartitionBook) -> None:
        self.book = book
        self.size = book.size
        self.dtype = part_dtype(book.num_partitions)

    def parts(self, begin: int, end: int) -> Array:
        found = np.empty(end - begin, self.dtype)
        for first in range(begin, end, _ROWS):
            nodes = np.arange(first, min(end, first + _ROWS), dtype=np.int64)
            found[first - begin : first - begin + len(nodes)] = self.book.partition_of(nodes)
        return found

    def of(self, nodes: Array) -> Array:
        """Return the parts of some nodes."""
        found = np.empty(len(nodes), self.dtype)
        for first in range(0, len(nodes), _ROWS):
            found[first : first + _ROWS] = self.book.partition_of(nodes[first : first + _ROWS])
        return found

    def counts(self) -> list[int]:
        """Return how many nodes each part has."""
        if isinstance(self.book, RangeBook):
            return [int(count) for count in np.diff(self.book.bounds)]
        counts = np.zeros(self.book.num_partitions, np.int64)
        for begin in range(0, self.size, _ROWS):
            parts = self.parts(begin, min(self.size, begin + _ROWS))
            counts += np.bincount(parts, minlength=len(counts))
        return [int(count) for count in counts]


class EdgeOwners:
    """The parts of edges, in order of their ids, in a file."""

    def __init__(self, spool: Spool) -> None:
        self.size = spool.num_rows
        self._parts = spool.mapped()

    def parts(self, begin: int, end: int) -> Array:
        return self._parts[begin:end]


def owners_of_edges(ends: Spool, book: PartitionBook, workspace: Workspace) -> EdgeOwners:
    """Return the parts of edges from the nodes that they go with, whose file is removed."""
    nodes = NodeOwners(book)
    found = workspace.spool(part_dtype(book.num_partitions))
    for piece in ends.pieces(MOST_ROWS):
        found.append(nodes.of(piece))
    ends.remove()
    return EdgeOwners(found)


def words_of(owners: Owners, part: int) -> Iterator[Array]:
    """Yield the words of `members`: which rows belong to a part, and how many before each word."""
    before = 0
    for begin in range(0, owners.size, _ROWS):
        end = min(owners.size, begin + _ROWS)
        found = Members.of(np.flatnonzero(owners.parts(begin, end) == part), end - begin)
        words = found.words.view(np.int64)
        words[:, 1] += before
        before += found.count
        yield words


def words_shape(size: int) -> tuple[int, int]:
    """Return the shape of `members` of so many rows."""
    return -(-size // WORD_BITS), 2
