"""Graphs that tests cut into parts, and the ways to cut them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from penstock import Graph
from penstock.graph.schema import EdgeType, Side
from penstock.graph.shared import SharedArray

WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")
METHODS = ("range", "hash", "given")
EDGES = ("destination", "source", "both")
LAYOUTS = ("parts", "whole")
CUTS = [
    pytest.param(
        {"method": method, "edges": edges, "topology": topology}, id=f"{method}-{edges}-{topology}"
    )
    for method in METHODS
    for edges in EDGES
    for topology in LAYOUTS
]


def halves(numbers: Any) -> SharedArray:
    """As bfloat16, which NumPy does not know."""
    return SharedArray.from_array(numbers.astype(np.uint16), "bfloat16")


def homogeneous() -> Graph:
    rng = np.random.default_rng(0)
    nodes, edges = 60, 400
    return Graph.from_coo(
        rng.integers(0, nodes, (2, edges)),
        nodes,
        x=rng.random((nodes, 3), dtype=np.float32),
        y=rng.integers(0, 5, nodes),
        node_time=rng.integers(0, 99, nodes),
        train=rng.permutation(nodes)[:20],
        edge_attr=rng.random((edges, 2)),
        edge_weight=rng.integers(0, 3, edges) / 4,
        edge_time=rng.integers(0, 9, edges),
        edge_attrs={"half": halves(rng.integers(0, 1 << 16, (edges, 3)))},
        graph_attrs={"name": "small", "weights": np.arange(3), "half": halves(np.arange(2))},
    )


def heterogeneous() -> Graph:
    """Papers are sorted by their destination, so that positions are edge ids."""
    rng = np.random.default_rng(1)
    cites = rng.integers(0, 20, (2, 50))
    return Graph.from_coo(
        {
            WRITES: np.stack((rng.integers(0, 30, 90), rng.integers(0, 20, 90))),
            CITES: cites[:, np.argsort(cites[1], kind="stable")],
        },
        {"author": 30, "paper": 20},
        x={"paper": rng.random((20, 4))},
        edge_weight={CITES: rng.random(50)},
        edge_attrs={CITES: {"x": np.arange(50)}},
        val={"author": np.array([29, 3, 7])},
        graph_attrs={"name": "typed"},
    )


def method_of(graph: Graph, name: str, parts: int) -> Any:
    """The argument `method`: some assignment, if it is to be given."""
    if name != "given":
        return name
    rng = np.random.default_rng(parts)
    given = {kind: rng.integers(0, parts, graph.num_nodes(kind)) for kind in graph.node_types}
    return given if graph.is_hetero else given[""]


@contextmanager
def cut(graph: Graph, path: Path, parts: int = 3, **options: Any) -> Iterator[list[Graph]]:
    """The opened parts of a graph."""
    options["method"] = method_of(graph, options.get("method", "range"), parts)
    with ExitStack() as stack:
        paths = graph.partition(parts, path / "parts", **options)
        yield [stack.enter_context(Graph.open(each)) for each in paths]


def sides_of(part: Graph) -> tuple[Side, ...]:
    assert part.part is not None
    return part.part.sides


def end_of(kind: EdgeType, side: Side) -> str:
    """The node type whose rows these are."""
    return kind[2 if side == "in" else 0]


def owner_row(side: Side) -> int:
    """The row of an edge index that has the ends whose rows these are."""
    return 1 if side == "in" else 0


@st.composite
def graphs(draw: Any) -> tuple[Any, int]:
    """Ends of edges, and a number of nodes; hubs, parallel edges, self-loops and no edges."""
    nodes = draw(st.integers(1, 12))
    ids = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(ids, ids), max_size=40))
    return np.array(edges, np.int64).reshape(-1, 2).T, nodes
