"""Durations of the steps of a channel: count, mean, and which ones were slow.

The caller reads the clock; this module only keeps a few numbers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from penstock.core.events import BatchKey

SLOW_ONES_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class SlowStep:
    """One step that took longer than the threshold."""

    what: str
    batch: BatchKey | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Window:
    """The durations of the last so many steps."""

    count: int
    mean: float
    longest: float
    slow: int

    def __str__(self) -> str:
        return (
            f"{self.count} fetches, {self.mean:.6f} s on average, {self.longest:.6f} s at most, "
            f"{self.slow} slow"
        )


@dataclass(slots=True)
class Timing:
    """The durations of one kind of step, such as handing out or fetching a batch.

    All numbers are of all steps, but for `window`: the last window that was closed.
    """

    what: str
    count: int = 0
    total: float = 0.0
    longest: float = 0.0
    slow: int = 0
    slow_ones: deque[SlowStep] = field(default_factory=lambda: deque(maxlen=SLOW_ONES_KEPT))
    window: Window | None = None
    _before: tuple[int, float, int] = (0, 0.0, 0)  # count, total and slow, up to this window
    _longest: float = 0.0  # in this window

    def add(
        self, seconds: float, threshold: float, batch: BatchKey | None = None
    ) -> SlowStep | None:
        """Count one step; return it if it was slow."""
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)
        self._longest = max(self._longest, seconds)
        if seconds < threshold:
            return None
        self.slow += 1
        step = SlowStep(self.what, batch, seconds)
        self.slow_ones.append(step)
        return step

    def close_window(self, every: int) -> Window | None:
        """Return the last `every` steps if there are so many, and begin a new window; else None."""
        count, total, slow = self._before
        steps = self.count - count
        if steps < every:
            return None
        window = Window(steps, (self.total - total) / steps, self._longest, self.slow - slow)
        self.window, self._longest = window, 0.0
        self._before = self.count, self.total, self.slow
        return window

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
            "window": None if self.window is None else asdict(self.window),
            "slow_ones": [
                {"batch": list(step.batch) if step.batch else None, "seconds": step.seconds}
                for step in self.slow_ones
            ],
        }
