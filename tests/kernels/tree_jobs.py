"""Sampling jobs with trees, weights and times: what `strategies.py` has, and more options."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from penstock.kernels import Buffers, KHop, Relation, Sample, reference
from penstock.kernels.arrays import Array, Ids
from tests.kernels.strategies import (
    FANOUTS,
    NAMES,
    WORDS,
    Edges,
    Rows,
    any_rows,
    any_seeds,
    assert_same,
    same_arrays,
)

# Few values, so that equal times and times at a seed's own are common; and the very ends.
TIMES = st.one_of(st.integers(-3, 3), st.sampled_from([-(2**63), 2**63 - 1]))
# Most weight on few edges makes draws fall on the same ones again; 0 must never be drawn.
WEIGHTS = st.sampled_from([0, 0, 1, 1, 2, 1000, 2**40])


@dataclass(frozen=True)
class Chosen:
    """An edge type with what its edges are chosen by."""

    edges: Edges
    weights: Ids | None = None
    times: Ids | None = None

    @property
    def native(self) -> Relation:
        return dataclasses.replace(self.edges.native, weights=self.weights, times=self.times)

    @property
    def twin(self) -> reference.Relation:
        return dataclasses.replace(self.edges.twin, weights=self.weights, times=self.times)


@dataclass(frozen=True)
class TreeJob:
    """A batch to sample."""

    num_nodes: list[int]
    chosen: list[Chosen]
    seeds: list[Array]
    times: list[Array] | None = None
    key: int = 1
    replace: bool = False
    node_caps: tuple[int, ...] = ()
    disjoint: bool = True
    last: bool = False

    @property
    def sampler(self) -> KHop:
        return KHop(
            self.num_nodes,
            [chosen.native for chosen in self.chosen],
            replace=self.replace,
            node_caps=self.node_caps,
            disjoint=self.disjoint,
            last=self.last,
        )

    def native(self, out: Buffers | None = None, *, with_edge_ids: bool = True) -> Sample:
        return self.sampler.sample(
            self.key, self.seeds, out, with_edge_ids=with_edge_ids, times=self.times
        )

    def twin(self) -> reference.Sample:
        return reference.khop(
            len(self.num_nodes),
            [chosen.twin for chosen in self.chosen],
            self.seeds,
            self.key,
            replace=self.replace,
            node_caps=self.node_caps,
            disjoint=self.disjoint,
            last=self.last,
            times=self.times,
        )


def one_type(
    rows: Rows,
    fanouts: tuple[int, ...],
    seeds: Array,
    *,
    weights: Ids | None = None,
    times: Ids | None = None,
    seed_times: Array | None = None,
    **options: object,
) -> TreeJob:
    """A job on a homogeneous graph."""
    chosen = Chosen(Edges(rows, fanouts), weights, times)
    return TreeJob(
        [len(rows.indptr) - 1],
        [chosen],
        [np.asarray(seeds)],
        None if seed_times is None else [np.asarray(seed_times)],
        **options,  # type: ignore[arg-type]
    )


def running_sums(rows: Rows, weights: Array) -> Ids:
    """Of weights by position, within each row."""
    parts = [np.empty(0, np.int64)]
    for begin, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        parts.append(np.cumsum(weights[begin:end], dtype=np.int64))
    return np.concatenate(parts)


def rising(rows: Rows, times: Array) -> Ids:
    """Times by position, sorted within each row."""
    parts = [np.empty(0, np.int64)]
    for begin, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        parts.append(np.sort(times[begin:end]))
    return np.concatenate(parts)


def _numbers(draw: st.DrawFn, values: st.SearchStrategy[int], count: int) -> Ids:
    """As many, from few drawn: Hypothesis need not think up each of a hub's edges."""
    some = draw(st.lists(values, min_size=1, max_size=8))
    return np.array([some[i * i % len(some)] for i in range(count)], np.int64)


@st.composite
def tree_jobs(draw: st.DrawFn, *, disjoint: bool | None = None, capped: bool = True) -> TreeJob:
    """One to three node types, edge types of every way to choose, any options."""
    num_nodes = draw(st.lists(st.integers(0, 8), min_size=1, max_size=3))
    hops = draw(st.integers(0, 3))
    types = st.integers(0, len(num_nodes) - 1)
    disjoint = draw(st.booleans()) if disjoint is None else disjoint
    chosen = []
    for _ in range(draw(st.integers(0, 3))):
        expands, finds = draw(types), draw(types)
        rows = draw(any_rows(num_nodes[finds], num_nodes[expands]))
        fanouts = tuple(draw(st.lists(FANOUTS, min_size=hops, max_size=hops)))
        edges = Edges(rows, fanouts, expands, finds, draw(NAMES))
        chosen.append(_chosen(draw, edges, disjoint))
    seeds = [draw(any_seeds(count)) for count in num_nodes]
    timed = any(one.times is not None for one in chosen) or (disjoint and draw(st.booleans()))
    return TreeJob(
        num_nodes,
        chosen,
        seeds,
        [_numbers(draw, TIMES, len(ids)) for ids in seeds] if timed else None,
        draw(WORDS),
        draw(st.booleans()),
        tuple(draw(st.lists(st.integers(-1, 6), max_size=3 if capped else 0))),
        disjoint,
        draw(st.booleans()),
    )


def _chosen(draw: st.DrawFn, edges: Edges, disjoint: bool) -> Chosen:
    rows, count = edges.rows, len(edges.rows.entries)
    match draw(st.sampled_from(["uniform", "weights", "times"])):
        case "weights":
            return Chosen(edges, weights=running_sums(rows, _numbers(draw, WEIGHTS, count)))
        case "times" if disjoint:
            return Chosen(edges, times=rising(rows, _numbers(draw, TIMES, count)))
    return Chosen(edges)


def assert_same_trees(sample: Sample, expected: reference.Sample | Sample) -> None:
    """Every array to the byte, and every count."""
    assert_same(sample, expected)
    assert (sample.trees is None) == (expected.trees is None)
    same_arrays(sample.trees or [], expected.trees or [])
