"""Slots in shared memory: whole, apart from each other, and costing what is written to them."""

from __future__ import annotations

import mmap
import os
import signal

import msgspec
import numpy as np
import pytest

from penstock.errors import ProtocolError
from penstock.wire.messages import SlotPlan
from penstock.workers.arena import GUARD, Arena
from tests.graph.shared_children import (
    open_descriptors,
    run_child,
    segments_made_by,
    start_child,
)
from tests.workers.arenas import PREAMBLE, SLOT, attached, kinds, two_mappings

pytestmark = pytest.mark.usefixtures("no_leaks")


# --- slots -------------------------------------------------------------------------------------


@kinds
def test_what_is_written_in_one_mapping_is_read_in_another(kind: str) -> None:
    with two_mappings(kind=kind) as (arena, other):
        arena.memory(1)[:] = 7
        assert np.all(other.memory(1) == 7)
        assert not other.memory(0).any()


@kinds
def test_what_a_worker_writes_is_read_here(kind: str) -> None:
    with Arena.create(3, SLOT, SLOT, kind=kind) as arena:
        program = "given_arena().memory(2)[:] = 9; say(None)"
        run_child(PREAMBLE + program, arena.plan, *arena.descriptors, pass_fds=arena.descriptors)
        assert np.all(arena.memory(2) == 9)


def test_a_slot_has_at_least_the_bytes_asked_for() -> None:
    with Arena.create(2, 1, 1) as arena:
        assert arena.plan.slot_bytes == mmap.PAGESIZE
        assert arena.memory(0).nbytes == arena.memory(1).nbytes == mmap.PAGESIZE


def test_a_batch_may_be_at_least_as_large_as_a_slot() -> None:
    with Arena.create(1, SLOT, 1) as arena:
        assert arena.plan.most_bytes == SLOT


def test_a_slot_is_writable_for_all_who_attach() -> None:
    with two_mappings() as (_, other):
        assert other.memory(0).flags.writeable


def test_slots_begin_at_a_page() -> None:
    with Arena.create(3, 1, 1) as arena:
        assert [arena.memory(slot).ctypes.data % mmap.PAGESIZE for slot in range(3)] == [0, 0, 0]


def test_no_array_over_a_slot_shows_more_than_the_slot() -> None:
    """CONTRACT 21: whatever a view is derived from ends where the slot ends."""
    with Arena.create(3, SLOT, SLOT) as arena:
        array = arena.memory(1)[5:].view(np.int8)
        while isinstance(array.base, np.ndarray):
            array = array.base
            assert array.nbytes <= SLOT
        assert np.asarray(array.base).nbytes == SLOT


@pytest.mark.parametrize("slot", [-1, 2])
def test_a_slot_that_is_not_there_is_refused(slot: int) -> None:
    with Arena.create(2, SLOT, SLOT) as arena:
        with pytest.raises(ValueError, match=f"slot is {slot}: there are 2"):
            arena.memory(slot)


@pytest.mark.parametrize(("slots", "slot_bytes"), [(0, 1), (-1, 1), (1, 0), (1, -5)])
def test_an_arena_has_slots_with_room(slots: int, slot_bytes: int) -> None:
    with pytest.raises(ValueError, match="it must be at least 1"):
        Arena.create(slots, slot_bytes, 1)


# --- guard -------------------------------------------------------------------------------------

# Runs past the slot's end, or before its beginning, as native code with a bug would.
STRAY = """
memory = given_arena().memory({slot})
say(len(memory))
{act}
say("still alive")
"""


@kinds
@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize(
    "act",
    [
        "ctypes.memset(memory.ctypes.data + len(memory), 255, 1)",
        "ctypes.memset(memory.ctypes.data, 255, len(memory) + 1)",
        "ctypes.memset(memory.ctypes.data + len(memory) + 500_000, 255, 1)",
        "ctypes.string_at(memory.ctypes.data + len(memory), 1)",
    ],
    ids=["writes one byte more", "writes all and one more", "leaps ahead", "reads one byte more"],
)
def test_running_past_a_slot_is_deadly_and_harms_no_other(kind: str, slot: int, act: str) -> None:
    """CONTRACT 21: writing past a slot is impossible."""
    with Arena.create(2, SLOT, SLOT, kind=kind) as arena:
        arena.memory(1 - slot)[:] = 5
        program = PREAMBLE + STRAY.format(slot=slot, act=act)
        child = start_child(program, arena.plan, *arena.descriptors, pass_fds=arena.descriptors)
        output, _ = child.communicate()
        assert (output, child.returncode) == (f"{SLOT}\n", -signal.SIGSEGV)
        assert np.all(arena.memory(1 - slot) == 5)


