"""Makes the nodes of a type: their numbers, their attributes and their splits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph.format import ArraySource
from penstock.graph.partition.sources import Held
from penstock.graph.schema import SLOTS, ArrayKey
from penstock.ingest.columns import keys
from penstock.ingest.description import NodeTable
from penstock.ingest.features import (
    Column,
    feature_column,
    label_column,
    of_spool,
    time_column,
)
from penstock.ingest.numbering import Numbered, Numbering
from penstock.ingest.splits import NAMES, Splitter
from penstock.ingest.states import States
from penstock.ingest.tables import MOST_ROWS, Mask, Rows, Table
from penstock.ingest.workspace import Spool, Workspace
from penstock.kernels.id_table import hash_keys

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]


@dataclass
class MadeNodes:
    """The nodes of a type.

    Attributes:
        count: How many there are.
        arrays: Their arrays.
        columns: Those of them that are made of columns.
        left_out: How many rows are no nodes, by the reason.
        mask: Which rows of their table are nodes; None: all.
        spools: Temporary files that arrays are made of.
    """

    count: int
    arrays: dict[ArrayKey, ArraySource] = field(default_factory=dict)
    columns: list[tuple[ArrayKey, Column]] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    mask: Mask | None = None
    spools: list[Spool] = field(default_factory=list)


def ids_of(node_type: str, numbering: Numbering) -> dict[ArrayKey, ArraySource]:
    """Return the arrays in which a graph keeps the users' ids."""
    found: dict[ArrayKey, ArraySource] = {
        ArrayKey("ids", node_type, name): of_spool(spool, MOST_ROWS)
        for name, spool in numbering.key_spools().items()
    }
    slots = numbering.slots()
    if slots is not None:
        found[ArrayKey("ids", node_type, SLOTS)] = Held(slots)
    return found


def made_nodes(
    node_type: str, table: Table, said: NodeTable, numbered: Numbered, workspace: Workspace
) -> MadeNodes:
    """Return the nodes of a table as they will be written."""
    count, mask = numbered.numbering.count, numbered.mask
    made = MadeNodes(count, left_out=numbered.left_out, mask=mask)
    made.arrays.update(ids_of(node_type, numbered.numbering))
    for name, column in columns_of(table, said, mask):
        key = ArrayKey("node", node_type, name)
        made.arrays[key] = column.source([mask], count)
        made.columns.append((key, column))
    if said.split is not None:
        add_splits(made, node_type, table, said, numbered, workspace)
    return made


def columns_of(table: Table, said: NodeTable, mask: Mask | None) -> Iterator[tuple[str, Column]]:
    """Yield the attributes of nodes, by name; those that need it have read the table."""
    for name, feature in said.features.items():
        yield name, feature_column(table, name, feature, mask)
    if said.label is not None:
        yield "y", label_column(table, said.label, "y", mask)
    if said.time is not None:
        yield "time", time_column(table, said.time)


def add_splits(
    made: MadeNodes,
    node_type: str,
    table: Table,
    said: NodeTable,
    numbered: Numbered,
    workspace: Workspace,
) -> None:
    """Split the nodes; those without a label are in no split, unless a column says so."""
    assert said.split is not None
    split = _Labelled(table, said, numbered.mask, workspace)
    is_text = numbered.numbering.is_text

    def hashes(rows: Rows) -> Words:
        if said.id is None:
            return hash_keys(rows.numbers)
        return hash_keys(keys(rows, said.id, text=is_text)[0])

    columns = (said.id,) if said.id is not None else tuple(table.columns)[:1]
    splitter = Splitter(
        table, said.split, split.mask, split.count, said.time, (columns, hashes), workspace
    )
    spools = {name: workspace.spool(np.int64) for name in NAMES}
    nodes = split.nodes()
    for states in splitter.states():
        numbers = nodes.take(len(states))
        for name, state in NAMES.items():
            spools[name].append(numbers[states == state])
    made.spools.extend(spools.values())
    for name, spool in spools.items():
        if spool.num_rows or name == "train":
            made.arrays[ArrayKey("split", node_type, name)] = of_spool(spool, MOST_ROWS)


class _Labelled:
    """The rows that are split: all nodes, or those with a label."""

    def __init__(
        self, table: Table, said: NodeTable, mask: Mask | None, workspace: Workspace
    ) -> None:
        assert said.split is not None
        self._states = States(workspace)
        self._nodes = mask
        if said.label is None or said.split.by == "column":
            for begin in range(0, table.num_rows, MOST_ROWS):
                count = min(MOST_ROWS, table.num_rows - begin)
                self._states.append(count, None if mask is None else mask[begin : begin + count])
        else:
            for rows in table.rows([said.label]):
                values = rows.column(said.label)
                there = values.is_valid().to_numpy(zero_copy_only=False)
                if mask is not None:
                    there = there & mask[rows.begin : rows.begin + len(rows)]
                self._states.append(len(rows), None if there.all() else there)
        self.mask = self._states.mask(1)
        self.count = self._states.count(1)

    def nodes(self) -> _Numbers:
        """Return the numbers of these nodes, in order."""
        return _Numbers(self._pieces())

    def _pieces(self) -> Iterator[Array]:
        done = 0
        for begin in range(0, self._states.num_rows, MOST_ROWS):
            end = min(self._states.num_rows, begin + MOST_ROWS)
            are_nodes = (
                np.ones(end - begin, np.bool_) if self._nodes is None else self._nodes[begin:end]
            )
            numbers = done + np.cumsum(are_nodes) - 1
            chosen = are_nodes if self.mask is None else self.mask[begin:end]
            done += int(np.count_nonzero(are_nodes))
            yield numbers[chosen]


class _Numbers:
    """Numbers that come in pieces, and are taken in others."""

    def __init__(self, pieces: Iterator[Array]) -> None:
        self._pieces = pieces
        self._held = np.empty(0, np.int64)

    def take(self, count: int) -> Array:
        """Return the next ones."""
        while len(self._held) < count:
            self._held = np.concatenate([self._held, next(self._pieces)])
        found, self._held = self._held[:count], self._held[count:]
        return found
