"""Edges to predict are not sampled: which these are, in which types, and in which trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.graph import EdgeType
from penstock.sampling.exclusion import reverse_type
from penstock.sampling.spec import Exclude, SamplingSpec

BUYS, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")
SEES, SEEN = ("user", "sees", "item"), ("item", "seen_by", "user")
ALL = ps.NeighborSpec(num_neighbors=(-1, -1))
PAIRS = np.indices((3, 4)).reshape(2, -1)


@pytest.fixture
def shop() -> ps.Graph:
    """Every user and item are joined by an edge of each type, and twice by `buys`."""
    edges = {
        BUYS: np.tile(PAIRS, 2),
        BACK: PAIRS[::-1],
        SEES: PAIRS,
        SEEN: PAIRS[::-1],
    }
    return ps.Graph.from_coo(edges, num_nodes={"user": 3, "item": 4})


def batch_of(
    graph: ps.Graph, spec: SamplingSpec, inputs: Any, columns: dict[str, Any] | None = None
) -> Any:
    with ps.SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
        backend.register_input("mine", inputs, columns=columns or {}, batch_size=99)
        backend.start_new_epoch_sampling("mine", epoch=0)
        return backend.next_batch("mine")


def shown(batch: Any, kind: EdgeType) -> list[tuple[int, int]]:
    """The edges of a batch, by the ids of their ends."""
    rows, cols = batch[f"{','.join(kind)}/edge_index"]
    sources, destinations = batch[f"{kind[0]}/n_id"][rows], batch[f"{kind[2]}/n_id"][cols]
    return list(zip(sources.tolist(), destinations.tolist(), strict=True))


@pytest.mark.parametrize("exclude", [None, "self", "reverse"])
def test_links_are_left_out_of_their_type_and_of_its_reverse(
    shop: ps.Graph, exclude: Exclude | None
) -> None:
    links = [(0, 0), (1, 2)]
    spec = ps.LinkSpec(neighbors=ALL, exclude=exclude)
    batch = batch_of(shop, spec, (BUYS, np.array(links).T))
    assert (set(links) & set(shown(batch, BUYS)) == set()) == (exclude is not None)
    back = {(item, user) for user, item in links}
    assert (back & set(shown(batch, BACK)) == set()) == (exclude == "reverse")
    assert set(links) <= set(shown(batch, SEES)), "other types are not concerned"
    assert shown(batch, BUYS).count((2, 0)) == 2


def test_the_reverse_type_may_be_named(shop: ps.Graph) -> None:
    spec = ps.LinkSpec(neighbors=ALL, exclude="reverse", rev_edge_types=(SEEN,))
    batch = batch_of(shop, spec, (BUYS, np.array([[0], [0]])))
    assert (0, 0) in shown(batch, BACK)
    assert (0, 0) not in shown(batch, SEEN)


def test_a_tree_is_without_its_own_link_alone() -> None:
    ring = np.arange(6)
    graph = ps.Graph.from_coo(np.stack([ring, (ring + 1) % 6]), num_nodes=6)
    hops = ps.NeighborSpec(num_neighbors=(-1,), disjoint=True)
    links = np.array([[0, 1], [1, 2]])  # 1 is the end of both
    batch = batch_of(graph, ps.LinkSpec(neighbors=hops, exclude="self"), links)
    rows, cols = batch["edge_index"]
    ends = zip(batch["n_id"][rows].tolist(), batch["n_id"][cols].tolist(), strict=True)
    found = set(zip(ends, batch["batch"][cols].tolist(), strict=True))
    assert ((0, 1), 1) in found
    assert found.isdisjoint({((0, 1), 0), ((1, 2), 1)})


@pytest.mark.parametrize("subgraph_type", ["induced", "bidirectional"])
def test_batches_made_whole_have_no_excluded_edge(shop: ps.Graph, subgraph_type: Any) -> None:
    hops = ps.NeighborSpec(num_neighbors=(-1, -1), subgraph_type=subgraph_type)
    spec = ps.LinkSpec(neighbors=hops, exclude="reverse")
    with (
        pytest.warns(UserWarning, match="reverse edge type")
        if subgraph_type != "induced"
        else (_nothing())
    ):
        batch = batch_of(shop, spec, (BUYS, np.array([[0, 1], [0, 2]])))
    assert not {(0, 0), (1, 2)} & set(shown(batch, BUYS))
    assert not {(0, 0), (2, 1)} & set(shown(batch, BACK))
    assert {(2, 0), (2, 2)} <= set(shown(batch, BUYS))


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


@pytest.mark.parametrize("disjoint", [False, True])
def test_anchors_do_not_see_the_edges_to_their_labels(shop: ps.Graph, disjoint: bool) -> None:
    """The default; each supervision type has its own pairs."""
    hops = ps.NeighborSpec(num_neighbors=(-1, -1), disjoint=disjoint)
    spec = ps.ABLPSpec(neighbors=hops, supervision=(BUYS, SEES))
    columns = {"positive/0": np.array([[0], [1]]), "positive/1": np.array([[2], [-1]])}
    batch = batch_of(shop, spec, ("user", [0, 1]), columns)
    seeds = batch["item/batch"] if disjoint else None
    for kind, pairs in ((BUYS, {(0, 0), (1, 1)}), (SEES, {(0, 2)})):
        edges, cols = shown(batch, kind), batch[f"{','.join(kind)}/edge_index"][1]
        if seeds is None:
            assert not pairs & set(edges)
            continue
        # Trees of anchors: 0 and 1, of labels 0, 1 and 2: 2, 3 and 4.
        own = {(0, 0): {0, 2}, (1, 1): {1, 3}, (0, 2): {0, 4}}
        trees = seeds[cols].tolist()
        assert all(
            tree not in own[edge] for edge, tree in zip(edges, trees, strict=True) if edge in pairs
        )
        assert pairs & set(edges), "other trees may show them"
    everything = batch_of(
        shop,
        ps.ABLPSpec(neighbors=hops, supervision=(BUYS,), exclude=None),
        ("user", [0]),
        {"positive/0": np.array([[0]])},
    )
    assert (0, 0) in shown(everything, BUYS)


def test_labels_are_seen_at_the_time_of_their_anchor() -> None:
    """Item 0 is labelled by users at times 1 and 2: it is a seed at each of these."""
    bought = np.array([[2, 2, 2], [0, 0, 1]])
    graph = ps.Graph.from_coo(
        {BUYS: bought},
        num_nodes={"user": 4, "item": 2},
        edge_attrs={BUYS: {"when": np.array([1, 2, 3])}},
    )
    hops = ps.NeighborSpec(num_neighbors=(-1,), time_attr="when")
    spec = ps.ABLPSpec(neighbors=hops, supervision=(BUYS,))
    columns = {"positive/0": np.array([[0], [0], [0]]), "time": np.array([1, 2, 1])}
    batch = batch_of(graph, spec, ("user", [0, 1, 0]), columns)
    assert batch["item/n_id"].tolist() == [0, 0]
    assert batch["user,buys,item/y_positive"].tolist() == [[0, 1, 2], [0, 1, 0]]
    assert batch["user/seed_time"].tolist() == [1, 2, 1]
    assert batch["user,buys,item/edge_index"][1].tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("types", "kind", "expected"),
    [
        ([("a", "to", "a")], ("a", "to", "a"), ("a", "to", "a")),
        ([("a", "to", "a"), ("a", "rev_to", "a")], ("a", "to", "a"), ("a", "rev_to", "a")),
        ([("a", "to", "b"), ("b", "rev_to", "a")], ("b", "rev_to", "a"), ("a", "to", "b")),
    ],
)
def test_reverses_are_found_as_pyg_names_them(
    types: list[EdgeType], kind: EdgeType, expected: EdgeType
) -> None:
    edges = {each: np.zeros((2, 1), np.int64) for each in types}
    sizes = {name: 1 for each in types for name in (each[0], each[2])}
    assert reverse_type(ps.Graph.from_coo(edges, num_nodes=sizes), kind) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exclude": "both"}, "exclude is 'both'; expected 'self' or 'reverse', or None"),
        ({"exclude": "self", "rev_edge_types": (SEEN,)}, "exclude is 'self'; it is for 'reverse'"),
        ({"exclude": "reverse"}, r"no edge type \('item', 'rev_sees', 'user'\).*'seen_by'"),
        (
            {"exclude": "reverse", "rev_edge_types": (BUYS,)},
            r"rev_edge_types has \('user', 'buys', 'item'\) for the reverses of .*'seen_by'",
        ),
        ({"exclude": "reverse", "rev_edge_types": (SEEN, BACK)}, "rev_edge_types has 2 edge types"),
    ],
)
def test_what_cannot_be_excluded_is_refused_with_the_choices(
    shop: ps.Graph, options: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        batch_of(shop, ps.LinkSpec(neighbors=ALL, **options), (SEES, np.array([[0], [0]])))


def test_anchors_need_times_where_time_counts(shop: ps.Graph) -> None:
    graph = ps.Graph.from_coo(
        {BUYS: PAIRS}, num_nodes={"user": 3, "item": 4}, edge_attrs={BUYS: {"when": np.arange(12)}}
    )
    hops = ps.NeighborSpec(num_neighbors=(-1,), time_attr="when")
    spec = ps.ABLPSpec(neighbors=hops, supervision=(BUYS,))
    with pytest.raises(ValueError, match=r"anchors have no times: expected columns\['time'\]"):
        batch_of(graph, spec, ("user", [0]), {"positive/0": np.array([[0]])})


@pytest.mark.parametrize("exclude", [None, "self", "reverse"])
def test_pushes_go_along_no_edge_to_predict(shop: ps.Graph, exclude: Exclude | None) -> None:
    push = ps.PPRSpec(include_sampled_edges=True)
    spec = ps.ABLPSpec(neighbors=push, supervision=(BUYS,), exclude=exclude)
    batch = batch_of(shop, spec, ("user", [0, 1]), {"positive/0": np.array([[0, 1], [2, -1]])})
    positives = {(0, 0), (0, 1), (1, 2)}
    assert (set(shown(batch, BUYS)) & positives == set()) == (exclude is not None)
    back = {(item, user) for user, item in positives}
    assert (set(shown(batch, BACK)) & back == set()) == (exclude == "reverse")
    assert (2, 0) in shown(batch, BUYS)
