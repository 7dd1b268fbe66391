"""A slot that is lent comes back once, when its last view has gone, wherever that happens."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.wire.frames import read
from penstock.workers.arena import Arena
from tests.wire.streams import BOUND_S, child_with_stream, numbers, received_until_end
from tests.workers.arenas import SLOT, attached, two_mappings, written

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_a_slot_comes_back_when_its_memory_is_let_go() -> None:
    returned: list[int] = []
    with two_mappings() as (_, rank):
        memory = rank.lend(1, returned.append)
        assert returned == []
        del memory
        assert returned == [1]


def test_every_view_keeps_the_slot() -> None:
    returned: list[int] = []
    with two_mappings() as (arena, rank):
        layouts = written(arena.memory(0), a=np.arange(6), b=np.ones((2, 3)))
        arrays = read(rank.lend(0, returned.append), layouts)
        views = [arrays["a"][2:].reshape(2, 2), arrays["b"].T, memoryview(arrays["b"])]
        del arrays
        while views:
            assert returned == []
            views.pop()
        assert returned == [0]


def test_a_tensor_keeps_the_slot_without_copying() -> None:
    returned: list[int] = []
    with two_mappings() as (arena, rank):
        layouts = written(arena.memory(0), x=np.arange(6.0))
        arrays = read(rank.lend(0, returned.append), layouts)
        tensor = torch.from_numpy(arrays.pop("x"))[1:]
        arena.memory(0)[8:16] = 0
        assert tensor[0].item() == 0.0
        assert returned == []
        del tensor
        assert returned == [0]


def test_a_tensor_cannot_be_made_to_reach_past_its_array() -> None:
    with two_mappings() as (arena, rank):
        layouts = written(arena.memory(0), x=np.arange(6))
        tensor = torch.from_numpy(read(rank.memory(0), layouts)["x"])
        assert tensor.untyped_storage().nbytes() == 48
        with pytest.raises(RuntimeError, match="not resizable"):
            tensor.resize_(SLOT)


def test_a_copy_does_not_keep_the_slot() -> None:
    returned: list[int] = []
    with two_mappings() as (_, rank):
        copy = rank.lend(0, returned.append).copy()
        assert returned == [0]
        assert copy.nbytes == SLOT


def test_a_slot_lent_again_comes_back_again() -> None:
    returned: list[int] = []
    with two_mappings() as (_, rank):
        for _ in range(3):
            rank.lend(0, returned.append)
        assert returned == [0, 0, 0]


def test_batches_may_be_changed_and_the_next_one_in_the_slot_shows_nothing_of_it() -> None:
    with two_mappings() as (arena, rank):
        first = {"x": np.arange(100.0), "n_id": np.arange(50)}
        layouts = written(arena.memory(0), **first)
        batch = read(rank.lend(0, lambda slot: None), layouts)
        for array in batch.values():
            array[...] = -1
        del array, batch
        second = {"n_id": np.arange(7, 80), "x": np.linspace(0, 1, 33)}
        layouts = written(arena.memory(0), **second)
        batch = read(rank.lend(0, lambda slot: None), layouts)
        for name, values in second.items():
            np.testing.assert_array_equal(batch[name], values, strict=True)


def test_views_stay_valid_after_the_arena_is_closed_and_the_slot_still_comes_back() -> None:
    returned: list[int] = []
    with Arena.create(1, SLOT, SLOT) as arena:
        rank = attached(arena)
    memory = rank.lend(0, returned.append)
    rank.close()
    memory[:] = 4
    assert int(memory.sum()) == 4 * SLOT
    del memory
    assert returned == [0]


def test_the_mapping_goes_with_the_last_loan() -> None:
    before = mappings()
    with Arena.create(1, SLOT, SLOT) as arena:
        rank = attached(arena)
    memory = rank.lend(0, lambda slot: None)
    rank.close()
    assert len(mappings()) > len(before)
    del memory
    assert mappings() == before


def test_memory_for_one_batch_comes_back_too() -> None:
    returned: list[int] = []
    with Arena.one_off(SLOT) as maker:
        with Arena.attach_one_off(maker.plan.memory, os.dup(*maker.descriptors)) as there:
            memory = there.lend(0, lambda _: returned.append(3))
    memory[:] = 1
    assert returned == []
    del memory
    assert returned == [3]


def test_a_slot_caught_in_a_cycle_comes_back_when_that_is_collected() -> None:
    returned: list[int] = []
    with two_mappings() as (_, rank):
        cycle: list[object] = [rank.lend(0, returned.append)]
        cycle.append(cycle)
        del cycle
        gc.collect()
        assert returned == [0]


def test_the_last_look_of_a_dying_object_sees_the_batch_before_it_comes_back() -> None:
    """Its finalizer runs while it is collected, and may still read."""
    events: list[object] = []

    class Holder:
        def __init__(self, memory: np.ndarray) -> None:
            self.memory = memory
            self.itself = self

        def __del__(self) -> None:
            events.append("read")

    with two_mappings() as (_, rank):
        Holder(rank.lend(0, events.append))
        gc.collect()
        assert events == ["read", 0]


def test_a_slot_comes_back_from_the_thread_that_lets_go_last() -> None:
    returned: list[tuple[int, int]] = []

    def note(slot: int) -> None:
        returned.append((slot, threading.get_ident()))

    def let_go() -> None:
        held.clear()

    with two_mappings() as (_, rank):
        held = [rank.lend(0, note)]
        thread = threading.Thread(target=let_go)
        thread.start()
        thread.join()
        assert returned == [(0, thread.ident)]


def test_many_threads_letting_go_of_views_return_each_slot_once() -> None:
    returned: list[int] = []
    with two_mappings(slots=20) as (_, rank):
        batches = [rank.lend(slot, returned.append) for slot in range(20)]
        shares = [[batch[at:] for batch in batches] for at in range(8)]
        batches.clear()
        start = threading.Barrier(8)

        def let_go(share: list[np.ndarray]) -> None:
            start.wait(BOUND_S)
            share.clear()

        threads = [threading.Thread(target=let_go, args=(share,)) for share in shares]
        del shares
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        del threads, thread
        assert sorted(returned) == list(range(20))


def test_a_failing_return_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(slot: int) -> None:
        raise RuntimeError("cannot")

    ignored: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda info: ignored.append(str(info.exc_value)))
    with two_mappings() as (_, rank):
        rank.lend(0, fail)
    assert ignored == ["cannot"]


# --- in processes of their own: collection everywhere, the end, forks --------------------------

# A rank that gives slots back through its connection, as ranks do.
RANK = """
import atexit
import numpy as np
from penstock.workers.arena import Arena
arena = Arena.create(64, 4096, 4096)
def give_back(slot):
    stream.send(Note(number=slot))
