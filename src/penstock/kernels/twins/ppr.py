"""Forward push in plain Python: the same additions in the same order, so the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.kernels.arrays import Array, Ids
from penstock.kernels.reference import Relabeler, choose, hop_key, name_hash, node_key

PUSH_WORD = 0x7070720000000001


@dataclass(frozen=True, slots=True)
class Relation:
    """An edge type with its rows as plain arrays."""

    indptr: Array
    neighbors: Array
    edge_ids: Array
    expands: int = 0
    finds: int = 0
    name: tuple[str, str, str] = ("", "", "")
    excluded: frozenset[tuple[int, int]] = frozenset()  # (node, neighbour)

    def degree(self, node: int) -> int:
        return int(self.indptr[node + 1]) - int(self.indptr[node])

    def left(self, node: int) -> Ids:
        """Return the positions in a node's row that are not excluded."""
        row = np.arange(self.indptr[node], self.indptr[node + 1], dtype=np.int64)
        kept = [(node, int(self.neighbors[at])) not in self.excluded for at in row]
        return np.asarray(row[np.array(kept, np.bool_)], np.int64)

    def picks(self, node: int, most: int, key: int) -> Ids:
        """Return the positions of the neighbours that are read."""
        hop = hop_key(key, PUSH_WORD, name_hash(self.name))
        left = self.left(node)
        return np.asarray(left[choose(len(left), most, False, node_key(hop, node))], np.int64)


@dataclass(frozen=True, slots=True)
class PPRChannel:
    """The relations it follows, by number, and how many nodes of each type it may claim."""

    relations: tuple[int, ...]
    share: int


@dataclass(frozen=True, slots=True)
class PPROptions:
    alpha: float = 0.5
    eps: float = 1e-4
    max_ppr_nodes: int = 50
    num_neighbors_per_hop: int = 1000
    max_fetch_iterations: int | None = None
    residual_topup: bool = True
    channels: tuple[PPRChannel, ...] = ()
    with_edges: bool = False


@dataclass(slots=True)
class Reached:
    """A node that a push has reached."""

    type: int
    node: int
    threshold: float
    hop: int
    found: int
    residual: float = 0.0
    score: float = 0.0
    is_noticed: bool = False
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Gift:
    """What each neighbour of a node gets in a round, and its hops from the seed."""

    giver: Reached
    share: float
    hop: int


@dataclass(frozen=True, slots=True)
class Sample:
    nodes: list[Ids]
    edge_index: list[Ids]
    edge_attr: list[npt.NDArray[np.float32]]
    edges: list[tuple[Ids, Ids]] | None


@dataclass(slots=True)
class Push:
    """The push of one seed along the relations of one channel."""

    relations: Sequence[Relation]
    followed: Sequence[int]
    options: PPROptions
    key: int
    reached: dict[tuple[int, int], Reached] = field(default_factory=dict)

    def run(self, seed_type: int, seed: int) -> None:
        first = self.reach(seed_type, seed, 0)
        first.residual = self.options.alpha
        queue, openings = [first], 0
        while queue:
            limit = self.options.max_fetch_iterations
            gifts, has_opened = self.take(queue, limit is None or openings < limit)
            openings += has_opened
            queue = self.spread(gifts)
        for each in self.reached.values():
            if math.isinf(each.threshold):
                each.score += each.residual
                each.residual = 0.0

    def reach(self, type_: int, node: int, hop: int) -> Reached:
        """Return the node's entry, made at first use."""
        if (type_, node) not in self.reached:
            degree = sum(r.degree(node) for r in self.relations if r.expands == type_)
            bears = self.least * float(degree) if degree else math.inf
            self.reached[type_, node] = Reached(type_, node, bears, hop, len(self.reached))
        return self.reached[type_, node]

    def take(self, queue: list[Reached], may_open: bool) -> tuple[list[Gift], bool]:
        """Empty the residuals of all queued nodes; return what each neighbour is to get."""
        gifts, has_opened = [], False
        for each in queue:
            residual, each.residual = each.residual, 0.0
            each.score += residual
            leaving = [r for r in self.followed if self.relations[r].expands == each.type]
            if not leaving or not (each.is_open or may_open):
                continue
            has_opened |= not each.is_open
            each.is_open = True
            most = self.options.num_neighbors_per_hop
            total = sum(min(len(self.relations[r].left(each.node)), most) for r in leaving)
            if total:
                keep = 1.0 - self.options.alpha
                gifts.append(Gift(each, keep * residual / float(total), each.hop + 1))
        return gifts, has_opened

    def spread(self, gifts: list[Gift]) -> list[Reached]:
        """Distribute relation by relation, node by node, edge by edge; return the next queue."""
        noticed: list[Reached] = []
        for number in sorted(self.followed):
            relation = self.relations[number]
            for gift in gifts:
                if relation.expands != gift.giver.type:
                    continue
                at = relation.picks(gift.giver.node, self.options.num_neighbors_per_hop, self.key)
                for neighbor in relation.neighbors[at].tolist():
                    each = self.reach(relation.finds, neighbor, gift.hop)
                    each.residual += gift.share
                    each.hop = min(each.hop, gift.hop)
                    if not each.is_noticed and each.residual >= self.least:
                        each.is_noticed = True
                        noticed.append(each)
        for each in noticed:
            each.is_noticed = False
        return [each for each in noticed if each.residual >= each.threshold]

    @property
    def least(self) -> float:
        """The threshold of a node with one edge: nodes are queued in the order they reach it."""
        return self.options.alpha * self.options.eps

    def best(self, type_: int) -> list[tuple[float, Reached]]:
        """Return the nodes of a type that are taken, the best first."""
        options, most = self.options, self.options.max_ppr_nodes
        here = [each for each in self.reached.values() if each.type == type_]
        scored = ranked([(each.score, each) for each in here if each.score > 0.0])[:most]
        if not options.residual_topup:
            return scored
        scored = [(score + each.residual, each) for score, each in scored]
        rest = [(each.residual, each) for each in here if each.score == 0.0 < each.residual]
        return ranked(scored + ranked(rest)[: most - len(scored)])


