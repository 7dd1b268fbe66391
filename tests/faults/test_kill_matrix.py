"""A worker dies at every stage of its work, of every kind of death: nobody can tell from a batch.

Each test arms one fault per kind of death; each must have struck (its token is there) and been
survived (a death of that kind was counted, and somebody was started in its place).
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from penstock import SharedDistSamplingBackend, WorkerDied
from penstock.sampling.digest import batch_digest
from tests.faults.orders import Order, arm
from tests.faults.processes import group, numbers, worker_pids
from tests.faults.twins import PATIENCE_S, WATCHFUL, Twins, summary, twins
from tests.processes import strike, until, wait_until_gone

pytestmark = pytest.mark.usefixtures("no_leaks")

STAGES = ("received", "sampling", "writing", "before-message", "mid-message", "after-message")
SIGNALS = ("SIGKILL", "SIGSEGV", "SIGTERM", "SIGSTOP")
DEATHS = (*(f"signal:{name}" for name in SIGNALS), "exit0")
# Of the 16 of an epoch, one for each death.
BATCHES = (2, 5, 8, 11, 13)


def orders(stage: str, folder: Path, matches: list[dict[str, int]]) -> list[Order]:
    """One fault for each kind of death."""
    return [
        Order(stage, death, match, folder / death)
        for death, match in zip(DEATHS, matches, strict=True)
    ]


def check_strikes(faults: list[Order], backend: SharedDistSamplingBackend) -> None:
    """Every fault struck, was noticed for what it was, and cost a worker that was replaced."""
    # The last of them may strike when all batches have come.
    until(lambda: all(fault.struck for fault in faults), "all faults have struck")
    until(lambda: replaced(backend) >= len(faults), "as many workers were replaced")
    until(lambda: not unnoticed(backend), "each death was noticed")
    exits = numbers(backend)["pool"]["exits"]
    assert (exits["SIGSEGV"], exits["SIGTERM"], exits["exit code 0"]) == (1, 1, 1)
    assert exits["SIGKILL"] >= 2  # the one on order, and the stopped one, by the hub
    assert group(backend)["killed"]["silence"] >= 1


def unnoticed(backend: SharedDistSamplingBackend) -> Counter[str]:
    """Deaths that are still to come. Who was only slow may have been taken for the stopped one."""
    wanted = Counter(["SIGSEGV", "SIGTERM", "exit code 0", "SIGKILL", "SIGKILL"])
    return wanted - Counter(numbers(backend)["pool"]["exits"])


def replaced(backend: SharedDistSamplingBackend) -> int:
    """How many workers were lost and have a successor."""
    staff = group(backend)
    return int(min(staff["lost"], staff["started"] - staff["wanted"]))


def read_in_turns(pair: Twins, names: tuple[str, ...], epoch: int) -> list[int]:
    """An epoch of several channels at once; how many batches each had."""
    for name in names:
        pair.start(name, epoch)
    counts = dict.fromkeys(names, 0)
    unfinished = list(names)
    while unfinished:
        for name in list(unfinished):
            if pair.next(name) is None:
                unfinished.remove(name)
            else:
                counts[name] += 1
    return list(counts.values())


@pytest.mark.parametrize("stage", STAGES)
def test_a_worker_may_die_at_any_stage_of_any_death(
    stage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CONTRACT 17, 18, 51: the batches are those of a run without faults, each once, in order."""
    faults = orders(stage, tmp_path, [{"index": batch} for batch in BATCHES])
    arm(monkeypatch, *faults)
    with twins(workers=2, **WATCHFUL) as pair:
        for number, name in enumerate(("one", "other")):
            pair.register(name, seed=number)
        assert read_in_turns(pair, ("one", "other"), 0) == [16, 16]
        check_strikes(faults, pair.backend)
        assert read_in_turns(pair, ("one", "other"), 1) == [16, 16]


