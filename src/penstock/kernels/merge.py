"""Puts rows of nodes that came in several lists back in the order of all nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids, as_ids
from penstock.kernels.hops import Drawn


def merge_rows(count: int, lists: Sequence[tuple[Ids, Drawn]]) -> Drawn:
    """Return the rows of several lists of nodes as those of one.

    Args:
        count: The number of nodes in all.
        lists: For each list the positions of its nodes among all, rising, and their rows.

    Raises:
        ValueError: Two lists have the same node, a position is outside, or counts do not fit.
    """
    if len(lists) == 1 and _is_all(lists[0][0], count):
        return lists[0][1]
    kinds = [array.dtype for _, rows in lists for array in (rows.neighbors, rows.edge_ids)]
    kind = np.result_type(np.int32, *kinds)
    total = sum(len(rows.neighbors) for _, rows in lists)
    out = Drawn(np.empty(count, np.int32), np.empty(total, kind), np.empty(total, kind))
    found = _native.merge_rows(
        [np.ascontiguousarray(as_ids(positions, "positions")) for positions, _ in lists],
        [_plain(rows.counts, np.int32) for _, rows in lists],
        [_plain(rows.neighbors, kind) for _, rows in lists],
        [_plain(rows.edge_ids, kind) for _, rows in lists],
        out.counts,
        out.neighbors,
        out.edge_ids,
    )
    if found != total:
        raise ValueError("the lists have a node twice, or other entries than their counts say")
    return out


def _is_all(positions: Ids, count: int) -> bool:
    """Return whether rising positions are all of them."""
    return len(positions) == count and (
        count == 0 or (positions[0], positions[-1]) == (0, count - 1)
    )


def _plain(array: Array, kind: npt.DTypeLike) -> Array:
    return np.require(array, np.dtype(kind), ["C", "A"])
