"""A server's data, as torch sees it: ids, labels, features, and where batches come from.

    data = penstock.connect("tcp://host:7070")
    loader = penstock.NeighborLoader(data, [10, 10], input_nodes="train", batch_size=1024)

Batches are the same, byte for byte, as those of a loader that has the graph itself. On the server's
own host they come by shared memory, without anybody asking for it.
"""

from __future__ import annotations

import socket
import weakref
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from penstock.client.deadline import Deadline, positive_seconds
from penstock.client.hub.hub import PATIENCE_S, Provider
from penstock.client.remote.dist_server import RemoteDistServer
from penstock.client.remote.endpoint import Endpoint
from penstock.client.remote.hub import RemoteHub
from penstock.client.remote.same_host import hub_on_this_host
from penstock.client.remote.store import Store
from penstock.core.slices import ServerSlice
from penstock.graph import EdgeType, Graph
from penstock.graph.dtypes import storage_dtype
from penstock.graph.partition.book import PartitionBook
from penstock.loader.pyg.tensors import array_of, tensor_over
from penstock.wire.messages import PartitionNote
from penstock.wire.requests import (
    DatasetMeta,
    FeatureInfo,
    FetchABLPInputRequest,
    FetchNodesRequest,
)
from penstock.wire.transport.tls import StrPath


class RemoteDistDataset:
    """What a server holds. Made by `penstock.connect`; loaders take it as `data`.

    The methods are `DistServer`'s, by the same names; arrays are tensors here. `server` has them
    all, with NumPy's arrays. `provider` is where batches come from, `graph` what is known of the
    graph: all of it on the server's own host, elsewhere all but its numbers.
    """

    def __init__(self, store: Store, provider: Provider) -> None:
        self.provider = provider
        self.server = RemoteDistServer(store)
        self._store = store

    @property
    def address(self) -> str:
        """The server's."""
        return self._store.endpoint.address

    @property
    def graph(self) -> Graph:
        """What is known of the graph."""
        return self.provider.graph

    @property
    def partition(self) -> PartitionNote:
        """Which part of a graph the server holds."""
        return self._store.welcome.partition

    @property
    def is_on_this_host(self) -> bool:
        """Whether batches come by shared memory."""
        return not isinstance(self.provider, RemoteHub)

    # --- inputs ------------------------------------------------------------------------------

    def get_node_ids(
        self,
        split: str | FetchNodesRequest | None = None,
        node_type: str | None = None,
        server_slice: ServerSlice | None = None,
    ) -> Tensor:
        """The ids of a split, or of all nodes; of them, a slice."""
        return _tensor(self.server.get_node_ids(split, node_type, server_slice))

    def get_ablp_input(
        self,
        split: str | FetchABLPInputRequest | None = None,
        node_type: str | None = None,
        supervision_edge_type: EdgeType | None = None,
        server_slice: ServerSlice | None = None,
        **labels: Any,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Anchors [N], their labels [N, M] and [N, K] or None, padded with -1.

        `labels`: `positive`, `negative`, `max_labels`, as `DistServer` has them.
        """
        found = self.server.get_ablp_input(
            split, node_type, supervision_edge_type, server_slice, **labels
        )
        negative = None if found.negative is None else _tensor(found.negative)
        return _tensor(found.anchors), _tensor(found.positive), negative

    # --- rows --------------------------------------------------------------------------------

    def get_node_feature(self, node_type: str | None = None, index: Any = None) -> Tensor:
        """Rows of `x`; all of them, if no ids are given."""
        return _tensor(self.server.get_node_feature(node_type, _ids(index)))

    def get_node_label(self, node_type: str | None = None, index: Any = None) -> Tensor:
        """Rows of `y`."""
        return _tensor(self.server.get_node_label(node_type, _ids(index)))

    def get_node_attribute(
        self, name: str, node_type: str | None = None, index: Any = None
    ) -> Tensor:
        """Rows of any attribute of nodes."""
        return _tensor(self.server.get_node_attribute(name, node_type, _ids(index)))

    def get_edge_attribute(
        self, name: str, edge_type: EdgeType | None = None, index: Any = None
    ) -> Tensor:
        """Rows of any attribute of edges."""
        return _tensor(self.server.get_edge_attribute(name, edge_type, _ids(index)))

    def get_edge_index(
        self,
        edge_type: EdgeType | None = None,
        layout: str = "coo",
        first: int = 0,
        count: int | None = None,
    ) -> Tensor:
        """The ends of edges, [2, edges], in the order of their ids."""
        return _tensor(self.server.get_edge_index(edge_type, layout, first, count))

    def get_node_partition_id(self, node_type: str | None = None, index: Any = None) -> Tensor:
        """The part that each node belongs to."""
        return _tensor(self.server.get_node_partition_id(node_type, _ids(index)))

    # --- in short ----------------------------------------------------------------------------

    def get_dataset_meta(self) -> DatasetMeta:
        """What the server holds, in short."""
        return self.server.get_dataset_meta()

    def get_node_types(self) -> list[str] | None:
        """None for a homogeneous graph."""
        return self.server.get_node_types()

    def get_edge_types(self) -> list[EdgeType] | None:
        """None for a homogeneous graph."""
        return self.server.get_edge_types()

    def get_edge_dir(self) -> str:
        """Which edges a node's neighbours are sampled along: "in" or "out"."""
        return self.server.get_edge_dir()

    def get_tensor_size(self, node_type: str | None = None) -> torch.Size:
        """The shape of `x`."""
        return torch.Size(self.server.get_tensor_size(node_type))

    def get_edge_size(
        self, edge_type: EdgeType | None = None, layout: str = "coo"
    ) -> tuple[int, int]:
        """How many nodes there are at either end."""
        return self.server.get_edge_size(edge_type, layout)

    def get_node_feature_info(self) -> FeatureInfo | dict[str, FeatureInfo] | None:
        """Width and dtype of `x`, by type."""
        return self.server.get_node_feature_info()

    def get_edge_feature_info(self) -> FeatureInfo | dict[EdgeType, FeatureInfo] | None:
        """Width and dtype of `edge_attr`, by type."""
        return self.server.get_edge_feature_info()

    def get_node_partition_book(self, node_type: str | None = None) -> PartitionBook:
        """Which part each node belongs to."""
        return self.server.get_node_partition_book(node_type)

    def get_edge_partition_book(self, edge_type: EdgeType | None = None) -> PartitionBook:
        """Which part each edge belongs to."""
        return self.server.get_edge_partition_book(edge_type)

    def statistics(self) -> dict[str, Any]:
        """The server's numbers."""
        return self.server.statistics()

    # --- the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Takes leave of the server. Loaders are closed by themselves. Idempotent."""
        self.provider.close()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a RemoteDistDataset cannot be pickled: send its address, and call "
            "penstock.connect(address) over there"
        )

    def __repr__(self) -> str:
        way = "by shared memory" if self.is_on_this_host else "by TCP"
        return f"RemoteDistDataset({self.address!r}, {way})"


