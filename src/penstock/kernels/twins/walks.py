"""Random walks in plain Python, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.kernels.arrays import Array
from penstock.kernels.reference import bounded, draws, fold

WALK = 0x77616C6B00000001
WHOLE_BITS = 30
MORE_DRAWS = 8


@dataclass(frozen=True, slots=True)
class WalkTwinRows:
    """The rows of a step, as plain arrays."""

    indptr: Array
    neighbors: Array
    edge_ids: Array

    def row(self, node: int) -> tuple[list[int], list[int]]:
        """Return neighbours and edge ids of a node."""
        where = slice(int(self.indptr[node]), int(self.indptr[node + 1]))
        return self.neighbors[where].tolist(), self.edge_ids[where].tolist()


@dataclass(frozen=True, slots=True)
class Bias:
    """node2vec's weights, in parts of 2**30."""

    back: int
    common: int
    far: int

    @classmethod
    def of(cls, p: float, q: float) -> Bias:
        weights = np.array([1 / p, 1.0, 1 / q])
        return cls(*np.maximum(weights / weights.max() * 2**WHOLE_BITS, 1).astype(int).tolist())


def walk(
    path: Sequence[WalkTwinRows],
    starts: Array,
    key: int,
    *,
    length: int,
    rounds: int = 1,
    stays: bool = True,
    p: float = 1.0,
    q: float = 1.0,
) -> tuple[Array, Array]:
    """Return nodes and edge ids of all walks, those of the first round first."""
    bias = Bias.of(p, q)
    nodes = np.empty((rounds * len(starts), length + 1), np.int64)
    edges = np.empty((rounds * len(starts), length), np.int64)
    for number in range(len(nodes)):
        turn, place = divmod(number, len(starts))
        walk_key = fold(fold(fold(key, WALK), place), turn)
        nodes[number], edges[number] = _one(
            path, int(starts[place]), walk_key, length, stays, None if p == q == 1 else bias
        )
    return nodes, edges


def _one(
    path: Sequence[WalkTwinRows], start: int, key: int, length: int, stays: bool, bias: Bias | None
) -> tuple[list[int], list[int]]:
    nodes, edges = [start], []
    for step in range(length):
        at = nodes[-1]
        rows = path[step % len(path)]
        neighbors, edge_ids = rows.row(at) if at >= 0 else ([], [])
        if not neighbors:
            nodes.append(at if stays else -1)
            edges.append(-1)
            continue
        if bias is None or step == 0:
            chosen = _bounded(_draw(fold(key, step), 0), len(neighbors))
        else:
            weights = [_weight(rows, node, nodes[-2], bias) for node in neighbors]
            chosen = _biased(weights, fold(key, step))
        nodes.append(neighbors[chosen])
        edges.append(edge_ids[chosen])
    return nodes, edges


def _weight(rows: WalkTwinRows, node: int, before: int, bias: Bias) -> int:
    if node == before:
        return bias.back
    return bias.common if before in rows.row(node)[0] else bias.far


def _biased(weights: list[int], key: int) -> int:
    """Choose by rejection; after too many rejections, draw from the sum of the weights."""
    most = len(weights) + MORE_DRAWS
    for j in range(most):
        chosen = _bounded(_draw(key, 2 * j), len(weights))
        if _draw(key, 2 * j + 1) >> (64 - WHOLE_BITS) < weights[chosen]:
            return chosen
    target = _bounded(_draw(key, 2 * most), sum(weights))
    return int(np.searchsorted(np.cumsum(weights), target, side="right"))


def _draw(key: int, j: int) -> int:
    return int(draws(key, j + 1)[j])


def _bounded(word: int, bound: int) -> int:
    return int(bounded(np.array([word], np.uint64), bound)[0])
