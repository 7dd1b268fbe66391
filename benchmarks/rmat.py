"""The benchmark graph: RMAT edges with scrambled ids, made once and kept in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock import Graph

QUADRANTS = (0.57, 0.19, 0.19)  # a, b, c; d is the rest
CHUNK = 1 << 20


def rmat_edges(num_nodes: int, num_edges: int, seed: int = 0) -> npt.NDArray[np.int32]:
    """Return `edge_index` [2, num_edges] of an RMAT graph, with scrambled ids.

    The graph is made over the next power of two. The scrambling maps that onto `num_nodes` ids at
    random, so that nodes of high degree lie anywhere.
    """
    rng = np.random.default_rng(seed)
    levels = (num_nodes - 1).bit_length()
    names = rng.permutation(np.arange(1 << levels) % num_nodes).astype(np.int32)
    edges = np.empty((2, num_edges), np.int32)
    a, b, c = QUADRANTS
    for start in range(0, num_edges, CHUNK):
        size = min(CHUNK, num_edges - start)
        row, col = np.zeros(size, np.int32), np.zeros(size, np.int32)
        for _ in range(levels):
            toss = rng.random(size, dtype=np.float32)
            row = 2 * row + (toss >= a + b)
            col = 2 * col + (((toss >= a) & (toss < a + b)) | (toss >= a + b + c))
        edges[0, start : start + size] = names[row]
        edges[1, start : start + size] = names[col]
    return edges


def benchmark_graph(folder: Path, num_nodes: int, num_edges: int, width: int) -> Graph:
    """Return the graph in shared memory; its edges from `folder` if an earlier run saved them."""
    path = folder / f"rmat-{num_nodes}-{num_edges}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npy")
        np.save(part, rmat_edges(num_nodes, num_edges))
        part.replace(path)
    edges: Any = np.load(path)
    x = np.random.default_rng(1).random((num_nodes, width), dtype=np.float32)
    return Graph.from_coo(edges, num_nodes=num_nodes, x=x)
