"""Edges that a batch must not show: rows are drawn from as if they had never had them."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels import Exclusion, Sample, reference
from penstock.kernels.arrays import Array, Ids
from tests.kernels.chi_square import assert_uniform
from tests.kernels.each_simd import each_simd
from tests.kernels.large import degrees_around, rows_with_degrees
from tests.kernels.strategies import Edges, Rows
from tests.kernels.tree_jobs import (
    Chosen,
    TreeJob,
    assert_same_trees,
    one_type,
    rising,
    running_sums,
    tree_jobs,
)

Pairs = list[set[tuple[int, int, int]]]  # by relation: (node, tree or 0, neighbour)


def native(job: TreeJob, pairs: Pairs) -> Sample:
    return job.sampler.sample(
        job.key, job.seeds, times=job.times, excluded=arrays_of(pairs, disjoint=job.disjoint)
    )


def arrays_of(pairs: Pairs, *, disjoint: bool) -> list[Exclusion]:
    """As plain arrays, in any order."""
    found = []
    for relation, some in enumerate(pairs):
        nodes, trees, neighbors = np.array(list(some), np.int64).reshape(-1, 3).T
        found.append(Exclusion(relation, nodes, neighbors, trees if disjoint else None))
    return found


def twin(job: TreeJob, pairs: Pairs) -> reference.Sample:
    return reference.khop(
        len(job.num_nodes),
        [chosen.twin for chosen in job.chosen],
        job.seeds,
        job.key,
        replace=job.replace,
        node_caps=job.node_caps,
        disjoint=job.disjoint,
        last=job.last,
        times=job.times,
        excluded=pairs,
    )


def edges_of(rows: Rows) -> list[tuple[int, int]]:
    """Every edge, as the node whose row it is in and the neighbour."""
    nodes = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
    return list(zip(nodes.tolist(), rows.neighbors.tolist(), strict=True))


@st.composite
def excluding_jobs(draw: st.DrawFn, disjoint: bool | None = None) -> tuple[TreeJob, Pairs]:
    """Pairs that are edges, mostly, of any tree or of none that is there."""
    job = draw(tree_jobs(disjoint=disjoint))
    num_trees = sum(map(len, job.seeds)) if job.disjoint else 1
    tree = st.integers(0, num_trees)
    pairs: Pairs = []
    for chosen in job.chosen:
        there = edges_of(chosen.edges.rows) or [(0, 0)]
        ends = st.one_of(st.sampled_from(there), st.tuples(st.integers(0, 8), st.integers(0, 8)))
        some = draw(st.lists(st.tuples(ends, tree), max_size=12))
        pairs.append({(node, t if job.disjoint else 0, found) for (node, found), t in some})
    return job, pairs


@given(excluding_jobs())
def test_batches_are_the_twins_whatever_edges_are_chosen_by(made: tuple[TreeJob, Pairs]) -> None:
    job, pairs = made
    assert_same_trees(native(job, pairs), twin(job, pairs))


@given(excluding_jobs())
def test_no_excluded_edge_is_in_a_batch(made: tuple[TreeJob, Pairs]) -> None:
    job, pairs = made
    sample = native(job, pairs)
    for relation, chosen in enumerate(job.chosen):
        edges, cols = chosen.edges, sample.cols[relation]
        nodes = sample.nodes[edges.expands][cols].tolist()
        found = sample.nodes[edges.finds][sample.rows[relation]].tolist()
        trees = [0] * len(cols) if sample.trees is None else sample.trees[edges.expands][cols]
        assert not pairs[relation].intersection(zip(nodes, map(int, trees), found, strict=True))


def without(chosen: Chosen, pairs: set[tuple[int, int, int]]) -> Chosen:
    """The relation without these edges; others keep their ids, weights and times."""
    rows = chosen.edges.rows
    kept = np.array([(node, 0, found) not in pairs for node, found in edges_of(rows)], bool)
    owners = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
    counts = np.bincount(owners[kept], minlength=len(rows.indptr) - 1)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    entries = np.stack([rows.neighbors[kept], rows.edge_ids[kept]], axis=1)
    left = Rows(indptr, entries.astype(rows.entries.dtype))
    edges = dataclasses.replace(chosen.edges, rows=left)
    weights = None if chosen.weights is None else _units(rows, chosen.weights)[kept]
    return Chosen(
        edges,
        None if weights is None else running_sums(left, weights),
        None if chosen.times is None else chosen.times[kept],
    )


def _units(rows: Rows, sums: Ids) -> Ids:
    before = np.concatenate([[0], sums[:-1]])
    before[rows.indptr[:-1][np.diff(rows.indptr) > 0]] = 0
    return np.asarray(sums - before, np.int64)


@given(excluding_jobs(disjoint=False))
def test_a_batch_is_that_of_the_graph_without_those_edges(made: tuple[TreeJob, Pairs]) -> None:
    job, pairs = made
    left = dataclasses.replace(
        job, chosen=[without(chosen, some) for chosen, some in zip(job.chosen, pairs, strict=True)]
    )
    assert_same_trees(native(job, pairs), left.native())


@given(tree_jobs(), st.data())
def test_rows_without_such_an_edge_keep_their_bytes(job: TreeJob, data: st.DataObject) -> None:
    pairs: Pairs = []
    for chosen in job.chosen:
        ends = st.tuples(st.integers(0, 8), st.integers(0, 8))
        some = set(data.draw(st.lists(ends, max_size=6))) - set(edges_of(chosen.edges.rows))
        pairs.append({(node, 0, found) for node, found in some})
    assert_same_trees(native(job, pairs), job.native())


@each_simd
@pytest.mark.parametrize("by", ["uniform", "weights", "times", "last"])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [-1, 3, 32, 40])
def test_rows_in_the_midst_of_blocks_give_their_edges_in_order(
    by: str, replace: bool, fanout: int
) -> None:
    """Two hops from 300 seeds: some rows lose edges, hubs among them, and most do not."""
    job, pairs, expected = _amid_blocks(by, replace, fanout)
    assert_same_trees(native(job, pairs), expected)


@cache  # the twin knows no vector instructions, and takes its time
def _amid_blocks(by: str, replace: bool, fanout: int) -> tuple[TreeJob, Pairs, reference.Sample]:
    rng = np.random.default_rng(7)
    rows = rows_with_degrees(degrees_around(max(fanout, 3), 200), 200)
    amounts = rng.integers(0, 9, len(rows.entries))
    times = rising(rows, amounts) if by in ("times", "last") else None
    job = one_type(
        rows,
        (fanout, 2),
        rng.integers(0, 200, 300),
        weights=running_sums(rows, amounts) if by == "weights" else None,
        times=times,
        seed_times=None if times is None else rng.integers(0, 9, 300),
        replace=replace,
        disjoint=by != "uniform",
        last=by == "last",
    )
    edges = edges_of(rows)
    some = [edges[at] for at in rng.integers(0, len(edges), 4000)]
    trees = rng.integers(0, 300, 4000) if job.disjoint else np.zeros(4000, int)
    pairs: Pairs = [{(n, int(t), f) for (n, f), t in zip(some, trees, strict=True)}]
    return job, pairs, twin(job, pairs)


def test_the_edges_left_are_equally_likely() -> None:
    """Node 0 has the neighbours 0 to 9, of which 3 and 7 are excluded; 2 of the others come."""
    rows = Rows(np.array([0, 10, *[10] * 9]), np.arange(10))
    job = one_type(rows, (2,), np.array([0]), disjoint=False)
    allowed = [at for at in range(10) if at not in (3, 7)]
    sets = [(a, b) for a in allowed for b in allowed if a < b]
    drawn = []
    for key in range(4000):
        sample = native(dataclasses.replace(job, key=key), [{(0, 0, 3), (0, 0, 7)}])
        first, second = sorted(sample.nodes[0][sample.rows[0]].tolist())
        drawn.append(sets.index((first, second)))
    assert_uniform(np.array(drawn), len(sets))


def test_a_row_of_nothing_but_excluded_edges_gives_none() -> None:
    rows = Rows(np.array([0, 3, 3, 3]), np.array([1, 1, 2]))
    job = one_type(rows, (5,), np.array([0]), disjoint=False, replace=True)
    sample = native(job, [{(0, 0, 1), (0, 0, 2)}])
    assert sample.num_sampled_edges == [[0]]


def edge(relation: int = 0, count: int = 1, trees: Array | None = None) -> Exclusion:
    return Exclusion(relation, np.zeros(1, np.int64), np.zeros(count, np.int64), trees)


@pytest.mark.parametrize(
    ("disjoint", "excluded", "message"),
    [
        (False, edge(1), r"excluded\[0\].relation is 1"),
        (False, edge(0, 2), r"excluded\[0\] has arrays of different lengths"),
        (False, edge(trees=np.zeros(1, np.int64)), r"excluded\[0\].trees must be there for"),
        (True, edge(), r"excluded\[0\].trees must be there for disjoint"),
    ],
)
def test_pairs_that_make_no_sense_are_refused(
    disjoint: bool, excluded: Exclusion, message: str
) -> None:
    rows = Rows(np.array([0, 1]), np.array([0]))
    job = TreeJob([1], [Chosen(Edges(rows, (1,)))], [np.array([0])], disjoint=disjoint)
    with pytest.raises(ValueError, match=message):
        job.sampler.sample(1, job.seeds, excluded=[excluded])
