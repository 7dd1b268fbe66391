"""PyG's `Data` and `HeteroData` as sources: what goes into a graph, and what stays as it is.

PyG itself says what belongs to nodes and what to edges. What does, and what a graph can hold, goes
into shared memory and comes back in batches, gathered by the workers; what lies in a file that
they can map stays there. What a graph cannot hold (sparse or complex tensors, frames, lists of
words, what is cut along another dimension, what wants gradients) stays with the user, and its rows
are cut out here; so does what is in a file that nobody else can map. All else is the graph's as a
whole.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from penstock.graph import EdgeType, check
from penstock.graph.draft import Draft
from penstock.graph.schema import EDGE, NODE, ArrayKey
from penstock.graph.tensors import plain
from penstock.loader.pyg.matrix import Matrix, is_sparse
from penstock.loader.pyg.template import Ends, Row, Template
from penstock.loader.source.changes import OF_THE_GRAPH, Changes
from penstock.loader.source.mapped_files import FiledDraft, MappedFiles
from penstock.sampling.names import Owner

_MASKS: Final = {f"{split}_mask": split for split in ("train", "val", "test")}


@dataclass(frozen=True, slots=True, eq=False)
class _Store:
    """One of PyG's stores, and whose it is: that of a homogeneous graph has both types."""

    data: Any
    store: Any
    label: str
    node_type: str | None = None
    edge_type: EdgeType | None = None

    @property
    def owner(self) -> Owner:
        """What a batch has the store under; that of the whole is nobody's."""
        return self.node_type if self.node_type is not None else self.edge_type or NODE

    def rows(self, files: MappedFiles) -> Iterator[Row]:
        """What has a row for each node or edge; where a graph can hold it, without its value."""
        for name, value in self.store.items():
            row = self.row_of(name, value)
            if row is not None and _can_be_shared(name, value, row.dim, files):
                device = value.device if isinstance(value, Tensor) else None
                yield Row(row.owner, name, None if device == torch.device("cpu") else device)
            elif row is not None:
                yield row

    def row_of(self, name: str, value: Any) -> Row | None:
        """An attribute with its value, if it has a row for each node or edge."""
        if value is None or name in OF_THE_GRAPH:
            return None
        if self.node_type is not None and self.store.is_node_attr(name):
            return Row(self.node_type, name, value=value, dim=self._dim(name, value))
        if self.edge_type is not None and self.store.is_edge_attr(name):
            return Row(self.edge_type, name, value=value, dim=self._dim(name, value))
        return None

    def _dim(self, name: str, value: Any) -> int:
        dim = self.data.__cat_dim__(name, value, self.store)
        return dim if isinstance(dim, int) else 0


def read_data(data: Any) -> tuple[Draft, Template]:
    """What `data` says of its graph, and what its batches are like."""
    stores = list(_stores(data))
    is_hetero = isinstance(data, HeteroData)
    draft = FiledDraft(is_hetero=is_hetero)
    for found in stores:
        _add_nodes(draft, found)
    for found in stores:
        _add_edges(draft, found)
    rows = [(found, row) for found in stores for row in found.rows(draft.files)]
    for found, row in rows:
        if row.value is None:
            _add_column(draft, found, row)
    whole = [_Store(data, data.stores[0], "data")] if is_hetero else []
    changes = Changes(
        [*whole, *stores], {(row.owner, row.name) for _, row in rows if row.value is None}
    )
    # As it is now: what becomes of it later is shown by the changes.
    model = copy.copy(data)
    return draft, Template(
        is_hetero,
        lambda: copy.copy(model),
        tuple(row for _, row in rows),
        {found.edge_type: ends for found in stores if found.edge_type and (ends := _ends(found))},
        frozenset(
            found.node_type
            for found in stores
            if found.node_type is not None and "num_nodes" in found.store
        ),
        changes.show,
    )


def _stores(data: Any) -> Iterator[_Store]:
    if isinstance(data, Data):
        yield _Store(data, data.stores[0], "data", NODE, EDGE)
        return
    for name, store in data.node_items():
        yield _Store(data, store, f"data[{name!r}]", node_type=check.node_type("data", name))
    for name, store in data.edge_items():
        kind = check.edge_type("data", name)
        yield _Store(data, store, f"data[{', '.join(map(repr, kind))}]", edge_type=kind)


def _add_nodes(draft: Draft, found: _Store) -> None:
    if found.node_type is None:
        return
    draft.mention(found.node_type)
    # Where nothing tells, PyG says so in a warning, and the draft goes by the edges.
    count = found.store.num_nodes
    if count is not None:
        draft.add_count(found.node_type, f"{found.label}.num_nodes", count)


def _add_edges(draft: Draft, found: _Store) -> None:
    if found.edge_type is None:
        return
    draft.mention(found.edge_type[0])
    draft.mention(found.edge_type[2])
    ends = _ends(found)
    edges = ends.edges if isinstance(ends, Matrix) else _plain_edges(found)
    if edges is None:
        edges = np.empty((2, 0), np.int64)
    draft.add_edges(found.edge_type, f"{found.label}.edge_index", edges)


def _plain_edges(found: _Store) -> Any:
    edges = found.store.get("edge_index")
    return edges.as_tensor() if hasattr(edges, "as_tensor") else edges  # PyG's EdgeIndex


def _ends(found: _Store) -> Ends | None:
    """How edges are given: PyG looks for a matrix first."""
    for name in ("adj", "adj_t"):
        matrix = found.store.get(name)
        if name == "adj_t" and is_sparse(matrix):
            return Matrix.of(matrix)
        if matrix is not None:
            raise ValueError(
                f"{found.label} has {name}, a matrix that is not read; give the edges as "
                "edge_index, or as adj_t, a sparse tensor of torch's own, whose order names them"
            )
    edges = _plain_edges(found)
    if edges is None:
        return None
    if not isinstance(edges, Tensor):
        return Ends()
    return Ends(edges.dtype, edges.device if edges.device.type != "cpu" else None)


def _add_column(draft: Draft, found: _Store, row: Row) -> None:
    label, value = f"{found.label}.{row.name}", found.store[row.name]
    group, column = "edge" if row.of_edges else "node", plain(label, value)
    draft.add_column(ArrayKey(group, row.owner, row.name), column)  # type: ignore[arg-type]
    split = _MASKS.get(row.name)
    if split and group == "node" and column.dtype == "bool" and len(column.shape) == 1:
        draft.add_split(str(row.owner), split, label, value)


def _can_be_shared(name: str, value: Any, dim: int, files: MappedFiles) -> bool:
    """Whether a graph can hold it, and give back the same."""
    if not check.is_name(name):
        return False
    if isinstance(value, Tensor) and (value.requires_grad or type(value) not in _PLAIN):
        return False
    if not isinstance(value, Tensor | np.ndarray) or dim % value.ndim != 0:
        return False
    try:
        column = plain(name, value).array
    except ValueError:
        return False
    # In a file, but one that only this process can read: to copy it might be too much. A vector is
    # copied all the same, since sampling may go by it: times, weights, masks.
    region = files.region_of(column) if column.ndim > 1 else None
    return region is None or region.place_of(column) is not None


# Those of other classes (PyG's Index, quantized ones) would come back as something else.
_PLAIN: Final = (Tensor, torch.nn.Parameter)
