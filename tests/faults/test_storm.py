"""Eight readers at different speeds, and a storm: nothing lost, nothing twice, nothing leaked.

The seed is printed, and is taken from PENSTOCK_STORM_SEED where that is set; else that of `make
soak` is always another, and that of every day always the same. How long the storm of `make soak`
lasts, in seconds, is said by PENSTOCK_STORM_SECONDS; an hour if nothing is.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import pytest

from penstock import Batch, HubProcess
from tests.faults.processes import (
    descriptors,
    hub_pid,
    numbers,
    private_bytes,
    shared_bytes,
    shared_mappings,
)
from tests.faults.storm import Storm, storm_seed
from tests.faults.twins import PATIENCE_S, WATCHFUL, Twins, summary, twins
from tests.processes import until

pytestmark = pytest.mark.usefixtures("no_leaks")

CI_S = 9.0
SOAK_S = float(os.environ.get("PENSTOCK_STORM_SECONDS", "3600"))
MB = 1 << 20

# How long each reader pauses after a batch, in seconds, and on which terms it reads.
READERS: dict[str, tuple[float, dict[str, Any]]] = {
    "greedy": (0.0, {"batch_size": 1}),
    "quick": (0.0, {"batch_size": 8}),
    "brisk": (0.001, {"batch_size": 2}),
    "steady": (0.003, {"batch_size": 4}),
    "slow": (0.01, {"batch_size": 4, "slots": 1}),
    "slower": (0.03, {"batch_size": 80, "buffer_size": 3}),  # giants: no batch fits its slot
    "tardy": (0.1, {"batch_size": 3}),
    "sleepy": (0.4, {"batch_size": 32}),
}
# Batches that every reader keeps, and looks at again before it lets go of them.
KEPT = 5


@dataclass(frozen=True)
class Look:
    """What the rank and the hub hold at one moment."""

    hub: int
    rank_private: int
    hub_private: int
    rank_shared: int
    rank_descriptors: int
    hub_descriptors: int

    @classmethod
    def now(cls, hub: int) -> Look | None:
        """None if the hub was killed before all was seen."""
        try:
            return cls(
                hub,
                private_bytes(),
                private_bytes(hub),
                shared_bytes(),
                descriptors(),
                descriptors(hub),
            )
        except (OSError, AssertionError):
            return None


@dataclass(frozen=True)
class Held:
    """What must not have become more when all is quiet again."""

    descriptors: int
    mappings: int

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        return cls(descriptors(), shared_mappings())


class Reader(threading.Thread):
    """Reads epoch after epoch at its own speed, comparing every batch, until it is told to end."""

    def __init__(self, pair: Twins, name: str, over: threading.Event) -> None:
        super().__init__(name=name)
        self.pair = pair
        self.over = over
        self.epochs = self.batches = 0
        self.error: BaseException | None = None
        self._pause, channel_options = READERS.get(name, (0.0, {}))
        self._kept: deque[tuple[Batch, Any]] = deque()
        self.channel_options = {"num_inputs": 160, "seed": len(name), "slots": 3, **channel_options}

    def run(self) -> None:
        try:
            while not self.over.is_set():
                self.read(self.name, self.epochs)
                self.epochs += 1
            self._let_go(0)
        except BaseException as error:
            self.error = error
            self.over.set()

    def read(self, channel: str, epoch: int) -> None:
        """One epoch."""
        self.pair.start(channel, epoch)
        while (batch := self.pair.next(channel)) is not None:
            self.batches += 1
            self._kept.append((batch, summary(batch)))
            self._let_go(KEPT)
            self.over.wait(self._pause)

    def _let_go(self, most: int) -> None:
        while len(self._kept) > most:
            batch, before = self._kept.popleft()
            assert summary(batch) == before


class Passenger(Reader):
    """Opens a channel for each epoch anew, and leaves every other one in the middle."""

    def read(self, channel: str, epoch: int) -> None:
        name = f"{channel} {epoch}"
        self.pair.register(name, **self.channel_options)
        if epoch % 2:
            self.pair.start(name, epoch)
            self.pair.next(name)
            self.batches += 1
        else:
            super().read(name, epoch)
        self.pair.backend.unregister_input(name)
        self.pair.inline.unregister_input(name)


@contextmanager
def reading(threads: list[Reader]) -> Iterator[None]:
    """All of them at work; at the end each finishes its epoch."""
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.over.set()
        for thread in threads:
            thread.join(2 * PATIENCE_S)
    for thread in threads:
        assert not thread.is_alive(), f"{thread.name} hangs"
        if thread.error is not None:
            raise thread.error


def weather(seconds: float, hub_after: tuple[int, int], seed: int) -> None:
    """The whole test: so long, and until the storm was one; the hub dies after every n workers."""
    with twins(workers=3, **WATCHFUL) as pair:
        hub = pair.backend.hub
        assert isinstance(hub, HubProcess)
        storm, over = Storm(hub, seed, hub_after), threading.Event()
        threads = [Reader(pair, name, over) for name in READERS]
        for thread in threads:
            pair.register(thread.name, **thread.channel_options)
        held, first, looks = Held.now(), Look.now(hub_pid(pair.backend)), []
        assert first is not None
        begun = time.monotonic()
        passenger = Passenger(pair, "passenger", over)
        with reading([*threads, passenger]), storm.raging():
            while not over.wait(1.0) and not storm.was_one(time.monotonic() - begun, seconds):
                looks += [look] if (look := Look.now(hub_pid(pair.backend))) else []
        print(dict(storm.killed), passenger.epochs, [thread.batches for thread in threads])
        assert all(thread.epochs >= 1 for thread in [*threads, passenger])
        for thread in threads:  # whoever lost its hub at the very end comes back for this
            pair.read(thread.name, thread.epochs)
        assert Held.now() == held
        check_sizes(first, looks)
        check_hub(pair)


def check_sizes(first: Look, looks: list[Look]) -> None:
    """Nothing grows: not with the deaths of workers, nor with those of hubs.

    What this process had before is that of other tests.
    """
    half = len(looks) // 2
    assert _growth([look.rank_private for look in looks[half // 2 :]]) < 24 * MB
    for hub in {look.hub for look in looks}:
        assert _growth([look.hub_private for look in looks if look.hub == hub]) < 24 * MB
    assert max(look.rank_shared for look in looks) < first.rank_shared + 16 * MB
    assert max(look.rank_descriptors for look in looks) < first.rank_descriptors + 60
    assert max(look.hub_descriptors for look in looks) < 160


def _growth(sizes: list[int]) -> float:
    """From the first half to the second."""
    half = len(sizes) // 2
    return median(sizes[half:]) - median(sizes[:half]) if half else 0.0


def check_hub(pair: Twins) -> None:
    """Whoever comes back finds itself once, not once for every time it came."""
    # What a stopped worker has of the passenger's last channel comes back when it is missed.
    until(lambda: numbers(pair.backend)["hub"]["channels"] == len(READERS), "only readers are left")
    found = numbers(pair.backend)
    assert len(found["pool"]["workers"]) <= 6
    assert found["hub"]["arena_resident"] <= found["hub"]["arena_bytes"]


@pytest.mark.timeout(600)
def test_a_storm_of_deaths_costs_no_batch_and_leaves_nothing() -> None:
    """CONTRACT 17, 18, 22, 29: every batch once, in order, the same, whoever dies."""
    weather(CI_S, hub_after=(3, 6), seed=storm_seed(1))


@pytest.mark.soak
@pytest.mark.timeout(SOAK_S + 600)
def test_an_hour_of_storm_costs_no_batch_and_leaves_nothing() -> None:
    """CONTRACT 17, 18, 22, 29."""
    weather(SOAK_S, hub_after=(20, 60), seed=storm_seed(None))
