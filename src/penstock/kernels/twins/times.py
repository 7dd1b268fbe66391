"""Temporal choice in plain NumPy: the same bytes as native/temporal.hpp and native/prepare.hpp."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from penstock.kernels.arrays import Array, Ids
from penstock.kernels.reference import choose as choose_uniformly
from penstock.kernels.reference import node_key


def order_by_time(
    indptr: Array, neighbors: Array, edge_ids: Array, times: Array, *, of_nodes: bool = False
) -> tuple[Array, Ids]:
    """Return paired entries with each row in order of time, stably, and the times in that order."""
    by_position = np.asarray(times)[neighbors if of_nodes else edge_ids].astype(np.int64)
    order = [np.empty(0, np.int64)]
    for begin, end in zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True):
        order.append(begin + np.argsort(by_position[begin:end], kind="stable"))
    places = np.concatenate(order)
    entries = np.stack([neighbors[places], edge_ids[places]], axis=1)
    return entries, by_position[places]


def choose(
    times: Sequence[int], time: int, fanout: int, replace: bool, last: bool, key: int
) -> Ids:
    """Return which of a node's edges are taken, as offsets into its row, in order."""
    admissible = bisect_right(times, time)
    recent = min(admissible, fanout) if last and fanout >= 0 else admissible
    return admissible - recent + choose_uniformly(recent, fanout, replace, key)


def choose_by_time(
    indptr: Array,
    times: Array,
    nodes: Array,
    node_times: Array,
    fanout: int,
    key: int,
    *,
    replace: bool = False,
    last: bool = False,
    trees: Array | None = None,
) -> tuple[Ids, Ids]:
    """Return counts per node, and positions."""
    words = [0] * len(nodes) if trees is None else [int(tree) + 1 for tree in trees]
    counts, positions = [], [np.empty(0, np.int64)]
    each = zip(np.asarray(nodes).tolist(), np.asarray(node_times).tolist(), words, strict=True)
    for node, time, tree in each:
        begin, end = int(indptr[node]), int(indptr[node + 1])
        row, word = times[begin:end].tolist(), node_key(key, node, tree)
        offsets = choose(row, time, fanout, replace, last, word)
        counts.append(len(offsets))
        positions.append(begin + offsets)
    return np.array(counts, np.int64), np.concatenate(positions)
