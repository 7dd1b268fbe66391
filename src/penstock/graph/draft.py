"""A draft: everything that was given for a graph, then checked as a whole.

The readers of edge lists and of PyG data add what they find to a `Draft`, with the labels that the
user knows; `settle()` works out sizes and reports what is wrong. Nothing is copied and no shared
memory is touched, so a bad argument leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph import check
from penstock.graph.quantization import Quantization, codec_of, quantized_among
from penstock.graph.schema import (
    ArrayKey,
    AttributeCodec,
    EdgeType,
    EdgeTypeInfo,
    NodeTypeInfo,
    Schema,
)
from penstock.graph.sparse import MatrixEdges, matrix_edges
from penstock.graph.tensors import PlainArray, integers, is_array, is_sparse, plain
from penstock.graph.user_ids import keys_of
from penstock.kernels.id_table import Keys


@dataclass(frozen=True, eq=False)
class EdgeList:
    """The edges of one type, in the order of their ids."""

    label: str
    sources: npt.NDArray[Any]
    destinations: npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class NamedNodes:
    """The users' ids of the nodes of one type, in the order of the nodes."""

    label: str
    keys: Keys


class Draft:
    """The content of a graph to be built. Types keep the order of their first mention."""

    def __init__(self, *, is_hetero: bool) -> None:
        self.is_hetero = is_hetero
        self.num_nodes: dict[str, int | None] = {}
        self.edges: dict[EdgeType, EdgeList] = {}
        self.columns: dict[ArrayKey, PlainArray] = {}
        self.attributes: dict[str | EdgeType, dict[str, Any]] = {}
        self.matrix_weights: dict[EdgeType, PlainArray] = {}
        self.quantized: dict[ArrayKey, Quantization] = {}
        self.ids: dict[str, NamedNodes] = {}
        self._shown: dict[str, int] = {}  # sizes of matrices
        self._splits: dict[ArrayKey, PlainArray] = {}

    def mention(self, node_type: str) -> None:
        """Add a node type whose size is not known yet."""
        self.num_nodes.setdefault(node_type, None)

    def add_count(self, node_type: str, label: str, count: Any) -> None:
        """Set the number of nodes of a type."""
        self.num_nodes[node_type] = check.count(label, count)

    def add_edges(self, edge_type: EdgeType, label: str, edge_index: Any) -> None:
        """Add the edges of a type: two rows of ids, or a sparse matrix [sources, destinations]."""
        if is_sparse(edge_index):
            self.add_matrix(edge_type, label, matrix_edges(label, edge_index))
        else:
            self.edges[edge_type] = _edge_list(label, edge_index)

    def add_matrix(self, edge_type: EdgeType, label: str, found: MatrixEdges) -> None:
        """Add the edges that a matrix has, and its size; `matrix_weights` has its values."""
        self.edges[edge_type] = _edge_list(label, (found.rows, found.columns))
        for node_type, size in zip((edge_type[0], edge_type[2]), found.shape, strict=True):
            self._shown[node_type] = max(size, self._shown.get(node_type, 0))
        if found.values is not None:
            self.matrix_weights[edge_type] = found.values

    def add_column(self, key: ArrayKey, column: PlainArray) -> None:
        """Add an array that the graph will keep."""
        if (other := self.columns.get(key)) is not None:
            raise ValueError(f"{column.label} is given twice: {other.label} has that name too")
        check.attribute_name(column.label, key.name)
        self.columns[key] = column

    def add_split(self, node_type: str, name: str, label: str, nodes: Any) -> None:
        """Add the nodes of a split, given as ids or as a mask."""
        self._splits[ArrayKey("split", node_type, name)] = _nodes_of_split(label, nodes)

    def add_ids(self, node_type: str, label: str, ids: Any) -> None:
        """Add the users' ids of the nodes of a type. That none stands twice is seen when built."""
        self.ids[node_type] = NamedNodes(label, keys_of(label, ids))

    def add_attribute(self, owner: str | EdgeType, name: str, label: str, value: Any) -> None:
        """Add a value that belongs to the whole graph, or to a type as a whole."""
        if is_array(value):
            self.add_column(ArrayKey("graph", owner, name), plain(label, value))
        else:
            check.attribute_name(label, name)
            self.attributes.setdefault(owner, {})[name] = check.json_value(label, value)

    def quantize(self, features: Any) -> None:
        """Have attributes, which were added before, stored in a smaller type."""
        self.quantized = quantized_among(features, self.columns)

    def settle(self) -> Schema:
        """Return the schema, with sizes that were not given worked out.

        Raises:
            ValueError: Something that was given does not fit these sizes, or cannot be stored.
        """
        self._check_node_types()
        sizes = {node_type: self._size_of(node_type) for node_type in self.num_nodes}
        for edge_type, edges in self.edges.items():
            check.ids(f"{edges.label}[0]", edges.sources, sizes[edge_type[0]])
            check.ids(f"{edges.label}[1]", edges.destinations, sizes[edge_type[2]])
        for key, column in self.columns.items():
            if key.group == "node":
                check.rows(column, sizes[str(key.type)], "node")
            elif key.group == "edge":
                check.rows(column, len(self.edges[_edge_type(key)].sources), "edge")
        for node_type, named in self.ids.items():
            check.one_per_node(named.label, len(named.keys), sizes[node_type])
        for key, nodes in self._splits.items():
            self.columns[key] = _ids_of_split(nodes, sizes[str(key.type)])
        return self._schema(sizes)

    def warn_of_no_edges(self) -> None:
        """Warn if there are no edges at all, which is a graph, but hardly one that was meant."""
        if not any(len(edges.sources) for edges in self.edges.values()):
            check.warn(
                "data has no edges, so batches have nothing but their inputs: is edge_index "
                "missing, or under another name?"
            )

    def _check_node_types(self) -> None:
        """Check that attributes and splits belong to mentioned types: any other is misspelt."""
        columns = [*self.columns.items(), *self._splits.items()]
        owned = [(key.type, each.label) for key, each in columns if key.group in ("node", "split")]
        for owner, label in [*owned, *((name, each.label) for name, each in self.ids.items())]:
            if owner not in self.num_nodes:
                there = ", ".join(map(repr, self.num_nodes)) or "none"
                raise ValueError(
                    f"{label} is given, but there is no node type {owner!r}; there are: {there}"
                )

    def _size_of(self, node_type: str) -> int:
        if (given := self.num_nodes[node_type]) is not None:
            return given
        return next(self._sizes_shown(node_type), 0)

    def _sizes_shown(self, node_type: str) -> Iterator[int]:
        """Yield candidates for the number of nodes, the most reliable first."""
        if node_type in self.ids:
            yield len(self.ids[node_type].keys)
        for key, column in self.columns.items():
            if (key.group, key.type) == ("node", node_type) and column.shape:
                yield column.shape[0]
        for key, nodes in self._splits.items():
            if key.type == node_type and nodes.dtype == "bool":
                yield nodes.shape[0]
        ends = [_end(label, ids) for label, ids in self._ids_of(node_type)]
        yield max([*ends, self._shown.get(node_type, 0)])

    def _ids_of(self, node_type: str) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        for (source, _, destination), edges in self.edges.items():
            if source == node_type:
                yield f"{edges.label}[0]", edges.sources
            if destination == node_type:
                yield f"{edges.label}[1]", edges.destinations

    def _schema(self, sizes: dict[str, int]) -> Schema:
        # A homogeneous graph's one node type has the empty name, which also means the whole graph.
        whole = self.attributes.get("", {})
        typed = {name: found for name, found in self.attributes.items() if name != ""}
        nodes = (NodeTypeInfo(name, size, typed.get(name, {})) for name, size in sizes.items())
        edges = (
            EdgeTypeInfo(name, len(edges.sources), typed.get(name, {}))
            for name, edges in self.edges.items()
        )
        codecs = tuple(
            AttributeCodec(key, codec_of(self.columns[key], how))
            for key, how in self.quantized.items()
        )
        return Schema(self.is_hetero, tuple(nodes), tuple(edges), whole, codecs=codecs)


