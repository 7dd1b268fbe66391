"""Derived arrays that cannot be made: each complaint says why, and nothing is left behind."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.errors import GraphFormatError
from penstock.graph import Graph, SharedArray
from penstock.graph.derived import Coo, OutEdges
from penstock.graph.schema import EDGE, ArrayKey
from tests.graph.derived_graphs import RATES, num_descriptors
from tests.graph.shared_children import kinds, segments_made_by

pytestmark = pytest.mark.usefixtures("no_leaks")


def odd(**attributes: Any) -> Graph:
    return Graph.from_coo([[0, 1, 2], [1, 2, 0]], edge_attrs=attributes)


@kinds
@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda graph: graph.weight_sums(None, "w"),
            "edge attribute 'w': weights[2], of edge 2, is -1.0; expected a finite number >= 0",
        ),
        (
            lambda graph: graph.weight_sums(None, "wide"),
            "edge attribute 'wide': weights must have one number for each of 3 edges, "
            "not shape [3, 2]",
        ),
        (
            lambda graph: graph.by_time(None, "w", of_nodes=False),
            "edge attribute 'w': times must be int64 or int32, not float64",
        ),
        (
            lambda graph: graph.by_time(None, "x", of_nodes=True),
            "node attribute 'x': times must be int64 or int32, not float32",
        ),
        (
            lambda graph: graph.weight_sums(None, "weight"),
            "there is no edge attribute called 'weight'; there are: 'w', 'wide'",
        ),
        (lambda graph: graph.sorted_rows(side="up"), "side is 'up'; expected 'in' or 'out'"),
        (
            lambda graph: graph.derived(Coo(RATES)),
            "edge_type is ('user', 'rates', 'film'); this graph has no types",
        ),
    ],
)
def test_what_cannot_be_made_is_named_and_leaves_nothing(
    kind: str, ask: Callable[[Graph], object], message: str
) -> None:
    with Graph.from_coo(
        [[0, 1, 2], [1, 2, 0]],
        x=np.ones(3, np.float32),
        edge_attrs={"w": [1.0, 0.5, -1.0], "wide": np.ones((3, 2))},
        kind=kind,
    ) as graph:
        before = set(graph.arrays), num_descriptors(), segments_made_by(os.getpid())
        for _ in range(2):  # it can be asked again, to the same end
            with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
                ask(graph)
        assert (set(graph.arrays), num_descriptors(), segments_made_by(os.getpid())) == before
        graph.validate()


def test_the_type_is_named_whose_weights_are_none() -> None:
    with Graph.from_coo({RATES: [[0], [0]]}, edge_attrs={RATES: {"w": [-2]}}) as graph:
        with pytest.raises(ValueError, match=rf"^edge attribute 'w' of {re.escape(str(RATES))}: "):
            graph.weight_sums(RATES, "w")


def test_out_edges_made_on_the_way_stay_when_the_rest_fails() -> None:
    with odd(w=[-1.0, 1.0, 1.0]) as graph:
        with pytest.raises(ValueError, match=r"weights\[0\], of edge 0, is -1\.0"):
            graph.weight_sums(None, "w", "out")
        assert set(OutEdges(EDGE).keys) <= set(graph.arrays)
        graph.validate()


@pytest.mark.parametrize(
    ("name", "at", "value"), [("indptr", 1, 9), ("indptr", 2, -1), ("adjacency", (0, 1), 7)]
)
def test_damaged_rows_are_found_out_and_nothing_is_left(name: str, at: Any, value: int) -> None:
    with Graph.from_coo([[0, 1, 2], [2, 1, 0]]) as graph:
        key = ArrayKey("csc", EDGE, name)
        with SharedArray.from_array(graph.arrays[key].array, writable=True) as copy:
            copy.array[at] = value
            damaged = Graph(graph.schema, {**graph.arrays, key: copy})
            before = num_descriptors()
            for derived in (OutEdges(EDGE), Coo(EDGE)):
                with pytest.raises(GraphFormatError, match="damaged topology"):
                    damaged.derived(derived)
            assert num_descriptors() == before
            assert set(damaged.arrays) == set(graph.arrays)
