"""PPR batches: what they consist of, homogeneous and heterogeneous, in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock import Graph
from penstock.graph.derived import DegreeSizes, OutEdges
from penstock.kernels.arrays import Array
from penstock.sampling.buffered import BufferedBatches, Sampled
from penstock.sampling.kinds import prepare
from penstock.sampling.ppr import PPRKind, PPRSampler, shares_of
from penstock.sampling.request import Request
from penstock.sampling.spec import Direction, Feed, PPRSpec
from tests.sampling.graphs import CITES, HOUSES, WRITES, batch_of, library, web


def request(seeds: list[int], node_type: str = "", index: int = 0) -> Request:
    ids = np.array(seeds, np.int64)
    return Request(1, 2, index, ids, np.arange(len(ids)) + 100, node_type)


def cut(graph: Graph, spec: PPRSpec, seeds: list[int], node_type: str = "") -> Sampled:
    return PPRSampler(graph, spec).cut(request(seeds, node_type))


def small() -> Graph:
    return Graph.from_coo([[1, 2, 2], [0, 0, 1]], num_nodes=4, edge_attr=np.ones((3, 7)))


def test_a_homogeneous_batch_has_one_kind_of_edges() -> None:
    """CONTRACT 48: edge_attr = [score, 1/(1+hop)]."""
    made = cut(small(), PPRSpec(), [0, 3])
    assert list(made.arrays) == ["n_id", "edge_index", "edge_attr", "input_id"]
    assert made.arrays["n_id"].tolist() == [0, 3, 2, 1]
    # In-edges of 0 come from 1 and 2, and 1's from 2: 1/8 to each, and 1/16 more to 2.
    assert made.arrays["edge_index"].tolist() == [[0, 0, 0, 1], [0, 2, 3, 1]]
    assert made.arrays["edge_attr"].tolist() == [[0.5, 1.0], [0.1875, 0.5], [0.125, 0.5], [0.5, 1]]
    assert made.arrays["edge_attr"].dtype == np.float32
    assert made.arrays["input_id"].tolist() == [100, 101]
    assert made.facts == {
        "batch_size": 2,
        "num_sampled_nodes": [2, 2],
        "num_sampled_edges": [4],
    }


def test_out_edges_are_followed_where_asked() -> None:
    made = cut(small(), PPRSpec(direction="out"), [2])
    assert made.arrays["n_id"].tolist() == [2, 0, 1]


def test_edge_attributes_of_the_graph_give_way_where_there_is_one_kind_of_edges() -> None:
    batches = BufferedBatches(small(), PPRSpec(), sampler := PPRSampler(small(), PPRSpec()))
    made = batches.cut(request([0]))
    assert sampler.own == {"edge_attr"}
    assert made.edge_ids == [None]
    assert batches.nbytes(made) < 2000  # without [E, 7] of float64


def test_every_seed_has_at_most_so_many_nodes_of_each_type() -> None:
    """CONTRACT 48: per seed and node type at most `max_ppr_nodes`."""
    made = cut(library(), PPRSpec(max_ppr_nodes=4, eps=1e-6), [3, 9, 9, 50], "paper")
    for owner in ("paper", "author", "venue"):
        seeds = made.arrays[f"paper,ppr,{owner}/edge_index"][0]
        assert np.bincount(seeds).max() == 4


def test_a_heterogeneous_batch_has_links_to_every_node_type() -> None:
    made = cut(library(), PPRSpec(max_ppr_nodes=5), [1, 3], "venue")
    kinds = [f"venue,ppr,{owner}" for owner in ("paper", "author", "venue")]
    assert list(made.arrays) == [
        "paper/n_id",
        "author/n_id",
        "venue/n_id",
        *(f"{kind}/{name}" for kind in kinds for name in ("edge_index", "edge_attr")),
        "venue/input_id",
    ]
    # No edge leads to a venue: along in-edges nothing is reached from one.
    assert made.arrays["paper/n_id"].shape == (0,)
    assert made.arrays["venue,ppr,paper/edge_index"].shape == (2, 0)
    assert made.arrays["venue,ppr,paper/edge_attr"].shape == (0, 2)
    assert made.facts["num_sampled_nodes"] == {"paper": [0, 0], "author": [0, 0], "venue": [2, 0]}
    assert made.facts["input_type"] == "venue"


def places_are_right(graph: Graph, arrays: dict[str, Array], seeds: list[int]) -> None:
    assert arrays["paper/n_id"][: len(seeds)].tolist() == seeds
    for owner in graph.node_types:
        nodes, index = arrays[f"{owner}/n_id"], arrays[f"paper,ppr,{owner}/edge_index"]
        assert np.all((nodes >= 0) & (nodes < graph.num_nodes(owner)))
        more = nodes[len(seeds) :] if owner == "paper" else nodes
        assert len(np.unique(more)) == len(more)
        assert np.all((index[1] >= 0) & (index[1] < len(nodes)))
        assert np.all((index[0] >= 0) & (index[0] < len(seeds)))
        assert np.all(np.diff(index[0]) >= 0)
        scores = arrays[f"paper,ppr,{owner}/edge_attr"][:, 0]
        for seed in range(len(seeds)):
            assert np.all(np.diff(scores[index[0] == seed]) <= 0)


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("topup", [False, True])
def test_places_ids_and_order_are_as_told(direction: Any, topup: bool) -> None:
    graph, seeds = library(), [3, 9, 50, 3]
    spec = PPRSpec(direction=direction, residual_topup=topup, max_ppr_nodes=9)
    places_are_right(graph, cut(graph, spec, seeds, "paper").arrays, seeds)


def test_the_seed_comes_first_to_itself() -> None:
    made = cut(library(), PPRSpec(), [5, 6], "paper")
    index, attr = (
        made.arrays["paper,ppr,paper/edge_index"],
        made.arrays["paper,ppr,paper/edge_attr"],
    )
    for seed in (0, 1):
        first = np.flatnonzero(index[0] == seed)[0]
        assert index[1, first] == seed
        assert attr[first, 1] == 1.0


def test_channels_add_three_columns_each() -> None:
    """CONTRACT 48: typed channels."""
    channels = (("written", (WRITES, HOUSES), 0.25), ("cited", (CITES,), 0.75))
    made = cut(library(), PPRSpec(channels=channels, max_ppr_nodes=8), [3, 9], "paper")
    papers = made.arrays["paper,ppr,paper/edge_attr"]
    assert papers.shape[1] == 8
    cited = papers[papers[:, 1] < 1]
    assert len(cited)
    assert np.all(cited[:, 4] == 0)  # by authors and venues one never comes to another paper
    assert np.all(cited[:, 7] == 1)
    np.testing.assert_array_equal(cited[:, 0], cited[:, 5])
    authors = made.arrays["paper,ppr,author/edge_attr"]
    assert len(authors)
    assert np.all(authors[:, 4] == 1)
    assert np.all(authors[:, 7] == 0)


@pytest.mark.parametrize("direction", ["in", "out"])
def test_sampled_edges_are_edges_of_the_graph(direction: Any) -> None:
    """CONTRACT 43: `n_id[edge_index]` is an edge of the graph."""
    graph = library()
    spec = PPRSpec(include_sampled_edges=True, direction=direction, max_ppr_nodes=20)
    made = cut(graph, spec, [3, 9, 9], "paper")
    total = 0
    for number, kind in enumerate(graph.edge_types):
        index = made.arrays[",".join(kind) + "/edge_index"]
        edge_ids = made.arrays[",".join(kind) + "/e_id"]
        found, expanded = (kind[0], kind[2]) if direction == "in" else (kind[2], kind[0])
        ends = [
            made.arrays[f"{found}/n_id"][index[0]],
            made.arrays[f"{expanded}/n_id"][index[1]],
        ]
        expected = graph.edge_index(kind)[:, edge_ids]
        np.testing.assert_array_equal(ends if direction == "in" else ends[::-1], expected)
        assert len(np.unique(edge_ids)) == len(edge_ids)
        assert made.edge_ids[number] is edge_ids
        assert made.facts["num_sampled_edges"][",".join(kind)] == [len(edge_ids)]
        total += len(edge_ids)
    assert total


def test_edge_ids_are_left_out_where_nobody_wants_them() -> None:
    spec = PPRSpec(include_sampled_edges=True, with_edge_ids=False)
    made = cut(library(), spec, [3], "paper")
    assert not [name for name in made.arrays if name.endswith("/e_id")]
    assert all(ids is not None for ids in made.edge_ids)  # attributes are found by them


def test_a_batch_is_a_function_of_its_name() -> None:
    spec = PPRSpec(num_neighbors_per_hop=2, max_ppr_nodes=10)
    sampler = PPRSampler(web(), spec)
    first, other, again = (sampler.cut(request([1, 2, 3], index=index)) for index in (0, 1, 0))
    for name, array in first.arrays.items():
        np.testing.assert_array_equal(array, again.arrays[name])
    assert first.arrays["n_id"].tolist() != other.arrays["n_id"].tolist()


def test_a_batch_does_not_depend_on_its_index_where_all_neighbors_are_looked_at() -> None:
    sampler = PPRSampler(web(), PPRSpec())
    first, other = (sampler.cut(request([1, 2, 3], index=index)) for index in (0, 1))
    for name, array in first.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name])


def test_a_batch_brings_the_attributes_of_its_nodes() -> None:
    """CONTRACT 43, 44: `x[i] == features[n_id[i]]`; types not reached have an empty tensor."""
    graph, feed = library(), Feed(num_inputs=4, batch_size=4, node_type="venue")
    _, arrays = batch_of(graph, PPRSpec(), feed)
    for owner in graph.node_types:
        nodes = arrays[f"{owner}/n_id"]
        features = graph.node_attribute("x", owner)
        np.testing.assert_array_equal(arrays[f"{owner}/x"], features[nodes])
    assert arrays["venue/n_id"].tolist() == [0, 1, 2, 3]
    assert arrays["paper/x"].shape == (0, 3)


def test_sampled_edges_bring_their_attributes() -> None:
    graph, feed = library(), Feed(num_inputs=60, batch_size=9, node_type="paper")
    _, arrays = batch_of(graph, PPRSpec(include_sampled_edges=True), feed)
    kind = ",".join(WRITES)
    attributes = graph.edge_attribute("edge_attr", WRITES)
    assert len(arrays[f"{kind}/e_id"])
    np.testing.assert_array_equal(arrays[f"{kind}/edge_attr"], attributes[arrays[f"{kind}/e_id"]])


def test_a_homogeneous_batch_keeps_its_scores_beside_all_attributes() -> None:
    _, arrays = batch_of(web(), PPRSpec(), Feed(num_inputs=200, batch_size=8))
    assert arrays["edge_attr"].shape == (arrays["edge_index"].shape[1], 2)
    assert "edge_weight" not in arrays  # of edges that are not the graph's
    np.testing.assert_array_equal(arrays["y"], web().node_attribute("y")[arrays["n_id"]])


@pytest.mark.parametrize("edges", [False, True])
def test_there_is_room_for_nearly_any_batch(edges: bool) -> None:
    graph = library()
    spec = PPRSpec(include_sampled_edges=edges, max_ppr_nodes=30)
    sampler = PPRSampler(graph, spec)
    batches = BufferedBatches(graph, spec, sampler)
    made = batches.cut(request(list(range(20)), "paper"))
    for most, nodes in zip(sampler.likely_nodes(20, "paper"), made.nodes, strict=True):
        assert nodes is not None
        assert len(nodes) <= most
    assert batches.nbytes(made) <= batches.likely_bytes(20, "paper")


def test_sizes_of_degrees_are_needed_and_out_edges_where_they_are_followed() -> None:
    """CONTRACT 60."""
    graph = library()
    kinds = graph.edge_types
    assert PPRKind().needs(PPRSpec(), graph) == [DegreeSizes(kind) for kind in kinds]
    needed = PPRKind().needs(PPRSpec(direction="out"), graph)
    assert set(needed) == {
        *(OutEdges(kind) for kind in kinds),
        *(DegreeSizes(kind, "out") for kind in kinds),
    }


@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_sampler_makes_nothing_of_a_graph_that_is_prepared(direction: Direction) -> None:
    """CONTRACT 60: made once, and shared by all that sample."""
    graph, spec = library(), PPRSpec(direction=direction)
    prepare(spec, graph)
    before = dict(graph.arrays)
    for _ in range(2):
        cut(graph, spec, [0, 1], graph.node_types[0])
    assert dict(graph.arrays) == before


def test_a_finer_push_costs_more() -> None:
    graph = web()
    costs = [PPRKind().draws(PPRSpec(eps=eps), graph, 10, "") for eps in (1e-1, 1e-2, 1e-3, 1e-4)]
    assert costs == sorted(costs)
    assert PPRKind().draws(PPRSpec(), graph, 20, "") == 2 * PPRKind().draws(
        PPRSpec(), graph, 10, ""
    )


@pytest.mark.parametrize(
    ("ratios", "most", "shares"),
    [
        ([0.6, 0.4], 200, [120, 80]),
        ([0.5, 0.5], 3, [2, 1]),
        ([0.2, 0.3, 0.5], 1, [0, 0, 1]),
        ([1 / 3, 1 / 3, 1 / 3], 10, [4, 3, 3]),
        ([1.0], 50, [50]),
        ([0.29, 0.71], 100, [29, 71]),
        ([0.5, 0.5], 0, [0, 0]),
        ([], 50, []),
    ],
)
def test_ratios_become_whole_numbers(ratios: list[float], most: int, shares: list[int]) -> None:
    assert shares_of(ratios, most) == shares
