"""Sampling jobs for tests: a graph, seeds and options, for the native kernels and for the twin.

The graphs are small, and Hypothesis sees to the corners: isolated nodes, self-loops, parallel
edges, hubs, no edges, one node, no node. Large ones, for the block sizes, are in `large.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from penstock.kernels import Adjacency, Buffers, KHop, Relation, Sample, reference
from penstock.kernels.arrays import Array, Ids

WORDS = st.integers(0, 2**64 - 1)
NAMES = st.tuples(*[st.text(st.sampled_from("ab→"), max_size=9)] * 3)
# 32 is the largest fan-out drawn by blocks; beyond it, a set remembers what was chosen.
FANOUTS = st.one_of(st.integers(-1, 5), st.sampled_from([31, 32, 33, 40, 1000]))


@dataclass(frozen=True)
class Rows:
    """One edge type's rows of neighbours, as the kernels take them."""

    indptr: Ids
    entries: Array

    @property
    def adjacency(self) -> Adjacency:
        return Adjacency(self.indptr, self.entries)

    @property
    def neighbors(self) -> Array:
        return self.adjacency.neighbors

    @property
    def edge_ids(self) -> Array:
        return self.adjacency.edge_ids


@dataclass(frozen=True)
class Edges:
    """One edge type with what a sampler must know of it."""

    rows: Rows
    fanouts: tuple[int, ...]
    expands: int = 0
    finds: int = 0
    name: tuple[str, str, str] = ("", "", "")

    @property
    def native(self) -> Relation:
        return Relation(self.rows.adjacency, self.fanouts, self.expands, self.finds, self.name)

    @property
    def twin(self) -> reference.Relation:
        rows = self.rows
        return reference.Relation(
            rows.indptr,
            rows.neighbors,
            rows.edge_ids,
            self.fanouts,
            self.expands,
            self.finds,
            self.name,
        )


@dataclass(frozen=True)
class Job:
    """A batch to sample."""

    num_nodes: list[int]
    edges: list[Edges]
    seeds: list[Array]
    key: int = 1
    replace: bool = False
    node_caps: tuple[int, ...] = ()

    @property
    def sampler(self) -> KHop:
        relations = [edges.native for edges in self.edges]
        return KHop(self.num_nodes, relations, replace=self.replace, node_caps=self.node_caps)

    def native(self, out: Buffers | None = None, *, with_edge_ids: bool = True) -> Sample:
        return self.sampler.sample(self.key, self.seeds, out, with_edge_ids=with_edge_ids)

    def twin(self) -> reference.Sample:
        return reference.khop(
            len(self.num_nodes),
            [edges.twin for edges in self.edges],
            self.seeds,
            self.key,
            replace=self.replace,
            node_caps=self.node_caps,
        )


def rows_of(
    sources: Array, destinations: Array, num_destinations: int, *, paired: bool, dtype: str
) -> Rows:
    """In-neighbours by plain NumPy. Bare rows hold the edges sorted by destination, renumbered."""
    order = np.argsort(destinations, kind="stable")
    counts = np.bincount(np.asarray(destinations, np.int64), minlength=num_destinations)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    neighbors = np.asarray(sources)[order].astype(dtype)
    if not paired:
        return Rows(indptr, neighbors)
    return Rows(indptr, np.stack([neighbors, order.astype(dtype)], axis=1))


def transposed(rows: Rows, num_rows: int) -> Rows:
    """The other direction, by the twin."""
    indptr = np.empty(num_rows + 1, np.int64)
    entries = np.empty((len(rows.entries), 2), rows.entries.dtype)
    reference.transpose(rows.indptr, rows.entries, indptr, entries)
    return Rows(indptr, entries)


