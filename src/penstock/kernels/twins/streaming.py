"""Assigning nodes to parts one after the other, in plain NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.kernels.arrays import Array, Ids
from penstock.kernels.reference import fold
from penstock.kernels.streaming import RowsOfType

MOST_VOTES = 1 << 30


def neighbors_of(relation: RowsOfType, row: int) -> list[int]:
    """Return the neighbours of a row, in the index space of all nodes."""
    begin, end = relation.rows.indptr[row : row + 2]
    return [relation.base + int(node) for node in relation.rows.neighbors[begin:end]]


def edges_of(relation: RowsOfType) -> Iterator[tuple[int, int]]:
    """Yield the two nodes of each entry, that with the row first."""
    for row in range(relation.rows.num_nodes):
        for neighbor in neighbors_of(relation, row):
            yield relation.row_base + row, neighbor


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
    """Assign nodes of one type, in order; return how many have changed their part."""
    num_parts, moved = len(sizes), 0
    for row in range(first, end):
        node = base + row
        counts = [0] * num_parts if votes is None else votes[row - first].tolist()
        for relation in relations:
            for neighbor in neighbors_of(relation, row):
                if neighbor != node and parts[neighbor] < num_parts:
                    counts[parts[neighbor]] += 1
        before = int(parts[node])
        if before < num_parts:
            sizes[before] -= 1
        part = _best(counts, [capacity - size for size in sizes.tolist()], before)
        sizes[part] += 1
        parts[node] = part
        moved += part != before
    return moved


def _best(counts: list[int], rooms: list[int], before: int) -> int:
    """Return the part that gets a node: the first of the best ones."""
    among = [part for part, room in enumerate(rooms) if counts[part] > 0 and room > 0]
    if among:
        return max(
            among, key=lambda part: (min(counts[part], MOST_VOTES) * rooms[part], rooms[part])
        )
    if before < len(rooms) and rooms[before] > 0:
        return before
    return rooms.index(max(rooms))


def count_votes(relation: RowsOfType, first: int, end: int, parts: Array, votes: Array) -> None:
    """Add, for each neighbour from first to end, a vote for the part of the node with the row."""
    for node, neighbor in edges_of(relation):
        place = neighbor - relation.base
        if first <= place < end and node != neighbor and parts[node] < votes.shape[1]:
            votes[place - first, parts[node]] += 1


def sums_of_directions(relations: Sequence[RowsOfType]) -> tuple[int, int]:
    """Return the sums of digests of all edges, and of all edges in reverse."""
    edges = [edge for relation in relations for edge in edges_of(relation)]
    here = sum(fold(one, other) for one, other in edges)
    there = sum(fold(other, one) for one, other in edges)
    return here % 2**64, there % 2**64
