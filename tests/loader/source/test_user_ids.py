"""Inputs of loaders, given by the ids that users know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.graph import Graph
from tests.graph.named_graphs import BUYS, LIKED, NAMES, NUMBERS, ring, shop
from tests.loader.epochs import torch

pytestmark = pytest.mark.usefixtures("no_leaks")

HERE: dict[str, Any] = {"num_workers": 0, "seed": 1, "batch_size": 4}


@pytest.fixture
def graph() -> Iterator[Graph]:
    with shop() as made:
        yield made


def first(loader: Any) -> Any:
    with loader:
        return next(iter(loader))


@pytest.mark.parametrize(
    ("node_type", "given", "nodes"),
    [
        ("user", [NAMES[5], NAMES[1]], [5, 1]),
        ("user", np.array([NAMES[5]]), [5]),
        ("user", np.array([NAMES[5], NAMES[0]], object), [5, 0]),
        ("user", ps.ids([NAMES[5]]), [5]),
        ("item", ps.ids([NUMBERS[4], NUMBERS[2]]), [4, 2]),
        ("item", ps.ids(torch.tensor([NUMBERS[4]])), [4]),
        ("item", [4, 2], [4, 2]),
    ],
)
def test_inputs_may_be_given_in_users_ids(
    graph: Graph, node_type: str, given: Any, nodes: list[int]
) -> None:
    """CONTRACT 78: strings always are, integers where they are marked."""
    batch = first(ps.NeighborLoader(graph, [2, 2], (node_type, given), **HERE))
    assert batch[node_type].n_id[: len(nodes)].tolist() == nodes
    assert batch[node_type].input_id.tolist() == list(range(len(nodes)))
    same = first(ps.NeighborLoader(graph, [2, 2], (node_type, nodes), **HERE))
    assert torch.equal(batch["item"].n_id, same["item"].n_id)


def test_names_are_those_of_a_real_batch(graph: Graph) -> None:
    """CONTRACT 78: any batch can be told in the users' ids."""
    batch = first(ps.NeighborLoader(graph, [3, 3], ("user", "train"), **HERE))
    told = graph.names(batch)
    assert set(told) == {"user", "item"}
    assert told["user"].tolist() == [NAMES[node] for node in batch["user"].n_id.tolist()]
    assert told["item"].tolist() == [NUMBERS[node] for node in batch["item"].n_id.tolist()]


def test_links_may_be_given_in_users_ids(graph: Graph) -> None:
    ends = [[NAMES[3], NAMES[8]], ps.ids([NUMBERS[0], NUMBERS[5]])]
    batch = first(ps.LinkNeighborLoader(graph, [2], (BUYS, ends), **HERE))
    told = graph.names(batch)
    sources, destinations = batch[BUYS].edge_label_index.tolist()
    assert told["user"][sources].tolist() == [NAMES[3], NAMES[8]]
    assert told["item"][destinations].tolist() == [NUMBERS[0], NUMBERS[5]]
    mixed = [[NAMES[3]], np.array([7])]
    batch = first(ps.LinkNeighborLoader(graph, [2], (BUYS, mixed), **HERE))
    assert batch["item"].n_id[batch[BUYS].edge_label_index[1]].tolist() == [7]


def test_links_of_a_homogeneous_graph_may_too() -> None:
    with ring(["a", "b", "c"]) as graph:
        loader = ps.LinkNeighborLoader(graph, [2], [["a", "b"], ["c", "c"]], **HERE)
        batch = first(loader)
        assert graph.names(batch)[batch.edge_label_index].tolist() == [["a", "b"], ["c", "c"]]
        with pytest.raises(
            ValueError, match=r"edge_label_index\[1\]\[0\] is 'x', an id that no no"
        ):
            ps.LinkNeighborLoader(graph, [2], [["a"], ["x"]], **HERE)
        with pytest.raises(ValueError, match="edge_label_index has 2 sources and 1 destinations"):
            ps.LinkNeighborLoader(graph, [2], [["a", "b"], ["c"]], **HERE)


@pytest.mark.parametrize("given", [[NAMES[3], NAMES[8]], ("user", [NAMES[3], NAMES[8]])])
def test_anchors_may_be_given_in_users_ids(graph: Graph, given: Any) -> None:
    loader = ps.ABLPLoader(graph, [2], given, supervision=BUYS, positive=BUYS, **HERE)
    assert first(loader)["user"].n_id[:2].tolist() == [3, 8]


@pytest.mark.parametrize("loader", [ps.PPRLoader, ps.HGTLoader])
def test_other_loaders_take_them_as_well(graph: Graph, loader: Any) -> None:
    more = {"num_samples": [4]} if loader is ps.HGTLoader else {"max_ppr_nodes": 4}
    batch = first(loader(graph, input_nodes=("user", [NAMES[6]]), **more, **HERE))
    assert batch["user"].n_id[0] == 6


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("user", [NAMES[1], "x"]), r"input_nodes\[1\] is 'x', an id that no 'user' node has"),
        (("user", ps.ids([7])), r"input_nodes\[0\] is 7, and the ids of 'user' nodes are strings"),
        (("item", ["7"]), r"input_nodes\[0\] is '7', and the ids of 'item' nodes are integers"),
        (("shelf", ["7"]), "the 'shelf' nodes of this graph have no ids but their numbers"),
        (("user", NAMES[1]), "is no split|called .*; for the node with this id, give a list of it"),
        (("user", ["a", 7]), r"input_nodes\[1\] is 7; expected a string|dtype"),
        (ps.ids([1]), "input_nodes lacks a node type"),
    ],
)
def test_wrong_inputs_are_named(graph: Graph, given: Any, words: str) -> None:
    """CONTRACT 78: unknown ids, of another kind, of a type without any."""
    with pytest.raises(ValueError, match=words):
        ps.NeighborLoader(graph, [2], given, **HERE)


def test_labels_are_not_looked_up(graph: Graph) -> None:
    with pytest.raises(ValueError, match="positive"):
        ps.ABLPLoader(graph, [2], [NAMES[0]], supervision=BUYS, positive=np.array([["a"]]), **HERE)


def test_a_backend_takes_them_as_well(graph: Graph) -> None:
    spec = ps.NeighborSpec(num_neighbors=(2,))
    given = {
        spec: ("user", [NAMES[4], NAMES[2]]),
        ps.LinkSpec(neighbors=spec): (BUYS, [[NAMES[4], NAMES[2]], [7, 7]]),
    }
    for asked, inputs in given.items():
        with ps.SharedDistSamplingBackend(graph, asked, num_workers=0) as backend:
            backend.register_input("mine", inputs, batch_size=2)
            backend.start_new_epoch_sampling("mine", epoch=0)
            users = backend.next_batch("mine")["user/n_id"]
        named = users[:2] if asked is spec else np.intersect1d(users, [4, 2])[::-1]
        assert named.tolist() == [4, 2]


def test_types_of_links_that_are_walked_the_other_way(graph: Graph) -> None:
    ends = [ps.ids([NUMBERS[1]]), [NAMES[1]]]
    batch = first(ps.LinkNeighborLoader(graph, [2], (LIKED, ends), **HERE))
    (node,) = batch[LIKED].edge_label_index[1].tolist()
    assert graph.names(batch)["user"][node] == NAMES[1]
