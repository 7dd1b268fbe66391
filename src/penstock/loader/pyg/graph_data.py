"""A graph as PyG reads a loader's `data`: `data.num_nodes`, `data.x`, `data["paper"].x`.

PyG's `model.inference(loader)`, and scripts like it, take the features of all nodes from
`loader.data`. A `Graph`, a hub or a server answers here: an attribute is copied, or fetched from a
server, when it is asked for, and nothing else is.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final, NoReturn

import numpy as np
import torch
from torch import Tensor

from penstock.errors import PenstockError
from penstock.graph import EdgeType
from penstock.graph.dtypes import storage_dtype
from penstock.graph.features import FeatureSource
from penstock.graph.schema import EDGE, NODE
from penstock.graph.view import ArrayView, GraphView
from penstock.loader.pyg.tensors import tensor_over
from penstock.sampling.names import Owner

# What is asked of a server at once: answers are limited, and other ranks wait meanwhile.
_CHUNK_BYTES: Final = 64 << 20


class TypeData:
    """The attributes of a node type, or of an edge type: tensors with a row for each.

    They are copies, since a graph's memory is read-only, which torch does not know of a tensor: to
    write to it would end the process.
    """

    def __init__(self, graph: GraphView, owner: Owner) -> None:
        self._graph, self._owner = graph, owner
        # What somebody keeps is not copied or fetched again.
        self._kept: weakref.WeakValueDictionary[str, Tensor] = weakref.WeakValueDictionary()

    @property
    def num_nodes(self) -> int:
        """The number of nodes of this type."""
        return self._graph.num_nodes(self._node_type)

    @property
    def num_edges(self) -> int:
        """The number of edges of this type."""
        return self._graph.num_edges(self._edge_type)

    @property
    def num_node_features(self) -> int:
        """The number of columns of `x`; 0 without one, as in PyG."""
        return (*self._arrays["x"].shape, 1)[1] if "x" in self._arrays else 0

    num_features = num_node_features

    @property
    def edge_index(self) -> Tensor:
        """All edges of this type, in the order of their ids."""
        return torch.from_numpy(np.array(self._graph.edge_index(self._edge_type)))

    def keys(self) -> list[str]:
        """Return the names of the attributes."""
        return [*self._arrays, *(["edge_index"] if isinstance(self._owner, tuple) else [])]

    def __contains__(self, name: str) -> bool:
        return name in self.keys()

    def __getitem__(self, name: str) -> Tensor:
        found: Tensor = getattr(self, name)
        return found

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("_") or name not in self._arrays:
            raise AttributeError(f"no attribute {name!r}; there are {', '.join(self.keys())}")
        found = self._kept.get(name)
        if found is None:
            found = self._kept[name] = self._read(name)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return TypeData, (self._graph, self._owner)

    @property
    def _arrays(self) -> Mapping[str, ArrayView]:
        if isinstance(self._owner, tuple):
            return self._graph.edge_attributes(self._edge_type)
        return self._graph.node_attributes(self._node_type)

    @property
    def _node_type(self) -> str | None:
        if isinstance(self._owner, tuple):
            raise AttributeError(f"{self._owner!r} is an edge type")
        return self._owner or None

    @property
    def _edge_type(self) -> EdgeType | None:
        if isinstance(self._owner, str):
            raise AttributeError(f"{self._owner!r} is a node type")
        return self._owner if any(self._owner) else None

    def _read(self, name: str) -> Tensor:
        if self._graph.part is not None:
            what = "edges" if isinstance(self._owner, tuple) else "nodes"
            raise PenstockError(
                f"this is {self._graph.part}, and ids are those of the whole graph: there is no "
                f"{name!r} of all {what}. Ask for the rows of some: by the graph's node_features "
                "and edge_features, or by a dataset's get_node_attribute and get_edge_attribute"
            )
        if isinstance(self._owner, tuple):
            source = self._graph.edge_features(name, self._edge_type)
        else:
            source = self._graph.node_features(name, self._node_type)
        found = self._arrays[name]
        if self._graph.address is None and source.dtype == found.dtype:
            return tensor_over(np.array(found.array), found.dtype)
        return _gathered(source)


class GraphData:
    """What a loader's `data` is where a loader was given no data of PyG's.

    It has what PyG's `Data` has of all nodes and edges: their numbers, and attributes by name. In a
    heterogeneous graph these are found by type: `data["paper"].x`, `data.x_dict`. Everything else
    is that of what the loader was given, or else of its graph, such as `node_types` and
    `metadata()`. It can be given to other loaders.
    """

    def __init__(self, given: Any, graph: GraphView) -> None:
        self.__dict__.update(_given=given, _graph=graph)
        owners: list[Owner] = [*graph.node_types, *graph.edge_types]
        self.__dict__["_types"] = {owner: TypeData(graph, owner) for owner in owners}

    @property
    def num_nodes(self) -> int:
        """The number of all nodes."""
        return int(self._graph.num_nodes())

    @property
    def num_edges(self) -> int:
        """The number of all edges."""
        return int(self._graph.num_edges())

    def keys(self) -> list[str]:
        """Return the names of all attributes, of any type."""
        found = chain.from_iterable(each.keys() for each in self._types.values())
        return list(dict.fromkeys([*found, *self._graph.graph_attributes()]))

    def __contains__(self, name: str) -> bool:
        return name in self.keys()

    def __getitem__(self, key: Any) -> Any:
        if self._graph.is_hetero and (owner := _one_of(key)) in self._types:
            return self._types[owner]
        return getattr(self, key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if not self._graph.is_hetero:
            for owner in (NODE, EDGE):
                if name in self._types[owner] or name in ("num_features", "num_node_features"):
                    return getattr(self._types[owner], name)
        elif name.endswith("_dict") and (by_type := self._by_type(name.removesuffix("_dict"))):
            return by_type
        whole = self._graph.graph_attributes()
        if name in whole:
            return whole[name]
        is_place = isinstance(self._given, str | os.PathLike)
        # A connection has no types of its own: it asks the server for them, by other names.
        has = not is_place and hasattr(self._given, name)
        return getattr(self._given if has else self._graph, name)

    def _by_type(self, name: str) -> dict[Owner, Tensor]:
        return {owner: each[name] for owner, each in self._types.items() if name in each}

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{name} cannot be set: {_FIXED}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name} cannot be deleted: {_FIXED}")

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphData, (self._given, self._graph)

    def __repr__(self) -> str:
        return f"GraphData({self._given!r})"


_FIXED: Final = (
    "the data of this loader are a graph that workers and other loaders read. Change its "
    "batches by transform"
)


def _one_of(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


def _gathered(source: FeatureSource) -> Tensor:
    """Return all rows of an attribute, which are at a server or to be decoded, some at a time."""
    rows = np.empty((source.num_rows, *source.row_shape), storage_dtype(source.dtype))
    step = max(_CHUNK_BYTES * max(len(rows), 1) // max(rows.nbytes, 1), 1)
    for first in range(0, len(rows), step):
        there = rows[first : first + step]
        source.gather(np.arange(first, first + len(there)), out=there)
    return tensor_over(rows, source.dtype)
