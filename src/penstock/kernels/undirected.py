"""Makes the undirected graph of all edges, as programs that partition graphs want it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.streaming import RowsOfType, is_undirected

_DAMAGE: Final = "damaged topology: an offset or neighbour is out of range"


class Undirected(NamedTuple):
    """The neighbours of each node, each once, rising, without the node itself.

    Attributes:
        indptr: Where the neighbours of each node begin, and where they end.
        ends: The neighbours.
        weights: How many edges there are to each of them: of both directions, or of one if both
            have equally many.
    """

    indptr: Ids
    ends: Array
    weights: Array


def undirected(relations: Sequence[RowsOfType], num_nodes: int) -> Undirected:
    """Return the undirected graph of all edges; it takes 8 bytes for each end of an edge.

    Args:
        relations: The rows of all edge types.
        num_nodes: How many nodes of all types there are.
    """
    reverse = not is_undirected(relations)
    indptr = np.zeros(num_nodes + 1, np.int64)
    for rows, row_base, base, size in relations:
        if not _native.count_ends(rows.native, row_base, base, size, reverse, indptr[1:]):
            raise GraphFormatError(_DAMAGE)
    np.cumsum(indptr, out=indptr)
    ends = np.empty(int(indptr[-1]), np.int32 if num_nodes < 2**31 else np.int64)
    cursors = indptr[:-1].copy()
    for rows, row_base, base, size in relations:
        if not _native.place_ends(rows.native, row_base, base, size, reverse, cursors, ends):
            raise GraphFormatError(_DAMAGE)
    weights = np.empty_like(ends)
    count = _native.merge_ends(indptr, ends, weights)
    if count < 0:
        raise GraphFormatError(_DAMAGE)
    return Undirected(indptr, ends[:count], weights[:count])
