"""Graphs and ways to sample them that PyG's loaders and our specs are both given.

Plain data: one process makes PyG's objects of it, another ours, and neither needs the other's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
EdgeType = tuple[str, str, str]

WRITES: EdgeType = ("author", "writes", "paper")
WRITTEN: EdgeType = ("paper", "rev_writes", "author")
CITES: EdgeType = ("paper", "cites", "paper")
SIZES = {"paper": 40, "author": 25, "venue": 5}
HOLDS: EdgeType = ("venue", "holds", "paper")
BATCH = 8
# What both say of an edge type that has no reverse.
LONE = "Cannot convert to bidirectional graph"


@dataclass(frozen=True)
class Plan:
    """A graph as arrays; of a homogeneous one, all types are ""."""

    sizes: dict[str, int]
    edges: dict[EdgeType, Array]
    node_attrs: dict[str, dict[str, Array]]
    edge_attrs: dict[EdgeType, dict[str, Array]]


@dataclass(frozen=True)
class Case:
    """Options have the names that PyG and we share. Inputs are nodes, or edges [2, n].

    `against` is (mode, amount, the only source, the only destination) of negatives, which so are
    no matter of chance; ends that are None are left to chance.
    """

    graph: str = "web"
    num_neighbors: tuple[int, ...] = (-1, -1)
    options: dict[str, Any] = field(default_factory=dict)
    inputs: Any = None
    of: Any = None
    times: list[int] | None = None
    labels: list[int] | None = None
    against: tuple[str, float, int | None, int | None] | None = None

    @property
    def of_links(self) -> bool:
        return np.ndim(self.inputs) == 2

    @property
    def is_hetero(self) -> bool:
        return self.graph == "library"


def web() -> Plan:
    """With loops, parallel edges, and nodes that nothing leads to."""
    random = np.random.default_rng(3)
    ends = random.integers(0, [50, 44], (240, 2)).T
    return Plan(
        {"": 50},
        {("", "", ""): ends},
        {"": _of_nodes(50, 0, random)},
        {("", "", ""): _of_edges(240, 0, random)},
    )


def library() -> Plan:
    """Venues are found and never expanded; only papers and authors have times."""
    random = np.random.default_rng(4)
    counts = {WRITES: 90, WRITTEN: 80, CITES: 120, HOLDS: 40}
    edges = {
        kind: np.stack([random.integers(0, SIZES[kind[end]], count) for end in (0, 2)])
        for kind, count in counts.items()
    }
    nodes = {name: _of_nodes(size, size, random) for name, size in SIZES.items()}
    del nodes["venue"]["time"]
    attributes = {kind: _of_edges(count, count, random) for kind, count in counts.items()}
    for kind in (WRITES, WRITTEN, HOLDS):
        del attributes[kind]["weight"]
    return Plan(dict(SIZES), edges, nodes, attributes)


PLANS = {"web": web, "library": library}


def _of_nodes(count: int, mark: int, random: np.random.Generator) -> dict[str, Array]:
    """Features say whose they are."""
    x = np.stack([np.arange(count), np.full(count, mark)], axis=1).astype(np.float32)
    return {"x": x, "y": np.arange(count) % 3, "time": random.integers(0, 20, count)}


def _of_edges(count: int, mark: int, random: np.random.Generator) -> dict[str, Array]:
    return {
        "edge_attr": np.stack([np.arange(count), np.full(count, mark)], axis=1).astype(np.float32),
        "moment": random.integers(0, 20, count),
        "stamp": random.permutation(count),  # no two the same: there is one that is latest
        # Some are 0: such edges are never taken.
        "weight": (random.random(count) * (random.random(count) < 0.8)).astype(np.float32),
    }


def _links(seed: int, of: EdgeType = ("", "", "")) -> list[list[int]]:
    """Some edges of a graph, one of them twice, and one that is none."""
    plan = web() if of[0] == "" else library()
    chosen = np.random.default_rng(seed).integers(0, plan.edges[of].shape[1], 11)
    ends = plan.edges[of][:, chosen]
    return np.concatenate([ends, ends[:, :1], [[0], [1]]], axis=1).tolist()


NODES = [5, 43, 0, 12, 33, 7, 21, 40, 3, 18]
TWICE = [5, 43, 5, 0, 43, 12, 5, 7, 5]
TIMES = [9, 3, 19, 0, 12, 15, 7, 11, 5, 18]
LINK_TIMES = [9, 3, 19, 0, 12, 15, 7, 11, 5, 18, 8, 8, 2]
LABELS = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
PAIR, TRIPLET = ("binary", 1.0, 2, 9), ("triplet", 2.0, None, 9)

# With all neighbours nothing is left to chance, and both sides must say the same.
EXACT: dict[str, Case] = {
    "homogeneous": Case(inputs=NODES),
    "all nodes": Case(),
    "seeds twice": Case(inputs=TWICE),
    "three hops": Case(inputs=NODES, num_neighbors=(-1, -1, -1)),
    "no hops": Case(inputs=NODES, num_neighbors=()),
    "a hop of none": Case(inputs=NODES, num_neighbors=(-1, 0, -1)),
    "disjoint": Case(inputs=TWICE, options={"disjoint": True}),
    "weighted": Case(inputs=NODES, options={"weight_attr": "weight"}),
    "weighted, disjoint": Case(inputs=NODES, options={"weight_attr": "weight", "disjoint": True}),
    "node times": Case(inputs=NODES, times=TIMES, options={"time_attr": "time"}),
    "nodes' own times": Case(inputs=NODES, options={"time_attr": "time"}),
    "edge times": Case(inputs=NODES, times=TIMES, options={"time_attr": "moment"}),
    "the latest": Case(
        inputs=NODES,
        num_neighbors=(2, 1),
        times=[time * 12 for time in TIMES],
        options={"time_attr": "stamp", "temporal_strategy": "last"},
    ),
    "bidirectional": Case(inputs=NODES, options={"subgraph_type": "bidirectional"}),
    "bidirectional, disjoint": Case(
        inputs=NODES, options={"subgraph_type": "bidirectional", "disjoint": True}
    ),
    "induced": Case(inputs=NODES, num_neighbors=(-1,), options={"subgraph_type": "induced"}),
    "heterogeneous": Case("library", inputs=[5, 39, 0, 12, 5], of="paper", num_neighbors=(-1,)),
    "heterogeneous, two hops": Case("library", inputs=[3, 3, 24, 0], of="author"),
    "heterogeneous, from what is not expanded": Case("library", inputs=[4, 0, 4], of="venue"),
    "heterogeneous, disjoint": Case(
        "library", inputs=[3, 3, 24, 0], of="author", options={"disjoint": True}
    ),
    "heterogeneous, weighted": Case(
        "library", inputs=[3, 14, 0], of="paper", options={"weight_attr": "weight"}
    ),
    "heterogeneous, node times": Case(
        "library", inputs=[3, 14, 0], of="paper", times=[9, 4, 17], options={"time_attr": "time"}
    ),
    "heterogeneous, edge times": Case(
        "library", inputs=[3, 14, 0], of="paper", times=[9, 4, 17], options={"time_attr": "moment"}
    ),
    "heterogeneous, the latest": Case(
        "library",
        inputs=[3, 14, 0],
        of="paper",
        num_neighbors=(2, 1),
        times=[50, 70, 30],
        options={"time_attr": "stamp", "temporal_strategy": "last"},
    ),
    "heterogeneous, bidirectional": Case(
        "library", inputs=[3, 14, 0], of="paper", options={"subgraph_type": "bidirectional"}
    ),
    "heterogeneous, induced": Case(
        "library",
        inputs=[3, 14, 0],
        of="paper",
        num_neighbors=(-1,),
        options={"subgraph_type": "induced"},
    ),
    "links": Case(inputs=_links(1)),
    "links, labelled": Case(inputs=_links(1), labels=LABELS),
    "links, disjoint": Case(inputs=_links(1), options={"disjoint": True}),
    "links, induced": Case(
        inputs=_links(1), num_neighbors=(-1,), options={"subgraph_type": "induced"}
    ),
    "links, bidirectional": Case(inputs=_links(1), options={"subgraph_type": "bidirectional"}),
    "links, node times": Case(inputs=_links(1), times=LINK_TIMES, options={"time_attr": "time"}),
    "links, edge times": Case(inputs=_links(1), times=LINK_TIMES, options={"time_attr": "moment"}),
    "links, binary": Case(inputs=_links(2), against=PAIR),
    "links, half as many": Case(inputs=_links(2), against=("binary", 0.5, 2, 9)),
    "links, binary, labelled": Case(inputs=_links(2), against=PAIR, labels=LABELS),
    "links, binary, disjoint": Case(inputs=_links(2), against=PAIR, options={"disjoint": True}),
    "links, binary, edge times": Case(
        inputs=_links(2), against=PAIR, times=LINK_TIMES, options={"time_attr": "moment"}
    ),
    "heterogeneous links": Case("library", inputs=_links(3, WRITES), of=WRITES),
    "heterogeneous links of one type": Case(
        "library", inputs=_links(4, CITES), of=CITES, num_neighbors=(-1,)
    ),
    "heterogeneous links, binary": Case(
        "library", inputs=_links(3, WRITES), of=WRITES, against=PAIR
    ),
    "heterogeneous links, binary, disjoint": Case(
        "library", inputs=_links(3, WRITES), of=WRITES, against=PAIR, options={"disjoint": True}
    ),
    "heterogeneous links, node times": Case(
        "library",
        inputs=_links(3, WRITES),
        of=WRITES,
        times=LINK_TIMES,
        options={"time_attr": "time"},
    ),
    "links, one destination each": Case(inputs=_links(2), against=("triplet", 1.0, None, 9)),
    "links, triplets, disjoint": Case(
        inputs=_links(2), against=TRIPLET, options={"disjoint": True}
    ),
    "links, triplets, edge times": Case(
        inputs=_links(2), against=TRIPLET, times=LINK_TIMES, options={"time_attr": "moment"}
    ),
    "heterogeneous links, triplets": Case(
        "library", inputs=_links(3, WRITES), of=WRITES, against=("triplet", 1.0, None, 9)
    ),
}
# Where there is a choice, names, shapes, types and meaning must be the same.
RANDOM: dict[str, Case] = {
    "few neighbours": Case(inputs=NODES, num_neighbors=(3, 2)),
    "few neighbours of seeds twice": Case(inputs=TWICE, num_neighbors=(3, 2)),
    "replaced": Case(inputs=NODES, num_neighbors=(9, 4), options={"replace": True}),
    "few, disjoint": Case(inputs=NODES, num_neighbors=(3, 2), options={"disjoint": True}),
    "few, weighted": Case(inputs=NODES, num_neighbors=(3, 2), options={"weight_attr": "weight"}),
    "replaced, weighted": Case(
        inputs=NODES,
        num_neighbors=(9, 4),
        options={"replace": True, "weight_attr": "weight"},
    ),
    "few, node times": Case(
        inputs=NODES, num_neighbors=(3, 2), times=TIMES, options={"time_attr": "time"}
    ),
    "few, edge times": Case(
        inputs=NODES, num_neighbors=(3, 2), times=TIMES, options={"time_attr": "moment"}
    ),
    "few, bidirectional": Case(
        inputs=NODES, num_neighbors=(3, 2), options={"subgraph_type": "bidirectional"}
    ),
    "few, induced": Case(inputs=NODES, num_neighbors=(3, 2), options={"subgraph_type": "induced"}),
    "few, heterogeneous": Case("library", inputs=[3, 14, 0], of="paper", num_neighbors=(3, 2)),
    "few, heterogeneous, node times": Case(
        "library",
        inputs=[3, 14, 0],
        of="paper",
        times=[9, 4, 17],
        num_neighbors=(3, 2),
        options={"time_attr": "time"},
    ),
    "few, links, any negatives": Case(
        inputs=_links(2), num_neighbors=(3, 2), against=("binary", 1.5, None, None)
    ),
    "few, links, any triplets": Case(
        inputs=_links(2), num_neighbors=(3, 2), against=("triplet", 2.0, None, None)
    ),
    "few, heterogeneous links, any triplets": Case(
        "library",
        inputs=_links(3, WRITES),
        of=WRITES,
        num_neighbors=(3, 2),
        against=("triplet", 2.0, None, None),
    ),
    "few, links, node times, any negatives": Case(
        inputs=_links(2),
        num_neighbors=(3, 2),
        times=LINK_TIMES,
        against=("binary", 1.0, None, None),
        options={"time_attr": "time"},
    ),
}
CASES = {**EXACT, **RANDOM}
