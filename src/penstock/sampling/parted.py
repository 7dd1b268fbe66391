"""k-hop neighbourhoods, and edges among nodes, of a graph whose rows are elsewhere.

The classes have the interfaces of the kernels for a graph that is all here (`kernels.KHop`,
`kernels.subgraph.InducedEdges`), and give the same bytes. Every hop is one exchange: whoever has
the rows of the frontier draws, and the answers are put together here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.errors import BatchTooLarge
from penstock.graph.exchange import Draw, Exchange, Within
from penstock.graph.schema import EdgeType
from penstock.kernels import Buffers, Exclusion, KHop, Sample
from penstock.kernels.arrays import Array, Ids, as_ids, check_word
from penstock.kernels.hops import HopAssembly
from penstock.kernels.random import hop_key, name_hash
from penstock.kernels.subgraph import Edges
from penstock.sampling.criteria import Criteria
from penstock.sampling.spec import Direction

_NOTHING: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class PartedRelation:
    """One edge type as a sampler sees it; `Relation` without its rows."""

    name: EdgeType
    fanouts: tuple[int, ...]
    expands: int
    finds: int


class PartedKHop:
    """Samples k hops by asking for each; for one thread at a time. See `kernels.KHop`."""

    def __init__(
        self,
        exchange: Exchange,
        num_nodes: Sequence[int],
        relations: Sequence[PartedRelation],
        *,
        num_hops: int = 0,
        replace: bool = False,
        node_caps: Sequence[int] = (),
        disjoint: bool = False,
        criteria: Criteria,
    ) -> None:
        self._exchange = exchange
        self._relations = list(relations)
        self._hashes = [name_hash(relation.name) for relation in relations]
        self._replace = replace
        self._criteria = criteria
        # It has no relations: it checks seeds, trees and caps as it would for a graph that is here.
        self._checks = KHop(
            num_nodes, [], num_hops=num_hops, node_caps=node_caps, disjoint=disjoint
        )
        self.num_hops = num_hops
        self._disjoint = disjoint
        self._assembly = HopAssembly(
            num_nodes,
            [(relation.expands, relation.finds) for relation in relations],
            num_hops=num_hops,
            node_caps=node_caps,
            disjoint=disjoint,
        )
        # The batch that did not fit, by its key and seeds: it is likely to be asked for again.
        self._kept: tuple[int, list[Ids]] | None = None

    @property
    def num_nodes(self) -> list[int]:
        """The number of nodes of each type."""
        return self._checks.num_nodes

    def check_seeds(self, seeds: Array, type_: int) -> Ids:
        """Return seeds of a node type as int64; `ValueError` for one that is no node of it."""
        return self._checks.check_seeds(seeds, type_)

    def sample(
        self,
        key: int,
        seeds: Sequence[Array],
        out: Buffers | None = None,
        *,
        with_edge_ids: bool = True,
        times: Sequence[Array] | None = None,
        excluded: Sequence[Exclusion] = (),
    ) -> Sample:
        """Sample the batch of this key; for the arguments see `kernels.KHop.sample`."""
        checked = [self.check_seeds(ids, type_) for type_, ids in enumerate(seeds)]
        if out is not None and self._was_kept(key, checked):
            return self._assembly.again(out)
        self._kept = None
        tree_times = self._tree_times(checked, times)
        by_relation = self._excluded(excluded)
        self._assembly.begin(checked, out, with_edge_ids=with_edge_ids)
        for hop in range(self.num_hops):
            self._expand(check_word(key, "key"), hop, tree_times, by_relation)
        try:
            return self._assembly.finish()
        except BatchTooLarge:
            self._kept = key, [np.array(ids) for ids in checked]
            raise

    def _was_kept(self, key: int, seeds: Sequence[Ids]) -> bool:
        kept, self._kept = self._kept, None
        return kept is not None and kept[0] == key and all(map(np.array_equal, kept[1], seeds))

    def _expand(
        self, key: int, hop: int, tree_times: Ids | None, excluded: Sequence[Exclusion | None]
    ) -> None:
        """Draw one hop along all relations, which read the same frontier, and take the answers."""
        assembly = self._assembly
        frontiers = [assembly.frontier(type_) for type_ in range(len(self.num_nodes))]
        asked, draws = [], []
        for number, relation in enumerate(self._relations):
            nodes, trees = frontiers[relation.expands]
            if relation.fanouts[hop] == 0 or len(nodes) == 0:
                continue
            asked.append(number)
            draws.append(
                self._draw(
                    relation,
                    hop_key(key, hop, self._hashes[number]),
                    relation.fanouts[hop],
                    nodes,
                    trees,
                    tree_times,
                    excluded[number],
                )
            )
        if draws:
            for number, drawn in zip(asked, self._exchange.draw(draws), strict=True):
                assembly.take(number, drawn)
        assembly.end_hop()

    def _draw(
        self,
        relation: PartedRelation,
        key: int,
        fanout: int,
        nodes: Ids,
        trees: Ids | None,
        tree_times: Ids | None,
        excluded: Exclusion | None,
    ) -> Draw:
        criteria = self._criteria
        timed = relation.name in criteria.timed
        weighted = relation.name in criteria.weighted and not timed
        return Draw(
            relation.name,
            criteria.direction,
            nodes,
            fanout,
            key,
            self._replace,
            criteria.weight_attr if weighted else None,
            criteria.time_attr if timed else None,
            criteria.of_nodes,
            criteria.last,
            trees,
            tree_times[trees] if timed and tree_times is not None and trees is not None else None,
            excluded,
        )

    def _tree_times(self, seeds: Sequence[Ids], times: Sequence[Array] | None) -> Ids | None:
        """Return the time of every tree; trees are numbered through the types of their seeds."""
        if self._disjoint:
            self._checks.check_trees(sum(map(len, seeds)))
        if times is None:
            if self._criteria.is_temporal:
                raise ValueError("times are missing: a relation is restricted by time")
            return None
        if not self._disjoint:
            raise ValueError("times are for disjoint sampling")
        if list(map(len, times)) != list(map(len, seeds)):
            raise ValueError("times must have one time for every seed")
        return np.concatenate(
            [as_ids(given, f"times[{n}]") for n, given in enumerate(times)] or [_NOTHING]
        )

    def _excluded(self, given: Sequence[Exclusion]) -> list[Exclusion | None]:
        """Return what is excluded of each relation, all of it in one."""
        found: list[Exclusion | None] = [None] * len(self._relations)
        for number in range(len(found)):
            some = [each for each in given if each.relation == number]
            if some:
                trees = [each.trees for each in some if each.trees is not None]
                found[number] = Exclusion(
                    number,
                    np.concatenate([as_ids(each.nodes, "excluded") for each in some]),
                    np.concatenate([as_ids(each.neighbors, "excluded") for each in some]),
                    np.concatenate(trees) if trees else None,
                )
        return found


class PartedInduced:
    """Finds the edges among nodes by asking for them; see `kernels.subgraph.InducedEdges`."""

    def __init__(
        self, exchange: Exchange, direction: Direction, relations: Sequence[PartedRelation]
    ) -> None:
        self._exchange = exchange
        self._direction = direction
        self._relations = list(relations)

    def cut(
        self,
        nodes: Sequence[Array],
        trees: Sequence[Array] | None = None,
        *,
        with_edge_ids: bool = True,
    ) -> list[Edges]:
        """Return all edges among `nodes`, for every relation.

        Raises:
            ValueError: Trees are given: no kind of sampling has an induced batch of trees.
        """
        if trees is not None:
            raise ValueError("trees are given; edges among the nodes of trees are not asked for")
        listed = [as_ids(ids, f"nodes[{type_}]") for type_, ids in enumerate(nodes)]
        firsts = [_first_positions(ids) for ids in listed]
        found = self._exchange.within(
            [
                Within(
                    relation.name,
                    self._direction,
                    listed[relation.expands][firsts[relation.expands]],
                    listed[relation.finds],
                )
                for relation in self._relations
            ]
        )
        return [
            Edges(
                each.positions,
                np.repeat(firsts[relation.expands], each.counts),
                each.edge_ids if with_edge_ids else None,
            )
            for relation, each in zip(self._relations, found, strict=True)
        ]


def _first_positions(ids: Ids) -> Ids:
    """Return where each id comes first, in order."""
    return np.sort(np.unique(ids, return_index=True)[1]).astype(np.int64, copy=False)
