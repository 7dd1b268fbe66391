"""The scheduler's knobs: limits on workers, how fast to start new ones, how much to remember."""

from __future__ import annotations

from typing import Self

from msgspec import structs

from penstock.options import PoolOptions


class Settings(PoolOptions, frozen=True, kw_only=True):
    """What users can set, and what only the scheduler's authors can.

    Times are seconds, memory is bytes. `None`, or an infinite time, means no limit.
    """

    # How the dead are replaced.
    backoff_first: float = 0.1  # the first is replaced at once, the second after this long
    backoff_most: float = 30.0  # for those that die before they are ready
    # For those that die at their work: every one of them is an attempt at a batch, and whoever
    # waits for it is to hear what is wrong before long. The attempts end by themselves.
    death_backoff_most: float = 2.0
    breaker_deaths: int = 5  # so many in a row that never became ready open the breaker
    breaker_rest: float = 30.0  # before somebody may ask again

    # What batches are taken to cost.
    first_estimate: float = 0.01  # where nothing at all is known yet
    least_cost: float = 1e-6  # nothing is free, or one channel would be next for ever
    cost_memory: int = 16  # the running mean moves as if over so many batches

    # What is kept.
    story_length: int = 64  # events remembered for each channel
    quarantine_length: int = 256  # batches remembered that could not be made

    @classmethod
    def of(cls, pool: PoolOptions) -> Self:
        """The settings of a pool that users have set so."""
        return cls(**structs.asdict(pool))

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above zero, not {value}")
        if self.backoff_most < self.backoff_first:
            raise ValueError("backoff_most must be at least backoff_first")