"""

HELD_IN_ODD_PLACES = """
in_a_global = arena.lend(0, give_back)
cycle = [arena.lend(1, give_back)]; cycle.append(cycle)
sys.modules["odd place"] = arena.lend(2, give_back)
class Keeper:
    kept = arena.lend(3, give_back)
    def __del__(self):
        type(self).kept = None
keeper = Keeper()
atexit.register(lambda view=arena.lend(4, give_back): view.sum())
atexit.register(lambda: globals().pop("let_go_at_exit"))
let_go_at_exit = arena.lend(5, give_back)
def hold(view, ready):
    ready.set()
    while True:
        view = view[:]
ready = threading.Event()
threading.Thread(target=hold, args=(arena.lend(6, give_back), ready), daemon=True).start()
assert ready.wait(BOUND_S)
arena.lend(7, give_back)
"""


@pytest.mark.parametrize("end", ["", "stream.close()\n", "arena.close()\n", "sys.exit(0)\n"])
def test_the_end_of_a_rank_is_quiet_whoever_still_holds_batches(end: str) -> None:
    with child_with_stream(RANK + HELD_IN_ODD_PLACES + end) as (child, stream):
        heard = numbers(received_until_end(stream))
        _, errors = child.communicate(timeout=BOUND_S)
        assert (child.returncode, errors) == (0, "")
        assert heard[0] == 7
        assert len(heard) == len(set(heard))
        assert 0 not in heard  # it could still be read when the last words were sent


def test_a_rank_that_ends_by_an_error_tells_that_error_only() -> None:
    with child_with_stream(RANK + HELD_IN_ODD_PLACES + "1 / 0\n") as (child, _):
        _, errors = child.communicate(timeout=BOUND_S)
        assert child.returncode == 1
        assert errors.splitlines()[-1] == "ZeroDivisionError: division by zero"
        assert "ignored" not in errors


def test_slots_come_back_once_when_collected_in_the_middle_of_sending() -> None:
    program = """
gc.set_threshold(1, 1, 1)
for number in range(300):
    cycle = [arena.lend(number % 64, lambda slot, number=number: give_back(number))]
    cycle.append(cycle)
    stream.send(Note(number=-1))
del cycle
gc.collect()
assert stream.flush(BOUND_S)
stream.close()
"""
    with child_with_stream(RANK + program) as (child, stream):
        heard = numbers(received_until_end(stream))
        _, errors = child.communicate(timeout=BOUND_S)
        assert (child.returncode, errors) == (0, "")
        assert heard.count(-1) == 300
        assert sorted(number for number in heard if number >= 0) == list(range(300))


def test_a_forked_child_gives_nothing_back() -> None:
    # We never fork, but the programs that use us do.
    program = """
view = arena.lend(1, give_back)
child = os.fork()
if child == 0:
    del view
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
stream.send(Note(number=1000))
del view
stream.close()
"""
    with child_with_stream(RANK + program) as (child, stream):
        assert numbers(received_until_end(stream)) == [1000, 1]
        _, errors = child.communicate(timeout=BOUND_S)
        assert (child.returncode, errors) == (0, "")


def mappings() -> set[str]:
    """The spans of this process's address space that map shared memory of ours."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[0] for line in lines if "penstock" in line}
