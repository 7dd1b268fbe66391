"""Odd arguments for PyG's own loaders, over our kernels, and for ours.

    python -m tests.loader.pyg.odd_arguments [CASE ...]

Prints, for every case, what the two make of it: batches, or an error. In a process of its own,
since PyG looks for a sampler library once and for all.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from tests.loader.oracle import differences, heterogeneous, homogeneous, torch, torch_geometric

import penstock as ps  # isort: skip - PyG first, with our kernels in it

NegativeSampling = torch_geometric.sampler.NegativeSampling
NumNeighbors = torch_geometric.sampler.NumNeighbors
SubgraphType = torch_geometric.sampler.base.SubgraphType
CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")
TYPED = {"input_nodes": "paper"}


class Odd(NamedTuple):
    """Arguments of a loader. `exact`: batches are compared by value, else by what is in them."""

    kind: str
    data: Callable[[], Any]
    given: dict[str, Any]
    exact: bool = True


def nodes(data: Callable[[], Any] = homogeneous, **given: Any) -> Odd:
    common = {"num_neighbors": [-1, -1], "batch_size": 16, "is_sorted": True}
    return Odd("NeighborLoader", data, common | given)


def links(data: Callable[[], Any] = homogeneous, *, exact: bool = True, **given: Any) -> Odd:
    common = {"num_neighbors": [-1], "batch_size": 16, "is_sorted": True, "disjoint": True}
    if data is homogeneous:
        common["edge_label_index"] = homogeneous().edge_index[:, :100]
    return Odd("LinkNeighborLoader", data, common | given, exact)


def changed(data: Callable[[], Any], **values: Any) -> Callable[[], Any]:
    """The same data with other attributes; None takes one away."""

    def make() -> Any:
        made = data()
        for name, value in values.items():
            if value is None:
                del made[name]
            else:
                made[name] = value
        return made

    return make


def stores() -> Any:
    data = heterogeneous()
    return data, data


def timed_edges() -> Any:
    data = heterogeneous()
    data[CITES].time = torch.arange(600)
    return data


def drawn(mode: str, **more: Any) -> Odd:
    """Links with negatives, which the two draw from generators of their own."""
    sampling = {key: more.pop(key) for key in ("amount", "src_weight", "dst_weight") if key in more}
    return links(exact=False, neg_sampling=NegativeSampling(mode, **sampling), **more)


ONES = torch.ones(400)
CASES: dict[str, Odd] = {
    # how to sample
    "a strategy without times": nodes(temporal_strategy="last"),
    "a strategy there is not": nodes(temporal_strategy="first"),
    "a strategy there is not, with times": nodes(temporal_strategy="first", time_attr="time"),
    "a subgraph type of PyG's": nodes(subgraph_type=SubgraphType.directional),
    "a subgraph type there is not": nodes(subgraph_type="undirected"),
    "undirected": nodes(directed=False),
    "undirected and disjoint": nodes(directed=False, disjoint=True),
    "fanouts as a tuple": nodes(num_neighbors=(-1, -1)),
    "fanouts of PyG's": nodes(num_neighbors=NumNeighbors([-1, -1])),
    "no fanouts": nodes(num_neighbors=[]),
    "fanouts of 0": nodes(num_neighbors=[0, 0]),
    "a fanout without a list": nodes(num_neighbors=3),
    "fanouts by type without types": nodes(num_neighbors={CITES: [1]}),
    "fanouts by names of types": nodes(
        heterogeneous, **TYPED, num_neighbors=NumNeighbors({"paper__cites__paper": [-1]}, [0])
    ),
    "fanouts of some types": nodes(heterogeneous, **TYPED, num_neighbors={CITES: [-1]}),
    "fanouts of a type there is not": nodes(
        heterogeneous, **TYPED, num_neighbors=NumNeighbors({("a", "b", "c"): [1]}, [1])
    ),
    "fanouts of unequal lengths": nodes(
        heterogeneous, **TYPED, num_neighbors=NumNeighbors({CITES: [-1, -1]}, [-1])
    ),
    "a list and a default": nodes(num_neighbors=lambda: NumNeighbors([1], [1])),
    # by time and weight
    "times without an attribute": nodes(input_time=torch.arange(400)),
    "a time there is not": nodes(time_attr="when"),
    "a time of no type": nodes(heterogeneous, **TYPED, time_attr="when"),
    "a time of nodes and edges": nodes(timed_edges, **TYPED, time_attr="time"),
    "a weight there is not": nodes(weight_attr="importance"),
    "a weight of no type": nodes(heterogeneous, **TYPED, weight_attr="importance"),
    "weights and times": nodes(time_attr="time", weight_attr="time"),
    "weights of stores": nodes(stores, **TYPED, weight_attr="w"),
    # inputs
    "a list of nodes": nodes(input_nodes=[5, 3, 8]),
    "a range of nodes": nodes(input_nodes=range(7, 90, 3)),
    "nodes of another width": nodes(input_nodes=torch.arange(30, dtype=torch.int32)),
    "an index of one's own, of all nodes": nodes(input_id=torch.arange(400) + 7),
    "an index of one's own, of a mask": nodes(
        input_nodes=torch.arange(400) % 2 == 0, input_id=torch.arange(200) + 7
    ),
    "an index of one's own, too short": nodes(input_nodes=[1, 2], input_id=torch.arange(1)),
    "an index of one's own, of a type": nodes(
        heterogeneous, **TYPED, input_id=torch.arange(120) + 7
    ),
    "no type of nodes": nodes(heterogeneous),
    "nodes without their type": nodes(heterogeneous, input_nodes=torch.arange(5)),
    "a type without nodes": nodes(heterogeneous, input_nodes=("paper", None)),
    "a type and nodes, as a list": nodes(heterogeneous, input_nodes=["paper", [3, 4]]),
    # what is given as data
    "nothing": nodes(lambda: None),
    "a dict": nodes(dict),
    "a tuple of something else": nodes(lambda: (1, 2)),
    "no edges": nodes(changed(homogeneous, edge_index=None, edge_attr=None)),
    "no features": nodes(changed(homogeneous, x=None)),
    "what is called n_id": nodes(changed(homogeneous, n_id=torch.arange(400) * 2)),
    "what is called e_id": nodes(changed(homogeneous, e_id=torch.arange(3200) * 2)),
    "what is called batch": nodes(changed(homogeneous, batch=torch.arange(400))),
    "what is called input_id": nodes(changed(homogeneous, input_id=torch.arange(400))),
    "what is called batch_size": nodes(changed(homogeneous, batch_size=3)),
    "what is called edge_label_index": links(
        changed(homogeneous, edge_label_index=torch.zeros(2, 3, dtype=torch.long)),
        edge_label_index=homogeneous().edge_index[:, :40],
    ),
    # torch's
    "a class for batches of data": nodes(custom_cls=torch_geometric.data.HeteroData),
    "one that is called in no worker": nodes(worker_init_fn=print),
    "a way to start no workers": nodes(multiprocessing_context="spawn"),
    "a keyword there is not": nodes(colour="blue"),
    "no batch size": nodes(batch_size=0),
    "a batch size below none": nodes(batch_size=-3),
    "half a batch": nodes(batch_size=2.5),
    "workers below none": nodes(num_workers=-1),
    "factor without workers": nodes(prefetch_factor=2),
    "persistence without workers": nodes(persistent_workers=True),
    "patience below none": nodes(timeout=-1),
    "a sampler and shuffle": nodes(sampler=[1, 2, 3], shuffle=True),
    "a list for a sampler": nodes(sampler=[9, 4, 7]),
    "lists for a batch sampler": nodes(batch_sampler=[[3, 4], [7, 5]], batch_size=1),
    "a batch sampler and a size": nodes(batch_sampler=[[3, 4]], batch_size=4),
    "a batch sampler and drop_last": nodes(batch_sampler=[[3, 4]], batch_size=1, drop_last=True),
    "lightning's own": nodes(dataset=range(3), collate_fn=print),
    "a transform that is none": nodes(transform=3),
    "an output of no sampler": nodes(transform_sampler_output=lambda out: "nothing"),
    "filtered by a word": nodes(filter_per_worker="yes"),
    "shuffled by a word": nodes(shuffle="yes", num_neighbors=[0]),
    "left out by a word": nodes(drop_last="no"),
    "replaced by a list": nodes(replace=[False], num_neighbors=[1]),
    # links
    "labels around 0": drawn("binary", edge_label=torch.arange(100) % 3 - 1),
    "labels below 0": drawn("binary", edge_label=torch.arange(100) % 3 - 5),
    "labels of truth": drawn("binary", edge_label=torch.arange(100) % 2 == 0),
    "labels of several columns": drawn("binary", edge_label=torch.zeros(100, 3)),
    "labels without negatives": links(edge_label=torch.arange(100) % 3 - 1),
    "labels of triplets": drawn("triplet", edge_label=torch.arange(100)),
    "weights of sources for triplets": drawn("triplet", src_weight=ONES, dst_weight=ONES),
    "weights of too few sources for triplets": drawn("triplet", src_weight=ONES[:9]),
    "weights of too few destinations": drawn("triplet", dst_weight=ONES[:9]),
    "weights without negatives": drawn("binary", src_weight=ONES, neg_sampling_ratio=0.0),
    "a ratio of 0": links(neg_sampling_ratio=0),
    "a ratio below 0": links(neg_sampling_ratio=-1.0),
    "a ratio beside negatives": links(exact=False, neg_sampling="triplet", neg_sampling_ratio=2.0),
    "negatives as a word": links(exact=False, neg_sampling="binary"),
    "negatives as a dict": links(exact=False, neg_sampling={"mode": "triplet", "amount": 2}),
    "negatives as a tuple": links(exact=False, neg_sampling=("binary", 0.5)),
    "negatives of another word": links(neg_sampling="ternary"),
    "no amount of negatives": links(neg_sampling=("binary", 0)),
    "half a negative for each": links(neg_sampling=("triplet", 1.5)),
    "times of links without an attribute": links(edge_label_time=torch.arange(100)),
    "an attribute without times of links": links(time_attr="time"),
    "a strategy without times of links": links(temporal_strategy="last"),
    "all links": links(edge_label_index=None),
    "links of no type": links(heterogeneous),
    "links of two names": links(heterogeneous, edge_label_index=("author", "paper")),
    "links of a type": links(heterogeneous, edge_label_index=(WRITES, None)),
    "links of a type, their ends": links(
        heterogeneous, edge_label_index=(WRITES, torch.tensor([[1, 2], [3, 4]]))
    ),
    "links of a type there is not": links(heterogeneous, edge_label_index=("a", "b", "c")),
    "an index of links": links(input_id=torch.arange(100) * 3),
    # where we are stricter
    "a mask that is too short": nodes(input_nodes=torch.ones(100, dtype=torch.bool)),
    "more labels than links": links(edge_label=torch.arange(150)),
    "more times than nodes": nodes(
        input_nodes=[3, 4], input_time=torch.arange(9), time_attr="time"
    ),
    "labels that run over": drawn(
        "binary", edge_label=(torch.arange(100) % 2 * 255).to(torch.uint8)
    ),
}


def outcome(make: Callable[..., Any], odd: Odd) -> tuple[list[Any], Exception | None]:
    """The first batches, or what came instead."""
    try:
        given = dict(odd.given)
        if callable(given["num_neighbors"]):
            given["num_neighbors"] = given["num_neighbors"]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(islice(make(odd.data(), **given), 3)), None
    except Exception as error:
        return [], error


def compared(odd: Odd) -> dict[str, Any]:
    """What the two do differently, and the errors of both."""
    theirs, their_error = outcome(getattr(torch_geometric.loader, odd.kind), odd)
    ours, our_error = outcome(getattr(ps, odd.kind), odd)
    found = []
    if len(theirs) != len(ours):
        found.append(f"{len(theirs)} batches and {len(ours)}")
    for one, other in zip(theirs, ours, strict=False):
        names = {name for store in one.stores for name in store}
        found += differences(one, other, set() if odd.exact else names)
    return {"theirs": described(their_error), "ours": described(our_error), "differences": found}


def described(error: Exception | None) -> dict[str, str] | None:
    """An error by its class and its words."""
    return None if error is None else {"kind": type(error).__name__, "says": str(error)}


def main() -> None:
    wanted = sys.argv[1:] or list(CASES)
    print(json.dumps({name: compared(CASES[name]) for name in wanted}, indent=1))


if __name__ == "__main__":
    main()
