"""Cutting a graph into parts, in plain NumPy."""

from __future__ import annotations

import numpy as np

from penstock.kernels.arrays import Array, Ids


def copy_rows(indptr: Ids, neighbors: Array, edge_ids: Array, nodes: Ids) -> Array:
    """Return the entries of the rows of nodes, one row after the other, as pairs."""
    pairs = [
        (int(neighbors[at]), int(edge_ids[at]))
        for node in nodes.tolist()
        for at in range(int(indptr[node]), int(indptr[node + 1]))
    ]
    return np.array(pairs, np.int64).reshape(-1, 2)


def edges_of(indptr: Ids, edge_ids: Array, nodes: Ids) -> Ids:
    """Return the ids of the edges in the rows of nodes; they rise."""
    found = [edge_ids[indptr[node] : indptr[node + 1]] for node in nodes.tolist()]
    return np.sort(np.concatenate([np.zeros(0, np.int64), *found])).astype(np.int64)


def count_cut(indptr: Ids, neighbors: Array, owners: Array, others: Array, num_parts: int) -> Ids:
    """Return, for each part, how many edges of its nodes lead to a node of another part."""
    cut = np.zeros(num_parts, np.int64)
    for node, part in enumerate(owners.tolist()):
        for neighbor in neighbors[indptr[node] : indptr[node + 1]].tolist():
            cut[part] += others[neighbor] != part
    return cut
