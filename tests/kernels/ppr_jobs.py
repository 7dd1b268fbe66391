"""Forward pushes for tests: a graph, seeds and options, for the native kernel and for the twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from penstock.kernels import Exclusion
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.ppr import Push, PushChannel, PushOptions, PushRelation, PushSample
from penstock.kernels.twins import ppr as twin
from tests.kernels.strategies import NAMES, WORDS, Rows, any_rows, any_seeds, rows_of, same_array

ALPHAS = st.sampled_from([0.05, 0.15, 0.5, 0.9, 1.0])
EPS = st.sampled_from([2.0, 0.3, 1e-2, 1e-3, 1e-5])
CAPS = st.sampled_from([1, 2, 3, 31, 33, 40, 1000])  # 32 is the last drawn by blocks
ROUNDS = st.sampled_from([None, None, 0, 1, 2, 5])


@dataclass(frozen=True)
class Edges:
    """One edge type."""

    rows: Rows
    expands: int = 0
    finds: int = 0
    name: tuple[str, str, str] = ("", "", "")


@dataclass(frozen=True)
class Job:
    """A batch to push for. `channels` are (numbers of edge types, share)."""

    num_nodes: list[int]
    edges: list[Edges]
    seeds: Array
    seed_type: int = 0
    key: int = 1
    channels: tuple[tuple[tuple[int, ...], int], ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    excluded: tuple[frozenset[tuple[int, int]], ...] = ()  # by edge type: (node, neighbour)

    @property
    def push(self) -> Push:
        relations = [
            PushRelation(each.rows.adjacency, each.expands, each.finds, each.name)
            for each in self.edges
        ]
        channels = tuple(PushChannel(*channel) for channel in self.channels)
        return Push(self.num_nodes, relations, PushOptions(**self.options, channels=channels))

    def native(self) -> PushSample:
        pairs = [
            Exclusion(number, *np.array(list(some), np.int64).reshape(-1, 2).T)
            for number, some in enumerate(self.excluded)
        ]
        return self.push.sample(self.key, self.seeds, self.seed_type, pairs)

    def twin(self) -> twin.Sample:
        excluded = self.excluded or (frozenset(),) * len(self.edges)
        relations = [
            twin.Relation(
                each.rows.indptr,
                each.rows.neighbors,
                each.rows.edge_ids,
                each.expands,
                each.finds,
                each.name,
                some,
            )
            for each, some in zip(self.edges, excluded, strict=True)
        ]
        channels = tuple(twin.PPRChannel(*channel) for channel in self.channels)
        options = twin.PPROptions(**self.options, channels=channels)
        return twin.ppr(
            len(self.num_nodes), relations, options, self.seeds, self.key, self.seed_type
        )


@st.composite
def push_jobs(draw: st.DrawFn, max_types: int = 3) -> Job:
    num_nodes = draw(st.lists(st.integers(0, 8), min_size=1, max_size=max_types))
    types = st.integers(0, len(num_nodes) - 1)
    edges = []
    for _ in range(draw(st.integers(0, 4))):
        expands, finds = draw(types), draw(types)
        rows = draw(any_rows(num_nodes[finds], num_nodes[expands]))
        edges.append(Edges(rows, expands, finds, draw(NAMES)))
    seed_type = draw(types)
    return Job(
        num_nodes,
        edges,
        draw(any_seeds(num_nodes[seed_type])),
        seed_type,
        draw(WORDS),
        *draw(channels_and_options(len(edges))),
    )


@st.composite
def channels_and_options(draw: st.DrawFn, num_edges: int) -> tuple[Any, dict[str, Any]]:
    shares = draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))
    subsets = st.lists(st.sampled_from(range(max(num_edges, 1))), unique=True).map(tuple)
    channels: Any = ()
    if num_edges and draw(st.booleans()):
        channels = tuple((draw(subsets), share) for share in shares)
    return channels, {
        "alpha": draw(ALPHAS),
        "eps": draw(EPS),
        "max_ppr_nodes": sum(shares),
        "num_neighbors_per_hop": draw(CAPS),
        "max_fetch_iterations": draw(ROUNDS),
        "residual_topup": draw(st.booleans()),
        "with_edges": draw(st.booleans()),
    }


def assert_same(sample: PushSample, expected: twin.Sample) -> None:
    """Every array to the byte."""
    for name in ("nodes", "edge_index", "edge_attr"):
        for array, other in zip(getattr(sample, name), getattr(expected, name), strict=True):
            same_array(array, other)
    assert (sample.edges is None) == (expected.edges is None)
    for found, (index, edge_ids) in zip(sample.edges or [], expected.edges or [], strict=True):
        same_array(found.edge_index, index)
        same_array(found.edge_ids, edge_ids)


def out_edges(pairs: Sequence[tuple[int, int]], num_nodes: int) -> Rows:
    """Rows in which every node leads to its successors, in the order given."""
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return rows_of(table[:, 1], table[:, 0], num_nodes, paired=True, dtype="int64")


def both_ways(pairs: Sequence[tuple[int, int]], num_nodes: int) -> Rows:
    """Rows of an undirected graph; a self-loop stands in its row once."""
    return out_edges([*pairs, *((b, a) for a, b in pairs if a != b)], num_nodes)


def pushed(rows: Rows, seeds: Sequence[int], **options: Any) -> PushSample:
    """A batch of a homogeneous graph."""
    num_nodes = len(rows.indptr) - 1
    return Job([num_nodes], [Edges(rows)], np.array(seeds, np.int64), options=options).native()


def found(sample: PushSample, seed: int = 0, type_: int = 0) -> dict[int, tuple[float, ...]]:
    """What is said of every node that a seed was given, best first."""
    here = sample.edge_index[type_][0] == seed
    nodes = sample.nodes[type_][sample.edge_index[type_][1][here]]
    rows = sample.edge_attr[type_][here]
    return {int(node): tuple(row.tolist()) for node, row in zip(nodes, rows, strict=True)}


def dense_scores(rows: Rows, seed: int, alpha: float) -> Array:
    """The exact scores: walks that end wherever nothing leads on."""
    num_nodes = len(rows.indptr) - 1
    degrees = np.diff(rows.indptr)
    step = np.zeros((num_nodes, num_nodes))
    owners = np.repeat(np.arange(num_nodes), degrees)
    np.add.at(step, (owners, rows.neighbors), 1.0 / np.maximum(degrees, 1)[owners])
    start = np.zeros(num_nodes)
    start[seed] = alpha
    return np.linalg.solve(np.eye(num_nodes) - (1.0 - alpha) * step.T, start)


def scores_of(sample: PushSample, num_nodes: int, seed: int = 0) -> Array:
    """The scores a seed was given, 0 where a node is not among them."""
    scores = np.zeros(num_nodes)
    for node, (score, *_) in found(sample, seed).items():
        scores[node] = score
    return scores


def degrees(rows: Rows) -> Ids:
    return np.diff(rows.indptr)
