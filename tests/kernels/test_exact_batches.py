"""Whole batches, written out by hand, on graphs small enough to do so."""

from __future__ import annotations

import numpy as np
import pytest

from penstock import kernels
from penstock.kernels import Adjacency, KHop, Relation, Sample
from tests.kernels.strategies import Rows, rows_of

# 1 → 0, 2 → 0, 3 → 0, 0 → 1, 3 → 1, 4 → 3; nobody points at 2, 4 and 5.
SOURCES = np.array([1, 2, 3, 0, 3, 4])
DESTINATIONS = np.array([0, 0, 0, 1, 1, 3])


def small(paired: bool = True) -> Rows:
    return rows_of(SOURCES, DESTINATIONS, 6, paired=paired, dtype="int32")


def batch(
    fanouts: tuple[int, ...],
    seeds: list[int],
    *,
    rows: Rows | None = None,
    replace: bool = False,
    node_caps: tuple[int, ...] = (),
) -> Sample:
    relation = Relation((rows or small()).adjacency, fanouts)
    sampler = KHop([6], [relation], replace=replace, node_caps=node_caps)
    return sampler.sample(kernels.batch_key(0, 0, 0), [np.array(seeds, np.int64)])


def edges(sample: Sample, number: int = 0) -> list[tuple[int, int, int]]:
    assert sample.edge_ids is not None
    columns = sample.rows[number], sample.cols[number], sample.edge_ids[number]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_all_neighbours_of_two_hops() -> None:
    sample = batch((-1, -1), [0])
    assert sample.nodes[0].tolist() == [0, 1, 2, 3, 4]
    assert edges(sample) == [(1, 0, 0), (2, 0, 1), (3, 0, 2), (0, 1, 3), (3, 1, 4), (4, 3, 5)]
    assert sample.num_sampled_nodes == [[1, 3, 1]]
    assert sample.num_sampled_edges == [[3, 3]]


def test_seeds_come_first_in_their_order() -> None:
    sample = batch((-1,), [3, 5, 0])
    assert sample.nodes[0].tolist() == [3, 5, 0, 4, 1, 2]
    assert edges(sample) == [(3, 0, 5), (4, 2, 0), (5, 2, 1), (0, 2, 2)]
    assert sample.num_sampled_nodes == [[3, 3]]
    assert sample.num_sampled_edges == [[4]]


def test_a_repeated_seed_keeps_its_row_and_edges_point_at_the_first() -> None:
    sample = batch((-1, -1), [1, 0, 1, 1, 0])
    assert sample.nodes[0].tolist() == [1, 0, 1, 1, 0, 3, 2, 4]
    assert edges(sample) == [(1, 0, 3), (5, 0, 4), (0, 1, 0), (6, 1, 1), (5, 1, 2), (7, 5, 5)]
    assert sample.num_sampled_nodes == [[5, 2, 1]]
    assert sample.num_sampled_edges == [[5, 1]]


def test_a_node_found_again_in_a_later_hop_is_not_expanded_again() -> None:
    sample = batch((-1, -1, -1), [1])
    assert sample.nodes[0].tolist() == [1, 0, 3, 2, 4]
    assert sample.num_sampled_nodes == [[1, 2, 2, 0]]
    assert sample.num_sampled_edges == [[2, 4, 0]]
    assert edges(sample)[2:] == [(0, 1, 0), (3, 1, 1), (2, 1, 2), (4, 2, 5)]


def test_fan_out_zero_takes_none_and_ends_the_batch() -> None:
    sample = batch((-1, 0, -1), [0])
    assert sample.nodes[0].tolist() == [0, 1, 2, 3]
    assert sample.num_sampled_nodes == [[1, 3, 0, 0]]
    assert sample.num_sampled_edges == [[3, 0, 0]]


def test_no_hops_are_the_seeds_alone() -> None:
    sample = batch((), [4, 4, 0])
    assert sample.nodes[0].tolist() == [4, 4, 0]
    assert edges(sample) == []
    assert sample.num_sampled_nodes == [[3]]
    assert sample.num_sampled_edges == [[]]


def test_no_seeds_are_an_empty_batch() -> None:
    sample = batch((2, 2), [])
    assert [len(array) for array in (*sample.nodes, *sample.rows, *sample.cols)] == [0, 0, 0]
    assert sample.num_sampled_nodes == [[0, 0, 0]]
    assert sample.num_sampled_edges == [[0, 0]]


def test_isolated_seeds_find_nothing() -> None:
    sample = batch((3, 3), [5, 2])
    assert sample.nodes[0].tolist() == [5, 2]
    assert sample.num_sampled_edges == [[0, 0]]


