"""Hundreds of channels, workers that fail in every way, ranks that come, go, pause and start over.

Everything is drawn from one seed, which is part of any failure. To see a run again:

    PENSTOCK_SIMULATION_SEED=17 pytest tests/core/test_scheduler_simulation.py
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from penstock.core.events import (
    Assign,
    BatchKey,
    Event,
    GroupSized,
    Instruction,
    StartWorker,
    WeightChanged,
)
from penstock.core.scheduler import Settings
from penstock.options import OnError
from tests.core.scheduler_entries import registered
from tests.core.scheduler_run import Run
from tests.core.scheduler_world import FakeRank, Fate, Nature, World

SEED = "PENSTOCK_SIMULATION_SEED"

SETTINGS = Settings(
    worker_concurrency=2,
    silence=10.0,
    start_limit=20.0,
    max_batches=400,
    max_age=90.0,
    soft_memory=100,
    hard_memory=500,
    backoff_first=0.1,
    backoff_most=5.0,
    breaker_deaths=4,
    breaker_rest=10.0,
    trim_after=5.0,
)


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    channels: int
    seconds: float
    workers: int


SMALL = Size(channels=200, seconds=120.0, workers=8)
LARGE = Size(channels=800, seconds=1500.0, workers=24)


class Watched:
    """A run as a party: what goes in and out is checked on the way."""

    def __init__(self, settings: Settings, look_every: int) -> None:
        self.run = Run(settings, look_every)

    def handle(self, event: Event) -> list[Instruction]:
        answer = self.run.send(event)
        self.run.log.clear()  # a long run is not played again
        return answer

    def next_wakeup(self) -> float | None:
        return self.run.scheduler.next_wakeup()


class Rough(Nature):
    """Faults of every kind, until it calms down."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.calm = False
        self.bad_group_until = 0.0
        self.clock: Callable[[], float] = lambda: 0.0
        self.base: dict[int, float] = {}  # what a channel's batches cost, about
        self.slowness: dict[int, float] = {}  # how long its rank takes over one

    def cost(self, batch: BatchKey, source: int) -> float:
        return self.base[batch.channel] * self.dice.uniform(0.3, 3.0)

    def reading(self, batch: BatchKey) -> float | None:
        return self.slowness[batch.channel] * self.dice.random()

    def fate(self, order: Assign) -> Fate:
        if self.calm:
            return Fate.WELL
        ill = [Fate.DIES, Fate.RAISES, Fate.HANGS, Fate.FALLS_SILENT, Fate.GROWS, Fate.BURSTS]
        kinds = [Fate.WELL, *ill, Fate.FALTERS]
        weights = [1000, 20, 10, 3, 2, 3, 2, 20]
        return self.dice.choices(kinds, weights)[0]

    def start(self, order: StartWorker) -> Fate:
        if self.calm:
            return Fate.WELL
        if order.group == "bad" and self.clock() < self.bad_group_until:
            return self.dice.choice([Fate.DIES, Fate.DIES, Fate.FALLS_SILENT])
        return self.dice.choices([Fate.WELL, Fate.DIES, Fate.FALLS_SILENT], [90, 8, 2])[0]


