"""The labels of anchors in plain NumPy."""

from __future__ import annotations

import numpy as np

from penstock.kernels.arrays import Array, Ids


def first_neighbors(
    indptr: Array, neighbors: Array, nodes: Array, most: int | None = None
) -> tuple[Ids, Ids]:
    """Return counts per node, and the first neighbours of each."""
    rows = [neighbors[indptr[node] : indptr[node + 1]][:most] for node in np.asarray(nodes)]
    counts = np.array([len(row) for row in rows], np.int64)
    return counts, np.concatenate([np.empty(0, np.int64), *rows]).astype(np.int64)
