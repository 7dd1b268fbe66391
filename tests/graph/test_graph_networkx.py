"""Graphs from networkx: both directions, parallel edges, and attributes as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.loader.reading import torch  # noqa: F401 - so that nobody else imports it first

networkx = pytest.importorskip("networkx")
utils = pytest.importorskip("torch_geometric.utils")

pytestmark = pytest.mark.usefixtures("no_leaks")


def found(graph: ps.Graph) -> list[tuple[int, int]]:
    return list(zip(*graph.edge_index().tolist(), strict=True))


def test_edges_of_a_directed_graph_lead_one_way() -> None:
    given = networkx.DiGraph([("c", "a"), ("a", "b"), ("b", "b")])
    with ps.Graph.from_networkx(given) as graph:
        assert graph.num_nodes() == 3
        assert found(graph) == [(0, 1), (1, 2), (2, 2)]


def test_edges_of_an_undirected_graph_lead_both_ways_but_for_loops() -> None:
    given = networkx.Graph([(7, 5), (5, 5), (5, 3)])
    with ps.Graph.from_networkx(given) as graph:
        assert found(graph) == [(0, 1), (1, 1), (1, 2), (1, 0), (2, 1)]


@pytest.mark.parametrize("kind", ["MultiGraph", "MultiDiGraph"])
def test_parallel_edges_are_edges_of_their_own(kind: str) -> None:
    given = getattr(networkx, kind)()
    given.add_edges_from([(0, 1, {"weight": 1.5}), (0, 1, {"weight": 2.5})])
    with ps.Graph.from_networkx(given) as graph:
        both = 2 if kind == "MultiGraph" else 1
        assert found(graph) == [(0, 1), (0, 1), (1, 0), (1, 0)][: 2 * both]
        assert graph.edge_attribute("edge_weight").tolist() == [1.5, 2.5] * both


def test_edges_are_those_of_pyg_for_graphs_of_all_kinds() -> None:
    for seed, directed in enumerate([False, True]):
        given = networkx.gnp_random_graph(30, 0.2, seed=seed, directed=directed)
        pairs = utils.from_networkx(given).edge_index.t().tolist()
        with ps.Graph.from_networkx(given) as graph:
            assert sorted(found(graph)) == sorted(map(tuple, pairs))


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (["b", "a"], ["b", "a"]),
        ([7, 5], [7, 5]),
        ([1, 0], [1, 0]),
        ([0, 1], None),
        (["a", 0], None),
        ([(0, 1), (1, 0)], None),
        ([1 << 70, 0], None),
        (np.array([7, 5]), [7, 5]),
    ],
)
def test_names_of_nodes_are_ids_where_they_can_be(names: Any, ids: Any) -> None:
    """CONTRACT 78"""
    given = networkx.DiGraph()
    given.add_nodes_from(names)
    with ps.Graph.from_networkx(given) as graph:
        assert graph.num_nodes() == 2
        if ids is None:
            assert graph.id_kind() is None
        else:
            assert graph.ids().tolist() == ids


def people() -> Any:
    given = networkx.Graph()
    given.add_node("ann", age=41, vec=[1.0, 2.0], train_mask=True, name="Ann")
    given.add_node("bob", age=39, vec=[3.0, 4.0], train_mask=False, name="Bob")
    given.add_edge("ann", "bob", weight=3, since=1999)
    return given


def test_attributes_become_arrays_and_a_warning_names_those_that_cannot() -> None:
    with pytest.warns(UserWarning, match=r"node 'ann' has 'Ann' as 'name', which is no number"):
        graph = ps.Graph.from_networkx(people())
    with graph:
        assert graph.node_attributes().keys() == {"age", "vec", "train_mask"}
        assert graph.node_attribute("vec").tolist() == [[1, 2], [3, 4]]
        assert graph.split("train").tolist() == [0]
        assert graph.edge_attribute("edge_weight").tolist() == [3, 3]
        assert graph.edge_attribute("since").tolist() == [1999, 1999]


def test_several_attributes_stand_side_by_side() -> None:
    chosen = {"x": ["age", "vec"], "y": "age"}
    with ps.Graph.from_networkx(people(), node_attrs=chosen, edge_attrs=["since"]) as graph:
        assert graph.node_attribute("x").tolist() == [[41, 1, 2], [39, 3, 4]]
        assert graph.node_attribute("y").tolist() == [41, 39]
        assert graph.edge_attributes().keys() == {"since"}


def test_weights_may_have_another_name_or_none() -> None:
    given = networkx.DiGraph()
    given.add_edge(0, 1, cost=0.5)
    with ps.Graph.from_networkx(given, weight="cost") as graph:
        assert graph.edge_attribute("edge_weight").tolist() == [0.5]
    with ps.Graph.from_networkx(given, weight=None) as graph:
        assert graph.edge_attributes().keys() == {"cost"}


def test_dates_become_nanoseconds() -> None:
    given = networkx.DiGraph()
    given.add_edge(0, 1, edge_time=np.datetime64("1970-01-01T00:00:01"))
    with ps.Graph.from_networkx(given) as graph:
        assert graph.edge_attribute("edge_time").tolist() == [10**9]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"node_attrs": ["name"]}, "node 'ann' has 'Ann' as 'name', which is no number"),
        ({"node_attrs": ["size"]}, "node 'ann' has no attribute 'size'"),
        ({"node_attrs": "age"}, "node_attrs is 'age'; expected names of attributes as a list"),
        ({"node_attrs": {"x": []}}, "node_attrs has an empty list"),
        ({"edge_attrs": ["cost"]}, "edge 'ann' -> 'bob' has no attribute 'cost'"),
    ],
)
def test_an_attribute_that_cannot_be_had_is_named(options: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ps.Graph.from_networkx(people(), **{"node_attrs": ["age"], **options})


def test_attributes_of_different_lengths_are_named() -> None:
    given = networkx.Graph()
    given.add_node(0, v=[1, 2])
    given.add_node(1, v=[3])
    with pytest.raises(ValueError, match="nodes have 'v' of different lengths"):
        ps.Graph.from_networkx(given, node_attrs=["v"])


def test_a_graph_without_nodes_or_edges_is_one() -> None:
    with ps.Graph.from_networkx(networkx.Graph()) as graph:
        assert (graph.num_nodes(), graph.num_edges()) == (0, 0)


def test_anything_else_is_no_graph_of_networkx() -> None:
    with pytest.raises(ValueError, match="expected a graph of networkx"):
        ps.Graph.from_networkx([[0, 1], [1, 0]])
