"""The invariants of the scheduler: what must hold between any two events.

The check is slow and complete, and changes nothing. Tests call it after every event; production
code does not need it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import inf, isclose, isfinite

from penstock.core.channel import ScheduledChannel, Task, Wait
from penstock.core.restarts import BreakerState
from penstock.core.slots import Slot
from penstock.core.story import SchedulerError
from penstock.core.worker_group import ScheduledWorker, WorkerGroup, WorkerState


def check(groups: Iterable[WorkerGroup]) -> None:
    """Raise SchedulerError, with the story of the channel concerned, if an invariant is broken."""
    for group in groups:
        _demand(_group_faults(group), f"group {group.name!r}")
        for worker in group.workers.values():
            _demand(_worker_faults(worker), f"worker {worker.id}")
        held = [task for worker in group.workers.values() for task in worker.tasks]
        by_channel: dict[int, list[Task]] = {number: [] for number in group.channels}
        for task in held:
            by_channel[task.batch.channel].append(task)
        for channel in group.channels.values():
            faults = _channel_faults(channel, by_channel[channel.id])
            _demand(faults, f"channel {channel.id}", channel)


def _demand(faults: Iterator[str], whose: str, channel: ScheduledChannel | None = None) -> None:
    for fault in faults:
        raise SchedulerError(f"{whose}: {fault}", channel.story.entries() if channel else ())


def _channel_faults(channel: ScheduledChannel, held: list[Task]) -> Iterator[str]:
    """Yield what is wrong with a channel; `held` are its tasks that workers hold."""
    yield from _slot_faults(channel, [*held, *channel.retries, *channel.delayed])
    yield from _epoch_faults(channel, held)
    yield from _turn_faults(channel, held)
    if channel.in_flight != len(held):
        yield f"{channel.in_flight} batches are counted as in flight, but workers hold {len(held)}"
    if channel.leaving and (not held or channel.retries or channel.delayed):
        yield "it is leaving with nothing in flight, but was not removed"
    if channel.due() < channel.alarm:
        yield "slots are idle or batches delayed, but no timer is set for them"


def _slot_faults(channel: ScheduledChannel, tasks: list[Task]) -> Iterator[str]:
    slots = channel.slots
    states = Counter(slots.state)
    counted = {Slot.FREE: slots.free, Slot.RESERVED: slots.reserved, Slot.LENT: slots.lent}
    for state, count in counted.items():
        if states[state] != count:
            yield f"{count} slots counted as {state.value}, not {states[state]}"
    reserved = sorted(n for n, state in enumerate(slots.state) if state is Slot.RESERVED)
    if reserved != sorted(task.slot for task in tasks):
        yield f"slots {reserved} are reserved, not those of {[str(task.batch) for task in tasks]}"


def _epoch_faults(channel: ScheduledChannel, held: list[Task]) -> Iterator[str]:
    epoch = channel.epoch
    if not epoch.open:
        if epoch.ended != epoch.total:
            yield f"epoch {epoch.number} is over with {epoch.ended} of {epoch.total} batches ended"
        if channel.retries or channel.delayed:
            yield "the epoch is over, but batches wait to be retried"
        return
    again = [*channel.retries, *channel.delayed]
    alive = sum(task.epoch is epoch for task in held) + len(again)
    if epoch.ended + alive != epoch.given or not epoch.ended < epoch.total:
        yield f"{epoch.given} of {epoch.total} assigned, {alive} in flight, {epoch.ended} ended"
    if epoch.substitutes > channel.options.substitutes:
        yield f"{epoch.substitutes} substitutes, over {channel.options.substitutes}"
    if any(task.epoch is not epoch or task.began is not None for task in again):
        yield "a batch to be retried is of another epoch, or was begun"
    if any(task.errors > channel.options.retry_errors for task in [*held, *again]):
        yield f"a batch was retried after more than {channel.options.retry_errors} errors"


def _turn_faults(channel: ScheduledChannel, held: list[Task]) -> Iterator[str]:
    if (channel.wants() is Wait.TURN) != (channel.place > 0):
        yield "its place in the run queue does not match whether it can be served"
    if channel.waits is not channel.wants():
        yield f"it waits for {channel.wants().value}, but {channel.waits.value} is recorded"
    if not isfinite(channel.vtime) or not channel.weight > 0:
        yield f"virtual time {channel.vtime}, weight {channel.weight}"
    charged = sum(task.charge for task in held)
    if not isclose(channel.outstanding, charged, rel_tol=1e-6, abs_tol=1e-6):
        yield f"{channel.outstanding} outstanding, but its tasks are charged {charged}"


def _worker_faults(worker: ScheduledWorker) -> Iterator[str]:
    settings = worker.group.settings
    if len(worker.tasks) > settings.worker_concurrency:
        yield f"it holds {len(worker.tasks)} batches, over {settings.worker_concurrency}"
    if any(task.began is not None for task in worker.tasks[1:]):
        yield "it has begun several batches at once"
    if worker.tasks and not worker.was_ready:
        yield "it holds batches but was never ready"
    load = len(worker.tasks)
    places = [n for n, room in enumerate(worker.group.room) if worker.id in room]
    able = worker.state is WorkerState.READY and load < settings.worker_concurrency
    if places != ([load] if able else []):
        yield f"{worker.state.value} with {load} batches, but listed with those that hold {places}"
    if worker.due() < worker.alarm:
        yield f"it is due at {worker.due()}, but its timer is set to {worker.alarm}"


def _group_faults(group: WorkerGroup) -> Iterator[str]:
    workers = group.workers.values()
    counts = Counter(worker.state for worker in workers if not worker.retired)
    counted = group.starting, group.ready, group.dying
    looked = tuple(counts[s] for s in (WorkerState.STARTING, WorkerState.READY, WorkerState.DOOMED))
    if counted != looked:
        yield f"starting, ready, dying workers: counted as {counted}, but they are {looked}"
    if group.starting + group.ready > group.wanted:
        yield f"{group.starting} starting, {group.ready} ready, but {group.wanted} wanted"
    if group.due() < group.alarm:
        yield "workers are missing, but no timer is set to start them"
    if group.breaker.state is BreakerState.TRIAL and not group.starting:
        yield "the breaker is in trial, but no worker is starting"
    if group.stranded and any(channel.epoch.open for channel in group.channels.values()):
        yield "epochs are open, but no worker will ever be started for them"
    yield from _queue_faults(group)


def _queue_faults(group: WorkerGroup) -> Iterator[str]:
    places = Counter(channel.place for channel in group.channels.values() if channel.place)
    valid = Counter(number for _, number, flow in group.queue.entries() if flow.place == number)
    if places != valid or len(group.queue) != len(places):
        yield f"the run queue has {dict(valid)}, but the channels' places are {dict(places)}"
    if any(count > 1 for count in valid.values()):
        yield "a channel is in the run queue twice"
    for vtime, number, flow in group.queue.entries():
        if flow.place == number and vtime != flow.vtime:
            yield f"channel {flow.id} is queued at {vtime}, but its virtual time is {flow.vtime}"
    if len(group.queue) and any(group.room):
        yield "a channel has batches and a worker has room, but none was assigned"
    if group.queue.virtual_now == inf:
        yield "virtual time is infinite"
