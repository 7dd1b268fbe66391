"""Weighted choice in plain Python: the same bytes as native/weighted.hpp and native/prepare.hpp."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Sequence
from fractions import Fraction
from math import frexp, ldexp

import numpy as np

from penstock.kernels.arrays import Array, Ids
from penstock.kernels.reference import bounded, draws, node_key

WEIGHT_BITS = 60


def weight_sums(indptr: Array, edge_ids: Array, weights: Array) -> Ids:
    """Return running sums of each row's weights as integers; `weights` are by edge id."""
    by_position = [float(weights[edge]) for edge in np.asarray(edge_ids).tolist()]
    sums: list[int] = []
    for begin, end in zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True):
        total = 0
        for units in integer_weights(by_position[begin:end]):
            total += units
            sums.append(total)
    return np.array(sums, np.int64)


def integer_weights(weights: Sequence[float]) -> list[int]:
    """Scale by one power of two to a total of about 2**60, and round down, but not to 0."""
    _, high = frexp(max(weights, default=0.0))
    total = 0.0
    for weight in weights:
        total += ldexp(weight, -high)
    _, above = frexp(total)
    scale = Fraction(2) ** (WEIGHT_BITS - high - above)
    return [max(1, int(Fraction(weight) * scale)) if weight > 0 else 0 for weight in weights]


def without(sums: Sequence[int], cut: Container[int]) -> list[int]:
    """Return running sums of a row without those cut: the units of the others stay as they are."""
    return _left_over(sums, cut)[0]


def choose(sums: Sequence[int], fanout: int, replace: bool, key: int) -> list[int]:
    """Return which of a node's edges are taken, as offsets into its row, in order."""
    positive = [at for at, sum_ in enumerate(sums) if sum_ > (sums[at - 1] if at else 0)]
    if fanout == 0 or not positive:
        return []
    if fanout < 0 or (not replace and len(sums) <= fanout):
        return positive
    if replace:
        return [bisect_right(sums, drawn) for drawn in _numbers(key, 0, fanout, sums[-1])]
    chosen = _successive(sums, fanout, key)
    return chosen if len(chosen) == fanout else sorted(chosen)


def _successive(sums: Sequence[int], fanout: int, key: int) -> list[int]:
    """Draw in rounds from what was not chosen before the round, until enough or all are chosen."""
    chosen: dict[int, None] = {}
    start = 0
    while len(chosen) < fanout:
        left, places = _left_over(sums, chosen)
        if not left or left[-1] == 0:
            break
        words = 2 * (fanout - len(chosen)) + 8
        for drawn in _numbers(key, start, words, left[-1]):
            if len(chosen) < fanout:
                chosen[places[bisect_right(left, drawn)]] = None
        start += words
    return list(chosen)


def _left_over(sums: Sequence[int], chosen: Container[int]) -> tuple[list[int], list[int]]:
    """Return running sums of the row without those chosen, and the offsets they belong to."""
    left: list[int] = []
    places: list[int] = []
    total = before = 0
    for at, sum_ in enumerate(sums):
        if at not in chosen:
            total += sum_ - before
            left.append(total)
            places.append(at)
        before = sum_
    return left, places


def _numbers(key: int, start: int, count: int, bound: int) -> list[int]:
    """Return draws `start` to `start + count` of a key, scaled to [0, bound)."""
    numbers: list[int] = bounded(draws(key, start + count)[start:], bound).tolist()
    return numbers


def choose_weighted(
    indptr: Array,
    sums: Array,
    nodes: Array,
    fanout: int,
    key: int,
    *,
    replace: bool = False,
    trees: Array | None = None,
) -> tuple[Ids, Ids]:
    """Return counts per node, and positions."""
    words = [0] * len(nodes) if trees is None else [int(tree) + 1 for tree in trees]
    counts, positions = [], []
    for node, tree in zip(np.asarray(nodes).tolist(), words, strict=True):
        begin, end = int(indptr[node]), int(indptr[node + 1])
        offsets = choose(sums[begin:end].tolist(), fanout, replace, node_key(key, node, tree))
        counts.append(len(offsets))
        positions += [begin + offset for offset in offsets]
    return np.array(counts, np.int64), np.array(positions, np.int64)
