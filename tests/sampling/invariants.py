"""What must be true of every batch, whatever its kind: checks against plain arrays, edge by edge.

They are slow and obvious on purpose, and share nothing with the code they judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.graph import EdgeType
from penstock.sampling.names import Owner, qualified, type_name
from penstock.sampling.spec import NeighborSpec
from tests.sampling.graphs import Array
from tests.sampling.worlds import Inputs, World

Arrays = dict[str, Array]


def same_bits(found: Array, expected: Array, what: str) -> None:
    """Equal in dtype, shape and every bit: NaN is like any other value."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), what
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes(), what


def same_batches(
    first: tuple[Mapping[str, Any], Arrays], second: tuple[Mapping[str, Any], Arrays]
) -> None:
    """The same facts, the same names in the same order, the same bits."""
    assert first[0] == second[0]
    assert list(first[1]) == list(second[1])
    for name, array in first[1].items():
        same_bits(array, second[1][name], name)


# --- nodes, edges, attributes --------------------------------------------------------------------


def check_nodes(world: World, arrays: Arrays) -> None:
    """CONTRACT 43, 44: every type is there; ids are of nodes; attributes are their rows."""
    for name, size in world.sizes.items():
        nodes = arrays[qualified(name, "n_id")]
        assert nodes.dtype == np.int64
        assert nodes.ndim == 1
        assert np.all((nodes >= 0) & (nodes < size))
        for word, rows in world.nodes_have[name].items():
            same_bits(arrays[qualified(name, word)], rows[nodes], f"{name}.{word}")


def ends_of(world: World, arrays: Arrays, kind: EdgeType, direction: str) -> Array:
    """`n_id[edge_index]`: the global ids of both ends, found above expanded."""
    index = arrays[qualified(kind, "edge_index")]
    assert index.dtype == np.int64
    assert index.shape[0] == 2
    rows = []
    for local, name in zip(index, world.ends(kind, direction), strict=True):
        nodes = arrays[qualified(name, "n_id")]
        assert np.all((local >= 0) & (local < len(nodes)))
        rows.append(nodes[local])
    return np.stack(rows)


def check_edges(world: World, arrays: Arrays, direction: str) -> None:
    """CONTRACT 43: `n_id[edge_index]` is the edge that `e_id` names; attributes are its row."""
    for kind in world.edges:
        ids = arrays[qualified(kind, "e_id")]
        assert ids.dtype == np.int64
        expected = world.directed(kind, direction)[:, ids]
        np.testing.assert_array_equal(ends_of(world, arrays, kind, direction), expected)
        check_edge_attributes(world, arrays, kind, ids)


def check_edge_attributes(world: World, arrays: Arrays, kind: EdgeType, ids: Array) -> None:
    for word, rows in world.edges_have[kind].items():
        same_bits(arrays[qualified(kind, word)], rows[ids], f"{kind}.{word}")


def check_inputs(
    world: World, inputs: Inputs, facts: Mapping[str, Any], arrays: Arrays, at: slice = slice(None)
) -> None:
    """CONTRACT 42, 43: seeds stand first, in the order given, duplicates kept."""
    seeds, of = inputs.ids[at], inputs.node_type
    assert facts["batch_size"] == len(seeds)
    assert facts.get("input_type") == (of if world.is_hetero else None)
    np.testing.assert_array_equal(arrays[qualified(of, "n_id")][: len(seeds)], seeds)
    positions = np.arange(inputs.count)[at]
    np.testing.assert_array_equal(arrays[qualified(of, "input_id")], positions)


def names_of(world: World, *, per_node: Iterable[str] = (), with_edges: bool = True) -> set[str]:
    """The arrays that every batch with all attributes has, but for its inputs'."""
    names = {
        qualified(name, word)
        for name in world.sizes
        for word in ("n_id", *per_node, *world.nodes_have[name])
    }
    for kind in world.edges if with_edges else ():
        words = ("edge_index", "e_id", *world.edges_have[kind])
        names |= {qualified(kind, word) for word in words}
    return names


# --- hops ----------------------------------------------------------------------------------------


# An edge that must not be sampled: its source, its destination, and in which tree (0: in any).
Excluded = tuple[int, int, int]


