"""Bounds on the size of a batch before it is sampled, computed from fan-outs and sizes.

The bound decides how much room a batch is given, not its contents. It is an overestimate: it does
not look at edges. Only a repeated seed with all of its neighbours asked for can make a batch
larger; the kernel then reports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

# More than any memory holds; sums of it are still exact.
_MOST = 2**62
# Kernels need room in whole chunks: with this much extra, one run is enough.
SPARE = 128


class Sizes(msgspec.Struct, frozen=True):
    """The number of nodes of each type, and of edges of each relation."""

    nodes: tuple[int, ...]
    edges: tuple[int, ...]

    def with_spare(self) -> Sizes:
        return Sizes(
            tuple(count + SPARE for count in self.nodes),
            tuple(count + SPARE for count in self.edges),
        )

    def scaled(self, factor: float) -> Sizes:
        return Sizes(
            tuple(int(count * factor) for count in self.nodes),
            tuple(int(count * factor) for count in self.edges),
        )

    def at_least(self, other: Sizes) -> Sizes:
        """Return the larger of the two, number by number."""
        return Sizes(_larger(self.nodes, other.nodes), _larger(self.edges, other.edges))


@dataclass(frozen=True, slots=True)
class Reach:
    """A relation by its sizes: which node type it expands, which it finds, and how many edges."""

    expands: int
    finds: int
    num_edges: int
    fanouts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Hops:
    """Everything that the size of a batch depends on, except its seeds."""

    num_nodes: tuple[int, ...]
    reaches: tuple[Reach, ...]
    num_hops: int
    replace: bool = False
    node_caps: tuple[int, ...] = ()
    disjoint: bool = False

    def bound(self, seeds: Sequence[int]) -> Sizes:
        """Return the largest sizes that this many seeds of each type can lead to."""
        trees = sum(seeds) if self.disjoint else 1
        nodes, frontier, edges = list(seeds), list(seeds), [0] * len(self.reaches)
        for hop in range(self.num_hops):
            taken = [self._taken(reach, hop, frontier, trees) for reach in self.reaches]
            frontier = [
                self._found(type_, hop, taken, trees) for type_ in range(len(self.num_nodes))
            ]
            nodes, edges = _sums(nodes, frontier), _sums(edges, taken)
        # A repeated seed is listed twice; any other node occurs once in a tree.
        every = [min(trees * count, _MOST) for count in self.num_nodes]
        return Sizes(tuple(map(min, nodes, _sums(seeds, every))), tuple(edges))

    def _taken(self, reach: Reach, hop: int, frontier: Sequence[int], trees: int) -> int:
        """Return the most edges that one hop takes along a relation."""
        heads, fanout = frontier[reach.expands], reach.fanouts[hop]
        every = min(trees * reach.num_edges, _MOST)
        if fanout < 0:
            return every if heads else 0
        # From the second hop on no node is expanded twice, so no edge is taken twice.
        once = hop > 0 and not self.replace
        return min(heads * fanout, every if once else _MOST)

    def _found(self, type_: int, hop: int, taken: Sequence[int], trees: int) -> int:
        """Return the most new nodes of a type that the edges of one hop lead to."""
        pairs = zip(self.reaches, taken, strict=True)
        found = sum(count for reach, count in pairs if reach.finds == type_)
        cap = self.node_caps[hop] if hop < len(self.node_caps) else -1
        return min(found, trees * self.num_nodes[type_], cap if cap >= 0 else _MOST)


def _sums(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [sum(pair) for pair in zip(first, second, strict=True)]


def _larger(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(max, zip(first, second, strict=True)))
