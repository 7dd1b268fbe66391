"""How fast the dead are replaced: a back-off that doubles, and a breaker that stops it all.

Pure bookkeeping about deaths in a row. Who died, and what starting means, others know.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf

from penstock.core.events import BatchKey
from penstock.core.settings import Settings


@dataclass(slots=True, eq=False)
class Backoff:
    """After the first death in a row nobody waits; then twice as long each time."""

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
        # A larger power would not be a float any more; nobody waits that long anyway.
        return min(self.most, self.first * 2.0 ** min(self.count - 2, 64))


class BreakerState(Enum):
    CLOSED = "closed"  # all is well: the dead are replaced
    OPEN = "open"  # nobody is started
    TRIAL = "trial"  # somebody asked after the rest: one is being started, to see


@dataclass(slots=True, eq=False)
class Breaker:
    """Opens when one worker after another dies before it is ready; closes when one is."""

    settings: Settings
    state: BreakerState = BreakerState.CLOSED
    cause: str = ""
    until: float = -inf  # before then nobody is started, whoever asks

    def failed(self, deaths: int, now: float, cause: str) -> None:
        """A worker was lost before it was ready, the last of so many in a row."""
        if self.state is not BreakerState.CLOSED or deaths >= self.settings.breaker_deaths:
            self.state, self.cause = BreakerState.OPEN, cause
            self.until = now + self.settings.breaker_rest

    def close(self) -> None:
        """One is ready: there is nothing to be remembered."""
        self.state, self.until = BreakerState.CLOSED, -inf

    def may_try(self, now: float) -> bool:
        return self.state is BreakerState.OPEN and now >= self.until


@dataclass(slots=True, eq=False)
class Streak:
    """Workers lost since the group last completed a batch, and what they were at."""

    lost: int = 0
    first: BatchKey | None = None
    several: bool = False  # they were at different batches

    def add(self, batch: BatchKey | None) -> None:
        self.lost += 1
        if batch is not None:
            self.several = self.several or self.first not in (None, batch)
            self.first = self.first or batch

    def covers(self, workers: int) -> bool:
        """The group is failing, not the batch: as many were lost as there are, over several."""
        return self.several and self.lost >= max(2, workers)
