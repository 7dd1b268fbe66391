"""What pushes give away, written down; and sizes of degrees, which only spare reading degrees."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.kernels import _native
from penstock.kernels.ppr import Push, PushOptions, PushRelation
from tests.kernels.ppr_jobs import both_ways, out_edges

STAR = both_ways([(0, 1), (0, 2), (0, 3), (0, 4)], 5)
SEEDS = np.array([0, 3])


def star(sizes: list[int] | None = None, **options: int) -> Push:
    given = None if sizes is None else np.array(sizes, np.uint8)
    return Push([5], [PushRelation(STAR.adjacency, sizes=given)], PushOptions(**options))


def test_a_record_has_as_many_edges_as_were_pushed_along() -> None:
    push = star()
    record = push.record(0, SEEDS)
    recorded = push.pushes
    push.sample(0, SEEDS)
    assert record.counts.sum() == recorded == push.pushes - recorded


def test_a_record_begins_with_the_row_and_the_share_of_the_first_seed() -> None:
    record = star().record(0, SEEDS)
    assert (record.begins[0], record.counts[0], record.shares[0]) == (0, 4, 0.0625)


def test_chosen_edges_are_rows_of_one_edge() -> None:
    record = star(num_neighbors_per_hop=2).record(0, SEEDS)
    assert set(record.counts.tolist()) == {1}


def test_a_record_replayed_gives_every_node_what_came_to_it() -> None:
    push = Push([2], [PushRelation(out_edges([(0, 1)], 2).adjacency)], PushOptions())
    residuals, record = np.zeros(2), push.record(0, np.array([0]))
    adjacency = push.relations[0].adjacency.native
    _native.floor_replay(residuals, adjacency, record.begins, record.counts, record.shares)
    assert residuals.tolist() == [0.0, 0.25]


@pytest.mark.parametrize(("begin", "count"), [(-1, 1), (0, -1), (8, 1), (0, 9), (2**62, 2**62)])
def test_rows_outside_the_graph_are_not_replayed(begin: int, count: int) -> None:
    one = [np.array([value]) for value in (begin, count)]
    with pytest.raises(IndexError, match="a row outside the graph"):
        _native.floor_replay(np.zeros(5), STAR.adjacency.native, *one, np.ones(1))


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1, 1], [255, 200, 64, 1, 255]])
def test_sizes_that_say_too_little_change_nothing(sizes: list[int]) -> None:
    """Degrees themselves decide."""
    expected, sample = star().sample(0, SEEDS[1:]), star(sizes).sample(0, SEEDS[1:])
    np.testing.assert_array_equal(sample.edge_attr[0], expected.edge_attr[0])
    np.testing.assert_array_equal(sample.nodes[0], expected.nodes[0])
