"""What the ranks of a demonstration and the process that started them say to each other.

Nothing here has behaviour. Times are those of the system's monotonic clock, which all processes of
a host share.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from penstock.demo.plan import Plan
from penstock.wire.messages import Message


class Stage(Enum):
    """What a rank is at."""

    STARTING = "starting"
    TOGETHER = "training, in step"  # gradients are exchanged at every step
    ALONE = "training"  # at its own pace
    PAUSED = "paused"
    MEETING = "waiting for others"  # models are averaged, which takes everybody
    TESTING = "testing"
    PROVING = "proving"
    DONE = "done"


# --- to a rank -------------------------------------------------------------------------------


class Brief(Message, frozen=True, kw_only=True):
    """The first word: which rank it is, and where hub and other ranks are to be found."""

    plan: Plan
    rank: int
    address: str
    rendezvous: str


class GoOn(Message, frozen=True, kw_only=True):
    """The pause is over."""


ToRank: TypeAlias = Brief | GoOn

# --- from a rank -----------------------------------------------------------------------------


class Entered(Message, frozen=True, kw_only=True):
    """It is at something else now."""

    stage: Stage
    at: float


class Trained(Message, frozen=True, kw_only=True):
    """A batch was read, after so many seconds of waiting for it, and learned from."""

    epoch: int
    at: float
    waited: float


class Learned(Message, frozen=True, kw_only=True):
    """An epoch is over."""

    epoch: int
    loss: float


class Tested(Message, frozen=True, kw_only=True):
    """How many of its share of test nodes it told right."""

    right: int
    total: int


class Proved(Message, frozen=True, kw_only=True):
    """The digests of all batches it read, and of those that it made of rank `other`'s list."""

    read: list[str]
    other: int
    made: list[str]


class RankFailed(Message, frozen=True, kw_only=True):
    """It cannot go on."""

    at: float
    what: str


FromRank: TypeAlias = Entered | Trained | Learned | Tested | Proved | RankFailed
