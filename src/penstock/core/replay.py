"""A channel's story played again, in a scheduler of its own, for whoever looks for a fault.

The other channels are not there, nor what their crew went through. So three things are not decided
anew but taken from the story: who is given which batch and when, whether the breaker opens, and
whether a lost attempt was the last (others may have excused it). Everything else is: the replay
must come to the same answers, and says where it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import inf

from penstock.core.channel import CREW_FAILING, Wait
from penstock.core.crew import Crew, Worker
from penstock.core.events import (
    Assign,
    BatchBegun,
    BatchDone,
    BatchFailed,
    BreakChannel,
    ChannelRegistered,
    CrewSized,
    Deliver,
    Event,
    Fail,
    FinishEpoch,
    Forget,
    Instruction,
    Tick,
    TrimSlots,
    WorkerBeat,
    WorkerLost,
    WorkerReady,
)
from penstock.core.recap import Recap
from penstock.core.restarts import Streak
from penstock.core.scheduler import Scheduler
from penstock.core.settings import Settings
from penstock.core.story import Entry, SchedulerError


def replay(story: Iterable[Entry], settings: Settings | None = None) -> Scheduler:
    """The scheduler after the story of one channel, from its registration or a recap on.

    ValueError if it begins with neither, and SchedulerError at the first answer that differs.
    """
    entries = tuple(story)
    first = entries[0].event if entries else None
    if not isinstance(first, ChannelRegistered | Recap):
        raise ValueError("the story begins with neither its channel's registration nor a recap")
    rehearsal = Rehearsal(first, settings or Settings())
    for number in range(isinstance(first, Recap), len(entries)):
        told, played = rehearsal.play(entries, number)
        if told != played:
            message = f"the story tells {told}, its replay {played}"
            raise SchedulerError(message, entries[: number + 1])
    return rehearsal


class Rehearsal(Scheduler):
    """A scheduler with one channel, that hands out what the story says, to whom it says."""

    def __init__(self, first: ChannelRegistered | Recap, settings: Settings) -> None:
        # Of beats and silence the channel knows nothing: whoever was replaced, the story tells.
        patient = replace(settings, silence=inf, max_batches=None, max_age=None, soft_memory=None)
        super().__init__(patient)
        entry = first.entry if isinstance(first, Recap) else first
        self._channel, self._crew = entry.channel, entry.crew
        self.handle(CrewSized(first.now, entry.crew, 0))
        if isinstance(first, Recap):
            self._resume(first)

    def _resume(self, recap: Recap) -> None:
        """All is as it was then, with this channel and those that had batches of it."""
        self.handle(replace(recap.entry, now=recap.now))
        crew, channel = self._crews[self._crew], self._channels[self._channel]
        for number, task in channel.resume(recap):
            worker = self._worker(number, crew)
            crew.give(worker, task)
            self._timers.arm(worker)
        self._refresh(channel)
        self._out, self._touched = [], []

    def play(
        self, story: Sequence[Entry], number: int
    ) -> tuple[list[Instruction], list[Instruction]]:
        """What the channel was told at this point of its story, and what it is told now."""
        entry = story[number]
        assert not isinstance(entry.event, Recap)  # that is where a story begins, and only there
        told = [order for order in entry.instructions if self._is_mine(order)]
        if isinstance(entry.event, WorkerLost):
            self._foresee(entry.event.worker, islice(story, number, None))
        played = self.handle(entry.event) if self._concerns_me(entry.event) else []
        for order in told:
            self._follow(order)
        played += self._out
        self._out, self._touched = [], []
        return told, [order for order in played if self._is_mine(order)]

    def _dispatch(self, crew: Crew) -> None:
        """Nothing is handed out but by the story."""

    def _foresee(self, number: int, story: Iterable[Entry]) -> None:
        """Before a worker is lost: make the attempt it takes with it the last, or not the last."""
        worker = self._staff.workers.get(number)
        task = worker.begun if worker is not None else None
        if task is None:
            return
        self._crews[self._crew].streak = Streak()  # nothing is excused here
        end = next((order for order in _orders(story) if order.batch == task.batch), None)
        last = isinstance(end, Fail) or (end is not None and end.source != task.source)
        task.too_late = isinstance(end, Assign) and not last and end.attempt == task.attempt
        task.charged = task.channel.max_attempts - 1 if last else -1
        task.excused = int(isinstance(end, Fail) and CREW_FAILING in end.cause)

    def _follow(self, order: Instruction) -> None:
        """What the rest of the world had a part in is done as it was done then."""
        crew, channel = self._crews[self._crew], self._channels.get(self._channel)
        if channel is None:
            return
        match order:
            case Assign(worker=worker) if channel.wants() is Wait.TURN:
                crew.queue.remove(channel)
                self._hand_out(channel, crew, self._worker(worker, crew))
            case Fail(attempts=0) if channel.wants() is Wait.TURN:  # known to be bad
                crew.queue.remove(channel)
                self._hand_out(channel, crew, Worker(0, crew, self._now, self._now))
            case BreakChannel(cause=cause) if channel.epoch.open:
                channel.give_up(cause, self._now, self._out)
                self._refresh(channel)

    def _worker(self, number: int, crew: Crew) -> Worker:
        """Workers are there when the story first names them."""
        found = self._staff.workers.get(number)
        if found is None:
            found = Worker(number, crew, started=self._now, heard=self._now)
            self._staff.workers[number] = found
            crew.wanted += 1
            crew.hire(found)
            self._staff.ready(found, self._now, self._out)
        return found

    def _concerns_me(self, event: Event) -> bool:
        match event:
            case BatchBegun() | BatchDone() | BatchFailed():
                return event.batch.channel == self._channel
            case WorkerLost(worker=worker):
                known = worker in self._staff.workers
                self._crews[self._crew].wanted -= known  # nobody is to take its place by himself
                return known
            case CrewSized() | WorkerReady() | WorkerBeat():
                return False
            case Tick():
                return True
            case _:
                return event.channel == self._channel

    def _is_mine(self, order: Instruction) -> bool:
        match order:
            case Assign() | Deliver() | Fail():
                return order.batch.channel == self._channel
            case FinishEpoch() | BreakChannel() | Forget() | TrimSlots():
                return order.channel == self._channel
            case _:
                return False


def _orders(story: Iterable[Entry]) -> Iterator[Assign | Fail]:
    """Every further attempt at a batch, and every end of them."""
    for entry in story:
        for order in entry.instructions:
            if isinstance(order, Assign | Fail):
                yield order
