"""Durations of the steps of a channel: count, mean, and which ones were slow.

The caller reads the clock; this module only keeps a few numbers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.events import BatchKey

SLOW_ONES_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class SlowStep:
    """One step that took longer than the threshold."""

    what: str
    batch: BatchKey | None
    seconds: float


@dataclass(slots=True)
class Timing:
    """The durations of one kind of step, such as handing out or fetching a batch."""

    what: str
    count: int = 0
    total: float = 0.0
    longest: float = 0.0
    slow: int = 0
    slow_ones: deque[SlowStep] = field(default_factory=lambda: deque(maxlen=SLOW_ONES_KEPT))

    def add(
        self, seconds: float, threshold: float, batch: BatchKey | None = None
    ) -> SlowStep | None:
        """Count one step; return it if it was slow."""
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)
        if seconds < threshold:
            return None
        self.slow += 1
        step = SlowStep(self.what, batch, seconds)
        self.slow_ones.append(step)
        return step

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def numbers(self) -> dict[str, Any]:
        """Return the numbers as plain data."""
        return {
            "count": self.count,
            "mean": self.mean,
            "longest": self.longest,
            "slow": self.slow,
            "slow_ones": [
                {"batch": list(step.batch) if step.batch else None, "seconds": step.seconds}
                for step in self.slow_ones
            ],
        }
