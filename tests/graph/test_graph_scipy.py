"""Graphs from SciPy's matrices, with one type of nodes or two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock as ps

sparse = pytest.importorskip("scipy.sparse")

pytestmark = pytest.mark.usefixtures("no_leaks")

RATES = ("user", "rates", "item")
BACK = ("item", "rev_rates", "user")


def found(graph: ps.Graph, edge_type: Any = None) -> list[tuple[int, int]]:
    return list(zip(*graph.edge_index(edge_type).tolist(), strict=True))


@pytest.mark.parametrize("form", ["coo", "csr", "csc", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("made", ["array", "matrix"])
def test_entries_are_edges_with_their_values(form: str, made: str) -> None:
    dense = np.array([[0, 2, 0], [0, 0, 3], [4, 0, 0]])
    given = getattr(sparse, f"coo_{made}")(dense).asformat(form)
    with ps.Graph.from_scipy(given) as graph:
        values = graph.edge_attribute("edge_weight").tolist()
        told = dict(zip(found(graph), values, strict=True))
    assert {pair: value for pair, value in told.items() if value} == {
        (0, 1): 2,
        (1, 2): 3,
        (2, 0): 4,
    }


def test_rows_and_columns_may_be_nodes_of_two_types() -> None:
    given = sparse.csr_array([[5, 0, 3], [0, 4, 0]])
    with ps.Graph.from_scipy(given, edge_type=RATES, values="stars", reverse=True) as graph:
        assert graph.node_types == ("user", "item")
        assert (graph.num_nodes("user"), graph.num_nodes("item")) == (2, 3)
        assert found(graph, RATES) == [(0, 0), (0, 2), (1, 1)]
        assert found(graph, BACK) == [(0, 0), (2, 0), (1, 1)]
        assert graph.edge_attribute("stars", BACK).tolist() == [5, 3, 4]


def test_several_matrices_have_a_type_each() -> None:
    knows = ("user", "knows", "user")
    given = {RATES: sparse.coo_array((2, 3)), knows: sparse.eye_array(4)}
    with ps.Graph.from_scipy(given, x={"item": np.ones((3, 2))}) as graph:
        assert graph.num_nodes("user") == 4
        assert graph.node_attribute("x", "item").shape == (3, 2)


def test_reverse_edges_come_last_and_loops_once() -> None:
    given = sparse.coo_array(([7, 8, 9], ([0, 1, 2], [1, 1, 0])), shape=(3, 3))
    with ps.Graph.from_scipy(given, reverse=True) as graph:
        assert found(graph) == [(0, 1), (1, 1), (2, 0), (1, 0), (0, 2)]
        assert graph.edge_attribute("edge_weight").tolist() == [7, 8, 9, 7, 9]


def test_values_are_left_out_where_they_are_not_wanted_or_given_otherwise() -> None:
    given = sparse.coo_array(([7, -8], ([0, 1], [1, 1])))
    with ps.Graph.from_scipy(given, values=None) as graph:
        assert not graph.edge_attributes()
    with ps.Graph.from_scipy(given, edge_weight=[1.0, 2.0]) as graph:
        assert graph.edge_attribute("edge_weight").tolist() == [1, 2]
    with ps.Graph.from_scipy(given, values="score", edge_attrs={"at": [1, 2]}) as graph:
        assert graph.edge_attributes().keys() == {"score", "at"}
    with pytest.raises(ValueError, match=r"edge_weight'?\]?\[1\] is -8"):
        ps.Graph.from_scipy(given)


def test_other_arguments_are_those_of_from_coo() -> None:
    given = sparse.eye_array(4)
    with ps.Graph.from_scipy(given, train=[1], x=np.ones((4, 2)), progress=False) as graph:
        assert graph.split("train").tolist() == [1]


@pytest.mark.parametrize(
    ("given", "options", "complaint"),
    [
        (sparse.coo_array((2, 3)), {}, r"matrix is 2 x 3: .*edge_type="),
        (np.eye(3), {}, r"matrix is numpy\.ndarray; expected a sparse matrix of SciPy"),
        ({RATES: np.eye(2)}, {}, r"matrix is numpy\.ndarray"),
        ({RATES: sparse.eye_array(2)}, {"edge_type": RATES}, "edge_type is given, but"),
        (sparse.eye_array(2), {"edge_type": "rates"}, "has the edge type 'rates'"),
        (
            {RATES: sparse.eye_array(2), BACK: sparse.eye_array(2)},
            {"reverse": True},
            "matrix has the type .* which is the reverse",
        ),
    ],
)
def test_what_is_wrong_is_said(given: Any, options: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ps.Graph.from_scipy(given, **options)
