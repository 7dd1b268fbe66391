"""HGT sampling in plain Python, with integers of any size and without tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from penstock.kernels.arrays import Array, Ids
from penstock.kernels.reference import Relabeler, Relation, draws, fold, name_hash

HGT = 0x6867740000000001
SHARE_BITS = 32
TOTAL_BITS = 61


@dataclass(frozen=True, slots=True)
class Layers:
    nodes: list[Ids]
    rows: list[Ids]
    cols: list[Ids]
    edge_ids: list[Ids]
    num_sampled_nodes: list[list[int]]


def sample(
    names: Sequence[str],
    relations: Sequence[Relation],
    num_samples: Sequence[Sequence[int]],
    seeds: Sequence[Array],
    key: int,
    *,
    max_neighbors: int = 50,
) -> Layers:
    """In each layer, the nodes added last give shares, then nodes of every type are drawn."""
    key = fold(key, HGT)
    lists = [Relabeler() for _ in names]
    budgets: list[dict[int, int]] = [{} for _ in names]
    for list_, ids in zip(lists, seeds, strict=True):
        list_.add_seeds(ids)
    counts = [[len(list_.nodes)] for list_ in lists]
    begins = [0] * len(names)
    for layer in range(len(num_samples[0]) if num_samples else 0):
        _spread(lists, budgets, relations, begins, key, max_neighbors)
        begins = [len(list_.nodes) for list_ in lists]
        for type_, name in enumerate(names):
            layer_key = fold(fold(key, layer), name_hash((name,)))
            drawn = _draw_nodes(budgets[type_], num_samples[type_][layer], layer_key)
            lists[type_].add_seeds(np.array(drawn, np.int64))
            counts[type_].append(len(drawn))
    edges = [list(_among(lists, relation, key, max_neighbors)) for relation in relations]
    table = [np.array(found, np.int64).reshape(-1, 3) for found in edges]
    rows, cols, taken = ([part[:, column].copy() for part in table] for column in range(3))
    return Layers([np.array(list_.nodes, np.int64) for list_ in lists], rows, cols, taken, counts)


def _spread(
    lists: list[Relabeler],
    budgets: list[dict[int, int]],
    relations: Sequence[Relation],
    begins: list[int],
    key: int,
    most: int,
) -> None:
    """Distribute shares type by type, relation by relation, node by node, edge by edge."""
    for type_, list_ in enumerate(lists):
        for relation in relations:
            if relation.expands != type_:
                continue
            budget, sampled = budgets[relation.finds], lists[relation.finds].places
            for place in range(begins[type_], len(list_.nodes)):
                picks = _picks(list_, relation, place, key, most)
                for node in relation.neighbors[picks].tolist():
                    if node not in sampled:
                        budget[node] = budget.get(node, 0) + 2**SHARE_BITS // len(picks)


def _picks(list_: Relabeler, relation: Relation, place: int, key: int, most: int) -> Ids:
    """Return the edges of a node that count; the second position of a seed has none."""
    node = list_.nodes[place]
    if list_.places[node] != place:
        return np.empty(0, np.int64)
    return relation.picks(node, most, False, fold(key, name_hash(relation.name)))


def _draw_nodes(budget: dict[int, int], count: int, key: int) -> list[int]:
    """Take nodes out of the budget: all of them, or one by one, by the squares of the amounts."""
    if count >= len(budget):
        drawn = list(budget)
        budget.clear()
        return drawn
    total = sum(amount**2 for amount in budget.values())
    shift = max(total.bit_length() - TOTAL_BITS, 0)
    weights = {node: max(amount**2 >> shift, 1) for node, amount in budget.items()}
    drawn = []
    for word in draws(key, count).tolist():
        target = word * sum(weights.values()) >> 64
        sums = zip(weights, accumulate(weights.values()), strict=True)
        node = next(node for node, upto in sums if upto > target)
        drawn.append(node)
        del weights[node], budget[node]
    return drawn


def _among(
    lists: list[Relabeler], relation: Relation, key: int, most: int
) -> Iterator[tuple[int, int, int]]:
    """Yield the edges (neighbour's position, node's position, edge id) with both ends sampled."""
    heads, found = lists[relation.expands], lists[relation.finds].places
    for place in range(len(heads.nodes)):
        for at in _picks(heads, relation, place, key, most).tolist():
            node = int(relation.neighbors[at])
            if node in found:
                yield found[node], place, int(relation.edge_ids[at])