@pytest.mark.parametrize("fanout", [3, 4, 32, 33, 10**6, 2**40])
def test_a_fan_out_not_below_the_degree_takes_all_in_storage_order(fanout: int) -> None:
    assert edges(batch((fanout,), [0])) == [(1, 0, 0), (2, 0, 1), (3, 0, 2)]


def test_without_replacement_a_fan_out_below_the_degree_takes_that_many() -> None:
    sample = batch((2,), [0])
    assert sample.num_sampled_edges == [[2]]
    assert len({edge for _, _, edge in edges(sample)}) == 2


def test_with_replacement_a_lone_neighbour_is_drawn_every_time_and_named_once() -> None:
    sample = batch((4,), [3], replace=True)
    assert sample.nodes[0].tolist() == [3, 4]
    assert edges(sample) == [(1, 0, 5)] * 4
    assert sample.num_sampled_nodes == [[1, 1]]


def test_with_replacement_every_node_with_neighbours_gives_exactly_the_fan_out() -> None:
    sample = batch((7,), [0, 1, 2, 3], replace=True)
    assert np.bincount(sample.cols[0], minlength=4).tolist() == [7, 7, 0, 7]


def test_with_replacement_fan_out_minus_one_takes_each_neighbour_once() -> None:
    assert edges(batch((-1,), [0], replace=True)) == [(1, 0, 0), (2, 0, 1), (3, 0, 2)]


def test_bare_rows_number_their_edges_by_position() -> None:
    rows = Rows(np.array([0, 0, 2, 2, 3, 3, 3]), np.array([0, 3, 4]))
    assert edges(batch((-1,), [3, 1], rows=rows)) == [(2, 0, 2), (3, 1, 0), (0, 1, 1)]


def test_along_out_edges_the_neighbour_is_the_destination() -> None:
    indptr, entries = np.empty(7, np.int64), np.empty((6, 2), np.int32)
    kernels.transpose(small().indptr, small().entries, indptr, entries)
    sample = batch((-1, -1), [3], rows=Rows(indptr, entries))
    assert sample.nodes[0].tolist() == [3, 0, 1]
    assert edges(sample) == [(1, 0, 2), (2, 0, 4), (2, 1, 3), (1, 2, 0)]
    assert sample.num_sampled_edges == [[2, 2]]


def test_self_loops_and_parallel_edges_are_edges_like_others() -> None:
    rows = rows_of(np.array([0, 1, 0, 1]), np.array([0, 0, 0, 0]), 6, paired=True, dtype="int64")
    sample = batch((-1, -1), [0], rows=rows)
    assert sample.nodes[0].tolist() == [0, 1]
    assert edges(sample) == [(0, 0, 0), (1, 0, 1), (0, 0, 2), (1, 0, 3)]


def test_a_cap_leaves_out_edges_to_further_nodes_only() -> None:
    sample = batch((-1, -1), [0, 1], node_caps=(1, 5))
    # 2 is the one new node of the first hop; edges to 0 and 1 stay, those to 3 do not.
    assert sample.nodes[0].tolist() == [0, 1, 2]
    assert edges(sample) == [(1, 0, 0), (2, 0, 1), (0, 1, 3)]
    assert sample.num_sampled_nodes == [[2, 1, 0]]
    assert sample.num_sampled_edges == [[3, 0]]


def test_a_cap_of_zero_leaves_the_edges_among_the_nodes_there_are() -> None:
    sample = batch((-1,), [0, 1], node_caps=(0,))
    assert sample.nodes[0].tolist() == [0, 1]
    assert edges(sample) == [(1, 0, 0), (0, 1, 3)]


@pytest.mark.parametrize("caps", [(-1, -1), (-1,), (4, 1), (2**62, 2**62), (2**63 - 1,) * 2])
def test_a_cap_that_is_not_reached_changes_nothing(caps: tuple[int, ...]) -> None:
    assert edges(batch((-1, -1), [0], node_caps=caps)) == edges(batch((-1, -1), [0]))


# --- several types --------------------------------------------------------------------------------

# Papers 0 and 1 cite each other; author 0 wrote both, author 1 wrote paper 1.
WROTE = rows_of(np.array([0, 0, 1]), np.array([0, 1, 1]), 2, paired=True, dtype="int32")
WRITTEN = rows_of(np.array([0, 1, 1]), np.array([0, 0, 1]), 2, paired=True, dtype="int32")
CITES = rows_of(np.array([1, 0]), np.array([0, 1]), 2, paired=True, dtype="int32")


