"""Links with a tree for each end: whose tree it is, and what time it knows."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.graph import EdgeType, Graph
from penstock.sampling.names import qualified
from tests.sampling.graphs import CITES, WRITES, library, web
from tests.sampling.linking import batch_of_links, request_of, spec_of, started

EDGES = np.array([[3, 5, 3, 9], [5, 3, 7, 9]])


def dated(*, nodes: bool = True) -> Graph:
    """Papers and authors; node i of a type is there from time i on, or edge i is."""
    rng = np.random.default_rng(11)
    sizes = {"paper": 60, "author": 60}
    edges = {kind: rng.integers(0, 60, (2, 400)) for kind in (CITES, ("author", "writes", "paper"))}
    if nodes:
        times = {name: np.arange(size) for name, size in sizes.items()}
        return Graph.from_coo(edges, sizes, node_time=times)
    return Graph.from_coo(
        edges, sizes, edge_attrs={kind: {"time": np.arange(400)} for kind in edges}
    )


def test_disjoint_ends_are_all_sources_then_all_destinations() -> None:
    spec = spec_of(2, negatives="binary", disjoint=True)
    start = started(web(), spec, request_of(EDGES))
    index = start.arrays["edge_label_index"]
    assert index.tolist() == np.arange(16).reshape(2, 8).tolist()
    assert start.seeds[0][index[:, :4]].tolist() == EDGES.tolist()


def test_disjoint_ends_of_two_types_are_counted_in_each() -> None:
    spec = spec_of(2, negatives="binary", amount=0.5, disjoint=True)
    start = started(library(), spec, request_of(EDGES, WRITES))
    index = start.arrays["author,writes,paper/edge_label_index"]
    assert index.tolist() == [list(range(6))] * 2
    assert [len(ids) for ids in start.seeds] == [6, 6, 0]


@pytest.mark.parametrize("kind", [CITES, WRITES])
@pytest.mark.parametrize("mode", ["none", "binary", "triplet"])
@pytest.mark.parametrize("amount", [1.0, 2.0, 0.5, 1.5])
def test_a_tree_is_told_by_the_edge_it_belongs_to(kind: EdgeType, mode: str, amount: float) -> None:
    """PyG's `batch`, and right also where the negatives are no multiple of the edges."""
    if mode == "triplet" and amount % 1:
        amount = 3.0
    if mode == "none":
        amount = 1.0
    spec = spec_of(2, 2, negatives=mode, amount=amount, disjoint=True)
    _, arrays = batch_of_links(library(), spec, request_of(EDGES, kind))
    ends = seeds_of(kind, arrays)
    for name, places in ends:
        belongs = arrays[f"{name}/batch"][places]
        assert belongs.tolist() == (np.arange(len(places)) % 4).tolist()
    for name in {kind[0], kind[2]}:
        assert set(arrays[f"{name}/batch"].tolist()) == {0, 1, 2, 3}


def seeds_of(kind: EdgeType, arrays: dict[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    """By end: the node type, and the places of links' ends in order of the links."""
    if (name := qualified(kind, "edge_label_index")) in arrays:
        return [(kind[0], arrays[name][0]), (kind[2], arrays[name][1])]
    positive, negative = (
        arrays[f"{kind[2]}/{name}"] for name in ("dst_pos_index", "dst_neg_index")
    )
    negative = negative.reshape(4, -1).T.reshape(-1)
    return [
        (kind[0], arrays[f"{kind[0]}/src_index"]),
        (kind[2], np.concatenate([positive, negative])),
    ]


# --- times ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CITES, WRITES])
@pytest.mark.parametrize("amount", [1.0, 2.5])
def test_both_ends_of_a_link_and_its_negatives_have_its_time(kind: EdgeType, amount: float) -> None:
    """CONTRACT 46."""
    spec = spec_of(2, negatives="binary", amount=amount, time_attr="time")
    time = np.array([9, 50, 20, 59])
    start = started(dated(), spec, request_of(EDGES, kind, columns={"time": time}))
    count = 4 + int(4 * amount)
    expected = np.resize(time, count).tolist()
    assert start.arrays[qualified(kind, "edge_label_time")].tolist() == expected
    assert start.times is not None
    times = [known.tolist() for known in start.times if len(known)]
    assert times == ([2 * expected] if kind == CITES else [expected, expected])
    assert [len(ids) for ids in start.times] == [len(ids) for ids in start.seeds]


@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("kind", [CITES, WRITES])
def test_negatives_are_not_later_than_the_edge_they_stand_against(
    kind: EdgeType, mode: str
) -> None:
    """CONTRACT 46. The time of node i is i."""
    spec = spec_of(2, negatives=mode, amount=8, time_attr="time")
    time = np.array([9, 50, 20, 59])
    _, arrays = batch_of_links(dated(), spec, request_of(EDGES, kind, columns={"time": time}))
    drawn = seeds_of(kind, arrays)
    for name, places in drawn if mode == "binary" else drawn[1:]:
        ids = arrays[f"{name}/n_id"][places][4:]
        assert np.all(ids <= np.resize(time, len(ids)))
        assert len(set(ids.tolist())) > 8


@pytest.mark.parametrize("kind", [CITES, WRITES])
def test_triplets_tell_the_time_on_both_stores(kind: EdgeType) -> None:
    spec = spec_of(2, negatives="triplet", amount=2, time_attr="time")
    time = np.array([9, 50, 20, 59])
    start = started(dated(), spec, request_of(EDGES, kind, columns={"time": time}))
    for name in {kind[0], kind[2]}:
        assert start.arrays[f"{name}/seed_time"].tolist() == time.tolist()
    assert start.times is not None
    destinations = start.times[0].tolist()
    assert destinations == np.resize(time, 12 if kind == WRITES else 16).tolist()


def test_negatives_that_come_too_late_are_counted() -> None:
    graph = Graph.from_coo([[0, 1], [1, 2]], 3, node_time=np.array([8, 5, 9]))
    spec = spec_of(1, negatives="binary", amount=2, time_attr="time")
    request = request_of([[0, 1], [1, 2]], columns={"time": np.array([3, 9])})
    facts, arrays = batch_of_links(graph, spec, request)
    assert facts["num_late_negatives"] == 2
    late = arrays["n_id"][arrays["edge_label_index"][:, 2::2]]
    assert late.tolist() == [[1, 1], [1, 1]]


def test_times_of_edges_restrict_no_negatives() -> None:
    spec = spec_of(2, negatives="binary", amount=20, time_attr="time")
    request = request_of(EDGES, CITES, columns={"time": np.array([0, 0, 0, 0])})
    facts, arrays = batch_of_links(dated(nodes=False), spec, request)
    drawn = arrays["paper/n_id"][arrays["paper,cites,paper/edge_label_index"][:, 4:]]
    assert len(set(drawn.reshape(-1).tolist())) > 40
    assert "num_late_negatives" not in facts
