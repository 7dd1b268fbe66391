"""The kernels in plain NumPy: slow, simple, and with the same bytes as the native ones.

This is the oracle that the native code is tested against, and an executable specification. It
shares no code with the native module.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.kernels.arrays import Array, Ids

Words = npt.NDArray[np.uint64]

WORD = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15
SAMPLE_DOMAIN = 0x73616D706C650001
PERMUTE_DOMAIN = 0x7065726D75740001
DIGEST_DOMAIN = 0x6469676573740001
NAME_DOMAIN = 0x6E616D6500000001
DIGEST_FACTOR = 0x9FB21C651E98DF25
FEISTEL_ROUNDS, FEISTEL_ROUNDS_FOR_FEW_BITS, FEW_BITS = 12, 32, 8

# --- random numbers -------------------------------------------------------------------------------


def mix(words: Words | int) -> Words:
    """Mix the bits of 64-bit words; a bijection."""
    z = np.atleast_1d(np.asarray(words, np.uint64))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def fold(key: int, word: int) -> int:
    """Fold one more word into a key."""
    return int(mix(key ^ int(mix((word + GAMMA) & WORD)[0]))[0])


def batch_key(seed: int, epoch: int, index: int) -> int:
    return fold(fold(fold(SAMPLE_DOMAIN, seed), epoch), index)


def hop_key(batch_key: int, hop: int, edge_type_hash: int) -> int:
    return fold(fold(batch_key, hop), edge_type_hash)


def node_key(hop_key: int, node: int, tree: int = 0) -> int:
    return fold(fold(hop_key, node), tree)


def name_hash(parts: Sequence[str]) -> int:
    data = "\0".join(parts).encode()
    word = fold(NAME_DOMAIN, len(data))
    for start in range(0, len(data), 8):
        word = fold(word, int.from_bytes(data[start : start + 8], "little"))
    return word


def draws(key: int, count: int) -> Words:
    """Return the first `count` draws of a key."""
    steps: Words = np.arange(count, dtype=np.uint64)
    return mix(np.uint64(key) + steps * np.uint64(GAMMA))


def multiply_high(words: Words, factors: Words) -> Words:
    """Return the upper 64 bits of the 128-bit products, computed from 32-bit halves."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    low, high = words & mask, words >> half
    factor_low, factor_high = factors & mask, factors >> half
    middle = high * factor_low + ((low * factor_low) >> half)
    other = low * factor_high + (middle & mask)
    product: Words = high * factor_high + (middle >> half) + (other >> half)
    return product


def bounded(words: Words, bounds: Words | int) -> Ids:
    """Scale draws to [0, bound)."""
    factors = np.broadcast_to(np.asarray(bounds, np.uint64), words.shape)
    return multiply_high(words, factors).astype(np.int64)


def permutation(seed: int, epoch: int, size: int, start: int = 0, stop: int | None = None) -> Ids:
    """Apply a Feistel network over the next power of two until the result is below `size`."""
    bits = (size - 1).bit_length() if size > 1 else 0
    right_bits = (bits + 1) // 2
    left_mask = np.uint64((1 << (bits - right_bits)) - 1)
    right_mask = np.uint64((1 << right_bits) - 1)
    rounds = FEISTEL_ROUNDS_FOR_FEW_BITS if bits <= FEW_BITS else FEISTEL_ROUNDS
    keys = draws(fold(fold(fold(PERMUTE_DOMAIN, seed), epoch), size), rounds)
    places = np.arange(start, size if stop is None else stop, dtype=np.uint64)
    outside = np.ones(len(places), bool)
    while outside.any():
        left, right = places[outside] >> np.uint64(right_bits), places[outside] & right_mask
        for even, odd in zip(keys[::2], keys[1::2], strict=True):
            left = left ^ (mix(even ^ right) & left_mask)
            right = right ^ (mix(odd ^ left) & right_mask)
        places[outside] = (left << np.uint64(right_bits)) | right
        outside = places >= np.uint64(size)
    return places.astype(np.int64)


