"""Graphs whose nodes have ids of users: for tests of graphs, parts, stores, servers and loaders."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.graph import Graph

BUYS, LIKED = ("user", "buys", "item"), ("item", "liked_by", "user")
USERS, ITEMS = 40, 30
# Of every length, some empty or alike, and in an order of their own; a third type has none.
NAMES = [f"{'u' * (number % 11)}{number}é" if number else "" for number in range(USERS)][::-1]
NUMBERS = (np.random.default_rng(3).permutation(ITEMS) * 1_000_003 - 2**33).tolist()


def shop(**options: Any) -> Graph:
    """Users known by text, items by numbers, and shelves by neither."""
    random = np.random.default_rng(4)
    edges = {
        BUYS: [random.integers(0, USERS, 150), random.integers(0, ITEMS, 150)],
        LIKED: [random.integers(0, ITEMS, 120), random.integers(0, USERS, 120)],
        ("item", "on", "shelf"): [np.arange(ITEMS), np.arange(ITEMS) % 5],
    }
    given = {
        "node_ids": {"user": NAMES, "item": NUMBERS},
        "num_nodes": {"user": USERS, "item": ITEMS, "shelf": 5},
        "x": {"user": random.random((USERS, 3), dtype=np.float32)},
        "train": {"user": random.permutation(USERS)[:20]},
    }
    return Graph.from_coo(edges, **(given | options))


def ring(ids: Any, count: int | None = None, **options: Any) -> Graph:
    """A ring of as many nodes as there are ids."""
    nodes = np.arange(len(ids) if count is None else count)
    return Graph.from_coo([nodes, np.roll(nodes, -1)], node_ids=ids, **options)


def tells_ids(graph: Any) -> None:
    """Assert that a graph, wherever it is, knows the ids of all nodes of `shop`."""
    assert graph.ids("user").tolist() == NAMES
    assert graph.ids("item").tolist() == NUMBERS
    some = np.array([7, 0, 7, 29])
    assert graph.ids("user", some).tolist() == [NAMES[node] for node in some.tolist()]
    assert graph.ids("item", some).tolist() == [NUMBERS[node] for node in some.tolist()]
    assert np.asarray(graph.lookup("user", NAMES[::-1])).tolist() == list(range(USERS))[::-1]
    assert np.asarray(graph.lookup("item", NUMBERS)).tolist() == list(range(ITEMS))
    assert graph.ids("item", []).tolist() == []
    assert np.asarray(graph.lookup("user", [])).tolist() == []
