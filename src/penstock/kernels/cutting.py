"""Cuts a graph into parts: the interface of the kernels that copy rows and find their edges."""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids, as_ids, check_integer
from penstock.kernels.members import WORD_BITS, Members
from penstock.kernels.topology import Adjacency

_DAMAGE: Final = "damaged topology: an offset, neighbour or edge id is out of range"


def row_offsets(adjacency: Adjacency, nodes: Ids) -> Ids:
    """Return where the rows of `nodes` begin if they stand one after the other, and where they end.

    Args:
        adjacency: The rows of all nodes.
        nodes: Whose rows, in which order.
    """
    checked = _checked(adjacency, nodes)
    offsets = np.zeros(len(checked) + 1, np.int64)
    np.cumsum(adjacency.indptr[checked + 1] - adjacency.indptr[checked], out=offsets[1:])
    return offsets


def copy_rows(adjacency: Adjacency, nodes: Ids, offsets: Ids, begin: int, out: Array) -> None:
    """Write entries of the rows of `nodes`, as they stand one after the other, to `out`.

    Args:
        adjacency: The rows of all nodes.
        nodes: Whose rows, in which order.
        offsets: Their `row_offsets`.
        begin: The position of the first entry to write.
        out: [n, 2], for pairs of neighbour and edge id, or [n], for neighbours alone.
    """
    has_form = out.ndim == 1 or (out.ndim == 2 and out.shape[1] == 2)
    if not has_form or not 0 <= begin <= offsets[-1] - len(out):
        raise ValueError(
            f"out has shape {list(out.shape)} and begin is {begin}; expected [n, 2] or [n] within "
            f"{offsets[-1]} entries"
        )
    checked = _checked(adjacency, nodes)
    if not _native.copy_rows(adjacency.native, checked, offsets, begin, out):
        raise GraphFormatError(_DAMAGE)


def edge_members(adjacency: Adjacency, nodes: Ids, size: int) -> Members:
    """Return which edges are in the rows of `nodes`.

    Args:
        adjacency: The rows of all nodes.
        nodes: Whose rows; each node once.
        size: How many edges there are in all.
    """
    checked, size = _checked(adjacency, nodes), check_integer(size, "size", 0, 2**62)
    words = np.zeros((-(-size // WORD_BITS), 2), np.uint64)
    if not _native.mark_edges(adjacency.native, checked, size, words):
        raise GraphFormatError(_DAMAGE)
    return Members(words, size)


def count_cut(adjacency: Adjacency, owners: Array, others: Array, num_parts: int) -> Ids:
    """Return, for each part, how many edges of its nodes have their other end in another part.

    Args:
        adjacency: The rows of all nodes.
        owners: The part of each node that has a row; uint8, int16 or int32.
        others: The part of each node that rows lead to; of the same type.
        num_parts: How many parts there are.
    """
    if owners.shape != (adjacency.num_nodes,) or others.ndim != 1 or owners.dtype != others.dtype:
        raise ValueError(
            f"owners are {owners.dtype} {list(owners.shape)} and others {others.dtype} "
            f"{list(others.shape)}; expected the part of each of {adjacency.num_nodes} nodes, and "
            "of the nodes that rows lead to, of one type"
        )
    cut = np.zeros(check_integer(num_parts, "num_parts", 1, 2**31), np.int64)
    mine, theirs = np.ascontiguousarray(owners), np.ascontiguousarray(others)
    if not _native.count_cut(adjacency.native, mine, theirs, cut):
        raise GraphFormatError(_DAMAGE)
    return cut


def _checked(adjacency: Adjacency, nodes: Ids) -> Ids:
    checked = as_ids(nodes, "nodes")
    bad = _native.first_outside(checked, adjacency.num_nodes)
    if bad >= 0:
        raise ValueError(
            f"nodes[{bad}] is {checked[bad]}; expected 0 <= id < {adjacency.num_nodes}"
        )
    return checked
