"""Turns PyG's `Data` and `HeteroData` into a draft, with all their attributes.

PyG decides whether an attribute belongs to nodes or edges. What belongs to neither is kept for the
whole graph, or for the type as a whole. So is a table that PyG would slice along its last dimension
(names with "index", like `edge_label_index`), because a graph keeps rows. Neither torch nor PyG is
imported here: only a program that has imported them can pass such an object.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock.graph import check
from penstock.graph.coo import are_dates, times
from penstock.graph.draft import Draft
from penstock.graph.schema import EDGE, NODE, ArrayKey, EdgeType
from penstock.graph.sparse import matrix_edges
from penstock.graph.tensors import is_array, is_sparse, plain

# Not attributes: they are the topology.
_TOPOLOGY: Final = ("edge_index", "num_nodes")
_MASKS: Final = {f"{split}_mask": split for split in ("train", "val", "test")}


@dataclass(frozen=True)
class _PygStore:
    """One of PyG's stores, and what its contents belong to in the graph."""

    data: Any
    store: Any
    label: str
    owner: str | EdgeType = ""
    node_type: str | None = None
    edge_type: EdgeType | None = None


def draft_from_pyg(data: Any) -> Draft:
    """Return the draft of the graph in `data`."""
    pyg = sys.modules.get("torch_geometric.data")
    if pyg is not None and isinstance(data, pyg.HeteroData):
        return _from_hetero_data(data)
    if pyg is not None and isinstance(data, pyg.Data):
        return _from_data(data)
    raise ValueError(
        f"data is {type(data).__qualname__}; expected torch_geometric's Data or HeteroData"
    )


def _from_data(data: Any) -> Draft:
    draft = Draft(is_hetero=False)
    whole = _PygStore(data, data.stores[0], "data", node_type=NODE, edge_type=EDGE)
    _add_nodes(draft, NODE, whole)
    _add_edges(draft, EDGE, whole)
    _add_attributes(draft, whole)
    draft.warn_of_no_edges()
    return draft


def _from_hetero_data(data: Any) -> Draft:
    draft = Draft(is_hetero=True)
    for name, store in data.node_items():
        node_type = check.node_type("data", name)
        found = _PygStore(data, store, f"data[{name!r}]", node_type, node_type=node_type)
        _add_nodes(draft, node_type, found)
        _add_attributes(draft, found)
    for name, store in data.edge_items():
        edge_type = check.edge_type("data", name)
        label = f"data[{', '.join(map(repr, edge_type))}]"
        found = _PygStore(data, store, label, edge_type, edge_type=edge_type)
        _add_edges(draft, edge_type, found)
        _add_attributes(draft, found)
    _add_attributes(draft, _PygStore(data, data.stores[0], "data"))
    draft.warn_of_no_edges()
    return draft


def _add_nodes(draft: Draft, node_type: str, source: _PygStore) -> None:
    draft.mention(node_type)
    # Where the number is unknown, PyG warns, and the draft takes it from the edges.
    count = source.store.num_nodes
    if count is not None:
        draft.add_count(node_type, f"{source.label}.num_nodes", count)


def _add_edges(draft: Draft, edge_type: EdgeType, source: _PygStore) -> None:
    draft.mention(edge_type[0])
    draft.mention(edge_type[2])
    edges, matrix = source.store.get("edge_index"), source.store.get("adj_t")
    if edges is None and is_sparse(matrix) and hasattr(matrix, "layout"):
        label = f"{source.label}.adj_t"
        found = matrix_edges(label, matrix).by_row().transposed()
        draft.add_matrix(edge_type, label, found)
        if found.values is not None and source.store.get("edge_weight") is None:
            draft.add_column(ArrayKey("edge", edge_type, "edge_weight"), found.values)
        return
    if edges is None:
        _complain_of_a_matrix(source)
        edges = np.empty((2, 0), np.int64)
    draft.add_edges(edge_type, f"{source.label}.edge_index", edges)


def _complain_of_a_matrix(source: _PygStore) -> None:
    """Raise if edges are given in a form not read here; otherwise there are no edges."""
    for name in ("adj", "adj_t"):
        if source.store.get(name) is not None:
            raise ValueError(
                f"{source.label} has {name} but no edge_index; give the edges as edge_index, "
                "whose order names them, or as adj_t, a sparse tensor of torch's own"
            )


def _add_attributes(draft: Draft, source: _PygStore) -> None:
    for name, value in source.store.items():
        if name == "adj_t" and source.edge_type is not None and "edge_index" not in source.store:
            continue  # the edges
        if value is not None and name not in _TOPOLOGY:
            _add_attribute(draft, source, name, value)


def _add_attribute(draft: Draft, source: _PygStore, name: str, value: Any) -> None:
    label = f"{source.label}.{name}"
    key = _row_key(source, name, value)
    if key is None:
        if name == "y" and source.node_type is not None:
            check.warn_of_labels(label, value, source.store.num_nodes)
        draft.add_attribute(source.owner, name, label, value)
        return
    column = times(label, value) if are_dates(value) else plain(label, value)
    draft.add_column(key, column)
    if (key.group, key.name) == ("edge", "edge_weight"):
        check.finite(column)
    split = _MASKS.get(name)
    if split and key.group == "node" and column.dtype == "bool" and len(column.shape) == 1:
        draft.add_split(str(key.type), split, label, value)


def _row_key(source: _PygStore, name: str, value: Any) -> ArrayKey | None:
    """Return the key of an attribute with a row per node or per edge; None for any other."""
    if is_sparse(value):
        raise ValueError(f"{source.label}.{name} is sparse; make it dense or remove it")
    if not is_array(value) and not _is_list_of_numbers(value) and not are_dates(value):
        return None
    if np.ndim(value) > 1 and source.data.__cat_dim__(name, value, source.store) != 0:
        return None
    if source.node_type is not None and is_node_attr(source.store, name, value):
        return ArrayKey("node", source.node_type, name)
    if source.edge_type is not None and is_edge_attr(source.store, name, value):
        return ArrayKey("edge", source.edge_type, name)
    return None


def is_node_attr(store: Any, name: str, value: Any) -> bool:
    """Return whether an attribute has a row per node. PyG does not know pandas' dates."""
    if not _are_foreign_dates(value):
        return bool(store.is_node_attr(name))
    return len(value) == store.num_nodes and not (
        "edge" in name and is_edge_attr(store, name, value)
    )


def is_edge_attr(store: Any, name: str, value: Any) -> bool:
    """Return whether an attribute has a row per edge, likewise."""
    if not _are_foreign_dates(value):
        return bool(store.is_edge_attr(name))
    return len(value) == getattr(store, "num_edges", None)


def _are_foreign_dates(value: Any) -> bool:
    return not is_array(value) and not isinstance(value, list | tuple) and are_dates(value)


def _is_list_of_numbers(value: Any) -> bool:
    """Return whether `value` is a list of numbers. PyG itself looks at its length only."""
    if not isinstance(value, list | tuple):
        return False
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except (TypeError, ValueError):  # lists of different lengths
        return False
