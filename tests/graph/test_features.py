"""Rows of attributes by id: what a graph hands out to those who cut them."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.client.remote.remote_graph import FarArray, RemoteFeatures
from penstock.graph import Graph, SharedArray
from penstock.graph.features import FeatureSource, LocalFeatures
from penstock.graph.schema import NODE, ArrayKey

RATES = ("user", "rates", "film")
X = np.arange(24, dtype=np.float32).reshape(4, 3, 2)


def plain() -> Graph:
    return Graph.from_coo([[0, 1, 2], [1, 2, 3]], 4, x=X, edge_attr=[[1.5], [2.5], [3.5]])


def test_a_graph_hands_out_the_rows_of_its_attributes() -> None:
    with plain() as graph:
        x, weights = graph.node_features("x"), graph.edge_features("edge_attr")
        assert (x.dtype, x.row_shape, x.num_rows) == ("float32", (3, 2), 4)
        assert (weights.dtype, weights.row_shape, weights.num_rows) == ("float64", (1,), 3)
        np.testing.assert_array_equal(x.gather(np.array([3, 0, 3])), X[[3, 0, 3]])
        np.testing.assert_array_equal(weights.gather(np.array([2, 1])), [[3.5], [2.5]])


def test_rows_of_a_type_are_found_by_the_type() -> None:
    edges, sizes = {RATES: [[0, 1], [0, 0]]}, {"user": 2, "film": 1}
    with Graph.from_coo(edges, sizes, x={"user": [[1.0], [2.0]]}) as graph:
        assert graph.node_features("x", "user").gather(np.array([1])).tolist() == [[2.0]]
        with pytest.raises(ValueError, match="there is no node attribute of 'film' called 'x'"):
            graph.node_features("x", "film")
        with pytest.raises(ValueError, match=r"no edge attribute .* called .x.; there are: none"):
            graph.edge_features("x", RATES)


def test_rows_are_written_where_they_are_wanted() -> None:
    with plain() as graph:
        out = np.empty((2, 3, 2), np.float32)
        assert graph.node_features("x").gather(np.array([1, 2]), out) is out
        np.testing.assert_array_equal(out, X[1:3])
        with pytest.raises(ValueError, match=r"out must be float32 of shape \[1, 3, 2\]"):
            graph.node_features("x").gather(np.array([1]), out)


def test_an_id_without_a_row_is_named() -> None:
    with plain() as graph, pytest.raises(ValueError, match=r"ids\[1\] is 4; expected 0 <= id < 4"):
        graph.node_features("x").gather(np.array([0, 4]))


def test_what_numpy_has_no_type_for_comes_as_it_is_stored() -> None:
    with SharedArray.from_array(np.arange(6, dtype=np.uint16).reshape(3, 2), "bfloat16") as bits:
        source = LocalFeatures(bits)
        assert source.dtype == "bfloat16"
        assert source.gather(np.array([2])).tolist() == [[4, 5]]


def test_rows_that_are_elsewhere_are_fetched() -> None:
    asked = []

    def fetch(ids: np.ndarray) -> np.ndarray:
        asked.append(ids.tolist())
        return X[ids]

    key = ArrayKey("node", NODE, "x")
    source: FeatureSource = RemoteFeatures(FarArray("float32", X.shape, str(key), None), fetch)
    assert (source.dtype, source.row_shape, source.num_rows) == ("float32", (3, 2), 4)
    out = np.empty((1, 3, 2), np.float32)
    assert source.gather(np.array([2]), out) is out
    np.testing.assert_array_equal(out, X[[2]])
    np.testing.assert_array_equal(source.gather(np.array([1, 1])), X[[1, 1]])
    assert asked == [[2], [1, 1]]
