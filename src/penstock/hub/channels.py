"""Channels as the hub sees them: whose they are, where their batches come from and go to.

The scheduler knows a channel as a number with slots; here that number has a feed, a share of it, a
memory and a rank. Nothing here decides anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.core.events import BatchKey, ChannelRegistered
from penstock.core.plan import EpochPlan
from penstock.graph.graph import Graph
from penstock.graph.handles import MemfdHandle
from penstock.graph.view import GraphView
from penstock.hub.backends import HubBackend
from penstock.hub.connection import RankConnection
from penstock.hub.reports import Mishap
from penstock.hub.timings import Timing
from penstock.options import DIVIDED_INTO, ChannelOptions, Remainder
from penstock.sampling.inputs import (
    ChannelInputs,
    attached,
    check_feed,
    check_kind,
    segment_of,
    type_of,
)
from penstock.sampling.kinds import seconds_of
from penstock.sampling.spec import Feed, Spec
from penstock.wire.messages import BatchId
from penstock.workers.arena import Arena

# Where the rank does not say: at least and at most.
FEWEST_SLOTS: Final = 4
MANY_SLOTS: Final = 64
SPOILED_KEPT: Final = 64


@dataclass(slots=True, eq=False)
class HubChannel:
    """One stream of batches."""

    number: int
    connection: RankConnection
    backend: HubBackend
    feed: Feed
    options: ChannelOptions
    arena: Arena
    ids: tuple[int, ...]  # the descriptor of the inputs, where they lie in a memfd
    plan: EpochPlan
    epoch: int = -1
    leaving: float | None = None  # since when
    # What went wrong with batches that may yet be made, until they end. One whose seeds have failed
    # in the place of another fails by what was found then; it is looked up by its index.
    mishaps: dict[BatchKey, Mishap] = field(default_factory=dict)
    spoiled: dict[int, Mishap] = field(default_factory=dict)
    recipes: int = 0  # written in this epoch
    # When the rank asked for what comes in each slot: at the epoch's start, or by returning it.
    asked: dict[int, float] = field(default_factory=dict)
    handing_out: Timing = field(default_factory=lambda: Timing("handing out"))
    fetching: Timing = field(default_factory=lambda: Timing("fetching"))

    def start(self, epoch: int, plan: EpochPlan, now: float) -> None:
        """A new epoch: nothing of the last one matters any more."""
        self.epoch, self.plan = epoch, plan
        self.mishaps.clear()
        self.spoiled.clear()
        self.recipes = 0
        self.asked = dict.fromkeys(range(self.arena.plan.slots), now)

    def index(self, step: int) -> int:
        """Where a step of the current epoch stands in the global list."""
        return self.plan.global_index(self.options.rank, step)

    def note(self, batch: BatchKey, mishap: Mishap) -> None:
        """Something went wrong with a batch."""
        self.mishaps[batch] = self.spoiled[mishap.index] = mishap
        while len(self.spoiled) > SPOILED_KEPT:
            del self.spoiled[next(iter(self.spoiled))]

    def mishap(self, batch: BatchKey) -> Mishap | None:
        """What went wrong with a batch that has failed, if anything is known."""
        return self.mishaps.pop(batch, None) or self.spoiled.get(self.index(batch.step))

    def __str__(self) -> str:
        job = self.options.job
        return f"channel {self.number}" + (f" ({job})" if job else "")

    def close(self) -> None:
        """Lets go of its memory. Idempotent."""
        self.arena.close()
        for fd in self.ids:
            os.close(fd)
        self.ids = ()


class HubChannels:
    """All channels there are, also those that are leaving. Numbers count up from 1."""

    def __init__(self) -> None:
        self.last = 0
        self._by_number: dict[int, HubChannel] = {}
        self.slot_bytes = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[HubChannel]:
        return iter(self._by_number.values())

    def __getitem__(self, number: int) -> HubChannel:
        return self._by_number[number]

    def get(self, number: int) -> HubChannel | None:
        """The channel of this number, unless it has never been or has gone."""
        return self._by_number.get(number)

    def next_number(self) -> int:
        """A number for a new channel."""
        self.last += 1
        return self.last

    def add(self, channel: HubChannel) -> None:
        """A channel that was opened."""
        self._by_number[channel.number] = channel
        self.slot_bytes += arena_bytes(channel.arena.plan.slots, channel.arena.plan.slot_bytes)

    def remove(self, number: int) -> HubChannel:
        """A channel that nobody can touch any more; the caller closes it."""
        channel = self._by_number.pop(number)
        self.slot_bytes -= arena_bytes(channel.arena.plan.slots, channel.arena.plan.slot_bytes)
        return channel


def slots_for(options: ChannelOptions, workers: int, concurrency: int) -> int:
    """As many as the rank asks for; else enough that no worker has to wait, but not any number.

    Two are for the reader. A rank that says how large all of them are together knows their number.
    """
    if options.slots is not None:
        return options.slots
    if options.buffer_size is not None:
        return DIVIDED_INTO
    return max(FEWEST_SLOTS, min(workers * concurrency + 2, MANY_SLOTS))


def arena_bytes(slots: int, slot_bytes: int) -> int:
    """What a channel's memory can come to."""
    return slots * slot_bytes


def batch_of(batch: BatchId) -> BatchKey:
    """A batch's name as the scheduler has it."""
    return BatchKey(batch.channel, batch.epoch, batch.step)


def batch_id(batch: BatchKey) -> BatchId:
    """A batch's name on the wire."""
    return BatchId(batch.channel, batch.epoch, batch.step)


def plan_of(feed: Feed, options: ChannelOptions, first: int = 0) -> EpochPlan:
    """The arithmetic of an epoch of a feed; ValueError if there is no such."""
    plan = EpochPlan(
        feed.num_inputs,
        feed.batch_size,
        feed.drop_last,
        options.world_size,
        Remainder(options.remainder),
        first,
    )
    if not 0 <= options.rank < options.world_size:
        raise ValueError(f"rank is {options.rank}; expected 0 <= rank < {options.world_size}")
    return plan


def registration_of(now: float, channel: HubChannel, graph: Graph) -> ChannelRegistered:
    """What the scheduler is to know of a channel that was asked for."""
    feed = channel.feed
    inputs = min(feed.batch_size, feed.num_inputs)
    return ChannelRegistered(
        now,
        channel.number,
        channel.backend.group,
        channel.arena.plan.slots,
        channel.options,
        estimate=seconds_of(channel.backend.spec, graph, inputs, type_of(feed)),
    )


def check_inputs(spec: Spec, feed: Feed, graph: GraphView, fds: Sequence[int]) -> None:
    """ValueError unless this graph has such inputs, of the spec's kind; `fds` stay the caller's."""
    needed = int(isinstance(segment_of(feed), MemfdHandle))
    if len(fds) != needed:
        raise ValueError(f"{len(fds)} descriptors came with a feed that needs {needed}")
    # Looked at, so that a handle that lies is found out here, and not by every worker.
    given = given_by(feed, fds)
    check_kind(spec, feed, graph, given)
    check_feed(feed, graph, given)


def given_by(feed: Feed, fds: Sequence[int]) -> ChannelInputs:
    """What a feed speaks of, mapped as long as somebody looks at it; `fds` stay the caller's."""
    return attached(feed, os.dup(fds[0]) if fds else None)
