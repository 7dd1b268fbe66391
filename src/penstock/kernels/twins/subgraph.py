"""Edges among given nodes in plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.kernels.arrays import Array, Ids
from penstock.kernels.reference import Relation

Edges = tuple[Ids, Ids, Ids]


def induced_edges(
    relations: Sequence[Relation],
    nodes: Sequence[Array],
    trees: Sequence[Array] | None = None,
) -> list[Edges]:
    """Return rows, cols and edge ids of every relation: all edges with both ends listed."""
    lists = [
        list(zip(ids.tolist(), _trees_of(trees, type_, len(ids)), strict=True))
        for type_, ids in enumerate(nodes)
    ]
    places: list[dict[tuple[int, int], int]] = [{} for _ in lists]
    for first, listed in zip(places, lists, strict=True):
        for place, node in enumerate(listed):
            first.setdefault(node, place)
    return [
        _as_edges(_among(relation, places[relation.expands], places[relation.finds]))
        for relation in relations
    ]


def bidirectional(rows: Array, cols: Array, edge_ids: Array, reverse: Edges | None = None) -> Edges:
    """Return edges and reverses, each once, by (col, row); the first id of an edge is kept."""
    back_rows, back_cols, back_ids = (rows, cols, edge_ids) if reverse is None else reverse
    kept: dict[tuple[int, int], int] = {}
    for row, col, edge_id in zip(rows.tolist(), cols.tolist(), edge_ids.tolist(), strict=True):
        kept.setdefault((col, row), edge_id)
    backwards = zip(back_rows.tolist(), back_cols.tolist(), back_ids.tolist(), strict=True)
    for row, col, edge_id in backwards:
        kept.setdefault((row, col), edge_id)
    return _as_edges((row, col, kept[col, row]) for col, row in sorted(kept))


def _trees_of(trees: Sequence[Array] | None, type_: int, count: int) -> list[int]:
    return [0] * count if trees is None else [int(tree) for tree in trees[type_]]


def _among(
    relation: Relation, heads: dict[tuple[int, int], int], tails: dict[tuple[int, int], int]
) -> Iterator[tuple[int, int, int]]:
    """Yield edges in the order of first positions, which is the dict's order of insertion."""
    for (node, tree), place in heads.items():
        for at in range(int(relation.indptr[node]), int(relation.indptr[node + 1])):
            found = tails.get((int(relation.neighbors[at]), tree))
            if found is not None:
                yield found, place, int(relation.edge_ids[at])


def _as_edges(edges: Iterator[tuple[int, int, int]]) -> Edges:
    table = np.array(list(edges), np.int64).reshape(-1, 3)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()
