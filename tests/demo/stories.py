"""Made-up chronicles: what the tests of views and reports look at."""

from __future__ import annotations

import msgspec

from penstock.demo.chronicle import Chronicle, KillStory, ServerStory
from penstock.demo.plan import Plan
from penstock.demo.telling import Entered, Learned, Proved, Stage, Tested, Trained

PLAN = Plan(ranks=2, workers=2, epochs=2, seed=0, classes=4, width=8, train=128)


def told() -> Chronicle:
    """Two ranks, two epochs of four batches each; rank 1 pauses from 15 s to 16.5 s."""
    story = Chronicle(PLAN, began=9.0)
    for rank in story.ranks:
        rank.hear(Entered(stage=Stage.TOGETHER, at=10.0))
        for second in (11.0, 12.0, 13.0, 14.0):
            rank.hear(Trained(epoch=0, at=second, waited=0.25))
        rank.hear(Learned(epoch=0, loss=2.0))
        rank.hear(Entered(stage=Stage.ALONE, at=14.0))
    first, second = story.ranks
    for moment in (14.4, 14.8, 15.2, 15.6):
        first.hear(Trained(epoch=1, at=moment, waited=0.0))
    second.hear(Trained(epoch=1, at=14.5, waited=0.0))
    second.hear(Entered(stage=Stage.PAUSED, at=15.0))
    second.hear(Entered(stage=Stage.ALONE, at=16.5))
    for moment in (17.0, 17.5, 18.0):
        second.hear(Trained(epoch=1, at=moment, waited=0.0))
    for number, (rank, end) in enumerate(zip(story.ranks, (15.6, 18.0), strict=True)):
        rank.hear(Learned(epoch=1, loss=1.0 + number))
        rank.hear(Entered(stage=Stage.MEETING, at=end))
        rank.hear(Entered(stage=Stage.TESTING, at=18.5))
        rank.hear(Tested(right=3 + number, total=5))
        rank.hear(Entered(stage=Stage.PROVING, at=19.0))
        rank.hear(proved(number))
    story.killed = KillStory(
        worker=2, pid=4713, at=13.5, youngest=2, verdict="SIGKILL, no sign of memory pressure"
    )
    story.numbers = {
        "scheduler": {"groups": [{"lost": 1}]},
        "pool": {
            "workers": [
                {"worker": 1, "pid": 4712, "state": "ready", "batches": 9, "cpu": 0.5},
                {"worker": 3, "pid": 4714, "state": "starting", "batches": 0, "cpu": 0.1},
            ]
        },
    }
    return story


def told_of_a_store() -> Chronicle:
    """The same ranks; at 14.3 s a server of part 1 was killed, whose part another one has, too."""
    story = told()
    story.plan = msgspec.structs.replace(PLAN, servers=2)
    story.killed = None
    story.edges_cut = 500
    story.numbers["moved"] = {"bytes_in": 12_000_000, "calls": 1234}
    story.servers = [
        ServerStory(0, "tcp://127.0.0.1:7000", 4801),
        ServerStory(1, "tcp://127.0.0.1:7001", 4802, killed_at=14.3),
        ServerStory(1, "tcp://127.0.0.1:7002", 4803),
    ]
    return story


def digests(rank: int) -> list[str]:
    """Of the eight batches of a rank."""
    return [f"{rank}-{number}" for number in range(8)]


def proved(rank: int) -> Proved:
    """A rank that read what it should, and made the other one's batches as they should be."""
    return Proved(read=digests(rank), other=1 - rank, made=digests(1 - rank))