def connect(
    address: str,
    *,
    ca: StrPath | None = None,
    certificate: StrPath | None = None,
    key: StrPath | None = None,
    server_name: str | None = None,
    token: str | None = None,
    same_host: bool = True,
    timeout: float | None = 30.0,
    patience: float = PATIENCE_S,
    name: str = "",
) -> RemoteDistDataset:
    """The server at `address`, "tcp://host:port" or "tls://host:port"; waits for it, at most
    `timeout` seconds.

    ca                who must have signed the server's certificate, a file in PEM; without one, an
                      authority that this system trusts
    certificate, key  our own, files in PEM, where the server lets in only those it knows
    server_name       the name in the server's certificate, if it is not that in the address
    token             where the server asks for one
    same_host         whether to go by shared memory if the server is on this host
    patience          seconds to wait for a server that was lost; then `ServerGone`
    name              who we are, for people
    """
    endpoint = Endpoint.at(
        address,
        ca=ca,
        certificate=certificate,
        key=key,
        server_name=server_name,
        token=token,
        name=name or socket.gethostname(),
    )
    store, deadline = Store(endpoint, positive_seconds(patience, "patience")), Deadline(timeout)
    try:
        store.connect(deadline)
        provider = hub_on_this_host(store, deadline) if same_host else None
        return RemoteDistDataset(store, provider or RemoteHub(store))
    except BaseException:
        store.close()
        raise


# What this process has connected to by `init_compute_process`.
_here: weakref.WeakSet[RemoteDistDataset] = weakref.WeakSet()


def init_compute_process(address: str, **options: Any) -> RemoteDistDataset:
    """A rank of a training job begins: connects to the server, as `connect` does.

    Ranks are not counted, and wait for nobody. Whoever has begun so ends by
    `shutdown_compute_process`, or simply ends.
    """
    dataset = connect(address, **options)
    _here.add(dataset)
    return dataset


def shutdown_compute_process(*datasets: RemoteDistDataset) -> None:
    """A rank leaves: takes leave of these servers, or of all it has begun with. Idempotent.

    The server stays, and the other ranks notice nothing. Loaders are to be closed before.
    """
    for dataset in datasets or tuple(_here):
        _here.discard(dataset)
        dataset.close()


def _tensor(array: Any) -> Tensor:
    found = np.asarray(array)
    is_bfloat16 = found.dtype == storage_dtype("bfloat16")
    return tensor_over(found, "bfloat16" if is_bfloat16 else None)


def _ids(index: Any) -> Any:
    return None if index is None else array_of(index)
