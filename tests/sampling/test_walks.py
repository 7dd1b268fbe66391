"""Walk batches: what is in them, and that it is what the graph has."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph import Graph
from penstock.graph.derived import OutEdges, SortedNeighbors
from penstock.graph.schema import EDGE
from penstock.kernels.arrays import Ids
from penstock.sampling.buffered import BufferedBatches, Sampled
from penstock.sampling.request import Request
from penstock.sampling.spec import Feed, WalkSpec
from penstock.sampling.walks import WalkKind, WalkSampler
from tests.graph.shapes import Array, homogeneous
from tests.sampling.graphs import CITES, HOUSES, WRITES, batch_of, library, web

Direction = Literal["in", "out"]
DIRECTIONS = pytest.mark.parametrize("direction", ["in", "out"])
ROUND = (("a", "to", "b"), ("b", "to", "a"))


def request_for(seeds: list[int] | Ids, node_type: str = "", **options: int) -> Request:
    ids = np.array(seeds, np.int64)
    name = {"seed": 1, "epoch": 2, "index": 3, **options}
    return Request(seeds=ids, positions=np.arange(len(ids)), node_type=node_type, **name)


def cut(graph: Graph, spec: WalkSpec, seeds: list[int] | Ids, node_type: str = "") -> Sampled:
    return WalkSampler(graph, spec).cut(request_for(seeds, node_type))


def two_types(edges: dict[Any, Any] | None = None) -> Graph:
    """Two a's with an edge to the one b of three that has one back, to the second a."""
    given = edges or {ROUND[0]: [[0, 1], [2, 2]], ROUND[1]: [[2], [1]]}
    return Graph.from_coo(given, {"a": 2, "b": 3}, x={"a": [[1.0], [2.0]], "b": [[3.0]] * 3})


@given(
    homogeneous(),
    st.integers(1, 5),
    st.integers(1, 3),
    st.sampled_from([(1.0, 1.0), (0.5, 2.0)]),
    st.sampled_from(["in", "out"]),
    st.integers(0, 2**32),
)
def test_every_step_of_a_walk_is_an_edge_of_the_graph(
    given_graph: tuple[int, Array],
    length: int,
    walks: int,
    bias: tuple[float, float],
    direction: Direction,
    seed: int,
) -> None:
    """CONTRACT 43: places lead to nodes, and steps are edges, in the direction of the walk."""
    num_nodes, edge_index = given_graph
    graph = Graph.from_coo(edge_index, num_nodes)
    p, q = bias
    spec = WalkSpec(walk_length=length, walks_per_node=walks, p=p, q=q, direction=direction)
    found = WalkSampler(graph, spec).cut(request_for(np.arange(num_nodes), seed=seed))
    n_id, walk, taken = (found.arrays[name] for name in ("n_id", "walk", "walk_edges"))
    assert walk.shape == (walks * num_nodes, length + 1)
    went = taken >= 0
    ends = n_id[walk[:, :-1][went]], n_id[walk[:, 1:][went]]
    sources, destinations = ends if direction == "out" else ends[::-1]
    np.testing.assert_array_equal(edge_index[:, taken[went]], np.stack([sources, destinations]))
    degrees = np.bincount(edge_index[0 if direction == "out" else 1], minlength=num_nodes)
    assert (degrees[n_id[walk[:, :-1][~went]]] == 0).all()
    assert (walk[:, :-1][~went] == walk[:, 1:][~went]).all()


