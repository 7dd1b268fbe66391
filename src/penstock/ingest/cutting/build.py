"""Builds the parts of a graph from tables, one step after the other, in one process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.graph.checksum import version_from_sums
from penstock.graph.external import LEAST_MEMORY, ExternalEdges
from penstock.graph.external.scratch import append
from penstock.graph.format import ArraySource, write_sources
from penstock.graph.layout import array_nbytes
from penstock.graph.partition.note import Cut, owning_side
from penstock.graph.partition.partition import Parts, move_parts
from penstock.graph.progress import Report
from penstock.graph.schema import ArrayKey, EdgeType, Schema, owner_of
from penstock.graph.topology import id_dtype
from penstock.ingest.context import BuildContext
from penstock.ingest.cutting.assign import books_by_neighbours, books_of
from penstock.ingest.cutting.edges import Books, CutCounter, RowSharer, SharedEdges, share_rows
from penstock.ingest.cutting.nodes import NodeSharer, SharedNodes, Wholes
from penstock.ingest.cutting.owners import EdgeOwners, NodeOwners, owners_of_edges
from penstock.ingest.cutting.part import PartMaker
from penstock.ingest.cutting.rows import EdgeRows, StoredRows, stored, summed_rows
from penstock.ingest.cutting.segments import Segment, Segments
from penstock.ingest.cutting.sums import Sum, Summed
from penstock.ingest.cutting.words import Cutting
from penstock.ingest.description import EdgeTable, reversed_type
from penstock.ingest.edges import Array, EdgeMaker, MadeEdges
from penstock.ingest.features import Streamed
from penstock.ingest.work import WorkMeter
from penstock.ingest.workspace import Spool


class PartsBuild:
    """One build of parts."""

    def __init__(self, context: BuildContext, cutting: Cutting, path: Path) -> None:
        self._context = context
        self._cutting = cutting
        self._path = path
        self._workspace = context.workspace
        # What is held of rows that are given out; half of the memory is for sorting.
        self._room = context.memory // 16
        self._wholes: Wholes = {}
        self._nodes: dict[str, SharedNodes] = {}
        self._edges: dict[EdgeType, SharedEdges] = {}
        self._graph: dict[ArrayKey, Segment] = {}

    def run(self) -> Parts:
        """Read all tables, and write the parts."""
        self._context.number_nodes()
        books = self._map_by_neighbours() if self._cutting.by_neighbours else self._map_edges()
        schema = self._context.schema()
        self._map_nodes(books)
        version = version_from_sums(schema, self._wholes)
        cut = cut_of(self._cutting, books, version, self._nodes, self._edges)
        self._reduce(schema, cut)
        return Parts.of([self._path / f"part-{part}" for part in range(cut.parts)], cut)

    # --- map: edges ---

    def _map_edges(self) -> Books:
        """Give out the edges of all tables as they are sorted; return which part has each node."""
        books = books_of(self._cutting, self._context)
        for kind, said in self._context.said.edges.items():
            observer = _EdgeObserver(self._context, self._cutting, kind, said, books)
            with ExitStack() as stack:
                made = self._made(observer, kind, said, stack)
                for each in observer.sides(made):
                    self._share(each, observer, books)
            self._map_columns(made)
        return books

    def _map_by_neighbours(self) -> Books:
        """Sort the edges of all tables to files first, since they say which part has a node."""
        observers: list[_EdgeObserver] = []
        kept: dict[EdgeType, _Sides] = {}
        for kind, said in self._context.said.edges.items():
            observer = _EdgeObserver(self._context, self._cutting, kind, said, None)
            observers.append(observer)
            with ExitStack() as stack:
                made = self._made(observer, kind, said, stack)
                kept |= {each.kind: self._stored(each) for each in observer.sides(made)}
        books = books_by_neighbours(
            self._cutting,
            self._context,
            {kind: _as_stored(each.by_target) for kind, each in kept.items()},
            _progress(self._context),
        )
        for observer, made in zip(observers, self._context.edges, strict=True):
            for kind in made.sizes:
                self._share(kept[kind], observer, books)
                self._remove(kept.pop(kind))
            self._map_columns(made)
        return books

    def _made(
        self, observer: _EdgeObserver, kind: EdgeType, said: EdgeTable, stack: ExitStack
    ) -> MadeEdges:
        context = self._context
        memory = context.memory // 2
        if observer.opens_sorters:
            memory //= 2
            observer.open(memory, stack)
        table, ends = context.found.edges[kind], context.ends(kind)
        memory = max(2 * LEAST_MEMORY, memory)
        maker = EdgeMaker(table, kind, said, ends, self._workspace, memory, stack, observer)
        made = maker.made()
        context.edges.append(made)
        context.work.expect(sum(_nbytes(each.adjacency) for each in made.sorted.values()))
        return made

    def _stored(self, sides: _Sides) -> _Sides:
        """Write edges to files, out of which they can be read again."""

        def written(found: EdgeRows) -> StoredRows:
            return stored(found, found.rows(), self._workspace.path("rows"), self._room)

        by_source = None if sides.by_source is None else written(sides.by_source)
        return _Sides(sides.kind, written(sides.by_target), by_source)

    def _remove(self, sides: _Sides) -> None:
        for each in (sides.by_target, sides.by_source):
            if isinstance(each, StoredRows) and each is not self._edges[sides.kind].whole:
                each.remove()

    def _share(self, sides: _Sides, observer: _EdgeObserver, books: Books) -> None:
        """Give out the edges of a type, and sum up what they are as a whole."""
        kind, found, total = sides.kind, sides.by_target, Sum()
        counter = CutCounter(kind, owning_side(self._cutting.edges), books)
        rows = counter.counted(summed_rows(found.rows(), total, self._context.work))
        shared = self._edges[kind] = SharedEdges(kind)
        is_whole = self._cutting.topology == "whole"
        if is_whole and isinstance(found, StoredRows):
            shared.whole = found
        elif is_whole:
            shared.whole = stored(found, rows, self._workspace.path("rows"), self._room)
        elif self._cutting.edges != "source":
            sharer = RowSharer(kind, "in", books, self._workspace, self._room)
            shared.sides["in"] = sharer.share(found, rows)
        for _ in rows:  # if nobody has asked for them: they are counted and summed up all the same
            pass
        self._wholes[ArrayKey("csc", kind, "adjacency")] = Summed(
            found.adjacency.dtype, found.adjacency.shape, total.checksum()
        )
        self._wholes[ArrayKey("csc", kind, "indptr")] = _summed(found.indptr)
        if sides.by_source is not None:
            sharer = RowSharer(kind, "out", books, self._workspace, self._room)
            shared.sides["out"] = sharer.share(sides.by_source, sides.by_source.rows())
        shared.num_edges = counter.num_edges.tolist()
        shared.edges_cut = counter.edges_cut.tolist()
        shared.owners = observer.owners(kind, books)

    # --- map: attributes ---

    def _map_columns(self, made: MadeEdges) -> None:
        """Give out the attributes of the edges of a table, and keep its links for all parts."""
        for key, _ in made.columns:
            source, edges = made.arrays[key], self._edges[_edge_type(key)]
            assert isinstance(source, Streamed)
            assert edges.owners is not None
            segments = Segments(
                self._workspace.path("segments"),
                self._cutting.n,
                source.dtype,
                source.shape[1:],
                self._room,
            )
            self._wholes[key] = share_rows(source, edges.owners, segments)
            edges.columns[key.name] = segments
        for key, array in made.arrays.items():
            if key.group == "graph":
                path = self._workspace.path("graph.tmp")
                append(path, array.pieces())
                self._graph[key] = Segment(path, array.dtype, array.shape, is_kept=True)
                self._wholes[key] = _summed(self._graph[key])
        made.arrays.clear()
        for spool in made.spools:
            spool.remove()

    def _map_nodes(self, books: Books) -> None:
        """Give out nodes. Their numbers are not looked up any more, so that they can go."""
        context = self._context
        for name, nodes in context.nodes.items():
            numbering = context.numberings.pop(name)
            sharer = NodeSharer(name, NodeOwners(books[name]), self._workspace, self._room)
            self._nodes[name], wholes = sharer.share(nodes, numbering)
            self._wholes |= wholes
            nodes.arrays.clear()
            for spool in (*nodes.spools, *numbering.key_spools().values()):
                spool.remove()

    # --- reduce ---

    def _reduce(self, schema: Schema, cut: Cut) -> None:
        """Write one part after the other, and let them take their place."""
        maker = PartMaker(
            self._nodes, self._edges, self._graph, self._workspace, self._context.memory // 4
        )
        total = sum(
            _nbytes(array) for part in range(cut.parts) for array in maker.arrays(part).values()
        )
        self._context.work.expect(total)
        meter = WorkMeter(total, self._context.work)
        beside = self._workspace.path("parts")
        beside.mkdir()
        for part in range(cut.parts):
            own = msgspec.structs.replace(schema, part=cut.note(part))
            write_sources(beside / f"part-{part}", own, maker.arrays(part), meter)
            maker.end(part)
        move_parts(beside, Path(os.path.abspath(self._path)))


def cut_of(
    cutting: Cutting,
    books: Books,
    version: str,
    nodes: Mapping[str, SharedNodes],
    edges: Mapping[EdgeType, SharedEdges],
) -> Cut:
    """Return what parts say of the cut, once all is given out."""
    return Cut(
        cutting.n,
        cutting.edges,
        cutting.topology,
        version,
        books,
        {name: each.counts for name, each in nodes.items()},
        {kind: each.num_edges for kind, each in edges.items()},
        {kind: each.edges_cut for kind, each in edges.items()},
        {
            name: {label: split.size for label, split in each.splits.items()}
            for name, each in nodes.items()
        },
    )


class _Sides(NamedTuple):
    """The edges of a type, by where they lead to, and, if parts want them, by where they begin."""

    kind: EdgeType
    by_target: EdgeRows
    by_source: EdgeRows | None


class _EdgeObserver:
    """Notes of edges, on their way to be sorted, what parts need besides.

    That is the node, or its part, that an edge goes with, if edges have attributes; and the edges
    by their sources, if parts have out-edges.
    """

    def __init__(
        self,
        context: BuildContext,
        cutting: Cutting,
        kind: EdgeType,
        said: EdgeTable,
        books: Books | None,
    ) -> None:
        self._context = context
        self._side = owning_side(cutting.edges)
        self._books = books
        is_apart = said.reverse and any(kind)
        self._kinds = [kind, reversed_type(kind)] if is_apart else [kind]
        self.opens_sorters = cutting.topology == "parts" and cutting.edges != "destination"
        self._sorters: dict[EdgeType, ExternalEdges] = {}
        self._owners: dict[EdgeType, Spool] = {}
        if said.features or said.label or said.time or said.weight:
            self._owners = {each: self._spool(each) for each in self._kinds}

    def open(self, memory: int, stack: ExitStack) -> None:
        """Prepare to sort edges by their sources."""
        memory = max(LEAST_MEMORY, memory // len(self._kinds))
        for kind in self._kinds:
            sources, targets = (each.count for each in self._context.ends(kind))
            folder = self._context.workspace.path("edges")
            folder.mkdir()
            sorter = ExternalEdges(folder, targets, sources, memory)
            self._sorters[kind] = stack.enter_context(sorter)

    def __call__(self, kind: EdgeType, sources: Array, targets: Array) -> None:
        """Take note of edges."""
        if kind in self._owners:
            nodes = sources if self._side == "out" else targets
            if self._books is not None:
                nodes = NodeOwners(self._books[owner_of(kind, self._side)]).of(nodes)
            self._owners[kind].append(nodes)
        if kind in self._sorters:
            self._sorters[kind].add(targets, sources)

    def sides(self, made: MadeEdges) -> Iterator[_Sides]:
        """Yield the sorted edges of each type."""
        for kind, by_target in made.sorted.items():
            sorter = self._sorters.get(kind)
            # Out-edges of a graph always have their ids beside them.
            by_source = None if sorter is None else sorter.finish(paired=True)
            yield _Sides(kind, by_target, by_source)

    def owners(self, kind: EdgeType, books: Books) -> EdgeOwners | None:
        """Return the part of each edge, if that was noted."""
        spool = self._owners.get(kind)
        if spool is None:
            return None
        if self._books is not None:
            return EdgeOwners(spool)
        return owners_of_edges(spool, books[owner_of(kind, self._side)], self._context.workspace)

    def _spool(self, kind: EdgeType) -> Spool:
        name = owner_of(kind, self._side)
        if self._books is None:
            return self._context.workspace.spool(id_dtype(self._context.numberings[name].count))
        return self._context.workspace.spool(NodeOwners(self._books[name]).dtype)


def _as_stored(found: EdgeRows) -> StoredRows:
    assert isinstance(found, StoredRows)
    return found


def _edge_type(key: ArrayKey) -> EdgeType:
    assert isinstance(key.type, tuple)
    return key.type


def _nbytes(array: ArraySource) -> int:
    return array_nbytes(array.dtype, array.shape)


def _summed(array: ArraySource) -> Summed:
    total = Sum()
    for piece in array.pieces():
        total.add(piece)
    return Summed(array.dtype, array.shape, total.checksum())


def _progress(context: BuildContext) -> Report:
    """Return what tells of passes over all edges as of a part of the work."""
    done: list[int] = []

    def report(now: int, total: int) -> None:
        if not done:
            context.work.expect(total)
        context.work.add(now - sum(done))
        done[:] = [now]

    return report
