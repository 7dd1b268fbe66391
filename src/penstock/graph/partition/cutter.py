"""Cuts a graph into parts: says what each part has, as arrays that are made while they are written.

A part is an ordinary saved graph that speaks the whole graph's ids. It has the rows of its own
nodes in the whole graph's order, and the attributes of its own nodes and edges in the order of ids;
docs/format.md names the arrays. Beyond the graph, the cutter holds a few bytes for each node, and,
for edges with attributes, the ids of the edges of those parts that are being written.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.graph.format import ArraySource, Stored
from penstock.graph.partition.assignment import Assignment
from penstock.graph.partition.book import Ids
from penstock.graph.partition.note import Balance, Cut, Edges, Layout, method_of, owning_side
from penstock.graph.partition.sources import (
    Held,
    Made,
    Once,
    SomeEntries,
    SomeRows,
    SomeText,
    is_range,
)
from penstock.graph.schema import (
    BOOK,
    FIRST_IDS,
    KEYS,
    MEMBERS,
    OFFSETS,
    SLOTS,
    TEXT,
    TOPOLOGIES,
    ArrayKey,
    EdgeType,
    Schema,
    Side,
    found_by,
    owner_of,
    positions_name,
)
from penstock.graph.topology import Topology, id_dtype
from penstock.graph.user_ids import kind_among
from penstock.kernels.cutting import count_cut, edge_members, row_offsets
from penstock.kernels.id_table import fill_slots, slot_dtype, slots_needed
from penstock.kernels.members import WORD_BITS, Members

if TYPE_CHECKING:
    from penstock.graph.graph import Graph

Array: TypeAlias = npt.NDArray[Any]


class PartCutter:
    """Cuts one graph, in one way."""

    def __init__(
        self,
        graph: Graph,
        parts: int,
        assignments: dict[str, Assignment],
        edges: Edges,
        topology: Layout,
    ) -> None:
        self._graph = graph
        self._parts = parts
        self._assignments = assignments
        self._edges = edges
        self._layout = topology

    # --- what the parts are ---

    def schema(self, part: int) -> Schema:
        """Return the schema of a part: that of the whole graph, with a note."""
        return msgspec.structs.replace(self._graph.schema, part=self._cut.note(part))

    @cached_property
    def num_edges(self) -> dict[EdgeType, list[int]]:
        """How many edges of each type belong to each part."""
        return {name: self._counts(name) for name in self._graph.edge_types}

    @cached_property
    def edges_cut(self) -> dict[EdgeType, list[int]]:
        """How many of these have their other end in another part."""
        return {
            name: count_cut(
                self._graph.topology(name, self._owning).rows,
                self._assignments[owner_of(name, self._owning)].parts,
                self._assignments[found_by(name, self._owning)].parts,
                self._parts,
            ).tolist()
            for name in self._graph.edge_types
        }

    @property
    def balance(self) -> Balance:
        """How even the parts are."""
        return Balance.of(self._num_nodes, self.num_edges)

    @property
    def num_parts(self) -> int:
        return self._parts

    @property
    def _owning(self) -> Side:
        return owning_side(self._edges)

    @cached_property
    def _num_nodes(self) -> dict[str, list[int]]:
        return {name: each.counts for name, each in self._assignments.items()}

    @cached_property
    def _cut(self) -> Cut:
        graph = self._graph
        return Cut(
            self._parts,
            self._edges,
            self._layout,
            graph.version,
            {name: each.book for name, each in self._assignments.items()},
            self._num_nodes,
            self.num_edges,
            self.edges_cut,
            {
                name: {label: split.shape[0] for label, split in graph.splits(name).items()}
                for name in graph.node_types
            },
        )

    def _counts(self, name: EdgeType) -> list[int]:
        rows = self._graph.topology(name, self._owning)
        owners = self._assignments[owner_of(name, self._owning)]
        degrees = rows.degrees
        return [int(degrees[owners.nodes(part)].sum()) for part in range(self._parts)]

    # --- their arrays ---

    def arrays(self, part: int) -> dict[ArrayKey, ArraySource]:
        """Return the arrays of a part. Their bytes are read while they are written."""
        nodes = {name: each.nodes(part) for name, each in self._assignments.items()}
        found: dict[ArrayKey, ArraySource] = {}
        for edge_type in self._graph.edge_types:
            found.update(self._topology(edge_type, nodes))
        for node_type, own in nodes.items():
            found.update(self._of_nodes(node_type, own, part))
        for edge_type in self._graph.edge_types:
            found.update(self._of_edges(edge_type, nodes))
        for key, array in self._graph.arrays.items():
            if key.group == "graph":
                found[key] = Stored(array)
        return found

    def _topology(
        self, name: EdgeType, nodes: dict[str, Ids]
    ) -> Iterator[tuple[ArrayKey, ArraySource]]:
        if self._layout == "whole":
            for label in ("indptr", "adjacency"):
                key = ArrayKey("csc", name, label)
                yield key, Stored(self._graph.arrays[key])
            return
        sides: tuple[Side, ...] = ("in", "out") if self._edges == "both" else (self._owning,)
        for side in sides:
            rows, own = self._graph.topology(name, side), nodes[owner_of(name, side)]
            offsets = row_offsets(rows.rows, own)
            yield ArrayKey(TOPOLOGIES[side], name, "indptr"), Held(offsets)
            num_edges = self._graph.num_edges(name)
            dtype = str(rows.adjacency.dtype)
            if rows.paired:
                dtype = id_dtype(max(self._graph.num_nodes(found_by(name, side)), num_edges))
            elif self._parts > 1:  # the ids of a row are consecutive; of the only part, positions
                first_ids = rows.indptr[own].astype(id_dtype(num_edges))
                yield ArrayKey(TOPOLOGIES[side], name, FIRST_IDS), Held(first_ids)
            entries = _entries(rows, own, offsets, dtype)
            yield ArrayKey(TOPOLOGIES[side], name, "adjacency"), entries

    def _of_nodes(self, name: str, nodes: Ids, part: int) -> Iterator[tuple[ArrayKey, ArraySource]]:
        graph, assignment = self._graph, self._assignments[name]
        yield (
            ArrayKey("part", name, MEMBERS),
            Held(_words(Members.of(nodes, graph.num_nodes(name)))),
        )
        if method_of(self._cut.books) == "given":
            yield ArrayKey("part", name, BOOK), Held(assignment.parts)
        for label, column in graph.node_attributes(name).items():
            yield ArrayKey("node", name, label), SomeRows(column, len(nodes), lambda: nodes)
        yield from self._of_ids(name, nodes)
        for label, split in graph.splits(name).items():
            ids = split.array
            positions = np.flatnonzero(assignment.parts[ids] == part)
            yield ArrayKey("split", name, label), Held(ids[positions])
            dtype = id_dtype(len(ids))
            yield ArrayKey("part", name, positions_name(label)), Held(positions.astype(dtype))

    def _of_ids(self, name: str, nodes: Ids) -> Iterator[tuple[ArrayKey, ArraySource]]:
        arrays, key = self._graph.arrays, partial(ArrayKey, "ids", name)
        kind = kind_among(arrays, name)
        if kind is None:
            return
        if kind == "int64":
            yield key(KEYS), SomeRows(arrays[key(KEYS)], len(nodes), lambda: nodes)
        else:
            text = SomeText(arrays[key(OFFSETS)].array, arrays[key(TEXT)].array, nodes)
            yield key(OFFSETS), Held(text.offsets)
            yield key(TEXT), text
        dtype, size = str(slot_dtype(len(nodes))), slots_needed(len(nodes))
        yield key(SLOTS), Made(dtype, (size,), lambda: self._slots(name, nodes))

    def _slots(self, name: str, nodes: Ids) -> Array:
        slots = np.empty(slots_needed(len(nodes)), slot_dtype(len(nodes)))
        fill_slots(self._graph.id_keys(name, nodes), slots)
        return slots

    def _of_edges(
        self, name: EdgeType, nodes: dict[str, Ids]
    ) -> Iterator[tuple[ArrayKey, ArraySource]]:
        columns = self._graph.edge_attributes(name)
        if not columns:
            return
        own, size = nodes[owner_of(name, self._owning)], self._graph.num_edges(name)
        rows = self._graph.topology(name, self._owning)
        count = int((rows.indptr[own + 1] - rows.indptr[own]).sum())
        members = Once(lambda: edge_members(rows.rows, own, size))
        ids = Once(lambda: members().ids())
        shape = (-(-size // WORD_BITS), 2)
        yield ArrayKey("part", name, MEMBERS), Made("int64", shape, lambda: _words(members()))
        for label, column in columns.items():
            yield ArrayKey("edge", name, label), SomeRows(column, count, ids)


def _entries(rows: Topology, nodes: Ids, offsets: Ids, dtype: str) -> ArraySource:
    if is_range(nodes) and str(rows.adjacency.dtype) == dtype:
        return Held(rows.adjacency[rows.indptr[nodes[0]] : rows.indptr[nodes[-1] + 1]])
    return SomeEntries(rows.rows, nodes, offsets, dtype, paired=rows.paired)


def _words(members: Members) -> Array:
    return members.words.view(np.int64)