def _edge_list(label: str, edge_index: Any) -> EdgeList:
    if (
        isinstance(edge_index, list | tuple)
        and len(edge_index) == 2
        and all(map(is_array, edge_index))
    ):  # sources and destinations are separate arrays: joining them would copy
        return _edge_list_of_two(label, *edge_index)
    pairs = integers(label, edge_index)
    check.edge_index(pairs)
    # The kernels take rows of any stride, but need aligned addresses.
    return EdgeList(label, *np.require(pairs.array, requirements="A"))


def _edge_list_of_two(label: str, sources: Any, destinations: Any) -> EdgeList:
    both = [plain(f"{label}[{row}]", ids) for row, ids in enumerate((sources, destinations))]
    for ids in both:
        check.vector(ids)
        check.id_dtype(ids)
    check.rows(both[1], both[0].shape[0], f"entry of {both[0].label}")
    dtype = np.result_type(*(ids.array for ids in both))
    return EdgeList(label, *(np.require(ids.array, dtype, "A") for ids in both))


def _nodes_of_split(label: str, nodes: Any) -> PlainArray:
    chosen = integers(label, nodes)
    check.vector(chosen)
    if chosen.dtype != "bool":  # a mask of uint8 could be taken for ids, so it is refused
        check.id_dtype(chosen, "int32 or int64 for ids, bool for a mask")
    return chosen


def _ids_of_split(nodes: PlainArray, num_nodes: int) -> PlainArray:
    if nodes.dtype == "bool":
        check.rows(nodes, num_nodes, "node")
        return PlainArray(nodes.label, np.flatnonzero(nodes.array), "int64")
    ids = np.require(nodes.array, requirements="A")
    check.ids(nodes.label, ids, num_nodes)
    check.warn_of_a_mask(nodes.label, ids, num_nodes)
    return PlainArray(nodes.label, ids.astype(np.int64, copy=False), "int64")


def _end(label: str, ids: npt.NDArray[Any]) -> int:
    if not len(ids):
        return 0
    end = int(ids.max()) + 1
    if end > check.MOST_NODES:
        check.ids(label, ids, check.MOST_NODES)
    return end


def _edge_type(key: ArrayKey) -> EdgeType:
    assert not isinstance(key.type, str)
    return key.type