def ranked(pairs: list[tuple[float, Reached]]) -> list[tuple[float, Reached]]:
    """Sort by score, highest first; equal scores by the order of discovery."""
    return sorted(pairs, key=lambda pair: (-pair[0], pair[1].found))


def mixed(
    lists: list[list[tuple[float, Reached]]], channels: Sequence[PPRChannel], most: int
) -> list[tuple[int, list[float]]]:
    """Merge the lists of all channels: return nodes, and the attributes of each."""
    by_node: dict[int, dict[int, tuple[float, Reached]]] = {}
    for number, pairs in enumerate(lists):
        for score, each in pairs:
            by_node.setdefault(each.node, {})[number] = (score, each)
    candidates = []
    for node, said in by_node.items():
        owner = min(said, key=lambda number: (-said[number][0], number))
        score, each = said[owner]
        candidates.append((-score, owner, each.found, node))
    candidates.sort()
    chosen: set[int] = set()
    room = [channel.share for channel in channels]
    for _, owner, _, node in candidates:
        if room[owner]:
            room[owner] -= 1
            chosen.add(node)
    for _, _, _, node in candidates:
        if len(chosen) < most:
            chosen.add(node)
    order = [node for _, _, _, node in candidates if node in chosen]
    return [(node, described(by_node[node], len(channels))) for node in order]


def described(said: dict[int, tuple[float, Reached]], channels: int) -> list[float]:
    row = [
        max(score for score, _ in said.values()),
        closeness(min(each.hop for _, each in said.values())),
    ]
    for number in range(channels):
        if number in said:
            score, each = said[number]
            row += [score, closeness(each.hop), 1.0]
        else:
            row += [0.0, 0.0, 0.0]
    return row


def closeness(hop: int) -> float:
    return 1.0 / (1.0 + float(hop))


def ppr(
    num_types: int,
    relations: Sequence[Relation],
    options: PPROptions,
    seeds: Array,
    key: int,
    seed_type: int = 0,
) -> Sample:
    """Return a batch: push from each seed by itself, then relabel what was found."""
    channels = options.channels or (
        PPRChannel(tuple(range(len(relations))), options.max_ppr_nodes),
    )
    lists = [Relabeler() for _ in range(num_types)]
    lists[seed_type].add_seeds(seeds)
    links: list[list[tuple[int, int]]] = [[] for _ in range(num_types)]
    attributes: list[list[list[float]]] = [[] for _ in range(num_types)]
    opened: set[tuple[int, int, int]] = set()
    for place, seed in enumerate(np.asarray(seeds).tolist()):
        pushes = [Push(relations, channel.relations, options, key) for channel in channels]
        for push in pushes:
            push.run(seed_type, seed)
            opened |= {
                (number, each.type, each.node)
                for number in push.followed
                for each in push.reached.values()
                if each.is_open and relations[number].expands == each.type
            }
        for type_ in range(num_types):
            for node, row in taken(pushes, options, type_):
                links[type_].append((place, lists[type_].relabel(np.array([node]))[0]))
                attributes[type_].append(row)
    width = 2 + 3 * len(options.channels)
    return Sample(
        [np.array(list_.nodes, np.int64) for list_ in lists],
        [np.array(pairs, np.int64).reshape(-1, 2).T.copy() for pairs in links],
        [np.array(rows, np.float64).reshape(-1, width).astype(np.float32) for rows in attributes],
        looked_at(relations, options, key, lists, opened) if options.with_edges else None,
    )


def taken(pushes: list[Push], options: PPROptions, type_: int) -> list[tuple[int, list[float]]]:
    """Return the nodes of a type that are relevant to a seed, and the attributes of each."""
    lists = [push.best(type_) for push in pushes]
    if options.channels:
        return mixed(lists, options.channels, options.max_ppr_nodes)
    return [(each.node, [score, closeness(each.hop)]) for score, each in lists[0]]


def looked_at(
    relations: Sequence[Relation],
    options: PPROptions,
    key: int,
    lists: list[Relabeler],
    opened: set[tuple[int, int, int]],
) -> list[tuple[Ids, Ids]]:
    """Return the edges of opened rows with both ends in the batch."""
    found = []
    for number, relation in enumerate(relations):
        edges = []
        expanding = lists[relation.expands]
        for place, node in enumerate(expanding.nodes):
            if expanding.places[node] != place:  # only the first of equal seeds counts
                continue
            if (number, relation.expands, node) not in opened:
                continue
            for at in relation.picks(node, options.num_neighbors_per_hop, key).tolist():
                other = lists[relation.finds].places.get(int(relation.neighbors[at]))
                if other is not None:
                    edges.append((other, place, int(relation.edge_ids[at])))
        table = np.array(edges, np.int64).reshape(-1, 3)
        found.append((table[:, :2].T.copy(), table[:, 2].copy()))
    return found
