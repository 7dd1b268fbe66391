"""Graphs of which derived arrays are made, and the derived arrays that can be made of them."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np

from penstock.graph import EdgeType, Graph
from penstock.graph.derived import (
    ByTime,
    Coo,
    DegreeSizes,
    DerivedArrays,
    OutEdges,
    SortedNeighbors,
    WeightSums,
)
from penstock.graph.handles import FileHandle
from penstock.graph.schema import EDGE, ArrayKey

RATES = ("user", "rates", "film")
NODES, EDGES = 30, 200


def web(kind: str | None = None, *, in_order: bool = False) -> Graph:
    """A homogeneous graph with weights, some of them 0, and times, some of them equal."""
    rng = np.random.default_rng(3)
    edges = rng.integers(0, NODES, (2, EDGES))
    if in_order:
        edges = edges[:, np.argsort(edges[1], kind="stable")]
    return Graph.from_coo(
        edges,
        NODES,
        edge_weight=rng.integers(0, 4, EDGES) / 4,
        edge_time=rng.integers(0, 9, EDGES),
        node_time=rng.integers(-5, 5, NODES).astype(np.int32),
        kind=kind,
    )


def films() -> Graph:
    """Two types of nodes, of different number, with a name that has dots."""
    rng = np.random.default_rng(4)
    return Graph.from_coo(
        {RATES: np.stack([rng.integers(0, 9, 60), rng.integers(0, 20, 60)])},
        {"user": 9, "film": 20},
        edge_attrs={RATES: {"stars.of.5": rng.random(60)}},
        node_time={"user": rng.integers(0, 9, 9), "film": rng.integers(0, 9, 20)},
    )


def derived_arrays_of(
    edge_type: EdgeType = EDGE, weight: str = "edge_weight"
) -> list[DerivedArrays]:
    """All that can be made of an edge type of either graph but what needs times of edges."""
    return [
        OutEdges(edge_type),
        Coo(edge_type),
        *(SortedNeighbors(edge_type, side) for side in ("in", "out")),
        *(DegreeSizes(edge_type, side) for side in ("in", "out")),
        *(WeightSums(edge_type, weight, side) for side in ("in", "out")),
        *(ByTime(edge_type, "time", True, side) for side in ("in", "out")),
    ]


WEB = [
    *derived_arrays_of(),
    ByTime(EDGE, "edge_time", False),
    ByTime(EDGE, "edge_time", False, "out"),
]
FILMS = derived_arrays_of(RATES, "stars.of.5")


def make_all(graph: Graph) -> Graph:
    for derived in FILMS if graph.is_hetero else WEB:
        graph.derived(derived)
    return graph


def files_of(graph: Graph) -> dict[ArrayKey, Path]:
    """The files of the arrays that lie in some."""
    return {
        key: Path(array.segment.handle.path)
        for key, array in graph.arrays.items()
        if isinstance(array.segment.handle, FileHandle)
    }


def num_descriptors() -> int:
    """Count open descriptors; what earlier tests left to the garbage collector is closed first."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
