"""The undirected graph of all edges, in plain NumPy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from penstock.kernels.streaming import RowsOfType
from penstock.kernels.twins.streaming import edges_of
from penstock.kernels.undirected import Undirected


def undirected(relations: Sequence[RowsOfType], num_nodes: int) -> Undirected:
    """Return the undirected graph of all edges."""
    edges = Counter(edge for relation in relations for edge in edges_of(relation))
    if any(edges[one, other] != edges[other, one] for one, other in list(edges)):
        for (one, other), count in list(edges.items()):
            edges[other, one] += count
    between = sorted(edge for edge, count in edges.items() if count and edge[0] != edge[1])
    indptr = np.zeros(num_nodes + 1, np.int64)
    for one, _ in between:
        indptr[one + 1] += 1
    ends = np.array([other for _, other in between], np.int32)
    weights = np.array([edges[edge] for edge in between], np.int32)
    return Undirected(np.cumsum(indptr), ends, weights)
