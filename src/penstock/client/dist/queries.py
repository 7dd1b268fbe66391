"""Answers queries about a server's data: ids, features, labels, edges, types, partition books.

Ids in queries and answers are global ids. Every answer is bounded: its size is known before memory
is taken, and the error for one that is too large names the setting.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from penstock.client.dist.dataset import Ids, ServedDataset
from penstock.client.dist.labels import ablp_input
from penstock.client.dist_calls import Array, DistQueries, Shape
from penstock.core.slices import ServerSlice
from penstock.graph.codec import Codec
from penstock.graph.derived import Coo
from penstock.graph.features import FeatureSource
from penstock.graph.layout import array_nbytes
from penstock.graph.lookup import pick
from penstock.graph.partition.book import PartitionBook, list_of_ids
from penstock.graph.schema import EdgeType
from penstock.graph.shared import SharedArray
from penstock.wire.requests import (
    ABLPInput,
    DatasetMeta,
    EdgeDir,
    ExternalIds,
    FeatureInfo,
    FetchABLPInputRequest,
    FetchNodesRequest,
    TypeSize,
)

SPLITS: Final = ("train", "val", "test")
_ID_BYTES: Final = 8


class Queries(DistQueries[Array, Shape]):
    """Implements `DistQueries`. Thread-safe, since it shares no mutable state."""

    def __init__(
        self,
        dataset: ServedDataset,
        *,
        max_answer_bytes: int,
        max_labels: int | None = None,
    ) -> None:
        self.dataset = dataset
        self._most = max_answer_bytes
        self._max_labels = max_labels

    # --- ids ---------------------------------------------------------------------------------

    def get_node_ids(
        self,
        split: str | FetchNodesRequest | None = None,
        node_type: str | None = None,
        server_slice: ServerSlice | None = None,
    ) -> Ids:
        if isinstance(split, FetchNodesRequest):
            return self.get_node_ids(split.split, split.node_type, split.server_slice)
        name = self.dataset.node_type(node_type)
        check_split(split)
        self._check_slice(server_slice)
        graph = self.dataset.graph
        size = len(graph.split(split, name)) if split is not None else graph.num_own_nodes(name)
        rows = slice(0, size) if server_slice is None else server_slice.rows(size)
        self._check_size((rows.stop - rows.start) * _ID_BYTES, "get_node_ids", "a server_slice")
        if split is not None:
            found = graph.split(split, name)[rows]
        elif graph.part is None:
            found = np.arange(rows.start, rows.stop, dtype=np.int64)
        else:
            found = graph.node_ids(name)[rows]
        return found

    def get_ablp_input(
        self,
        split: str | FetchABLPInputRequest | None = None,
        node_type: str | None = None,
        supervision_edge_type: EdgeType | None = None,
        server_slice: ServerSlice | None = None,
        *,
        positive: EdgeType | None = None,
        negative: EdgeType | None = None,
        max_labels: int | None = None,
    ) -> ABLPInput[Ids]:
        request = split
        if not isinstance(request, FetchABLPInputRequest):
            request = FetchABLPInputRequest(
                split=request,
                node_type=node_type,
                supervision_edge_type=supervision_edge_type,
                server_slice=server_slice,
                positive=positive,
                negative=negative,
                max_labels=max_labels,
            )
        anchors = self.get_node_ids(request.split, request.node_type, request.server_slice)
        cap = self._max_labels if request.max_labels is None else request.max_labels
        return ablp_input(self.dataset, anchors, request, cap, self._check_labels)

    def get_external_ids(self, node_type: str | None = None, index: Any = None) -> ExternalIds:
        name, graph = self._named_type(node_type), self.dataset.graph
        nodes = None if index is None else list_of_ids(index)
        if nodes is not None:
            graph.node_book(name or None).partition_of(nodes)  # raises for ids out of range
        count = graph.num_own_nodes(name) if nodes is None else len(nodes)
        what = f"the ids of {count} nodes"
        self._check_size(_ID_BYTES * count, what, "fewer nodes")
        # Before they are made: a long id may be asked for as often as one likes.
        self._check_size(int(graph.id_nbytes(name, nodes).sum()), what, "fewer nodes")
        return ExternalIds.of(graph.id_keys(name, nodes))

    def look_up_ids(self, node_type: str | None, ids: ExternalIds) -> Ids:
        name, keys = self._named_type(node_type), ids.together()
        self.dataset.graph.check_keys(name, keys)
        self._check_size(_ID_BYTES * len(keys), "look_up_ids", "fewer ids")
        return self.dataset.graph.nodes_of_keys(name, keys)

    def _named_type(self, node_type: str | None) -> str:
        return self.dataset.graph.named_type(self.dataset.node_type(node_type))

    # --- metadata ----------------------------------------------------------------------------

    def get_dataset_meta(self) -> DatasetMeta:
        graph, number = self.dataset.graph, self.dataset.number
        return DatasetMeta(
            num_partitions=self.dataset.num_partitions,
            partition_idx=number,
            node_types=graph.node_types if graph.is_hetero else None,
            edge_types=graph.edge_types if graph.is_hetero else None,
            num_nodes=tuple(TypeSize(name, graph.num_own_nodes(name)) for name in graph.node_types),
            num_edges=tuple(TypeSize(kind, graph.num_own_edges(kind)) for kind in graph.edge_types),
            edge_dir=self.dataset.edge_dir,
        )

    def get_node_types(self) -> list[str] | None:
        graph = self.dataset.graph
        return list(graph.node_types) if graph.is_hetero else None

    def get_edge_types(self) -> list[EdgeType] | None:
        graph = self.dataset.graph
        return list(graph.edge_types) if graph.is_hetero else None

    def get_edge_dir(self) -> EdgeDir:
        return self.dataset.edge_dir

    def get_node_feature_info(self) -> FeatureInfo | dict[str, FeatureInfo] | None:
        graph = self.dataset.graph
        found = {
            name: _info(graph.node_features("x", name))
            for name in graph.node_types
            if "x" in graph.node_attributes(name)
        }
        return (found or None) if graph.is_hetero else next(iter(found.values()), None)

    def get_edge_feature_info(self) -> FeatureInfo | dict[EdgeType, FeatureInfo] | None:
        graph = self.dataset.graph
        found = {
            kind: _info(graph.edge_features("edge_attr", kind))
            for kind in graph.edge_types
            if "edge_attr" in graph.edge_attributes(kind)
        }
        return (found or None) if graph.is_hetero else next(iter(found.values()), None)

    def get_node_partition_id(self, node_type: str | None = None, index: Any = None) -> Array:
        book = self.dataset.node_book(self.dataset.node_type(node_type))
        return book.partition_of(_required(index))

    def get_node_partition_book(self, node_type: str | None = None) -> PartitionBook:
        book = self.dataset.node_book(self.dataset.node_type(node_type))
        return self._bounded(book, "get_node_partition_book")

    def get_edge_partition_book(self, edge_type: EdgeType | None = None) -> PartitionBook:
        book = self.dataset.edge_book(self.dataset.edge_type(edge_type))
        return self._bounded(book, "get_edge_partition_book")

    # --- rows --------------------------------------------------------------------------------

    def get_node_feature(self, node_type: str | None = None, index: Any = None) -> Array | None:
        if not self._has_features(node_type):
            return None
        return self.get_node_attribute("x", node_type, index)

    def get_node_label(self, node_type: str | None = None, index: Any = None) -> Array:
        return self.get_node_attribute("y", node_type, index)

    def get_tensor_size(self, node_type: str | None = None) -> Shape | None:
        if not self._has_features(node_type):
            return None
        return self.dataset.graph.node_attributes(self.dataset.node_type(node_type))["x"].shape

    def _has_features(self, node_type: str | None) -> bool:
        return "x" in self.dataset.graph.node_attributes(self.dataset.node_type(node_type))

    def get_node_attribute(
        self,
        name: str,
        node_type: str | None = None,
        index: Any = None,
        *,
        stored: bool = False,
    ) -> Array:
        kind = self.dataset.node_type(node_type)
        graph = self.dataset.graph
        column = pick("node attribute", name, kind, graph.node_attributes(kind))
        source = graph.node_features(name, kind, stored=stored)
        codec = None if stored else graph.node_codec(name, kind)
        return self._rows(column, source, codec, index, name)

    def get_edge_attribute(
        self,
        name: str,
        edge_type: EdgeType | None = None,
        index: Any = None,
        *,
        stored: bool = False,
    ) -> Array:
        kind = self.dataset.edge_type(edge_type)
        graph = self.dataset.graph
        column = pick("edge attribute", name, kind, graph.edge_attributes(kind))
        source = graph.edge_features(name, kind, stored=stored)
        codec = None if stored else graph.edge_codec(name, kind)
        return self._rows(column, source, codec, index, name)

    def get_graph_attribute(self, name: str, owner: str | EdgeType | None = None) -> Any:
        found = self.dataset.graph.graph_attributes(owner or None)
        if name not in found:
            there = ", ".join(map(repr, found)) or "none"
            raise ValueError(f"there is no graph attribute called {name!r}; there are: {there}")
        value = found[name]
        if isinstance(value, np.ndarray):
            self._check_size(value.nbytes, f"get_graph_attribute({name!r})")
        return value

    # --- edges -------------------------------------------------------------------------------

    def get_edge_index(
        self,
        edge_type: EdgeType | None = None,
        layout: str = "coo",
        first: int = 0,
        count: int | None = None,
    ) -> Ids:
        check_layout(layout)
        kind = self.dataset.edge_type(edge_type)
        size = self.dataset.graph.num_own_edges(kind)
        if first < 0 or (count is not None and count < 0):
            raise ValueError(f"first is {first} and count {count}; expected neither below 0")
        end = size if count is None else min(size, first + count)
        self._check_size(2 * _ID_BYTES * max(0, end - first), "get_edge_index", "first and count")
        return self._edges(kind, first, end)

    def get_edge_size(
        self, edge_type: EdgeType | None = None, layout: str = "coo"
    ) -> tuple[int, int]:
        check_layout(layout)
        kind = self.dataset.edge_type(edge_type)
        source, destination = (self.dataset.node_book(name).size for name in (kind[0], kind[2]))
        return source, destination

    def _edges(self, kind: EdgeType, first: int, end: int) -> Ids:
        (whole,) = self.dataset.graph.derived(Coo(kind))  # computed once and kept
        piece: Ids = whole.array[:, first:end]
        return piece

    # --- bounds ------------------------------------------------------------------------------

    def _rows(
        self,
        column: SharedArray,
        source: FeatureSource,
        codec: Codec | None,
        index: Any,
        name: str,
    ) -> Array:
        ids = None if index is None else list_of_ids(index)
        wanted = column.shape[0] if ids is None else len(ids)
        nbytes = array_nbytes(source.dtype, (wanted, *source.row_shape))
        self._check_size(nbytes, f"{wanted} rows of {name!r}", "fewer ids")
        if ids is not None:
            return source.gather(ids)
        return column.array if codec is None else codec.decode(column.array)

    def _bounded(self, book: PartitionBook, verb: str) -> PartitionBook:
        self._check_size(getattr(getattr(book, "parts", None), "nbytes", 0), verb)
        return book

    def _check_labels(self, nbytes: int) -> None:
        self._check_size(nbytes, "get_ablp_input", "a server_slice, or fewer max_labels")

    def _check_size(self, nbytes: int, what: str, instead: str | None = None) -> None:
        if nbytes > self._most:
            advice = f"; ask by {instead}" if instead else ""
            raise ValueError(
                f"{what}: the answer has {nbytes} bytes, and the most is {self._most} "
                f"(setting: max_answer_bytes){advice}"
            )

    def _check_slice(self, piece: ServerSlice | None) -> None:
        if piece is None or self.dataset.num_partitions == 1:
            return
        if piece.server_rank != self.dataset.number:
            raise ValueError(
                f"server_slice is of server {piece.server_rank}; this one has part "
                f"{self.dataset.number} of {self.dataset.num_partitions}"
            )


def check_split(split: Any) -> None:
    """Raise `ValueError` unless this is a known split, or None."""
    if split is not None and split not in SPLITS:
        raise ValueError(f"split is {split!r}; expected one of {', '.join(SPLITS)}, or None")


def check_layout(layout: Any) -> None:
    """Raise `ValueError` unless the layout is "coo"."""
    if layout != "coo":
        raise ValueError(f"layout is {layout!r}; expected 'coo'")


def _info(source: FeatureSource) -> FeatureInfo:
    return FeatureInfo(math.prod(source.row_shape), source.dtype)


def _required(index: Any) -> Any:
    if index is None:
        raise ValueError("index is missing; expected ids")
    return index
