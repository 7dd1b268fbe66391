"""Assigns nodes to parts one after the other: the interface of the kernels that count votes.

Nodes of all types have one index space: those of a type begin at its base. `parts` has the part of
each node, uint8, int16 or int32; the number of parts stands for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids, check_integer
from penstock.kernels.topology import Adjacency

_DAMAGE: Final = "damaged topology: an offset or neighbour is out of range"
# A product of so much room and of the votes of a node fits 63 bits.
_MOST_ROOM: Final = 1 << 33


class RowsOfType(NamedTuple):
    """The rows of one edge type, and where their nodes and neighbours are in the index space.

    Attributes:
        rows: The rows, of all nodes of a type.
        row_base: Where the nodes begin that have the rows.
        base: Where the neighbours begin.
        size: How many nodes of their type there are.
    """

    rows: Adjacency
    row_base: int
    base: int
    size: int


def place_nodes(
    relations: Sequence[RowsOfType],
    base: int,
    first: int,
    end: int,
    capacity: int,
    sizes: Ids,
    parts: Array,
    votes: Array | None = None,
) -> int:
    """Assign nodes of one type, in order, each to the part where most of its neighbours are.

    The part with the highest product of neighbours and room gets the node; of equal ones that with
    more room, then the lower number. A node without a neighbour in a part with room stays where it
    is, or goes to the emptiest part.

    Args:
        relations: The rows of these nodes, of all edge types that lead to them.
        base: Where the nodes of this type begin.
        first: The first row to assign.
        end: The row after the last one.
        capacity: The most nodes of this type in a part.
        sizes: How many there are in each part; brought up to date.
        parts: The part of each node; brought up to date.
        votes: [end - first, parts] int32, votes to add to those of the neighbours.

    Returns:
        How many nodes have changed their part.
    """
    check_integer(capacity, "capacity", 1, _MOST_ROOM)
    if capacity * len(sizes) < end - first or capacity * len(sizes) < int(sizes.sum()):
        raise ValueError(f"capacity is {capacity}, which is not enough for all nodes")
    moved = _native.place_nodes(
        [each.rows.native for each in relations],
        [each.base for each in relations],
        [each.size for each in relations],
        base,
        first,
        end,
        votes,
        capacity,
        sizes,
        parts,
    )
    if moved < 0:
        raise GraphFormatError(_DAMAGE)
    return moved


def count_votes(relation: RowsOfType, first: int, end: int, parts: Array, votes: Array) -> None:
    """Add to `votes` [end - first, parts], for each neighbour, the part of the node with the row.

    Args:
        relation: The rows.
        first: The first neighbour to count votes for, within its type.
        end: The one after the last.
        parts: The part of each node.
        votes: int32, brought up to date.
    """
    rows, row_base, base, size = relation
    if not _native.count_votes(rows.native, row_base, base, size, first, end, parts, votes):
        raise GraphFormatError(_DAMAGE)


def is_undirected(relations: Sequence[RowsOfType]) -> bool:
    """Return whether every edge is there in both directions, equally often.

    It compares sums of digests: edges that differ pass with a probability of 2⁻⁶⁴.
    """
    sums = np.zeros(2, np.uint64)
    for rows, row_base, base, size in relations:
        if not _native.add_both_directions(rows.native, row_base, base, size, sums):
            raise GraphFormatError(_DAMAGE)
    return bool(sums[0] == sums[1])
