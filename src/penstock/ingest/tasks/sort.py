"""Tasks for ranges of nodes, and for parts: sort the edges of a range, and write a part."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock.graph.checksum import Bytes
from penstock.graph.external import LEAST_MEMORY, ExternalEdges, SortedEdges, SortedRows
from penstock.graph.external.scratch import append
from penstock.graph.format import ArraySource, Meter, write_sources
from penstock.graph.layout import array_nbytes
from penstock.graph.partition.note import owning_side
from penstock.graph.schema import ArrayKey, EdgeType, Schema, Side
from penstock.graph.topology import specs
from penstock.ingest.cutting.edges import (
    Books,
    CutCounter,
    RowSharer,
    SharedEdges,
    SharedRows,
)
from penstock.ingest.cutting.nodes import SharedNodes
from penstock.ingest.cutting.part import PartMaker
from penstock.ingest.cutting.segments import Segment
from penstock.ingest.tasks.sums import RangeSum, RangeSummed
from penstock.ingest.tasks.task import Frame
from penstock.ingest.workspace import Workspace

# Edges that are read from a file at a time.
_EDGES: Final = 1 << 18


@dataclass(frozen=True)
class NodeRange:
    """A range of nodes whose edges are sorted.

    Attributes:
        kind: The type of edges.
        side: Whether edges lead to these nodes, or begin there.
        first_row: The first node.
        num_rows: How many nodes there are.
        first_edge: How many edges the ranges before have.
        num_edges: How many edges of the type there are.
        num_rows_in_all: How many nodes there are in all ranges.
        num_others: How many nodes there are at the other end.
        is_paired: Whether ids of edges stand beside their ends.
    """

    kind: EdgeType
    side: Side
    first_row: int
    num_rows: int
    first_edge: int
    num_edges: int
    num_rows_in_all: int
    num_others: int
    is_paired: bool


@dataclass(frozen=True)
class SortedRange:
    """What has become of a range.

    Attributes:
        rows: Its rows, given out; None if no part wants them.
        whole: Its edges, and where rows end, if every part has all of them.
        num_edges: How many edges belong to each part.
        edges_cut: How many of these have their other end in another part.
        summed: The sums of `adjacency` and `indptr`, of edges by destination.
    """

    rows: SharedRows | None
    whole: tuple[Segment, Segment] | None
    num_edges: list[int]
    edges_cut: list[int]
    summed: tuple[RangeSummed, RangeSummed] | None


@dataclass(frozen=True)
class _Source:
    """An array of a whole graph, of which a range is made here."""

    dtype: str
    shape: tuple[int, ...]
    made: Any = None

    def pieces(self) -> Iterator[Bytes]:
        yield from self.made()


class _RangeRows:
    """The rows of a range, with the numbers that they have among all."""

    def __init__(self, found: SortedEdges, range_: NodeRange) -> None:
        indptr, adjacency = specs(
            range_.num_rows_in_all, range_.num_others, range_.num_edges, paired=range_.is_paired
        )
        self.num_edges = range_.num_edges
        self.adjacency = _Source(*adjacency)
        self.indptr = _Source(*indptr, self._offsets)
        self._found = found
        self._range = range_

    def rows(self) -> Iterator[SortedRows]:
        for rows in self._found.rows():
            yield rows._replace(first_row=rows.first_row + self._range.first_row)

    def _offsets(self) -> Iterator[Bytes]:
        """Yield where rows begin, and where the last one ends."""
        for piece in self._found.indptr.pieces():
            yield (piece.view(np.int64) + self._range.first_edge).view(np.uint8)


def sort(
    workspace: Workspace,
    frame: Frame,
    range_: NodeRange,
    entries: Sequence[Segment],
    books: Books,
) -> SortedRange:
    """Sort the edges of a range, sum them up, and give them out by parts.

    Args:
        workspace: For files.
        frame: What all tasks know.
        range_: The range.
        entries: Its edges, in order of their ids.
        books: The part of each node.
    """
    folder = workspace.path("edges")
    folder.mkdir()
    memory = max(2 * LEAST_MEMORY, frame.memory // 2)
    with ExternalEdges(
        folder, range_.num_others, range_.num_rows, memory, out_of=range_.num_edges
    ) as sorter:
        for segment in entries:
            for block in segment.kept().blocks(_EDGES):
                own = np.ascontiguousarray(block[:, 1] - range_.first_row)
                others, ids = np.ascontiguousarray(block[:, 0]), block[:, 2].astype(np.int64)
                sorter.add(others, own, ids)
        found = _RangeRows(sorter.finish(paired=range_.is_paired), range_)
        if range_.side == "out":
            sharer = RowSharer(range_.kind, "out", books, workspace, frame.room)
            return SortedRange(
                sharer.share(found, found.rows(), range_.first_row), None, [], [], None
            )
        return _by_target(workspace, frame, range_, found, books)


def _by_target(
    workspace: Workspace, frame: Frame, range_: NodeRange, found: _RangeRows, books: Books
) -> SortedRange:
    cutting = frame.cutting
    row = array_nbytes(found.adjacency.dtype, (1, *found.adjacency.shape[1:]))
    total = RangeSum(range_.first_edge * row, workspace.path("sum.tmp"))
    counter = CutCounter(range_.kind, owning_side(cutting.edges), books)
    rows = _summed(counter.counted(found.rows()), total)
    shared, edges = None, workspace.path("adjacency.tmp")
    if cutting.topology == "whole":
        for some in rows:
            append(edges, [some.bytes])
    elif cutting.edges == "source":
        deque(rows, maxlen=0)
    else:
        sharer = RowSharer(range_.kind, "in", books, workspace, frame.room)
        shared = sharer.share(found, rows, range_.first_row)
    offsets, ends = _ends_of_rows(workspace, range_, found)
    sizes = counter.num_edges.tolist(), counter.edges_cut.tolist()
    summed = (total.summed(), offsets)
    if cutting.topology == "parts":
        ends.remove()
        return SortedRange(shared, None, *sizes, summed)
    count = int(counter.num_edges.sum())
    shape = (count, *found.adjacency.shape[1:])
    whole = (Segment(edges, found.adjacency.dtype, shape, is_kept=True), ends)
    return SortedRange(None, whole, *sizes, summed)


def _summed(rows: Iterator[SortedRows], total: RangeSum) -> Iterator[SortedRows]:
    for each in rows:
        total.add(each.bytes)
        yield each


def _ends_of_rows(
    workspace: Workspace, range_: NodeRange, found: _RangeRows
) -> tuple[RangeSummed, Segment]:
    """Write the range of `indptr` that is of these rows: where they end; and the 0 before all."""
    skipped = 8 if range_.first_row else 0
    total = RangeSum(8 * range_.first_row + skipped, workspace.path("sum.tmp"))
    path, left = workspace.path("indptr.tmp"), skipped
    for piece in found.indptr.pieces():
        own, left = piece[left:], 0
        append(path, [own])
        total.add(own)
    count = range_.num_rows + (not skipped)
    return total.summed(), Segment(path, "int64", (count,), is_kept=True)


# --- parts ---------------------------------------------------------------------------------------


def write_part(
    workspace: Workspace,
    frame: Frame,
    part: int,
    schema: Schema,
    nodes: Mapping[str, SharedNodes],
    edges: Mapping[EdgeType, SharedEdges],
    graph: Mapping[ArrayKey, Segment],
) -> None:
    """Write a part into the folder `part`."""
    maker = PartMaker(nodes, edges, graph, workspace, frame.memory // 4)
    arrays: dict[ArrayKey, ArraySource] = maker.arrays(part)
    write_sources(workspace.folder / "part", schema, arrays, Meter(0, None))