@DIRECTIONS
@pytest.mark.parametrize("q", [1.0, 4.0])
def test_the_seeds_come_first_and_every_other_node_once(direction: Direction, q: float) -> None:
    """CONTRACT 42: also where a seed is given twice."""
    seeds = [7, 3, 7, 150]
    spec = WalkSpec(walk_length=6, walks_per_node=5, q=q, direction=direction)
    found = cut(web(), spec, seeds)
    n_id, walk = found.arrays["n_id"], found.arrays["walk"]
    assert n_id[:4].tolist() == seeds
    assert len(set(n_id.tolist())) == len(n_id) - 1
    assert set(walk.reshape(-1).tolist()) == set(range(len(n_id))) - {2}
    assert n_id[walk[:, 0]].tolist() == seeds * 5
    new = [place for place in dict.fromkeys(walk.T.reshape(-1).tolist()) if place > 3]
    assert new == list(range(4, len(n_id)))
    assert found.facts == {"batch_size": 4}
    assert found.arrays["input_id"].tolist() == [0, 1, 2, 3]


def test_a_batch_depends_on_its_name_and_nothing_else() -> None:
    """CONTRACT 42: seed, epoch and index decide, not what was sampled before."""
    sampler = WalkSampler(web(), WalkSpec(walk_length=9))
    first = sampler.cut(request_for([1, 2, 3])).arrays["walk"].copy()
    for change in ({"seed": 9}, {"epoch": 9}, {"index": 9}):
        assert (
            sampler.cut(request_for([1, 2, 3], **change)).arrays["walk"].tolist() != first.tolist()
        )
    np.testing.assert_array_equal(sampler.cut(request_for([1, 2, 3])).arrays["walk"], first)


def test_a_walk_into_a_dead_end_stays_there() -> None:
    graph = Graph.from_coo([[0, 1], [1, 2]], 4)
    found = cut(graph, WalkSpec(walk_length=3), [0, 3])
    assert found.arrays["n_id"][found.arrays["walk"]].tolist() == [[0, 1, 2, 2], [3, 3, 3, 3]]
    assert found.arrays["walk_edges"].tolist() == [[0, 1, -1], [-1, -1, -1]]


def test_a_walk_along_in_edges_goes_against_them() -> None:
    graph = Graph.from_coo([[0, 1], [1, 2]], 3)
    found = cut(graph, WalkSpec(walk_length=2, direction="in"), [2])
    assert found.arrays["n_id"][found.arrays["walk"]].tolist() == [[2, 1, 0]]
    assert found.arrays["walk_edges"].tolist() == [[1, 0]]


def test_edge_ids_can_be_left_out() -> None:
    found = cut(web(), WalkSpec(walk_length=2, with_edge_ids=False), [0])
    assert found.arrays.keys() == {"n_id", "input_id", "walk"}


@DIRECTIONS
def test_a_common_neighbour_is_one_that_leads_to_where_the_walk_came_from(
    direction: Direction,
) -> None:
    """From 0 to 1, and on to 2, which leads to 0; that 0 leads to 3 does not count."""
    edges = np.array([[0, 1, 1, 1, 2, 0], [1, 0, 2, 3, 0, 3]])
    graph = Graph.from_coo(edges if direction == "out" else edges[::-1].copy(), 4)
    spec = WalkSpec(walk_length=2, walks_per_node=200, p=1e12, q=1e12, direction=direction)
    found = cut(graph, spec, [0])
    walks = found.arrays["n_id"][found.arrays["walk"]]
    assert {tuple(walk) for walk in walks.tolist()} == {(0, 1, 2), (0, 3, 3)}


@DIRECTIONS
def test_the_same_nodes_are_common_neighbours_in_both_directions(direction: Direction) -> None:
    """Back and forth over a graph and over its mirror image: the very same walks."""
    edges = np.random.default_rng(4).integers(0, 12, (2, 60))
    spec = WalkSpec(walk_length=12, walks_per_node=4, p=3.0, q=0.2, direction=direction)
    other: Direction = "in" if direction == "out" else "out"
    mirrored = WalkSpec(walk_length=12, walks_per_node=4, p=3.0, q=0.2, direction=other)
    seeds = list(range(12))
    walk = cut(Graph.from_coo(edges, 12), spec, seeds).arrays["walk"]
    mirror = cut(Graph.from_coo(edges[::-1].copy(), 12), mirrored, seeds).arrays["walk"]
    np.testing.assert_array_equal(walk, mirror)


