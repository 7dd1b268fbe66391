"""A graph here and the same graph at a server: whoever has a view of it need not know which."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from penstock.client.remote.dist_server import RemoteDistServer
from penstock.client.remote.remote_graph import RemoteGraph
from penstock.errors import PenstockError
from penstock.graph import Graph
from penstock.graph.derived import Coo, OutEdges
from penstock.graph.view import GraphView
from penstock.server.dist.dist_server import DistServer
from penstock.server.dist.outline import outline_of
from tests.server.stores import BUYS, USERS, AsBytes, shop

ADDRESS = "tcp://host:5555"


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    with shop() as made:
        yield made


@pytest.fixture(scope="module")
def far(graph: Graph) -> Iterator[RemoteGraph]:
    outline = outline_of(graph)
    with DistServer(graph, num_workers=0) as server:
        yield RemoteGraph(outline, ADDRESS, RemoteDistServer(AsBytes(server)))


@pytest.fixture(params=["here", "at a server"])
def view(request: pytest.FixtureRequest, graph: Graph, far: RemoteGraph) -> GraphView:
    return graph if request.param == "here" else far


def test_types_sizes_and_forms_are_known(view: GraphView, graph: Graph) -> None:
    assert (view.node_types, view.edge_types) == (graph.node_types, graph.edge_types)
    assert view.num_nodes("user") == view.end_of_ids("user") == USERS
    assert view.num_edges(BUYS) == graph.num_edges(BUYS)
    found = {name: (each.dtype, each.shape) for name, each in view.node_attributes("user").items()}
    assert found == {"x": ("float32", (USERS, 3))}
    assert view.node_ids("user").tolist() == list(range(USERS))


def test_splits_edges_and_what_belongs_to_the_whole_are_the_graphs(
    view: GraphView, graph: Graph
) -> None:
    assert view.split("train", "user").tolist() == graph.split("train", "user").tolist()
    assert view.coo(BUYS).tolist() == graph.edge_index(BUYS).tolist()
    attributes = view.graph_attributes()
    assert (attributes["title"], attributes["opening"].tolist()) == ("a shop", list(range(7)))


def test_rows_are_those_of_the_graph(view: GraphView, graph: Graph) -> None:
    ids = np.array([7, 0, 7])
    for source, array in (
        (view.node_features("x", "user"), graph.node_attribute("x", "user")),
        (view.edge_features("edge_attr", BUYS), graph.edge_attribute("edge_attr", BUYS)),
    ):
        assert (source.dtype, source.row_shape) == (array.dtype.name, array.shape[1:])
        assert source.num_rows == len(array)
        np.testing.assert_array_equal(source.gather(ids), array[ids])
        out = np.empty((3, *source.row_shape), array.dtype)
        assert source.gather(ids, out) is out
        np.testing.assert_array_equal(out, array[ids])


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda view: view.own_split("exam", "user"), "exam"),
        (lambda view: view.own_split("train", "shop"), "shop"),
        (lambda view: view.own_edges(("a", "b", "c")), "edge_type"),
        (lambda view: view.own_nodes("shop"), "shop"),
        (lambda view: view.node_features("z", "user"), "'z'"),
        (lambda view: view.edge_features("z", BUYS), "'z'"),
    ],
    ids=["split", "node type of a split", "edge type", "node type", "of nodes", "of edges"],
)
def test_what_is_not_there_is_told_in_the_same_words(
    view: GraphView, ask: object, words: str
) -> None:
    assert callable(ask)
    with pytest.raises(ValueError, match=words):
        ask(view)


def test_a_graph_here_hands_on_its_own_ids(graph: Graph) -> None:
    split, edges = graph.own_split("train", "user"), graph.own_edges(BUYS)
    assert split.array is not None
    assert split.array.array.tolist() == graph.split("train", "user").tolist()
    assert edges.array is not None
    assert (edges.num, edges.array.shape) == (90, (2, 90))
    assert graph.own_nodes("user").array is None
    assert not any(each.is_away for each in (split, edges, graph.own_nodes("user")))


def test_a_graph_at_a_server_knows_its_own_ids_there(far: RemoteGraph) -> None:
    split = far.own_split("train", "user")
    assert (split.num, split.array, split.is_away, split.split) == (17, None, True, "train")
    for own, num in ((far.own_nodes("user"), USERS), (far.own_edges(BUYS), 90)):
        assert (own.num, own.array, own.is_away, own.split) == (num, None, True, None)


def test_derived_arrays_are_made_where_the_graph_is(far: RemoteGraph) -> None:
    needs = [OutEdges(BUYS), Coo(BUYS)]
    with shop() as fresh:
        assert len(fresh.lacking(needs)) == 3
        assert set(fresh.prepare(needs)) == {key for each in needs for key in each.keys}
        assert fresh.lacking(needs) == []
    assert (far.prepare(needs), far.lacking(needs)) == ({}, [])


def test_only_a_graph_here_can_be_sampled_here(graph: Graph, far: RemoteGraph) -> None:
    assert graph.here("it is") is graph
    assert (graph.address, far.address) == (None, ADDRESS)
    with pytest.raises(ValueError, match="it is not"):
        far.here("it is not")


def test_what_only_a_graph_has_is_told_to_lie_at_the_server(far: RemoteGraph) -> None:
    assert not isinstance(far, Graph)
    for name in ("csc", "save", "handle", "describe"):
        with pytest.raises(PenstockError, match=rf"{name} of the graph at {ADDRESS} lies at"):
            getattr(far, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        far.nonsense  # type: ignore[attr-defined] # noqa: B018
