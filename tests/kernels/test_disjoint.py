"""Disjoint sampling: a tree for every seed, and nothing shared between trees."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import kernels
from penstock.kernels import Adjacency, KHop, Relation, Sample, reference
from penstock.kernels.arrays import Array
from tests.kernels.chi_square import assert_independent, assert_uniform
from tests.kernels.each_simd import each_simd
from tests.kernels.large import degrees_around, rows_with_degrees
from tests.kernels.strategies import Edges, Rows, same_array
from tests.kernels.tree_jobs import Chosen, TreeJob, assert_same_trees, one_type, rising, tree_jobs

# 0 has the neighbours 1, 2, 3; 1 has 0 and 3; 2 has none; 3 has 4; 4 has none. Ids are positions.
SMALL = Rows(np.array([0, 3, 5, 5, 6, 6]), np.array([1, 2, 3, 0, 3, 4]))


def trees_of(sample: Sample) -> list[Array]:
    assert sample.trees is not None
    return [*sample.trees]


def test_every_seed_has_a_tree_also_one_given_twice() -> None:
    sample = one_type(SMALL, (-1,), np.array([1, 0, 1])).native()
    assert sample.nodes[0].tolist() == [1, 0, 1, 0, 3, 1, 2, 3, 0, 3]
    assert trees_of(sample)[0].tolist() == [0, 1, 2, 0, 0, 1, 1, 1, 2, 2]
    assert sample.rows[0].tolist() == [3, 4, 5, 6, 7, 8, 9]
    assert sample.cols[0].tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert (sample.edge_ids or [])[0].tolist() == [3, 4, 0, 1, 2, 3, 4]
    assert sample.num_sampled_nodes == [[3, 7]]
    assert sample.num_sampled_edges == [[7]]


def test_within_a_tree_a_node_stands_once() -> None:
    sample = one_type(SMALL, (-1, -1), np.array([0, 1])).native()
    assert sample.nodes[0].tolist() == [0, 1, 1, 2, 3, 0, 3, 4, 2, 4]
    assert trees_of(sample)[0].tolist() == [0, 1, 0, 0, 0, 1, 1, 0, 1, 1]
    # Tree 0: node 1 leads back to the seed and to node 3, which are in the tree already.
    assert sample.rows[0].tolist() == [2, 3, 4, 5, 6, 0, 4, 7, 1, 8, 6, 9]
    assert sample.cols[0].tolist() == [0, 0, 0, 1, 1, 2, 2, 4, 5, 5, 5, 6]


def test_trees_are_numbered_by_all_seeds_type_after_type() -> None:
    edges = Edges(Rows(np.array([0, 1, 2]), np.array([2, 0])), (-1,), 1, 0)
    job = TreeJob([3, 2], [Chosen(edges)], [np.array([2, 1]), np.array([1, 0, 1])])
    sample = job.native()
    assert [nodes.tolist() for nodes in sample.nodes] == [[2, 1, 0, 2, 0], [1, 0, 1]]
    assert [trees.tolist() for trees in trees_of(sample)] == [[0, 1, 2, 3, 4], [2, 3, 4]]


@each_simd
@given(tree_jobs())
def test_batches_are_the_twins_whatever_edges_are_chosen_by(job: TreeJob) -> None:
    assert_same_trees(job.native(), job.twin())


@given(tree_jobs(disjoint=True))
def test_an_edge_stays_within_its_tree_and_a_node_stands_once_in_it(job: TreeJob) -> None:
    sample = job.native()
    trees = trees_of(sample)
    for nodes, whose in zip(sample.nodes, trees, strict=True):
        assert len(nodes) == len(whose) == len({*zip(whose.tolist(), nodes.tolist(), strict=True)})
    for number, chosen in enumerate(job.chosen):
        found = trees[chosen.edges.finds][sample.rows[number]]
        same_array(found, trees[chosen.edges.expands][sample.cols[number]])


@given(tree_jobs(disjoint=True, capped=False), st.integers(0, 9))
def test_a_tree_is_the_same_whoever_comes_after_it(job: TreeJob, kept: int) -> None:
    sample, fewer = job.native(), first_trees(job, kept).native()
    for number, chosen in enumerate(job.chosen):
        whose = trees_of(sample)[chosen.edges.expands][sample.cols[number]]
        mine = whose < kept
        same_array((sample.edge_ids or [])[number][mine], (fewer.edge_ids or [])[number])
    for type_, whose in enumerate(trees_of(sample)):
        same_array(sample.nodes[type_][whose < kept], fewer.nodes[type_])


def first_trees(job: TreeJob, count: int) -> TreeJob:
    """The job with its first seeds only."""
    ends = np.cumsum([len(ids) for ids in job.seeds])
    left = [
        max(len(ids) - max(int(end) - count, 0), 0)
        for ids, end in zip(job.seeds, ends, strict=True)
    ]
    return dataclasses.replace(
        job,
        seeds=[ids[:most] for ids, most in zip(job.seeds, left, strict=True)],
        times=job.times and [ids[:most] for ids, most in zip(job.times, left, strict=True)],
    )


@pytest.mark.parametrize(("fanout", "with_replacement"), [(1, False), (1, True), (33, True)])
def test_trees_of_one_seed_choose_independently(fanout: int, with_replacement: bool) -> None:
    degree, num_trees = 40, 40_000
    rows = Adjacency(np.array([0, degree]), np.zeros(degree, np.int32))
    sampler = KHop([1], [Relation(rows, (fanout,))], replace=with_replacement, disjoint=True)
    edge_ids = sampler.sample(1, [np.zeros(num_trees, np.int64)]).edge_ids or []
    first = edge_ids[0].reshape(num_trees, fanout)[:, 0]
    assert_uniform(first, degree)
    assert_independent(first[0::2] // 4, first[1::2] // 4, 10)


def test_a_tree_draws_by_its_number_plus_one() -> None:
    """The word in a node's key, as docs/random.md has it."""
    rows = rows_with_degrees(np.full(3, 1000), 3, paired=False)
    sample = one_type(rows, (4,), np.array([2, 0, 2]), key=9).native()
    key = kernels.hop_key(9, 0, kernels.name_hash(("", "", "")))
    for tree, node in enumerate((2, 0, 2)):
        word = reference.node_key(key, node, tree + 1)
        expected = node * 1000 + reference.choose(1000, 4, False, word)
        same_array((sample.edge_ids or [])[0][4 * tree : 4 * tree + 4], expected)


