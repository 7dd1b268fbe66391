"""Tasks for edges that are known: give them out by ranges of nodes, and their attributes by parts.

A run knows how many edges the runs before it have, so it knows the ids of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph.checksum import pieces
from penstock.graph.dtypes import dtype_name
from penstock.graph.external.scratch import append
from penstock.graph.layout import array_nbytes
from penstock.graph.partition.book import RangeBook
from penstock.graph.partition.note import owning_side
from penstock.graph.schema import NODE, EdgeType, Side, link_times_name, links_name, owner_of
from penstock.graph.topology import id_dtype
from penstock.ingest.cutting.edges import Books
from penstock.ingest.cutting.owners import EdgeOwners, NodeOwners
from penstock.ingest.cutting.segments import Segment, Segments
from penstock.ingest.cutting.words import Cutting
from penstock.ingest.description import EdgeTable
from penstock.ingest.edges import links_of
from penstock.ingest.features import time_column
from penstock.ingest.numbering import Numbering
from penstock.ingest.states import EDGES, States
from penstock.ingest.tables import Table
from penstock.ingest.tasks.edges import LookedUp, Pass, TaskEdges, passes_of
from penstock.ingest.tasks.joined import JoinedMask, kept_array
from penstock.ingest.tasks.nodes import Columns, Piece, SharedColumn, share_piece
from penstock.ingest.tasks.sums import RangeSum, RangeSummed
from penstock.ingest.tasks.task import Frame, Run
from penstock.ingest.workspace import Spool, Workspace
from penstock.kernels import is_sorted

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Place:
    """Where the edges of a pass are among all edges of their type.

    Attributes:
        first_id: The id of the first one.
        num_edges: How many edges the type has.
        ranges: The ranges of nodes that edges are given out to, by the side whose rows they are.
    """

    first_id: int
    num_edges: int
    ranges: dict[Side, RangeBook]


@dataclass(frozen=True)
class LinkPlace:
    """Where the links of a run are among all that are in a split.

    Attributes:
        first: How many there are before.
        count: How many there are in all.
        states: Those of their rows.
    """

    first: int
    count: int
    states: tuple[int, ...]


@dataclass(frozen=True)
class SpreadPass:
    """The edges of a pass, given out.

    Attributes:
        entries: By side, the other end, the node itself, and the id of each edge of a range.
        owners: The part of each edge, if they have attributes.
        first: The first target; -1 without edges.
        last: The last one.
        is_sorted: Whether targets rise.
    """

    entries: dict[Side, Segments]
    owners: Spool | None
    first: int
    last: int
    is_sorted: bool


@dataclass(frozen=True)
class SpreadLinks:
    """Links of a run: their ends, one end after the other, and their times."""

    ends: tuple[tuple[Segment, RangeSummed], ...]
    times: tuple[Segment, RangeSummed] | None


@dataclass(frozen=True)
class Spread:
    """All that a run has given out."""

    passes: list[SpreadPass]
    links: dict[str, SpreadLinks]


def sides_of(cutting: Cutting) -> tuple[Side, ...]:
    """Return by which ends edges are sorted: always by destination, as the whole graph is."""
    if cutting.topology == "whole" or cutting.edges == "destination":
        return ("in",)
    return ("in", "out")


def spread(
    workspace: Workspace,
    frame: Frame,
    kind: EdgeType,
    run: Run,
    looked_up: LookedUp,
    ends: tuple[Numbering, Numbering],
    places: Sequence[Place],
    links: Mapping[str, LinkPlace],
    books: Books,
) -> Spread:
    """Give out the edges of a run by ranges of nodes.

    Args:
        workspace: For files.
        frame: What all tasks know.
        kind: The type of edges.
        run: The files.
        looked_up: Their rows.
        ends: The nodes at both ends.
        places: Where the edges of each pass are.
        links: Where the links of each split are.
        books: The part of each node.
    """
    table, said = run.of(frame.found.edges[kind]), frame.said.edges[kind]
    states = looked_up.opened(workspace)
    edges = TaskEdges(workspace, frame, kind, table, ends, states)
    most = max(each.count for each in ends)
    passes = [
        _spread_pass(workspace, frame, edges, each, place, looked_up, most, books)
        for each, place in zip(passes_of(kind, said), places, strict=True)
    ]
    return Spread(
        passes,
        {
            name: _links(workspace, edges, table, said, looked_up, states, place)
            for name, place in links.items()
        },
    )


def _spread_pass(
    workspace: Workspace,
    frame: Frame,
    edges: TaskEdges,
    each: Pass,
    place: Place,
    looked_up: LookedUp,
    most_nodes: int,
    books: Books,
) -> SpreadPass:
    dtype = id_dtype(max(most_nodes, place.num_edges))
    entries = {
        side: Segments(workspace.path("ranges"), ranges.num_partitions, dtype, (3,), frame.room)
        for side, ranges in place.ranges.items()
    }
    owner = owning_side(frame.cutting.edges)
    nodes = NodeOwners(books[owner_of(each.kind, owner)])
    owners = workspace.spool(nodes.dtype) if edges.has_columns else None
    first, last, rises, done = -1, -1, True, place.first_id
    for sources, targets in edges.edges(each, looked_up.ends):
        ids = np.arange(done, done + len(targets), dtype=dtype)
        done += len(targets)
        for side, segments in entries.items():
            own, others = (targets, sources) if side == "in" else (sources, targets)
            rows = np.stack([others, own, ids], axis=1).astype(dtype, copy=False)
            segments.share(rows, place.ranges[side].partition_of(own))
        if owners is not None:
            owners.append(nodes.of(sources if owner == "out" else targets))
        rises = rises and int(targets[0]) >= last and is_sorted(targets)
        first, last = int(targets[0]) if first < 0 else first, int(targets[-1])
    for segments in entries.values():
        segments.flush()
    return SpreadPass(entries, owners, first, last, rises)


# --- links ---------------------------------------------------------------------------------------


def link_places(
    said: EdgeTable, kind: EdgeType, runs: Sequence[LookedUp]
) -> list[dict[str, LinkPlace]]:
    """Return where the links of each run are among those of each split."""
    found: list[dict[str, LinkPlace]] = [{} for _ in runs]
    if said.split is None:
        return found

    def count(*states: int) -> int:
        return sum(run.count(*states) for run in runs)

    is_doubled = said.reverse and not any(kind)
    splits = links_of(count, is_disjoint=said.split.disjoint > 0, is_doubled=is_doubled)
    for name, states in splits.items():
        first = 0
        for own, run in zip(found, runs, strict=True):
            own[name] = LinkPlace(first, count(*states), states)
            first += run.count(*states)
    return found


def link_names(kind: EdgeType, name: str) -> tuple[Any, str, str]:
    """Return the type that links of a split belong to, and the names of both of their arrays."""
    return kind if any(kind) else NODE, links_name(name), link_times_name(name)


def _links(
    workspace: Workspace,
    edges: TaskEdges,
    table: Table,
    said: EdgeTable,
    looked_up: LookedUp,
    states: States,
    place: LinkPlace,
) -> SpreadLinks:
    count = looked_up.count(*place.states)
    both = kept_array("links", edges.links(looked_up.ends, place.states, count), workspace)
    array = both.mapped()
    ends = tuple(
        _summed(workspace, array[end], (end * place.count + place.first) * 8) for end in (0, 1)
    )
    both.remove()
    if said.time is None:
        return SpreadLinks(ends, None)
    source = time_column(table, said.time).source([states.mask(*place.states)], count)
    filed = kept_array("times", source, workspace)
    width = array_nbytes(filed.dtype, (1,))
    return SpreadLinks(ends, _summed(workspace, filed.mapped(), place.first * width))


def _summed(workspace: Workspace, array: Array, begin: int) -> tuple[Segment, RangeSummed]:
    path, total = workspace.path("graph.tmp"), RangeSum(begin, workspace.path("sum.tmp"))
    for piece in pieces(array):
        append(path, [piece])
        total.add(piece)
    segment = Segment(path, dtype_name(array.dtype), array.shape, is_kept=True)
    return segment, total.summed()


# --- attributes ----------------------------------------------------------------------------------


def look_at_columns(
    workspace: Workspace,
    frame: Frame,
    kind: EdgeType,
    runs: Sequence[LookedUp],
    ends: tuple[Numbering, Numbering],
) -> Columns:
    """Return the attributes of edges; text and int8 have been read, to know what codes mean."""
    masks = [run.opened(workspace).mask(*EDGES) for run in runs]
    whole = None
    if any(mask is not None for mask in masks):
        whole = JoinedMask(masks, [run.num_rows for run in runs])
    edges = TaskEdges(workspace, frame, kind, frame.found.edges[kind], ends)
    return edges.columns(whole)


def share_columns(
    workspace: Workspace,
    frame: Frame,
    kind: EdgeType,
    run: Run,
    columns: Columns,
    looked_up: LookedUp,
    firsts: Sequence[int],
    owners: Sequence[Spool],
) -> list[dict[str, SharedColumn]]:
    """Give out the attributes of edges that a run of files has, pass by pass."""
    table, states = run.of(frame.found.edges[kind]), looked_up.opened(workspace)
    found = []
    passes = passes_of(kind, frame.said.edges[kind])
    for each, first, spool in zip(passes, firsts, owners, strict=True):
        mask, count = states.mask(*each.states), looked_up.count(*each.states)
        piece = Piece(first, count, mask, EdgeOwners(spool))
        found.append(
            {name: share_piece(workspace, frame, table, column, piece) for name, column in columns}
        )
    return found
