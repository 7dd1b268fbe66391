"""The most relevant nodes of a seed by personalised PageRank: the interface of forward push.

Checks arguments, and turns the kernel's results into arrays and errors. Knows relations and node
types by number, and nothing about their meaning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import MOST_NEIGHBORS, Array, Ids, as_ids, check_integer, check_word
from penstock.kernels.khop import Exclusion
from penstock.kernels.random import name_hash
from penstock.kernels.topology import Adjacency

_DAMAGED: Final = 2
_DAMAGE: Final = (
    "damaged topology: an offset or neighbour points outside the graph; run its validate()"
)
# Outside these bounds residuals do not shrink, because of rounding, or hardly shrink, and pushing
# would not end.
LEAST_ALPHA: Final = 1e-3
LEAST_EPS, MOST_EPS = 1e-15, 1e15
MOST_NODES: Final = 2**40
COLUMNS: Final = 2
CHANNEL_COLUMNS: Final = 3


@dataclass(frozen=True, slots=True)
class PushRelation:
    """One edge type: residuals go from nodes of type `expands` to nodes of type `finds`.

    `sizes` are those of its rows (`degree_sizes`); computed if they are not given.
    """

    adjacency: Adjacency
    expands: int = 0
    finds: int = 0
    name: tuple[str, str, str] = ("", "", "")
    sizes: Array | None = None


@dataclass(frozen=True, slots=True)
class PushChannel:
    """A separate walk along some relations (by number), and how many nodes it may claim."""

    relations: tuple[int, ...]
    share: int


@dataclass(frozen=True, slots=True)
class PushOptions:
    """How far residuals are pushed, and how many of the reached nodes are taken.

    `max_fetch_iterations` (None: no limit) counts the rounds that may read rows not read before.
    Without `channels` there is one walk along all relations.
    """

    alpha: float = 0.5
    eps: float = 1e-4
    max_ppr_nodes: int = 50
    num_neighbors_per_hop: int = 1000
    max_fetch_iterations: int | None = None
    residual_topup: bool = True
    channels: tuple[PushChannel, ...] = ()
    with_edges: bool = False

    def check(self, num_relations: int) -> None:
        """Raise an error that names an option that makes no sense."""
        check_number(self.alpha, "alpha", LEAST_ALPHA, 1.0)
        check_number(self.eps, "eps", LEAST_EPS, MOST_EPS)
        check_integer(self.max_ppr_nodes, "max_ppr_nodes", 0, MOST_NODES)
        check_integer(self.num_neighbors_per_hop, "num_neighbors_per_hop", 1, MOST_NEIGHBORS + 1)
        if self.max_fetch_iterations is not None:
            check_integer(self.max_fetch_iterations, "max_fetch_iterations", 0, 2**62)
        for number, channel in enumerate(self.channels):
            check_integer(channel.share, f"channels[{number}].share", 0, MOST_NODES)
            if len(set(channel.relations)) != len(channel.relations):
                raise ValueError(f"channels[{number}] names a relation twice")
            for relation in channel.relations:
                check_integer(relation, f"channels[{number}].relations", 0, num_relations)
        shares = sum(channel.share for channel in self.channels)
        if self.channels and shares != self.max_ppr_nodes:
            raise ValueError(
                f"the shares of the channels sum to {shares}; "
                f"expected max_ppr_nodes, {self.max_ppr_nodes}"
            )

    @property
    def width(self) -> int:
        """The number of columns of a node's attributes."""
        return COLUMNS + CHANNEL_COLUMNS * len(self.channels)


@dataclass(frozen=True, slots=True)
class PushedEdges:
    """Edges of one relation: positions of neighbours above those of the expanded nodes."""

    edge_index: Ids
    edge_ids: Ids


@dataclass(frozen=True, slots=True)
class PushSample:
    """One batch. `nodes[t]` are global ids; for the seeds' type, the seeds come first.

    `edge_index[t]` is [2, E]: the position of a seed among the seeds, above the position in
    `nodes[t]` of a node relevant to it; seed by seed, the most relevant first. `edge_attr[t]` has a
    row for each. `edges` are the edges that were read, by relation, where both ends are in the
    batch.
    """

    nodes: list[Ids]
    edge_index: list[Ids]
    edge_attr: list[npt.NDArray[np.float32]]
    edges: list[PushedEdges] | None


@dataclass(frozen=True, slots=True)
class PushRecord:
    """Rows along which residuals were pushed, in order.

    For each row: where it begins among the edges, its number of edges, and the share that each
    neighbour got. If only some edges of a row were chosen, each is a row of one edge.
    """

    begins: Ids
    counts: Ids
    shares: npt.NDArray[np.float64]


