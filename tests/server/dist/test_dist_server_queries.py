"""What a `DistServer` tells about its data: in process and over a wire, the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.slices import ServerSlice, compute_server_assignments
from penstock.graph import Graph
from penstock.graph.partition.book import RangeBook
from penstock.options import Limits
from penstock.server.dist.dist_server import DistServer
from penstock.wire.requests import FeatureInfo, FetchABLPInputRequest, FetchNodesRequest, TypeSize
from tests.client.graphs import NODES, TRAIN, small_graph
from tests.server.stores import BUYS, ITEMS, RIGHT, USERS, WAYS, WRONG, AnyServer, reached, shop


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    with small_graph() as found:
        yield found


@pytest.fixture(scope="module")
def store() -> Iterator[Graph]:
    with shop() as found:
        yield found


@pytest.fixture(scope="module", params=WAYS)
def server(request: pytest.FixtureRequest, graph: Graph) -> Iterator[AnyServer]:
    """Of a homogeneous graph."""
    with reached(request.param, graph, num_workers=0) as (found, _):
        yield found


@pytest.fixture(scope="module", params=WAYS)
def typed(request: pytest.FixtureRequest, store: Graph) -> Iterator[AnyServer]:
    """Of a graph with types."""
    with reached(request.param, store, num_workers=0, limits=Limits(max_answer_bytes=2750)) as (
        found,
        _,
    ):
        yield found


# --- 35 --------------------------------------------------------------------------------------


def test_ids_are_those_of_the_split_in_its_order(server: AnyServer, graph: Graph) -> None:
    """CONTRACT 35: a split by its name; None means all."""
    np.testing.assert_array_equal(server.get_node_ids("train"), graph.split("train"))
    np.testing.assert_array_equal(server.get_node_ids(), np.arange(NODES))
    assert server.get_node_ids("train").dtype == np.int64


def test_the_slice_is_applied_last(server: AnyServer, graph: Graph) -> None:
    """CONTRACT 35, 36: slices of the split, which together are the split."""
    halves = [compute_server_assignments(1, 2, rank)[0] for rank in (0, 1)]
    found = [server.get_node_ids("train", server_slice=half) for half in halves]
    assert [len(half) for half in found] == [TRAIN // 2, TRAIN // 2]
    np.testing.assert_array_equal(np.concatenate(found), graph.split("train"))


def test_a_request_says_the_same_in_one_piece(typed: AnyServer, store: Graph) -> None:
    """CONTRACT 62: `FetchNodesRequest(split, node_type, server_slice)`."""
    request = FetchNodesRequest(
        split="train", node_type="user", server_slice=ServerSlice(0, 0, 3, 1, 3)
    )
    found = typed.get_node_ids(request)
    np.testing.assert_array_equal(found, store.split("train", "user")[: 17 // 3])


@pytest.mark.parametrize("split", ["tests", "", "Train", "x"])
def test_a_split_of_another_name_is_refused(server: AnyServer, split: str) -> None:
    """CONTRACT 35: ValueError."""
    with pytest.raises(ValueError, match=r"expected one of train, val, test, or None"):
        server.get_node_ids(split)


def test_a_split_that_the_graph_lacks_is_refused(server: AnyServer) -> None:
    with pytest.raises(ValueError, match="no split called 'val'; there are: 'train'"):
        server.get_node_ids("val")


def test_an_empty_split_has_no_ids(typed: AnyServer) -> None:
    assert typed.get_node_ids("val", "user").tolist() == []


def test_a_type_is_refused_where_there_are_none(server: AnyServer) -> None:
    """CONTRACT 35: ValueError."""
    with pytest.raises(ValueError, match="node_type is 'user'; this graph has no types"):
        server.get_node_ids(node_type="user")


@pytest.mark.parametrize("node_type", [None, "users"])
def test_a_type_is_needed_where_there_are_some(typed: AnyServer, node_type: str | None) -> None:
    """CONTRACT 35: ValueError that names those there are."""
    with pytest.raises(ValueError, match="this graph has 'user', 'item'"):
        typed.get_node_ids(node_type=node_type)


# --- 37, 63 ----------------------------------------------------------------------------------


def labels_of(graph: Graph, kind: Any, anchors: Any, most: int | None = None) -> list[list[int]]:
    sources, destinations = graph.edge_index(kind)
    return [destinations[sources == anchor][:most].tolist() for anchor in anchors]


def unpadded(rows: Any) -> list[list[int]]:
    """Rows without their padding, which stands at the end."""
    assert all((row[np.argmax(row < 0) :] < 0).all() for row in rows if (row < 0).any())
    return [row[row >= 0].tolist() for row in rows]


def test_anchors_have_their_labels_beside_them(typed: AnyServer, store: Graph) -> None:
    """CONTRACT 37, 63: by split; types found by name; padded with -1 to the longest row."""
    anchors, right, wrong = typed.get_ablp_input("train", "user", BUYS)
    assert wrong is not None
    np.testing.assert_array_equal(anchors, store.split("train", "user"))
    assert unpadded(right) == labels_of(store, RIGHT, anchors)
    assert unpadded(wrong) == labels_of(store, WRONG, anchors)
    assert right.shape[1] == max(map(len, labels_of(store, RIGHT, anchors)))


def test_an_anchor_without_labels_has_a_row_of_nothing(typed: AnyServer) -> None:
    """CONTRACT 37: user 0 has none."""
    anchors, right, _ = typed.get_ablp_input(None, "user", BUYS)
    assert (right[anchors == 0] == -1).all()


def test_the_cap_keeps_the_first_labels(typed: AnyServer, store: Graph) -> None:
    """CONTRACT 37: the first M of each anchor, in the order of the edges."""
    anchors, right, _ = typed.get_ablp_input("train", "user", BUYS, max_labels=2)
    assert right.shape == (len(anchors), 2)
    assert unpadded(right) == labels_of(store, RIGHT, anchors, 2)


def test_a_cap_of_0_keeps_no_labels(typed: AnyServer) -> None:
    """CONTRACT 37: 0 is a number of labels; None is no limit."""
    anchors, right, wrong = typed.get_ablp_input("train", "user", BUYS, max_labels=0)
    assert wrong is not None
    assert right.shape == wrong.shape == (len(anchors), 0)


def test_a_slice_of_the_anchors_has_their_labels(typed: AnyServer, store: Graph) -> None:
    """CONTRACT 37, 62: `FetchABLPInputRequest`; the slice is of the anchors."""
    request = FetchABLPInputRequest(
        split="train",
        node_type="user",
        supervision_edge_type=BUYS,
        server_slice=ServerSlice(0, 1, 2, 2, 2),
    )
    found = typed.get_ablp_input(request)
    np.testing.assert_array_equal(found.anchors, store.split("train", "user")[8:])
    assert unpadded(found.positive) == labels_of(store, RIGHT, found.anchors)


@given(st.permutations(range(USERS)), st.integers(1, USERS))
def test_row_k_belongs_to_anchor_k_in_any_order(order: list[int], size: int) -> None:
    """CONTRACT 37."""
    anchors = np.array(order[:size])
    rng = np.random.default_rng(3)
    edges = np.stack((rng.integers(0, USERS, 60), rng.integers(0, ITEMS, 60)))
    kinds = {BUYS: edges, RIGHT: edges[:, ::-1]}
    with Graph.from_coo(kinds, {"user": USERS, "item": ITEMS}, train={"user": anchors}) as graph:
        found = DistServer(graph, num_workers=0).get_ablp_input("train", "user", BUYS)
        assert found.anchors.tolist() == anchors.tolist()
        assert unpadded(found.positive) == labels_of(graph, RIGHT, anchors)
        assert found.negative is None


def test_label_types_may_be_given(typed: AnyServer, store: Graph) -> None:
    """CONTRACT 63."""
    anchors, right, wrong = typed.get_ablp_input(
        "train", "user", BUYS, positive=WRONG, negative=RIGHT
    )
    assert wrong is not None
    assert unpadded(right) == labels_of(store, WRONG, anchors)
    assert unpadded(wrong) == labels_of(store, RIGHT, anchors)


def test_without_positive_labels_there_is_nothing_to_predict(typed: AnyServer) -> None:
    """CONTRACT 63: a missing positive type is a ValueError that says how it would be called."""
    with pytest.raises(ValueError, match=r"no edge type \('user', 'sees_positive', 'item'\)"):
        typed.get_ablp_input("train", "user", ("user", "sees", "item"))


def test_without_negative_labels_there_are_none(typed: AnyServer) -> None:
    """CONTRACT 63: a missing negative type means None."""
    found = typed.get_ablp_input("train", "user", ("user", "likes", "item"))
    assert found.negative is None
    assert found.positive.size


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "user", None), "supervision_edge_type is missing"),
        (("train", "user", ("user", "buys", "thing")), "this graph has 'user', 'item'"),
        ((None, "item", BUYS), "node_type is 'item'; the anchors of"),
        (("all", "user", BUYS), "split is 'all'"),
    ],
)
def test_anchors_that_cannot_be_are_refused(
    typed: AnyServer, arguments: tuple[Any, ...], words: str
) -> None:
    """CONTRACT 37: ValueError, in words."""
    with pytest.raises(ValueError, match=words):
        typed.get_ablp_input(*arguments)


# --- 38 --------------------------------------------------------------------------------------


def test_types_are_none_for_a_homogeneous_graph(server: AnyServer) -> None:
    """CONTRACT 38."""
    assert server.get_node_types() is None
    assert server.get_edge_types() is None
    assert server.get_edge_dir() == "in"


def test_types_are_in_the_order_of_the_graph(typed: AnyServer, store: Graph) -> None:
    """CONTRACT 38."""
    assert typed.get_node_types() == list(store.node_types)
    assert typed.get_edge_types() == list(store.edge_types)


def test_the_meta_data_say_what_there_is(typed: AnyServer, store: Graph) -> None:
    """CONTRACT 38."""
    meta = typed.get_dataset_meta()
    assert (meta.num_partitions, meta.partition_idx, meta.edge_dir) == (1, 0, "in")
    assert meta.node_types == store.node_types
    assert meta.num_nodes == (TypeSize("user", USERS), TypeSize("item", ITEMS))
    assert meta.num_edges[0] == TypeSize(BUYS, 90)


def test_features_and_labels_come_by_id(server: AnyServer, graph: Graph) -> None:
    """CONTRACT 38: the rows of the ids, in their order, as often as they are named."""
    ids = [7, 3, 7, NODES - 1]
    for index in (ids, np.array(ids), np.array(ids, np.int32)):
        found = server.get_node_feature(None, index)
        np.testing.assert_array_equal(found, graph.node_attribute("x")[ids])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(server.get_node_label(None, ids), graph.node_attribute("y")[ids])
    assert server.get_tensor_size() == (NODES, 6)


def test_without_an_index_all_rows_come(server: AnyServer, graph: Graph) -> None:
    """CONTRACT 38."""
    np.testing.assert_array_equal(server.get_node_feature(), graph.node_attribute("x"))


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ([1, NODES], rf"ids\[1\] is {NODES}; expected 0 <= id < {NODES}"),
        ([-1], r"ids\[0\] is -1"),
        ([[1]], "expected a list of ids"),
        ([1.5], "expected a list of ids"),
    ],
)
def test_an_id_that_is_not_there_is_an_error(server: AnyServer, index: Any, words: str) -> None:
    """CONTRACT 38: never a wrong row; the id is named."""
    for ask in (server.get_node_feature, server.get_node_label, server.get_node_partition_id):
        with pytest.raises(ValueError, match=words):
            ask(None, index)


def test_an_attribute_that_is_not_there_is_an_error(typed: AnyServer) -> None:
    """CONTRACT 38: it names those there are."""
    with pytest.raises(ValueError, match="no node attribute of 'user' called 'y'; there are: 'x'"):
        typed.get_node_label("user", [1])


def test_edges_come_in_the_order_of_their_ids(server: AnyServer, graph: Graph) -> None:
    """CONTRACT 38: all of them, or a range of them."""
    edges = graph.edge_index()
    np.testing.assert_array_equal(server.get_edge_index(), edges)
    np.testing.assert_array_equal(server.get_edge_index(first=5, count=3), edges[:, 5:8])
    assert server.get_edge_size() == (NODES, NODES)


def test_edges_of_a_type(typed: AnyServer, store: Graph) -> None:
    """CONTRACT 38."""
    np.testing.assert_array_equal(typed.get_edge_index(BUYS), store.edge_index(BUYS))
    assert typed.get_edge_size(BUYS) == (USERS, ITEMS)


@pytest.mark.parametrize("layout", ["csc", "csr", ""])
def test_another_layout_is_refused(server: AnyServer, layout: str) -> None:
    """CONTRACT 38: ValueError."""
    for ask in (server.get_edge_index, server.get_edge_size):
        with pytest.raises(ValueError, match="expected 'coo'"):
            ask(None, layout)


def test_feature_infos_by_type(typed: AnyServer, server: AnyServer) -> None:
    """CONTRACT 38: of those that have features; None where nobody does."""
    assert typed.get_node_feature_info() == {
        "user": FeatureInfo(3, "float32"),
        "item": FeatureInfo(2, "float64"),
    }
    assert typed.get_edge_feature_info() == {BUYS: FeatureInfo(5, "float16")}
    assert server.get_node_feature_info() == FeatureInfo(6, "float32")
    assert server.get_edge_feature_info() is None


@pytest.mark.parametrize("way", WAYS)
def test_where_there_are_no_features_the_answer_is_none(way: str) -> None:
    """CONTRACT 38: not an error: models without features ask, too."""
    edges = np.array([[0, 1], [1, 0]])
    graphs = (
        Graph.from_coo(edges, num_nodes=2, x=None),
        Graph.from_coo({BUYS: edges}, {"user": 2, "item": 2}, x=None),
    )
    for graph, kind in zip(graphs, (None, "user"), strict=True):
        with graph, reached(way, graph, num_workers=0) as (server, _):
            assert server.get_node_feature_info() is None
            assert server.get_edge_feature_info() is None
            assert server.get_node_feature(kind, [1]) is None
            assert server.get_tensor_size(kind) is None


def test_the_summary_can_be_unpacked(typed: AnyServer, server: AnyServer) -> None:
    """CONTRACT 38: as people who know GraphLearn-for-PyTorch do."""
    partitions, partition_idx, node_types, edge_types = typed.get_dataset_meta()
    assert (partitions, partition_idx) == (1, 0)
    assert list(node_types) == typed.get_node_types()
    assert list(edge_types) == typed.get_edge_types()
    assert tuple(server.get_dataset_meta()) == (1, 0, None, None)


def test_a_whole_graph_is_one_partition(typed: AnyServer) -> None:
    """CONTRACT 38: the book of nodes and the book of edges."""
    assert typed.get_node_partition_book("item") == RangeBook((0, ITEMS))
    assert typed.get_edge_partition_book(BUYS) == RangeBook((0, 90))
    assert typed.get_node_partition_id("item", [0, 39]).tolist() == [0, 0]


def test_other_attributes_come_by_name(typed: AnyServer, store: Graph) -> None:
    rows = typed.get_edge_attribute("edge_attr", BUYS, [3, 1])
    np.testing.assert_array_equal(rows, store.edge_attribute("edge_attr", BUYS)[[3, 1]])
    np.testing.assert_array_equal(typed.get_graph_attribute("opening"), np.arange(7))
    assert typed.get_graph_attribute("title") == "a shop"
    with pytest.raises(ValueError, match="there are: 'title', 'opening'"):
        typed.get_graph_attribute("closing")


def test_an_answer_that_is_too_large_is_refused_before_it_is_made(typed: AnyServer) -> None:
    """CONTRACT 38: bounded; the setting is named, and the way to ask for less."""
    with pytest.raises(ValueError, match=r"2800 bytes.*setting: max_answer_bytes.*fewer ids"):
        typed.get_node_attribute("x", "item", np.zeros(175, np.int64))


def test_labels_that_are_too_many_are_refused_before_they_are_read(store: Graph) -> None:
    """CONTRACT 37, 38: the anchors fit, but not their rows of labels."""
    server = DistServer(store, num_workers=0, limits=Limits(max_answer_bytes=USERS * 8))
    with pytest.raises(ValueError, match=r"max_answer_bytes.*server_slice.*max_labels"):
        server.get_ablp_input(None, "user", BUYS)
    assert len(server.get_ablp_input(None, "user", BUYS, max_labels=1).anchors) == USERS


def test_bfloat16_rows_are_16_bits_and_their_type_is_told() -> None:
    """CONTRACT 38: tagged 16-bit integers, the same by every way."""
    torch = pytest.importorskip("torch")
    rows = torch.arange(12).reshape(4, 3).to(torch.bfloat16)
    with Graph.from_coo(np.zeros((2, 0), np.int64), 4, x=rows) as graph:
        for way in WAYS[:2]:
            with reached(way, graph, num_workers=0) as (server, _):
                found = server.get_node_feature(None, [3, 0])
                np.testing.assert_array_equal(found, graph.node_attribute("x")[[3, 0]])
                assert server.get_node_feature_info() == FeatureInfo(3, "bfloat16")