# --- large: blocks, chunks and tables fill up -----------------------------------------------------


@each_simd
@pytest.mark.parametrize(("paired", "dtype"), [(True, "int32"), (False, "int64")])
@pytest.mark.parametrize("fanouts", [(10, 5), (1, 32), (33, 2), (5, -1)])
def test_frontiers_of_many_blocks(fanouts: tuple[int, ...], paired: bool, dtype: str) -> None:
    degrees = degrees_around(max(fanouts[0], 3), 1500, sum(fanouts))
    rows = rows_with_degrees(degrees, 1500, paired=paired, dtype=dtype)
    seeds = np.random.default_rng(0).integers(0, 1500, 70)
    assert_same_trees(*both(one_type(rows, fanouts, seeds, key=sum(fanouts))))


@each_simd
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("num_seeds", [63, 65, 255, 256, 257, 600])
def test_times_are_looked_up_for_several_blocks_at_once(num_seeds: int, last: bool) -> None:
    rng = np.random.default_rng(num_seeds)
    rows = rows_with_degrees(degrees_around(40, 900, num_seeds), 900)
    # Times that rise evenly, among many that are equal.
    even = rng.integers(0, 1000, len(rows.entries))
    times = rising(rows, np.where(rng.random(len(even)) < 0.5, even, even // 900))
    seeds, seed_times = rng.integers(0, 900, num_seeds), rng.integers(-10, 1010, num_seeds)
    job = one_type(rows, (4, 3), seeds, times=times, seed_times=seed_times, last=last)
    assert_same_trees(*both(job))


def both(job: TreeJob) -> tuple[Sample, reference.Sample]:
    return job.native(), job.twin()


def test_a_giant_among_trees_of_one_node() -> None:
    # Node 0 reaches thousands of nodes; the table expects trees to be of about one size.
    degrees = np.zeros(6000, np.int64)
    degrees[0] = 5000
    rows = rows_with_degrees(degrees, 6000, paired=False)
    seeds = np.arange(1000, 3000)
    seeds[700] = 0
    sample, expected = both(one_type(rows, (-1,), seeds))
    assert len(sample.nodes[0]) > 5000
    assert_same_trees(sample, expected)


def test_a_sampler_keeps_nothing_from_batch_to_batch() -> None:
    rows = rows_with_degrees(degrees_around(5, 800), 800)
    job = one_type(rows, (5, 3), np.arange(100))
    sampler = job.sampler
    for count in (100, 3, 0, 60, 1, 100):
        seeds = [np.arange(count)]
        expected = dataclasses.replace(job, seeds=seeds).twin()
        assert_same_trees(sampler.sample(job.key, seeds), expected)


def test_ids_beyond_32_bits_in_many_trees() -> None:
    huge = 2**55
    entries = np.array([huge - 1, 5, 5 + 2**32, 5, huge - 1, 0])
    edges = Edges(Rows(np.array([0, 3, 6]), entries), (-1,), 0, 1)
    seeds = [np.array([0, 1] * 100), np.empty(0, np.int64)]
    sample, expected = both(TreeJob([2, huge], [Chosen(edges)], seeds))
    assert sample.nodes[1].max() == huge - 1
    assert_same_trees(sample, expected)


def test_more_trees_and_nodes_than_a_key_can_tell_apart_are_refused() -> None:
    edges = Edges(Rows(np.array([0, 1]), np.array([0])), (1,), 0, 1)
    job = TreeJob([1, 2**62 + 1], [Chosen(edges)], [np.array([0]), np.empty(0, np.int64)])
    assert job.native().nodes[1].tolist() == [0]
    two = dataclasses.replace(job, seeds=[np.array([0, 0]), np.empty(0, np.int64)])
    with pytest.raises(ValueError, match="nodes of type 1: too many to sample disjointly from 2"):
        two.native()
