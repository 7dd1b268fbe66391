"""Samples k-hop neighbourhoods: the interface of the sampling kernels.

Checks arguments, allocates memory where the caller gives none, and turns the kernels' results into
errors. Knows relations by number, and nothing about their meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from penstock.errors import BatchTooLarge, GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import (
    Array,
    Ids,
    as_ids,
    check_fanout,
    check_integer,
    check_output,
    check_word,
)
from penstock.kernels.random import name_hash
from penstock.kernels.topology import Adjacency

_TOO_SMALL, _DAMAGED = 1, 2
# Kernels need room in whole chunks: with this much extra, one run is enough.
SPARE = 128
_KEY_BITS = 63  # for a tree and a node together
DAMAGE = "damaged topology: an offset or neighbour points outside the graph; run its validate()"


@dataclass(frozen=True, slots=True)
class Relation:
    """One edge type as a sampler sees it: which node type it expands, and which it finds.

    At most one of `weights` and `times` is given, int64 [E], aligned with the adjacency: running
    sums of integer weights within each row; or times, rising within each row, of which none later
    than the seed's is taken.
    """

    adjacency: Adjacency
    fanouts: tuple[int, ...]
    expands: int = 0
    finds: int = 0
    name: tuple[str, str, str] = ("", "", "")
    weights: Array | None = None
    times: Array | None = None


class Exclusion(msgspec.Struct, frozen=True, eq=False):
    """Edges of a relation, by number, that a batch must not show; plain arrays of one length.

    Of the row of `nodes[i]` all edges to `neighbors[i]` are taken out, before anything is drawn
    from it: in the tree `trees[i]` if sampling is disjoint, else wherever the node is expanded.
    """

    relation: int
    nodes: Ids
    neighbors: Ids
    trees: Ids | None = None


class Buffers(msgspec.Struct, frozen=True, eq=False):
    """Memory for batches: one int64 array per node type, three per relation.

    `edge_ids` is None if they are not wanted; `trees`, one more array per node type, are given if
    and only if sampling is disjoint.
    """

    nodes: list[Ids]
    rows: list[Ids]
    cols: list[Ids]
    edge_ids: list[Ids] | None
    trees: list[Ids] | None = None

    @classmethod
    def allocate(
        cls,
        nodes: Sequence[int],
        edges: Sequence[int],
        *,
        with_edge_ids: bool = True,
        with_trees: bool = False,
    ) -> Buffers:
        return cls(
            _empty(nodes),
            _empty(edges),
            _empty(edges),
            _empty(edges) if with_edge_ids else None,
            _empty(nodes) if with_trees else None,
        )

    def check(self) -> None:
        """Raise an error that names an array to which a kernel cannot write."""
        for name in ("nodes", "rows", "cols", "edge_ids", "trees"):
            for number, array in enumerate(getattr(self, name) or ()):
                check_output(array, f"out.{name}[{number}]")


# Structs, because they are made for every batch, and frozen dataclasses take longer to make.
class Sample(msgspec.Struct, frozen=True, eq=False):
    """A sampled batch: views of the buffers, cut to length.

    `nodes[t]` are global ids, seeds first; `rows[r]` and `cols[r]` are positions in the node lists
    of the types that relation r finds and expands. `num_sampled_nodes[t]` has hops + 1 entries,
    `num_sampled_edges[r]` one per hop. If disjoint, `trees[t]` has the tree of each node, as the
    position of its seed among all seeds of the batch.
    """

    nodes: list[Ids]
    rows: list[Ids]
    cols: list[Ids]
    edge_ids: list[Ids] | None
    num_sampled_nodes: list[list[int]]
    num_sampled_edges: list[list[int]]
    trees: list[Ids] | None = None


class _Start(msgspec.Struct, frozen=True, eq=False):
    """The checked inputs of a batch."""

    key: int
    seeds: list[Ids]
    times: list[Ids] | None
    excluded: list[tuple[int, Ids, Ids, Ids | None]]


class KHop:
    """Samples k hops over relations; for one thread at a time.

    `node_caps[h]` limits how many nodes of a type hop h may add; edges to further nodes are left
    out, in the order in which they would have come. -1 means no limit. `num_hops` is used only
    where there are no relations, whose fan-outs say it.

    With `disjoint` every seed, also a repeated one, has its own tree, and trees share nothing.
    Relations with times require it, and a time for each seed; with `last` the latest edges that are
    not too late are taken, instead of any.
    """

    def __init__(
        self,
        num_nodes: Sequence[int],
        relations: Sequence[Relation],
        *,
        num_hops: int = 0,
        replace: bool = False,
        node_caps: Sequence[int] = (),
        disjoint: bool = False,
        last: bool = False,
    ) -> None:
        hops = {len(relation.fanouts) for relation in relations}
        if len(hops) > 1:
            raise ValueError("Number of hops must be the same across all edge types")
        self.num_nodes = [
            check_integer(n, f"num_nodes[{number}]", 0, 2**63) for number, n in enumerate(num_nodes)
        ]
        self.relations = list(relations)
        self.num_hops = hops.pop() if hops else num_hops
        self.replace = replace
        self.disjoint = disjoint
        self.needs_times = any(relation.times is not None for relation in relations)
        self.node_caps = [
            check_integer(cap, f"node_caps[{hop}]", -1, 2**63) for hop, cap in enumerate(node_caps)
        ]
        self._check_relations()
        # The sizes of the largest batch so far: the guess for the next one.
        self._most_nodes = [0] * len(self.num_nodes)
        self._most_edges = [0] * len(self.relations)
        self._native = _native.KHopSampler(
            self.num_nodes,
            [relation.adjacency.native for relation in relations],
            [relation.expands for relation in relations],
            [relation.finds for relation in relations],
            [name_hash(relation.name) for relation in relations],
            [list(relation.fanouts) for relation in relations],
            self.num_hops,
            replace,
            self.node_caps,
            [relation.weights for relation in relations],
            [relation.times for relation in relations],
            disjoint,
            last,
        )

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
        """Sample the batch of this key into `out`, or into newly allocated memory.

        Args:
            key: The batch's key.
            seeds: The seeds, by node type.
            out: Where to write; None allocates.
            with_edge_ids: Whether edge ids are wanted, if `out` is None.
            times: One time for every seed.
            excluded: Edges that are not to be found.

        Raises:
            BatchTooLarge: `out` is too small; the error says what is needed.
        """
        start = _Start(
            check_word(key, "key"),
            [self.check_seeds(ids, type_) for type_, ids in enumerate(seeds)],
            None if times is None else [as_ids(t, f"times[{n}]") for n, t in enumerate(times)],
            [self._pairs(each, f"excluded[{n}]") for n, each in enumerate(excluded)],
        )
        self._check_start(start)
        if out is not None:
            if (out.trees is not None) != self.disjoint:
                raise ValueError("out.trees must be there for disjoint sampling, and only for it")
            return self._sample_into(start, out)
        try:
            return self._sample_into(start, self._guess(start, with_edge_ids))
        except BatchTooLarge as error:
            self._remember(error.nodes, error.edges)
            return self._sample_into(start, self._guess(start, with_edge_ids))

    def _sample_into(self, start: _Start, out: Buffers) -> Sample:
        try:
            code, hop_nodes, hop_edges = self._native.sample(
                start.key,
                start.seeds,
                out.nodes,
                out.rows,
                out.cols,
                out.edge_ids,
                out.trees,
                start.times,
                start.excluded,
            )
        except (TypeError, ValueError):
            out.check()  # names the array that it refused
            raise
        if code == _DAMAGED:
            raise GraphFormatError(DAMAGE)
        nodes, edges = [sum(hops) for hops in hop_nodes], [sum(hops) for hops in hop_edges]
        if code == _TOO_SMALL:
            raise too_large(nodes, edges, out)
        return Sample(
            cut(out.nodes, nodes),
            cut(out.rows, edges),
            cut(out.cols, edges),
            None if out.edge_ids is None else cut(out.edge_ids, edges),
            hop_nodes,
            hop_edges,
            None if out.trees is None else cut(out.trees, nodes),
        )

    def _remember(self, nodes: list[int], edges: list[int]) -> None:
        self._most_nodes = [max(pair) for pair in zip(self._most_nodes, nodes, strict=True)]
        self._most_edges = [max(pair) for pair in zip(self._most_edges, edges, strict=True)]

    def _guess(self, start: _Start, with_edge_ids: bool) -> Buffers:
        """Return room for the largest batch so far plus some; a larger one needs a second run."""
        nodes = [
            max(len(ids), most + most // 8) + SPARE
            for ids, most in zip(start.seeds, self._most_nodes, strict=True)
        ]
        edges = [most + most // 8 + SPARE for most in self._most_edges]
        return Buffers.allocate(nodes, edges, with_edge_ids=with_edge_ids, with_trees=self.disjoint)

    def check_seeds(self, seeds: Array, type_: int) -> Ids:
        """Return seeds of a node type as int64; `ValueError` for one that is no node of it."""
        ids = as_ids(seeds, f"seeds[{type_}]")
        if type_ < len(self.num_nodes):
            bad = _native.first_outside(ids, self.num_nodes[type_])
            if bad >= 0:
                raise ValueError(
                    f"seeds[{type_}][{bad}] is {ids[bad]}; "
                    f"expected 0 <= id < {self.num_nodes[type_]}"
                )
        return ids

    def _pairs(self, given: Exclusion, name: str) -> tuple[int, Ids, Ids, Ids | None]:
        relation = check_integer(given.relation, f"{name}.relation", 0, len(self.relations))
        nodes, neighbors = as_ids(given.nodes, name), as_ids(given.neighbors, name)
        trees = None if given.trees is None else as_ids(given.trees, name)
        if (trees is not None) != self.disjoint:
            raise ValueError(f"{name}.trees must be there for disjoint sampling, and only for it")
        if {len(neighbors), len(nodes if trees is None else trees)} != {len(nodes)}:
            raise ValueError(f"{name} has arrays of different lengths")
        return relation, nodes, neighbors, trees

    def _check_start(self, start: _Start) -> None:
        if len(start.seeds) != len(self.num_nodes):
            raise ValueError(f"seeds must have one array for each of {len(self.num_nodes)} types")
        if self.disjoint:
            self.check_trees(sum(map(len, start.seeds)))
        if start.times is None:
            if self.needs_times:
                raise ValueError("times are missing: a relation is restricted by time")
            return
        if not self.disjoint:
            raise ValueError("times are for disjoint sampling")
        if list(map(len, start.times)) != list(map(len, start.seeds)):
            raise ValueError("times must have one time for every seed")

    def check_trees(self, num_trees: int) -> None:
        """Check that a tree and a node fit one word of 63 bits."""
        check_trees(self.num_nodes, num_trees)

    def _check_relations(self) -> None:
        if self.needs_times and not self.disjoint:
            raise ValueError("a relation with times needs disjoint sampling")
        for number, relation in enumerate(self.relations):
            check_numbers(relation.adjacency, relation.weights, relation.times, number)
            for hop, fanout in enumerate(relation.fanouts):
                check_fanout(fanout, f"fan-out of relation {number} at hop {hop}")
            for side in (relation.expands, relation.finds):
                if not 0 <= side < len(self.num_nodes):
                    raise ValueError(
                        f"relation {number} names node type {side}, which is not there"
                    )


class Relabeler:
    """Maps global ids to positions in a list that grows: the second half of a hop."""

    def __init__(self) -> None:
        self._native = _native.Relabeler()

    def __len__(self) -> int:
        return self._native.size

    def clear(self) -> None:
        """Empty the list, but keep its memory."""
        self._native.clear()

    def add_seeds(self, seeds: Array) -> None:
        """Append seeds; a repeated one has two positions, and is found at the first."""
        self._native.add_seeds(as_ids(seeds, "seeds"))

    def relabel(self, ids: Array) -> Ids:
        """Return the position of every id; new ids are appended in order."""
        checked = as_ids(ids, "ids")
        out = np.empty(len(checked), np.int64)
        self._native.relabel(checked, out)
        return out

    def nodes(self, start: int = 0) -> Ids:
        """Return the list from `start` on."""
        out = np.empty(max(len(self) - start, 0), np.int64)
        self._native.copy_nodes(start, out)
        return out


def check_numbers(
    adjacency: Adjacency, weights: Array | None, times: Array | None, relation: int
) -> None:
    """Check that weights, or times, of a relation are as a kernel needs them: one per entry."""
    if weights is not None and times is not None:
        raise ValueError(f"relation {relation} has weights and times; it can have one of them")
    for name, array in (("weights", weights), ("times", times)):
        if array is None:
            continue
        expected = (adjacency.num_edges,)
        if array.dtype != np.int64 or array.shape != expected:
            raise ValueError(
                f"{name} of relation {relation} must be int64 {list(expected)}, "
                f"not {array.dtype} {list(array.shape)}"
            )
        if not (array.flags.c_contiguous and array.flags.aligned):
            raise ValueError(f"{name} of relation {relation} must be contiguous and aligned")


def check_trees(num_nodes: Sequence[int], num_trees: int) -> None:
    """Check that a tree and a node fit one word of 63 bits."""
    for type_, count in enumerate(num_nodes):
        bits = max(count - 1, 0).bit_length() + max(num_trees - 1, 0).bit_length()
        if bits > _KEY_BITS:
            raise ValueError(
                f"there are {count} nodes of type {type_}: too many to sample disjointly "
                f"from {num_trees} seeds at once"
            )


def too_large(nodes: list[int], edges: list[int], out: Buffers) -> BatchTooLarge:
    """Return the error for a batch that does not fit `out`."""
    rooms = {
        "out.nodes": out.nodes,
        "out.rows": out.rows,
        "out.cols": out.cols,
        "out.edge_ids": out.edge_ids or out.rows,
    }
    if out.trees is not None:
        rooms["out.trees"] = out.trees
    return BatchTooLarge.for_lists(
        {"nodes": nodes, "edges": edges},
        {name: [len(array) for array in arrays] for name, arrays in rooms.items()},
    )


def _empty(lengths: Sequence[int]) -> list[Ids]:
    return [np.empty(length, np.int64) for length in lengths]


def cut(arrays: list[Ids], lengths: list[int]) -> list[Ids]:
    """Return each array up to its length."""
    return [array[:length] for array, length in zip(arrays, lengths, strict=True)]
