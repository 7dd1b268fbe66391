"""Eight readers at different speeds, and a storm: nothing lost, nothing twice, nothing leaked.

The seed is printed, and is taken from PENSTOCK_STORM_SEED where that is set. How long the storm of
`make soak` lasts, in seconds, is said by PENSTOCK_STORM_SECONDS; an hour if nothing is.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import pytest

from penstock import HubProcess
from tests.faults.processes import (
    descriptors,
    hub_pid,
    numbers,
    private_bytes,
    shared_bytes,
    shared_mappings,
)
from tests.faults.storm import Storm, storm_seed
from tests.faults.twins import PATIENCE_S, Twins, twins

pytestmark = pytest.mark.usefixtures("no_leaks")

CI_S = 15.0
SOAK_S = float(os.environ.get("PENSTOCK_STORM_SECONDS", "3600"))
MB = 1 << 20

# What each reader does after a batch, in seconds, and how large its batches are.
SPEEDS = {
    "greedy": (0.0, 1),
    "quick": (0.0, 8),
    "brisk": (0.001, 2),
    "steady": (0.003, 4),
    "slow": (0.01, 4),
    "slower": (0.03, 16),
    "tardy": (0.1, 3),
    "sleepy": (0.4, 32),
}


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
        self._pair = pair
        self.over = over
        self._pause, batch_size = SPEEDS[name]
        self.epochs = self.batches = 0
        self.error: BaseException | None = None
        pair.register(name, 160, batch_size=batch_size, seed=len(name), slots=3)

    def run(self) -> None:
        try:
            while not self.over.is_set():
                self._read(self.epochs)
                self.epochs += 1
        except BaseException as error:
            self.error = error
            self.over.set()

    def _read(self, epoch: int) -> None:
        self._pair.start(self.name, epoch)
        while self._pair.next(self.name) is not None:
            self.batches += 1
            self.over.wait(self._pause)


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


def weather(seconds: float, hub_after: tuple[int, int]) -> None:
    """The whole test: so long, and until the storm was one; the hub dies after every n workers."""
    seed = storm_seed()
    with twins(workers=3) as pair:
        hub = pair.backend.hub
        assert isinstance(hub, HubProcess)
        storm, over = Storm(hub, seed, hub_after), threading.Event()
        threads = [Reader(pair, name, over) for name in SPEEDS]
        held, looks, begun = Held.now(), [], time.monotonic()
        with reading(threads), storm.raging():
            while not over.wait(1.0) and not storm.was_one(time.monotonic() - begun, seconds):
                looks += [look] if (look := Look.now(hub_pid(pair.backend))) else []
        print(dict(storm.killed), {thread.name: thread.batches for thread in threads})
        assert all(thread.epochs >= 1 for thread in threads)
        for thread in threads:  # whoever lost its hub at the very end comes back for this
            pair.read(thread.name, thread.epochs)
        assert Held.now() == held
        check_sizes(looks)
        check_hub(pair)


def check_sizes(looks: list[Look]) -> None:
    """Nothing grows: not with the deaths of workers, nor with those of hubs."""
    half = len(looks) // 2
    assert _growth([look.rank_private for look in looks[half // 2 :]]) < 24 * MB
    for hub in {look.hub for look in looks}:
        assert _growth([look.hub_private for look in looks if look.hub == hub]) < 24 * MB
    assert max(look.rank_shared for look in looks) < 16 * MB
    assert max(look.rank_descriptors for look in looks) < 80
    assert max(look.hub_descriptors for look in looks) < 160


def _growth(sizes: list[int]) -> float:
    """From the first half to the second."""
    half = len(sizes) // 2
    return median(sizes[half:]) - median(sizes[:half]) if half else 0.0


def check_hub(pair: Twins) -> None:
    """Whoever comes back finds itself once, not once for every time it came."""
    found = numbers(pair.backend)
    assert found["hub"]["channels"] == len(SPEEDS)
    assert len(found["pool"]["workers"]) <= 6
    assert found["hub"]["arena_resident"] <= found["hub"]["arena_bytes"]


@pytest.mark.timeout(300)
def test_a_storm_of_deaths_costs_no_batch_and_leaves_nothing() -> None:
    """CONTRACT 17, 18, 22, 29: every batch once, in order, the same, whoever dies."""
    weather(CI_S, hub_after=(4, 8))


@pytest.mark.soak
@pytest.mark.timeout(SOAK_S + 600)
def test_an_hour_of_storm_costs_no_batch_and_leaves_nothing() -> None:
    """CONTRACT 17, 18, 22, 29."""
    weather(SOAK_S, hub_after=(20, 60))