class Hops:
    """The hops of a directional batch: which nodes and edges each of them added.

    `trees` has the tree of each seed by node type, where there are trees; those of the others are
    found by following edges, not read from the batch.
    """

    def __init__(
        self,
        world: World,
        spec: NeighborSpec,
        facts: Any,
        arrays: Arrays,
        trees: Mapping[str, Array] | None = None,
        excluded: Mapping[EdgeType, set[Excluded]] | None = None,
    ) -> None:
        self.world, self.spec, self.arrays = world, spec, arrays
        self.excluded = excluded or {}
        self.fanouts = (
            dict.fromkeys(world.edges, spec.num_neighbors)
            if spec.by_type is None
            else dict(spec.by_type)
        )
        self.num_hops = len(next(iter(self.fanouts.values())))
        self.node_counts = {name: self._counts(facts, "nodes", name) for name in world.sizes}
        self.edge_counts = {kind: self._counts(facts, "edges", kind) for kind in world.edges}
        self.trees = {name: np.zeros(len(self.nodes(name)), np.int64) for name in world.sizes}
        if trees is not None:
            self._follow(trees)

    def _counts(self, facts: Any, what: str, owner: Owner) -> list[int]:
        counts: Any = facts[f"num_sampled_{what}"]
        return list(counts[type_name(owner)] if self.world.is_hetero else counts)

    def _follow(self, trees: Mapping[str, Array]) -> None:
        for name, of_seeds in trees.items():
            self.trees[name][: len(of_seeds)] = of_seeds
        for hop in range(self.num_hops):
            for kind in self.world.edges:
                found, expanded = self.world.ends(kind, self.spec.direction)
                index = self.arrays[qualified(kind, "edge_index")][:, self.edges(kind, hop)]
                new = index[:, index[0] >= self.frontier(found, hop + 1).start]
                self.trees[found][new[0]] = self.trees[expanded][new[1]]

    def nodes(self, name: str) -> Array:
        return self.arrays[qualified(name, "n_id")]

    def frontier(self, name: str, hop: int) -> range:
        """Places of the nodes that a hop expands."""
        counts = self.node_counts[name]
        return range(sum(counts[:hop]), sum(counts[: hop + 1]))

    def edges(self, kind: EdgeType, hop: int) -> slice:
        counts = self.edge_counts[kind]
        return slice(sum(counts[:hop]), sum(counts[: hop + 1]))


def check_hops(hops: Hops, num_seeds: Mapping[str, int]) -> None:
    """PYG 'The batch': counts add up; hop h expands what hop h - 1 found, in that order."""
    for name in hops.world.sizes:
        counts = hops.node_counts[name]
        assert len(counts) == hops.num_hops + 1
        assert sum(counts) == len(hops.nodes(name))
        assert counts[0] == num_seeds.get(name, 0)
        _check_once(hops, name, counts[0])
    for kind, counts in hops.edge_counts.items():
        assert len(counts) == hops.num_hops
        index = hops.arrays[qualified(kind, "edge_index")]
        assert sum(counts) == index.shape[1]
        for hop in range(hops.num_hops):
            _check_hop(hops, kind, hop, index[:, hops.edges(kind, hop)])
        if not hops.world.is_hetero:
            assert np.all(np.diff(index[1]) >= 0)
    for hop in range(hops.num_hops):
        _check_discovery(hops, hop)


def _check_once(hops: Hops, name: str, seeds: int) -> None:
    """Only seeds stand twice."""
    nodes = list(zip(hops.trees[name].tolist(), hops.nodes(name).tolist(), strict=True))
    later = nodes[seeds:]
    assert len(set(later)) == len(later)
    assert not set(later) & set(nodes[:seeds])


def _check_hop(hops: Hops, kind: EdgeType, hop: int, index: Array) -> None:
    found, expanded = hops.world.ends(kind, hops.spec.direction)
    frontier = hops.frontier(expanded, hop)
    assert np.all((index[1] >= frontier.start) & (index[1] < frontier.stop))
    assert np.all(np.diff(index[1]) >= 0)
    # Nothing is found that a later hop finds, and both ends are in one tree.
    assert np.all(index[0] < hops.frontier(found, hop + 1).stop)
    assert np.array_equal(hops.trees[found][index[0]], hops.trees[expanded][index[1]])


def _check_discovery(hops: Hops, hop: int) -> None:
    """New nodes stand in the order in which edges, type by type, first lead to them."""
    for name in hops.world.sizes:
        new = hops.frontier(name, hop + 1)
        led_to = [
            place
            for kind in hops.world.graph.edge_types
            if hops.world.ends(kind, hops.spec.direction)[0] == name
            for place in hops.arrays[qualified(kind, "edge_index")][0, hops.edges(kind, hop)]
            if place >= new.start
        ]
        assert list(dict.fromkeys(led_to)) == list(new)


