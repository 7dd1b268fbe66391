"""Anchors, their labels, and what a batch says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph import Graph
from penstock.sampling.ablp import label_types, walked
from penstock.sampling.kinds import check
from penstock.sampling.labels import label_type
from penstock.sampling.names import qualified
from penstock.sampling.spec import ABLPSpec, Feed, NeighborSpec
from tests.sampling.graphs import made, maker_for

BUYS = ("user", "buys", "item")
LIKES = ("user", "likes", "item")
KNOWS = ("user", "knows", "user")
RIGHT, WRONG = label_type(BUYS, "positive"), label_type(BUYS, "negative")
LIKED = label_type(LIKES, "positive")
SPEC = ABLPSpec(neighbors=NeighborSpec(num_neighbors=(2, 2)), supervision=(BUYS,))


def shop(num_users: int = 30, num_items: int = 40) -> Graph:
    """Users, items, what is bought, and labels of both signs; user 0 has no labels."""
    rng = np.random.default_rng(5)

    def edges(ends: tuple[int, int], count: int, first: int = 0) -> Any:
        return np.stack((rng.integers(first, ends[0], count), rng.integers(0, ends[1], count)))

    return Graph.from_coo(
        {
            BUYS: edges((num_users, num_items), 90),
            ("item", "bought_by", "user"): edges((num_items, num_users), 90),
            RIGHT: edges((num_users, num_items), 70, 1),
            WRONG: edges((num_users, num_items), 50, 1),
            LIKED: edges((num_users, num_items), 40, 1),
        },
        {"user": num_users, "item": num_items},
        x={"user": rng.random((num_users, 3)), "item": rng.random((num_items, 2))},
    )


def batch_of(
    graph: Graph, spec: ABLPSpec, anchors: Any, node_type: str = "user", **given: Any
) -> dict[str, Any]:
    anchors = np.asarray(anchors)
    feed = Feed(num_inputs=len(anchors), batch_size=max(len(anchors), 1), node_type=node_type)
    maker = maker_for(graph, spec, feed, anchors, **given)
    written, arrays = made(maker, 0, 0, 1 << 20)
    return {**arrays, "facts": written.facts}


def pairs(batch: dict[str, Any], kind: Any, sign: str) -> list[tuple[int, int]]:
    """Labels as (anchor, node): what they are in the graph."""
    anchors, labels = batch[qualified(kind, f"y_{sign}")]
    return [
        (int(batch["user/n_id"][anchor]), int(batch["item/n_id"][label]))
        for anchor, label in zip(anchors, labels, strict=True)
    ]


def edges_of(graph: Graph, kind: Any, anchors: Any, most: int | None = None) -> list[Any]:
    """The labels of each anchor in the order of the edges' ids."""
    sources, destinations = graph.edge_index(kind)
    return [
        (int(anchor), int(label))
        for anchor in anchors
        for label in destinations[sources == anchor][:most]
    ]


def test_labels_are_those_of_the_edges_for_every_anchor() -> None:
    """CONTRACT 47: [2, E], the anchor's place and the label's place among the items."""
    graph, anchors = shop(), np.array([7, 3, 0, 12])
    batch = batch_of(graph, SPEC, anchors)
    assert pairs(batch, BUYS, "positive") == edges_of(graph, RIGHT, anchors)
    assert pairs(batch, BUYS, "negative") == edges_of(graph, WRONG, anchors)


@given(st.permutations(range(30)), st.integers(1, 30))
def test_labels_follow_their_anchors_in_any_order(order: list[int], size: int) -> None:
    """CONTRACT 37, 47: row k belongs to anchor k."""
    graph, anchors = shop(), np.array(order[:size], np.int64)
    batch = batch_of(graph, SPEC, anchors)
    assert pairs(batch, BUYS, "positive") == edges_of(graph, RIGHT, anchors)
    assert batch["user/n_id"][:size].tolist() == anchors.tolist()


def test_seeds_are_anchors_then_labels_each_once() -> None:
    graph, anchors = shop(), np.array([7, 3, 7])
    spec = ABLPSpec(neighbors=NeighborSpec(), supervision=(BUYS,))
    batch = batch_of(graph, spec, anchors)
    labels = edges_of(graph, RIGHT, anchors) + edges_of(graph, WRONG, anchors)
    assert batch["user/n_id"].tolist() == [7, 3, 7]
    assert batch["item/n_id"].tolist() == list(dict.fromkeys(item for _, item in labels))
    assert batch["facts"]["batch_size"] == 3


def test_anchors_and_labels_of_one_type_share_a_list() -> None:
    graph = Graph.from_coo([[0, 1], [1, 2]], 5)
    spec = ABLPSpec(neighbors=NeighborSpec(), supervision=(("", "", ""),))
    batch = batch_of(graph, spec, [3, 1], "", columns={"positive/0": np.array([[1, 4], [3, -1]])})
    assert batch["n_id"].tolist() == [3, 1, 4]
    assert batch["y_positive"].tolist() == [[0, 0, 1], [1, 2, 0]]
    assert "y_negative" not in batch


