"""What a sampler with trees, weights or times refuses, and how it says so."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.kernels import Adjacency, Buffers, KHop, Relation, _native
from penstock.kernels.arrays import Array

ROWS = Adjacency(np.array([0, 2, 3]), np.array([0, 1, 0]))
SEEDS = [np.array([0, 1])]
ZEROS = np.zeros(3, np.int64)


def khop(weights: Array | None = None, times: Array | None = None, **options: bool) -> KHop:
    return KHop([2], [Relation(ROWS, (1,), weights=weights, times=times)], **options)


@pytest.mark.parametrize("name", ["weights", "times"])
@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"must be int64 \[3\], not float64 \[3\]"),
        (np.zeros(3, np.int32), r"must be int64 \[3\], not int32 \[3\]"),
        (np.zeros(2, np.int64), r"must be int64 \[3\], not int64 \[2\]"),
        (np.zeros((3, 1), np.int64), r"must be int64 \[3\], not int64 \[3, 1\]"),
        (np.zeros(6, np.int64)[::2], "must be contiguous and aligned"),
    ],
)
def test_numbers_that_do_not_go_with_the_edges(name: str, array: Array, message: str) -> None:
    with pytest.raises(ValueError, match=f"{name} of relation 0 {message}"):
        KHop([2], [Relation(ROWS, (1,), **{name: array})], disjoint=True)  # type: ignore[arg-type]


def test_weights_together_with_times() -> None:
    with pytest.raises(ValueError, match="relation 0 has weights and times"):
        khop(ZEROS, ZEROS, disjoint=True)


def test_times_without_trees() -> None:
    with pytest.raises(ValueError, match="a relation with times needs disjoint sampling"):
        khop(times=ZEROS)


def test_seeds_without_the_times_that_count() -> None:
    with pytest.raises(ValueError, match="times are missing"):
        khop(times=ZEROS, disjoint=True).sample(1, SEEDS)


def test_times_of_seeds_that_have_no_trees() -> None:
    with pytest.raises(ValueError, match="times are for disjoint sampling"):
        khop().sample(1, SEEDS, times=[np.array([1, 2])])


@pytest.mark.parametrize("times", [[], [np.array([1])], [np.array([1, 2, 3])], [SEEDS[0]] * 2])
def test_times_that_do_not_go_with_the_seeds(times: list[Array]) -> None:
    with pytest.raises(ValueError, match="one time for every seed"):
        khop(times=ZEROS, disjoint=True).sample(1, SEEDS, times=times)


def test_times_that_are_fractions() -> None:
    with pytest.raises(ValueError, match=r"times\[0\] must be integers, not float64"):
        khop(times=ZEROS, disjoint=True).sample(1, SEEDS, times=[np.array([0.5, 1.0])])


def test_memory_for_trees_is_there_for_disjoint_sampling_and_only_for_it() -> None:
    with pytest.raises(ValueError, match=r"out.trees must be there"):
        khop(disjoint=True).sample(1, SEEDS, Buffers.allocate([200], [200]))
    with pytest.raises(ValueError, match=r"out.trees must be there"):
        khop().sample(1, SEEDS, Buffers.allocate([200], [200], with_trees=True))


def test_memory_for_trees_that_cannot_be_written_to() -> None:
    out = Buffers.allocate([200], [200], with_trees=True)
    assert out.trees is not None
    out.trees[0].flags.writeable = False
    with pytest.raises(ValueError, match=r"out.trees\[0\] must be contiguous, aligned and writ"):
        khop(disjoint=True).sample(1, SEEDS, out)


def test_memory_for_trees_that_is_also_that_of_nodes() -> None:
    out = Buffers.allocate([200], [200], with_trees=True)
    assert out.trees is not None
    out.trees[0] = out.nodes[0]
    with pytest.raises(ValueError, match="must not share memory"):
        khop(disjoint=True).sample(1, SEEDS, out)


def test_seeds_and_times_that_lie_in_the_memory_to_be_written() -> None:
    out = Buffers.allocate([200], [200], with_trees=True)
    assert out.trees is not None
    out.nodes[0][:2] = [1, 0]
    out.trees[0][:2] = [0, 5]
    times = np.array([1, 5, 0])
    sampler = khop(times=times, disjoint=True)
    sample = sampler.sample(1, [out.nodes[0][:2]], out, times=[out.trees[0][:2]])
    assert sample.num_sampled_edges == [[2]]
    assert sample.nodes[0][:2].tolist() == [1, 0]


# The native module by itself: what the face has checked may be wrong there, and must not hurt.


def native(weights: list[Array | None], times: list[Array | None], disjoint: bool) -> object:
    args = ([2], [ROWS.native], [0], [0], [1], [[1]], 1, False, [])
    return _native.KHopSampler(*args, weights, times, disjoint, False)


@pytest.mark.parametrize(
    ("weights", "times", "disjoint"),
    [
        ([ZEROS, ZEROS], [], True),
        ([], [None, None], True),
        ([ZEROS[:2]], [], True),
        ([], [ZEROS[:2]], True),
        ([ZEROS], [ZEROS], True),
        ([], [ZEROS], False),
    ],
)
def test_the_native_sampler_refuses_what_it_cannot_work_with(
    weights: list[Array | None], times: list[Array | None], disjoint: bool
) -> None:
    with pytest.raises(ValueError, match=r"need|one entry|not both"):
        native(weights, times, disjoint)


def test_the_native_sampler_refuses_trees_and_times_that_do_not_go_together() -> None:
    plain, timed = native([], [], False), native([], [ZEROS], True)
    out = [np.empty(9, np.int64) for _ in range(5)]
    lists = [[array] for array in out]
    for sampler, trees, times in (
        (plain, lists[4], None),
        (timed, None, [SEEDS[0]]),
        (timed, lists[4], None),
        (timed, lists[4], [SEEDS[0][:1]]),
        (timed, lists[4], []),
        (timed, [], [SEEDS[0]]),
    ):
        with pytest.raises(ValueError, match=r"need|is needed"):
            sampler.sample(1, SEEDS, *lists[:4], trees, times)  # type: ignore[attr-defined]
