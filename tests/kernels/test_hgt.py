"""Layers with budgets: the twin's, to the byte; small ones by hand; what is always true."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from penstock.errors import GraphFormatError
from penstock.kernels.arrays import Array
from tests.kernels.each_simd import each_simd
from tests.kernels.hgt_jobs import Layering, assert_same, layerings, one_type
from tests.kernels.strategies import Edges, Rows, rows_of
from tests.kernels.test_damage import BAD_OFFSETS


@each_simd
@given(layerings())
def test_layers_are_the_twins(layering: Layering) -> None:
    assert_same(layering.native(), layering.twin())


def test_large_layers_are_the_twins() -> None:
    layering = large()
    sampled = layering.native()
    assert sampled.num_sampled_nodes == [[70, 40, 40], [0, 40, 40]]
    assert_same(sampled, layering.twin())


@pytest.mark.parametrize(
    ("key", "seeds", "samples", "nodes", "edges"),
    [
        (0xF2F14DFBB4FBCBC2, [0], (2, 1), [0, 5, 1, 2], [0, 1, 4, 13, 14, 5, 6, 7, 8, 9]),
        (0xD4C96A9EE16BF34E, [0], (2, 1), [0, 5, 2, 1], [0, 1, 4, 13, 14, 8, 9, 5, 6, 7]),
        (
            0xF2F14DFBB4FBCBC2,
            [1, 5, 1],
            (1, 1),
            [1, 5, 1, 2, 0],
            [5, 6, 7, 13, 14, 8, 9, 0, 1, 4],
        ),
    ],
)
def test_layers_are_what_they_always_were(
    key: int, seeds: list[int], samples: tuple[int, ...], nodes: list[int], edges: list[int]
) -> None:
    """Of the graph in docs/random.md, whose node type has no name."""
    sources = [1, 2, 3, 4, 5, 0, 2, 5, 0, 1, 3, 4, 4, 2, 1]
    destinations = [0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 5, 5]
    layering = one_type(list(zip(sources, destinations, strict=True)), 6, samples, seeds)
    sampled = replace(layering, key=key, names=[""]).native()
    assert sampled.nodes[0].tolist() == nodes
    assert sampled.edge_ids[0].tolist() == edges


def test_a_sampler_gives_the_same_batch_again_after_another() -> None:
    layering = large()
    sampler = layering.sampler
    first = sampler.sample(1, layering.seeds)
    sampler.sample(2, layering.seeds[::-1])
    assert_same(sampler.sample(1, layering.seeds), first)


def large() -> Layering:
    """Many nodes with many edges: rows longer than those that count, and blocks of nodes."""
    rng = np.random.default_rng(5)
    edges = []
    for expands, finds in ((0, 1), (1, 0), (0, 0)):
        heads, tails = rng.integers(0, 200, 9000) ** 2 // 200, rng.integers(0, 200, 9000)
        rows = rows_of(tails, heads, 200, paired=True, dtype="int32")
        edges.append(Edges(rows, (), expands, finds, ("a", str(expands), str(finds))))
    seeds = [rng.permutation(200)[:70], np.empty(0, np.int64)]
    return Layering([200, 200], edges, [(40, 40), (40, 40)], seeds, key=11)


@given(layerings())
def test_nodes_are_sampled_once_and_never_more_than_asked_for(layering: Layering) -> None:
    sampled = layering.native()
    for nodes, counts, asked, seeds in zip(
        sampled.nodes, sampled.num_sampled_nodes, layering.num_samples, layering.seeds, strict=True
    ):
        np.testing.assert_array_equal(nodes[: len(seeds)], seeds)
        drawn = nodes[len(seeds) :].tolist()
        assert len(set(drawn)) == len(drawn) == sum(counts[1:])
        assert not set(drawn) & set(seeds.tolist())
        assert counts[0] == len(seeds)
        assert all(map(int.__le__, counts[1:], asked))


@given(layerings())
def test_the_edges_are_all_those_among_the_nodes(layering: Layering) -> None:
    if any((np.diff(e.rows.indptr) > layering.max_neighbors).any() for e in layering.edges):
        return
    sampled = layering.native()
    for number, edges in enumerate(layering.edges):
        heads, tails = sampled.nodes[edges.expands], sampled.nodes[edges.finds].tolist()
        found = zip(*(part[number].tolist() for part in parts(sampled)), strict=True)
        expected = [
            (tails.index(tail), place, edge)
            for place, head in enumerate(heads.tolist())
            if heads.tolist().index(head) == place
            for tail, edge in row_of(edges.rows, head)
            if tail in tails
        ]
        assert list(found) == expected


def parts(sampled: object) -> list[list[Array]]:
    return [getattr(sampled, name) for name in ("rows", "cols", "edge_ids")]


def row_of(rows: Rows, node: int) -> list[tuple[int, int]]:
    where = slice(rows.indptr[node], rows.indptr[node + 1])
    return list(zip(rows.neighbors[where].tolist(), rows.edge_ids[where].tolist(), strict=True))


@given(layerings())
def test_every_node_that_was_drawn_hangs_on_one_before_it(layering: Layering) -> None:
    """Whoever gave it a share is there, and so is the edge, however long its row."""
    sampled = layering.native()
    for type_, nodes in enumerate(sampled.nodes):
        hanging = {
            place
            for number, edges in enumerate(layering.edges)
            if edges.finds == type_
            for place in sampled.rows[number].tolist()
        }
        assert hanging >= set(range(len(layering.seeds[type_]), len(nodes)))


def test_few_neighbours_are_all_taken_as_they_come() -> None:
    layering = one_type([(3, 0), (2, 0), (2, 1), (0, 1), (4, 3)], 5, (3, 1), [0, 1])
    sampled = layering.native()
    assert sampled.nodes[0].tolist() == [0, 1, 3, 2, 4]
    assert sampled.num_sampled_nodes == [[2, 2, 1]]
    assert sampled.edge_ids[0].tolist() == [0, 1, 2, 3, 4]
    assert sampled.rows[0].tolist() == [2, 3, 3, 0, 4]
    assert sampled.cols[0].tolist() == [0, 0, 1, 1, 2]


def test_a_seed_given_twice_counts_once() -> None:
    sampled = one_type([(1, 0), (0, 0)], 2, (2,), [0, 0]).native()
    assert sampled.nodes[0].tolist() == [0, 0, 1]
    assert sampled.rows[0].tolist() == [2, 0]
    assert sampled.cols[0].tolist() == [0, 0]


@pytest.mark.parametrize("samples", [(), (0,), (0, 0)])
def test_without_samples_there_are_the_seeds_and_the_edges_among_them(
    samples: tuple[int, ...],
) -> None:
    sampled = one_type([(1, 0), (2, 0)], 3, samples, [0, 2]).native()
    assert sampled.nodes[0].tolist() == [0, 2]
    assert sampled.edge_ids[0].tolist() == [1]


def test_a_layer_of_none_does_not_end_the_layers_behind_it() -> None:
    sampled = one_type([(1, 0), (2, 1)], 3, (0, 1, 1), [0]).native()
    assert sampled.nodes[0].tolist() == [0, 1, 2]
    assert sampled.num_sampled_nodes == [[1, 0, 1, 1]]


@pytest.mark.parametrize("num_nodes", [0, 1])
def test_graphs_without_edges(num_nodes: int) -> None:
    sampled = one_type([], num_nodes, (5, 5), list(range(num_nodes))).native()
    assert sampled.nodes[0].tolist() == list(range(num_nodes))
    assert len(sampled.rows[0]) == 0


def test_a_complete_graph_is_taken_whole_when_asked_for() -> None:
    edges = [(a, b) for a in range(6) for b in range(6)]
    sampled = one_type(edges, 6, (100,), [2]).native()
    assert sorted(sampled.nodes[0].tolist()) == list(range(6))
    assert sorted(sampled.edge_ids[0].tolist()) == list(range(36))


def test_of_a_hub_so_many_edges_count_and_no_more() -> None:
    hub = one_type([(node, 0) for node in range(1, 1001)], 1001, (1000,), [0])
    sampled = hub.native()
    assert sampled.num_sampled_nodes == [[1, 50]]
    assert sampled.nodes[0][sampled.rows[0]].tolist() == (sampled.edge_ids[0] + 1).tolist()
    assert len(set(sampled.edge_ids[0].tolist())) == 50


def test_adding_a_type_leaves_the_draws_of_the_others_alone() -> None:
    edges = [(node, 0) for node in range(1, 30)]
    alone = one_type(edges, 30, (5,), [0])
    nobody = rows_of(np.array([0]), np.array([0]), 1, paired=True, dtype="int64")
    with_other = Layering(
        [1, 30],
        [Edges(nobody, (), 0, 0, ("x", "x", "x")), replace(alone.edges[0], expands=1, finds=1)],
        [(5,), (5,)],
        [np.empty(0, np.int64), alone.seeds[0]],
        names=["x", "type 0"],
    )
    np.testing.assert_array_equal(with_other.native().nodes[1], alone.native().nodes[0])


# --- damage and refusals ----------------------------------------------------------------------


@pytest.mark.parametrize("indptr", BAD_OFFSETS.values(), ids=BAD_OFFSETS)
@pytest.mark.parametrize("samples", [(), (2,)])
def test_bad_offsets_are_told_as_such(indptr: list[int], samples: tuple[int, ...]) -> None:
    for entries in (np.zeros(5, np.int64), np.zeros((5, 2), np.int32)):
        rows = Rows(np.array(indptr), entries)
        layering = Layering([4], [Edges(rows, ())], [samples], [np.array([3, 1])])
        with pytest.raises(GraphFormatError, match="damaged topology"):
            layering.native()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("bad", [-1, 4, -(2**31), 2**31 - 1])
def test_a_neighbour_outside_the_graph_is_told_as_such(bad: int, dtype: str) -> None:
    rows = Rows(np.array([0, 1, 2, 2, 2]), np.array([0, bad], dtype))
    layering = Layering([4], [Edges(rows, ())], [(1,)], [np.array([0, 1])])
    with pytest.raises(GraphFormatError, match="damaged topology"):
        layering.native()


def test_a_sampler_is_sound_after_a_damaged_batch() -> None:
    rows = Rows(np.array([0, 2, 3, 3, 3]), np.array([1, 2, 9]))
    sampler = Layering([4], [Edges(rows, ())], [(3,)], []).sampler
    with pytest.raises(GraphFormatError):
        sampler.sample(1, [np.array([0, 1])])
    assert sampler.sample(1, [np.array([3])]).nodes[0].tolist() == [3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_samples": [(-1,)]}, r"num_samples\[0\]\[0\] is -1"),
        ({"num_samples": [(1.5,)]}, r"num_samples\[0\]\[0\] is 1.5"),
        ({"num_samples": [(1,), (1,)]}, "one entry for each type"),
        ({"max_neighbors": 0}, "max_neighbors is 0"),
        ({"seeds": [np.array([0, 2])]}, r"seeds\[0\]\[1\] is 2; expected 0 <= id < 2"),
        ({"seeds": []}, "one array for each of 1 types"),
        ({"key": 2**64}, "key is"),
        ({"num_nodes": [3]}, "another number of rows"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, object], words: str) -> None:
    layering = replace(one_type([(1, 0)], 2, (1,), [0]), **change)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=words):
        layering.native()


def test_layers_are_as_many_for_all_types() -> None:
    layering = Layering([1, 1], [], [(1,), (1, 1)], [np.empty(0, np.int64)] * 2)
    with pytest.raises(ValueError, match="Number of layers must be the same"):
        layering.native()


def test_a_relation_between_types_that_are_not_there_is_refused() -> None:
    layering = one_type([(1, 0)], 2, (1,), [0])
    wrong = replace(layering, edges=[replace(layering.edges[0], finds=1)])
    with pytest.raises(ValueError, match="relation 0 names node type 1"):
        wrong.native()


def test_two_threads_take_turns_or_are_told_so() -> None:
    layering = large()
    sampler, expected = layering.sampler, layering.native()
    wrong: list[Exception] = []

    def sample_often() -> None:
        for _ in range(30):
            try:
                assert_same(sampler.sample(layering.key, layering.seeds), expected)
            except Exception as error:
                if "in use by another thread" not in str(error):
                    wrong.append(error)

    threads = [threading.Thread(target=sample_often) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