class Simulation:
    """One run from one seed."""

    def __init__(self, seed: int, size: Size) -> None:
        self.dice = random.Random(seed)
        self.size = size
        self.party = Watched(SETTINGS, look_every=200)
        self.nature = Rough(self.dice)
        self.nature.bad_group_until = size.seconds / 2
        self.world = World(self.party, self.nature)
        self.nature.clock = lambda: self.world.now
        self.world.on_finish = self.finished
        self.closing = False
        self.started: dict[int, list[int]] = {}  # channel -> lengths of its epochs

    # --- ranks -------------------------------------------------------------------------------

    def come(self) -> None:
        """A rank comes with habits of its own, and asks for its first epoch."""
        dice, number = self.dice, len(self.world.ranks) + 1
        self.nature.base[number] = 10 ** dice.uniform(-2.5, -0.5)
        self.nature.slowness[number] = dice.choice([0.0, 0.0, 0.05, 1.0])
        entry = registered(
            self.world.now,
            number,
            dice.choices(["", "own", "bad"], [90, 7, 3])[0],
            slots=dice.randint(1, 6),
            weight=dice.choice([0.5, 1.0, 1.0, 4.0]),
            estimate=dice.choice([0.0, 0.1]),
            deadline=dice.choice([6.0, 15.0]),
            max_attempts=dice.randint(1, 4),
            on_error=dice.choice(list(OnError)),
            max_substitutes=dice.randint(0, 4),
            retry_errors=dice.randint(0, 3),
        )
        self.started[number] = []
        rank = self.world.register(entry)
        rank.in_order = dice.random() < 0.5
        self.next_epoch(rank)
        self.world.after(dice.expovariate(0.05), lambda: self.whim(number))

    def next_epoch(self, rank: FakeRank) -> None:
        length = self.dice.choice([0, 1, 5, 20, 60])
        first = self.dice.choice([0, 0, 7])
        self.started[rank.channel].append(length)
        self.world.start_epoch(rank, range(first, first + length))

    def finished(self, rank: FakeRank) -> None:
        """An epoch ended: another one, after a while."""
        if not self.closing and not rank.running:
            self.world.after(self.dice.expovariate(1.0), lambda: self.go_on(rank))

    def go_on(self, rank: FakeRank) -> None:
        if not self.closing and not rank.running and not self.left(rank):
            self.next_epoch(rank)

    def left(self, rank: FakeRank) -> bool:
        return rank.channel not in self.started

    def whim(self, number: int) -> None:
        """What ranks do now and then: start over, pause, change their weight, go away."""
        rank = self.world.ranks[number]
        if self.closing or self.left(rank):
            return
        match self.dice.choice(["restart", "pause", "pause", "weight", "go"]):
            case "restart":
                self.next_epoch(rank)
            case "pause":
                rank.paused = True
                self.world.after(self.dice.uniform(0, 20), lambda: self.world.wake(rank))
            case "weight":
                weight = self.dice.choice([0.1, 1.0, 10.0])
                self.world.send(WeightChanged(self.world.now, number, weight))
            case "go":
                del self.started[number]
                self.world.unregister(rank)
                self.world.after(self.dice.expovariate(1.0), self.come)
        self.world.after(self.dice.expovariate(0.05), lambda: self.whim(number))

    def resize(self) -> None:
        """Somebody turns the knob."""
        if not self.closing:
            workers = self.dice.randint(1, self.size.workers)
            self.world.send(GroupSized(self.world.now, "", workers))
            self.world.after(self.dice.expovariate(0.05), self.resize)

    def murder(self) -> None:
        """A worker is killed from outside, whatever it is at."""
        if self.closing:
            return
        alive = [worker.id for worker in self.world.workers.values() if worker.alive]
        if alive:
            self.world.lose(self.dice.choice(alive), "killed by SIGKILL")
        self.world.after(self.dice.uniform(0.3, 3.0), self.murder)

    # --- the whole ---------------------------------------------------------------------------

    def rage(self) -> None:
        """The rough part."""
        self.world.send(GroupSized(0.0, "", self.size.workers))
        self.world.send(GroupSized(0.0, "own", 2))
        self.world.send(GroupSized(0.0, "bad", 2))
        for _ in range(self.size.channels):
            self.world.at(self.dice.uniform(0, self.size.seconds / 4), self.come)
        self.world.after(1.0, self.murder)
        self.world.after(5.0, self.resize)
        self.world.run(self.size.seconds)

    def calm_down(self) -> None:
        """No more faults, no more wishes: everything that was asked for comes to its end."""
        self.closing = self.nature.calm = True
        self.world.send(GroupSized(self.world.now, "", self.size.workers))
        for rank in self.world.ranks.values():
            self.world.wake(rank)
        self.world.run(self.world.now + 4 * self.size.seconds + 500)

    def leave(self) -> None:
        """Everybody goes."""
        for rank in self.world.ranks.values():
            self.world.unregister(rank)
        for group in ("", "own", "bad"):
            self.world.send(GroupSized(self.world.now, group, 0))
        self.world.run(self.world.now + 100)

    # --- what must be true -------------------------------------------------------------------

    def nothing_is_left_running(self) -> None:
        stuck = [rank.channel for rank in self.world.ranks.values() if rank.running]
        assert not stuck, f"channels {stuck} never ended; {self.party.run.scheduler.describe()}"

    def nobody_got_anything_twice(self) -> None:
        for rank in self.world.ranks.values():
            assert max(rank.got.values(), default=1) == 1
            assert max(rank.done.values(), default=1) == 1

    def finished_epochs_were_whole(self) -> None:
        for channel, lengths in self.started.items():
            rank = self.world.ranks[channel]
            for epoch in rank.done:
                got = sum(batch.epoch == epoch for batch in rank.got)
                assert got == lengths[epoch], f"epoch {epoch} of {channel}: {got} batches"

    def everybody_is_gone(self) -> None:
        assert all(rank.gone for rank in self.world.ranks.values())
        assert not any(worker.alive for worker in self.world.workers.values())
        assert self.party.next_wakeup() is None, "an empty scheduler still waits for something"


def simulate(seed: int, size: Size) -> Simulation:
    """A whole run; its seed is part of any failure."""
    simulation = Simulation(seed, size)
    try:
        simulation.rage()
        simulation.calm_down()
        simulation.nothing_is_left_running()
        simulation.nobody_got_anything_twice()
        simulation.finished_epochs_were_whole()
        simulation.leave()
        simulation.everybody_is_gone()
    except BaseException as error:
        error.add_note(f"to see it again: {SEED}={seed} (at {simulation.world.now:.3f} s)")
        raise
    print(f"seed {seed}: {simulation.world.events} events, {simulation.world.starts} workers")
    return simulation


def seeds(*usual: int) -> list[int]:
    """The seed that was asked for, or the usual ones."""
    given = os.environ.get(SEED)
    return list(usual) if given is None else [int(given)]


@pytest.mark.parametrize("seed", seeds(1, 2, 3))
def test_hundreds_of_channels_survive_faults_of_every_kind(seed: int) -> None:
    """CONTRACT 17: every batch ends exactly once, whatever happens."""
    simulation = simulate(seed, SMALL)
    assert sum(sum(rank.got.values()) for rank in simulation.world.ranks.values()) > 1000


def test_the_same_seed_tells_the_same_story() -> None:
    """A seed in a failure is worth something."""
    first, again = (simulate(7, Size(30, 30.0, 3)) for _ in range(2))
    assert first.world.events == again.world.events
    assert [rank.got for rank in first.world.ranks.values()] == [
        rank.got for rank in again.world.ranks.values()
    ]


@pytest.mark.soak
@pytest.mark.parametrize("turn", range(10))
def test_many_more_channels_survive_for_longer(turn: int) -> None:
    """CONTRACT 17"""
    seed = seeds(secrets.randbits(32))[0]
    simulate(seed, LARGE)
