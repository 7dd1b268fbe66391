"""Hops whose edges are drawn in one place and put together in another, in plain Python."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from penstock.kernels.arrays import Array, Ids
from penstock.kernels.reference import Relabeler, Relation, Sample, as_sample, with_seeds


class Drawn(NamedTuple):
    """What nodes give in one hop."""

    counts: Array
    neighbors: Array
    edge_ids: Array


def draw_hop(
    relation: Relation,
    nodes: Array,
    fanout: int,
    key: int,
    *,
    replace: bool = False,
    last: bool = False,
    trees: Array | None = None,
    node_times: Array | None = None,
    excluded: Container[tuple[int, int, int]] = (),
) -> Drawn:
    """Draw for nodes one by one; `excluded` has (node, tree or 0, neighbour)."""
    picks = [np.empty(0, np.int64)]
    for place, node in enumerate(np.asarray(nodes).tolist()):
        tree = None if trees is None else int(trees[place])
        begin, end = relation.row(node)
        cut = {
            n for n in relation.neighbors[begin:end].tolist() if (node, tree or 0, n) in excluded
        }
        word = 0 if tree is None else tree + 1
        time = 0 if node_times is None else int(node_times[place])
        picks.append(relation.picks(node, fanout, replace, key, word, time, last, cut))
    flat = np.concatenate(picks)
    counts = np.array([len(part) for part in picks[1:]], np.int32)
    dtype = relation.neighbors.dtype
    return Drawn(counts, relation.neighbors[flat], relation.edge_ids[flat].astype(dtype))


class HopAssembly:
    """A batch that grows hop by hop, by edges that were drawn elsewhere."""

    def __init__(
        self,
        num_types: int,
        ends: Sequence[tuple[int, int]],
        *,
        num_hops: int,
        node_caps: Sequence[int] = (),
        disjoint: bool = False,
    ) -> None:
        self._num_types = num_types
        self._ends = list(ends)
        self._num_hops = num_hops
        self._caps = list(node_caps)
        self._disjoint = disjoint

    def begin(self, seeds: Sequence[Array]) -> None:
        self._lists = with_seeds(self._num_types, seeds, self._disjoint)
        self._edges: list[list[tuple[int, int, int]]] = [[] for _ in self._ends]
        self._starts = [[0, len(list_.nodes)] for list_ in self._lists]
        self._hop_edges = [[0] * self._num_hops for _ in self._ends]
        self._hop = 0

    def frontier(self, type_: int) -> tuple[Ids, Ids | None]:
        list_ = self._lists[type_]
        places = self._places(type_)
        ids = np.array([list_.nodes[place] for place in places], np.int64)
        if not self._disjoint:
            return ids, None
        return ids, np.array([list_.trees[place] for place in places], np.int64)

    def take(self, relation: int, drawn: Drawn) -> None:
        expands, finds = self._ends[relation]
        list_, found = self._lists[expands], self._lists[finds]
        before, edges = len(self._edges[relation]), self._edges[relation]
        cap = self._caps[self._hop] if self._hop < len(self._caps) else -1
        most = self._starts[finds][-1] + cap
        owners = np.repeat(self._places(expands), drawn.counts).tolist()
        picked = zip(owners, drawn.neighbors.tolist(), drawn.edge_ids.tolist(), strict=True)
        for place, neighbor, edge_id in picked:
            tree = list_.trees[place] if self._disjoint else None
            at = found.place(neighbor, cap < 0 or len(found.nodes) < most, tree)
            if at is not None:
                edges.append((at, place, edge_id))
        self._hop_edges[relation][self._hop] = len(edges) - before

    def end_hop(self) -> None:
        for starts, list_ in zip(self._starts, self._lists, strict=True):
            starts.append(len(list_.nodes))
        self._hop += 1

    def finish(self) -> Sample:
        hop_nodes = [[end - begin for begin, end in pairwise(starts)] for starts in self._starts]
        return as_sample(self._lists, self._edges, hop_nodes, self._hop_edges, self._disjoint)

    def _places(self, type_: int) -> list[int]:
        """Return the positions that this hop expands: not those that stand for an earlier one."""
        list_ = self._lists[type_]
        places = range(*self._starts[type_][-2:])
        return [place for place in places if _is_first(list_, place, self._disjoint)]


def edges_within(
    relation: Relation,
    heads: Array,
    tails: Array,
    head_trees: Array | None = None,
    tail_trees: Array | None = None,
) -> tuple[Ids, Ids, Ids]:
    """Return how many edges each head has into `tails`, to which positions, and their ids."""
    first: dict[tuple[int, int], int] = {}
    for place, tail in enumerate(_keys(tails, tail_trees)):
        first.setdefault(tail, place)
    found: list[tuple[int, int]] = []
    counts, seen = [], set()
    for node, tree in _keys(heads, head_trees):
        before = len(found)
        for at in range(*relation.row(node)) if (node, tree) not in seen else ():
            tail = (int(relation.neighbors[at]), tree)
            if tail in first:
                found.append((first[tail], int(relation.edge_ids[at])))
        seen.add((node, tree))
        counts.append(len(found) - before)
    table = np.array(found, np.int64).reshape(-1, 2)
    return np.array(counts, np.int32), table[:, 0].copy(), table[:, 1].copy()


def _keys(nodes: Array, trees: Array | None) -> list[tuple[int, int]]:
    whose = np.zeros(len(nodes), np.int64) if trees is None else trees
    return list(zip(np.asarray(nodes).tolist(), np.asarray(whose).tolist(), strict=True))


def _is_first(list_: Relabeler, place: int, disjoint: bool) -> bool:
    node = list_.nodes[place]
    return list_.places[(list_.trees[place], node) if disjoint else node] == place