def check_fanouts(hops: Hops, times: Sequence[int] | None = None) -> None:
    """CONTRACT 45: every node gives exactly as many edges as it has to, and only such it may.

    `times` are those of the trees.
    """
    for kind, fanouts in hops.fanouts.items():
        _, expanded = hops.world.ends(kind, hops.spec.direction)
        for hop, fanout in enumerate(fanouts):
            at = hops.edges(kind, hop)
            places = hops.arrays[qualified(kind, "edge_index")][1, at]
            ids = hops.arrays[qualified(kind, "e_id")][at]
            for place in hops.frontier(expanded, hop):
                taken = ids[places == place].tolist()
                _check_node(hops, kind, fanout, expanded, place, taken, times)


def _check_node(
    hops: Hops,
    kind: EdgeType,
    fanout: int,
    expanded: str,
    place: int,
    taken: list[int],
    times: Sequence[int] | None,
) -> None:
    nodes, trees = hops.nodes(expanded), hops.trees[expanded]
    if _stands_before(nodes, trees, place):
        assert not taken, "edges point at the first place of a seed"
        return
    time = None if times is None else times[int(trees[place])]
    there = admissible(hops.world, hops.spec, kind, int(nodes[place]), time)
    ends = hops.world.edges[kind]
    hidden = hops.excluded.get(kind, set())
    there = [
        e for e in there if (int(ends[0, e]), int(ends[1, e]), int(trees[place])) not in hidden
    ]
    assert set(taken) <= set(there)
    if hops.spec.node_caps:
        assert len(taken) <= len(expected_count(hops.spec, fanout, there))
        return
    assert len(taken) == len(expected_count(hops.spec, fanout, there))
    if not hops.spec.replace or fanout < 0:
        assert max(Counter(taken).values(), default=1) == 1
    if fanout < 0 or (len(there) <= fanout and not hops.spec.replace):
        # By weight, as many as are there are drawn, unless there are fewer: in whichever order.
        drawn = hops.spec.weight_attr is not None and len(there) == fanout
        assert (sorted(taken) if drawn else taken) == there, "all are taken in storage order"
    elif hops.spec.temporal_strategy == "last" and is_timed(hops.world, hops.spec, kind):
        latest = there[len(there) - min(fanout, len(there)) :]
        assert set(taken) <= set(latest)
        assert hops.spec.replace or taken == latest


def _stands_before(nodes: Array, trees: Array, place: int) -> bool:
    before = (nodes[:place] == nodes[place]) & (trees[:place] == trees[place])
    return bool(before.any())


def expected_count(spec: NeighborSpec, fanout: int, there: list[int]) -> range:
    """As many as a node with these edges gives."""
    if fanout < 0:
        return range(len(there))
    if spec.replace:
        return range(fanout if there else 0)
    return range(min(fanout, len(there)))


def is_timed(world: World, spec: NeighborSpec, kind: EdgeType) -> bool:
    return (
        spec.time_attr is not None and world.times(kind, spec.time_attr, spec.direction) is not None
    )


def admissible(
    world: World, spec: NeighborSpec, kind: EdgeType, node: int, time: int | None
) -> list[int]:
    """The ids of the edges that a node may give, in storage order, or in that of time."""
    ids = np.flatnonzero(world.directed(kind, spec.direction)[1] == node)
    if spec.weight_attr is not None and (weights := world.weights(kind)) is not None:
        ids = ids[weights[ids] > 0]
    if spec.time_attr is not None:
        times = world.times(kind, spec.time_attr, spec.direction)
        if times is not None:
            assert time is not None
            ids = ids[np.argsort(times[ids], kind="stable")]
            ids = ids[times[ids] <= time]
    return [int(edge) for edge in ids]


def check_caps(hops: Hops) -> None:
    """`node_caps[h]`: so many new nodes of a type, at most."""
    for counts in hops.node_counts.values():
        for cap, count in zip(hops.spec.node_caps, counts[1:], strict=False):
            assert cap < 0 or count <= cap


def check_trees(hops: Hops, inputs_of: Array) -> None:
    """PYG `batch`: for every node, the input that its tree belongs to, by the tree's number."""
    for name in hops.world.sizes:
        told = hops.arrays[qualified(name, "batch")]
        same_bits(told, inputs_of[hops.trees[name]], f"{name}.batch")
