"""The record of a demonstration: who read when, what happened to whom.

The view and the report read it. One thread writes it, from the messages of ranks and the hub's
statistics. It draws no conclusions; times are those of the system's monotonic clock.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.demo.fairness import Span, common
from penstock.demo.plan import Plan
from penstock.demo.telling import Entered, FromRank, Learned, Proved, Stage, Tested, Trained


@dataclass(slots=True, eq=False)
class RankStory:
    """One rank: its stage, and when it had trained on each batch."""

    stage: Stage = Stage.STARTING
    since: float = 0.0
    epoch: int = 0
    times: list[float] = field(default_factory=list)  # when each batch was done
    waited: float = 0.0
    losses: list[float] = field(default_factory=list)
    tested: Tested | None = None
    proved: Proved | None = None
    past: list[tuple[Stage, Span]] = field(default_factory=list)

    def hear(self, message: FromRank) -> None:
        """Record a message of the rank."""
        match message:
            case Entered(stage=stage, at=at):
                self.past.append((self.stage, Span(self.since, at)))
                self.stage, self.since = stage, at
            case Trained(epoch=epoch, at=at, waited=waited):
                self.epoch = epoch
                self.times.append(at)
                self.waited += waited
            case Learned(loss=loss):
                self.losses.append(loss)
            case Tested():
                self.tested = message
            case Proved():
                self.proved = message

    def spans(self, stage: Stage) -> list[Span]:
        """Return when the rank was at a stage."""
        return [span for what, span in self.past if what is stage]

    def idle(self) -> list[Span]:
        """Return when the rank did not read."""
        reading = (Stage.TOGETHER, Stage.ALONE)
        past = [*self.past, (self.stage, Span(self.since, math.inf))]
        return [span for what, span in past if what not in reading]

    def read_within(self, span: Span) -> int:
        """Return how many batches were trained on in a span of time."""
        return bisect_right(self.times, span.end) - bisect_right(self.times, span.begin)


@dataclass(slots=True, eq=False)
class KillStory:
    """The worker that was killed. `verdict` is the hub's; `replaced`: when its successor was up."""

    worker: int
    pid: int
    at: float
    youngest: int  # highest worker number at that time
    verdict: str = ""
    batch: str | None = None
    lost_at: float = 0.0
    replaced: float | None = None
    successor: int | None = None


@dataclass(slots=True, eq=False)
class ServerStory:
    """One server of the store; `killed_at`: when it was killed, if it was."""

    part: int
    address: str
    pid: int
    killed_at: float | None = None


@dataclass(slots=True, eq=False)
class Chronicle:
    """A demonstration up to now. `edges_cut` lead from one part of the store to another."""

    plan: Plan
    began: float
    ranks: list[RankStory] = field(init=False)
    killed: KillStory | None = None
    numbers: dict[str, Any] = field(default_factory=dict)  # the hub's latest statistics
    servers: list[ServerStory] = field(default_factory=list)  # none without a store
    edges_cut: int = 0

    def __post_init__(self) -> None:
        self.ranks = [RankStory(since=self.began) for _ in range(self.plan.ranks)]

    @property
    def batches(self) -> int:
        """The number of batches that all ranks together have trained on."""
        return sum(len(rank.times) for rank in self.ranks)

    @property
    def training(self) -> Span:
        """The time from the moment when all ranks were there to the last batch."""
        begins = [span.begin for rank in self.ranks for span in rank.spans(Stage.TOGETHER)]
        ends = [rank.times[-1] for rank in self.ranks if rank.times]
        return Span(max(begins, default=self.began), max(ends, default=self.began))

    @property
    def paused(self) -> Span | None:
        """When the pausing rank paused; None before the end of the pause."""
        return next(iter(self.ranks[self.plan.pausing_rank].spans(Stage.PAUSED)), None)

    @property
    def killed_server(self) -> ServerStory | None:
        """The server that was killed, if one was."""
        return next((each for each in self.servers if each.killed_at is not None), None)

    def silence(self, span: Span) -> float:
        """Return for how long nobody got a batch, at most, in a span in which some wanted one.

        Times in which no rank reads, because all wait for one that pauses, do not count.
        """
        within = (at for rank in self.ranks for at in rank.times if span.begin < at < span.end)
        gaps = (Span(*pair) for pair in pairwise([span.begin, *sorted(within), span.end]))
        idle = common([rank.idle() for rank in self.ranks])
        return max(
            gap.seconds - sum(each.seconds for each in common([[gap], idle])) for gap in gaps
        )

    def losses(self) -> list[float]:
        """Return the mean loss of each epoch that all ranks have finished."""
        of_ranks = [rank.losses for rank in self.ranks]
        return [float(np.mean(losses)) for losses in zip(*of_ranks, strict=False)]

    def rates(self, at: float, window: float) -> list[float]:
        """Return each rank's batches per second, in the window before `at`."""
        span = Span(at - window, at)
        return [rank.read_within(span) / window for rank in self.ranks]

    @property
    def lost(self) -> int:
        """The number of workers that died."""
        groups = self.numbers.get("scheduler", {}).get("groups", ())
        return sum(group["lost"] for group in groups)
