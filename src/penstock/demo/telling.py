"""The messages between the ranks of a demonstration and the process that started them.

Nothing here has behaviour. Times are those of the system's monotonic clock, which all processes of
a host share.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from penstock.demo.plan import Plan
from penstock.wire.messages import Message


class Stage(Enum):
    """What a rank is doing."""

    STARTING = "starting"
    TOGETHER = "training, in step"  # gradients are exchanged at every step
    ALONE = "training"  # at its own pace
    PAUSED = "paused"
    MEETING = "waiting for others"  # models are averaged, which needs all ranks
    TESTING = "testing"
    PROVING = "proving"
    DONE = "done"


# --- to a rank -------------------------------------------------------------------------------


class Brief(Message, frozen=True, kw_only=True):
    """The first message: which rank it is, and where to find the hub and the other ranks.

    `whole` is the folder of the whole graph, if the hub's graph is in parts.
    """

    plan: Plan
    rank: int
    address: str
    rendezvous: str
    whole: str | None = None


class GoOn(Message, frozen=True, kw_only=True):
    """The pause is over."""


ToRank: TypeAlias = Brief | GoOn

# --- from a rank -----------------------------------------------------------------------------


class Entered(Message, frozen=True, kw_only=True):
    """The rank is at another stage now."""

    stage: Stage
    at: float


class Trained(Message, frozen=True, kw_only=True):
    """A batch was read, after `waited` seconds of waiting, and trained on."""

    epoch: int
    at: float
    waited: float


class Learned(Message, frozen=True, kw_only=True):
    """An epoch is over."""

    epoch: int
    loss: float


class Tested(Message, frozen=True, kw_only=True):
    """How many of its share of test nodes the rank classified correctly."""

    right: int
    total: int


class Proved(Message, frozen=True, kw_only=True):
    """The digests of all batches the rank read, and of those it made of rank `other`'s list."""

    read: list[str]
    other: int
    made: list[str]


class RankFailed(Message, frozen=True, kw_only=True):
    """The rank cannot go on."""

    at: float
    what: str


FromRank: TypeAlias = Entered | Trained | Learned | Tested | Proved | RankFailed
