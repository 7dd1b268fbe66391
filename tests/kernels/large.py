"""Graphs large enough that every block and chunk of the kernels fills up and overflows.

The kernels work on 64 nodes and 128 picks at a time, and draw fan-outs up to 32 by blocks. Tests
try sizes around those, and around other powers of two, which the numbers may become.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.arrays import Array, Ids
from tests.kernels.strategies import Edges, Job, Rows


def rows_with_degrees(
    degrees: Array, num_found: int, *, paired: bool = True, dtype: str = "int64", seed: int = 0
) -> Rows:
    """Random neighbours; the edge ids of paired rows are a permutation."""
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    neighbors = rng.integers(0, num_found, indptr[-1]).astype(dtype)
    if not paired:
        return Rows(indptr, neighbors)
    return Rows(indptr, np.stack([neighbors, rng.permutation(indptr[-1]).astype(dtype)], axis=1))


def degrees_around(fanout: int, num_nodes: int, seed: int = 0) -> Ids:
    """Degrees of fanout - 1, fanout, fanout + 1, none, and a hub now and then."""
    rng = np.random.default_rng(seed)
    likely = np.array([0, max(fanout - 1, 0), fanout, fanout + 1, 2 * fanout + 3])
    degrees = rng.choice(likely, num_nodes, p=[0.1, 0.2, 0.3, 0.3, 0.1])
    degrees[rng.integers(0, num_nodes, 2)] = 700
    return degrees.astype(np.int64)


def large_job(
    num_nodes: int, fanouts: tuple[int, ...], num_seeds: int, *, paired: bool, dtype: str, seed: int
) -> Job:
    """A homogeneous batch with degrees around its first fan-out; some seeds stand twice."""
    rng = np.random.default_rng(seed)
    degrees = degrees_around(max(fanouts[0], 3), num_nodes, seed)
    rows = rows_with_degrees(degrees, num_nodes, paired=paired, dtype=dtype, seed=seed)
    seeds = rng.integers(0, num_nodes, num_seeds)
    return Job([num_nodes], [Edges(rows, fanouts)], [seeds], key=seed + 1)