# --- along a path of types --------------------------------------------------------------------


def test_a_path_comes_round_and_its_walks_end_where_there_is_no_edge() -> None:
    found = cut(two_types(), WalkSpec(walk_length=4, path=ROUND), [0, 1], "a")
    assert found.facts == {
        "batch_size": 2,
        "input_type": "a",
        "walk_node_types": ["a", "b", "a", "b", "a"],
        "walk_edge_types": ["a,to,b", "b,to,a", "a,to,b", "b,to,a"],
    }
    assert found.arrays["a/n_id"].tolist() == [0, 1]
    assert found.arrays["b/n_id"].tolist() == [2]
    assert found.arrays["a/walk"].tolist() == [[0, 0, 1, 0, 1], [1, 0, 1, 0, 1]]
    assert found.arrays["a/walk_edges"].tolist() == [[0, 0, 1, 0], [1, 0, 1, 0]]
    stuck = two_types({ROUND[0]: [[0], [2]], ROUND[1]: [[1], [0]]})
    ended = cut(stuck, WalkSpec(walk_length=4, path=ROUND), [1, 0], "a")
    assert ended.arrays["a/walk"].tolist() == [[0, -1, -1, -1, -1], [1, 0, -1, -1, -1]]
    assert ended.arrays["a/walk_edges"].tolist() == [[-1] * 4, [0, -1, -1, -1]]


@pytest.mark.parametrize(
    ("path", "direction", "start"),
    [
        ((HOUSES, WRITES, CITES, CITES), "out", "venue"),
        ((CITES, WRITES, HOUSES), "in", "paper"),
    ],
)
def test_walks_along_a_path_take_its_edges(path: Any, direction: Direction, start: str) -> None:
    """CONTRACT 43: each step is an edge of its type; places are those of its node types."""
    graph = library()
    spec = WalkSpec(walk_length=len(path), walks_per_node=3, path=path, direction=direction)
    found = cut(graph, spec, list(range(4)), start)
    walk, taken = found.arrays[f"{start}/walk"], found.arrays[f"{start}/walk_edges"]
    types = found.facts["walk_node_types"]
    nodes = [
        np.where(walk[:, s] >= 0, found.arrays[f"{name}/n_id"][walk[:, s]], -1)
        for s, name in enumerate(types)
    ]
    for step, kind in enumerate(path):
        went = taken[:, step] >= 0
        ends = nodes[step][went], nodes[step + 1][went]
        expected = graph.edge_index(kind)[:, taken[went, step]]
        np.testing.assert_array_equal(expected, ends if direction == "out" else ends[::-1])
        assert (nodes[step + 1][~went] == -1).all()


# --- with attributes, and room ----------------------------------------------------------------


def test_attributes_go_with_the_nodes_of_walks() -> None:
    """CONTRACT 43, 44: rows of `n_id`, and of types that were not reached none."""
    graph = library()
    spec = WalkSpec(walk_length=2, path=(HOUSES, WRITES))
    feed = Feed(num_inputs=4, batch_size=3, node_type="venue")
    facts, arrays = batch_of(graph, spec, feed)
    for name in graph.node_types:
        expected = graph.node_attribute("x", name)[arrays[f"{name}/n_id"]]
        np.testing.assert_array_equal(arrays[f"{name}/x"], expected)
    alone = WalkSpec(walk_length=2, path=(CITES,))
    _, arrays = batch_of(graph, alone, Feed(num_inputs=9, batch_size=3, node_type="paper"))
    assert arrays["venue/x"].shape == (0, 3)
    assert not any("edge_attr" in name for name in arrays)
    assert facts["batch_size"] == 3


