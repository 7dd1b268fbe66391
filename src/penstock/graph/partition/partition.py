"""Splitting a graph into parts, each for one server; and opening a part.

    products.parts/
      part-0/graph/    the graph within the part
      part-0/cut/      the global ids, the books, and all edges of the part
      part-1/ …

A book assigns each node to a part, with its rows of attributes, its label and its place in splits.
Edges go with their destination, or with their source (`edges="source"`), and their attributes with
them. Local ids of nodes and edges count from 0 in the order of global ids; `graph` has the edges
both of whose ends are in the part. The rows in `cut` have all edges of the part's nodes, in the
order of the whole graph's rows and with global ids, and all attributes in that order: with them,
servers can sample across parts. docs/format.md names the arrays.

Parts are written to a folder beside `path`, which is renamed when all of them are on disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

import msgspec
import numpy as np

from penstock import kernels
from penstock.errors import GraphFormatError
from penstock.graph.folder import sync_folder
from penstock.graph.partition.book import ArrayBook, Ids, PartitionBook, RangeBook
from penstock.graph.partition.cutter import Method, PartitionCutter, Side
from penstock.graph.partition.format import PartRows, attribute_name, cut_key, facts_of
from penstock.graph.schema import EdgeType
from penstock.graph.shared import SharedArray

if TYPE_CHECKING:
    from penstock.graph.graph import Graph

# Called with the number of parts done and the total.
Progress: TypeAlias = Callable[[int, int], object]

METHODS: Final = ("range", "hash")
SIDES: Final = ("destination", "source")
MOST_PARTS: Final = 1 << 16
_STRANGER: Final = "is there already, and is no folder of parts: it is left as it is"


class PartDescription(msgspec.Struct, frozen=True):
    """A part: which one of how many, how it was cut, and how much of the whole it has.

    Attributes:
        number: The number of the part, from 0.
        of: How many parts there are.
        method: How nodes were assigned to parts.
        edges: The end that an edge goes with.
        nodes: Of each node type, how many the part has and how many there are in all.
        edges_within: Of each edge type, how many have both ends in the part.
        edges_cut: Of each edge type, how many lead to other parts.
        edges_in_all: Of each edge type, how many there are in all parts.
    """

    number: int
    of: int
    method: str
    edges: str
    nodes: tuple[tuple[str, int, int], ...]
    edges_within: tuple[tuple[EdgeType, int], ...]
    edges_cut: tuple[tuple[EdgeType, int], ...]
    edges_in_all: tuple[tuple[EdgeType, int], ...]


class Partition:
    """One opened part of a graph; `graph` is the graph within it.

    Args:
        graph: The graph within the part.
        cut: What was cut, and how, in the form of a graph.

    Examples:
        >>> import penstock as ps
        >>> from penstock.graph.partition.partition import Partition
        >>> ring = ps.Graph.from_coo([[0, 1, 2, 3], [1, 2, 3, 0]], num_nodes=4)
        >>> first, second = ring.partition(2, "parts")
        >>> part = Partition.open(first)
        >>> part.number, part.num_partitions, part.graph.num_nodes()
        (0, 2, 2)
        >>> part.close()
    """

    def __init__(self, graph: Graph, cut: Graph) -> None:
        self._cut = cut
        self._facts = facts_of(cut)
        self.graph = graph.as_part(self.edge_dir)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open a part in a folder that `Graph.partition` wrote; its files are mapped.

        Args:
            path: The folder of the part.
        """
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
        """The number of this part."""
        return int(self._facts["number"])

    @property
    def num_partitions(self) -> int:
        """The number of parts."""
        return int(self._facts["of"])

    @property
    def method(self) -> str:
        """How nodes were assigned to parts."""
        return str(self._facts["method"])

    @property
    def side(self) -> str:
        """Which end of an edge decides its part."""
        return str(self._facts["edges"])

    @property
    def edge_dir(self) -> Literal["in", "out"]:
        """Which edges of its nodes the part has: all that lead in, or all that lead out."""
        return "out" if self.side == "source" else "in"

    @cached_property
    def node_books(self) -> dict[str, PartitionBook]:
        """The book of each node type."""
        names = self.graph.node_types
        return {name: self._node_book(place) for place, name in enumerate(names)}

    @cached_property
    def edge_books(self) -> dict[EdgeType, PartitionBook]:
        """The book of each edge type."""
        return {
            kind: ArrayBook(self._array(f"edge_book_{place}"), self.num_partitions)
            for place, kind in enumerate(self.graph.edge_types)
        }

    @cached_property
    def node_ids(self) -> dict[str, Ids]:
        """The global ids of the part's nodes of each type, by local id."""
        return {name: book.ids_of(self.number) for name, book in self.node_books.items()}

    @cached_property
    def edge_ids(self) -> dict[EdgeType, Ids]:
        """The global ids of the edges within the part, by local id."""
        kinds = self.graph.edge_types
        return {kind: self._array(f"edge_ids_{place}") for place, kind in enumerate(kinds)}

    def rows(self, edge_type: EdgeType) -> PartRows:
        """Return all edges of the part's nodes, including those that lead to other parts."""
        place = self.graph.edge_types.index(edge_type)
        names = ("indptr", "neighbors", "edges", "order")
        return PartRows(*(self._array(f"row_{name}_{place}") for name in names))

    def num_edges(self, edge_type: EdgeType) -> int:
        """Return how many edges of a type the part has, including those to other parts."""
        place = self.graph.edge_types.index(edge_type)
        return self._column(f"row_edges_{place}").shape[0]

    def edge_index(self, edge_type: EdgeType, first: int = 0, end: int | None = None) -> Ids:
        """Return the part's edges in the order of their ids, [2, edges], with global node ids."""
        rows, at = self.rows(edge_type), 0 if self.side == "source" else 2
        places = rows.order[first:end]
        owners = self.node_ids[edge_type[at]][rows.owners(places)]
        ends = (owners, rows.neighbors[places])
        return np.stack(ends if at == 0 else ends[::-1])

    def edge_attributes(self, edge_type: EdgeType) -> dict[str, SharedArray]:
        """Return the attributes of all edges of the part, in the order of `rows`, by name."""
        prefix = attribute_name(self.graph.edge_types.index(edge_type), "")
        return {
            key.name.removeprefix(prefix): column
            for key, column in self._cut.arrays.items()
            if key.group == "graph" and key.name.startswith(prefix)
        }

    def describe(self) -> PartDescription:
        """Return which part this is, and how much of the whole it has, as plain data."""
        kinds, within = self.graph.edge_types, self.graph.num_edges
        return PartDescription(
            number=self.number,
            of=self.num_partitions,
            method=self.method,
            edges=self.side,
            nodes=tuple(
                (name, self.graph.num_nodes(name), book.size)
                for name, book in self.node_books.items()
            ),
            edges_within=tuple((kind, within(kind)) for kind in kinds),
            edges_cut=tuple((kind, self.num_edges(kind) - within(kind)) for kind in kinds),
            edges_in_all=tuple((kind, self.edge_books[kind].size) for kind in kinds),
        )

    def validate(self) -> None:
        """Read the part, and check that it is sound.

        Raises:
            GraphFormatError: Names the first thing that is not sound.
        """
        self.graph.validate()
        for name, book in self.node_books.items():
            if (owned := book.count(self.number)) != (there := self.graph.num_nodes(name)):
                raise GraphFormatError(
                    f"cut: its book gives this part {owned} nodes of {name!r}, and its graph has "
                    f"{there}"
                )
        for kind in self.graph.edge_types:
            rows, owners = self.rows(kind), kind[0] if self.side == "source" else kind[2]
            if (
                len(rows.indptr) != self.graph.num_nodes(owners) + 1
                or rows.indptr[-1] != len(rows.edges)
                or not kernels.is_sorted(rows.indptr)
            ):
                raise GraphFormatError(f"cut: the rows of {kind!r} do not fit the part's nodes")
            if self.edge_books[kind].count(self.number) != len(rows.edges):
                raise GraphFormatError(f"cut: the book of {kind!r} does not fit its edges")

    def close(self) -> None:
        """Release the memory."""
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
        return self._column(name).array

    def _column(self, name: str) -> SharedArray:
        return self._cut.arrays[cut_key(name)]


