"""Statistics of the scheduler: frozen snapshots of plain values, ready for JSON.

Logs, metrics and live views read only these.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.core.channel import Quarantined, ScheduledChannel, Wait
from penstock.core.worker_group import WorkerGroup, WorkerState


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """One channel. `handed_out` to `total` are of its current epoch, or of its last one."""

    id: int
    group: str
    phase: str
    epoch: int
    handed_out: int
    delivered: int
    failed: int
    cancelled: int
    total: int
    delivered_before: int  # this and the next two: in all epochs before the current one
    failed_before: int
    cancelled_before: int
    runnable: bool
    in_flight: int
    waiting_again: int  # batches to be tried again
    slots_free: int
    slots_reserved: int
    slots_with_rank: int
    weight: float
    service: float  # seconds of work that were settled
    estimate: float  # estimated seconds of the next batch
    vtime_lag: float  # its virtual time minus the group's: how much it had above its share
    attempts_lost: int
    errors_retried: int  # attempts that raised, and were followed by another one
    substitutes: int
    stray_returns: int
    waited_for_credit: float
    waited_for_turn: float


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """One worker group."""

    group: str
    wanted: int
    starting: int
    ready: int
    busy: int
    leaving: int
    doomed: int
    started: int
    lost: int
    retired: dict[str, int]  # reason -> how many
    killed: dict[str, int]  # fault -> how many
    breaker: str
    cause: str  # why the breaker opened the last time
    done: int
    failed: int
    in_flight: int
    runnable: int  # channels in its run queue
    mean_cost: float

    @property
    def breaker_open(self) -> bool:
        return self.breaker == "open"


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all channels that ever existed."""

    channels: int = 0
    delivered: int = 0
    failed: int = 0
    cancelled: int = 0
    attempts_lost: int = 0
    errors_retried: int = 0
    substitutes: int = 0
    stray_returns: int = 0

    def plus(self, channel: ScheduledChannel) -> Totals:
        epoch = channel.epoch
        return Totals(
            channels=self.channels + 1,
            delivered=self.delivered + channel.delivered + epoch.delivered,
            failed=self.failed + channel.failed + epoch.failed,
            cancelled=self.cancelled + channel.cancelled + epoch.cancelled,
            attempts_lost=self.attempts_lost + channel.attempts_lost,
            errors_retried=self.errors_retried + channel.errors_retried,
            substitutes=self.substitutes + channel.substitutes,
            stray_returns=self.stray_returns + channel.stray_returns,
        )


@dataclass(frozen=True, slots=True)
class SchedulerStatistics:
    """The whole scheduler at one moment."""

    now: float  # the time of the last event
    events: int
    channels: tuple[ChannelStatistics, ...]
    groups: tuple[GroupStatistics, ...]
    totals: Totals
    quarantined: tuple[Quarantined, ...]  # the most recent ones


def of_channel(channel: ScheduledChannel, virtual_now: float, now: float) -> ChannelStatistics:
    epoch, slots = channel.epoch, channel.slots
    waited = dict(channel.waited)
    waited[channel.waits] += now - channel.since
    return ChannelStatistics(
        id=channel.id,
        group=channel.group,
        phase=channel.phase.value,
        epoch=epoch.number,
        handed_out=epoch.given,
        delivered=epoch.delivered,
        failed=epoch.failed,
        cancelled=epoch.cancelled,
        total=epoch.total,
        delivered_before=channel.delivered,
        failed_before=channel.failed,
        cancelled_before=channel.cancelled,
        runnable=channel.place > 0,
        in_flight=channel.in_flight,
        waiting_again=len(channel.retries) + len(channel.delayed),
        slots_free=slots.free,
        slots_reserved=slots.reserved,
        slots_with_rank=slots.lent,
        weight=channel.weight,
        service=channel.service,
        estimate=channel.estimate(),
        vtime_lag=channel.vtime - virtual_now,
        attempts_lost=channel.attempts_lost,
        errors_retried=channel.errors_retried,
        substitutes=channel.substitutes,
        stray_returns=channel.stray_returns,
        waited_for_credit=waited[Wait.CREDIT],
        waited_for_turn=waited[Wait.TURN],
    )


def of_group(group: WorkerGroup) -> GroupStatistics:
    workers = group.workers.values()
    states = [worker.state for worker in workers]
    return GroupStatistics(
        group=group.name,
        wanted=group.wanted,
        starting=states.count(WorkerState.STARTING),
        ready=group.ready,
        busy=sum(bool(worker.tasks) for worker in workers),
        leaving=states.count(WorkerState.LEAVING),
        doomed=states.count(WorkerState.DOOMED),
        started=group.started,
        lost=group.lost,
        retired={reason.value: count for reason, count in group.retired.items()},
        killed={fault.value: count for fault, count in group.killed.items()},
        breaker=group.breaker.state.value,
        cause=group.breaker.cause,
        done=group.done,
        failed=group.failed,
        in_flight=sum(len(worker.tasks) for worker in workers),
        runnable=len(group.queue),
        mean_cost=group.costs.value,
    )


def in_words(channels: Collection[ScheduledChannel], few: int = 8) -> str:
    """Return one line: how many channels are in each phase, and the positions of the first few."""
    there = [channel for channel in channels if not channel.leaving]
    counts = (
        f"channels: {len(there)} registered, {sum(c.epoch.open for c in there)} active, "
        f"{sum(c.place > 0 for c in there)} runnable, {len(channels) - len(there)} leaving"
    )
    shown = [_position(channel) for channel in there[:few]]
    rest = ["…"] if len(there) > few else []
    return f"{counts}; {' '.join(shown + rest)}" if shown else counts


def _position(channel: ScheduledChannel) -> str:
    epoch = channel.epoch
    if not epoch.open:
        return f"{channel.id}:idle"
    return f"{channel.id}:e{epoch.number}/{epoch.given}/{epoch.ended}/{epoch.total}"
