"""Anchors and their labels as the seeds of personalised PageRank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from penstock.graph import Graph
from penstock.sampling.kinds import check, needs_of
from penstock.sampling.normalize import settled
from penstock.sampling.spec import ABLPSpec, LinkSpec, NeighborSpec, PPRSpec
from tests.sampling.test_ablp import BUYS, LIKED, RIGHT, WRONG, batch_of, edges_of, pairs, shop

BOUGHT = ("item", "bought_by", "user")
PUSHES = PPRSpec(max_ppr_nodes=4)
SPEC = ABLPSpec(neighbors=PUSHES, supervision=(BUYS,), positive=(RIGHT,), negative=(WRONG,))
ANCHORS = [7, 3, 0, 7]  # one of them twice, and one without labels


def unlabelled(graph: Graph) -> Graph:
    """The same graph as if it had never had the labels that SPEC reads."""
    kinds = [kind for kind in graph.edge_types if kind not in (RIGHT, WRONG)]
    sizes = {name: graph.num_nodes(name) for name in graph.node_types}
    return Graph.from_coo({kind: graph.edge_index(kind) for kind in kinds}, sizes)


def scores(batch: dict[str, Any], seeds: str, found: str) -> list[Any]:
    """Each edge of PageRank by its place above and its node below, with what is said of it."""
    kind = f"{seeds},ppr,{found}"
    above, below = batch[f"{kind}/edge_index"]
    nodes = batch[f"{found}/n_id"][below]
    rows = zip(above, nodes, batch[f"{kind}/edge_attr"], strict=True)
    return [(int(place), int(node), *attr.tolist()) for place, node, attr in rows]


@pytest.mark.parametrize("direction", ["in", "out"])
def test_anchors_and_labels_have_the_scores_of_a_graph_without_labels(direction: Any) -> None:
    """Each seed's edges are those it has by itself; label edges are as if they were not there."""
    graph, pushes = shop(), replace(PUSHES, direction=direction)
    batch = batch_of(graph, replace(SPEC, neighbors=pushes), ANCHORS)
    items = batch["item/n_id"][: batch["facts"]["num_sampled_nodes"]["item"][0]]
    assert len(items) > 4
    for seeds, owner in ((ANCHORS, "user"), (items, "item")):
        alone = batch_of(unlabelled(graph), pushes, seeds, owner)
        for found in ("user", "item"):
            assert scores(batch, owner, found) == scores(alone, owner, found) != []


def test_seeds_come_first_anchors_in_order_and_labels_each_once() -> None:
    graph = shop()
    batch = batch_of(graph, SPEC, ANCHORS)
    right, wrong = edges_of(graph, RIGHT, ANCHORS), edges_of(graph, WRONG, ANCHORS)
    assert pairs(batch, BUYS, "positive") == right
    assert pairs(batch, BUYS, "negative") == wrong
    assert batch["user/n_id"][:4].tolist() == ANCHORS
    labels = list(dict.fromkeys(item for _, item in right + wrong))
    assert batch["item/n_id"][: len(labels)].tolist() == labels
    for name, seeds in (("user", 4), ("item", len(labels))):
        nodes = batch[f"{name}/n_id"].tolist()
        assert len(set(nodes)) == len(nodes) - (name == "user")  # the anchor given twice
        assert batch["facts"]["num_sampled_nodes"][name] == [seeds, len(nodes) - seeds]
    assert batch["facts"]["batch_size"] == 4
    assert batch["facts"]["input_type"] == "user"
    assert batch["user/input_id"].tolist() == [0, 1, 2, 3]
    assert np.array_equal(
        batch["user/x"], graph.node_features("x", "user").gather(batch["user/n_id"])
    )


def test_every_type_of_seeds_has_edges_to_every_type_even_without_labels() -> None:
    batch = batch_of(shop(), SPEC, [0])  # who has none
    kinds = {name.split("/")[0] for name in batch if name.endswith("/edge_index")}
    assert kinds == {f"{a},ppr,{b}" for a in ("user", "item") for b in ("user", "item")}
    assert batch["item,ppr,user/edge_index"].shape == (2, 0)
    assert batch["item,ppr,user/edge_attr"].shape == (0, 2)


def test_edges_that_were_looked_at_come_once_and_are_no_labels() -> None:
    graph = shop()
    spec = replace(SPEC, neighbors=replace(PUSHES, include_sampled_edges=True))
    batch = batch_of(graph, spec, ANCHORS)
    for kind in (BUYS, BOUGHT):
        name = ",".join(kind)
        above, below = batch[f"{name}/edge_index"]
        ids = batch[f"{name}/e_id"]
        assert len(set(ids.tolist())) == len(ids) > 0
        ends = batch[f"{kind[0]}/n_id"][above], batch[f"{kind[2]}/n_id"][below]
        assert np.array_equal(np.stack(ends), graph.edge_index(kind)[:, ids])
        assert batch["facts"]["num_sampled_edges"][name] == [len(ids)]
    assert not any(name.startswith(",".join(RIGHT)) for name in batch)


def test_anchors_and_labels_without_types_share_a_list_and_its_edges() -> None:
    graph = Graph.from_coo([[0, 1, 2, 4], [1, 2, 3, 3]], 5)
    spec = ABLPSpec(neighbors=PUSHES, supervision=(("", "", ""),))
    rows = {"positive/0": np.array([[1, 4], [3, -1]])}
    batch = batch_of(graph, spec, [3, 1], "", columns=rows)
    alone = batch_of(graph, PUSHES, [3, 1, 4], "")
    for name in ("n_id", "edge_index", "edge_attr"):
        assert np.array_equal(batch[name], alone[name])
    assert batch["y_positive"].tolist() == [[0, 0, 1], [1, 2, 0]]
    assert batch["facts"]["batch_size"] == 2


def test_nothing_is_prepared_of_label_edges_but_how_they_are_read() -> None:
    needed = needs_of(SPEC, shop())
    assert [type(each).__name__ for each in needed] == ["DegreeSizes"] * 3 + ["OutEdges"] * 2
    assert {each.edge_type for each in needed[:3]} == {BUYS, BOUGHT, LIKED}


@pytest.mark.parametrize(
    ("neighbors", "message"),
    [
        (PPRSpec(alpha=2.0), "alpha is 2.0"),
        (PPRSpec(channels=(("all", (BUYS, RIGHT), 1.0),)), r"channels\[0\] \('all'\) follows"),
        (LinkSpec(neighbors=NeighborSpec()), "expected a NeighborSpec or a PPRSpec"),
        (PPRSpec(direction="up"), "neighbors.direction is 'up'; expected 'in' or 'out'"),
    ],
)
def test_what_makes_no_sense_is_refused(neighbors: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(settled(replace(SPEC, neighbors=neighbors)), shop())
