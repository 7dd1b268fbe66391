"""Draws hops for some nodes of a graph, and puts hops together that were drawn elsewhere.

Together they are k-hop sampling of a graph in parts: whoever has the rows of a node draws for it,
and one assembly names what all of them found. Knows relations by number, and nothing of parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids, as_ids, check_fanout, check_integer, check_word
from penstock.kernels.khop import (
    Buffers,
    Exclusion,
    Sample,
    check_numbers,
    check_trees,
    too_large,
)
from penstock.kernels.reference import Relation as _Rows
from penstock.kernels.topology import Adjacency
from penstock.kernels.twins import hops as _twin


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
    pairs = _pairs(excluded, whose is not None)
    rows = _rows_of(adjacency, weights, times)
    drawn = _twin.draw_hop(
        rows,
        ids,
        fanout,
        key,
        replace=replace,
        last=last,
        trees=whose,
        node_times=until,
        excluded=pairs,
    )
    return Drawn(*drawn)


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
        self._twin = _twin.HopAssembly(
            len(self.num_nodes), self.ends, num_hops=num_hops, node_caps=caps, disjoint=disjoint
        )
        self._stage = 0
        self._result: Sample | None = None

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
            _checked(ids, f"seeds[{type_}]", self.num_nodes[type_])
            for type_, ids in enumerate(seeds)
        ]
        if self.disjoint:
            check_trees(self.num_nodes, sum(map(len, checked)))
        if out is not None and (out.trees is not None) != self.disjoint:
            raise ValueError("out.trees must be there for disjoint sampling, and only for it")
        self._out = out
        self._with_edge_ids = with_edge_ids if out is None else out.edge_ids is not None
        self._twin.begin(checked)
        self._stage, self._hop, self._next = 1, 0, 0

    def frontier(self, type_: int) -> tuple[Ids, Ids | None]:
        """Return the nodes of a type that this hop expands, and their trees if disjoint.

        Seeds that stand for an earlier one are left out.
        """
        self._expect(1)
        return self._twin.frontier(check_integer(type_, "type_", 0, len(self.num_nodes)))

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
        self._expect(1)
        number = check_integer(relation, "relation", self._next, len(self.ends))
        expands, finds = self.ends[number]
        counts, neighbors, edge_ids = drawn
        expected = len(self._twin.frontier(expands)[0])
        if len(counts) != expected:
            raise ValueError(f"counts has {len(counts)} entries; the frontier has {expected} nodes")
        bad = _native.first_outside(counts, 2**31)
        if bad >= 0:
            raise ValueError(f"counts[{bad}] is {counts[bad]}; expected 0 or more")
        if int(counts.sum()) != len(neighbors) or len(edge_ids) != len(neighbors):
            raise ValueError(
                f"counts sum to {int(counts.sum())}; there are {len(neighbors)} neighbors "
                f"and {len(edge_ids)} edge_ids"
            )
        bad = _native.first_outside(neighbors, self.num_nodes[finds])
        if bad >= 0:
            raise GraphFormatError(
                f"neighbors[{bad}] of relation {number} is {neighbors[bad]}; "
                f"expected 0 <= id < {self.num_nodes[finds]}"
            )
        self._twin.take(number, _twin.Drawn(*drawn))
        self._next = number + 1

    def end_hop(self) -> None:
        """End the hop: what was found in it is what the next hop expands."""
        self._expect(1)
        if self._hop == self.num_hops:
            raise ValueError(f"there are only {self.num_hops} hops")
        self._twin.end_hop()
        self._hop, self._next = self._hop + 1, 0

    def finish(self) -> Sample:
        """Return the batch, as `KHop.sample` does.

        Raises:
            BatchTooLarge: `out` is too small; the error says what is needed, and `again` writes the
                batch into larger memory.
        """
        self._expect(1)
        for _ in range(self._hop, self.num_hops):
            self._twin.end_hop()
        made = self._twin.finish()
        self._result = Sample(
            made.nodes,
            made.rows,
            made.cols,
            made.edge_ids if self._with_edge_ids else None,
            made.num_sampled_nodes,
            made.num_sampled_edges,
            made.trees,
        )
        self._stage = 2
        return self._result if self._out is None else self.again(self._out)

    def again(self, out: Buffers) -> Sample:
        """Write the batch that was finished into other memory, and return it."""
        self._expect(2)
        assert self._result is not None
        return _written(self._result, out)

    def _expect(self, stage: int) -> None:
        if self._stage != stage:
            raise RuntimeError(
                "no batch was finished" if stage == 2 else "no batch was begun, or it is finished"
            )


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
    others = as_ids(tails, "tails")
    if (head_trees is None) != (tail_trees is None):
        raise ValueError("head_trees and tail_trees are needed both, or neither")
    whose = _aligned(head_trees, "head_trees", len(ids))
    theirs = _aligned(tail_trees, "tail_trees", len(others))
    return _twin.edges_within(_rows_of(adjacency), ids, others, whose, theirs)


def _written(sample: Sample, out: Buffers) -> Sample:
    out.check()
    nodes, edges = list(map(len, sample.nodes)), list(map(len, sample.rows))
    many = [*sample.nodes, *sample.rows, *sample.cols, *(sample.edge_ids or ())]
    rooms = [*out.nodes, *out.rows, *out.cols, *(out.edge_ids or ())]
    many, rooms = [*many, *(sample.trees or ())], [*rooms, *(out.trees or ())]
    if any(len(array) > len(room) for array, room in zip(many, rooms, strict=True)):
        raise too_large(nodes, edges, out)
    for array, room in zip(many, rooms, strict=True):
        room[: len(array)] = array
    made = [room[: len(array)] for array, room in zip(many, rooms, strict=True)]
    lists = [made[: len(nodes)]]
    for number in range(3):
        first = len(nodes) + number * len(edges)
        lists.append(made[first : first + len(edges)])
    return Sample(
        lists[0],
        lists[1],
        lists[2],
        None if out.edge_ids is None else lists[3],
        sample.num_sampled_nodes,
        sample.num_sampled_edges,
        None if out.trees is None else made[len(made) - len(nodes) :],
    )


def _checked(nodes: Array, name: str, bound: int) -> Ids:
    ids = as_ids(nodes, name)
    bad = _native.first_outside(ids, bound)
    if bad >= 0:
        raise ValueError(f"{name}[{bad}] is {ids[bad]}; expected 0 <= id < {bound}")
    return ids


def _aligned(values: Array | None, name: str, count: int) -> Ids | None:
    if values is None:
        return None
    numbers = as_ids(values, name)
    if len(numbers) != count:
        raise ValueError(f"{name} has {len(numbers)} entries; expected {count}")
    return numbers


def _pairs(excluded: Exclusion | None, by_tree: bool) -> set[tuple[int, int, int]]:
    if excluded is None:
        return set()
    if (excluded.trees is not None) != by_tree:
        raise ValueError("excluded.trees must be there for disjoint sampling, and only for it")
    nodes = as_ids(excluded.nodes, "excluded.nodes")
    neighbors = _aligned(excluded.neighbors, "excluded.neighbors", len(nodes))
    trees = _aligned(excluded.trees, "excluded.trees", len(nodes))
    assert neighbors is not None
    whose = [0] * len(nodes) if trees is None else trees.tolist()
    return set(zip(nodes.tolist(), whose, neighbors.tolist(), strict=True))


def _rows_of(
    adjacency: Adjacency, weights: Array | None = None, times: Array | None = None
) -> _Rows:
    return _Rows(
        adjacency.indptr,
        adjacency.neighbors,
        adjacency.edge_ids,
        (),
        weights=weights,
        times=times,
        owners=None if adjacency.members is None else adjacency.members.ids(),
    )
