"""The labels of anchors: the first neighbours of each node, up to a limit, in storage order."""

from __future__ import annotations

import numpy as np

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import MOST_NEIGHBORS, Array, Ids, as_ids, check_integer
from penstock.kernels.topology import Adjacency

_DAMAGE = "damaged topology: an offset or neighbour points outside the graph; run its validate()"


def first_neighbors(
    adjacency: Adjacency, nodes: Array, num_found: int, most: int | None = None
) -> tuple[Ids, Ids]:
    """Return how many neighbours each node gives, and which: its first `most` (None: all).

    `num_found` is the number of nodes of the type of the neighbours.
    """
    ids = as_ids(nodes, "nodes")
    bad = _native.first_outside(ids, adjacency.num_nodes)
    if bad >= 0:
        raise ValueError(f"nodes[{bad}] is {ids[bad]}; expected 0 <= id < {adjacency.num_nodes}")
    cap = -1 if most is None else check_integer(most, "most", 0, MOST_NEIGHBORS + 1)
    counts = np.empty(len(ids), np.int64)
    total = _native.count_first(adjacency.native, ids, cap, counts)
    if total < 0:
        raise GraphFormatError(_DAMAGE)
    found = np.empty(total, np.int64)
    if not _native.read_first(adjacency.native, ids, cap, num_found, counts, found):
        raise GraphFormatError(_DAMAGE)
    return counts, found
