"""`torch.ops.pyg.random_walk`, which PyG expects wherever pyg-lib is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.compat.tensors import array_of, drawn_key, tensor_of
from penstock.compat.topology import TensorEdges, TensorTopology
from penstock.kernels import Adjacency
from penstock.kernels.negatives import sort_rows
from penstock.kernels.walks import Step, WalkRows, walk

if TYPE_CHECKING:
    from torch import Tensor


def random_walk(
    rowptr: Tensor, col: Tensor, seed: Tensor, walk_length: int, p: float = 1.0, q: float = 1.0
) -> Tensor:
    """Return the nodes [seeds, walk_length + 1] of a walk from every seed: uniform or node2vec.

    A walk that cannot go on stays where it is.
    """
    (relation,) = TensorTopology((TensorEdges(rowptr, col, ()),)).relations()
    adjacency = relation.adjacency
    nodes, _ = walk(
        [Step(adjacency, adjacency.num_nodes)],
        array_of(seed, "seed"),
        drawn_key(),
        length=walk_length,
        p=p,
        q=q,
        sorted_rows=_ascending(adjacency) if (p, q) != (1, 1) else None,
    )
    return tensor_of(nodes, seed.dtype)


def _ascending(adjacency: Adjacency) -> WalkRows:
    """Return rows in ascending order.

    Made for every call: PyG's own rows are ascending, and sorting them again is fast.
    """
    neighbors = np.empty(adjacency.num_edges, adjacency.entries.dtype)
    sort_rows(adjacency, neighbors)
    return WalkRows(Adjacency(adjacency.indptr, neighbors))