def test_running_before_a_slot_is_deadly_and_harms_no_other() -> None:
    """CONTRACT 21"""
    with Arena.create(2, SLOT, SLOT) as arena:
        act = "ctypes.memset(memory.ctypes.data - 1, 255, 1)"
        program = PREAMBLE + STRAY.format(slot=1, act=act)
        child = start_child(program, arena.plan, *arena.descriptors, pass_fds=arena.descriptors)
        output, _ = child.communicate()
        assert (output, child.returncode) == (f"{SLOT}\n", -signal.SIGSEGV)
        assert not arena.memory(0).any()


def test_running_past_memory_for_one_batch_is_deadly_too() -> None:
    """CONTRACT 21"""
    program = """
memory = Arena.one_off(70_000).memory(0)
say(len(memory))
ctypes.memset(memory.ctypes.data, 255, len(memory) + 1)
"""
    child = start_child(PREAMBLE + program)
    output, _ = child.communicate()
    pages = -(-70_000 // mmap.PAGESIZE)
    assert (output, child.returncode) == (f"{pages * mmap.PAGESIZE}\n", -signal.SIGSEGV)


# --- memory ------------------------------------------------------------------------------------


@kinds
def test_slots_cost_nothing_until_they_are_written(kind: str) -> None:
    with Arena.create(4, 1 << 30, 1 << 30, kind=kind) as arena, attached(arena) as other:
        assert arena.resident == 0
        other.memory(3)[: 1 << 20] = 1
        assert arena.resident == 1 << 20


@kinds
def test_trimming_gives_the_pages_of_a_slot_back(kind: str) -> None:
    with two_mappings(slots=3, kind=kind) as (arena, other):
        for slot in range(3):
            other.memory(slot)[:] = 1 + slot
        arena.trim([0, 2])
        assert arena.resident == SLOT
        assert np.all(other.memory(1) == 2)


def test_trimming_gives_pages_back_that_a_process_has_mapped() -> None:
    with two_mappings() as (arena, other):
        before = mapped_bytes(other.memory(0))
        other.memory(0)[:] = 1
        assert mapped_bytes(other.memory(0)) == before + SLOT
        arena.trim([0])
        assert mapped_bytes(other.memory(0)) == before


@kinds
def test_a_slot_can_be_used_again_after_trimming(kind: str) -> None:
    with two_mappings(kind=kind) as (arena, other):
        memory = other.memory(0)
        memory[:] = 1
        arena.trim([0])
        assert not memory.any()
        memory[:] = 2
        assert np.all(arena.memory(0) == 2)


def test_trimming_a_slot_never_written_is_nothing() -> None:
    with Arena.create(2, SLOT, SLOT) as arena:
        arena.trim([0, 1])
        arena.trim([])
        assert arena.resident == 0


def test_a_slot_that_is_not_there_is_not_trimmed() -> None:
    with Arena.create(2, SLOT, SLOT) as arena:
        with pytest.raises(ValueError, match="slot is 2"):
            arena.trim([2])


# --- descriptors and names ---------------------------------------------------------------------


@kinds
def test_the_creator_keeps_one_descriptor_and_gives_it_back(kind: str) -> None:
    """CONTRACT 23: the number of open files does not depend on what is held."""
    before = open_descriptors()
    with Arena.create(16, SLOT, SLOT, kind=kind) as arena:
        assert open_descriptors() == before | {*arena.descriptors}
        assert len(arena.descriptors) == 1
        memory = arena.memory(0)
    assert open_descriptors() == before
    memory[:] = 1


@kinds
def test_whoever_attaches_keeps_no_descriptor(kind: str) -> None:
    with Arena.create(16, SLOT, SLOT, kind=kind) as arena:
        before = open_descriptors()
        with attached(arena) as other:
            assert other.descriptors == ()
            assert open_descriptors() == before


def test_an_arena_has_no_name_that_could_be_left_behind() -> None:
    before = segments_made_by(os.getpid())
    with Arena.create(1, SLOT, SLOT, kind="named"):
        assert segments_made_by(os.getpid()) == before


def test_a_descriptor_of_other_memory_is_refused_and_closed() -> None:
    with Arena.create(1, SLOT, SLOT) as arena, Arena.create(1, SLOT, SLOT) as stranger:
        before = open_descriptors()
        with pytest.raises(ValueError, match="not that of the shared memory"):
            Arena.attach(arena.plan, os.dup(*stranger.descriptors))
        assert open_descriptors() == before


@pytest.mark.parametrize(
    "wrong", [{"slots": 3}, {"slots": 0}, {"slot_bytes": SLOT // 2}, {"slot_bytes": SLOT + 1}]
)
def test_a_plan_that_does_not_fit_its_memory_is_refused(wrong: dict[str, int]) -> None:
    with Arena.create(2, SLOT, SLOT) as arena:
        before = open_descriptors()
        plan = msgspec.structs.replace(arena.plan, **wrong)
        with pytest.raises(ProtocolError, match="are not what"):
            Arena.attach(plan, os.dup(*arena.descriptors))
        assert open_descriptors() == before


def test_a_plan_survives_the_wire() -> None:
    with Arena.create(2, SLOT, SLOT) as arena:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(arena.plan), type=SlotPlan) == (
            arena.plan
        )


@pytest.mark.parametrize("act", [lambda a: a.memory(0), lambda a: a.trim([0])])
def test_a_closed_arena_says_so(act: object) -> None:
    arena = Arena.create(1, SLOT, SLOT)
    arena.close()
    arena.close()
    with pytest.raises(ValueError, match="has been closed"):
        act(arena)  # type: ignore[operator]


@kinds
def test_more_than_can_be_addressed_is_refused(kind: str) -> None:
    """CONTRACT 53: refused at the door with a clear error."""
    with pytest.raises(ValueError, match="no system can map more than"):
        Arena.create(4, 1 << 61, SLOT, kind=kind)


# --- memory for one batch ----------------------------------------------------------------------


@kinds
def test_memory_for_one_batch_outlives_its_maker(kind: str) -> None:
    """CONTRACT 21: a batch larger than its slot; the worker may be gone before the rank looks."""
    arena = Arena.one_off(SLOT + 1, kind=kind)
    arena.memory(0)[:] = 3
    handle, fd = arena.plan.memory, os.dup(*arena.descriptors)
    arena.close()
    before = open_descriptors()
    with Arena.attach_one_off(handle, fd) as there:
        assert there.memory(0).nbytes >= SLOT + 1
        assert np.all(there.memory(0) == 3)
        assert open_descriptors() == before - {fd}


def test_memory_that_was_not_made_for_one_batch_is_refused() -> None:
    with Arena.create(1, SLOT, SLOT) as arena:
        before = open_descriptors()
        handle = msgspec.structs.replace(arena.plan.memory, nbytes=GUARD)
        with pytest.raises(ValueError, match="speaks of"):
            Arena.attach_one_off(handle, os.dup(*arena.descriptors))
        assert open_descriptors() == before


def test_a_batch_without_bytes_has_memory_too() -> None:
    with Arena.one_off(0) as arena:
        assert arena.memory(0).nbytes > 0


def mapped_bytes(memory: np.ndarray) -> int:
    """Bytes in this process's page tables of the mapping in which an array begins.

    What the kernel says of the whole process is only about right, and has others' memory in it.
    """
    address, is_here = memory.ctypes.data, False
    with open("/proc/self/smaps") as mappings:
        for line in mappings:
            first, *rest = line.split()
            if not first.endswith(":"):
                begin, end = (int(part, 16) for part in first.split("-"))
                is_here = begin <= address < end
            elif is_here and first == "Rss:":
                return int(rest[0]) * 1024
    raise AssertionError("it is not mapped")
