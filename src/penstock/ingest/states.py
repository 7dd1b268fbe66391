"""What becomes of the rows of a table: a byte for each, in a file, once not all are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.ingest.tables import MOST_ROWS, Mask
from penstock.ingest.workspace import Spool, Workspace

Array = npt.NDArray[Any]

# Left out; a node, or an edge that is a link of train as well.
LEFT_OUT: Final = 0
KEPT: Final = 1
# Links that are held out; links of train that are no edges; edges that are no links.
VAL: Final = 2
TEST: Final = 3
TRAIN_ALONE: Final = 4
EDGE_ALONE: Final = 5
# As KEPT and EDGE_ALONE, of an edge from a node to itself, which is its own reverse edge.
LOOP: Final = 6
LOOP_ALONE: Final = 7

EDGES: Final = (KEPT, EDGE_ALONE, LOOP, LOOP_ALONE)
REVERSIBLE: Final = (KEPT, EDGE_ALONE)


class States:
    """The states of rows, in order. As long as all rows are kept, nothing is written.

    Args:
        workspace: For the file.
        spool: States that are there already, to be read; nothing is added to them.
        first: Which of them is the first.
        num_rows: How many there are.
    """

    def __init__(
        self, workspace: Workspace, spool: Spool | None = None, first: int = 0, num_rows: int = 0
    ) -> None:
        self._workspace = workspace
        self._spool = spool
        self._first = first
        self.num_rows = num_rows

    @property
    def spool(self) -> Spool | None:
        """The file; None if all rows are kept."""
        return self._spool

    def append(self, count: int, states: Array | None = None) -> None:
        """Add the states of the next rows; None: all are kept. Booleans: kept, or left out."""
        if self._spool is None and states is not None and not (states == KEPT).all():
            self._spool = self._workspace.spool(np.uint8)
            for begin in range(0, self.num_rows, MOST_ROWS):
                self._spool.append(np.ones(min(MOST_ROWS, self.num_rows - begin), np.uint8))
        if self._spool is not None:
            self._spool.append(np.full(count, KEPT, np.uint8) if states is None else states)
        self.num_rows += count

    def mask(self, *states: int) -> Mask | None:
        """Return which rows are in one of these states; None: all are."""
        if self._spool is None:
            return None if KEPT in states else _Nothing()
        return _Chosen(self._mapped(self._spool), states)

    def count(self, *states: int) -> int:
        """Return how many rows are in one of these states."""
        if (mask := self.mask(*states)) is None:
            return self.num_rows
        return sum(int(np.count_nonzero(piece)) for _, piece in self.pieces(mask))

    def pieces(self, mask: Mask) -> Iterator[tuple[int, npt.NDArray[np.bool_]]]:
        """Yield a mask in pieces, each with its first row."""
        for begin in range(0, self.num_rows, MOST_ROWS):
            yield begin, mask[begin : min(self.num_rows, begin + MOST_ROWS)]

    def narrowed(self, kept: Array) -> States:
        """Return the states with those rows left out that are kept here and not by `kept`.

        Args:
            kept: An entry for each row that is kept here.
        """
        found, done = States(self._workspace), 0
        for begin in range(0, self.num_rows, MOST_ROWS):
            states = self.at(begin, min(MOST_ROWS, self.num_rows - begin))
            places = np.flatnonzero(states == KEPT)
            states[places] = kept[done : done + len(places)]
            done += len(places)
            found.append(len(states), states)
        return found

    def at(self, first: int, count: int) -> Array:
        """Return the states of some rows, as an array of one's own."""
        if self._spool is None:
            return np.full(count, KEPT, np.uint8)
        return np.array(self._mapped(self._spool)[first : first + count])

    def _mapped(self, spool: Spool) -> Array:
        return spool.mapped()[self._first : self._first + self.num_rows]


class _Chosen:
    """Rows in some states."""

    def __init__(self, states: Array, chosen: tuple[int, ...]) -> None:
        self._states = states
        self._table = np.zeros(256, np.bool_)
        self._table[list(chosen)] = True

    def __getitem__(self, rows: slice) -> npt.NDArray[np.bool_]:
        return self._table[self._states[rows]]


class _Nothing:
    """No row at all."""

    def __getitem__(self, rows: slice) -> npt.NDArray[np.bool_]:
        return np.zeros(rows.stop - rows.start, np.bool_)
