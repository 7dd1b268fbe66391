"""The hub's channels: the connection, the feed and the arena of each.

The scheduler knows a channel as a number with slots; here that number has a feed, a rank's share of
it, an arena and a connection. This module must not decide anything.
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

# The least and the greatest number of slots if the rank does not give one.
FEWEST_SLOTS: Final = 4
MANY_SLOTS: Final = 64
# Small batches get up to so many slots, as far as these bytes suffice. Whoever wakes up then finds
# several batches at a time: two workers make half as many again, with 32 seeds a batch.
SMALL_SLOTS: Final = 16
SMALL_BYTES: Final = 8 << 20
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
    ids: tuple[int, ...]  # the descriptor of the inputs, if they are in a memfd
    plan: EpochPlan
    epoch: int = -1
    leaving: float | None = None  # when it was unregistered
    # What went wrong with batches that may still be made, until they end. If a batch was tried as a
    # substitute and failed, its own failure is reported by that mishap, found by its index.
    mishaps: dict[BatchKey, Mishap] = field(default_factory=dict)
    spoiled: dict[int, Mishap] = field(default_factory=dict)
    recipes: int = 0  # written in this epoch
    # When the rank asked for the next batch in each slot: at the epoch's start, or when it returned
    # the slot.
    asked: dict[int, float] = field(default_factory=dict)
    handing_out: Timing = field(default_factory=lambda: Timing("handing out"))
    fetching: Timing = field(default_factory=lambda: Timing("fetching"))

    def start(self, epoch: int, plan: EpochPlan, now: float) -> None:
        """Start a new epoch, and drop the records of the last one."""
        self.epoch, self.plan = epoch, plan
        self.mishaps.clear()
        self.spoiled.clear()
        self.recipes = 0
        self.asked = dict.fromkeys(range(self.arena.plan.slots), now)

    def index(self, step: int) -> int:
        """Return the index of a step of the current epoch in the global list."""
        return self.plan.global_index(self.options.rank, step)

    def note(self, batch: BatchKey, mishap: Mishap) -> None:
        """Record what went wrong with a batch."""
        self.mishaps[batch] = self.spoiled[mishap.index] = mishap
        while len(self.spoiled) > SPOILED_KEPT:
            del self.spoiled[next(iter(self.spoiled))]

    def mishap(self, batch: BatchKey) -> Mishap | None:
        """Return what went wrong with a batch that has failed, or None if it is not known."""
        return self.mishaps.pop(batch, None) or self.spoiled.get(self.index(batch.step))

    def __str__(self) -> str:
        job = self.options.job
        return f"channel {self.number}" + (f" ({job})" if job else "")

    def close(self) -> None:
        """Close the arena and the inputs. Idempotent."""
        self.arena.close()
        for fd in self.ids:
            os.close(fd)
        self.ids = ()


class HubChannels:
    """All channels, including those that are leaving. Numbers are increasing, from 1."""

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
        """Return the channel of this number; None if it never existed or is gone."""
        return self._by_number.get(number)

    def next_number(self) -> int:
        """Return a number for a new channel."""
        self.last += 1
        return self.last

    def add(self, channel: HubChannel) -> None:
        """Add a channel that was opened."""
        self._by_number[channel.number] = channel
        self.slot_bytes += arena_bytes(channel.arena.plan.slots, channel.arena.plan.slot_bytes)

    def remove(self, number: int) -> HubChannel:
        """Remove and return a channel that no worker can access any more; the caller closes it."""
        channel = self._by_number.pop(number)
        self.slot_bytes -= arena_bytes(channel.arena.plan.slots, channel.arena.plan.slot_bytes)
        return channel


def slots_for(options: ChannelOptions, workers: int, concurrency: int, slot_bytes: int) -> int:
    """Return the number of slots that the rank asks for, or enough to keep all workers busy.

    The default includes two slots for the reader, and is bounded; it is larger for small batches.
    If the rank sets only `buffer_size`, that is divided into a fixed number of slots.
    """
    if options.slots is not None:
        return options.slots
    if options.buffer_size is not None:
        return DIVIDED_INTO
    small = min(SMALL_BYTES // slot_bytes, SMALL_SLOTS)
    return max(FEWEST_SLOTS, small, min(workers * concurrency + 2, MANY_SLOTS))


def arena_bytes(slots: int, slot_bytes: int) -> int:
    """Return the greatest size of a channel's arena."""
    return slots * slot_bytes


def batch_of(batch: BatchId) -> BatchKey:
    """Return a batch's identity as the scheduler has it."""
    return BatchKey(batch.channel, batch.epoch, batch.step)


def batch_id(batch: BatchKey) -> BatchId:
    """Return a batch's identity as messages have it."""
    return BatchId(batch.channel, batch.epoch, batch.step)


def plan_of(feed: Feed, options: ChannelOptions, first: int = 0) -> EpochPlan:
    """Return the plan of an epoch of a feed; raise ValueError if feed or options are not valid."""
    plan = EpochPlan(
        feed.num_inputs,
        feed.batch_size,
        feed.drop_last,
        options.world_size,
        Remainder(options.remainder),
        first,
        feed.groups,
    )
    if not 0 <= options.rank < options.world_size:
        raise ValueError(f"rank is {options.rank}; expected 0 <= rank < {options.world_size}")
    return plan


def registration_of(now: float, channel: HubChannel, graph: Graph) -> ChannelRegistered:
    """Return the event that registers a channel with the scheduler."""
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
    """Raise ValueError if this graph has no such inputs, or the spec cannot take them.

    The caller keeps `fds`.
    """
    needed = int(isinstance(segment_of(feed), MemfdHandle))
    if len(fds) != needed:
        raise ValueError(f"{len(fds)} descriptors came with a feed that needs {needed}")
    # The inputs are mapped here, so that a wrong handle is found now and not by every worker.
    given = given_by(feed, fds)
    check_kind(spec, feed, graph, given)
    check_feed(feed, graph, given)


def given_by(feed: Feed, fds: Sequence[int]) -> ChannelInputs:
    """Return a feed's inputs, mapped for as long as they are referenced; the caller keeps `fds`."""
    return attached(feed, os.dup(fds[0]) if fds else None)
