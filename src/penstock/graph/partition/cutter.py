"""Splits a graph into parts, one after the other; see `partition`.

A part is saved as two graphs: the edges within it, and its `cut`. Each is written like any other
graph, with checksums and synced to disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.graph.build import build
from penstock.graph.draft import Draft
from penstock.graph.partition.book import ArrayBook, Ids, PartitionBook, RangeBook, part_dtype
from penstock.graph.partition.format import FORMAT, NOTE, PartRows, attribute_name, cut_key, rows_of
from penstock.graph.schema import NODE, ArrayKey, EdgeType
from penstock.graph.tensors import PlainArray
from penstock.kernels.reference import mix

if TYPE_CHECKING:
    from penstock.graph.graph import Graph

Method: TypeAlias = Literal["range", "hash"]
Side: TypeAlias = Literal["destination", "source"]


@dataclass(frozen=True, eq=False)
class _Share:
    """What one part gets: its nodes, the rows of their edges, and which of these stay within."""

    part: int
    nodes: dict[str, Ids]
    rows: dict[EdgeType, PartRows]
    # Positions in the rows, in the order of edge ids.
    within: dict[EdgeType, Ids]


class PartitionCutter:
    """Splits one graph. Holds a number per node and edge of the whole, and one part at a time."""

    def __init__(self, graph: Graph, parts: int, method: Method, side: Side) -> None:
        self._graph = graph
        self._parts = parts
        self._method = method
        self._side = side
        self._books = {
            name: _book_of(graph.num_nodes(name), parts, method) for name in graph.node_types
        }

    def write(self, part: int, folder: Path) -> None:
        """Create a folder and write one part into it."""
        share = self._share(part)
        folder.mkdir(parents=True)
        _save(self._within(share), folder / "graph")
        _save(self._cut(share), folder / "cut")

    # --- assignment of nodes and edges ---

    def _share(self, part: int) -> _Share:
        kinds = self._graph.edge_types
        nodes = {name: book.ids_of(part) for name, book in self._books.items()}
        rows = {kind: rows_of(self._topology(kind), nodes[self._owner(kind)]) for kind in kinds}
        within = {kind: self._inner(kind, rows[kind], part) for kind in kinds}
        return _Share(part, nodes, rows, within)

    def _topology(self, kind: EdgeType) -> Any:
        graph = self._graph
        return graph.csc(kind) if self._side == "destination" else graph.csr(kind)

    def _owner(self, kind: EdgeType) -> str:
        return kind[2 if self._side == "destination" else 0]

    def _other(self, kind: EdgeType) -> str:
        return kind[0 if self._side == "destination" else 2]

    def _inner(self, kind: EdgeType, rows: PartRows, part: int) -> Ids:
        here = self._books[self._other(kind)].partition_of(rows.neighbors) == part
        inner: Ids = rows.order[here[rows.order]]
        return inner

    # --- the graph within a part ---

    def _within(self, share: _Share) -> Draft:
        draft = Draft(is_hetero=self._graph.is_hetero)
        self._add_nodes(draft, share.nodes)
        for kind in self._graph.edge_types:
            self._add_edges(draft, kind, share)
        self._add_attributes(draft)
        return draft

    def _add_nodes(self, draft: Draft, nodes: dict[str, Ids]) -> None:
        for name, ids in nodes.items():
            draft.add_count(name, f"num_nodes[{name!r}]", len(ids))
            for label, column in self._graph.node_attributes(name).items():
                rows = PlainArray(label, column.array[ids], column.dtype)
                draft.add_column(ArrayKey("node", name, label), rows)
            for label, split in self._graph.splits(name).items():
                draft.add_split(name, label, label, _within(split.array, ids))

    def _add_edges(self, draft: Draft, kind: EdgeType, share: _Share) -> None:
        rows, places = share.rows[kind], share.within[kind]
        others = np.searchsorted(share.nodes[self._other(kind)], rows.neighbors[places])
        ends = [others, rows.owners(places)]
        in_order = ends if self._side == "destination" else ends[::-1]
        draft.add_edges(kind, f"edge_index[{kind!r}]", in_order)
        for name, column in self._graph.edge_attributes(kind).items():
            rows_here = PlainArray(name, column.array[rows.edges[places]], column.dtype)
            draft.add_column(ArrayKey("edge", kind, name), rows_here)

    def _add_attributes(self, draft: Draft) -> None:
        """Add the attributes of the graph or of a type as a whole: every part has them."""
        graph = self._graph
        for owner in (NODE, *_typed(graph)):
            for name, value in graph.graph_attributes(owner or None).items():
                # Only the shared array, and not NumPy's, knows that its elements are bfloat16.
                shared = graph.arrays.get(ArrayKey("graph", owner, name))
                draft.add_attribute(owner, name, name, value if shared is None else shared)

    # --- the cut: books and all edges ---

    def _cut(self, share: _Share) -> Draft:
        draft = Draft(is_hetero=True)  # no types: it has attributes of the whole graph only
        draft.add_attribute(NODE, NOTE, NOTE, self._note(share.part))
        if self._method != "range":
            for place, book in enumerate(self._books.values()):
                assert isinstance(book, ArrayBook)
                draft.add_attribute(NODE, name := f"node_book_{place}", name, book.parts)
        for place, kind in enumerate(self._graph.edge_types):
            self._add_rows(draft, place, kind, share)
        return draft

    def _note(self, part: int) -> dict[str, Any]:
        ranges = [list(book.bounds) for book in self._books.values() if isinstance(book, RangeBook)]
        return {
            "format": FORMAT,
            "number": part,
            "of": self._parts,
            "method": self._method,
            "edges": self._side,
            "bounds": ranges,
        }

    def _add_rows(self, draft: Draft, place: int, kind: EdgeType, share: _Share) -> None:
        rows = share.rows[kind]
        arrays = {
            "row_indptr": rows.indptr,
            "row_neighbors": rows.neighbors,
            "row_edges": rows.edges,
            "row_order": rows.order,
            "edge_ids": rows.edges[share.within[kind]],
            "edge_book": self._edge_parts(kind),
        }
        for label, array in arrays.items():
            draft.add_attribute(NODE, name := f"{label}_{place}", name, array)
        for label, column in self._graph.edge_attributes(kind).items():
            name = attribute_name(place, label)
            draft.add_column(
                cut_key(name), PlainArray(name, column.array[rows.edges], column.dtype)
            )

    def _edge_parts(self, kind: EdgeType) -> npt.NDArray[Any]:
        """Return the part of each edge, in the order of ids."""
        topology, owner = self._topology(kind), self._owner(kind)
        owners = self._books[owner].partition_of(np.arange(self._graph.num_nodes(owner)))
        parts = np.repeat(owners.astype(part_dtype(self._parts)), np.diff(topology.indptr))
        found = np.empty_like(parts)
        found[topology.edge_ids] = parts
        return found


def _save(draft: Draft, path: Path) -> None:
    from penstock.graph.graph import Graph

    with Graph(*build(draft, kind=None)) as made:
        made.save(path)


def _typed(graph: Graph) -> Iterator[str | EdgeType]:
    if graph.is_hetero:
        yield from graph.node_types
    yield from graph.edge_types


def _within(split: Ids, ids: Ids) -> Ids:
    """Return the positions in `ids` of those nodes of a split that are there, in split order."""
    places = np.searchsorted(ids, split)
    places[places == len(ids)] = 0
    if not len(ids):
        return np.zeros(0, np.int64)
    return np.asarray(places[ids[places] == split], np.int64)


def _book_of(size: int, parts: int, method: Method) -> PartitionBook:
    if method == "range":
        return RangeBook.even(size, parts)
    words = mix(np.arange(size, dtype=np.uint64))
    return ArrayBook((words % np.uint64(parts)).astype(np.int64), parts)
