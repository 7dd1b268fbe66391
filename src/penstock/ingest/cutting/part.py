"""Reduce: the arrays of one part, from what it was given; its bytes are made while it is written.

The arrays and their order are those of `penstock.graph.partition.cutter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.graph.checksum import Bytes
from penstock.graph.external.scratch import append
from penstock.graph.format import ArraySource
from penstock.graph.partition.book import ArrayBook
from penstock.graph.partition.sources import Held, Made
from penstock.graph.schema import (
    BOOK,
    KEYS,
    MEMBERS,
    OFFSETS,
    SLOTS,
    TEXT,
    TOPOLOGIES,
    ArrayKey,
    EdgeType,
    positions_name,
)
from penstock.ingest.cutting.edges import SharedEdges, SharedRows
from penstock.ingest.cutting.nodes import SharedNodes
from penstock.ingest.cutting.owners import Owners, words_of, words_shape
from penstock.ingest.cutting.segments import Segment
from penstock.ingest.features import Streamed
from penstock.ingest.workspace import Workspace
from penstock.kernels.id_table import Keys, Text, fill_slots, slot_dtype, slots_needed

Array = npt.NDArray[Any]
Sources = Iterator[tuple[ArrayKey, ArraySource]]

_ROWS: Final = 1 << 17


class PartMaker:
    """Makes one part after the other.

    Args:
        nodes: The nodes that were given out, by type.
        edges: The edges that were given out, by type.
        graph: Arrays that every part has as they are: those of the graph as a whole.
        workspace: For temporary files.
        memory: What a table of ids may take, in bytes; a larger one is a file that is mapped.
    """

    def __init__(
        self,
        nodes: Mapping[str, SharedNodes],
        edges: Mapping[EdgeType, SharedEdges],
        graph: Mapping[ArrayKey, Segment],
        workspace: Workspace,
        memory: int,
    ) -> None:
        self._nodes = nodes
        self._edges = edges
        self._graph = graph
        self._workspace = workspace
        self._folder = workspace.path("offsets")
        self._folder.mkdir()
        self._memory = memory
        self._is_given = any(isinstance(each.owners.book, ArrayBook) for each in nodes.values())

    def arrays(self, part: int) -> dict[ArrayKey, ArraySource]:
        """Return the arrays of a part. Each can be read once, and then its files are gone."""
        found: dict[ArrayKey, ArraySource] = {}
        for edges in self._edges.values():
            found.update(self._topology(edges, part))
        for nodes in self._nodes.values():
            found.update(self._of_nodes(nodes, part))
        for edges in self._edges.values():
            found.update(self._of_edges(edges, part))
        found.update(self._graph)
        return found

    def end(self, part: int) -> None:
        """Remove what is left of the files of a part that has been written."""
        for nodes in self._nodes.values():
            for segments in (nodes.keys, nodes.text):
                if segments is not None:
                    segments.of(part).remove()
            self._offsets(nodes, part).remove()

    # --- edges ---

    def _topology(self, edges: SharedEdges, part: int) -> Sources:
        if edges.whole is not None:
            yield ArrayKey("csc", edges.kind, "indptr"), edges.whole.indptr
            yield ArrayKey("csc", edges.kind, "adjacency"), edges.whole.adjacency
            return
        for side, rows in edges.sides.items():
            for name, source in _rows(rows, part):
                yield ArrayKey(TOPOLOGIES[side], edges.kind, name), source

    def _of_edges(self, edges: SharedEdges, part: int) -> Sources:
        if edges.owners is not None:
            yield ArrayKey("part", edges.kind, MEMBERS), _members(edges.owners, part)
        for name, segments in edges.columns.items():
            yield ArrayKey("edge", edges.kind, name), segments.of(part)

    # --- nodes ---

    def _of_nodes(self, nodes: SharedNodes, part: int) -> Sources:
        name = nodes.name
        yield ArrayKey("part", name, MEMBERS), _members(nodes.owners, part)
        if self._is_given:
            assert isinstance(nodes.owners.book, ArrayBook)
            yield ArrayKey("part", name, BOOK), Held(nodes.owners.book.parts)
        for label, segments in nodes.columns.items():
            yield ArrayKey("node", name, label), segments.of(part)
        for label, source in self._ids(nodes, part):
            yield ArrayKey("ids", name, label), source
        for label, split in nodes.splits.items():
            yield ArrayKey("split", name, label), split.nodes.of(part)
            yield ArrayKey("part", name, positions_name(label)), split.positions.of(part)

    def _ids(self, nodes: SharedNodes, part: int) -> Iterator[tuple[str, ArraySource]]:
        """Yield ids, then the table of them: the files of ids are read twice."""
        if nodes.keys is not None:
            keys = nodes.keys.of(part).kept()
            yield KEYS, keys
            yield SLOTS, self._slots(nodes.counts[part], keys.mapped)
        elif nodes.lengths is not None and nodes.text is not None:
            offsets, text = self._offsets(nodes, part), nodes.text.of(part).kept()
            yield OFFSETS, _Filed(_running(nodes.lengths.of(part)), offsets)
            yield TEXT, text
            yield (
                SLOTS,
                self._slots(nodes.counts[part], lambda: Text(offsets.mapped(), text.mapped())),
            )

    def _offsets(self, nodes: SharedNodes, part: int) -> Segment:
        """Return the file of where texts begin, which the table of ids reads, too."""
        path = self._folder / f"{list(self._nodes).index(nodes.name)}-{part}.tmp"
        return Segment(path, "int64", (nodes.counts[part] + 1,), is_kept=True)

    def _slots(self, count: int, keys: Callable[[], Keys]) -> Made:
        dtype, size = slot_dtype(count), slots_needed(count)

        def make() -> Array:
            slots = self._workspace.array((size,), dtype, self._memory)
            fill_slots(keys(), slots)
            return slots

        return Made(str(dtype), (size,), make)


class _Filed:
    """An array that is written to a file of its own, too, when it is read."""

    def __init__(self, source: Streamed, file: Segment) -> None:
        self.dtype = source.dtype
        self.shape = source.shape
        self._source = source
        self._file = file

    def pieces(self) -> Iterator[Bytes]:
        append(self._file.path, self._source.pieces())
        yield from self._file.pieces()


def _rows(rows: SharedRows, part: int) -> Iterator[tuple[str, ArraySource]]:
    yield "indptr", _running(rows.degrees.of(part))
    if rows.first_ids is not None:
        yield "first_ids", rows.first_ids.of(part)
    yield "adjacency", rows.entries.of(part)


def _running(lengths: Segment) -> Streamed:
    """Return where pieces of such lengths begin if one stands after the other, and the end."""

    def blocks() -> Iterator[Array]:
        end = 0
        yield np.zeros(1, np.int64)
        for some in lengths.blocks(_ROWS):
            offsets = end + np.cumsum(some)
            end = int(offsets[-1])
            yield offsets

    return Streamed("int64", (lengths.shape[0] + 1,), blocks)


def _members(owners: Owners, part: int) -> Streamed:
    return Streamed("int64", words_shape(owners.size), partial(words_of, owners, part))
