"""Batches of layers with budgets: what is in them, and that it is what the graph has."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph import Graph
from penstock.kernels.arrays import Ids
from penstock.sampling.buffered import BufferedBatches, Sampled
from penstock.sampling.hgt import HGTKind, HGTSampler
from penstock.sampling.names import qualified
from penstock.sampling.request import Request
from penstock.sampling.spec import Feed, HGTSpec
from tests.graph.shapes import Typed, heterogeneous
from tests.sampling.graphs import CITES, HOUSES, WRITES, batch_of, library, web


def request_for(seeds: list[int] | Ids, node_type: str = "", **options: int) -> Request:
    ids = np.array(seeds, np.int64)
    name = {"seed": 1, "epoch": 2, "index": 3, **options}
    return Request(seeds=ids, positions=np.arange(len(ids)), node_type=node_type, **name)


def cut(graph: Graph, spec: HGTSpec, seeds: list[int], node_type: str = "") -> Sampled:
    return HGTSampler(graph, spec).cut(request_for(seeds, node_type))


@given(heterogeneous(), st.lists(st.integers(0, 4), max_size=3), st.integers(0, 2**32), st.data())
def test_a_batch_is_part_of_the_graph(
    typed: Typed, samples: list[int], seed: int, data: st.DataObject
) -> None:
    """CONTRACT 42, 43: seeds first; edges are edges of the graph, by place; none stands twice."""
    graph = Graph.from_coo(typed.edge_index, typed.num_nodes)
    start = data.draw(st.sampled_from(list(typed.num_nodes)))
    seeds = np.arange(typed.num_nodes[start])[::-1]
    spec = HGTSpec(num_samples=tuple(samples))
    found = HGTSampler(graph, spec).cut(request_for(seeds, start, seed=seed))
    nodes = {name: found.arrays[qualified(name, "n_id")] for name in graph.node_types}
    np.testing.assert_array_equal(nodes[start][: len(seeds)], seeds)
    assert all(len(set(ids.tolist())) == len(ids) for ids in nodes.values())
    for kind in graph.edge_types:
        rows, cols = found.arrays[qualified(kind, "edge_index")]
        e_id = found.arrays[qualified(kind, "e_id")]
        assert (np.diff(cols) >= 0).all()
        ends = np.stack([nodes[kind[0]][rows], nodes[kind[2]][cols]])
        np.testing.assert_array_equal(graph.edge_index(kind)[:, e_id], ends)


def test_edges_among_the_nodes_are_all_there() -> None:
    """CONTRACT 43: no edge between two nodes of a batch is missing, where rows are short."""
    graph = library()
    found = cut(graph, HGTSpec(num_samples=(4, 4)), [3, 5, 8], "paper")
    for kind in graph.edge_types:
        sources, destinations = graph.edge_index(kind)
        inside = np.isin(sources, found.arrays[f"{kind[0]}/n_id"])
        inside &= np.isin(destinations, found.arrays[f"{kind[2]}/n_id"])
        taken = found.arrays[qualified(kind, "e_id")]
        assert sorted(taken.tolist()) == np.flatnonzero(inside).tolist()


def test_each_type_has_its_own_numbers() -> None:
    numbers = (("paper", (2, 5)), ("venue", (0, 1)), ("author", (3, 0)))
    found = cut(library(), HGTSpec(by_type=numbers), [1, 2], "paper")
    sizes = {name: len(found.arrays[f"{name}/n_id"]) for name in ("paper", "author", "venue")}
    assert sizes == {"paper": 2 + 2 + 5, "author": 3, "venue": 1}
    assert found.facts == {"batch_size": 2, "input_type": "paper"}
    assert found.arrays["paper/input_id"].tolist() == [0, 1]


def test_a_homogeneous_graph_is_one_of_one_type() -> None:
    found = cut(web(), HGTSpec(num_samples=(10, 10)), [5, 6])
    assert found.arrays.keys() == {"n_id", "edge_index", "e_id", "input_id"}
    assert found.arrays["n_id"][:2].tolist() == [5, 6]
    assert len(found.arrays["n_id"]) == 22
    assert found.facts == {"batch_size": 2}


def test_a_batch_depends_on_its_name_and_nothing_else() -> None:
    sampler = HGTSampler(web(), HGTSpec(num_samples=(9,)))
    first = sampler.cut(request_for([1, 2])).arrays["n_id"]
    for change in ({"seed": 9}, {"epoch": 9}, {"index": 9}):
        assert sampler.cut(request_for([1, 2], **change)).arrays["n_id"].tolist() != first.tolist()
    np.testing.assert_array_equal(sampler.cut(request_for([1, 2])).arrays["n_id"], first)


def test_edge_ids_can_be_left_out() -> None:
    found = cut(web(), HGTSpec(num_samples=(4,), with_edge_ids=False), [0])
    assert "e_id" not in found.arrays


@pytest.mark.parametrize("with_edge_ids", [True, False])
def test_attributes_go_with_nodes_and_edges(with_edge_ids: bool) -> None:
    """CONTRACT 43, 44: rows of what was sampled, and of types that were not reached none."""
    graph = library()
    spec = HGTSpec(num_samples=(3, 3), with_edge_ids=with_edge_ids)
    feed = Feed(num_inputs=60, batch_size=5, node_type="paper")
    _, arrays = batch_of(graph, spec, feed)
    for name in graph.node_types:
        expected = graph.node_attribute("x", name)[arrays[f"{name}/n_id"]]
        np.testing.assert_array_equal(arrays[f"{name}/x"], expected)
    kind = qualified(WRITES, "edge_attr")
    taken = cut_ids(graph, spec)
    np.testing.assert_array_equal(arrays[kind], graph.edge_attribute("edge_attr", WRITES)[taken])
    _, alone = batch_of(graph, spec, Feed(num_inputs=4, batch_size=2, node_type="venue"))
    assert alone["paper/x"].shape == (0, 3)
    assert alone[kind].shape == (0, 2)


def cut_ids(graph: Graph, spec: HGTSpec) -> Ids:
    """The edges of the first batch of papers."""
    sampler = HGTSampler(graph, spec)
    found = sampler.cut(request_for(list(range(5)), "paper", seed=0, epoch=0, index=0))
    ids = found.edge_ids[graph.edge_types.index(WRITES)]
    assert ids is not None
    return ids


@given(st.integers(0, 6), st.lists(st.integers(0, 9), max_size=3), st.booleans())
def test_no_batch_is_larger_than_its_room(
    seeds: int, samples: list[int], with_edge_ids: bool
) -> None:
    graph = web(12, 40)
    spec = HGTSpec(num_samples=tuple(samples), with_edge_ids=with_edge_ids)
    batches = BufferedBatches(graph, spec, HGTSampler(graph, spec))
    found = batches.cut(request_for(list(range(seeds)) * 2))
    assert batches.nbytes(found) <= batches.likely_bytes(2 * seeds, "")


def test_in_edges_are_all_that_layers_need() -> None:
    assert HGTKind().needs(HGTSpec(num_samples=(3,)), library()) == ()


def test_more_samples_cost_more() -> None:
    few, many = HGTSpec(num_samples=(3,)), HGTSpec(num_samples=(3, 9))
    graph = library()
    assert 4 < HGTKind().draws(few, graph, 4, "paper") < HGTKind().draws(many, graph, 4, "paper")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (HGTSpec(num_samples=(2, -1)), r"num_samples\[1\] is -1"),
        (
            HGTSpec(by_type=(("paper", (1,)), ("author", (-3,)), ("venue", (1,)))),
            r"num_samples\['author'\]\[0\] is -3",
        ),
        (HGTSpec(by_type=(("paper", (1,)),)), "Not all node types specified.*lacks 'author'"),
        (HGTSpec(by_type=(("person", (1,)),)), "names node type 'person'"),
        (
            HGTSpec(by_type=(("paper", (1,)), ("author", (1, 2)), ("venue", (1,)))),
            "Number of layers must be the same across all node types",
        ),
        (HGTSpec(by_type=(), num_samples=(1,)), "both given"),
        (HGTSpec(num_samples=(1,), edge_attributes=("z",)), "edge_attributes names 'z'"),
    ],
)
def test_what_makes_no_sense_is_refused(spec: HGTSpec, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        HGTKind().check(spec, library())


def test_seeds_that_are_no_nodes_are_refused() -> None:
    number = library().node_types.index("paper")
    with pytest.raises(ValueError, match=rf"seeds\[{number}\]\[1\] is 60"):
        cut(library(), HGTSpec(num_samples=(1,)), [0, 60], "paper")


def test_types_that_lead_nowhere_are_no_obstacle() -> None:
    """Venues have no in-edges: there is nothing to draw, whatever is asked for."""
    found = cut(library(), HGTSpec(num_samples=(5, 5)), [0, 1], "venue")
    assert found.arrays["venue/n_id"].tolist() == [0, 1]
    assert [found.arrays[qualified(kind, "edge_index")].shape for kind in (CITES, HOUSES)] == [
        (2, 0)
    ] * 2
