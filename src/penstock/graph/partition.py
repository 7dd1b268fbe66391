"""A graph cut into parts, each of which a server can hold; and a part as it is opened.

    products.parts/
      part-0/graph/    what lies within the part, as a graph of its own
      part-0/cut/      which ids these are, the books, and the whole rows of its nodes
      part-1/ …

Nodes go where their book says, with their rows of attributes, their labels and their places in
splits. Edges go with their destination, or with their source (`edges="source"`). Within a part
nodes and edges are numbered from 0 in the order of their ids; `graph` has the edges both of whose
ends are there. The rows in `cut` have all edges of the part's nodes, in the order of the whole
graph's rows and with its ids: with them, servers can sample across parts.

Parts are written beside their place and moved there when all of them are on the disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.errors import GraphFormatError
from penstock.graph.books import ArrayBook, Ids, PartitionBook, RangeBook, part_dtype
from penstock.graph.build import build
from penstock.graph.draft import Draft
from penstock.graph.schema import ArrayKey, EdgeType
from penstock.graph.tensors import Plain
from penstock.kernels.reference import mix

if TYPE_CHECKING:
    from penstock.graph.graph import Graph

Method: TypeAlias = Literal["range", "hash"]
Side: TypeAlias = Literal["destination", "source"]
# Called with the parts done and the parts there are.
Progress: TypeAlias = Callable[[int, int], None]

METHODS: Final = ("range", "hash")
SIDES: Final = ("destination", "source")
MOST_PARTS: Final = 1 << 16
FORMAT: Final = 1
_NOTE: Final = "partition"
_STRANGER: Final = "is there already, and is no folder of parts: it is left as it is"


@dataclass(frozen=True, eq=False)
class Rows:
    """All edges of a part's nodes, node by node: neighbours and edges by their ids in the whole."""

    indptr: Ids
    neighbors: Ids
    edges: Ids


class Partition:
    """One part of a graph, opened: `graph` is what lies within it."""

    def __init__(self, graph: Graph, cut: Graph) -> None:
        self.graph = graph
        self._cut = cut
        self._facts = _facts_of(cut)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """The part in a folder that `Graph.partition` wrote, mapped."""
        from penstock.graph.graph import Graph

        folder = Path(path)
        graph = Graph.open(folder / "graph")
        try:
            return cls(graph, Graph.open(folder / "cut"))
        except BaseException:
            graph.close()
            raise

    @property
    def number(self) -> int:
        """Which part this is."""
        return int(self._facts["number"])

    @property
    def num_partitions(self) -> int:
        """How many there are."""
        return int(self._facts["of"])

    @property
    def method(self) -> str:
        """How the graph was cut."""
        return str(self._facts["method"])

    @property
    def side(self) -> str:
        """Which end of an edge says where it goes."""
        return str(self._facts["edges"])

    @cached_property
    def node_books(self) -> dict[str, PartitionBook]:
        """Where the nodes of each type are."""
        names = self.graph.node_types
        return {name: self._node_book(place) for place, name in enumerate(names)}

    @cached_property
    def edge_books(self) -> dict[EdgeType, PartitionBook]:
        """Where the edges of each type are."""
        return {
            kind: ArrayBook(self._array(f"edge_book_{place}"), self.num_partitions)
            for place, kind in enumerate(self.graph.edge_types)
        }

    @cached_property
    def node_ids(self) -> dict[str, Ids]:
        """The ids of the nodes of each type, by their numbers here."""
        return {name: book.ids_of(self.number) for name, book in self.node_books.items()}

    @cached_property
    def edge_ids(self) -> dict[EdgeType, Ids]:
        """The ids of the edges that lie within the part, by their numbers here."""
        kinds = self.graph.edge_types
        return {kind: self._array(f"edge_ids_{place}") for place, kind in enumerate(kinds)}

    def rows(self, edge_type: EdgeType) -> Rows:
        """All edges of the part's nodes, those that lead elsewhere included."""
        place = self.graph.edge_types.index(edge_type)
        names = ("indptr", "neighbors", "edges")
        return Rows(*(self._array(f"row_{name}_{place}") for name in names))

    def close(self) -> None:
        """Lets go of the memory."""
        self.graph.close()
        self._cut.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<part {self.number} of {self.num_partitions}: {self.graph!r}>"

    def _node_book(self, place: int) -> PartitionBook:
        if self.method == "range":
            return RangeBook(self._facts["bounds"][place])
        return ArrayBook(self._array(f"node_book_{place}"), self.num_partitions)

    def _array(self, name: str) -> Any:
        return self._cut.graph_attributes()[name]


def is_partition(path: str | os.PathLike[str]) -> bool:
    """Whether a folder looks like a part."""
    return (Path(path) / "cut").is_dir() and (Path(path) / "graph").is_dir()


