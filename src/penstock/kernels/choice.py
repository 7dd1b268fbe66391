"""Chooses the edges of a single hop by weight or by time: the interface of those kernels.

Used to sample across the parts of a graph, and to test the distributions. Positions are places in
the rows of the given adjacency.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids, as_ids, check_fanout, check_word
from penstock.kernels.topology import Adjacency

_DONE, _DAMAGED = 0, 2
_DAMAGE = "damaged topology: an offset points outside the graph; run its validate()"


def choose_weighted(
    adjacency: Adjacency,
    sums: Ids,
    nodes: Array,
    fanout: int,
    key: int,
    *,
    replace: bool = False,
    trees: Array | None = None,
) -> tuple[Ids, Ids]:
    """Return how many edges each node gives, and their positions, drawn by weight.

    Args:
        sums: Those of `prepare.weight_sums` for this adjacency.
        key: A `hop_key`.
        trees: The number of each node's tree, where sampling is disjoint.
    """
    sums = _by_position(sums, adjacency, "sums")
    ids = _check_nodes(nodes, adjacency)
    words = None if trees is None else _one_each(trees, "trees", ids)
    fanout, key = check_fanout(fanout, "fanout"), check_word(key, "key")

    def run(counts: Ids, positions: Ids) -> tuple[int, int]:
        return _native.choose_weighted(
            adjacency.native, sums, ids, words, fanout, replace, key, counts, positions
        )

    return _grow(run, len(ids), fanout)


def choose_by_time(
    adjacency: Adjacency,
    times: Ids,
    nodes: Array,
    node_times: Array,
    fanout: int,
    key: int,
    *,
    replace: bool = False,
    last: bool = False,
    trees: Array | None = None,
) -> tuple[Ids, Ids]:
    """Return how many edges each node gives, and their positions, none later than its time.

    Args:
        adjacency: The rows of `prepare.order_by_time`, with its `times`.
        node_times: The time of each node.
        key: A `hop_key`.
        last: Take the most recent edges; with `replace`, draw from these only.
        trees: The number of each node's tree, where sampling is disjoint.
    """
    times = _by_position(times, adjacency, "times")
    ids = _check_nodes(nodes, adjacency)
    limits = _one_each(node_times, "node_times", ids)
    words = None if trees is None else _one_each(trees, "trees", ids)
    fanout, key = check_fanout(fanout, "fanout"), check_word(key, "key")

    def run(counts: Ids, positions: Ids) -> tuple[int, int]:
        return _native.choose_by_time(
            adjacency.native,
            times,
            ids,
            words,
            limits,
            fanout,
            replace,
            last,
            key,
            counts,
            positions,
        )

    return _grow(run, len(ids), fanout)


def _grow(
    run: Callable[[Ids, Ids], tuple[int, int]], num_nodes: int, fanout: int
) -> tuple[Ids, Ids]:
    """Run with a guess of the room needed, and again if it was too small."""
    room = num_nodes * (fanout if 0 <= fanout <= 64 else 64)
    counts = np.empty(num_nodes, np.int64)
    while True:
        positions = np.empty(room, np.int64)
        code, total = run(counts, positions)
        if code == _DAMAGED:
            raise GraphFormatError(_DAMAGE)
        if code == _DONE:
            return counts, positions[:total]
        room = total


def _check_nodes(nodes: Array, adjacency: Adjacency) -> Ids:
    ids = as_ids(nodes, "nodes")
    bad = _native.first_outside(ids, adjacency.num_nodes)
    if bad >= 0:
        raise ValueError(f"nodes[{bad}] is {ids[bad]}; expected 0 <= id < {adjacency.num_nodes}")
    return ids


def _one_each(values: Array, name: str, nodes: Ids) -> Ids:
    checked = as_ids(values, name)
    if len(checked) != len(nodes):
        raise ValueError(f"{name} must have one number for each of {len(nodes)} nodes")
    return checked


def _by_position(values: Any, adjacency: Adjacency, name: str) -> Ids:
    if not isinstance(values, np.ndarray) or values.dtype != np.int64:
        raise ValueError(f"{name} must be an array of int64")
    if values.shape != (adjacency.num_edges,):
        raise ValueError(
            f"{name} must have one number for each of {adjacency.num_edges} edges, "
            f"not shape {list(values.shape)}"
        )
    return np.ascontiguousarray(values)
