"""Tasks for edges: look up their ends, decide which rows are edges, give them out by ranges.

A run of files looks up the ends of its rows, and says how many are edges. What becomes of a row may
depend on all rows of the table (duplicates, splits by time or by a permutation): then one task goes
over all ends and decides, else each run decides for itself. Once it is known how many edges the
runs before it have, a run gives out its edges by ranges of nodes, with their ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.graph.checksum import pieces
from penstock.graph.dtypes import dtype_name
from penstock.graph.external import LEAST_MEMORY
from penstock.graph.external.scratch import append
from penstock.graph.layout import array_nbytes
from penstock.graph.partition.book import PartitionBook, RangeBook
from penstock.graph.partition.note import owning_side
from penstock.graph.schema import NODE, EdgeType, Side, link_times_name, links_name, owner_of
from penstock.graph.topology import id_dtype
from penstock.ingest.cutting.owners import EdgeOwners, NodeOwners
from penstock.ingest.cutting.segments import Segment, Segments
from penstock.ingest.cutting.words import Cutting
from penstock.ingest.description import EdgeTable, reversed_type
from penstock.ingest.edges import EdgeMaker, links_of
from penstock.ingest.features import time_column
from penstock.ingest.numbering import Numbering
from penstock.ingest.states import EDGES, KEPT, REVERSIBLE, States
from penstock.ingest.tables import Mask, Table
from penstock.ingest.tasks.joined import JoinedMask, JoinedSpool, kept_array
from penstock.ingest.tasks.nodes import (
    Columns,
    Piece,
    SharedColumn,
    share_piece,
    without_table,
)
from penstock.ingest.tasks.sums import RangeSum, RangeSummed
from penstock.ingest.tasks.task import Frame, Run
from penstock.ingest.workspace import Spool, Workspace
from penstock.kernels import is_sorted

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]
Books = Mapping[str, PartitionBook]

_NUM_STATES: Final = 8
# Splits of links that a row is in whatever other rows there are.
_BY_ROW: Final = ("column", "hash")


@dataclass(frozen=True)
class Pass:
    """One way through the rows of a table: those in some states are edges of a type.

    Attributes:
        kind: The type.
        is_turned: Whether edges lead from the column of targets to that of sources.
        states: Which rows are edges.
    """

    kind: EdgeType
    is_turned: bool
    states: tuple[int, ...]


def passes_of(kind: EdgeType, said: EdgeTable) -> list[Pass]:
    """Return the ways through a table, in the order of the ids of edges of each type."""
    forward = Pass(kind, False, EDGES)
    if not said.reverse:
        return [forward]
    if any(kind):
        return [forward, Pass(reversed_type(kind), True, EDGES)]
    return [forward, Pass(kind, True, REVERSIBLE)]


def has_columns(said: EdgeTable) -> bool:
    """Return whether edges have attributes."""
    return bool(said.features or said.label or said.time or said.weight)


def depends_on_all(said: EdgeTable) -> bool:
    """Return whether it depends on other rows what becomes of a row."""
    split = said.split
    is_own = split is None or (split.by in _BY_ROW and not split.disjoint)
    return said.duplicates != "keep" or not is_own


@dataclass(frozen=True)
class LookedUp:
    """The rows of a run.

    Attributes:
        ends: The numbers of both ends of each.
        states: A byte for each; None: all are kept.
        first: Which of these bytes is the first.
        num_rows: How many there are.
        counts: How many rows are in each state.
        left_out: How many rows are no edges, by the reason.
    """

    ends: Spool
    states: Spool | None
    first: int
    num_rows: int
    counts: tuple[int, ...]
    left_out: dict[str, int]

    def opened(self, workspace: Workspace) -> States:
        """Return the states."""
        return States(workspace, self.states, self.first, self.num_rows)

    def count(self, *states: int) -> int:
        """Return how many rows are in one of these states."""
        return sum(self.counts[state] for state in states)


class TaskEdges(EdgeMaker):
    """The rows of a run, or of a whole table, of which a task makes edges."""

    def __init__(
        self,
        workspace: Workspace,
        frame: Frame,
        kind: EdgeType,
        table: Table,
        ends: tuple[Numbering, Numbering],
        states: States | None = None,
    ) -> None:
        memory = max(2 * LEAST_MEMORY, frame.memory // 2)
        said = frame.said.edges[kind]
        super().__init__(table, kind, said, ends, workspace, memory, ExitStack())
        if states is not None:
            self._states = states

    @property
    def has_columns(self) -> bool:
        """Whether edges have attributes."""
        return has_columns(self._said)

    def look_up(self) -> Spool:
        """Write the ends of all rows to a file."""
        return self._spooled()

    def decide(self, ends: Spool) -> None:
        """Find out what becomes of rows."""
        if self._said.duplicates != "keep":
            self._states = self._without_duplicates(ends)
        if self._said.split is not None:
            self._states = self._split()
        if self._is_doubled:
            self._states = self._with_loops(ends)

    def looked_up(self, ends: Spool) -> LookedUp:
        """Return what is known of the rows."""
        states, num_rows = self._states, self._states.num_rows
        counts = _counts(states)
        return LookedUp(ends, states.spool, 0, num_rows, counts, dict(self._left_out))

    def edges(self, each: Pass, ends: Spool) -> Iterator[tuple[Array, Array]]:
        """Yield the ends of edges, some at a time."""
        for sources, targets in self._chosen(ends, each.states):
            yield (targets, sources) if each.is_turned else (sources, targets)

    def links(self, ends: Spool, states: tuple[int, ...], count: int) -> Any:
        """Return the ends of links: all sources, then all targets."""
        return self._links(ends, states, count)

    def columns(self, mask: Mask | None) -> Columns:
        """Return the attributes of edges."""
        return [(name, without_table(column)) for name, column in self._columns(mask)]


def _counts(states: States) -> tuple[int, ...]:
    if states.spool is None:
        return tuple(states.num_rows if state == KEPT else 0 for state in range(_NUM_STATES))
    counts = np.zeros(_NUM_STATES, np.int64)
    for begin in range(0, states.num_rows, 1 << 20):
        some = states.at(begin, min(1 << 20, states.num_rows - begin))
        counts += np.bincount(some, minlength=_NUM_STATES)
    return tuple(int(count) for count in counts)


# --- which rows are edges ------------------------------------------------------------------------


def look_up(
    workspace: Workspace,
    frame: Frame,
    kind: EdgeType,
    run: Run,
    source: Numbering,
    target: Numbering,
) -> LookedUp:
    """Look up the ends of the rows of a run."""
    table = run.of(frame.found.edges[kind])
    edges = TaskEdges(workspace, frame, kind, table, (source, target))
    ends = edges.look_up()
    if not depends_on_all(frame.said.edges[kind]):
        edges.decide(ends)
    return edges.looked_up(ends)


def decide(
    workspace: Workspace,
    frame: Frame,
    kind: EdgeType,
    runs: Sequence[LookedUp],
    source: Numbering,
    target: Numbering,
) -> tuple[list[LookedUp], dict[str, int]]:
    """Decide for the rows of all runs what becomes of them; return them, and what is left out."""
    states = States(workspace)
    for run in runs:
        own = run.opened(workspace)
        for begin in range(0, run.num_rows, 1 << 20):
            count = min(1 << 20, run.num_rows - begin)
            states.append(count, None if run.states is None else own.at(begin, count))
    table = frame.found.edges[kind]
    edges = TaskEdges(workspace, frame, kind, table, (source, target), states)
    edges.decide(JoinedSpool([run.ends for run in runs]))
    whole = edges.looked_up(runs[0].ends)
    found, first = [], 0
    for run in runs:
        own = States(workspace, whole.states, first, run.num_rows)
        found.append(
            LookedUp(run.ends, whole.states, first, run.num_rows, _counts(own), run.left_out)
        )
        first += run.num_rows
    return found, whole.left_out


# --- by ranges of nodes --------------------------------------------------------------------------


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
    counts: tuple[int, int],
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
        counts: How many nodes there are at both ends.
        places: Where the edges of each pass are.
        links: Where the links of each split are.
        books: The part of each node.
    """
    table, said = run.of(frame.found.edges[kind]), frame.said.edges[kind]
    # Ends have been looked up: only how many nodes there are is still asked for.
    nobody = (_Counted(counts[0]), _Counted(counts[1]))
    states = looked_up.opened(workspace)
    edges = TaskEdges(workspace, frame, kind, table, nobody, states)  # type: ignore[arg-type]
    passes = [
        _spread_pass(workspace, frame, edges, each, place, looked_up, max(counts), books)
        for each, place in zip(passes_of(kind, said), places, strict=True)
    ]
    return Spread(
        passes,
        {
            name: _links(workspace, edges, table, said, looked_up, states, place)
            for name, place in links.items()
        },
    )


@dataclass(frozen=True)
class _Counted:
    count: int
    is_text: bool = False


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
    for name, states in links_of(count, is_doubled=is_doubled).items():
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
    workspace: Workspace, frame: Frame, kind: EdgeType, runs: Sequence[LookedUp]
) -> Columns:
    """Return the attributes of edges; text and int8 have been read, to know what codes mean."""
    masks = [run.opened(workspace).mask(*EDGES) for run in runs]
    whole = None
    if any(mask is not None for mask in masks):
        whole = JoinedMask(masks, [run.num_rows for run in runs])
    nobody = (_Counted(0), _Counted(0))
    table = frame.found.edges[kind]
    edges = TaskEdges(workspace, frame, kind, table, nobody)  # type: ignore[arg-type]
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