class Push:
    """Forward push from seeds of one type at a time; for one thread at a time."""

    def __init__(
        self,
        num_nodes: Sequence[int],
        relations: Sequence[PushRelation],
        options: PushOptions,
    ) -> None:
        self.num_nodes = [
            check_integer(n, f"num_nodes[{number}]", 0, 2**62) for number, n in enumerate(num_nodes)
        ]
        self.relations = list(relations)
        self.options = options
        options.check(len(self.relations))
        channels = options.channels or (
            PushChannel(tuple(range(len(self.relations))), options.max_ppr_nodes),
        )
        limit = options.max_fetch_iterations
        self._native = _native.PPRSampler(
            self.num_nodes,
            [relation.adjacency.native for relation in self.relations],
            [_sizes_of(relation) for relation in self.relations],
            [relation.expands for relation in self.relations],
            [relation.finds for relation in self.relations],
            [name_hash(relation.name) for relation in self.relations],
            [list(channel.relations) for channel in channels],
            [channel.share for channel in channels],
            options.alpha,
            options.eps,
            [options.max_ppr_nodes, options.num_neighbors_per_hop, -1 if limit is None else limit],
            bool(options.channels),
            options.residual_topup,
            options.with_edges,
        )

    @property
    def pushes(self) -> int:
        """How many residuals have been pushed along an edge so far: a measure of the work."""
        return self._native.pushes

    def record(self, key: int, seeds: Array) -> PushRecord:
        """Return what the same pushes distribute, in order; for a single relation."""
        code, begins, counts, shares = self._native.record(
            check_word(key, "key"), 0, as_ids(seeds, "seeds").tolist()
        )
        if code == _DAMAGED:
            raise GraphFormatError(_DAMAGE)
        return PushRecord(
            np.array(begins, np.int64), np.array(counts, np.int64), np.array(shares, np.float64)
        )

    def sample(
        self,
        key: int,
        seeds: Array,
        seed_type: int = 0,
        excluded: Sequence[Exclusion] = (),
    ) -> PushSample:
        """Return the batch of this key with these seeds.

        `key` only decides which neighbours are read of nodes that have more than
        `num_neighbors_per_hop`. `excluded` edges pass nothing on; a node's threshold counts them.
        """
        key = check_word(key, "key")
        seed_type = check_integer(seed_type, "seed_type", 0, len(self.num_nodes))
        ids = as_ids(seeds, "seeds")
        bad = _native.first_outside(ids, self.num_nodes[seed_type])
        if bad >= 0:
            raise ValueError(
                f"seeds[{bad}] is {ids[bad]}; expected 0 <= id < {self.num_nodes[seed_type]}"
            )
        pairs = [self._pairs(each, f"excluded[{n}]") for n, each in enumerate(excluded)]
        code, nodes, links, edges = self._native.sample(key, seed_type, ids, pairs)
        if code == _DAMAGED:
            raise GraphFormatError(_DAMAGE)
        index, attr = self._links(links)
        return PushSample(
            [self._nodes(type_, count) for type_, count in enumerate(nodes)],
            index,
            attr,
            self._edges(edges) if self.options.with_edges else None,
        )

    def _pairs(self, given: Exclusion, name: str) -> tuple[int, Ids, Ids]:
        relation = check_integer(given.relation, f"{name}.relation", 0, len(self.relations))
        nodes, neighbors = as_ids(given.nodes, name), as_ids(given.neighbors, name)
        if len(nodes) != len(neighbors) or given.trees is not None:
            raise ValueError(f"{name} needs nodes and neighbors of one length, and no trees")
        return relation, nodes, neighbors

    def _nodes(self, type_: int, count: int) -> Ids:
        out = np.empty(count, np.int64)
        self._native.copy_nodes(type_, out)
        return out

    def _links(self, counts: list[int]) -> tuple[list[Ids], list[npt.NDArray[np.float32]]]:
        index = [np.empty((2, count), np.int64) for count in counts]
        attr = [np.empty((count, self.options.width), np.float32) for count in counts]
        for type_ in range(len(counts)):
            self._native.copy_links(type_, index[type_], attr[type_])
        return index, attr

    def _edges(self, counts: list[int]) -> list[PushedEdges]:
        edges = [
            PushedEdges(np.empty((2, count), np.int64), np.empty(count, np.int64))
            for count in counts
        ]
        for relation, each in enumerate(edges):
            self._native.copy_edges(relation, each.edge_index, each.edge_ids)
        return edges


def degree_sizes(adjacency: Adjacency, out: npt.NDArray[np.uint8]) -> None:
    """Write the bit length of every node's degree; 255 if its row is outside the graph.

    Where rows are fetched, 254 is written for all: the row of every node that is reached will be
    read. Sizes that the caller knows spare most of that.
    """
    _native.degree_sizes(adjacency.native, out)


def _sizes_of(relation: PushRelation) -> Array:
    if relation.sizes is not None:
        return relation.sizes
    sizes = np.empty(relation.adjacency.num_nodes, np.uint8)
    degree_sizes(relation.adjacency, sizes)
    return sizes


def check_number(value: Any, name: str, low: float, high: float) -> float:
    """Return `value` as a float with low <= value <= high."""
    is_number = isinstance(value, (int, float, np.floating)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}; expected a number, {low} <= {name} <= {high}")
    return float(value)
