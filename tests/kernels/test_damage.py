"""Damaged rows of neighbours: told as such, and nothing is read outside them.

That nothing is read outside is what the sanitized run of these tests sees.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import kernels
from penstock.errors import GraphFormatError
from penstock.kernels import Adjacency, KHop, Relation
from penstock.kernels.arrays import Array, Ids
from tests.kernels.large import large_job
from tests.kernels.strategies import WORDS, Edges, Job, Rows, assert_same

MOST, LEAST = 2**63 - 1, -(2**63)

# Four nodes and five edges; node 1 has the row that is damaged.
BAD_OFFSETS = {
    "a row that ends before it begins": [0, 3, 2, 3, 5],
    "a row that ends beyond the edges": [0, 1, 6, 5, 5],
    "a row that begins beyond the edges": [0, 6, 6, 5, 5],
    "a row that begins before the edges": [0, -1, 2, 3, 5],
    "a row as long as there are numbers": [0, 0, MOST, 3, 5],
    "a row that begins at the least number": [0, LEAST, 2, 3, 5],
    "a row that ends at the least number": [0, 2, LEAST, 3, 5],
    "a row from the least number to the greatest": [0, LEAST, MOST, 3, 5],
    "a row from the greatest number to the least": [0, MOST, LEAST, 3, 5],
    "a row between two numbers beyond the edges": [0, MOST - 1, MOST, 3, 5],
}
FANOUTS = [-1, 1, 2, 33]


def sampler(indptr: list[int], entries: Array, fanouts: tuple[int, ...], **options: bool) -> KHop:
    return KHop([4], [Relation(Adjacency(np.array(indptr), entries), fanouts)], **options)


@pytest.mark.parametrize("fanout", FANOUTS)
@pytest.mark.parametrize("with_replacement", [False, True])
@pytest.mark.parametrize("indptr", BAD_OFFSETS.values(), ids=BAD_OFFSETS)
def test_a_batch_that_meets_bad_offsets(
    indptr: list[int], fanout: int, with_replacement: bool
) -> None:
    for entries in (np.zeros(5, np.int64), np.zeros((5, 2), np.int32)):
        khop = sampler(indptr, entries, (fanout,), replace=with_replacement)
        with pytest.raises(GraphFormatError, match="damaged topology"):
            khop.sample(1, [np.array([3, 1])])


@pytest.mark.parametrize("fanout", FANOUTS)
@pytest.mark.parametrize("indptr", BAD_OFFSETS.values(), ids=BAD_OFFSETS)
def test_a_hop_that_meets_bad_offsets(indptr: list[int], fanout: int) -> None:
    adjacency = Adjacency(np.array(indptr), np.zeros(5, np.int64))
    with pytest.raises(GraphFormatError, match="damaged topology"):
        kernels.draw_hop(adjacency, np.array([3, 1]), fanout, 0)


@pytest.mark.parametrize("indptr", [*BAD_OFFSETS.values(), [1, 2, 3, 4, 5], [0, 1, 2, 3, 4]])
def test_a_transpose_of_bad_offsets(indptr: list[int]) -> None:
    with pytest.raises(GraphFormatError, match="damaged topology"):
        transpose(np.array(indptr), np.zeros(5, np.int64), 4)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("bad", [-1, 4, 5, "least", "greatest"])
@pytest.mark.parametrize("paired", [False, True])
def test_a_neighbour_outside_the_graph(bad: int | str, dtype: str, paired: bool) -> None:
    info = np.iinfo(dtype)
    named = {"least": int(info.min), "greatest": int(info.max)}
    entries = np.array([0, 1, named.get(bad, bad), 2, 3]).astype(dtype)
    if paired:
        entries = np.stack([entries, np.arange(5, dtype=dtype)], axis=1)
    indptr = [0, 1, 3, 4, 5]
    for options in ({}, {"node_caps": (5,)}, {"node_caps": (0,)}):
        khop = sampler(indptr, entries, (-1,), **options)
        with pytest.raises(GraphFormatError, match="damaged topology"):
            khop.sample(1, [np.array([1])])
    with pytest.raises(GraphFormatError, match="damaged topology"):
        transpose(np.array(indptr), entries, 4)


@pytest.mark.parametrize("bad", [-1, 5, 2**31 - 1, -(2**31)])
def test_a_transpose_of_edge_ids_outside_the_graph(bad: int) -> None:
    entries = np.array([[0, 0], [1, 1], [2, bad], [3, 3], [0, 4]], np.int32)
    with pytest.raises(GraphFormatError, match="damaged topology"):
        transpose(np.array([0, 1, 3, 4, 5]), entries, 4)


def test_damage_met_in_a_later_hop() -> None:
    khop = sampler([0, 1, 9, 9, 9], np.array([1, 0, 0, 0, 0]), (1, 1))
    with pytest.raises(GraphFormatError, match="damaged topology"):
        khop.sample(1, [np.array([0])])


def test_damage_that_a_batch_does_not_meet_is_not_noticed() -> None:
    khop = sampler([0, 1, 9, 9, 9], np.array([0, 0, 0, 0, 0]), (1, 1))
    assert khop.sample(1, [np.array([0])]).nodes[0].tolist() == [0]


def test_damage_anywhere_in_a_large_batch() -> None:
    job = large_job(1000, (5, 5), 100, paired=True, dtype="int64", seed=1)
    rows, khop = job.edges[0].rows, job.sampler
    expected = khop.sample(job.key, job.seeds)
    assert expected.edge_ids is not None
    position = np.argsort(rows.entries[:, 1])[expected.edge_ids[0]]
    for number in (0, 127, 128, 511, 512, len(position) - 1):
        kept = rows.entries[position[number], 0]
        rows.entries[position[number], 0] = 1000
        with pytest.raises(GraphFormatError, match="damaged topology"):
            khop.sample(job.key, job.seeds)
        rows.entries[position[number], 0] = kept
        assert_same(khop.sample(job.key, job.seeds), expected)


def test_a_sampler_is_as_good_as_new_after_damage() -> None:
    khop = sampler([0, 1, 3, 4, 5], np.array([1, 2, 9, 0, 0]), (-1, -1))
    for _ in range(3):
        with pytest.raises(GraphFormatError):
            khop.sample(1, [np.array([3, 0])])
        sample = khop.sample(1, [np.array([2, 3])])
        assert sample.nodes[0].tolist() == [2, 3, 0, 1]
        assert sample.rows[0].tolist() == [2, 2, 3]


OFFSETS = st.one_of(st.integers(-2, 9), st.sampled_from([LEAST, LEAST + 1, MOST - 1, MOST]))
NEIGHBORS = st.one_of(st.integers(-1, 5), st.integers(-(2**31), 2**31 - 1))


@st.composite
def damaged_jobs(draw: st.DrawFn) -> Job:
    """Any offsets and neighbours, most of them nonsense."""
    size = draw(st.integers(1, 5))
    offsets = st.lists(OFFSETS, min_size=size + 1, max_size=size + 1)
    indptr = np.array(draw(st.one_of(offsets, offsets.map(sorted))), np.int64)
    neighbors = np.array(draw(st.lists(NEIGHBORS, max_size=8)), draw(st.sampled_from(["i4", "i8"])))
    if draw(st.booleans()):
        neighbors = np.stack([neighbors, neighbors[::-1]], axis=1)
    fanouts = st.lists(st.sampled_from([-1, 0, 1, 3, 40]), min_size=1, max_size=3)
    edges = Edges(Rows(indptr, neighbors), tuple(draw(fanouts)))
    seeds = np.array(draw(st.lists(st.integers(0, size - 1), max_size=6)), np.int64)
    caps = tuple(draw(st.lists(st.integers(-1, 4), max_size=2)))
    return Job([size], [edges], [seeds], draw(WORDS), draw(st.booleans()), caps)


@given(damaged_jobs())
def test_any_offsets_and_neighbours_give_the_twins_batch_or_are_refused(job: Job) -> None:
    try:
        sample = job.native()
    except GraphFormatError:
        return
    assert all(0 <= node < job.num_nodes[0] for node in sample.nodes[0].tolist())
    assert_same(sample, job.twin())


@given(damaged_jobs())
def test_any_offsets_and_neighbours_are_transposed_or_refused(job: Job) -> None:
    rows = job.edges[0].rows
    try:
        indptr, entries = transpose(rows.indptr, rows.entries, job.num_nodes[0])
    except GraphFormatError:
        return
    assert indptr[0] == 0
    assert indptr[-1] == len(entries)
    assert np.all(np.diff(indptr) >= 0)
    assert np.all((entries[:, 0] >= 0) & (entries[:, 0] < job.num_nodes[0]))


@given(damaged_jobs())
def test_one_hop_of_any_offsets_stays_within_the_edges(job: Job) -> None:
    edges = job.edges[0]
    edges = replace(edges, rows=Rows(edges.rows.indptr, edges.rows.neighbors.copy()))
    adjacency = edges.rows.adjacency
    try:
        hop = kernels.draw_hop(adjacency, job.seeds[0], edges.fanouts[0], 1, replace=job.replace)
    except GraphFormatError:
        return
    counts, neighbors, edge_ids = hop
    assert counts.sum() == len(neighbors) == len(edge_ids)
    assert neighbors.tolist() == [edges.rows.entries[at] for at in edge_ids]


def transpose(indptr: Ids, entries: Array, num_rows: int) -> tuple[Ids, Array]:
    out_indptr, out_entries = np.empty(num_rows + 1, np.int64), np.empty((len(entries), 2), "i8")
    kernels.transpose(indptr, entries, out_indptr, out_entries)
    return out_indptr, out_entries