# --- building ---------------------------------------------------------------------------------


def first_outside(ids: Array, bound: int) -> int:
    bad = np.flatnonzero((ids < 0) | (ids >= bound))
    return int(bad[0]) if len(bad) else -1


def is_sorted(ids: Array) -> bool:
    return bool(np.all(ids[:-1] <= ids[1:]))


def fill_adjacency(keys: Array, values: Array, indptr: Array, adjacency: Array) -> None:
    order = np.argsort(keys, kind="stable")
    indptr[0] = 0
    np.cumsum(np.bincount(keys, minlength=len(indptr) - 1), out=indptr[1:])
    if adjacency.ndim == 1:
        adjacency[:] = values[order]
    else:
        adjacency[:, 0] = values[order]
        adjacency[:, 1] = order


def transpose(indptr: Array, adjacency: Array, out_indptr: Array, out_adjacency: Array) -> None:
    owners = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    if adjacency.ndim == 1:
        neighbors, by_edge = adjacency, np.arange(len(adjacency))
    else:
        neighbors, by_edge = adjacency[:, 0], np.argsort(adjacency[:, 1], kind="stable")
    fill_adjacency(neighbors[by_edge], owners[by_edge], out_indptr, out_adjacency)


def digest(array: Array) -> bytes:
    """Digest in eight lanes: multiply each word in and fold the halves of the product together."""
    data = np.ascontiguousarray(array).tobytes()
    stripes = np.frombuffer(data + bytes(-len(data) % 64), "<u8").reshape(-1, 8)
    lanes = np.array([fold(DIGEST_DOMAIN, lane) for lane in range(8)], np.uint64)
    factor = np.full(8, DIGEST_FACTOR, np.uint64)
    for stripe in stripes:
        mixed = lanes ^ stripe
        lanes = (mixed * factor) ^ multiply_high(mixed, factor)
    low = fold(DIGEST_DOMAIN, len(data))
    for lane in lanes:
        low = fold(low, int(lane))
    high = low
    for lane in lanes:
        high = fold(high, int(lane))
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


def gather_rows(rows: Array, ids: Ids) -> Array:
    return rows[ids]


def scatter_rows(rows: Array, positions: Ids, out: Array) -> None:
    for row, position in zip(rows, positions.tolist(), strict=True):
        out[position] = row


def copy_bytes(source: Array, out: Array) -> None:
    out[...] = source


# --- sampling -------------------------------------------------------------------------------------


def left_offsets(degree: int, cut: Container[int]) -> Ids:
    """Return the offsets of a row that are left without those that are cut, in order."""
    return np.array([offset for offset in range(degree) if offset not in cut], np.int64)


def choose(degree: int, fanout: int, replace: bool, key: int) -> Ids:
    """Return which of a node's edges are taken, as offsets into its row, in order."""
    if degree == 0 or fanout == 0:
        return np.empty(0, np.int64)
    if fanout < 0 or (not replace and degree <= fanout):
        return np.arange(degree, dtype=np.int64)
    words = draws(key, fanout)
    if replace:
        return bounded(words, degree)
    # Floyd's algorithm: draw j is over [0, last], and means `last` itself if it was chosen before.
    lasts = np.arange(degree - fanout, degree, dtype=np.uint64)
    chosen: dict[int, None] = {}
    for drawn, last in zip(bounded(words, lasts + np.uint64(1)).tolist(), lasts, strict=True):
        chosen[drawn if drawn not in chosen else int(last)] = None
    return np.array(list(chosen), np.int64)


