"""A rank is killed: whatever it started is gone soon after, and whoever it shared with goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import HubGone
from tests.faults.orders import Order, arm
from tests.faults.processes import (
    adopting_orphans,
    group,
    is_listening,
    numbers,
    reap,
)
from tests.faults.rank import Rank, rank
from tests.faults.twins import Twins, twins
from tests.processes import is_alive, stop, strike, until, wait_until_gone

pytestmark = pytest.mark.usefixtures("no_leaks")

# The hub asks its workers to go, waits, tells and kills: less than this.
SOON_S = 30.0


def check_all_gone(victim: Rank, family: dict[str, Any]) -> None:
    """Kills the rank: no hub, worker or socket of it is left (nor memory: see `no_leaks`)."""
    assert is_alive(family["hub"])
    assert is_listening(family["address"])
    victim.kill()
    check_nothing_left(family)
    with pytest.raises(HubGone):
        penstock.connect(family["address"])


def check_nothing_left(family: dict[str, Any]) -> None:
    """No process of the family, and then, when its last thread has gone, no socket."""
    wait_until_gone([family["hub"], *family["workers"]], SOON_S)
    until(lambda: not is_listening(family["address"]), "its address is free", SOON_S)


def test_a_rank_killed_while_idle_takes_hub_and_workers_along() -> None:
    """CONTRACT 29."""
    with rank(starts=False) as victim:
        check_all_gone(victim, victim.hear())


def test_a_rank_killed_while_reading_takes_hub_and_workers_along() -> None:
    """CONTRACT 29."""
    with rank(reads=True) as victim:
        check_all_gone(victim, victim.hear())


def test_a_rank_killed_while_its_hub_is_busy_takes_hub_and_workers_along() -> None:
    """CONTRACT 29: eight channels read at once, by threads that do nothing else."""
    with rank(workers=2, channels=8, reads=True, channel_options={"batch_size": 1}) as victim:
        check_all_gone(victim, victim.hear())


@pytest.mark.parametrize("action", ["hang", "hang-native"])
def test_a_rank_killed_while_a_worker_hangs_takes_it_along(action: str, tmp_path: Path) -> None:
    """CONTRACT 29: a worker that cannot be asked, in Python or in native code with the lock."""
    fault = Order("sampling", action, {"index": 0}, tmp_path / "struck")
    with rank(fault) as victim:
        family = victim.hear()
        until(lambda: fault.struck, "a worker hangs")
        check_all_gone(victim, family)


def test_a_rank_killed_while_its_workers_are_stopped_takes_them_along() -> None:
    """CONTRACT 29: stopped processes see no message and no SIGTERM."""
    with rank(reads=True) as victim:
        family = victim.hear()
        for worker in family["workers"]:
            stop(worker)
        check_all_gone(victim, family)


@pytest.mark.parametrize("at_a_path", [False, True])
def test_a_rank_killed_while_its_hub_is_stopped_takes_it_along(
    at_a_path: bool, tmp_path: Path
) -> None:
    """CONTRACT 29: a stopped hub hears nothing, and nothing wakes it."""
    options = {"address": f"unix://{tmp_path}/hub"} if at_a_path else {}
    with adopting_orphans(), rank(reads=True, options=options) as victim:
        family = victim.hear()
        stop(family["hub"])
        check_all_gone(victim, family)
        reap([family["hub"], *family["workers"]])


@pytest.mark.parametrize("workers_stopped", [False, True])
def test_a_rank_killed_together_with_its_hub_leaves_no_worker(workers_stopped: bool) -> None:
    """CONTRACT 29: as the kernel does when the whole job is out of memory."""
    with rank(reads=True) as victim:
        family = victim.hear()
        if workers_stopped:
            for worker in family["workers"]:
                stop(worker)
        stop(victim.pid)  # it is to start no other
        assert strike(family["hub"])
        victim.kill()
        check_nothing_left(family)


@pytest.mark.parametrize("stopped_first", [False, True])
def test_a_joined_rank_that_is_killed_frees_its_channels(stopped_first: bool) -> None:
    """CONTRACT 40: its channels and memory go, and the first rank notices nothing."""
    with twins(workers=2) as pair:
        pair.register("mine")
        pair.read("mine", 0)
        before = held_by_hub(pair)
        with rank(address=pair.backend.address, channels=3, reads=True) as victim:
            victim.hear()
            assert numbers(pair.backend)["hub"]["channels"] == 4
            pair.start("mine", 1)
            assert pair.next("mine") is not None
            if stopped_first:
                stop(victim.pid)
            victim.kill()
            pair.finish("mine")
        # The kernel closes what a dead process had open one by one.
        until(lambda: held_by_hub(pair) == before, "all that was for it is gone")
        assert pair.read("mine", 2) == 16


def held_by_hub(pair: Twins) -> tuple[int, int, int]:
    """What a hub has for its ranks."""
    found = numbers(pair.backend)["hub"]
    return found["channels"], found["connections"], found["arena_bytes"]


def test_a_joined_rank_killed_with_a_batch_in_the_making_leaves_the_worker_to_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CONTRACT 15, 40, 51: the worker that hangs with it meets its deadline all the same."""
    fault = Order("sampling", "hang", {"index": 7}, tmp_path / "struck")
    arm(monkeypatch, fault)
    with twins(workers=2) as pair:
        pair.register("mine", 16)  # four batches: the eighth is the other's
        channel_options = {"deadline": 2.0, "slots": 12}
        with rank(address=pair.backend.address, channel_options=channel_options) as victim:
            victim.hear()
            until(lambda: fault.struck, "a worker hangs")
            victim.kill()
        assert pair.read("mine", 0) == 4
        until(lambda: group(pair.backend)["killed"].get("deadline", 0) >= 1, "it is killed")
        until(lambda: numbers(pair.backend)["hub"]["channels"] == 1, "its channel is gone")
        assert pair.read("mine", 1) == 4
