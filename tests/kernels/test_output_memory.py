"""Batches go into the caller's memory: exactly enough is enough, less is told, nothing else is
touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.errors import BatchTooLarge
from penstock.kernels import Buffers, Sample
from penstock.kernels.arrays import Ids
from tests.kernels.large import large_job
from tests.kernels.strategies import JOBS, Job, assert_same

CANARY = -(2**63) + 12345
FENCE = 4


@dataclass
class Fenced:
    """Arrays of exactly the lengths asked for, with a fence before and behind each."""

    arenas: list[Ids] = field(default_factory=list)

    def array(self, size: int) -> Ids:
        arena = np.full(size + 2 * FENCE, CANARY, np.int64)
        self.arenas.append(arena)
        return arena[FENCE : FENCE + size]

    def buffers(
        self, nodes: Sequence[int], edges: Sequence[Sequence[int]], with_edge_ids: bool = True
    ) -> Buffers:
        """`edges` are the lengths of rows, columns and edge ids."""
        rows, cols, ids = ([self.array(size) for size in sizes] for sizes in edges)
        return Buffers(
            [self.array(size) for size in nodes], rows, cols, ids if with_edge_ids else None
        )

    def check(self) -> None:
        for arena in self.arenas:
            assert np.all(arena[:FENCE] == CANARY)
            assert np.all(arena[-FENCE:] == CANARY)


def needs(sample: Sample) -> tuple[list[int], list[int]]:
    return [len(array) for array in sample.nodes], [len(array) for array in sample.rows]


@given(JOBS, st.booleans())
def test_memory_of_exactly_the_size_is_enough(job: Job, with_edge_ids: bool) -> None:
    expected = job.native()
    nodes, edges = needs(expected)
    fenced = Fenced()
    sample = job.native(fenced.buffers(nodes, [edges] * 3, with_edge_ids))
    assert (sample.edge_ids is not None) == with_edge_ids
    assert_same(sample, expected)
    fenced.check()


@given(JOBS, st.integers(0, 3), st.integers(0, 9), st.integers(1, 3))
def test_memory_too_small_anywhere_says_what_is_needed(
    job: Job, which: int, number: int, missing: int
) -> None:
    expected = job.native()
    nodes, edges = needs(expected)
    sizes = [list(nodes), list(edges), list(edges), list(edges)]
    assume(sizes[which])
    number %= len(sizes[which])
    assume(sizes[which][number] > 0)
    sizes[which][number] = max(sizes[which][number] - missing, 0)
    fenced = Fenced()
    with pytest.raises(BatchTooLarge) as caught:
        job.native(fenced.buffers(sizes[0], sizes[1:]))
    fenced.check()
    assert caught.value.nodes == nodes
    assert caught.value.edges == edges
    exact = Buffers.allocate(caught.value.nodes, caught.value.edges)
    assert_same(job.native(exact), expected)


def test_edge_ids_need_no_memory_where_nobody_wants_them() -> None:
    job = large_job(500, (5, 5), 50, paired=True, dtype="int32", seed=1)
    nodes, edges = needs(job.native())
    sample = job.native(Buffers.allocate(nodes, edges, with_edge_ids=False))
    assert sample.edge_ids is None
    assert_same(sample, job.twin())


def test_the_batch_lies_in_the_memory_given() -> None:
    job = large_job(500, (5, 5), 50, paired=True, dtype="int32", seed=1)
    out = Buffers.allocate([5000], [5000])
    sample = job.native(out)
    assert out.edge_ids is not None
    assert sample.edge_ids is not None
    for cut, whole in zip(
        [sample.nodes[0], sample.rows[0], sample.cols[0], sample.edge_ids[0]],
        [out.nodes[0], out.rows[0], out.cols[0], out.edge_ids[0]],
        strict=True,
    ):
        assert cut.ctypes.data == whole.ctypes.data
        assert len(cut) < len(whole)


# Room is asked for by the chunk of some hundred picks: batches around that size, and with more and
# with less than a chunk to spare.
@pytest.mark.parametrize("spare", [0, 1, 100, 127, 128, 129, 511, 512, 513])
@pytest.mark.parametrize("num_seeds", [1, 40, 60, 200])
def test_large_batches_fit_with_any_room_to_spare(num_seeds: int, spare: int) -> None:
    job = large_job(900, (10, 3), num_seeds, paired=True, dtype="int64", seed=num_seeds)
    expected = job.native()
    nodes, edges = needs(expected)
    fenced = Fenced()
    room = [[size + spare for size in edges]] * 3
    assert_same(job.native(fenced.buffers([size + spare for size in nodes], room)), expected)
    fenced.check()


@pytest.mark.parametrize("room", [0, 1, 199, 200, 201, 700, 1500])
def test_large_batches_that_do_not_fit_say_what_they_need(room: int) -> None:
    job = large_job(3000, (10, 3), 200, paired=True, dtype="int64", seed=5)
    expected = needs(job.native())
    assert room < expected[0][0]
    for sizes in ([room], [[10**5]] * 3), ([10**5], [[room]] * 3):
        fenced = Fenced()
        with pytest.raises(BatchTooLarge) as caught:
            job.native(fenced.buffers(*sizes))
        fenced.check()
        assert (caught.value.nodes, caught.value.edges) == expected


def test_the_error_names_the_first_list_that_is_too_short() -> None:
    job = large_job(900, (10,), 200, paired=True, dtype="int64", seed=5)
    (nodes,), (edges,) = needs(job.native())
    with pytest.raises(BatchTooLarge, match=rf"out.nodes\[0\] has room for {nodes - 1} nodes"):
        job.native(Buffers.allocate([nodes - 1], [edges]))
    with pytest.raises(BatchTooLarge, match=rf"out.rows\[0\] has room for {edges - 7} edges"):
        job.native(Buffers.allocate([nodes], [edges - 7]))
    uneven = Buffers.allocate([nodes], [edges])
    uneven.cols[0] = uneven.cols[0][:-1]
    with pytest.raises(BatchTooLarge, match=r"out.cols\[0\] has room"):
        job.native(uneven)


def test_a_sampler_is_as_good_as_new_after_a_batch_that_did_not_fit() -> None:
    job = large_job(900, (10, 3), 200, paired=True, dtype="int64", seed=5)
    sampler = job.sampler
    for room in (100, 300, 600, 1000):
        with pytest.raises(BatchTooLarge):
            sampler.sample(9, job.seeds, Buffers.allocate([room], [room]))
        assert_same(sampler.sample(job.key, job.seeds), job.twin())