def papers(fanouts: tuple[int, ...], seeds: list[list[int]], caps: tuple[int, ...] = ()) -> Sample:
    """Type 0 are papers, type 1 authors."""
    relations = [
        Relation(WROTE.adjacency, fanouts, 0, 1, ("author", "wrote", "paper")),
        Relation(WRITTEN.adjacency, fanouts, 1, 0, ("paper", "by", "author")),
        Relation(CITES.adjacency, fanouts, 0, 0, ("paper", "cites", "paper")),
    ]
    return KHop([2, 2], relations, node_caps=caps).sample(5, [np.array(s, np.int64) for s in seeds])


def test_edge_types_follow_in_order_and_read_the_same_frontier() -> None:
    sample = papers((-1, -1), [[0], []])
    # Hop 0: paper 0 finds author 0 and paper 1, not expanded yet. Hop 1: paper 1 finds both
    # authors, author 0 both papers, and paper 1 cites paper 0.
    assert [nodes.tolist() for nodes in sample.nodes] == [[0, 1], [0, 1]]
    assert edges(sample, 0) == [(0, 0, 0), (0, 1, 1), (1, 1, 2)]
    assert edges(sample, 1) == [(0, 0, 0), (1, 0, 1)]
    assert edges(sample, 2) == [(1, 0, 0), (0, 1, 1)]
    assert sample.num_sampled_nodes == [[1, 1, 0], [0, 1, 1]]
    assert sample.num_sampled_edges == [[1, 2], [0, 2], [1, 1]]


def test_seeds_of_several_types() -> None:
    sample = papers((-1,), [[1], [1, 1]])
    assert [nodes.tolist() for nodes in sample.nodes] == [[1, 0], [1, 1, 0]]
    assert edges(sample, 0) == [(2, 0, 1), (0, 0, 2)]
    assert edges(sample, 1) == [(0, 0, 2)]
    assert edges(sample, 2) == [(1, 0, 1)]
    assert sample.num_sampled_nodes == [[1, 1], [2, 1]]


def test_types_not_reached_are_there_and_empty() -> None:
    relations = [Relation(CITES.adjacency, (-1,), 0, 0)]
    sample = KHop([2, 9, 0], relations).sample(0, [np.array([0]), np.array([]), np.array([])])
    assert [nodes.tolist() for nodes in sample.nodes] == [[0, 1], [], []]
    assert sample.num_sampled_nodes == [[1, 1], [0, 0], [0, 0]]


def test_a_cap_counts_what_all_edge_types_add_to_a_node_type() -> None:
    relations = [
        Relation(WROTE.adjacency, (-1,), 0, 1, ("a", "first", "b")),
        Relation(WROTE.adjacency, (-1,), 0, 1, ("a", "second", "b")),
    ]
    sampler = KHop([2, 2], relations, node_caps=(1,))
    sample = sampler.sample(0, [np.array([0, 1]), np.array([], np.int64)])
    assert sample.nodes[1].tolist() == [0]
    assert edges(sample, 0) == edges(sample, 1) == [(0, 0, 0), (0, 1, 1)]


def test_one_hop_by_itself_speaks_of_global_ids() -> None:
    counts, neighbors, ids = kernels.draw_hop(small().adjacency, np.array([1, 5, 0, 1]), -1, 0)
    assert counts.tolist() == [2, 0, 3, 2]
    assert neighbors.tolist() == [0, 3, 1, 2, 3, 0, 3]
    assert ids.tolist() == [3, 4, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("fanout", [3, 10**6, 2**62])
def test_one_hop_with_a_fan_out_beyond_every_degree_takes_all(fanout: int) -> None:
    counts, _, ids = kernels.draw_hop(small().adjacency, np.arange(6), fanout, 0)
    assert counts.tolist() == [3, 2, 0, 1, 0, 0]
    assert ids.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_graph_of_one_node_and_one_of_none() -> None:
    loop = Adjacency(np.array([0, 1]), np.array([0]))
    sample = KHop([1], [Relation(loop, (5, 5))]).sample(0, [np.array([0])])
    assert edges(sample) == [(0, 0, 0)]
    nothing = Adjacency(np.array([0]), np.empty((0, 2), np.int32))
    sample = KHop([0], [Relation(nothing, (5, 5))]).sample(0, [np.array([])])
    assert sample.num_sampled_nodes == [[0, 0, 0]]


def test_no_types_at_all_are_an_empty_batch() -> None:
    sample = KHop([], []).sample(0, [])
    assert (sample.nodes, sample.rows) == ([], [])


def test_hops_count_also_where_there_are_no_edges_to_follow() -> None:
    sample = KHop([3], [], num_hops=2).sample(0, [np.array([2, 2])])
    assert sample.nodes[0].tolist() == [2, 2]
    assert sample.num_sampled_nodes == [[2, 0, 0]]