def test_label_edges_are_never_walked() -> None:
    spec = ABLPSpec(neighbors=NeighborSpec(num_neighbors=(-1, -1)), supervision=(BUYS,))
    batch = batch_of(shop(), spec, np.arange(30))
    for kind in (RIGHT, WRONG):
        assert batch[qualified(kind, "edge_index")].shape == (2, 0)
    assert batch[qualified(BUYS, "edge_index")].shape[1] > 0


@pytest.mark.parametrize("most", [0, 1, 2, 100])
def test_the_cap_keeps_the_first_labels(most: int) -> None:
    """CONTRACT 37: by edge types and by padded rows alike."""
    graph, anchors = shop(), np.arange(30)
    spec = ABLPSpec(neighbors=SPEC.neighbors, supervision=(BUYS,), max_labels=most)
    assert pairs(batch_of(graph, spec, anchors), BUYS, "positive") == edges_of(
        graph, RIGHT, anchors, most
    )
    rows = np.array([[5, -1, 6, 7]] * 30)
    padded = batch_of(graph, spec, anchors, columns={"positive/0": rows})
    assert pairs(padded, BUYS, "positive") == [
        (anchor, label) for anchor in range(30) for label in [5, 6, 7][:most]
    ]


def test_several_supervision_edge_types_at_once() -> None:
    """CONTRACT 47."""
    graph, anchors = shop(), np.array([9, 4])
    spec = ABLPSpec(neighbors=SPEC.neighbors, supervision=(BUYS, LIKES))
    batch = batch_of(graph, spec, anchors)
    assert pairs(batch, BUYS, "positive") == edges_of(graph, RIGHT, anchors)
    assert pairs(batch, LIKES, "positive") == edges_of(graph, LIKED, anchors)
    assert qualified(LIKES, "y_negative") not in batch


def test_padded_rows_take_the_place_of_edges() -> None:
    rows = np.array([[1, 2, -1], [-1, -1, -1]], np.int32)
    batch = batch_of(shop(), SPEC, [9, 4], columns={"positive/0": rows})
    assert pairs(batch, BUYS, "positive") == [(9, 1), (9, 2)]


def test_edge_types_that_are_given_need_no_names() -> None:
    graph, anchors = shop(), np.array([9, 4])
    spec = ABLPSpec(neighbors=SPEC.neighbors, supervision=(BUYS,), positive=(LIKED,))
    assert pairs(batch_of(graph, spec, anchors), BUYS, "positive") == edges_of(
        graph, LIKED, anchors
    )


def test_labels_are_found_by_the_name_of_the_supervision_edge_type() -> None:
    """CONTRACT 63: a missing negative type means None."""
    graph = shop()
    spec = ABLPSpec(neighbors=SPEC.neighbors, supervision=(BUYS, LIKES))
    assert label_types(spec, graph, "positive") == (RIGHT, LIKED)
    assert label_types(spec, graph, "negative") == (WRONG, None)


def test_without_positive_labels_a_channel_is_refused() -> None:
    """CONTRACT 63."""
    spec = ABLPSpec(neighbors=SPEC.neighbors, supervision=(("item", "bought_by", "user"),))
    with pytest.raises(ValueError, match=r"no positive labels of .*bought_by_positive"):
        batch_of(shop(), spec, [1], "item")


def test_fan_outs_by_type_need_not_speak_of_labels() -> None:
    graph = shop()
    fanouts = ((BUYS, (3,)), (("item", "bought_by", "user"), (2,)), (LIKED, (1,)))
    spec = ABLPSpec(neighbors=NeighborSpec(by_type=fanouts), supervision=(BUYS,))
    found = dict(walked(spec, graph).by_type or ())
    assert found == {**dict(fanouts), RIGHT: (0,), WRONG: (0,)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"supervision": ()}, "supervision is empty"),
        ({"supervision": (("user", "x", "shop"),)}, r"supervision\[0\] is .*'user', 'item'"),
        ({"supervision": (BUYS, ("item", "x", "user"))}, r"supervision\[1\].*must be 'user'"),
        ({"positive": (BUYS, BUYS)}, "positive has 2 edge types; expected one for each of 1"),
        ({"negative": (("user", "x", "item"),)}, r"negative\[0\] is"),
        ({"positive": (("item", "bought_by", "user"),)}, "its ends are not those of"),
        ({"max_labels": -1}, "max_labels is -1"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    usual: dict[str, Any] = {"neighbors": SPEC.neighbors, "supervision": (BUYS,)}
    with pytest.raises(ValueError, match=message):
        check(ABLPSpec(**usual | options), shop())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.array([[40]]), "has the label 40; expected 0 <= id < 40"),
        (np.array([[-2]]), "has the label -2"),
        (np.array([[0.5]]), "expected integers"),
        (np.array([3]), "a row of labels for each anchor"),
    ],
)
def test_padded_rows_that_are_none_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batch_of(shop(), SPEC, [1], columns={"positive/0": rows})
