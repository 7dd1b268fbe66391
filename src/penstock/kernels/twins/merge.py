"""Rows of several lists as those of one, in plain NumPy: the oracle of `kernels.merge`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.kernels.arrays import Ids
from penstock.kernels.hops import Drawn


def merge_rows(count: int, lists: Sequence[tuple[Ids, Drawn]]) -> Drawn:
    """Return the rows of several lists of nodes as those of one; see `kernels.merge`."""
    counts = np.zeros(count, np.int32)
    for positions, rows in lists:
        counts[positions] = rows.counts
    ends = np.cumsum(counts, dtype=np.int64)
    total = int(ends[-1]) if count else 0
    kinds = [array.dtype for _, rows in lists for array in (rows.neighbors, rows.edge_ids)]
    kind = np.result_type(np.int32, *kinds)
    neighbors, edge_ids = np.empty(total, kind), np.empty(total, kind)
    for positions, rows in lists:
        begins, own = ends[positions] - rows.counts, np.cumsum(rows.counts, dtype=np.int64)
        moved = np.repeat(begins - own + rows.counts, rows.counts)
        places = moved + np.arange(len(moved))
        neighbors[places] = rows.neighbors
        edge_ids[places] = rows.edge_ids
    return Drawn(counts, neighbors, edge_ids)