@st.composite
def edge_lists(draw: st.DrawFn, num_sources: int, num_destinations: int) -> tuple[Ids, Ids]:
    """Sources and destinations; sometimes one destination is a hub with parallel edges."""
    if num_sources == 0 or num_destinations == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    source, destination = st.integers(0, num_sources - 1), st.integers(0, num_destinations - 1)
    pairs = draw(st.lists(st.tuples(source, destination), max_size=24))
    if draw(st.booleans()):
        hub, degree = draw(destination), draw(st.integers(30, 70))
        pairs += [(i % num_sources, hub) for i in range(degree)]
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


@st.composite
def any_rows(draw: st.DrawFn, num_found: int, num_expanded: int) -> Rows:
    """Rows of `num_expanded` nodes with neighbours below `num_found`, in either direction."""
    dtype = draw(st.sampled_from(["int32", "int64"]))
    paired = draw(st.booleans())
    if draw(st.booleans()):
        sources, destinations = draw(edge_lists(num_found, num_expanded))
        return rows_of(sources, destinations, num_expanded, paired=paired, dtype=dtype)
    sources, destinations = draw(edge_lists(num_expanded, num_found))
    rows = rows_of(sources, destinations, num_found, paired=paired, dtype=dtype)
    return transposed(rows, num_expanded)


@st.composite
def any_seeds(draw: st.DrawFn, num_nodes: int) -> Ids:
    """Seeds in any order, often with repetitions."""
    if num_nodes == 0:
        return np.empty(0, np.int64)
    ids = draw(st.lists(st.integers(0, num_nodes - 1), max_size=10))
    return np.array(ids, np.int64)


@st.composite
def homogeneous_jobs(draw: st.DrawFn) -> Job:
    num_nodes = draw(st.integers(0, 12))
    fanouts = tuple(draw(st.lists(FANOUTS, max_size=3)))
    edges = Edges(draw(any_rows(num_nodes, num_nodes)), fanouts)
    return _with_options(draw, Job([num_nodes], [edges], [draw(any_seeds(num_nodes))]))


@st.composite
def heterogeneous_jobs(draw: st.DrawFn) -> Job:
    num_nodes = draw(st.lists(st.integers(0, 8), min_size=1, max_size=3))
    hops = draw(st.integers(0, 3))
    types = st.integers(0, len(num_nodes) - 1)
    edges = []
    for _ in range(draw(st.integers(0, 4))):
        expands, finds = draw(types), draw(types)
        rows = draw(any_rows(num_nodes[finds], num_nodes[expands]))
        fanouts = tuple(draw(st.lists(FANOUTS, min_size=hops, max_size=hops)))
        edges.append(Edges(rows, fanouts, expands, finds, draw(NAMES)))
    return _with_options(draw, Job(num_nodes, edges, [draw(any_seeds(n)) for n in num_nodes]))


def _with_options(draw: st.DrawFn, job: Job) -> Job:
    caps = st.lists(st.integers(-1, 6), max_size=3)
    return replace(
        job,
        key=draw(WORDS),
        replace=draw(st.booleans()),
        node_caps=tuple(draw(st.one_of(st.just([]), caps))),
    )


JOBS = st.one_of(homogeneous_jobs(), heterogeneous_jobs())


def assert_same(sample: Sample, expected: reference.Sample | Sample) -> None:
    """Every array to the byte, and every count."""
    assert sample.num_sampled_nodes == expected.num_sampled_nodes
    assert sample.num_sampled_edges == expected.num_sampled_edges
    same_arrays(sample.nodes, expected.nodes)
    same_arrays(sample.rows, expected.rows)
    same_arrays(sample.cols, expected.cols)
    if sample.edge_ids is not None and expected.edge_ids is not None:
        same_arrays(sample.edge_ids, expected.edge_ids)


def same_arrays(arrays: list[Ids], expected: list[Ids]) -> None:
    assert len(arrays) == len(expected)
    for array, other in zip(arrays, expected, strict=True):
        same_array(array, other)


def same_array(array: Array, expected: Array) -> None:
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(array, expected)
