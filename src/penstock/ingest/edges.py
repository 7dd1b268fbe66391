"""Makes the edges of a type: numbers ends, leaves some out, holds links out, sorts the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from penstock.graph.external import ExternalEdges, SortedEdges
from penstock.graph.format import ArraySource
from penstock.graph.schema import NODE, ArrayKey, EdgeType, link_times_name, links_name
from penstock.ingest.columns import keys
from penstock.ingest.description import EdgeTable, reversed_type
from penstock.ingest.features import (
    Column,
    Streamed,
    feature_column,
    label_column,
    time_column,
    weight_column,
)
from penstock.ingest.numbering import NOWHERE, Numbering
from penstock.ingest.splits import Splitter
from penstock.ingest.states import (
    EDGE_ALONE,
    EDGES,
    KEPT,
    LEFT_OUT,
    LOOP,
    LOOP_ALONE,
    REVERSIBLE,
    TEST,
    TRAIN_ALONE,
    VAL,
    States,
)
from penstock.ingest.tables import MOST_ROWS, Mask, Rows, Table
from penstock.ingest.workspace import Spool, Workspace
from penstock.kernels.id_table import hash_keys
from penstock.kernels.reference import mix

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_INT32_MAX: Final = 2**31 - 1


@dataclass
class MadeEdges:
    """The edges of a type, with their reverse ones.

    Attributes:
        sizes: How many edges each type has.
        sorted: The edges themselves, of which the arrays of topology are made.
        arrays: The arrays, to be written in this order.
        columns: Those of them that have codecs or attributes, by type.
        left_out: How many rows are no edges, by the reason.
        spools: Temporary files that arrays are made of.
    """

    sizes: dict[EdgeType, int]
    sorted: dict[EdgeType, SortedEdges]
    arrays: dict[ArrayKey, ArraySource] = field(default_factory=dict)
    columns: list[tuple[ArrayKey, Column]] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    spools: list[Spool] = field(default_factory=list)


class Observer(Protocol):
    """Something that is told of edges on their way to be sorted: of their type, and their ends."""

    def __call__(self, kind: EdgeType, sources: Array, targets: Array, /) -> object: ...


def _ignore(kind: EdgeType, sources: Array, targets: Array) -> None:
    """Ignore edges."""


class EdgeMaker:
    """Makes the edges of one table."""

    def __init__(
        self,
        table: Table,
        kind: EdgeType,
        said: EdgeTable,
        ends: tuple[Numbering, Numbering],
        workspace: Workspace,
        memory: int,
        stack: ExitStack,
        observer: Observer = _ignore,
    ) -> None:
        """Prepare for a table.

        Args:
            table: The table.
            kind: The type of its edges.
            said: What its columns mean.
            ends: The numberings of both ends.
            workspace: For temporary files.
            memory: What sorting may take, in bytes.
            stack: Closes what sorts the edges.
            observer: Told of all edges, in order of their ids.
        """
        self._table = table
        self._kind = kind
        self._said = said
        self._sources, self._targets = ends
        self._workspace = workspace
        self._memory = memory
        self._stack = stack
        self._observer = observer
        self._states = States(workspace)
        self._is_doubled = said.reverse and not any(kind)
        self._left_out: dict[str, int] = {}

    def made(self) -> MadeEdges:
        """Read the table, and return its edges as they will be written."""
        said = self._said
        if said.duplicates == "keep" and said.split is None and not self._is_doubled:
            return self._with_columns(*self._sorted(self._numbered()))
        ends = self._spooled()
        if said.duplicates != "keep":
            self._states = self._without_duplicates(ends)
        if said.split is not None:
            self._states = self._split()
        if self._is_doubled:
            self._states = self._with_loops(ends)
        made = self._with_columns(*self._sorted(self._edges_of(ends)))
        if said.split is not None:
            self._add_links(made, ends)
        made.spools.append(ends)
        return made

    # --- numbering ---

    def _numbered(self) -> Iterator[tuple[Ids, Ids]]:
        """Yield the ends of edges that stay, and note which rows they are."""
        for rows, sources, targets, stays in self._ends_of_rows():
            self._states.append(len(rows), stays)
            if stays is None:
                yield sources, targets
            elif stays.any():
                yield sources[stays], targets[stays]

    def _spooled(self) -> Spool:
        """Write the ends of all rows to a file; those left out have ends that count for nothing."""
        largest = max(self._sources.count, self._targets.count)
        ends = self._workspace.spool(np.int32 if largest <= _INT32_MAX else np.int64, 2)
        for rows, sources, targets, stays in self._ends_of_rows():
            states = np.ones(len(rows), np.uint8) if stays is None else stays.astype(np.uint8)
            self._states.append(len(rows), states)
            ends.append(np.stack([sources, targets], axis=1))
        return ends

    def _ends_of_rows(
        self,
    ) -> Iterator[tuple[Rows, Ids, Ids, npt.NDArray[np.bool_] | None]]:
        said = self._said
        for rows in self._table.rows([said.source, said.target]):
            sources = self._find(rows, said.source, self._sources)
            targets = self._find(rows, said.target, self._targets)
            stays: npt.NDArray[np.bool_] = (sources >= 0) & (targets >= 0)
            self._count_out("missing", len(stays) - int(np.count_nonzero(stays)))
            if said.self_loops != "keep":
                stays &= self._no_loops(rows, sources, targets, stays)
            yield rows, sources, targets, None if stays.all() else stays

    def _find(self, rows: Rows, column: str, numbering: Numbering) -> Ids:
        ids, valid = keys(rows, column, text=numbering.is_text)
        found = numbering.find(ids)
        if valid is not None:
            everywhere = np.full(len(rows), NOWHERE, np.int64)
            everywhere[valid] = found
            found = everywhere
        if self._said.on_missing == "raise":
            missing = found < 0
            if missing.any():
                advice = f'{numbering.told} (on_missing = "skip" leaves such rows out)'
                rows.refuse(int(missing.argmax()), column, advice)
        return found

    def _no_loops(
        self, rows: Rows, sources: Ids, targets: Ids, stays: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        loops = stays & (sources == targets)
        if self._said.self_loops == "refuse" and loops.any():
            expected = f"another node than in column {self._said.source!r}: self_loops are refused"
            rows.refuse(int(loops.argmax()), self._said.target, expected)
        self._count_out("self_loops", int(np.count_nonzero(loops)))
        return np.asarray(~loops)

    def _count_out(self, why: str, count: int) -> None:
        if count:
            self._left_out[why] = self._left_out.get(why, 0) + count

    # --- duplicates ---

    def _without_duplicates(self, ends: Spool) -> States:
        """Return the states with rows left out whose ends an earlier row has.

        In a graph with one type that gets reverse edges, an edge and its reverse are the same.
        """
        with self._sorter(self._memory, duplicates="drop") as sorter:
            for sources, targets in self._chosen(ends, (KEPT,)):
                if self._is_doubled:
                    sources, targets = np.minimum(sources, targets), np.maximum(sources, targets)
                sorter.add(sources, targets)
            found = sorter.finish()
            given = self._states.count(KEPT)
            if found.num_edges == given:
                return self._states
            if self._said.duplicates == "refuse":
                self._refuse_duplicate(found, given)
            self._count_out("duplicates", given - found.num_edges)
            # A bit of each is in memory already; as bytes they are in a file.
            kept = self._workspace.spool(np.bool_)
            for begin in range(0, given, MOST_ROWS):
                count = min(MOST_ROWS, given - begin)
                some = found.kept(begin, count)
                kept.append(np.ones(count, np.bool_) if some is None else some)
            return self._states.narrowed(kept.mapped())

    def _refuse_duplicate(self, found: SortedEdges, given: int) -> None:
        for begin in range(0, given, MOST_ROWS):
            kept = found.kept(begin, min(MOST_ROWS, given - begin))
            if kept is not None and not kept.all():
                row = self._row_of(begin + int(kept.argmin()))
                raise ValueError(
                    f"{self._table.where(row)}: an edge of {self._table.label} with the ends of an "
                    f"earlier one, and duplicates are refused; there are {given - found.num_edges}"
                )

    def _row_of(self, position: int) -> int:
        """Return the number of the row that is at a position among those that stay."""
        mask = self._states.mask(KEPT)
        if mask is None:
            return position
        for begin, piece in self._states.pieces(mask):
            places = np.flatnonzero(piece)
            if position < len(places):
                return begin + int(places[position])
            position -= len(places)
        raise IndexError(position)

    # --- splits ---

    def _split(self) -> States:
        said = self._said
        assert said.split is not None
        splitter = Splitter(
            self._table,
            said.split,
            self._states.mask(KEPT),
            self._states.count(KEPT),
            said.time,
            ((said.source, said.target), self._hashes),
            self._workspace,
        )
        found = self._workspace.spool(np.uint8)
        for states in splitter.states():
            states[states == LEFT_OUT] = EDGE_ALONE
            found.append(states)
        return self._states.narrowed(found.mapped())

    def _hashes(self, rows: Rows) -> Words:
        """Return a word for the ids of both ends; of one type, whichever end is the source."""
        both = []
        for column, numbering in (
            (self._said.source, self._sources),
            (self._said.target, self._targets),
        ):
            ids, _ = keys(rows, column, text=numbering.is_text)
            both.append(hash_keys(ids))
        sources, targets = both
        if self._kind[0] == self._kind[2]:
            sources, targets = np.minimum(sources, targets), np.maximum(sources, targets)
        return mix(sources ^ mix(targets + np.uint64(1)))

    def _add_links(self, made: MadeEdges, ends: Spool) -> None:
        """Add the links of each split, and their times.

        Links of train are not written if they are all edges of the type: a loader knows that.
        """
        assert self._said.split is not None
        found = links_of(
            self._states.count,
            is_disjoint=self._said.split.disjoint > 0,
            is_doubled=self._is_doubled,
        )
        owner = self._kind if any(self._kind) else NODE
        for name, states in found.items():
            count = self._states.count(*states)
            key = ArrayKey("graph", owner, links_name(name))
            made.arrays[key] = self._links(ends, states, count)
            if self._said.time is not None:
                times = time_column(self._table, self._said.time)
                source = times.source([self._states.mask(*states)], count)
                made.arrays[ArrayKey("graph", owner, link_times_name(name))] = source

    def _links(self, ends: Spool, states: tuple[int, ...], count: int) -> Streamed:
        def blocks() -> Iterator[Array]:
            for end in (0, 1):
                for both in self._chosen(ends, states):
                    yield both[end].astype(np.int64)

        return Streamed("int64", (2, count), blocks)

    # --- sorting ---

    def _chosen(self, ends: Spool, states: tuple[int, ...]) -> Iterator[tuple[Array, Array]]:
        """Yield the ends of rows in some states."""
        mask, begin = self._states.mask(*states), 0
        for piece in ends.pieces(MOST_ROWS):
            if mask is not None:
                chosen = mask[begin : begin + len(piece)]
                begin, piece = begin + len(piece), piece[chosen]
            if len(piece):
                yield np.ascontiguousarray(piece[:, 0]), np.ascontiguousarray(piece[:, 1])

    def _with_loops(self, ends: Spool) -> States:
        """Return the states with edges from a node to itself told apart."""
        found, begin = States(self._workspace), 0
        for piece in ends.pieces(MOST_ROWS):
            states = self._states.at(begin, len(piece))
            begin += len(piece)
            loops = piece[:, 0] == piece[:, 1]
            states[loops & (states == KEPT)] = LOOP
            states[loops & (states == EDGE_ALONE)] = LOOP_ALONE
            found.append(len(piece), states)
        return found

    def _edges_of(self, ends: Spool) -> Iterator[tuple[Array, Array]]:
        """Yield the ends of all edges, and of their reverse edges if those are of the same type."""
        yield from self._chosen(ends, EDGES)
        if self._is_doubled:
            for sources, targets in self._chosen(ends, REVERSIBLE):
                yield targets, sources

    def _sorted(
        self, ends: Iterator[tuple[Array, Array]]
    ) -> tuple[SortedEdges, SortedEdges | None]:
        """Return the edges by destination, and, if they are of another type, the reverse ones."""
        has_backward = self._said.reverse and not self._is_doubled
        memory = self._memory // 2 if has_backward else self._memory
        forward = self._stack.enter_context(self._sorter(memory))
        backward = (
            self._stack.enter_context(self._sorter(memory, turned=True)) if has_backward else None
        )
        for sources, targets in ends:
            forward.add(sources, targets)
            self._observer(self._kind, sources, targets)
            if backward is not None:
                backward.add(targets, sources)
                self._observer(reversed_type(self._kind), targets, sources)
        return forward.finish(), None if backward is None else backward.finish()

    def _sorter(
        self, memory: int, *, turned: bool = False, duplicates: Any = "keep"
    ) -> ExternalEdges:
        counts = (self._sources.count, self._targets.count)
        sources, targets = reversed(counts) if turned else counts
        folder = self._workspace.path("edges")
        folder.mkdir()
        return ExternalEdges(folder, sources, targets, memory, duplicates=duplicates)

    # --- columns ---

    def _with_columns(self, forward: SortedEdges, backward: SortedEdges | None) -> MadeEdges:
        made = MadeEdges(
            {self._kind: forward.num_edges}, {self._kind: forward}, left_out=self._left_out
        )
        made.arrays.update(forward.arrays(self._kind))
        kinds = [self._kind]
        if backward is not None:
            kinds.append(reversed_type(self._kind))
            made.sizes[kinds[1]] = backward.num_edges
            made.sorted[kinds[1]] = backward
            made.arrays.update(backward.arrays(kinds[1]))
        masks = self._masks()
        for name, column in self._columns(masks[0]):
            for kind in kinds:
                key = ArrayKey("edge", kind, name)
                made.arrays[key] = column.source(masks, forward.num_edges)
                made.columns.append((key, column))
        return made

    def _masks(self) -> list[Mask | None]:
        """Return the masks whose rows are edges, one after the other."""
        masks = [self._states.mask(*EDGES)]
        return [*masks, self._states.mask(*REVERSIBLE)] if self._is_doubled else masks

    def _columns(self, mask: Mask | None) -> Iterator[tuple[str, Column]]:
        said, table = self._said, self._table
        for name, feature in said.features.items():
            yield name, feature_column(table, name, feature, mask)
        if said.label is not None:
            yield "edge_label", label_column(table, said.label, "edge_label", mask)
        if said.time is not None:
            yield "edge_time", time_column(table, said.time)
        if said.weight is not None:
            yield "edge_weight", weight_column(table, said.weight)


def links_of(
    count: Callable[..., int], *, is_disjoint: bool, is_doubled: bool
) -> dict[str, tuple[int, ...]]:
    """Return which splits of links are written, and the states of rows that are in them.

    Args:
        count: Says how many rows of the whole table are in some states.
        is_disjoint: Whether links to train on are apart from edges, even if there is none.
        is_doubled: Whether reverse edges are of the same type.
    """
    held_out: dict[str, tuple[int, ...]] = {"val": (VAL,), "test": (TEST,)}
    if not (is_disjoint or is_doubled or count(EDGE_ALONE, LOOP_ALONE)):
        return held_out
    return {"train": (TRAIN_ALONE,) if is_disjoint else (KEPT, LOOP), **held_out}
