"""Which ranges are page-locked: each array lies in one, and none outlives its memory."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.loader.device.pins import Pins, address_of
from penstock.loader.device.transfer import most_locked
from penstock.rpc.buffer_pool import BufferPool, lasting
from penstock.workers.limits import Readings
from tests.loader.device.standin import StandIn

PAGE = mmap.PAGESIZE
PAGES = 64
pieces = st.lists(st.tuples(st.integers(0, PAGES * PAGE - 1), st.integers(0, 9 * PAGE)), max_size=8)


def memory_of(pages: int) -> Any:
    """Whole pages, which go with their last array."""
    return lasting(BufferPool(0).lend(pages * PAGE))


def arrays_in(memory: Any, wanted: list[tuple[int, int]]) -> list[Any]:
    return [memory[begin : begin + size] for begin, size in wanted]


@given(batches=st.lists(pieces, min_size=1, max_size=6))
def test_every_array_lies_in_one_range_of_whole_pages(batches: list[list[tuple[int, int]]]) -> None:
    gpu = StandIn()
    memory = memory_of(PAGES)
    pins, whole = Pins(gpu, 1 << 40), (address_of(memory), address_of(memory) + memory.nbytes)
    for wanted in batches:
        arrays = arrays_in(memory, wanted)
        pins.cover(memory, arrays)
        for array in arrays:
            if array.nbytes:
                assert pins.covers(address_of(array), array.nbytes)
                assert gpu._is_locked(address_of(array), array.nbytes)
            del array
        assert pins.nbytes == gpu.nbytes
        assert all(whole[0] <= begin < end <= whole[1] for begin, end in gpu.locked.items())
    del arrays, memory
    assert gpu.locked == {}


def test_what_is_locked_is_not_locked_again() -> None:
    gpu, memory = StandIn(), memory_of(PAGES)
    pins = Pins(gpu, 1 << 40)
    for _ in range(5):
        pins.cover(memory, [memory[: 8 * PAGE], memory[20 * PAGE : 21 * PAGE]])
    assert gpu.registered == 2


def test_an_array_that_grows_a_little_stays_in_its_range() -> None:
    gpu, memory = StandIn(), memory_of(PAGES)
    pins = Pins(gpu, 1 << 40)
    pins.cover(memory, [memory[: 32 * PAGE]])
    pins.cover(memory, [memory[: 35 * PAGE]])
    assert gpu.registered == 1
    pins.cover(memory, [memory[: 50 * PAGE]])
    assert gpu.registered == 2
    assert len(gpu.locked) == 1


def test_no_more_is_locked_than_may_be() -> None:
    gpu, memory = StandIn(), memory_of(PAGES)
    pins = Pins(gpu, 16 * PAGE)
    pins.cover(memory, [memory[: 8 * PAGE], memory[20 * PAGE : 40 * PAGE]])
    assert pins.covers(address_of(memory), 8 * PAGE)
    assert not pins.covers(address_of(memory) + 20 * PAGE, PAGE)
    assert gpu.nbytes <= 16 * PAGE


def test_after_a_refusal_nothing_more_is_tried(caplog: Any) -> None:
    """CONTRACT 76"""
    gpu, memory = StandIn(most_bytes=4 * PAGE), memory_of(PAGES)
    pins = Pins(gpu, 1 << 40)
    pins.cover(memory, [memory[: 2 * PAGE], memory[8 * PAGE : 40 * PAGE]])
    pins.cover(memory, [memory[50 * PAGE : 51 * PAGE]])
    assert gpu.registered == 1
    assert [record.message for record in caplog.records] == [
        "memory is not page-locked, so moving batches takes longer: no more memory can be "
        "page-locked"
    ]


def test_ranges_that_were_left_are_unlocked_before_their_addresses_are_used_again() -> None:
    gpu, memory = StandIn(), memory_of(PAGES)
    pins = Pins(gpu, 1 << 40)
    pins.cover(memory, [memory[: 8 * PAGE]])
    pins._known.clear()  # as if the memory had gone, and an interrupt had struck in the finalizer
    pins.cover(memory, [memory[: 9 * PAGE]])
    assert gpu.registered == 2
    assert pins.nbytes == gpu.nbytes


def test_cuda_may_fail_at_any_time() -> None:
    """CONTRACT 76"""

    class Broken(StandIn):
        def unregister(self, address: int) -> None:
            raise RuntimeError("an illegal memory access was encountered")

    memory = memory_of(PAGES)
    pins = Pins(Broken(), 1 << 40)
    pins.cover(memory, [memory[: 8 * PAGE]])
    del memory
    assert pins.nbytes == 0


def test_arrays_of_numpy_s_own_are_covered_by_nothing() -> None:
    array = np.zeros(100)
    assert not Pins(StandIn(), 1 << 40).covers(address_of(array), array.nbytes)


GIB = 1 << 30


def test_the_bound_is_a_share_of_what_is_free_for_this_process() -> None:
    assert most_locked(Readings(4, memory_free=8 * GIB)) == 2 * GIB
    assert most_locked(Readings(4, memory_free=512 * GIB)) == 16 * GIB
    # In a container that may have less than the machine has.
    assert most_locked(Readings(4, memory_free=512 * GIB, memory_room=8 * GIB)) == 2 * GIB
    assert most_locked(Readings(4)) == 16 * GIB
