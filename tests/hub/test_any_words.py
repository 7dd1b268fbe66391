"""Ranks that say anything at all, in any order: the hub lives, and serves whoever makes sense."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from penstock.sampling.spec import CustomSpec, NeighborSpec
from penstock.wire.messages import (
    AskGraph,
    AskStatistics,
    AskWorkers,
    CreateBackend,
    FromRankToHub,
    Hello,
    Resize,
    ReturnSlot,
    Reweigh,
    StartEpoch,
    Stop,
    Unregister,
)
from tests.hub.raw import SPEC, Rank, feed, inline, running_hub, same
from tests.processes import strike
from tests.wishes import register

pytestmark = pytest.mark.usefixtures("no_leaks")

WORDS = 400


def words(chance: random.Random) -> Iterator[FromRankToHub]:
    """Messages that are well formed, and make sense now and then."""

    def number(most: int) -> int:
        return chance.choice([-1, 2**40] if chance.random() < 0.02 else range(1, most))

    specs = [
        SPEC,
        NeighborSpec(num_neighbors=(-7,)),
        NeighborSpec(num_neighbors=(2,), direction="out"),
        CustomSpec(sampler="tests.hub.samplers:Seeds"),
        CustomSpec(sampler="tests.hub.samplers:RaisesAtThree"),
        CustomSpec(sampler="nonsense"),
    ]
    while True:
        yield from chance.choices(
            [
                CreateBackend(request=1, spec=chance.choice(specs), workers=1),
                register(
                    request=2,
                    backend=number(5),
                    feed=feed(chance.choice([5, 40, 40, 500]), chance.choice([0, 1, 4, 4])),
                    rank=chance.choice([0, 0, 1]),
                    world_size=chance.choice([1, 2]),
                    slots=chance.choice([0, 1, 3, 3]),
                    on_error=chance.choice(["raise", "raise", "substitute", "shrug"]),
                    max_substitutes=chance.choice([-1, 0, 3, 3]),
                ),
                StartEpoch(channel=number(8), epoch=number(5), first_step=chance.choice([0, 2])),
                ReturnSlot(channel=number(8), slot=chance.choice([0, 1, 2, 9])),
                Reweigh(channel=number(8), weight=chance.choice([0.0, 1.0, 3.0, 1e9])),
                Unregister(channel=number(8)),
                Resize(request=3, workers=chance.choice([-1, 1, 2])),
                AskWorkers(request=4, backend=chance.choice([None, number(5)])),
                AskStatistics(request=5),
                AskGraph(request=6),
                Hello(protocol=1, pid=1),
                Stop(),
            ],
            weights=[40, 80, 80, 60, 20, 30, 10, 20, 20, 10, 1, 1],
        )


def drain(rank: Rank) -> bool:
    """Takes what is there to be read; False once the hub has closed the connection."""
    for _, fds in rank.stream.receive():
        for fd in fds:
            os.close(fd)
    return not rank.stream.ended


@pytest.mark.parametrize("seed", range(3))
def test_a_hub_survives_any_words(seed: int) -> None:
    """CONTRACT 9, 15, 40: whatever others say, and whenever they leave."""
    chance = random.Random(seed)
    with running_hub(workers=1) as hub:
        # Held by somebody who stays; whoever leaves may otherwise take them along.
        for name in ("Seeds", "RaisesAtThree"):
            hub.founder.backend(CustomSpec(sampler=f"tests.hub.samplers:{name}"), workers=1)
        hub.founder.backend(SPEC)
        ranks = [Rank.join(hub.address) for _ in range(3)]
        for rank in ranks:  # whatever becomes of the words that follow, this made sense
            rank.register(rank.backend())
        for count, word in zip(range(WORDS), words(chance), strict=False):
            at = chance.randrange(3)
            ranks[at].stream.send(word)
            if not drain(ranks[at]) or chance.random() < 0.02:
                ranks[at].close()
                ranks[at] = Rank.join(hub.address)
            if count % (WORDS // 4) == 50 and (pids := hub.founder.worker_pids()):
                strike(chance.choice(pids))
        for rank in ranks:
            rank.close()
        founder = hub.founder
        channel = founder.register(founder.backend())
        assert same(channel.epoch(0), inline())
        # Batches in flight come back in their time.
        founder.until(lambda numbers: list(numbers["channels"]) == [str(channel.number)])
