"""What is true of every batch, whatever was drawn; and that it is a function of its key alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels import KHop, Sample
from penstock.kernels.arrays import Ids
from tests.kernels.large import large_job
from tests.kernels.strategies import JOBS, WORDS, Edges, Job, Rows, assert_same


def hop_slices(counts: list[int]) -> list[slice]:
    return [slice(begin, end) for begin, end in pairwise([0, *accumulate(counts)])]


def relations(job: Job, sample: Sample) -> list[tuple[Edges, Ids, Ids, Ids]]:
    assert sample.edge_ids is not None
    return list(zip(job.edges, sample.rows, sample.cols, sample.edge_ids, strict=True))


@given(JOBS)
def test_every_edge_of_a_batch_is_the_edge_of_the_graph_with_that_id(job: Job) -> None:
    sample = job.native()
    for edges, rows, cols, edge_ids in relations(job, sample):
        owners = np.repeat(np.arange(len(edges.rows.indptr) - 1), np.diff(edges.rows.indptr))
        ids = edges.rows.edge_ids.tolist()
        graph = dict(zip(ids, zip(edges.rows.neighbors, owners, strict=True), strict=True))
        found = zip(sample.nodes[edges.finds][rows], sample.nodes[edges.expands][cols], strict=True)
        assert [graph[edge] for edge in edge_ids.tolist()] == list(found)


@given(JOBS)
def test_the_seeds_are_the_first_nodes(job: Job) -> None:
    sample = job.native()
    for nodes, seeds, counts in zip(sample.nodes, job.seeds, sample.num_sampled_nodes, strict=True):
        assert counts[0] == len(seeds)
        assert nodes[: len(seeds)].tolist() == seeds.tolist()


@given(JOBS)
def test_nodes_are_unique_but_for_repeated_seeds(job: Job) -> None:
    for nodes, seeds in zip(job.native().nodes, job.seeds, strict=True):
        found = nodes[len(seeds) :]
        assert len(set(found.tolist())) == len(found)
        assert not set(found.tolist()) & set(seeds.tolist())


@given(JOBS)
def test_counts_add_up(job: Job) -> None:
    sample = job.native()
    hops = len(job.edges[0].fanouts) if job.edges else 0
    for nodes, counts in zip(sample.nodes, sample.num_sampled_nodes, strict=True):
        assert len(counts) == hops + 1
        assert sum(counts) == len(nodes)
    for rows, cols, counts in zip(sample.rows, sample.cols, sample.num_sampled_edges, strict=True):
        assert len(counts) == hops
        assert sum(counts) == len(rows) == len(cols)


@given(JOBS)
def test_each_hop_expands_the_nodes_of_the_hop_before_in_order(job: Job) -> None:
    sample = job.native()
    for number, (edges, _, cols, _) in enumerate(relations(job, sample)):
        frontiers = hop_slices(sample.num_sampled_nodes[edges.expands])
        hops = hop_slices(sample.num_sampled_edges[number])
        for frontier, hop in zip(frontiers, hops, strict=False):
            owners = cols[hop]
            assert np.all(np.diff(owners) >= 0)
            assert np.all((owners >= frontier.start) & (owners < frontier.stop))


@given(JOBS)
def test_edges_point_at_the_first_place_of_a_node(job: Job) -> None:
    sample = job.native()
    for edges, rows, cols, _ in relations(job, sample):
        for places, type_ in ((rows, edges.finds), (cols, edges.expands)):
            nodes = sample.nodes[type_].tolist()
            assert [nodes.index(nodes[place]) for place in places] == places.tolist()


@given(JOBS)
def test_every_node_but_seeds_is_some_edges_neighbour(job: Job) -> None:
    sample = job.native()
    for type_, (nodes, seeds) in enumerate(zip(sample.nodes, job.seeds, strict=True)):
        reached = {
            place
            for edges, rows, _, _ in relations(job, sample)
            if edges.finds == type_
            for place in rows.tolist()
        }
        assert reached >= set(range(len(seeds), len(nodes)))


@given(JOBS)
def test_every_expanded_node_gives_as_many_edges_as_its_fan_out_says(job: Job) -> None:
    job = replace(job, node_caps=())
    sample = job.native()
    for edges, _, cols, edge_ids in relations(job, sample):
        frontiers = hop_slices(sample.num_sampled_nodes[edges.expands])
        for frontier, fanout in zip(frontiers, edges.fanouts, strict=False):
            nodes = sample.nodes[edges.expands].tolist()
            for place in range(frontier.start, frontier.stop):
                degree = int(np.diff(edges.rows.indptr)[nodes[place]])
                first = nodes.index(nodes[place]) == place
                given_ids = edge_ids[cols == place].tolist()
                assert len(given_ids) == (take(degree, fanout, job.replace) if first else 0)
                assert job.replace or len(set(given_ids)) == len(given_ids)


def take(degree: int, fanout: int, with_replacement: bool) -> int:
    if fanout < 0:
        return degree
    return min(degree, 1) * fanout if with_replacement else min(degree, fanout)


@given(JOBS)
def test_a_cap_is_kept(job: Job) -> None:
    for counts in job.native().num_sampled_nodes:
        for cap, added in zip(job.node_caps, counts[1:], strict=False):
            assert cap < 0 or added <= cap


@given(JOBS)
def test_a_cap_only_leaves_out(job: Job) -> None:
    # In the first hop; later ones expand other nodes.
    first = replace(job, edges=[replace(edges, fanouts=edges.fanouts[:1]) for edges in job.edges])
    sample, free = first.native(), replace(first, node_caps=()).native()
    assert sample.edge_ids is not None
    assert free.edge_ids is not None
    for ids, free_ids in zip(sample.edge_ids, free.edge_ids, strict=True):
        rest = iter(free_ids.tolist())
        assert all(edge in rest for edge in ids.tolist())  # the same edges in the same order


# --- a pure function of the key -------------------------------------------------------------------


@given(JOBS, st.lists(WORDS, max_size=4), st.data())
def test_what_was_sampled_before_leaves_no_trace(
    job: Job, earlier: list[int], data: st.DataObject
) -> None:
    sampler = job.sampler
    for key in earlier:
        others = [
            np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=20)) if n else [], np.int64)
            for n in job.num_nodes
        ]
        sampler.sample(key, others)
    assert_same(sampler.sample(job.key, job.seeds), job.native())


def test_large_batches_leave_no_trace_either() -> None:
    job = large_job(2000, (8, 4), 100, paired=True, dtype="int32", seed=2)
    sampler, rng = job.sampler, np.random.default_rng(0)
    expected = job.twin()
    for size in (1, 2000, 0, 500, 3):
        sampler.sample(size, [rng.integers(0, 2000, size)])
        assert_same(sampler.sample(job.key, job.seeds), expected)


def test_a_batch_that_failed_leaves_no_trace() -> None:
    # With a fan-out beyond all memory, the second hop fails where it has anything to expand:
    # 2 → 0 → 3 does, 4 → 1 and 4 → 5 do not.
    indptr, entries = np.array([0, 1, 1, 2, 2, 4, 4]), np.array([3, 0, 1, 5])
    job = Job([6], [Edges(Rows(indptr, entries), (1, 2**61))], [np.array([1, 4])])
    job = replace(job, replace=True)
    sampler = job.sampler
    with pytest.raises((MemoryError, ValueError)):
        sampler.sample(1, [np.array([5, 4, 2, 1])])
    sample = sampler.sample(1, job.seeds)
    assert_same(sample, job.native())


def test_seeds_shared_with_other_batches_do_not_matter() -> None:
    # What a node gives depends on its id, not on its place or its company.
    job = large_job(500, (4,), 60, paired=True, dtype="int32", seed=2)
    whole = given_by(job.sampler, job.key, job.seeds[0])
    for seeds in (job.seeds[0][::-1], job.seeds[0][:1], job.seeds[0][30:]):
        part = given_by(job.sampler, job.key, seeds)
        assert part == {node: whole[node] for node in part}


def given_by(sampler: KHop, key: int, seeds: Ids) -> dict[int, list[int]]:
    """The edge ids that each seed gives."""
    sample = sampler.sample(key, [seeds])
    assert sample.edge_ids is not None
    return {
        node: sample.edge_ids[0][sample.cols[0] == place].tolist()
        for place, node in reversed(list(enumerate(seeds.tolist())))
    }


def test_other_keys_give_other_batches() -> None:
    job = large_job(2000, (8, 4), 50, paired=True, dtype="int32", seed=2)
    sampler = job.sampler
    batches = {sampler.sample(key, job.seeds).nodes[0].tobytes() for key in range(100)}
    assert len(batches) == 100


def test_an_edge_type_draws_by_its_name_not_by_its_number() -> None:
    job = large_job(500, (4,), 60, paired=True, dtype="int32", seed=2)
    named = replace(job.edges[0], name=("a", "to", "b"))
    other = replace(job.edges[0], name=("a", "from", "b"))
    alone = replace(job, edges=[named]).native()
    after = replace(job, edges=[other, named]).native()
    assert alone.edge_ids is not None
    assert after.edge_ids is not None
    assert after.edge_ids[1].tolist() == alone.edge_ids[0].tolist()
    assert after.edge_ids[0].tolist() != alone.edge_ids[0].tolist()
