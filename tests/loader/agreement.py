"""PyG's loaders over our kernels beside ours, in a process of their own: prints where they differ.

    python -m tests.loader.agreement

Every neighbour is taken, and negatives have one node to be drawn from, so that nothing is random.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from penstock.compat import pyg_lib

pyg_lib.install(induced=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of itself while being imported
    import numpy as np
    import torch
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
    from torch_geometric.testing import MyFeatureStore, MyGraphStore

    from tests.loader.reading import differences, link_batches, node_batches

BATCH = 5
ALL = [-1, -1]
NODES = 30


def edges(sources: int, destinations: int, count: int, dtype: Any = torch.int64) -> Any:
    random = np.random.default_rng([sources, destinations, count])
    ends = [random.integers(0, size, count) for size in (sources, destinations)]
    # PyG's way of sorting them is not stable, so they come sorted: then it leaves them as they are.
    return torch.from_numpy(np.stack([row[np.lexsort(ends)] for row in ends])).to(dtype)


def homogeneous(dtype: Any = torch.int64) -> Any:
    return Data(
        x=torch.arange(2.0 * NODES).view(NODES, 2),
        half=torch.arange(NODES).bfloat16(),
        y=torch.arange(NODES, dtype=torch.int32),
        time=torch.arange(NODES) % 7,
        edge_index=edges(NODES, NODES, 70, dtype),
        edge_attr=torch.arange(70).to(torch.float16),
        edge_time=torch.arange(70) % 5,
        edge_weight=torch.rand(70) - 0.5,
        edge_label_index=edges(NODES, NODES, 70),
        name="whole",
        whole=torch.arange(3),
        train_mask=torch.arange(NODES) % 2 == 0,
    )


def typed(dtype: Any = torch.int64) -> Any:
    data = HeteroData(title="whole")
    data["paper"].x = torch.arange(20.0).view(20, 1)
    data["paper"].time = torch.arange(20) % 7
    data["author"].x = torch.arange(20).view(10, 2).bfloat16()
    data["author"].time = torch.arange(10) % 7
    data["venue"].num_nodes = 4
    data["venue"].rank = torch.arange(4)
    data["paper", "cites", "paper"].edge_index = edges(20, 20, 50, dtype)
    data["paper", "cites", "paper"].edge_attr = torch.arange(50)
    data["author", "writes", "paper"].edge_index = edges(10, 20, 40, dtype)
    data["author", "writes", "paper"].whole = "writes"
    data["paper", "rev_writes", "author"].edge_index = edges(20, 10, 40, dtype)
    data["paper", "in", "venue"].edge_index = edges(20, 4, 20, dtype)
    return data


def one_way() -> Any:
    """No edge twice, and none with its reverse: which of several ids PyG keeps, nobody knows."""
    data = homogeneous()
    ends = data.edge_index.sort(dim=0)[0]
    ends = ends[:, ends[0] != ends[1]].unique(dim=1)
    ends = ends[:, ends[1].argsort(stable=True)].contiguous()
    return Data(x=data.x, edge_index=ends, edge_attr=torch.arange(ends.size(1)))


def with_own_ids() -> Any:
    """As a batch of another loader is: with n_id and so on of its own."""
    data = homogeneous()
    data.n_id = torch.arange(NODES) + 1000
    data.e_id = torch.arange(70) + 1000
    data.batch_size, data.input_id = 3, torch.arange(3)
    data.seed_time = torch.arange(NODES)
    data.batch = torch.zeros(NODES, dtype=torch.int64)
    data.num_sampled_nodes = [3, 27]
    data.edge_label = torch.arange(70)
    return data


def odd() -> Any:
    """What a graph of ours cannot hold."""
    data = homogeneous()
    data.complex = torch.arange(NODES) * 1j
    data.learnt = torch.nn.Parameter(torch.rand(NODES, 2))
    data.sparse = torch.eye(NODES).to_sparse()
    data.face_index = edges(NODES, NODES, NODES)
    return data


def stores(kind: Any, of_time: bool = False) -> tuple[Any, Any]:
    """With one edge type only: of several, PyG has them in any order."""
    features, graph = MyFeatureStore(), MyGraphStore()
    data = typed()
    features.put_tensor(data["venue"].rank, group_name="venue", attr_name="rank", index=None)
    for name in ("paper", "author"):
        features.put_tensor(data[name].x, group_name=name, attr_name="x", index=None)
        if of_time:
            features.put_tensor(data[name].time, group_name=name, attr_name="time", index=None)
    ends = data[kind].edge_index
    if of_time:
        ends = ends[:, np.lexsort([data[kind[0]].time[ends[0]], ends[1]])].contiguous()
    graph.put_edge_index(
        (ends[0], ends[1]),
        edge_type=kind,
        layout="coo",
        is_sorted=True,
        size=(data[kind[0]].num_nodes, data[kind[2]].num_nodes),
    )
    return features, graph


def nodes(data: Any, num_neighbors: Any = ALL, **options: Any) -> Callable[[], tuple[Any, Any]]:
    options = {"is_sorted": "time_attr" not in options, **options}

    def batches() -> tuple[Any, Any]:
        theirs = NeighborLoader(data, num_neighbors, batch_size=BATCH, **options)
        return theirs, node_batches(data, num_neighbors, batch_size=BATCH, **options)

    return batches


def links(data: Any, num_neighbors: Any = ALL, **options: Any) -> Callable[[], tuple[Any, Any]]:
    options = {"is_sorted": "time_attr" not in options, **options}

    def batches() -> tuple[Any, Any]:
        theirs = LinkNeighborLoader(data, num_neighbors, batch_size=BATCH, **options)
        return theirs, link_batches(data, num_neighbors, batch_size=BATCH, **options)

    return batches


# Sources before destinations, both rising: PyG enters nodes in the order of their ids.
LINKS = torch.stack([torch.arange(12), torch.arange(12, 24)])
WRITES = ("author", "writes", "paper")
CITES = ("paper", "cites", "paper")
WRITTEN = torch.stack([torch.arange(10), torch.arange(10)])
ONLY = torch.nn.functional.one_hot(torch.tensor(29), NODES).float()

CASES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "all nodes": nodes(homogeneous()),
    "int32 edges": nodes(homogeneous(torch.int32)),
    "ids": nodes(homogeneous(), input_nodes=torch.tensor([7, 3, 20, 5, 11, 2])),
    "a list": nodes(homogeneous(), input_nodes=[7, 3, 20, 5, 11, 2]),
    "a range": nodes(homogeneous(), input_nodes=range(3, 17)),
    "a mask": nodes(homogeneous(), input_nodes=homogeneous().train_mask),
    "input_id": nodes(homogeneous(), input_nodes=range(4), input_id=torch.arange(9, 13)),
    "seeds only": nodes(homogeneous(), []),
    "no neighbours": nodes(homogeneous(), [0, 0]),
    "disjoint": nodes(homogeneous(), disjoint=True),
    "bidirectional": nodes(one_way(), subgraph_type="bidirectional"),
    "node times": nodes(homogeneous(), time_attr="time"),
    "node times given": nodes(
        homogeneous(), time_attr="time", input_nodes=range(6), input_time=torch.arange(6)
    ),
    "edge times given": nodes(
        homogeneous(), time_attr="edge_time", input_nodes=range(6), input_time=torch.arange(6)
    ),
    "ids of its own": nodes(with_own_ids()),
    "no edges": nodes(Data(x=torch.rand(10, 2)), [-1]),
    "odd attributes": nodes(odd()),
    "typed": nodes(typed(), input_nodes="paper"),
    "typed, int32": nodes(typed(torch.int32), input_nodes="paper"),
    "typed, a mask": nodes(typed(), input_nodes=("author", torch.arange(10) % 3 == 0)),
    "typed, one hop": nodes(typed(), [-1], input_nodes=("author", [3, 1])),
    "typed, disjoint": nodes(typed(), input_nodes=("paper", range(8)), disjoint=True),
    "typed, times": nodes(typed(), input_nodes="paper", time_attr="time"),
    "typed, bidirectional": nodes(typed(), input_nodes="paper", subgraph_type="bidirectional"),
    "typed, induced": nodes(typed(), input_nodes="author", subgraph_type="induced"),
    "typed, by type": nodes(
        typed(), {kind: [-1] for kind in typed().edge_types}, input_nodes="paper"
    ),
    "typed, no edges": nodes(HeteroData(paper={"num_nodes": 10}), [], input_nodes="paper"),
    "stores": nodes(stores(CITES), input_nodes=("paper", range(20))),
    "stores, times": nodes(stores(CITES, of_time=True), input_nodes="paper", time_attr="time"),
    "links": links(homogeneous(), edge_label_index=LINKS),
    "links with labels": links(homogeneous(), edge_label_index=LINKS, edge_label=torch.arange(12)),
    "links, labels from elsewhere": links(with_own_ids(), edge_label_index=LINKS),
    "links, disjoint": links(homogeneous(), disjoint=True),
    "links, times": links(
        homogeneous(), edge_label_index=LINKS, edge_label_time=torch.arange(12), time_attr="time"
    ),
    "links, bidirectional": links(one_way(), edge_label_index=LINKS, subgraph_type="bidirectional"),
    "binary": links(
        homogeneous(),
        edge_label_index=LINKS,
        neg_sampling={"mode": "binary", "amount": 1, "src_weight": ONLY, "dst_weight": ONLY},
    ),
    "binary with labels": links(
        homogeneous(),
        edge_label_index=LINKS,
        edge_label=torch.arange(12, dtype=torch.int16) % 3,
        neg_sampling={"mode": "binary", "amount": 1, "src_weight": ONLY, "dst_weight": ONLY},
    ),
    "triplet": links(
        with_own_ids(),
        edge_label_index=LINKS,
        neg_sampling={"mode": "triplet", "amount": 2, "dst_weight": ONLY},
    ),
    "triplet, times": links(
        homogeneous(),
        edge_label_index=LINKS,
        edge_label_time=torch.arange(12) + 7,
        time_attr="time",
        neg_sampling={"mode": "triplet", "amount": 1, "dst_weight": ONLY},
    ),
    "typed links": links(typed(), edge_label_index=(WRITES, WRITTEN)),
    "typed links, all": links(typed(), edge_label_index=CITES, disjoint=True),
    "typed links by ends": links(typed(), edge_label_index=("paper", "venue"), disjoint=True),
    "typed binary": links(
        typed(),
        edge_label_index=(WRITES, WRITTEN),
        neg_sampling={"mode": "binary", "src_weight": ONLY[-10:], "dst_weight": ONLY[-20:]},
    ),
    "typed triplet": links(
        typed(),
        edge_label_index=(WRITES, WRITTEN),
        neg_sampling={"mode": "triplet", "amount": 2, "dst_weight": ONLY[-20:]},
    ),
    "typed triplet, times": links(
        typed(),
        edge_label_index=(WRITES, WRITTEN),
        edge_label_time=torch.arange(10) + 7,
        time_attr="time",
        neg_sampling={"mode": "triplet", "dst_weight": ONLY[-20:]},
    ),
    "links of stores": links(stores(WRITES), edge_label_index=(WRITES, WRITTEN)),
}


def in_order(batch: Any) -> Any:
    """Edges without ids are those of a type and of its reverse, which PyG gives in any order."""
    for store in batch.edge_stores if isinstance(batch, HeteroData) else ():
        if "e_id" not in store:
            store.edge_index = store.edge_index[:, np.lexsort(store.edge_index.numpy())]
    return batch


def differing(theirs: Any, ours: Any) -> Iterator[str]:
    theirs, ours = list(map(in_order, theirs)), list(map(in_order, ours))
    if len(theirs) != len(ours):
        yield f"{len(theirs)} batches there, {len(ours)} here"
    for number, (there, here) in enumerate(zip(theirs, ours, strict=False)):
        yield from (f"batch {number}: {found}" for found in differences(there, here))


def main() -> None:
    torch.manual_seed(3)
    found = {}
    for name, batches in CASES.items():
        try:
            found[name] = list(differing(*batches()))
        except Exception as error:
            raise RuntimeError(f"{name!r} cannot be compared") from error
    print(json.dumps(found))


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "Cannot convert to bidirectional graph")
    warnings.filterwarnings("ignore", "data has no edges")
    main()
