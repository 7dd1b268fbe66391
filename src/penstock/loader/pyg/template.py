"""What the batches of a source consist of, before anything is sampled.

A batch starts as a blank: an object of the user's class with everything that belongs to the graph
as a whole. Attributes with a row per node or edge are replaced by the rows of the batch. This
module does not know where the rows come from, nor what else a batch has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader.utils import index_select

from penstock.graph import EdgeType
from penstock.graph.schema import SPLITS, link_times_name, links_name
from penstock.graph.view import GraphView
from penstock.loader.pyg.tensors import tensor_over
from penstock.sampling.names import Owner

_LINKS: Final = frozenset(name(split) for split in SPLITS for name in (links_name, link_times_name))

Nodes = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """An attribute with a row for each node, or each edge, of a type.

    `device` is the user's device for it, if not the CPU. `value` is the attribute itself if a graph
    cannot hold it: then its rows are cut out here, along `dim`.
    """

    owner: Owner
    name: str
    device: torch.device | None = None
    value: Any = None
    dim: int = 0

    @property
    def of_edges(self) -> bool:
        return isinstance(self.owner, tuple)

    def cut(self, ids: Tensor) -> Any:
        """Return the rows of these nodes or edges out of `value`."""
        match self.value:
            case list() | tuple():
                return [self.value[place] for place in ids.tolist()]
            case np.ndarray() if self.value.dtype.kind not in "biufc":  # strings, for example
                return np.take(self.value, ids.numpy(), axis=self.dim)
            case Tensor():
                return index_select(self.value, ids.to(self.value.device), self.dim)
            case _:
                return index_select(self.value, ids, self.dim)


@dataclass(frozen=True, slots=True, eq=False)
class Ends:
    """How the edges of a type were given, and are to be given back."""

    dtype: torch.dtype = torch.int64
    device: torch.device | None = None

    def like(self, edge_index: Tensor) -> Tensor:
        if self.device is None and edge_index.dtype == self.dtype:
            return edge_index
        return edge_index.to(self.device or edge_index.device, self.dtype)

    def put(
        self, store: Any, ends: Tensor | None, ids: Tensor | None, nodes: tuple[int, int]
    ) -> None:
        """Set the edges of a batch by their ends; None: the batch has none of this type."""
        store["edge_index"] = None if ends is None else self.like(ends)


def is_of_nodes(row: Row) -> bool:
    """Return whether the graph has a row for each node, and the user wants it where batches are."""
    return not row.of_edges and row.value is None and row.device is None


def _nothing_more(data: Any, nodes: Nodes) -> None:
    """Add nothing, as most templates do."""


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """What a source's batches consist of.

    `ends` has the edge types whose batches have an `edge_index`, `counted` the node types whose
    batches have `num_nodes`, both in the graph's order. `complete` adds to a batch what depends on
    its nodes.
    """

    is_hetero: bool
    blank: Callable[[], Any]
    rows: tuple[Row, ...]
    ends: Mapping[EdgeType, Ends]
    counted: tuple[str, ...]
    complete: Callable[[Any, Nodes], None] = field(default=_nothing_more)


def template_of(graph: GraphView, custom_cls: Callable[[], Any] | None = None) -> Template:
    """Return the template of a graph that has no PyG data, with all its attributes."""
    rows = [Row(kind, name) for kind in graph.node_types for name in graph.node_attributes(kind)]
    rows += [Row(kind, name) for kind in graph.edge_types for name in graph.edge_attributes(kind)]
    owners: list[Owner] = [""]
    if graph.is_hetero:
        owners += [*graph.node_types, *graph.edge_types]
    # Made once: all batches get the same objects, as in PyG.
    wholes = {owner: _wholes(graph, owner) for owner in owners}
    make = custom_cls or (HeteroData if graph.is_hetero else Data)

    def blank() -> Any:
        data = make()
        for owner, attributes in wholes.items():
            store = store_of(data, owner)  # made here, so that types come in the graph's order
            for name, value in attributes.items():
                store[name] = value
        return data

    ends = {kind: Ends() for kind in graph.edge_types}
    return Template(graph.is_hetero, blank, tuple(rows), ends, graph.node_types)


class Stores(dict[Owner, Any]):
    """The stores of one batch by type, each looked up once."""

    def __init__(self, data: Any) -> None:
        super().__init__()
        self._data = data

    def __missing__(self, owner: Owner) -> Any:
        store = self[owner] = store_of(self._data, owner)
        # PyG looks for this cache whenever an attribute is set. To find none takes it microseconds.
        vars(store).setdefault("_cached_attr", defaultdict(set))
        return store


def store_of(data: Any, owner: Owner) -> Any:
    """Return the store of a type; the empty owner is that of a homogeneous batch or the graph.

    A `HeteroData` is not indexed: it would take a node type without a store for the relation of
    that name.
    """
    if not any(owner):
        return data.stores[0]
    if not isinstance(data, HeteroData):
        return data[owner]
    return data.get_node_store(owner) if isinstance(owner, str) else data.get_edge_store(*owner)


def _wholes(graph: GraphView, owner: Owner) -> dict[str, Any]:
    """Return what belongs to a type, or the graph, as a whole.

    A graph's own arrays are read-only, so they are copied. Links of splits are inputs of loaders,
    and no batch has all of them.
    """
    arrays = {
        key.name: array
        for key, array in graph.arrays.items()
        if (key.group, key.type) == ("graph", owner)
    }
    return {
        name: tensor_over(arrays[name].array.copy(), arrays[name].dtype)
        if name in arrays
        else value
        for name, value in graph.graph_attributes(owner or None).items()
        if name not in _LINKS
    }
