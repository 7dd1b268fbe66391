"""The scheduler's knobs: limits on workers, how fast to start new ones, how much to remember."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Times are seconds, memory is bytes. `None`, or an infinite time, means no limit."""

    # What one worker may have and be.
    worker_concurrency: int = 2  # batches it holds at once; it makes them one after another
    silence: float = 10.0  # without a sign of life from it: it is killed
    start_limit: float = 60.0  # from its start until it must be ready
    max_batches: int | None = None  # after so many it is replaced
    max_age: float | None = None
    soft_memory: int | None = None  # above: replaced when its batches are done
    hard_memory: int | None = None  # above: killed

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

    # What is kept, and for how long.
    trim_after: float = 30.0  # a slot not used for so long gives its pages back
    story_length: int = 64  # events remembered for each channel
    quarantine_length: int = 256  # batches remembered that could not be made

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not value > 0:
                raise ValueError(f"{field.name} must be above zero, not {value}")
        if self.backoff_most < self.backoff_first:
            raise ValueError("backoff_most must be at least backoff_first")
