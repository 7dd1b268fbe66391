"""Assigns nodes to parts in passes over the rows of a graph, for graphs larger than memory.

In each pass every node, in the order of ids, goes where most of its neighbours are, weighted by the
room that is left there (linear deterministic greedy, streamed again). Beside the graph, which may
be mapped from files and is read from front to back, there are one or two bytes for each node, and,
if edges lead in one direction only, a table of votes of bounded size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.graph.partition.book import part_dtype
from penstock.graph.partition.index_space import IndexSpace, NodesOfType
from penstock.graph.progress import Report
from penstock.kernels.streaming import RowsOfType, count_votes, is_undirected, place_nodes

Array = npt.NDArray[Any]
# Called with a shape and a dtype.
Zeros: TypeAlias = Callable[[tuple[int, int], type[np.int32]], Array]

PASSES: Final = 20
# No part gets more nodes of a type than the mean and so many per cent; but always a whole node.
SLACK_PERCENT: Final = 5
# A pass in which fewer nodes move than one of so many is the last.
_SETTLED: Final = 1000
# Nodes of several types are assigned by turns, so that the first ones have neighbours to go by.
_TURNS: Final = 8
_VOTES_NBYTES: Final = 1 << 30
# Rows between two reports of progress.
_ROWS: Final = 1 << 18


def stream(
    space: IndexSpace,
    num_parts: int,
    passes: int = PASSES,
    report: Report | None = None,
    votes_nbytes: int = _VOTES_NBYTES,
    zeros: Zeros = np.zeros,
) -> dict[str, Array]:
    """Return the part of each node, by node type.

    Args:
        space: The nodes and their in-edges.
        num_parts: How many parts there are.
        passes: The most passes over all rows.
        report: Called with the bytes of rows that were read, and that will be at most.
        votes_nbytes: The most bytes for votes along out-edges; fewer mean more reading, and other
            parts.
        zeros: Makes the table of votes: in memory, or in a file that is mapped.
    """
    streaming = _Streaming(space, num_parts, passes, report, votes_nbytes, zeros)
    for _ in range(passes):
        if streaming.run_pass() * _SETTLED < space.size:
            break
    streaming.end()
    return space.by_type(streaming.parts.astype(part_dtype(num_parts), copy=False))


def most_nodes(size: int, num_parts: int) -> int:
    """Return the most nodes of a type, of so many in all, that a part gets."""
    return max(-(-size // num_parts), size * (100 + SLACK_PERCENT) // (100 * num_parts))


class _Streaming:
    """The part of each node, and the sizes of the parts, while passes go on."""

    def __init__(
        self,
        space: IndexSpace,
        num_parts: int,
        passes: int,
        report: Report | None,
        votes_nbytes: int,
        zeros: Zeros,
    ) -> None:
        self._space = space
        self._num_parts = num_parts
        self._report = report
        self._zeros = zeros
        # No node is in a part: their number stands for none.
        self.parts = np.full(space.size, num_parts, part_dtype(num_parts + 1))
        self._sizes = {each.name: np.zeros(num_parts, np.int64) for each in space.types}
        self._is_directed = not is_undirected(space.rows)
        self._turns = _TURNS if len(space.types) > 1 else 1
        if self._is_directed:
            self._turns = max(self._turns, -(-space.size * num_parts * 4 // votes_nbytes))
        nbytes = sum(map(_nbytes, space.rows))
        self._total = passes * nbytes * (1 + self._turns * self._is_directed)
        self._done = 0

    def run_pass(self) -> int:
        """Assign every node anew; return how many have changed their part."""
        moved = 0
        for turn in range(self._turns):
            for each in self._space.types:
                first, end = (each.size * at // self._turns for at in (turn, turn + 1))
                moved += self._place(each, first, end)
        return moved

    def end(self) -> None:
        self._read(self._total - self._done)

    def _place(self, nodes: NodesOfType, first: int, end: int) -> int:
        votes = self._votes(nodes, first, end) if self._is_directed else None
        moved = 0
        for begin in range(first, end, _ROWS):
            until = min(begin + _ROWS, end)
            moved += place_nodes(
                nodes.rows,
                nodes.base,
                begin,
                until,
                most_nodes(nodes.size, self._num_parts),
                self._sizes[nodes.name],
                self.parts,
                None if votes is None else votes[begin - first : until - first],
            )
            self._read(sum(_nbytes(rows, begin, until) for rows in nodes.rows))
        return moved

    def _votes(self, nodes: NodesOfType, first: int, end: int) -> Array:
        """Return what neighbours along out-edges, whose rows these are not, have to say."""
        votes = self._zeros((end - first, self._num_parts), np.int32)
        for rows in self._space.rows:
            if rows.base == nodes.base and rows.size == nodes.size:
                count_votes(rows, first, end, self.parts, votes)
            self._read(_nbytes(rows))
        return votes

    def _read(self, nbytes: int) -> None:
        self._done = min(self._done + nbytes, self._total)
        if self._report is not None:
            self._report(self._done, self._total)


def _nbytes(rows: RowsOfType, first: int = 0, end: int | None = None) -> int:
    """Return the bytes of the entries of some rows, or of all."""
    entries, indptr = rows.rows.entries, rows.rows.indptr
    count = int(indptr[-1 if end is None else end] - indptr[first])
    return count * entries.itemsize * (entries.shape[1] if entries.ndim == 2 else 1)
