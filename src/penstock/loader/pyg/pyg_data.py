"""PyG's `Data` and `HeteroData` as sources: what goes into a graph, and what stays as it is.

PyG itself says which attributes belong to nodes and which to edges. Those that a graph can hold go
into shared memory, and the workers gather their rows; those in a file that workers can map stay in
the file. Attributes that a graph cannot hold (sparse or complex tensors, frames, lists of strings,
attributes cut along another dimension or requiring gradients) stay with the user, and their rows
are cut out here; so are those in a file that no other process can map. Everything else belongs to
the graph as a whole.
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
from penstock.graph.coo import are_dates, times
from penstock.graph.draft import Draft
from penstock.graph.pyg import is_edge_attr, is_node_attr
from penstock.graph.schema import EDGE, NODE, ArrayKey
from penstock.graph.tensors import PlainArray, plain
from penstock.loader.pyg.matrix import Matrix, is_sparse
from penstock.loader.pyg.template import Ends, Row, Template
from penstock.loader.source.changes import OF_THE_GRAPH, Changes
from penstock.loader.source.mapped_files import FiledDraft, MappedFiles
from penstock.sampling.names import Owner

_MASKS: Final = {f"{split}_mask": split for split in ("train", "val", "test")}


@dataclass(frozen=True, slots=True, eq=False)
class _DataStore:
    """One of PyG's stores and its types; the store of a homogeneous graph has both types."""

    data: Any
    store: Any
    label: str
    node_type: str | None = None
    edge_type: EdgeType | None = None

    @property
    def owner(self) -> Owner:
        """The name of the store in a batch; the store of the whole graph has the empty name."""
        return self.node_type if self.node_type is not None else self.edge_type or NODE

    def rows(self, files: MappedFiles) -> Iterator[Row]:
        """Yield attributes with a row per node or edge, without value if a graph can hold it."""
        for name, value in self.store.items():
            row = self.row_of(name, value)
            if row is not None and _can_be_shared(name, value, row.dim, files):
                device = value.device if isinstance(value, Tensor) else None
                yield Row(row.owner, name, None if device == torch.device("cpu") else device)
            elif row is not None:
                yield row

    def row_of(self, name: str, value: Any) -> Row | None:
        """Return an attribute with its value if it has a row per node or edge, else None."""
        if value is None or name in OF_THE_GRAPH:
            return None
        if self.node_type is not None and is_node_attr(self.store, name, value):
            return Row(self.node_type, name, value=value, dim=self._dim(name, value))
        if self.edge_type is not None and is_edge_attr(self.store, name, value):
            return Row(self.edge_type, name, value=value, dim=self._dim(name, value))
        return None

    def _dim(self, name: str, value: Any) -> int:
        dim = self.data.__cat_dim__(name, value, self.store)
        return dim if isinstance(dim, int) else 0


def read_data(data: Any) -> tuple[Draft, Template]:
    """Return the draft of the graph that `data` describes, and the template of its batches."""
    stores = list(_stores(data))
    is_hetero = isinstance(data, HeteroData)
    draft = FiledDraft(is_hetero=is_hetero)
    for found in stores:
        _add_nodes(draft, found)
    for found in stores:
        _add_edges(draft, found)
    draft.warn_of_no_edges()
    rows = [(found, row) for found in stores for row in found.rows(draft.files)]
    for found in stores:
        _warn_of_labels(found)
    for found, row in rows:
        if row.value is None:
            _add_column(draft, found, row)
    whole = [_DataStore(data, data.stores[0], "data")] if is_hetero else []
    changes = Changes(
        [*whole, *stores], {(row.owner, row.name) for _, row in rows if row.value is None}
    )
    # The data as they are now; `Changes` shows in batches what happens to them later.
    model = copy.copy(data)
    return draft, Template(
        is_hetero,
        lambda: copy.copy(model),
        tuple(row for _, row in rows),
        {found.edge_type: ends for found in stores if found.edge_type and (ends := _ends(found))},
        tuple(
            found.node_type
            for found in stores
            if found.node_type is not None and "num_nodes" in found.store
        ),
        changes.show,
    )


def _stores(data: Any) -> Iterator[_DataStore]:
    if isinstance(data, Data):
        yield _DataStore(data, data.stores[0], "data", NODE, EDGE)
        return
    for name, store in data.node_items():
        yield _DataStore(data, store, f"data[{name!r}]", node_type=check.node_type("data", name))
    for name, store in data.edge_items():
        kind = check.edge_type("data", name)
        yield _DataStore(data, store, f"data[{', '.join(map(repr, kind))}]", edge_type=kind)


def _add_nodes(draft: Draft, found: _DataStore) -> None:
    if found.node_type is None:
        return
    draft.mention(found.node_type)
    # If nothing gives a count, PyG warns, and the draft derives it from the edges.
    count = found.store.num_nodes
    if count is not None:
        draft.add_count(found.node_type, f"{found.label}.num_nodes", count)


def _add_edges(draft: Draft, found: _DataStore) -> None:
    if found.edge_type is None:
        return
    draft.mention(found.edge_type[0])
    draft.mention(found.edge_type[2])
    ends = _ends(found)
    edges = ends.edges if isinstance(ends, Matrix) else _plain_edges(found)
    if edges is None:
        edges = np.empty((2, 0), np.int64)
    draft.add_edges(found.edge_type, f"{found.label}.edge_index", edges)


def _warn_of_labels(found: _DataStore) -> None:
    y = found.store.get("y")
    if found.node_type is not None and y is not None and found.row_of("y", y) is None:
        check.warn_of_labels(f"{found.label}.y", y, found.store.num_nodes)


def _plain_edges(found: _DataStore) -> Any:
    edges = found.store.get("edge_index")
    return edges.as_tensor() if hasattr(edges, "as_tensor") else edges  # PyG's EdgeIndex


def _ends(found: _DataStore) -> Ends | None:
    """Return how the edges are given. Like PyG, look for a matrix first."""
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


def _add_column(draft: Draft, found: _DataStore, row: Row) -> None:
    label, value = f"{found.label}.{row.name}", found.store[row.name]
    group, column = "edge" if row.of_edges else "node", _column(label, value)
    draft.add_column(ArrayKey(group, row.owner, row.name), column)  # type: ignore[arg-type]
    split = _MASKS.get(row.name)
    if split and group == "node" and column.dtype == "bool" and len(column.shape) == 1:
        draft.add_split(str(row.owner), split, label, value)


def _column(label: str, value: Any) -> PlainArray:
    """Return an attribute as the graph has it: dates are numbers, by which can be sampled."""
    return times(label, value) if are_dates(value) else plain(label, value)


def _can_be_shared(name: str, value: Any, dim: int, files: MappedFiles) -> bool:
    """Return whether a graph can hold the attribute and give back the same."""
    if not check.is_name(name):
        return False
    if isinstance(value, Tensor) and (value.requires_grad or type(value) not in _PLAIN):
        return False
    if not isinstance(value, Tensor | np.ndarray):
        return are_dates(value)  # of lists, only dates are what one samples by
    if dim % value.ndim != 0:
        return False
    try:
        column = _column(name, value).array
    except ValueError:
        return False
    # A region without a place is a file that only this process can map, and to copy it might take
    # too much memory. A vector is copied all the same, since sampling may use it: times, weights,
    # masks.
    region = files.region_of(column) if column.ndim > 1 else None
    return region is None or region.place_of(column) is not None


# Tensors of other classes (PyG's Index, quantized ones) would come back as something else.
_PLAIN: Final = (Tensor, torch.nn.Parameter)
