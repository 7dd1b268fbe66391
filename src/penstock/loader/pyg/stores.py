"""PyG's `(FeatureStore, GraphStore)` pairs as sources.

The edges go into one of our graphs, with the times that sampling needs. Features stay in their
store, which may be larger than memory, or remote; it is asked in the rank for the rows of each
batch, all at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData, remote_backend_utils

from penstock.graph import EdgeType
from penstock.graph.draft import Draft
from penstock.graph.schema import EDGE, NODE, ArrayKey
from penstock.graph.tensors import plain
from penstock.loader.pyg.template import Ends, Nodes, Template, store_of
from penstock.sampling.names import Owner

Edges = Mapping[EdgeType, tuple[Tensor, Tensor]]


def is_pair(data: Any) -> bool:
    """Return whether `data` is such a pair."""
    return (
        isinstance(data, list | tuple)
        and len(data) == 2
        and isinstance(data[0], FeatureStore)
        and isinstance(data[1], GraphStore)
    )


def read_stores(
    features: Any, edges: Any, custom_cls: Callable[[], Any] | None, time_attr: str | None
) -> tuple[Draft, Template]:
    """Return the draft of the graph that the stores describe, and the template of its batches."""
    found = _edges(edges)
    is_hetero = EDGE not in found
    draft = Draft(is_hetero=is_hetero)
    _add_nodes(draft, features, edges, found)
    for kind, ends in found.items():
        draft.add_edges(kind, "the graph store's edges" + (f" {kind!r}" if is_hetero else ""), ends)
    if time_attr is not None:
        _add_times(draft, features, time_attr)
    make = custom_cls or (HeteroData if is_hetero else Data)
    owners: list[Owner] = [*draft.num_nodes, *found] if is_hetero else []

    def blank() -> Any:
        data = make()
        for owner in owners:  # so that types come in the graph's order
            store_of(data, owner)
        return data

    dtypes = {kind: Ends(sources.dtype) for kind, (sources, _) in found.items()}
    return draft, Template(is_hetero, blank, (), dtypes, (), _fetching(features, draft))


def _edges(store: Any) -> Edges:
    """Return sources and destinations of all edges, in the order of their ids."""
    attributes = store.get_all_edge_attrs()
    rows, cols, _ = store.coo() if attributes else ({}, {}, None)
    if not isinstance(rows, dict):
        return {EDGE: (rows, cols)}
    return {(str(k[0]), str(k[1]), str(k[2])): (rows[k], cols[k]) for k in rows}


def _add_nodes(draft: Draft, features: Any, edges: Any, found: Edges) -> None:
    attributes = features.get_all_tensor_attrs()
    if EDGE in found:
        draft.mention(NODE)
        sizes = [attr.size for attr in edges.get_all_edge_attrs()]
        known = [max(size) for size in sizes if size is not None and None not in size]
        if not known and attributes:
            known = [features.get_tensor_size(attributes[0])[0]]
        if known:
            draft.add_count(NODE, "the graph store's size", max(known))
        return
    groups = [attr.group_name for attr in attributes if isinstance(attr.group_name, str)]
    ends = [end for kind in found for end in (kind[0], kind[2])]
    for name in dict.fromkeys([*groups, *ends]):
        count = remote_backend_utils.num_nodes(features, edges, name)
        draft.add_count(name, f"the size of {name!r}", count)


def _add_times(draft: Draft, features: Any, time_attr: str) -> None:
    attributes = [a for a in features.get_all_tensor_attrs() if a.attr_name == time_attr]
    if not attributes:
        raise ValueError("Temporal sampling specified but did not find any temporal data")
    for attribute in map(copy.copy, attributes):
        attribute.index = None
        column = plain(f"time_attr {time_attr!r}", features.get_tensor(attribute))
        draft.add_column(_key_of_times(draft, attribute.group_name, time_attr), column)


def _key_of_times(draft: Draft, group: Any, time_attr: str) -> ArrayKey:
    """Return the key of times; in a homogeneous pair `time` belongs to nodes, others to edges.

    PyG tells these apart by the name, too.
    """
    if not draft.is_hetero:
        of_nodes = time_attr == "time"
        return ArrayKey("node", NODE, time_attr) if of_nodes else ArrayKey("edge", EDGE, time_attr)
    if isinstance(group, str):
        return ArrayKey("node", group, time_attr)
    return ArrayKey("edge", tuple(group), time_attr)


def _fetching(features: Any, draft: Draft) -> Callable[[Any, Nodes], None]:
    """Return a function that adds the features of a batch's nodes, as the store gives them."""
    of_edges = {key.name for key in draft.columns if key.type == EDGE}

    def fetch(data: Any, nodes: Nodes) -> None:
        wanted = []
        for attribute in features.get_all_tensor_attrs():
            owner = attribute.group_name or NODE
            if owner in nodes and (owner != NODE or attribute.attr_name not in of_edges):
                attribute.index = nodes[owner].to(torch.int64)
                store_of(data, owner).num_nodes = len(nodes[owner])
                wanted.append((owner, attribute))
        values = features.multi_get_tensor([attribute for _, attribute in wanted])
        for (owner, attribute), value in zip(wanted, values, strict=True):
            store_of(data, owner)[attribute.attr_name] = value

    return fetch
