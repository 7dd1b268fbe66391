"""Weights and times in whole batches: what may be taken is, and nothing else."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given

from penstock.errors import BatchTooLarge, GraphFormatError
from penstock.kernels import Buffers
from tests.kernels.large import degrees_around, rows_with_degrees
from tests.kernels.strategies import Rows
from tests.kernels.test_damage import BAD_OFFSETS
from tests.kernels.tree_jobs import (
    TreeJob,
    assert_same_trees,
    one_type,
    rising,
    running_sums,
    tree_jobs,
)

# 0 has the neighbours 1, 2, 3; 1 has 0 and 3; 2 has none; 3 has 4; 4 has none. Ids are positions.
SMALL = Rows(np.array([0, 3, 5, 5, 6, 6]), np.array([1, 2, 3, 0, 3, 4]))
TIMES = np.array([10, 20, 30, 5, 15, 40])
WEIGHTS = np.array([0, 1, 0, 0, 0, 7])


def test_nothing_later_than_its_seed_is_taken() -> None:
    job = one_type(
        SMALL, (-1, -1), np.array([0, 0, 0]), times=TIMES, seed_times=np.array([9, 20, 40])
    )
    sample = job.native()
    assert sample.nodes[0].tolist() == [0, 0, 0, 1, 2, 1, 2, 3, 3, 4]
    assert (sample.trees or [])[0].tolist() == [0, 1, 2, 1, 1, 2, 2, 2, 1, 2]
    assert (sample.edge_ids or [])[0].tolist() == [0, 1, 0, 1, 2, 3, 4, 3, 4, 5]


def test_the_latest_are_taken_in_storage_order() -> None:
    job = one_type(
        SMALL, (2,), np.array([0, 0, 1]), times=TIMES, seed_times=np.array([25, 99, 14]), last=True
    )
    assert (job.native().edge_ids or [])[0].tolist() == [0, 1, 1, 2, 3]


def test_relations_without_times_are_not_restricted() -> None:
    job = one_type(SMALL, (-1,), np.array([0]), seed_times=np.array([-(2**63)]))
    assert (job.native().edge_ids or [])[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("fanout", [-1, 1, 2, 5])
def test_an_edge_of_weight_0_is_never_taken(fanout: int, disjoint: bool) -> None:
    """CONTRACT 45: also when the degree is below the fan-out."""
    sums = running_sums(SMALL, WEIGHTS)
    job = one_type(SMALL, (fanout,), np.array([0, 1, 3]), weights=sums, disjoint=disjoint)
    assert (job.native().edge_ids or [])[0].tolist() == [1, 5]


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("fanouts", [(10, 5), (33, 2), (3, -1)])
@pytest.mark.parametrize("with_replacement", [False, True])
def test_weighted_frontiers_of_many_blocks(
    fanouts: tuple[int, ...], with_replacement: bool, disjoint: bool
) -> None:
    rows = rows_with_degrees(degrees_around(max(fanouts[0], 3), 900, 1), 900)
    weights = np.random.default_rng(2).integers(0, 5, len(rows.entries)) ** 4
    job = one_type(
        rows,
        fanouts,
        np.arange(0, 900, 20),
        weights=running_sums(rows, weights),
        replace=with_replacement,
        disjoint=disjoint,
    )
    assert_same_trees(job.native(), job.twin())


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("fanouts", [(10, 5), (33, 2), (3, -1)])
@pytest.mark.parametrize("with_replacement", [False, True])
def test_temporal_frontiers_of_many_blocks(
    fanouts: tuple[int, ...], with_replacement: bool, last: bool
) -> None:
    rng = np.random.default_rng(3)
    rows = rows_with_degrees(degrees_around(max(fanouts[0], 3), 900, 1), 900)
    job = one_type(
        rows,
        fanouts,
        np.arange(0, 900, 20),
        times=rising(rows, rng.integers(0, 100, len(rows.entries))),
        seed_times=rng.integers(0, 120, 45),
        replace=with_replacement,
        last=last,
    )
    assert_same_trees(job.native(), job.twin())


@given(tree_jobs())
def test_a_batch_fits_memory_of_just_its_size(job: TreeJob) -> None:
    expected = job.native()
    nodes, edges = [len(ids) for ids in expected.nodes], [len(rows) for rows in expected.rows]
    exact = Buffers.allocate(nodes, edges, with_trees=job.disjoint)
    assert_same_trees(job.native(exact), expected)
    without = Buffers.allocate(nodes, edges, with_edge_ids=False, with_trees=job.disjoint)
    assert_same_trees(job.native(without), expected)


def test_trees_that_have_too_little_room_are_named() -> None:
    job = one_type(SMALL, (-1,), np.array([0, 1]))
    for room in (1, 6):
        out = Buffers.allocate([7], [5], with_trees=True)
        assert out.trees is not None
        out.trees[0] = out.trees[0][:room]
        with pytest.raises(
            BatchTooLarge, match=rf"out.trees\[0\] has room for {room} nodes"
        ) as told:
            job.native(out)
        assert (told.value.nodes, told.value.edges) == ([7], [5])


@pytest.mark.parametrize("by", ["uniform", "weights", "times"])
@pytest.mark.parametrize("fanout", [-1, 1, 2, 33])
@pytest.mark.parametrize("indptr", BAD_OFFSETS.values(), ids=BAD_OFFSETS)
def test_a_batch_that_meets_bad_offsets(indptr: list[int], fanout: int, by: str) -> None:
    rows = Rows(np.array(indptr), np.zeros((5, 2), np.int32))
    job = one_type(
        rows,
        (fanout,),
        np.array([3, 1]),
        weights=np.arange(5) if by == "weights" else None,
        times=np.arange(5) if by == "times" else None,
        seed_times=np.array([7, 7]),
    )
    with pytest.raises(GraphFormatError, match="damaged topology"):
        job.native()


@pytest.mark.parametrize("neighbor", [-1, 5, 2**62, -(2**63)])
def test_a_tree_that_meets_a_bad_neighbour(neighbor: int) -> None:
    rows = Rows(SMALL.indptr, SMALL.entries.copy())
    rows.entries[4] = neighbor
    with pytest.raises(GraphFormatError, match="damaged topology"):
        one_type(rows, (-1, -1), np.array([3, 0])).native()


@pytest.mark.parametrize(
    "numbers",
    [[3, 2, 1, 0, -1, -5], [-(2**63)] * 6, [2**63 - 1] * 6, [0, 2**63 - 1, -(2**63), 1, 0, 9]],
)
@pytest.mark.parametrize("fanout", [-1, 1, 2, 33])
def test_sums_and_times_that_are_none_give_edges_of_the_graph(
    numbers: list[int], fanout: int
) -> None:
    job = one_type(SMALL, (fanout, fanout), np.array([0, 1, 3]), seed_times=np.array([0, 1, 2]))
    (plain,) = job.chosen
    for what in ("weights", "times"):
        for with_replacement in (False, True):
            chosen = dataclasses.replace(plain, **{what: np.array(numbers)})
            odd = dataclasses.replace(job, chosen=[chosen], replace=with_replacement)
            sample = odd.native()
            edge_ids = (sample.edge_ids or [])[0]
            found = sample.nodes[0][sample.rows[0]]
            np.testing.assert_array_equal(found, SMALL.entries[edge_ids])
