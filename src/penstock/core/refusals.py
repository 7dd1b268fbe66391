"""Events that are refused: whoever sent them is wrong, and the scheduler has not changed.

What is wrong with the scheduler itself is a `SchedulerError`, and something else entirely.
"""

from __future__ import annotations

from math import inf

from penstock.core.events import ChannelRegistered, CrewSized
from penstock.errors import PenstockError

LEAST_WEIGHT, MOST_WEIGHT = 1e-4, 1e4


class InvalidEvent(ValueError):
    """An event that makes no sense; says which of its fields, and why."""


class UnknownChannel(PenstockError, KeyError):
    """Somebody named a channel that was never registered."""

    def __init__(self, channel: int) -> None:
        super().__init__(channel)
        self.channel = channel

    def __str__(self) -> str:
        return f"channel {self.channel} was never registered"


def check_size(event: CrewSized) -> None:
    if event.workers < 0:
        raise InvalidEvent(f"crew {event.crew!r} cannot have {event.workers} workers")


def check_weight(weight: float) -> None:
    """Beyond these a share is nothing or everything, and sums of virtual time lose their ends."""
    if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise InvalidEvent(f"weight is {weight}; expected {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}")


def check_registration(event: ChannelRegistered, last: int) -> None:
    """`last`: the id of the channel registered last."""
    if event.channel <= last:
        raise InvalidEvent(f"channel {event.channel} is not above {last}, the last one")
    check_weight(event.weight)
    wrong = {
        "slots": event.slots < 1,
        "max_attempts": event.max_attempts < 1,
        "max_substitutes": event.max_substitutes < 0,
        "estimate": not 0 <= event.estimate < inf,
        "deadline": event.deadline is not None and not event.deadline > 0,
    }
    for name in (name for name, bad in wrong.items() if bad):
        raise InvalidEvent(f"channel {event.channel}: {name} cannot be {getattr(event, name)}")
