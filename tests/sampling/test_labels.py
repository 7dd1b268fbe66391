"""Label edge types are not walked by any kind of sampling unless they are asked for."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.sampling import labels
from penstock.sampling.labels import is_label_type, label_edge_types
from penstock.sampling.spec import SamplingSpec

BUYS, LIKED = ("user", "buys", "item"), ("user", "buys_positive", "item")
BACK, LIKED_BACK = ("item", "rev_buys", "user"), ("item", "rev_buys_positive", "user")
TYPES = (BUYS, LIKED, BACK, LIKED_BACK)


@pytest.fixture
def graph() -> ps.Graph:
    """Every user and item are joined by an edge of each type: labels are one hop away."""
    pairs = np.indices((3, 4)).reshape(2, -1)
    edges = {kind: pairs if kind[0] == "user" else pairs[::-1] for kind in TYPES}
    return ps.Graph.from_coo(edges, num_nodes={"user": 3, "item": 4})


def batch_of(graph: ps.Graph, spec: SamplingSpec) -> Any:
    ids: Any = ("user", [0])
    with ps.SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
        backend.register_input("mine", ids, batch_size=1)
        backend.start_new_epoch_sampling("mine", epoch=0)
        return backend.next_batch("mine")


def num_edges(batch: Any, kind: tuple[str, str, str]) -> int:
    return int(batch[f"{','.join(kind)}/edge_index"].shape[1])


UNASKED = {
    "hops": ps.NeighborSpec(num_neighbors=(-1, -1)),
    "hops by type": ps.NeighborSpec(by_type=((BUYS, (-1, -1)), (BACK, (-1, -1)))),
    "induced": ps.NeighborSpec(num_neighbors=(-1, -1), subgraph_type="induced"),
    "bidirectional": ps.NeighborSpec(num_neighbors=(-1, -1), subgraph_type="bidirectional"),
    "subgraph": ps.SubgraphSpec(num_hops=2),
    "hgt": ps.HGTSpec(num_samples=(4, 4)),
    "ppr": ps.PPRSpec(include_sampled_edges=True),
}
ASKED = {
    "hops": ps.NeighborSpec(by_type=tuple((kind, (-1, -1)) for kind in TYPES)),
    "induced": ps.NeighborSpec(
        by_type=tuple((kind, (-1, -1)) for kind in TYPES), subgraph_type="induced"
    ),
    "subgraph": ps.SubgraphSpec(num_hops=2, walk_labels=True),
    "hgt": ps.HGTSpec(num_samples=(4, 4), walk_labels=True),
    "ppr": ps.PPRSpec(include_sampled_edges=True, channels=(("all", TYPES, 1.0),)),
}


@pytest.mark.parametrize("spec", UNASKED.values(), ids=UNASKED)
def test_label_types_stay_empty_unless_they_are_asked_for(
    graph: ps.Graph, spec: SamplingSpec
) -> None:
    batch = batch_of(graph, spec)
    assert num_edges(batch, BUYS) > 0
    assert num_edges(batch, BACK) > 0
    assert num_edges(batch, LIKED) == num_edges(batch, LIKED_BACK) == 0


@pytest.mark.parametrize("spec", ASKED.values(), ids=ASKED)
def test_label_types_are_walked_where_they_are_named(graph: ps.Graph, spec: SamplingSpec) -> None:
    batch = batch_of(graph, spec)
    assert all(num_edges(batch, kind) > 0 for kind in TYPES)


@pytest.mark.parametrize("spec", UNASKED.values(), ids=UNASKED)
def test_a_batch_is_that_of_the_graph_without_its_labels(
    graph: ps.Graph, spec: SamplingSpec
) -> None:
    pairs = np.indices((3, 4)).reshape(2, -1)
    bare = ps.Graph.from_coo({BUYS: pairs, BACK: pairs[::-1]}, num_nodes={"user": 3, "item": 4})
    batch, without = batch_of(graph, spec), batch_of(bare, spec)
    for owner in ("user", "item"):
        assert batch[f"{owner}/n_id"].tolist() == without[f"{owner}/n_id"].tolist()
    for kind in (BUYS, BACK):
        name = f"{','.join(kind)}/edge_index"
        assert batch[name].tolist() == without[name].tolist()


def test_a_walk_follows_the_path_that_names_labels(graph: ps.Graph) -> None:
    batch = batch_of(graph, ps.WalkSpec(walk_length=2, path=(LIKED, LIKED_BACK)))
    assert (batch["user/walk"] >= 0).all()


def test_a_name_that_ends_so_is_a_label_only_beside_what_it_labels() -> None:
    ordinary = (("paper", "is_positive", "topic"), ("paper", "cites", "paper"))
    assert label_edge_types(ordinary) == ()
    assert label_edge_types((*ordinary, ("paper", "is", "topic"))) == ordinary[:1]
    assert not is_label_type(("paper", "is_positive", "paper"), (("paper", "is", "topic"),))
    assert is_label_type(("a", "to_negative", "b"), (("a", "to", "b"),))


def test_types_left_out_are_told_once(
    graph: ps.Graph, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "_told", set())
    with caplog.at_level(logging.WARNING, "penstock.sampling.labels"):
        for _ in range(2):
            batch_of(graph, UNASKED["hops"])
        batch_of(graph, ASKED["hops"])
    assert len(caplog.records) == 1
    assert "buys_positive" in caplog.text
