"""PyG's own loaders over our kernels beside ours: python -m tests.loader.oracle

Prints, for every case, what the batches of the two differ in. In a process of its own, since PyG
looks for a sampler library once and for all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from penstock.compat import pyg_lib

pyg_lib.install(induced=True)

import torch_geometric.loader  # noqa: E402 - only now
import torch_geometric.utils._coalesce  # noqa: E402

import penstock as ps  # noqa: E402
from tests.loader.epochs import BATCH, NODES, small_data, torch, typed_data  # noqa: E402

# Of parallel edges and their reverses PyG keeps the id that comes last when it has sorted them.
# pyg-lib's sort keeps their order; torch's, which PyG takes without pyg-lib, does by chance.
torch_geometric.utils._coalesce.index_sort = lambda ids, max_value=None: ids.sort(stable=True)


def by_destination(edge_index: Any) -> Any:
    """Edges so that PyG need not sort them, which it does in an order of its own."""
    return edge_index[:, edge_index[1].argsort(stable=True)]


def homogeneous() -> Any:
    data = small_data()
    data.edge_index = by_destination(data.edge_index)
    data.time = torch.arange(NODES)
    return data


def narrow() -> Any:
    """Edges of 32 bits, many of them parallel."""
    data = homogeneous()
    data.edge_index = by_destination(data.edge_index // 8).int()
    return data


def narrow_types() -> Any:
    data = heterogeneous()
    for kind in data.edge_types:
        data[kind].edge_index = data[kind].edge_index.int()
    return data


def heterogeneous() -> Any:
    data = typed_data()
    data["paper"].time = torch.arange(120)
    for kind in data.edge_types:
        data[kind].edge_index = by_destination(data[kind].edge_index)
    return data


NODE_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "disjoint": {"disjoint": True},
    "induced": {"subgraph_type": "induced"},
    "bidirectional": {"subgraph_type": "bidirectional"},
    "in time": {"time_attr": "time"},
    "the latest": {"time_attr": "time", "temporal_strategy": "last"},
    "without the last": {"drop_last": True},
    "joined in the rank": {"filter_per_worker": False},
}
LINK_OPTIONS: dict[str, dict[str, Any]] = {
    "disjoint links": {"disjoint": True},
    "links with labels": {"disjoint": True, "edge_label": torch.arange(100)},
    "links in time": {"time_attr": "time", "edge_label_time": torch.arange(100) + 200},
}


def cases() -> Iterator[tuple[str, Any, Any]]:
    """A name, PyG's loader, and ours."""
    theirs, many, wide, types = (
        torch_geometric.loader,
        homogeneous(),
        heterogeneous(),
        narrow_types(),
    )
    common = {"num_neighbors": [-1, -1], "batch_size": BATCH, "is_sorted": True}
    inputs: dict[str, tuple[Any, Any]] = {
        "homogeneous": (many, many.train_mask),
        "heterogeneous": (wide, ("paper", wide["paper"].train_mask)),
        "narrow": (narrow(), many.train_mask),
        "narrow types": (types, ("paper", types["paper"].train_mask)),
    }
    for kind, (data, nodes) in inputs.items():
        for name, chosen in NODE_OPTIONS.items():
            options = common | chosen | {"input_nodes": nodes}
            pair = theirs.NeighborLoader(data, **options), ps.NeighborLoader(data, **options)
            yield f"{kind}, {name}", *pair
    for name, chosen in LINK_OPTIONS.items():
        options = common | chosen | {"edge_label_index": many.edge_index[:, :100]}
        pair = theirs.LinkNeighborLoader(many, **options), ps.LinkNeighborLoader(many, **options)
        yield name, *pair


def differences(one: Any, other: Any, free: set[str]) -> list[str]:
    """What two batches differ in."""
    if one.to_dict().keys() != other.to_dict().keys():
        return [f"stores: {sorted(one.to_dict())} and {sorted(other.to_dict())}"]
    found = []
    for store in one.stores:
        ours = other.stores[0] if store._key is None else other[store._key]
        if set(store.keys()) != set(ours.keys()):
            found.append(f"names of {store._key}: {set(store.keys()) ^ set(ours.keys())}")
        for name in set(store.keys()) & set(ours.keys()) - free:
            if not is_same(store[name], ours[name]):
                found.append(f"{name} of {store._key}")
    return found


def is_same(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return bool(type(one) is type(other) and one == other)
    return one.dtype == other.dtype and torch.equal(one, other)


def main() -> None:
    found: dict[str, list[str]] = {}
    for name, theirs, ours in cases():
        found[name] = [] if len(theirs) == len(ours) else ["their length"]
        for one, other in zip(theirs, ours, strict=True):
            found[name] += differences(one, other, set())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
