"""Specs as they come from a socket, and graphs that give every reason to refuse them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from penstock.graph import EdgeType, Graph
from penstock.sampling.spec import BuiltInSpec, Spec
from tests.sampling.graphs import CITES, library

HUGE = 2**64 - 1
NOTHING: EdgeType = ("nobody", "knows", "these")
TYPES = {
    "neighbor": {"type": "neighbor", "num_neighbors": [2, 1]},
    "link": {"type": "link", "neighbors": {"type": "neighbor", "num_neighbors": [1]}},
    "subgraph": {"type": "subgraph"},
    "ablp": {
        "type": "ablp",
        "neighbors": {"type": "neighbor", "num_neighbors": [1]},
        "supervision": [CITES],
        "positive": [CITES],
    },
    "ppr": {"type": "ppr"},
    "walk": {"type": "walk", "walk_length": 3},
    "hgt": {"type": "hgt", "num_samples": [2, 2]},
}


def decoded(kind: str, **values: Any) -> BuiltInSpec:
    """A spec as it comes over the wire."""
    packed = msgspec.msgpack.encode(TYPES[kind] | values)
    spec: BuiltInSpec = msgspec.msgpack.decode(packed, type=Spec)
    return spec


def typeless() -> Graph:
    """Attributes with every reason not to be sampled by."""
    rng = np.random.default_rng(0)
    return Graph.from_coo(
        rng.integers(0, 20, (2, 60)),
        20,
        x=rng.random((20, 2)),
        node_time=rng.integers(0, 9, 20),
        edge_weight=rng.random(60),
        edge_time=rng.integers(0, 9, 60),
        node_attrs={"both": np.arange(20), "real": rng.random(20), "n_id": np.arange(20)},
        edge_attrs={
            "both2": np.arange(60),
            "wide": rng.random((60, 2)),
            "flag": rng.random(60) < 1,
        },
    )


GRAPHS = {False: typeless(), True: library()}
