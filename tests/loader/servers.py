"""Servers that ranks come to, and graphs for them: what the tests of remote loaders share."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.graph import Graph
from tests.loader.epochs import torch

NODES, EDGES, TRAIN = 300, 2400, 150
USERS, ITEMS = 60, 50
BUYS = ("user", "buys", "item")
LABELS = ("user", "buys_positive", "item")


def plain_graph() -> Graph:
    """With everything that a batch may have: features, times, weights, wholes, bfloat16."""
    random = np.random.default_rng(5)
    half = torch.from_numpy(random.normal(size=(NODES, 3))).to(torch.bfloat16)
    return Graph.from_coo(
        random.integers(0, NODES, (2, EDGES)),
        NODES,
        x=random.normal(size=(NODES, 6)).astype("float32"),
        y=random.integers(0, 4, NODES),
        train=random.permutation(NODES)[:TRAIN],
        node_time=random.integers(0, 100, NODES),
        edge_attr=random.normal(size=(EDGES, 2)).astype("float32"),
        edge_weight=random.random(EDGES).astype("float32"),
        node_attrs={"half": half},
        graph_attrs={"names": ["a", "b"], "whole": np.arange(7)},
    )


def typed_graph() -> Graph:
    """Users and items, what is bought, and what is right."""
    random = np.random.default_rng(6)

    def edges(sources: int, destinations: int, count: int) -> Any:
        upper = random.integers(0, sources, count)
        return np.stack([upper, random.integers(0, destinations, count)])

    return Graph.from_coo(
        {
            BUYS: edges(USERS, ITEMS, 300),
            ("item", "bought_by", "user"): edges(ITEMS, USERS, 300),
            LABELS: edges(USERS, ITEMS, 150),
        },
        num_nodes={"user": USERS, "item": ITEMS},
        x={
            "user": random.normal(size=(USERS, 3)).astype("float32"),
            "item": random.normal(size=(ITEMS, 2)).astype("float32"),
        },
        train={"user": random.permutation(USERS)[:40]},
    )