def test_workers_may_die_as_soon_as_they_are_ready(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CONTRACT 18, 51: idle ones, which hold no batch."""
    faults = orders("idle", tmp_path, [{"worker": number} for number in (1, 2, 3, 4, 5)])
    arm(monkeypatch, *faults)
    with twins(workers=2, **WATCHFUL) as pair:
        pair.register("one")
        assert pair.read("one", 0) == 16
        check_strikes(faults, pair.backend)
        assert pair.read("one", 1) == 16


def test_an_idle_worker_may_be_killed_from_outside() -> None:
    """CONTRACT 18, 51: between two epochs, by anybody."""
    with twins(workers=1, **WATCHFUL) as pair:
        pair.register("one")
        assert pair.read("one", 0) == 16
        for epoch, name in enumerate(SIGNALS, start=1):
            strike_the_only_worker(pair, signal.Signals[name])
            assert pair.read("one", epoch) == 16
        # Who was only slow may have been taken for the stopped one.
        until(lambda: group(pair.backend)["lost"] >= len(SIGNALS), "each death was counted")
        assert group(pair.backend)["killed"]["silence"] >= 1


def strike_the_only_worker(pair: Twins, number: signal.Signals) -> None:
    """Returns when one is gone of it; whoever was there when the signal came."""
    while True:
        until(lambda: len(worker_pids(pair.backend)) == 1, "there is a worker")
        for victim in worker_pids(pair.backend):
            if strike(victim, number):
                wait_until_gone([victim])
                return


def test_the_only_worker_may_die_at_every_stage_in_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CONTRACT 18: there is nobody else meanwhile."""
    faults = [
        Order(stage, "signal:SIGKILL", {"index": 2 * number}, tmp_path / stage)
        for number, stage in enumerate(STAGES)
    ]
    arm(monkeypatch, *faults)
    with twins(workers=1) as pair:
        pair.register("one")
        assert pair.read("one", 0) == 16
        assert all(fault.struck for fault in faults)
        assert group(pair.backend)["lost"] == len(STAGES)


@pytest.mark.parametrize("stage", ["writing", "before-message", "after-message"])
def test_a_batch_with_memory_of_its_own_survives_its_maker(
    stage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CONTRACT 18, 21: its memory came by descriptor, or is gone with the dead."""
    fault = Order(stage, "signal:SIGKILL", {"index": 0}, tmp_path / "struck")
    arm(monkeypatch, fault)
    with twins(workers=1) as pair:
        # A slot has a page at least; a batch of all nodes needs several.
        pair.register("one", 200, batch_size=100, buffer_size=4)
        assert pair.read("one", 0) == 2
        assert fault.struck
        assert group(pair.backend)["lost"] == 1


def test_writing_past_the_end_of_a_slot_hurts_nobody_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CONTRACT 21: it is impossible: there is nothing to write to, and the worker dies of it."""
    fault = Order("writing", "overrun", {"index": 5}, tmp_path / "struck")
    arm(monkeypatch, fault)
    with twins(workers=2) as pair:
        pair.register("one")
        assert pair.read("one", 0) == 16
        assert fault.struck
        assert numbers(pair.backend)["pool"]["exits"] == {"SIGSEGV": 1}


def test_a_death_is_charged_to_the_batch_that_was_begun_and_to_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CONTRACT 19: not to those that were queued there, nor to one whose message was out."""
    faults = {
        2 * number: Order(stage, "signal:SIGKILL", {"index": 2 * number}, tmp_path / stage)
        for number, stage in enumerate(STAGES)
    }
    arm(monkeypatch, *faults.values())
    with twins(workers=1, worker_concurrency=4) as pair:
        pair.register("one", slots=8, max_attempts=1)
        pair.start("one", 0)
        lost = {index for index in range(16) if loss_of_next(pair, "one")}
        assert all(fault.struck for fault in faults.values())
    charged = ("sampling", "writing", "before-message", "mid-message")
    assert lost == {index for index, fault in faults.items() if fault.stage in charged}


def loss_of_next(pair: Twins, name: str) -> WorkerDied | None:
    """Why the next batch will not come, if it has lost its worker; else it must be right."""
    expected = pair.inline.next_batch(name)
    try:
        batch = pair.backend.next_batch(name, PATIENCE_S)
    except WorkerDied as error:
        return error
    assert summary(batch) == summary(expected)
    return None


def test_another_batch_stands_in_for_one_that_kills_whoever_makes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CONTRACT 19: it is marked, and is what it would be in its own place."""
    arm(monkeypatch, Order("sampling", "signal:SIGKILL", {"index": 3}))
    with twins(workers=2) as pair:
        pair.register("one", max_attempts=2, on_error="substitute", max_substitutes=1)
        pair.start("one", 0)
        whole = {batch.index: batch_digest(batch.arrays) for batch in pair.inline.batches("one")}
        batches = [pair.backend.next_batch("one", PATIENCE_S) for _ in range(17)]
        assert batches.pop() is None
        found = [batch for batch in batches if batch is not None]
        assert [batch.step for batch in found] == list(range(16))
        assert [batch.step for batch in found if batch.substitute] == [3]
        assert [batch.index for batch in found if not batch.substitute] == sorted({*whole} - {3})
        assert found[3].index != 3
        assert all(whole[batch.index] == batch_digest(batch.arrays) for batch in found)
        assert group(pair.backend)["lost"] == 2


def test_a_stopped_worker_misses_its_deadline_and_its_state_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CONTRACT 19, 51: a stopped process cannot show stacks; the error says that it was stopped."""
    fault = Order("sampling", "signal:SIGSTOP", {"index": 3}, tmp_path / "struck")
    arm(monkeypatch, fault)
    with twins(workers=1) as pair:
        pair.register("one", deadline=2.0, max_attempts=1)
        pair.start("one", 0)
        found = {index: loss for index in range(16) if (loss := loss_of_next(pair, "one"))}
        # On a busy machine others may miss theirs as well.
        assert re.search(r"past its deadline: .*stopped \(state T\)", str(found[3]))
        assert group(pair.backend)["killed"] == {"deadline": len(found)}