@given(st.integers(0, 6), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_no_batch_is_larger_than_its_room(
    seeds: int, length: int, walks: int, with_edge_ids: bool
) -> None:
    graph = web(12, 40)
    spec = WalkSpec(walk_length=length, walks_per_node=walks, with_edge_ids=with_edge_ids)
    batches = BufferedBatches(graph, spec, WalkSampler(graph, spec))
    found = batches.cut(request_for(list(range(seeds)) * 2))
    assert batches.nbytes(found) <= batches.likely_bytes(2 * seeds, "")


# --- what is needed, and what is refused ------------------------------------------------------


def test_what_walks_need_of_a_graph() -> None:
    graph = web()
    assert WalkKind().needs(WalkSpec(direction="in"), graph) == []
    assert WalkKind().needs(WalkSpec(), graph) == [OutEdges(EDGE)]
    assert WalkKind().needs(WalkSpec(q=2.0), graph) == [OutEdges(EDGE), SortedNeighbors(EDGE)]
    assert WalkKind().needs(WalkSpec(p=2.0, direction="in"), graph) == [SortedNeighbors(EDGE)]
    path = (CITES, CITES)
    assert WalkKind().needs(WalkSpec(path=path), library()) == [OutEdges(CITES)]


def test_longer_walks_cost_more_and_biased_ones_still_more() -> None:
    graph = web()
    costs = [
        WalkKind().draws(WalkSpec(walk_length=2), graph, 10, ""),
        WalkKind().draws(WalkSpec(walk_length=4), graph, 10, ""),
        WalkKind().draws(WalkSpec(walk_length=4, q=0.5), graph, 10, ""),
        WalkKind().draws(WalkSpec(walk_length=4, q=0.5, walks_per_node=9), graph, 10, ""),
    ]
    assert costs == sorted(set(costs))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (WalkSpec(walk_length=0), "walk_length is 0"),
        (WalkSpec(walks_per_node=0), "walks_per_node is 0"),
        (WalkSpec(p=0.0), "p is 0.0; expected a number greater than 0"),
        (WalkSpec(q=float("nan")), "q is nan"),
        (WalkSpec(direction="up"), "direction is 'up'"),  # type: ignore[arg-type]
        (WalkSpec(path=(CITES,)), "path is given, and this graph has no types"),
        (WalkSpec(edge_attributes=("edge_attr",)), "no attributes of edges go with walks"),
        (WalkSpec(node_attributes=("z",)), "node_attributes names 'z'"),
    ],
)
def test_what_makes_no_sense_is_refused(spec: WalkSpec, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        WalkKind().check(spec, web())


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (WalkSpec(), "path is missing"),
        (WalkSpec(path=()), "path is missing"),
        (
            WalkSpec(path=(CITES, ("a", "b", "c"))),
            r"path\[1\] is \('a', 'b', 'c'\); this graph has",
        ),
        (WalkSpec(path=(CITES, HOUSES)), r"Found invalid metapath.*path\[0\] leads to 'paper'"),
        (WalkSpec(path=(WRITES, HOUSES), direction="out"), "path.1. begins at 'venue'"),
        (WalkSpec(path=(HOUSES, WRITES), direction="in"), "Found invalid metapath"),
        (
            WalkSpec(path=(HOUSES, WRITES), walk_length=3),
            "The 'walk_length' is longer than the given 'metapath', but the 'metapath' does not",
        ),
        (WalkSpec(path=(CITES,), q=2.0), "walks along a path are uniform"),
    ],
)
def test_a_path_that_cannot_be_walked_is_refused(spec: WalkSpec, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        WalkKind().check(spec, library())


def test_seeds_of_another_type_than_the_path_begins_at_are_refused() -> None:
    graph = library()
    sampler = WalkSampler(graph, WalkSpec(walk_length=1, path=(WRITES,)))
    for ask in (
        lambda: sampler.cut(request_for([0], "paper")),
        lambda: sampler.likely_bytes(1, "paper"),
    ):
        with pytest.raises(ValueError, match=r"node_type is 'paper'.*begin at 'author'"):
            ask()


def test_seeds_that_are_no_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"starts\[1\] is 200"):
        cut(web(), WalkSpec(), [0, 200])
