"""Loaders with a position, as somebody might write them: one that is right, and ways not to be."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

BATCHES = 7


class Counting:
    """Epochs of shuffled numbers, which follow from the seed; ranks take them in turn."""

    def __init__(self, *, num_workers: int = 0, rank: int = 0, world_size: int = 1) -> None:
        self.num_workers, self.rank, self.world_size = num_workers, rank, world_size
        self.epoch, self.done, self.reading = 0, 0, False

    def batch(self, epoch: int, index: int) -> Any:
        return {"epoch": epoch, "number": self.order(epoch)[index]}

    def order(self, epoch: int) -> list[int]:
        return random.Random(epoch).sample(range(100), BATCHES)

    def __iter__(self) -> Iterator[Any]:
        if self.reading:  # the one before was given up
            self.epoch, self.done = self.epoch + 1, 0
        epoch, first, step = self.epoch, self.done, 0
        while first + (step + 1) * self.world_size <= BATCHES:
            self.reading, step = True, step + 1
            self.done = first + step * self.world_size
            yield self.batch(epoch, self.done - self.world_size + self.rank)
        self.epoch, self.done, self.reading = epoch + 1, 0, False

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "done": self.done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.done, self.reading = state["epoch"], state["done"], False


class OneTooFar(Counting):
    """Tells of the batch that it has made ahead."""

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "done": self.done + (0 < self.done < BATCHES)}


class OneBehind(Counting):
    """Tells of a batch only when the next one is asked for."""

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "done": max(0, self.done - 1)}


class FirstEpochOnly(Counting):
    """Forgets which epoch it is."""

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": 0, "done": self.done}


class NeverTwice(Counting):
    """Counts from where it was restored."""

    restored = 0

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.restored = state["done"]

    def state_dict(self) -> dict[str, Any]:
        began = self.restored if self.done > self.restored else 0
        return {"epoch": self.epoch, "done": self.done - began}


class Unsettled(Counting):
    """Draws numbers of its own."""

    def order(self, epoch: int) -> list[int]:
        return random.SystemRandom().sample(range(10**9), BATCHES)


class ByWorkers(Counting):
    """More workers, other batches."""

    def order(self, epoch: int) -> list[int]:
        return super().order(epoch + 10 * self.num_workers)


class OwnShare(Counting):
    """Every rank tells of its own batches alone."""

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "done": self.done // self.world_size}


class ByRank(Counting):
    """The state of a rank is no other's."""

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "rank": self.rank}


class Wordless(Counting):
    """Saves something that only Python knows."""

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "set": {1, 2}}


class Deaf(Counting):
    """Cannot be put back once it was begun."""

    begun = False

    def __iter__(self) -> Iterator[Any]:
        self.begun = True
        return super().__iter__()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not self.begun:
            super().load_state_dict(state)


class Shortened(Counting):
    """Leaves out the last batch of a restored epoch."""

    short = False

    def __iter__(self) -> Iterator[Any]:
        left, self.short = BATCHES - self.done - self.short, False
        for number, batch in enumerate(super().__iter__(), 1):
            yield batch
            if number == left:
                break

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.short = state["done"] > 0


class Empty(Counting):
    def __iter__(self) -> Iterator[Any]:
        return iter(())
