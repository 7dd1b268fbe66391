"""Draws hops for some nodes of a graph, and puts hops together that were drawn elsewhere.

Together they are k-hop sampling of a graph in parts: whoever has the rows of a node draws for it,
and one assembly names what all of them found. Knows relations by number, and nothing of parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.errors import BatchTooLarge, GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import (
    Array,
    Ids,
    as_ids,
    as_numbers,
    check_fanout,
    check_integer,
    check_word,
)
from penstock.kernels.khop import (
    DAMAGE,
    SPARE,
    Buffers,
    Exclusion,
    Sample,
    check_numbers,
    check_trees,
    cut,
    too_large,
)
from penstock.kernels.topology import Adjacency

_TOO_SMALL, _DAMAGED = 1, 2


class Drawn(NamedTuple):
    """What nodes give in one hop: how many edges each, and the edges of all, in order.

    `neighbors` and `edge_ids` are ids of the whole graph, int32 or int64.
    """

    counts: Array
    neighbors: Array
    edge_ids: Array


def draw_hop(
    adjacency: Adjacency,
    nodes: Array,
    fanout: int,
    key: int,
    *,
    replace: bool = False,
    weights: Array | None = None,
    times: Array | None = None,
    last: bool = False,
    trees: Array | None = None,
    node_times: Array | None = None,
    excluded: Exclusion | None = None,
) -> Drawn:
    """Draw what `KHop` draws for these nodes in one hop, in its order.

    Args:
        adjacency: The rows; nodes without a row here give nothing.
        nodes: The nodes to draw for, in any order; a node that stands twice is drawn for twice.
        fanout: How many edges of each node to take; -1 takes all, in storage order.
        key: The key of the hop and its relation (`hop_key`).
        replace: Whether an edge may be taken twice.
        weights: Running sums of weights, as in `Relation`.
        times: Times of edges, as in `Relation`; needs `trees` and `node_times`.
        last: Whether the latest edges that are not too late are taken, instead of any.
        trees: The tree of each node, if sampling is disjoint.
        node_times: The time of each node's tree.
        excluded: Edges that are not to be found; those of other nodes do no harm. Its relation
            does not matter.

    Returns:
        How many edges each node gives (int32), and the neighbours and edge ids of all, in the
        dtype of the adjacency's entries.

    Raises:
        ValueError: An argument is out of range, or arrays do not fit together.
        GraphFormatError: The rows point outside the graph.
    """
    ids = _checked(nodes, "nodes", adjacency.num_nodes)
    fanout, key = check_fanout(fanout, "fanout"), check_word(key, "key")
    check_numbers(adjacency, weights, times, 0)
    whose = _aligned(trees, "trees", len(ids))
    bad = -1 if whose is None else _native.first_outside(whose, 2**63 - 1)
    if whose is not None and bad >= 0:
        raise ValueError(f"trees[{bad}] is {whose[bad]}; expected 0 <= tree < 2**63 - 1")
    until = _aligned(node_times, "node_times", len(ids))
    if times is not None and (whose is None or until is None):
        raise ValueError("times need trees and node_times: a time for the tree of every node")
    counts = np.empty(len(ids), np.int32)
    code, neighbors, edge_ids = _native.draw_hop(
        adjacency.by_position,
        ids,
        fanout,
        key,
        replace,
        weights,
        times,
        last,
        whose,
        until,
        None if excluded is None else _pairs(excluded, whose is not None),
        counts,
    )
    if code == _TOO_SMALL:
        raise ValueError("a node gives more edges than an int32 can count")
    if code == _DAMAGED:
        raise GraphFormatError(DAMAGE)
    return Drawn(counts, neighbors, adjacency.numbered(ids, counts, edge_ids))


class HopAssembly:
    """Puts hops together whose edges were drawn elsewhere: what `KHop` does after choosing.

    One batch after the other, each by `begin`, then for every hop `frontier`, `take` for the
    relations in order, and `end_hop`, and at last `finish`. For one thread at a time.

    Args:
        num_nodes: How many nodes there are of each type.
        ends: For each relation the node types that it expands and finds.
        num_hops: How many hops a batch has at most.
        node_caps: As for `KHop`.
        disjoint: As for `KHop`.
    """

    def __init__(
        self,
        num_nodes: Sequence[int],
        ends: Sequence[tuple[int, int]],
        *,
        num_hops: int,
        node_caps: Sequence[int] = (),
        disjoint: bool = False,
    ) -> None:
        self.num_nodes = [
            check_integer(n, f"num_nodes[{number}]", 0, 2**63) for number, n in enumerate(num_nodes)
        ]
        self.ends = [(expands, finds) for expands, finds in ends]
        for number, pair in enumerate(self.ends):
            for side in pair:
                if not 0 <= side < len(self.num_nodes):
                    raise ValueError(
                        f"relation {number} names node type {side}, which is not there"
                    )
        self.num_hops = check_integer(num_hops, "num_hops", 0, 2**31)
        self.disjoint = disjoint
        caps = [
            check_integer(cap, f"node_caps[{hop}]", -1, 2**63) for hop, cap in enumerate(node_caps)
        ]
        self._native = _native.HopAssembly(
            self.num_nodes,
            [expands for expands, _ in self.ends],
            [finds for _, finds in self.ends],
            self.num_hops,
            caps,
            disjoint,
        )
        self._hop = self._next = 0
        self._out: Buffers | None = None
        self._counts: tuple[list[list[int]], list[list[int]]] = ([], [])
        # The sizes of the largest batch so far: the guess for the next one.
        self._most_nodes = [0] * len(self.num_nodes)
        self._most_edges = [0] * len(self.ends)

    def begin(
        self,
        seeds: Sequence[Array],
        out: Buffers | None = None,
        with_edge_ids: bool = True,
    ) -> None:
        """Start a batch with these seeds; what was left of another one is forgotten.

        Args:
            seeds: The seeds, by node type.
            out: Where to write; None allocates.
            with_edge_ids: Whether edge ids are wanted, if `out` is None.
        """
        if len(seeds) != len(self.num_nodes):
            raise ValueError(f"seeds must have one array for each of {len(self.num_nodes)} types")
        checked = [
            as_ids(_checked(ids, f"seeds[{type_}]", self.num_nodes[type_]), "seeds")
            for type_, ids in enumerate(seeds)
        ]
        if self.disjoint:
            check_trees(self.num_nodes, sum(map(len, checked)))
        if out is not None and (out.trees is not None) != self.disjoint:
            raise ValueError("out.trees must be there for disjoint sampling, and only for it")
        self._is_ours = out is None
        self._out = self._guess(checked, with_edge_ids) if out is None else out
        self._hop = self._next = 0
        try:
            self._native.begin(checked, *_memory(self._out))
        except (TypeError, ValueError):
            self._out.check()  # names the array that it refused
            raise

    def frontier(self, type_: int) -> tuple[Ids, Ids | None]:
        """Return the nodes of a type that this hop expands, and their trees if disjoint.

        Seeds that stand for an earlier one are left out.
        """
        return self._native.frontier(check_integer(type_, "type_", 0, len(self.num_nodes)))

    def take(self, relation: int, drawn: Drawn) -> None:
        """Add the edges that the frontier of a relation gave.

        Args:
            relation: The relation; relations come in rising order, those without edges may be left
                out.
            drawn: The edges; `counts` are for the nodes of `frontier(expands)`, in their order.

        Raises:
            ValueError: `counts` do not fit the frontier, or the arrays do not fit together.
            GraphFormatError: A neighbour is no node of the type that the relation finds.
        """
        number = check_integer(relation, "relation", self._next, len(self.ends))
        counts, neighbors, edge_ids = (
            as_numbers(column, name) for column, name in zip(drawn, Drawn._fields, strict=True)
        )
        if self._hop == self.num_hops:
            raise ValueError(f"there are only {self.num_hops} hops")
        if len(edge_ids) != len(neighbors):
            raise ValueError(f"there are {len(neighbors)} neighbors and {len(edge_ids)} edge_ids")
        code, at = self._native.take(number, counts, neighbors, edge_ids)
        match code:
            case 1:
                raise ValueError(f"counts has {len(counts)} entries; the frontier has {at} nodes")
            case 2:
                raise ValueError(
                    f"counts[{at}] is {counts[at]}; expected 0 or more, and not more than "
                    f"there are neighbors, {len(neighbors)}"
                )
            case 3:
                raise ValueError(f"counts sum to {at}; there are {len(neighbors)} neighbors")
            case 4:
                raise GraphFormatError(
                    f"neighbors[{at}] of relation {number} is {neighbors[at]}; "
                    f"expected 0 <= id < {self.num_nodes[self.ends[number][1]]}"
                )
        self._next = number + 1

    def end_hop(self) -> None:
        """End the hop: what was found in it is what the next hop expands."""
        if self._hop == self.num_hops:
            raise ValueError(f"there are only {self.num_hops} hops")
        self._native.end_hop()
        self._hop, self._next = self._hop + 1, 0

    def finish(self) -> Sample:
        """Return the batch, as `KHop.sample` does.

        Raises:
            BatchTooLarge: `out` is too small; the error says what is needed, and `again` writes the
                batch into larger memory.
        """
        fits, *counts = self._native.finish()
        assert self._out is not None
        out, self._out = self._out, None  # the caller's from now on
        self._counts = counts[0], counts[1]
        if self._is_ours:
            self._most_nodes = [*map(max, self._most_nodes, map(sum, counts[0]))]
            self._most_edges = [*map(max, self._most_edges, map(sum, counts[1]))]
        if fits:
            return _made(out, *self._counts)
        if not self._is_ours:
            raise self._too_large(out)
        nodes, edges = self._sizes()
        with_edge_ids = out.edge_ids is not None
        return self.again(
            Buffers.allocate(nodes, edges, with_edge_ids=with_edge_ids, with_trees=self.disjoint)
        )

    def again(self, out: Buffers) -> Sample:
        """Write a batch that did not fit into other memory, and return it.

        Raises:
            BatchTooLarge: `out` is too small, too. The batch is kept until another one begins.
        """
        if (out.trees is not None) != self.disjoint:
            raise ValueError("out.trees must be there for disjoint sampling, and only for it")
        try:
            fits = self._native.write(*_memory(out))
        except (TypeError, ValueError):
            out.check()  # names the array that it refused
            raise
        if not fits:
            raise self._too_large(out)
        return _made(out, *self._counts)

    def _sizes(self) -> tuple[list[int], list[int]]:
        return [*map(sum, self._counts[0])], [*map(sum, self._counts[1])]

    def _too_large(self, out: Buffers) -> BatchTooLarge:
        return too_large(*self._sizes(), out)

    def _guess(self, seeds: list[Ids], with_edge_ids: bool) -> Buffers:
        """Return room for the largest batch so far plus some; a larger one is copied once."""
        nodes = [
            max(len(ids), most + most // 8) + SPARE
            for ids, most in zip(seeds, self._most_nodes, strict=True)
        ]
        edges = [most + most // 8 + SPARE for most in self._most_edges]
        return Buffers.allocate(nodes, edges, with_edge_ids=with_edge_ids, with_trees=self.disjoint)


def edges_within(
    adjacency: Adjacency,
    heads: Array,
    tails: Array,
    *,
    head_trees: Array | None = None,
    tail_trees: Array | None = None,
) -> tuple[Array, Ids, Ids]:
    """Find the edges from `heads` to `tails`: what `InducedEdges` finds along one relation.

    Edges are in the order of the heads, then of storage. A head that stands twice gives its edges
    at its first position only; a tail that stands twice is found at its first position.

    Args:
        adjacency: The rows of the heads.
        heads: The nodes whose rows are read.
        tails: The nodes that neighbours are looked up among.
        head_trees: The tree of each head; only edges within a tree are found.
        tail_trees: The tree of each tail.

    Returns:
        How many edges each head gives (int32), and for all edges the position of the neighbour in
        `tails` and the edge id.
    """
    ids = _checked(heads, "heads", adjacency.num_nodes)
    others = as_numbers(tails, "tails")
    if (head_trees is None) != (tail_trees is None):
        raise ValueError("head_trees and tail_trees are needed both, or neither")
    whose = _aligned(head_trees, "head_trees", len(ids))
    theirs = _aligned(tail_trees, "tail_trees", len(others))
    counts = np.empty(len(ids), np.int32)
    code, positions, edge_ids = _native.edges_within(
        adjacency.by_position, ids, others, whose, theirs, counts
    )
    if code == _DAMAGED:
        raise GraphFormatError(DAMAGE)
    numbered = adjacency.numbered(ids, counts, edge_ids)
    return counts, positions, numbered.astype(np.int64, copy=False)


def _memory(
    out: Buffers,
) -> tuple[list[Ids], list[Ids], list[Ids], list[Ids] | None, list[Ids] | None]:
    return out.nodes, out.rows, out.cols, out.edge_ids, out.trees


def _made(out: Buffers, hop_nodes: list[list[int]], hop_edges: list[list[int]]) -> Sample:
    nodes, edges = [*map(sum, hop_nodes)], [*map(sum, hop_edges)]
    return Sample(
        cut(out.nodes, nodes),
        cut(out.rows, edges),
        cut(out.cols, edges),
        None if out.edge_ids is None else cut(out.edge_ids, edges),
        hop_nodes,
        hop_edges,
        None if out.trees is None else cut(out.trees, nodes),
    )


def _checked(nodes: Array, name: str, bound: int) -> Array:
    ids = as_numbers(nodes, name)
    bad = _native.first_outside(ids, bound)
    if bad >= 0:
        raise ValueError(f"{name}[{bad}] is {ids[bad]}; expected 0 <= id < {bound}")
    return ids


def _aligned(values: Array | None, name: str, count: int) -> Array | None:
    if values is None:
        return None
    numbers = as_numbers(values, name)
    if len(numbers) != count:
        raise ValueError(f"{name} has {len(numbers)} entries; expected {count}")
    return numbers


def _pairs(excluded: Exclusion, by_tree: bool) -> tuple[Ids, Ids, Ids | None]:
    if (excluded.trees is not None) != by_tree:
        raise ValueError("excluded.trees must be there for disjoint sampling, and only for it")
    nodes = as_ids(excluded.nodes, "excluded.nodes")
    neighbors = as_ids(excluded.neighbors, "excluded.neighbors")
    trees = None if excluded.trees is None else as_ids(excluded.trees, "excluded.trees")
    if {len(neighbors), len(nodes if trees is None else trees)} != {len(nodes)}:
        raise ValueError("excluded has arrays of different lengths")
    return nodes, neighbors, trees
