"""Tasks for edges: look up their ends, and decide which rows are edges.

A run of files looks up the ends of its rows, and says how many are edges. What becomes of a row may
depend on all rows of the table (duplicates, splits by time or by a permutation): then one task goes
over all ends and decides, else each run decides for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.graph.external import LEAST_MEMORY
from penstock.graph.schema import EdgeType
from penstock.ingest.description import EdgeTable, reversed_type
from penstock.ingest.edges import EdgeMaker
from penstock.ingest.features import Streamed
from penstock.ingest.numbering import Numbering
from penstock.ingest.states import EDGES, KEPT, REVERSIBLE, States
from penstock.ingest.tables import Mask, Table
from penstock.ingest.tasks.joined import JoinedSpool
from penstock.ingest.tasks.nodes import Columns, without_table
from penstock.ingest.tasks.task import Frame, Run
from penstock.ingest.workspace import Spool, Workspace

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]

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

    def links(self, ends: Spool, states: tuple[int, ...], count: int) -> Streamed:
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