def partition(
    graph: Graph,
    path: str | os.PathLike[str],
    parts: int,
    method: Method = "range",
    edges: Side = "destination",
    progress: Progress | None = None,
) -> list[Path]:
    """Writes the parts of a graph into the folder `path`; see `Graph.partition`."""
    _check(parts, method, edges)
    folder = Path(path)
    _check_place(folder)
    beside = folder.with_name(f".{folder.name}.new-{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        cutter = _Cutter(graph, parts, method, edges)
        for part in range(parts):
            cutter.write(part, beside / f"part-{part}")
            if progress is not None:
                progress(part + 1, parts)
        _move(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return [folder / f"part-{part}" for part in range(parts)]


class _Cutter:
    """Cuts one graph. Keeps a number per node and per edge of the whole, and one part at a time."""

    def __init__(self, graph: Graph, parts: int, method: Method, side: Side) -> None:
        self._graph = graph
        self._parts = parts
        self._method = method
        self._side = side
        self._books = {
            name: _book_of(graph.num_nodes(name), parts, method) for name in graph.node_types
        }

    def write(self, part: int, folder: Path) -> None:
        from penstock.graph.graph import Graph

        nodes = {name: book.ids_of(part) for name, book in self._books.items()}
        cut: dict[str, Any] = {_NOTE: self._note(part)}
        draft = Draft(is_hetero=self._graph.is_hetero)
        self._add_nodes(draft, nodes)
        for place, kind in enumerate(self._graph.edge_types):
            self._add_edges(draft, cut, place, kind, nodes, part)
        self._add_attributes(draft)
        folder.mkdir(parents=True)
        with Graph(*build(draft, kind=None)) as within:
            within.save(folder / "graph")
        if self._method != "range":
            for place, book in enumerate(self._books.values()):
                assert isinstance(book, ArrayBook)
                cut[f"node_book_{place}"] = book.parts
        with Graph.from_coo({}, {}, graph_attrs=cut) as beyond:
            beyond.save(folder / "cut")

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

    def _add_nodes(self, draft: Draft, nodes: dict[str, Ids]) -> None:
        for name, ids in nodes.items():
            draft.add_count(name, f"num_nodes[{name!r}]", len(ids))
            for label, column in self._graph.node_attributes(name).items():
                rows = Plain(label, column.array[ids], column.dtype)
                draft.add_column(ArrayKey("node", name, label), rows)
            for label, split in self._graph.splits(name).items():
                draft.add_split(name, label, label, _within(split.array, ids))

    def _add_edges(
        self,
        draft: Draft,
        cut: dict[str, Any],
        place: int,
        kind: EdgeType,
        nodes: dict[str, Ids],
        part: int,
    ) -> None:
        at, ends = (2, 1) if self._side == "destination" else (0, 0)
        other = kind[2 - at]
        topology = self._graph.csc(kind) if ends else self._graph.csr(kind)
        rows = _rows_of(topology, nodes[kind[at]])
        cut[f"row_indptr_{place}"] = rows.indptr
        cut[f"row_neighbors_{place}"] = rows.neighbors
        cut[f"row_edges_{place}"] = rows.edges
        cut[f"edge_book_{place}"] = self._edge_parts(topology, kind, at)
        here = self._books[other].partition_of(rows.neighbors) == part
        order = np.argsort(rows.edges[here], kind="stable")
        owners = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))[here][order]
        neighbors = np.searchsorted(nodes[other], rows.neighbors[here][order])
        ids = cut[f"edge_ids_{place}"] = rows.edges[here][order]
        label = f"edge_index[{kind!r}]"
        draft.add_edges(kind, label, [neighbors, owners] if ends else [owners, neighbors])
        for name, column in self._graph.edge_attributes(kind).items():
            rows_here = Plain(name, column.array[ids], column.dtype)
            draft.add_column(ArrayKey("edge", kind, name), rows_here)

    def _edge_parts(self, topology: Any, kind: EdgeType, at: int) -> npt.NDArray[Any]:
        """Which part each edge is in, in the order of ids."""
        size = self._graph.num_nodes(kind[at])
        owners = self._books[kind[at]].partition_of(np.arange(size))
        parts = np.repeat(owners.astype(part_dtype(self._parts)), np.diff(topology.indptr))
        found = np.empty_like(parts)
        found[topology.edge_ids] = parts
        return found

    def _add_attributes(self, draft: Draft) -> None:
        """What belongs to the graph or a type as a whole: every part has it."""
        graph, owners = self._graph, [None, *_typed(self._graph)]
        for owner in owners:
            for name, value in graph.graph_attributes(owner).items():
                draft.add_attribute("" if owner is None else owner, name, name, value)


def _typed(graph: Graph) -> Iterator[str | EdgeType]:
    if graph.is_hetero:
        yield from graph.node_types
    yield from graph.edge_types


def _rows_of(topology: Any, nodes: Ids) -> Rows:
    """The rows of some nodes, one after the other."""
    begins, degrees = topology.indptr[nodes], np.diff(topology.indptr)[nodes]
    indptr = np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)
    places = np.arange(indptr[-1]) + np.repeat(begins - indptr[:-1], degrees)
    neighbors = np.asarray(topology.indices)[places].astype(np.int64)
    return Rows(indptr, neighbors, np.asarray(topology.edge_ids)[places].astype(np.int64))


def _within(split: Ids, ids: Ids) -> Ids:
    """Those of a split that are among some ids, in the split's order, by their places there."""
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


def _facts_of(cut: Graph) -> dict[str, Any]:
    facts = cut.graph_attributes().get(_NOTE)
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise GraphFormatError(f"this is not a part of a graph that this version can read: {facts}")
    return facts


def _check(parts: Any, method: str, edges: str) -> None:
    if isinstance(parts, bool) or not isinstance(parts, int) or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"n is {parts!r}; expected 1 to {MOST_PARTS} parts")
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; expected one of {', '.join(METHODS)}")
    if edges not in SIDES:
        raise ValueError(f"edges is {edges!r}; expected one of {', '.join(SIDES)}")


def _check_place(folder: Path) -> None:
    """An empty folder, none, or one of parts, which gives way; anything else stays."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir() or not all(is_partition(each) for each in folder.iterdir()):
        raise GraphFormatError(f"{folder} {_STRANGER}")


def _move(beside: Path, folder: Path) -> None:
    """A crash between the two steps leaves the old parts under a name of their own."""
    if not folder.exists():
        beside.rename(folder)
        return
    before = folder.with_name(f".{folder.name}.old-{os.getpid()}")
    folder.rename(before)
    beside.rename(folder)
    shutil.rmtree(before)