@dataclass(frozen=True, slots=True)
class Relation:
    """An edge type with its rows as plain arrays."""

    indptr: Array
    neighbors: Array
    edge_ids: Array
    fanouts: tuple[int, ...]
    expands: int = 0
    finds: int = 0
    name: tuple[str, str, str] = ("", "", "")
    weights: Array | None = None
    times: Array | None = None
    owners: Array | None = None  # whose rows they are, rising; None: those of all nodes

    def row(self, node: int) -> tuple[int, int]:
        """Return where the row of a node begins and ends; a node that is not here has none."""
        row = node
        if self.owners is not None:
            row = int(np.searchsorted(self.owners, node))
            if row == len(self.owners) or self.owners[row] != node:
                return 0, 0
        return int(self.indptr[row]), int(self.indptr[row + 1])

    def picks(
        self,
        node: int,
        fanout: int,
        replace: bool,
        key: int,
        tree: int = 0,
        time: int = 0,
        last: bool = False,
        excluded: Container[int] = (),
    ) -> Ids:
        """Return the positions a node gives. `tree` is the word in its key, `time` its seed's.

        Edges to `excluded` neighbours are cut out of the row, which is then drawn from as it is.
        """
        from penstock.kernels.twins import times, weights  # they import this module

        begin, end = self.row(node)
        word = node_key(key, node, tree)
        found = self.neighbors[begin:end].tolist()
        cut = {offset for offset, neighbor in enumerate(found) if neighbor in excluded}
        left = left_offsets(end - begin, cut)
        if self.weights is not None:
            sums = weights.without(self.weights[begin:end].tolist(), cut)
            offsets = np.array(weights.choose(sums, fanout, replace, word), np.int64)
        elif self.times is not None:
            row = self.times[begin:end][left].tolist()
            offsets = times.choose(row, time, fanout, replace, last, word)
        else:
            offsets = choose(len(left), fanout, replace, word)
        return begin + left[offsets]


@dataclass(slots=True)
class Relabeler:
    """A list of nodes and the first position of each; if disjoint, per tree."""

    nodes: list[int] = field(default_factory=list)
    places: dict[int | tuple[int, int], int] = field(default_factory=dict)
    trees: list[int] = field(default_factory=list)

    def add_seeds(self, seeds: Array) -> None:
        for node in np.asarray(seeds).tolist():
            self.places.setdefault(node, len(self.nodes))
            self.nodes.append(node)

    def add_trees(self, seeds: Array, first: int) -> None:
        """Add seeds as the roots of trees, numbered from `first` on."""
        for tree, node in enumerate(np.asarray(seeds).tolist(), first):
            self.place(node, tree=tree)

    def place(self, node: int, room: bool = True, tree: int | None = None) -> int | None:
        """Return the position of `node`; a new one is appended if there is room, else None."""
        known = node if tree is None else (tree, node)
        if known not in self.places:
            if not room:
                return None
            self.places[known] = len(self.nodes)
            self.nodes.append(node)
            if tree is not None:
                self.trees.append(tree)
        return self.places[known]

    def relabel(self, ids: Array) -> Ids:
        return np.array([self.place(node) for node in np.asarray(ids).tolist()], np.int64)


@dataclass(frozen=True, slots=True)
class Sample:
    nodes: list[Ids]
    rows: list[Ids]
    cols: list[Ids]
    edge_ids: list[Ids]
    num_sampled_nodes: list[list[int]]
    num_sampled_edges: list[list[int]]
    trees: list[Ids] | None = None


@dataclass(frozen=True, slots=True)
class _Options:
    key: int
    replace: bool
    disjoint: bool
    last: bool
    times: list[int]  # by tree
    # By relation, then by node and tree (0 without trees): the neighbours not to be found.
    excluded: Sequence[dict[tuple[int, int], set[int]]]

    def excluded_of(self, relation: int, node: int, tree: int | None) -> set[int]:
        """Return the neighbours that a node must not find."""
        return self.excluded[relation].get((node, tree or 0), set()) if self.excluded else set()


def _by_row(pairs: set[tuple[int, int, int]]) -> dict[tuple[int, int], set[int]]:
    rows: dict[tuple[int, int], set[int]] = {}
    for node, tree, neighbor in pairs:
        rows.setdefault((node, tree), set()).add(neighbor)
    return rows


