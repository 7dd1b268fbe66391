"""How fast dead workers are replaced: a doubling back-off, and a breaker that stops all starts.

This module only counts consecutive deaths. It must not know workers or how they are started.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf

from penstock.core.events import BatchKey
from penstock.core.settings import Settings, doubled


@dataclass(slots=True, eq=False)
class Backoff:
    """The delay before a replacement: none after the first death in a row, then doubling."""

    first: float
    most: float
    count: int = 0
    until: float = -inf

    def lost(self, now: float) -> None:
        self.count += 1
        if self.count > 1:
            self.until = now + self._delay()

    def reset(self) -> None:
        self.count, self.until = 0, -inf

    def _delay(self) -> float:
        return doubled(self.first, self.most, self.count - 2)


class BreakerState(Enum):
    CLOSED = "closed"  # normal: dead workers are replaced
    OPEN = "open"  # no worker is started
    TRIAL = "trial"  # the rest is over and a channel asked: one worker is started as a test


@dataclass(slots=True, eq=False)
class Breaker:
    """Opens when several workers in a row die before they are ready; closes when one is ready."""

    settings: Settings
    state: BreakerState = BreakerState.CLOSED
    cause: str = ""
    until: float = -inf  # no worker is started before this time

    def failed(self, deaths: int, now: float, cause: str) -> None:
        """Record that a worker was lost before it was ready, the last of `deaths` in a row."""
        if self.state is not BreakerState.CLOSED or deaths >= self.settings.breaker_deaths:
            self.state, self.cause = BreakerState.OPEN, cause
            self.until = now + self.settings.breaker_rest

    def close(self) -> None:
        """Close the breaker because a worker is ready."""
        self.state, self.until = BreakerState.CLOSED, -inf

    def may_try(self, now: float) -> bool:
        return self.state is BreakerState.OPEN and now >= self.until


@dataclass(slots=True, eq=False)
class Streak:
    """Workers lost since the group last completed a batch, and which batches they had begun."""

    lost: int = 0
    first: BatchKey | None = None
    several: bool = False  # they had begun different batches

    def add(self, batch: BatchKey | None) -> None:
        self.lost += 1
        if batch is not None:
            self.several = self.several or self.first not in (None, batch)
            self.first = self.first or batch

    def covers(self, workers: int) -> bool:
        """Return whether the group is failing and not one batch.

        That is so if as many workers were lost as the group has, over different batches.
        """
        return self.several and self.lost >= max(2, workers)
