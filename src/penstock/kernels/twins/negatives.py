"""Negatives in plain Python, draw by draw as docs/random.md specifies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from penstock.kernels.arrays import Array
from penstock.kernels.reference import GAMMA, WORD, bounded, fold, mix

NEGATE_DOMAIN = 0x6E65676174650001
DRAWS, SCAN = 32, 1024


def sort_rows(indptr: Array, neighbors: Array) -> Array:
    """Return the neighbours of every row, ascending."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return neighbors[np.lexsort((neighbors, rows))]


@dataclass(frozen=True)
class Candidates:
    """The nodes of one end, their weights (None: all 1) and times."""

    num_nodes: int
    weights: list[int] | None = None
    times: list[int] | None = None

    @property
    def drawable(self) -> list[int]:
        """The nodes that can be drawn, each once, in order."""
        every = range(self.num_nodes)
        return [node for node in every if self.weights is None or self.weights[node] > 0]

    def pick(self, word: int) -> int:
        """Return the node that a random word selects."""
        if self.weights is None:
            return int(bounded(np.array([word], np.uint64), self.num_nodes)[0])
        at = int(bounded(np.array([word], np.uint64), sum(self.weights))[0])
        for node, weight in enumerate(self.weights):
            at -= weight
            if at < 0:
                return node
        raise AssertionError("a word stands for one of the weights")

    def in_time(self, node: int, limit: int) -> bool:
        return self.times is None or self.times[node] <= limit

    @property
    def earliest(self) -> int:
        times = self.times or [0] * self.num_nodes
        return min(self.drawable, key=lambda node: times[node])

    def search(self, start: int, fits: Callable[[int], bool]) -> int | None:
        """Return the first of `SCAN` nodes from `start` on, wrapping around, that fits, or None."""
        nodes = self.drawable
        at = nodes.index(start)
        return next((node for node in [*nodes[at:], *nodes[:at]][:SCAN] if fits(node)), None)


@dataclass
class Drawing:
    """All negatives of a batch."""

    key: int
    positives: list[tuple[int, int]]
    source: Candidates | None
    destination: Candidates
    times: list[int] | None = None
    edges: set[tuple[int, int]] | None = None
    num_false: int = 0
    num_late: int = 0
    drawn: list[tuple[int, int]] = field(default_factory=list)

    def draw(self, count: int) -> list[tuple[int, int]]:
        self.drawn = [self._one(k) for k in range(count)]
        return self.drawn

    def _one(self, k: int) -> tuple[int, int]:
        key, against = fold(fold(self.key, NEGATE_DOMAIN), k), k % len(self.positives)
        limit = 0 if self.times is None else self.times[against]
        pairs = self._pairs(key, against, limit)
        last_source, last_destination = None, None
        for source, destination in pairs:
            last_source = source if source is not None else last_source
            last_destination = destination if destination is not None else last_destination
            if source is None or destination is None:
                break
            if not self._is_edge(source, destination, against):
                return source, destination
        return self._fallback(key, against, limit, last_source, last_destination)

    def _pairs(self, key: int, against: int, limit: int) -> Iterator[tuple[int | None, int | None]]:
        """Yield draws that are in time, of both ends together; None where an end has no more."""
        given = self.positives[against][0]
        sources = None if self.source is None else _in_time(self.source, key, 0, limit)
        destinations = _in_time(self.destination, key, 1, limit)
        while True:
            source = given if sources is None else next(sources, None)
            yield source, next(destinations, None)

    def _fallback(
        self, key: int, against: int, limit: int, source: int | None, destination: int | None
    ) -> tuple[int, int]:
        if source is None:
            assert self.source is not None
            source = _searched(self.source, _word(key, DRAWS, 0), limit)
        nodes = self.destination
        start = nodes.pick(_word(key, DRAWS, 1)) if destination is None else destination
        found = nodes.search(
            start,
            lambda node: nodes.in_time(node, limit) and not self._is_edge(source, node, against),
        )
        if found is None:
            found = nodes.earliest if destination is None else destination
        self.num_false += self._is_edge(source, found, against)
        late_source = self.source is not None and not self.source.in_time(source, limit)
        self.num_late += late_source or not nodes.in_time(found, limit)
        return source, found

    def _is_edge(self, source: int, destination: int, against: int) -> bool:
        if self.edges is None:
            return False
        pair = (source, destination)
        return pair in self.edges or pair == self.positives[against]


def _word(key: int, j: int, side: int) -> int:
    """Return word j of one end: even draws are the source's, odd ones the destination's."""
    return int(mix((key + (2 * j + side) * GAMMA) & WORD)[0])


def _in_time(nodes: Candidates, key: int, side: int, limit: int) -> Iterator[int]:
    picked = (nodes.pick(_word(key, j, side)) for j in range(DRAWS))
    return (node for node in picked if nodes.in_time(node, limit))


def _searched(nodes: Candidates, word: int, limit: int) -> int:
    found = nodes.search(nodes.pick(word), lambda node: nodes.in_time(node, limit))
    return nodes.earliest if found is None else found