def khop(
    num_types: int,
    relations: Sequence[Relation],
    seeds: Sequence[Array],
    key: int,
    *,
    replace: bool = False,
    node_caps: Sequence[int] = (),
    disjoint: bool = False,
    last: bool = False,
    times: Sequence[Array] | None = None,
    excluded: Sequence[set[tuple[int, int, int]]] = (),
) -> Sample:
    """Sample all hops: within a hop, relations in order, all expanding the same frontier.

    `excluded` has, by relation, (node, tree or 0, neighbour) for edges that are not to be found.
    """
    by_tree = [time for array in times or () for time in np.asarray(array).tolist()]
    options = _Options(key, replace, disjoint, last, by_tree, [*map(_by_row, excluded)])
    lists = with_seeds(num_types, seeds, disjoint)
    edges: list[list[tuple[int, int, int]]] = [[] for _ in relations]
    hop_nodes = [[len(list_.nodes)] for list_ in lists]
    hop_edges: list[list[int]] = [[] for _ in relations]
    begins = [0] * num_types
    for hop in range(len(relations[0].fanouts) if relations else 0):
        ends = [len(list_.nodes) for list_ in lists]
        cap = node_caps[hop] if hop < len(node_caps) and node_caps[hop] >= 0 else None
        for number, relation in enumerate(relations):
            found = list(_expand(number, relation, hop, options, lists, begins, ends, cap))
            edges[number] += found
            hop_edges[number].append(len(found))
        for type_, list_ in enumerate(lists):
            hop_nodes[type_].append(len(list_.nodes) - ends[type_])
        begins = ends
    return as_sample(lists, edges, hop_nodes, hop_edges, disjoint)


def with_seeds(num_types: int, seeds: Sequence[Array], disjoint: bool) -> list[Relabeler]:
    lists = [Relabeler() for _ in range(num_types)]
    first = 0
    for list_, ids in zip(lists, seeds, strict=True):
        if disjoint:
            list_.add_trees(ids, first)
        else:
            list_.add_seeds(ids)
        first += len(ids)
    return lists


def _expand(
    number: int,
    relation: Relation,
    hop: int,
    options: _Options,
    lists: list[Relabeler],
    begins: list[int],
    ends: list[int],
    cap: int | None,
) -> Iterator[tuple[int, int, int]]:
    """Yield the edges (neighbour's position, node's position, edge id) of one hop and relation."""
    expanding, finding = lists[relation.expands], lists[relation.finds]
    shared = hop_key(options.key, hop, name_hash(relation.name))
    for place in range(begins[relation.expands], ends[relation.expands]):
        node = expanding.nodes[place]
        tree = expanding.trees[place] if options.disjoint else None
        # Only the first of equal seeds is expanded.
        if expanding.places[node if tree is None else (tree, node)] != place:
            continue
        word = 0 if tree is None else tree + 1
        time = options.times[tree] if tree is not None and options.times else 0
        fanout = relation.fanouts[hop]
        excluded = options.excluded_of(number, node, tree)
        picks = relation.picks(
            node, fanout, options.replace, shared, word, time, options.last, excluded
        )
        for at in picks.tolist():
            room = cap is None or len(finding.nodes) - ends[relation.finds] < cap
            found = finding.place(int(relation.neighbors[at]), room, tree)
            if found is not None:
                yield found, place, int(relation.edge_ids[at])


def as_sample(
    lists: list[Relabeler],
    edges: list[list[tuple[int, int, int]]],
    hop_nodes: list[list[int]],
    hop_edges: list[list[int]],
    disjoint: bool,
) -> Sample:
    table = [np.array(found, np.int64).reshape(-1, 3) for found in edges]
    return Sample(
        [np.array(list_.nodes, np.int64) for list_ in lists],
        [part[:, 0].copy() for part in table],
        [part[:, 1].copy() for part in table],
        [part[:, 2].copy() for part in table],
        hop_nodes,
        hop_edges,
        [np.array(list_.trees, np.int64) for list_ in lists] if disjoint else None,
    )
