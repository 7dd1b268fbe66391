"""Forward push is its twin in plain Python, byte for byte, whatever the graph and the options."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.each_simd import each_simd
from tests.kernels.large import rows_with_degrees
from tests.kernels.ppr_jobs import Edges, Job, assert_same, both_ways, push_jobs
from tests.kernels.strategies import Rows, rows_of


@each_simd
@given(push_jobs(max_types=1))
def test_pushes_over_one_node_type_are_the_twins(job: Job) -> None:
    assert_same(job.native(), job.twin())


@given(push_jobs())
def test_pushes_over_several_types_are_the_twins(job: Job) -> None:
    assert_same(job.native(), job.twin())


@given(push_jobs(), st.data())
def test_pushes_without_some_edges_are_the_twins(job: Job, data: st.DataObject) -> None:
    """Nothing goes along excluded edges, and the rest of a row gets all of it."""
    pairs = []
    for each in job.edges:
        nodes = np.repeat(np.arange(len(each.rows.indptr) - 1), np.diff(each.rows.indptr))
        there = list(zip(nodes.tolist(), each.rows.neighbors.tolist(), strict=True))
        some = st.sampled_from([*there, (0, 0)])
        pairs.append(frozenset(data.draw(st.lists(some, max_size=6))))
    job = dataclasses.replace(job, excluded=tuple(pairs))
    sample = job.native()
    assert_same(sample, job.twin())
    for number, (each, found) in enumerate(zip(job.edges, sample.edges or [], strict=False)):
        ends = sample.nodes[each.expands][found.edge_index[1]].tolist()
        others = sample.nodes[each.finds][found.edge_index[0]].tolist()
        assert not pairs[number].intersection(zip(ends, others, strict=True))


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("most", [1000, 2])
def test_pushes_are_the_twins_where_every_row_has_lost_an_edge(paired: bool, most: int) -> None:
    """Whatever of a row is taken: all that is left, or some of it."""
    rows = rows_with_degrees(np.full(30, 5), 30, paired=paired)
    lost = frozenset((node, int(rows.neighbors[rows.indptr[node]])) for node in range(30))
    options = {"alpha": 0.2, "eps": 1e-3, "num_neighbors_per_hop": most, "max_ppr_nodes": 20}
    job = Job([30], [Edges(rows)], np.array([0, 7, 7]), options=options, excluded=(lost,))
    assert_same(job.native(), job.twin())


@given(push_jobs())
def test_a_sampler_remembers_nothing_of_the_batch_before(job: Job) -> None:
    push = job.push
    push.sample(job.key + 1 if job.key < 9 else 0, job.seeds[::-1], job.seed_type)
    assert_same(push.sample(job.key, job.seeds, job.seed_type), job.twin())


@given(push_jobs())
def test_what_matters_to_a_seed_does_not_depend_on_its_company(job: Job) -> None:
    together = job.native()
    for place, seed in enumerate(job.seeds.tolist()):
        alone = job.push.sample(job.key, np.array([seed]), job.seed_type)
        for type_ in range(len(job.num_nodes)):
            here = together.edge_index[type_][0] == place
            nodes = together.nodes[type_][together.edge_index[type_][1][here]]
            np.testing.assert_array_equal(nodes, alone.nodes[type_][alone.edge_index[type_][1]])
            np.testing.assert_array_equal(together.edge_attr[type_][here], alone.edge_attr[type_])


def large(num_nodes: int, num_edges: int) -> Rows:
    """More edges than a chunk has, more nodes than a table begins with."""
    rng = np.random.default_rng(3)
    ends = (rng.random((2, num_edges)) ** 2 * num_nodes).astype(np.int64)  # hubs, and a long tail
    return both_ways([(int(a), int(b)) for a, b in ends.T], num_nodes)


@pytest.mark.parametrize("most", [1000, 20])
def test_large_pushes_are_the_twins(most: int) -> None:
    options = {"eps": 2e-5, "alpha": 0.2, "num_neighbors_per_hop": most, "max_ppr_nodes": 3000}
    job = Job([4000], [Edges(large(4000, 12000))], np.array([0, 17, 3999]), options=options)
    expected = job.twin()
    assert max(expected.edge_index[0][1]) > 2048
    assert_same(job.native(), expected)


def test_large_pushes_over_types_and_channels_are_the_twins() -> None:
    rng = np.random.default_rng(4)
    sizes = [600, 900]
    edges = []
    for number, (expands, finds) in enumerate([(0, 1), (1, 0), (0, 0), (1, 1)]):
        owners, others = rng.integers(0, sizes[expands], 4000), rng.integers(0, sizes[finds], 4000)
        rows = rows_of(others, owners, sizes[expands], paired=number % 2 == 0, dtype="int32")
        edges.append(Edges(rows, expands, finds, ("a", str(number), "b")))
    options = {"eps": 1e-4, "max_ppr_nodes": 60, "num_neighbors_per_hop": 8, "with_edges": True}
    channels = (((0, 1), 30), ((2,), 20), ((3, 0, 1), 10))
    job = Job(sizes, edges, np.array([5, 5, 599]), 0, 9, channels, options)
    assert_same(job.native(), job.twin())
