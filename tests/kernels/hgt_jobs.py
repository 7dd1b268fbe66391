"""Layers for tests: over small graphs of any shape, for the native kernel and for the twin."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from penstock.kernels.arrays import Array
from penstock.kernels.hgt import HGT, Layers
from penstock.kernels.twins import hgt as twin
from tests.kernels.strategies import NAMES, WORDS, Edges, any_rows, any_seeds, rows_of, same_arrays


@dataclass(frozen=True)
class Layering:
    """A batch to sample. `edges` have no fan-outs."""

    num_nodes: list[int]
    edges: list[Edges]
    num_samples: list[tuple[int, ...]]
    seeds: list[Array]
    key: int = 1
    max_neighbors: int = 50
    names: list[str] = field(default_factory=list)

    @property
    def type_names(self) -> list[str]:
        return self.names or [f"type {number}" for number in range(len(self.num_nodes))]

    @property
    def sampler(self) -> HGT:
        return HGT(
            self.num_nodes,
            [edges.native for edges in self.edges],
            self.num_samples,
            names=self.type_names,
            max_neighbors=self.max_neighbors,
        )

    def native(self) -> Layers:
        return self.sampler.sample(self.key, self.seeds)

    def twin(self) -> twin.Layers:
        return twin.sample(
            self.type_names,
            [edges.twin for edges in self.edges],
            self.num_samples,
            self.seeds,
            self.key,
            max_neighbors=self.max_neighbors,
        )


def one_type(
    edges: list[tuple[int, int]], num_nodes: int, samples: tuple[int, ...], seeds: list[int]
) -> Layering:
    """Layers over edges (from, to), which have their places in the list as ids."""
    table = np.array(edges, np.int64).reshape(-1, 2)
    rows = rows_of(table[:, 0], table[:, 1], num_nodes, paired=True, dtype="int64")
    return Layering([num_nodes], [Edges(rows, ())], [samples], [np.array(seeds, np.int64)])


@st.composite
def layerings(draw: st.DrawFn) -> Layering:
    num_nodes = draw(st.lists(st.integers(0, 12), min_size=1, max_size=3))
    layers = draw(st.integers(0, 3))
    types = st.integers(0, len(num_nodes) - 1)
    edges = []
    for _ in range(draw(st.integers(0, 4))):
        expands, finds = draw(types), draw(types)
        rows = draw(any_rows(num_nodes[finds], num_nodes[expands]))
        edges.append(Edges(rows, (), expands, finds, draw(NAMES)))
    counts = st.lists(st.integers(0, 5), min_size=layers, max_size=layers)
    return Layering(
        num_nodes,
        edges,
        [tuple(draw(counts)) for _ in num_nodes],
        [draw(any_seeds(size)) for size in num_nodes],
        draw(WORDS),
        draw(st.sampled_from([50, 1, 2, 4, 33])),
        [draw(st.text("ab→", max_size=9)) for _ in num_nodes],
    )


def assert_same(sampled: Layers, expected: Layers | twin.Layers) -> None:
    """Every array to the byte, and every count."""
    assert sampled.num_sampled_nodes == expected.num_sampled_nodes
    for name in ("nodes", "rows", "cols", "edge_ids"):
        same_arrays(getattr(sampled, name), getattr(expected, name))
