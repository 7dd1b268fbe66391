"""Which part has each node, before there is a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.graph.partition.assignment import assignments
from penstock.graph.partition.book import ArrayBook, PartitionBook, part_dtype
from penstock.graph.partition.index_space import IndexSpace
from penstock.graph.progress import Report
from penstock.graph.schema import EdgeType
from penstock.graph.topology import Topology
from penstock.ingest.columns import numbers
from penstock.ingest.context import BuildContext
from penstock.ingest.cutting.edges import Books
from penstock.ingest.cutting.rows import StoredRows
from penstock.ingest.cutting.words import Cutting
from penstock.ingest.description import NodeTable
from penstock.ingest.tables import Mask, Table
from penstock.ingest.workspace import Workspace
from penstock.kernels.streaming import is_undirected

Array = npt.NDArray[Any]

# The memory that "locality" takes, in bytes: of a node; of an edge; of one without a reverse.
_NODE: Final = 8
_EDGE: Final = 25
_LONE_EDGE: Final = 60


class Sorted:
    """The nodes of a graph, and its edges if they have been sorted, as methods ask for them."""

    def __init__(
        self, context: BuildContext, edges: Mapping[EdgeType, StoredRows] | None = None
    ) -> None:
        self.is_hetero = context.said.is_hetero
        self._sizes = {name: nodes.count for name, nodes in context.nodes.items()}
        self._edges = edges or {}

    @property
    def node_types(self) -> tuple[str, ...]:
        return tuple(self._sizes)

    @property
    def edge_types(self) -> tuple[EdgeType, ...]:
        return tuple(self._edges)

    def num_nodes(self, node_type: str, /) -> int:
        return self._sizes[node_type]

    def csc(self, edge_type: EdgeType, /) -> Topology:
        return self._edges[edge_type].topology


def books_of(cutting: Cutting, context: BuildContext) -> Books:
    """Return which part has each node, by a method that asks for no edges."""
    if cutting.by_column:
        tables, said, workspace = context.found.nodes, context.said.nodes, context.workspace
        return {
            name: book_by_column(tables[name], said[name], nodes.mask, cutting.n, workspace)
            for name, nodes in context.nodes.items()
        }
    found = assignments(Sorted(context), cutting.n, cutting.method)
    return {name: each.book for name, each in found.items()}


def books_by_neighbours(
    cutting: Cutting,
    context: BuildContext,
    edges: Mapping[EdgeType, StoredRows],
    report: Report | None = None,
) -> Books:
    """Return which part has each node, by a method that goes by neighbours.

    Raises:
        ValueError: The graph takes more memory than there is, in which "locality" holds it.
    """
    workspace, memory, graph = context.workspace, context.memory, Sorted(context, edges)
    if cutting.method == "locality":
        _check_memory(graph, memory)
    found = assignments(
        graph,
        cutting.n,
        cutting.method,
        cutting.passes,
        report,
        workspace.folder,
        lambda shape, dtype: workspace.array(shape, dtype, memory // 4),
    )
    return {name: _filed(each.book, workspace, memory) for name, each in found.items()}


def _filed(book: PartitionBook, workspace: Workspace, memory: int) -> PartitionBook:
    """Return the book with its array in a file, if that is large."""
    assert isinstance(book, ArrayBook)
    if book.parts.nbytes <= memory // 16:
        return book
    spool = workspace.spool(book.parts.dtype)
    spool.append(book.parts)
    return ArrayBook(spool.mapped(), book.num_partitions)


def _check_memory(graph: Sorted, memory: int) -> None:
    rows = IndexSpace.of(graph).rows
    num_nodes = sum(map(graph.num_nodes, graph.node_types))
    num_edges = sum(graph.csc(kind).num_edges for kind in graph.edge_types)
    needed = _NODE * num_nodes + (_EDGE if is_undirected(rows) else _LONE_EDGE) * num_edges
    if needed > memory:
        raise ValueError(
            f"parts.method is 'locality', which holds the graph in memory: {num_nodes:,} nodes and "
            f"{num_edges:,} edges take about {needed >> 20} MiB, and memory is {memory >> 20} MiB. "
            "Use method 'streaming', or give more memory"
        )


def book_by_column(
    table: Table, said: NodeTable, mask: Mask | None, num_parts: int, workspace: Workspace
) -> ArrayBook:
    """Return the parts that a column says.

    Raises:
        ValueError: A value is missing, or no number of a part; it is named with file and row.
    """
    column = said.part
    assert column is not None
    for source, kind in table.types(column):
        value = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not pa.types.is_integer(value):
            raise ValueError(
                f"{table.label}.part: column {column!r} of {source} is {kind}; expected whole "
                "numbers, those of parts"
            )
    spool = workspace.spool(part_dtype(num_parts))
    for rows in table.kept([column], mask):
        parts = numbers(rows, column)
        wrong = (parts < 0) | (parts >= num_parts)
        if wrong.any():
            rows.refuse(int(np.argmax(wrong)), column, f"0 <= part < {num_parts}")
        spool.append(parts)
    return ArrayBook(spool.mapped(), num_parts)
