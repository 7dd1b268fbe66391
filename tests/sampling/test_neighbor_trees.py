"""NeighborSampler with trees, weights and times: attributes of a graph reach the kernel."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Graph
from penstock.kernels import Sample, reference
from penstock.kernels.arrays import Array
from penstock.kernels.twins import times as temporal
from penstock.kernels.twins import weights as weighted
from penstock.sampling import NeighborSampler

CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")
WRITTEN = ("paper", "written_by", "author")
Side = Literal["in", "out"]


def chain(**options: Any) -> Graph:
    """Edges 1, 2, 3, 4 → 0 and 0 → 4, in this order."""
    return Graph.from_coo([[1, 2, 3, 4, 0], [0, 0, 0, 0, 4]], 5, **options)


def shelf() -> Graph:
    """Papers have times, authors none; all edges have times of their own under another name."""
    rng = np.random.default_rng(4)
    sizes, counts = {"paper": 30, "author": 12}, {CITES: 200, WRITES: 60, WRITTEN: 60}
    edges = {
        kind: np.stack(
            [rng.integers(0, sizes[kind[0]], count), rng.integers(0, sizes[kind[2]], count)]
        )
        for kind, count in counts.items()
    }
    return Graph.from_coo(
        edges,
        sizes,
        node_attrs={"paper": {"time": rng.integers(0, 20, 30).astype(np.int32)}},
        edge_attrs={
            CITES: {"when": rng.integers(0, 20, 200), "cost": rng.integers(0, 3, 200) / 4},
            WRITES: {"when": rng.integers(0, 20, 60)},
            WRITTEN: {"when": rng.integers(0, 20, 60)},
        },
    )


def ids_of(sample: Sample, number: int = 0) -> list[int]:
    assert sample.edge_ids is not None
    return [int(edge) for edge in sample.edge_ids[number]]


# --- trees ----------------------------------------------------------------------------------------


def test_every_seed_has_a_tree_of_its_own() -> None:
    sample = NeighborSampler(chain(), [-1], disjoint=True).sample(np.array([4, 4]))
    assert sample.nodes[0].tolist() == [4, 4, 0, 0]
    assert [trees.tolist() for trees in sample.trees or []] == [[0, 1, 0, 1]]


def test_without_trees_there_is_no_word_of_them() -> None:
    assert NeighborSampler(chain(), [-1]).sample(np.array([4, 4])).trees is None


# --- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fanout", [-1, 2, 3, 10])
def test_an_edge_of_weight_0_is_never_taken(fanout: int) -> None:
    """CONTRACT 45: also when the degree is below the fan-out."""
    graph = chain(edge_weight=[0.0, 0.5, 0.0, 2.0, 1.0])
    for index in range(20):
        sampler = NeighborSampler(graph, [fanout], weight_attr="edge_weight")
        assert sorted(ids_of(sampler.sample(np.array([0]), index=index))) == [1, 3]


def test_along_out_edges_weights_are_those_of_the_edges_too() -> None:
    graph = Graph.from_coo([[0, 1, 0, 0], [1, 0, 2, 3]], 4, edge_weight=[0, 1, 0, 7])
    sampler = NeighborSampler(graph, [2], weight_attr="edge_weight", direction="out")
    assert ids_of(sampler.sample(np.array([0]))) == [3]


def test_edge_types_without_the_weight_are_drawn_from_uniformly() -> None:
    graph = shelf()
    seeds = {"paper": np.arange(30)}
    biased = NeighborSampler(graph, [3], weight_attr="cost").sample(seeds)
    plain = NeighborSampler(graph, [3]).sample(seeds)
    assert ids_of(biased, 1) == ids_of(plain, 1)
    assert ids_of(biased, 0) != ids_of(plain, 0)
    assert np.all(graph.edge_attribute("cost", CITES)[ids_of(biased, 0)] > 0)


def test_weights_that_make_no_sense_name_their_edge() -> None:
    graph = chain(edge_attrs={"cost": [1.0, 2.0, -3.0, 1.0, 1.0]})
    with pytest.raises(ValueError, match=r"edge 2, is -3"):
        NeighborSampler(graph, [1], weight_attr="cost")


# --- times ----------------------------------------------------------------------------------------


def test_nodes_later_than_the_seed_are_not_taken() -> None:
    sampler = NeighborSampler(chain(node_time=[5, 9, 5, 2, 7]), [-1, -1], time_attr="time")
    sample = sampler.sample(np.array([0, 4]))
    assert sample.nodes[0].tolist() == [0, 4, 3, 2, 0, 3, 2]
    assert [trees.tolist() for trees in sample.trees or []] == [[0, 1, 0, 0, 1, 1, 1]]


def test_times_given_count_instead_of_the_seeds_own() -> None:
    sampler = NeighborSampler(chain(node_time=[5, 9, 5, 2, 7]), [-1], time_attr="time")
    sample = sampler.sample(np.array([0, 0]), times=np.array([4, 8]))
    assert sample.nodes[0].tolist() == [0, 0, 3, 3, 2, 4]


def test_edges_later_than_the_seed_are_not_taken() -> None:
    sampler = NeighborSampler(chain(edge_time=[5, 9, 5, 2, 7]), [-1], time_attr="edge_time")
    sample = sampler.sample(np.array([0, 0]), times=np.array([5, 1]))
    assert ids_of(sample) == [3, 0, 2]


def test_the_latest_come_in_the_order_of_time_and_equal_ones_as_they_were_given() -> None:
    sampler = NeighborSampler(
        chain(edge_time=[5, 9, 5, 2, 7]), [2], time_attr="edge_time", temporal_strategy="last"
    )
    sample = sampler.sample(np.array([0, 0]), times=np.array([8, 9]))
    assert ids_of(sample) == [0, 2, 2, 1]


def test_along_out_edges_the_time_is_that_of_the_node_an_edge_leads_to() -> None:
    graph = Graph.from_coo([[0, 0, 0], [1, 2, 3]], 4, node_time=[1, 1, 3, 0])
    sampler = NeighborSampler(graph, [-1], time_attr="time", direction="out")
    assert sampler.sample(np.array([0])).nodes[0].tolist() == [0, 3, 1]


def test_node_types_without_the_time_are_not_restricted() -> None:
    graph = shelf()
    seeds = {"paper": np.arange(30)}
    sampler = NeighborSampler(graph, [-1, -1], time_attr="time")
    sample = sampler.sample(seeds, times={"paper": np.full(30, -1)})
    assert sample.num_sampled_edges[graph.edge_types.index(CITES)] == [0, 0]
    assert sample.num_sampled_edges[graph.edge_types.index(WRITES)] == [60, 0]


@pytest.mark.parametrize("attribute", ["time", "when"])
@pytest.mark.parametrize("direction", ["in", "out"])
def test_nothing_in_a_tree_is_later_than_its_seed(attribute: str, direction: Side) -> None:
    graph = shelf()
    rng = np.random.default_rng(1)
    seeds, times = rng.integers(0, 30, 50), rng.integers(0, 20, 50)
    sampler = NeighborSampler(graph, [4, 4], time_attr=attribute, direction=direction)
    sample = sampler.sample({"paper": seeds}, times={"paper": times})
    papers = graph.node_types.index("paper")
    assert sample.trees is not None
    if attribute == "time":
        found = graph.node_attribute("time", "paper")[sample.nodes[papers]][len(seeds) :]
        assert np.all(found <= times[sample.trees[papers][len(seeds) :]])
        return
    for number, kind in enumerate(graph.edge_types):
        expands = graph.node_types.index(kind[2] if direction == "in" else kind[0])
        whose = sample.trees[expands][sample.cols[number]]
        assert np.all(graph.edge_attribute("when", kind)[ids_of(sample, number)] <= times[whose])


# --- against the twin -----------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32),
    direction=st.sampled_from(["in", "out"]),
    by=st.sampled_from(["cost", "time", "when", None]),
    replace=st.booleans(),
    last=st.booleans(),
)
def test_a_heterogeneous_batch_is_the_twins(
    seed: int, direction: Side, by: str | None, replace: bool, last: bool
) -> None:
    graph = shelf()
    sampler = NeighborSampler(
        graph,
        [3, 2],
        replace=replace,
        direction=direction,
        disjoint=True,
        weight_attr=by if by == "cost" else None,
        time_attr=by if by in ("time", "when") else None,
        temporal_strategy="last" if last else "uniform",
    )
    rng = np.random.default_rng(seed)
    seeds = [rng.integers(0, graph.num_nodes(name), 5) for name in graph.node_types]
    times = [rng.integers(0, 20, 5) for _ in seeds] if by in ("time", "when") else None
    sample = sampler.sample_by_type(seeds, seed=seed, times=times)
    relations = [twin_of(graph, kind, direction, by) for kind in graph.edge_types]
    key = reference.batch_key(seed, 0, 0)
    expected = reference.khop(
        2, relations, seeds, key, replace=replace, disjoint=True, last=last, times=times
    )
    for name in ("nodes", "rows", "cols", "edge_ids", "trees"):
        got, wanted = getattr(sample, name), getattr(expected, name)
        assert [array.tolist() for array in got] == [array.tolist() for array in wanted]


def twin_of(graph: Graph, kind: Any, direction: Side, by: str | None) -> reference.Relation:
    """A relation prepared by the twins from the graph's plain arrays."""
    rows = graph.csc(kind) if direction == "in" else graph.csr(kind)
    expands, finds = (kind[2], kind[0]) if direction == "in" else (kind[0], kind[2])
    neighbors, edge_ids = np.asarray(rows.indices), np.asarray(rows.edge_ids)
    sums: Array | None = None
    times: Array | None = None
    if by == "cost" and kind == CITES:
        sums = weighted.weight_sums(rows.indptr, edge_ids, graph.edge_attribute("cost", kind))
    elif by == "when" or (by == "time" and finds == "paper"):
        of_nodes = by == "time"
        given = graph.node_attribute(by, finds) if of_nodes else graph.edge_attribute(by, kind)
        entries, times = temporal.order_by_time(
            rows.indptr, neighbors, edge_ids, given, of_nodes=of_nodes
        )
        neighbors, edge_ids = entries[:, 0], entries[:, 1]
    numbers = {name: number for number, name in enumerate(graph.node_types)}
    return reference.Relation(
        rows.indptr,
        neighbors,
        edge_ids,
        (3, 2),
        numbers[expands],
        numbers[finds],
        kind,
        sums,
        times,
    )
