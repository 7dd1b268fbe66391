"""The scheduler's settings: limits on workers, how fast to start new ones, how much to keep."""

from __future__ import annotations

from typing import Self

from msgspec import structs

from penstock.options import PoolOptions


class Settings(PoolOptions, frozen=True, kw_only=True):
    """The pool options that users can set, and constants that only the scheduler's authors set.

    Times are in seconds, memory in bytes. `None`, or an infinite time, means no limit.
    """

    # How dead workers are replaced.
    backoff_first: float = 0.1  # the first is replaced at once, the second after this time
    backoff_most: float = 30.0  # for workers that die before they are ready
    # For workers that die while they sample. Each such death is an attempt at a batch, and the rank
    # that waits for it should soon get the error. `max_attempts` limits these deaths.
    death_backoff_most: float = 2.0
    breaker_deaths: int = 5  # this many in a row that never became ready open the breaker
    breaker_rest: float = 30.0  # before a trial is possible

    # How long a batch that raised waits for its next attempt: first so long, then doubling. A
    # network or a file system may need a while.
    error_backoff_first: float = 0.1
    error_backoff_most: float = 30.0

    # Estimates of what batches cost.
    first_estimate: float = 0.01  # if nothing is known yet
    least_cost: float = 1e-6  # above zero, or one channel could be next for ever
    cost_memory: int = 16  # the running mean is over about this many batches

    # How much history is kept.
    story_length: int = 64  # events for each channel
    quarantine_length: int = 256  # batches that could not be made

    @classmethod
    def of(cls, pool: PoolOptions) -> Self:
        """Return the settings with these pool options."""
        return cls(**structs.asdict(pool))

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above zero, not {value}")
        if self.backoff_most < self.backoff_first:
            raise ValueError("backoff_most must be at least backoff_first")

    def error_delay(self, errors: int) -> float:
        """Return how long a batch waits after it has raised so many times."""
        return doubled(self.error_backoff_first, self.error_backoff_most, errors - 1)


def doubled(first: float, most: float, times: int) -> float:
    """Return `first` doubled so many times, and at most `most`."""
    # A much larger power would overflow a float; the result is limited by `most` anyway.
    return min(most, first * 2.0 ** min(times, 64))
