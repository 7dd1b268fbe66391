"""Tasks for nodes: number them, and give out what they have by parts.

Ids of a type are numbered by one task, since each id has to be compared with all others; where only
edges name nodes, other tasks find first which ids each run of files has. That task splits nodes,
too. Attributes are given out run by run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.graph.layout import array_nbytes
from penstock.graph.partition.book import PartitionBook
from penstock.graph.schema import EdgeType
from penstock.ingest.cutting.assign import book_by_column
from penstock.ingest.cutting.edges import give_rows
from penstock.ingest.cutting.nodes import NodeSharer, SharedNodes, Wholes
from penstock.ingest.cutting.owners import NodeOwners, Owners
from penstock.ingest.cutting.segments import Segments
from penstock.ingest.description import nodes_label
from penstock.ingest.features import Column
from penstock.ingest.found import ends_of
from penstock.ingest.nodes import MadeNodes, add_splits, columns_of
from penstock.ingest.numbering import (
    Discovered,
    KeySpool,
    Numbered,
    Numbering,
    RowNumbers,
    numbered,
    pieces_of,
)
from penstock.ingest.tables import Mask, Table
from penstock.ingest.tasks.joined import (
    FiledMask,
    MaskFrom,
    OwnersFrom,
    filed_book,
    filed_numbers,
)
from penstock.ingest.tasks.sums import RangeSum, RangeSummed
from penstock.ingest.tasks.task import Frame, Run
from penstock.ingest.workspace import Workspace

Columns = list[tuple[str, Column]]


@dataclass(frozen=True)
class NumberedNodes:
    """The nodes of a type.

    Attributes:
        numbering: From users' ids to numbers.
        made: The nodes, with their splits, and without attributes.
        mask: Which rows of the table are nodes; None: all.
        book: The part of each node, if a column says it.
        counts: How many nodes each run of files has.
    """

    numbering: Numbering
    made: MadeNodes
    mask: FiledMask | None
    book: PartitionBook | None
    counts: list[int]


def number(workspace: Workspace, frame: Frame, name: str, runs: Sequence[Run]) -> NumberedNodes:
    """Number the nodes of a table, and split them."""
    table, said = frame.found.nodes[name], frame.said.nodes[name]
    if said.id is None:
        known = Numbered(RowNumbers(table.label, table.num_rows), None, {})
    else:
        known = numbered(
            table,
            said.id,
            text=frame.found.is_text[name],
            skip=said.on_missing == "skip",
            workspace=workspace,
            memory=frame.memory,
        )
    numbering = filed_numbers(table.label, known.numbering, workspace)
    made = MadeNodes(numbering.count, left_out=known.left_out)
    if said.split is not None:
        add_splits(made, name, table, said, known, workspace)
    book = None
    if frame.cutting.by_column:
        found = book_by_column(table, said, known.mask, frame.cutting.n, workspace)
        book = filed_book(found, workspace)
    mask = None if known.mask is None else FiledMask.of(known.mask, table.num_rows, workspace)
    rows = [run.of(table).num_rows for run in runs]
    counts = rows if mask is None else mask.counts(rows)
    return NumberedNodes(numbering, made, mask, book, counts)


# --- nodes that only edges name ------------------------------------------------------------------


def discover(
    workspace: Workspace, frame: Frame, kind: EdgeType, run: Run, names: Sequence[str]
) -> dict[str, KeySpool]:
    """Return the ids that a run of edges names, in the order in which it names them first."""
    columns = [each for each in ends_of(kind, frame.said.edges[kind]) if each[0] in names]
    found = {name: _discovered(workspace, frame, name) for name, _ in columns}
    for rows in run.of(frame.found.edges[kind]).rows(column for _, column in columns):
        for name, each in found.items():
            each.add(rows, [column for other, column in columns if other == name])
    return {name: each.ids for name, each in found.items()}


def number_discovered(
    workspace: Workspace, frame: Frame, name: str, found: Sequence[KeySpool]
) -> NumberedNodes:
    """Number ids that runs of edges name, in the order of runs."""
    discovered = _discovered(workspace, frame, name)
    for ids in found:
        for _, piece in pieces_of(ids.mapped()):
            discovered.extend(piece)
    numbering = filed_numbers(nodes_label(name), discovered.numbering(), workspace)
    return NumberedNodes(numbering, MadeNodes(numbering.count), None, None, [])


def _discovered(workspace: Workspace, frame: Frame, name: str) -> Discovered:
    is_text = frame.found.is_text[name]
    return Discovered(nodes_label(name), workspace, frame.memory, text=is_text)


# --- by parts ------------------------------------------------------------------------------------


def share_nodes(
    workspace: Workspace, frame: Frame, name: str, nodes: NumberedNodes, book: PartitionBook
) -> tuple[SharedNodes, Wholes]:
    """Give out the ids and the splits of nodes."""
    sharer = NodeSharer(name, NodeOwners(book), workspace, frame.room)
    return sharer.share(nodes.made, nodes.numbering)


def look_at_columns(workspace: Workspace, frame: Frame, name: str, mask: Mask | None) -> Columns:
    """Return the attributes of nodes; text and int8 have been read, to know what codes mean."""
    table = frame.found.nodes[name]
    return [
        (label, without_table(column))
        for label, column in columns_of(table, frame.said.nodes[name], mask)
    ]


def without_table(column: Column) -> Column:
    """Return a column that tasks can be told of: each of them has files of its own."""
    return replace(column, table=column.table.run(0, 0))


@dataclass(frozen=True)
class Piece:
    """Rows of an attribute that are given out.

    Attributes:
        first: The number of the first one in the whole array.
        count: How many there are.
        mask: Which rows of the table these are; None: all.
        owners: The part of each.
    """

    first: int
    count: int
    mask: Mask | None
    owners: Owners


@dataclass(frozen=True)
class SharedColumn:
    """Rows of an attribute that have been given out."""

    segments: Segments
    summed: RangeSummed


def share_columns(
    workspace: Workspace,
    frame: Frame,
    name: str,
    run: Run,
    columns: Columns,
    mask: Mask | None,
    first: tuple[int, int],
    book: PartitionBook,
) -> dict[str, SharedColumn]:
    """Give out the attributes of nodes that a run of files has.

    Args:
        workspace: For files.
        frame: What all tasks know.
        name: The type.
        run: The files.
        columns: The attributes.
        mask: Which rows of the whole table are nodes; None: all.
        first: The numbers of the first row in the table, and of the first node.
        book: The part of each node.
    """
    table = run.of(frame.found.nodes[name])
    own = None if mask is None else MaskFrom(mask, first[0])
    count = table.num_rows if own is None else int(np.count_nonzero(own[0 : table.num_rows]))
    piece = Piece(first[1], count, own, OwnersFrom(NodeOwners(book), first[1], count))
    return {label: share_piece(workspace, frame, table, column, piece) for label, column in columns}


def share_piece(
    workspace: Workspace, frame: Frame, table: Table, column: Column, piece: Piece
) -> SharedColumn:
    """Give out rows of an attribute."""
    source = replace(column, table=table).source([piece.mask], piece.count)
    segments = Segments(
        workspace.path("segments"), frame.cutting.n, source.dtype, source.shape[1:], frame.room
    )
    begin = piece.first * array_nbytes(source.dtype, (1, *source.shape[1:]))
    total = RangeSum(begin, workspace.path("sum.tmp"))
    give_rows(source, piece.owners, segments, total.add)
    return SharedColumn(segments, total.summed())