def is_partition(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder looks like a part."""
    return (Path(path) / "cut").is_dir() and (Path(path) / "graph").is_dir()


def partition(
    graph: Graph,
    path: str | os.PathLike[str],
    parts: int,
    method: Method = "range",
    edges: Side = "destination",
    progress: Progress | None = None,
) -> list[Path]:
    """Write the parts of a graph into the folder `path`; see `Graph.partition`."""
    _check(parts, method, edges)
    folder = Path(path)
    _check_place(folder)
    beside = folder.with_name(f".{folder.name}.new-{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        cutter = PartitionCutter(graph, parts, method, edges)
        for part in range(parts):
            cutter.write(part, beside / f"part-{part}")
            if progress is not None:
                progress(part + 1, parts)
        sync_folder(beside)
        _move(beside, folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return [folder / f"part-{part}" for part in range(parts)]


def _check(parts: Any, method: str, edges: str) -> None:
    if isinstance(parts, bool) or not isinstance(parts, int) or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"n is {parts!r}; expected 1 to {MOST_PARTS} parts")
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; expected one of {', '.join(METHODS)}")
    if edges not in SIDES:
        raise ValueError(f"edges is {edges!r}; expected one of {', '.join(SIDES)}")


def _check_place(folder: Path) -> None:
    """Raise unless the folder is missing or empty, or has only parts, which are replaced."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir() or not all(is_partition(each) for each in folder.iterdir()):
        raise GraphFormatError(f"{folder} {_STRANGER}")


def _move(beside: Path, folder: Path) -> None:
    """Rename the folder; a crash between the two steps leaves the old parts under another name."""
    if not folder.exists():
        beside.rename(folder)
        return
    before = folder.with_name(f".{folder.name}.old-{os.getpid()}")
    folder.rename(before)
    beside.rename(folder)
    shutil.rmtree(before)
