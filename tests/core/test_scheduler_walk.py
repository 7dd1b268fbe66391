"""Every state a small configuration can get into, walked: none stuck, nothing lost, nothing twice.

Two channels, two workers, a few steps, every order of events: hand-outs, completions, failures,
losses, deadlines, cancelled epochs, channels that leave. Two situations are the same state when
nobody could tell them apart from here on: time and virtual time are taken relative, workers by
their order. The ledger judges each step on the way, and from each state well-behaved surroundings
must come to an end.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from penstock.core.events import (
    BatchBegun,
    BatchDone,
    BatchFailed,
    ChannelRegistered,
    ChannelUnregistered,
    EpochStarted,
    Event,
    GroupSized,
    SlotReturned,
    Tick,
    WorkerLost,
    WorkerReady,
)
from penstock.core.scheduler import Settings
from penstock.core.story import Story
from penstock.options import OnError
from tests.core.scheduler_books import ChannelBook, CrewBook, Flight, Holder, Phase, WorkerBook
from tests.core.scheduler_entries import registered
from tests.core.scheduler_run import Run

REST = 100.0
FOREVER = 1e9  # nobody falls silent here: time passes only where somebody waits for it


@dataclass(frozen=True)
class Plan:
    """A configuration, and how much may go wrong in it."""

    channels: tuple[ChannelRegistered, ...]
    steps: tuple[int, ...]  # of the channels' first epochs
    costs: tuple[int, ...]
    workers: int = 2
    concurrency: int = 1
    losses: int = 0
    failures: int = 0
    restarts: int = 0  # epochs started while the last one is unfinished, or after it
    leavers: int = 0
    breaker_deaths: int = 9
    passing: bool = False  # whether what fails may be tried again


@dataclass(frozen=True)
class Spent:
    """What went wrong so far."""

    losses: int = 0
    failures: int = 0
    restarts: int = 0
    leavers: int = 0


def channel(number: int, slots: int, estimate: float, **more: object) -> ChannelRegistered:
    """An entry whose guess is right, so that virtual time stays in whole numbers."""
    return registered(0.0, number, "", slots, estimate=estimate, **more)  # type: ignore[arg-type]


LOSSES = Plan(
    channels=(channel(1, 1, 1.0, max_attempts=2), channel(2, 2, 2.0, max_attempts=2)),
    steps=(2, 2),
    costs=(1, 2),
    losses=1,
)
ENDINGS = Plan(
    channels=(channel(1, 1, 1.0), channel(2, 2, 1.0)),
    steps=(2, 2),
    costs=(1, 1),
    workers=1,
    losses=1,
    restarts=1,
    leavers=1,
)
SUBSTITUTES = Plan(
    channels=(
        channel(1, 2, 1.0, max_attempts=1, on_error=OnError.SUBSTITUTE, max_substitutes=2),
        channel(2, 1, 1.0, max_attempts=1),
    ),
    steps=(3, 1),
    costs=(1, 1),
    workers=1,
    losses=2,
    failures=1,
)
ERRORS = Plan(
    channels=(channel(1, 2, 1.0, retry_errors=2), channel(2, 1, 1.0, retry_errors=1)),
    steps=(2, 1),
    costs=(1, 1),
    failures=2,
    passing=True,
)
PAIRS = Plan(
    channels=(channel(1, 2, 1.0, max_attempts=1), channel(2, 2, 1.0, max_attempts=1)),
    steps=(2, 2),
    costs=(1, 1),
    workers=1,
    concurrency=2,
    losses=2,
    leavers=2,
)
BREAKER = Plan(
    channels=(channel(1, 1, 1.0, max_attempts=2),),
    steps=(2,),
    costs=(1,),
    losses=3,
    restarts=1,
    breaker_deaths=2,
)
DEADLINES = Plan(
    channels=(
        channel(1, 2, 1.0, max_attempts=1, deadline=8.0),
        channel(2, 1, 1.0, max_attempts=1, deadline=16.0),
    ),
    steps=(2, 1),
    costs=(1, 1),
    workers=1,
    concurrency=2,
    leavers=1,
)
PLANS = {
    "errors that are tried again": ERRORS,
    "losses and retries": LOSSES,
    "cancelled epochs and leavers": replace(ENDINGS, steps=(2, 1)),
    "quarantine and substitutes": replace(SUBSTITUTES, steps=(2, 1)),
    "two batches at a worker": PAIRS,
    "starts that fail": BREAKER,
    "deadlines": DEADLINES,
}
LARGER = {
    "errors that are tried again, losses and leavers, alone": replace(
        ERRORS, workers=1, losses=1, leavers=1
    ),
    "cancelled epochs and leavers, alone": ENDINGS,
    "quarantine and substitutes, alone": SUBSTITUTES,
    "losses and retries": replace(LOSSES, steps=(2, 3), losses=2),
    "cancelled epochs and leavers": replace(ENDINGS, workers=2),
    "quarantine and substitutes": replace(SUBSTITUTES, workers=2),
    "two batches at a worker": replace(PAIRS, restarts=1),
    "deadlines": replace(DEADLINES, steps=(3, 2), losses=1),
    "starts that fail": replace(
        BREAKER,
        channels=(channel(1, 1, 1.0, max_attempts=2), channel(2, 1, 1.0, max_attempts=2)),
        steps=(1, 2),
        costs=(1, 1),
    ),
}


# --- one state -------------------------------------------------------------------------------


@dataclass
class State:
    """A run and what was spent on the way to it."""

    run: Run
    spent: Spent = Spent()

    def key(self) -> Hashable:
        """Equal for situations that nobody can tell apart from here on."""
        ledger, scheduler = self.run.ledger, self.run.scheduler
        order = {number: place for place, number in enumerate(sorted(ledger.workers))}
        wakeup = scheduler.next_wakeup()
        soon = None if wakeup is None or wakeup > FOREVER / 2 else wakeup - self.run.now
        return (
            self.spent,
            soon,
            tuple(group_key(group) for group in ledger.groups.values()),
            rest_left(self.run),
            tuple((*worker_key(ledger.workers[n]), time_left(self.run, n)) for n in order),
            tuple(channel_key(book, order, self.run.now) for book in ledger.channels.values()),
            tuple(sorted(virtual_times(self.run))),
            run_queue(self.run),
        )


def virtual_times(run: Run) -> Iterator[tuple[int, float]]:
    """How far each channel is ahead of its group's virtual now."""
    assert run.figures is not None
    for channel in run.figures.channels:
        yield channel.id, max(channel.vtime_lag, 0.0)


def run_queue(run: Run) -> Hashable:
    """Who waits for a turn, and who has waited longer: it may decide between equals."""
    since = {book.id: book.queued for book in run.ledger.channels.values() if book.can_give}
    order = sorted({number for number in since.values() if number is not None})
    return tuple((channel, number and order.index(number)) for channel, number in since.items())


def rest_left(run: Run) -> float | None:
    """How long nobody may ask for the group again; None while its breaker is closed."""
    (group,) = run.ledger.groups.values()
    if not run.ledger.breaker_open(group):
        return None
    return max(group.last_failed_start + REST - run.now, 0.0)


def group_key(group: CrewBook) -> Hashable:
    return group.wanted, group.losses, tuple(sorted(group.losers)), group.failed_starts


def time_left(run: Run, worker: int) -> float | None:
    """How long it may still be at its batch; None where nobody asks for that any more."""
    book = run.ledger.workers[worker]
    if book.begun is None or book.begun.begun is None or book.fault is not None:
        return None
    deadline = run.ledger.channels[book.begun.batch.channel].entry.options.deadline
    return None if deadline is None else book.begun.begun + deadline - run.now


def worker_key(worker: WorkerBook) -> tuple[Hashable, ...]:
    held = tuple((f.batch, f.begun is not None, f.too_late) for f in worker.held)
    return worker.ready is not None, worker.leave, worker.fault, held


def channel_key(book: ChannelBook, order: dict[int, int], now: float) -> Hashable:
    waits = sorted({flight.waits_since for flight in book.waiting()})
    flights = tuple(
        (*flight_key(flight, order, now), flight.worker is None and waits.index(flight.waits_since))
        for flight in book.flights.values()
    )
    if book.phase in (Phase.LEAVING, Phase.GONE):
        return book.phase, flights
    freed = sorted(slot.freed[0] for slot in book.slots)
    slots = tuple((slot.holder, freed.index(slot.freed[0])) for slot in book.slots)
    if book.phase is Phase.IDLE:
        return book.phase, book.epoch, flights, slots
    ends = tuple(sorted(book.ended.values()))
    bad = tuple(sorted(book.quarantined))
    return book.epoch, book.handed, ends, bad, book.substitutes, flights, slots


def flight_key(flight: Flight, order: dict[int, int], now: float) -> tuple[Hashable, ...]:
    at = None if flight.worker is None else order[flight.worker]
    avoids = None if flight.avoids is None else order.get(flight.avoids)
    wait = None if flight.until is None else flight.until - now
    raised = flight.errors, avoids, wait
    return flight.batch, flight.slot, flight.source, flight.charged, flight.excused, at, raised


# --- copies of states ------------------------------------------------------------------------

# What never changes is not copied, but kept in a list and written as its place there.
kept: list[object] = []
places: dict[int, int] = {}


def recall(place: int) -> object:
    return kept[place]


def keep(thing: object) -> tuple[Callable[[int], object], tuple[int]]:
    if id(thing) not in places:
        places[id(thing)] = len(kept)
        kept.append(thing)
    return recall, (places[id(thing)],)


class Packer(pickle.Pickler):
    dispatch_table = copyreg.dispatch_table | {
        Settings: keep,
        ChannelRegistered: keep,
        Story: lambda _: (Story, (1_000_000,)),  # how it came to this does not matter
    }


def pack(state: State) -> bytes:
    state.run.log.clear()
    state.run.figures = None
    file = io.BytesIO()
    Packer(file, pickle.HIGHEST_PROTOCOL).dump(state)
    return file.getvalue()


def unpack(packed: bytes) -> State:
    state: State = pickle.loads(packed)
    return state


# --- what can happen -------------------------------------------------------------------------


@dataclass
class Walk:
    """All states of a plan, and for each one where well-behaved surroundings go from it."""

    plan: Plan
    benign: dict[Hashable, Hashable | None] = field(default_factory=dict)
    transitions: int = 0

    def first(self) -> State:
        plan = self.plan
        settings = Settings(
            worker_concurrency=plan.concurrency,
            silence=FOREVER,
            start_limit=FOREVER,
            trim_after=FOREVER,
            backoff_first=1.0,
            backoff_most=4.0,
            error_backoff_first=1.0,
            error_backoff_most=4.0,
            story_length=1_000_000,
            breaker_deaths=plan.breaker_deaths,
            breaker_rest=REST,
        )
        state = State(Run(settings))
        state.run.send(GroupSized(0.0, "", plan.workers))
        for entry, steps in zip(plan.channels, plan.steps, strict=True):
            state.run.send(entry)
            state.run.send(EpochStarted(0.0, entry.channel, 0, range(steps)))
        return state

    def all(self) -> int:
        """Walks them breadth first; answers how many there are."""
        first = self.first()
        seen = {first.key()}
        agenda = deque([(first.key(), pack(first))])
        while agenda:
            for key, there in self.steps_from(*agenda.popleft()):
                if key not in seen:
                    seen.add(key)
                    agenda.append((key, pack(there)))
        return len(seen)

    def steps_from(self, mine: Hashable, here: bytes) -> Iterator[tuple[Hashable, State]]:
        state = unpack(here)
        usual = self.usual(state)
        self.benign[mine] = None
        for event, spent in self.moves(state):
            there = unpack(here)
            there.run.send(event)
            there.spent = spent
            self.transitions += 1
            key = there.key()
            if event == usual:
                self.benign[mine] = key
            yield key, there

    def usual(self, state: State) -> Event | None:
        """What well-behaved surroundings do next; None when everything has ended."""
        event = state.run.benign()
        if isinstance(event, BatchDone):
            return msgspec.structs.replace(
                event, cost=float(self.plan.costs[event.batch.channel - 1])
            )
        if event is None and state.run.busy:
            return self.later(state)
        return event

    def later(self, state: State) -> Tick:
        wakeup = state.run.scheduler.next_wakeup()
        assert wakeup is not None, f"stuck: {state.run.scheduler.describe()}"
        assert wakeup < FOREVER / 2, f"stuck: {state.run.scheduler.describe()}"
        return Tick(wakeup)

    def moves(self, state: State) -> Iterator[tuple[Event, Spent]]:
        """Everything that can happen next, with what has been spent then."""
        for worker in state.run.ledger.workers.values():
            yield from self.worker_moves(state, worker)
        for book in state.run.ledger.channels.values():
            yield from self.channel_moves(state, book)
        wakeup = state.run.scheduler.next_wakeup()
        if wakeup is not None and wakeup < FOREVER / 2:
            yield Tick(max(wakeup, state.run.now)), state.spent
        if rest := rest_left(state.run):
            yield Tick(state.run.now + rest), state.spent

    def worker_moves(self, state: State, worker: WorkerBook) -> Iterator[tuple[Event, Spent]]:
        now, spent, plan = state.run.now, state.spent, self.plan
        if worker.fault is not None or (worker.leave is not None and not worker.held):
            yield WorkerLost(now, worker.id, "ended"), spent
        elif spent.losses < plan.losses:
            yield WorkerLost(now, worker.id, "lost"), replace(spent, losses=spent.losses + 1)
        if worker.ready is None:
            yield WorkerReady(now, worker.id), spent
        elif worker.begun is not None:
            batch = worker.begun.batch
            cost = float(plan.costs[batch.channel - 1])
            yield BatchDone(now, worker.id, batch, cost), spent
            if spent.failures < plan.failures:
                failed = replace(spent, failures=spent.failures + 1)
                yield BatchFailed(now, worker.id, batch, cost, "bad", plan.passing), failed
        elif worker.held:
            yield BatchBegun(now, worker.id, worker.held[0].batch), spent

    def channel_moves(self, state: State, book: ChannelBook) -> Iterator[tuple[Event, Spent]]:
        now, spent, plan = state.run.now, state.spent, self.plan
        if book.phase is Phase.GONE:
            return
        for number, slot in enumerate(book.slots):
            if slot.holder is Holder.RANK:
                yield SlotReturned(now, book.id, number), spent
        if book.phase is Phase.LEAVING:
            return
        if spent.restarts < plan.restarts:
            again = replace(spent, restarts=spent.restarts + 1)
            yield EpochStarted(now, book.id, book.epoch + 1, range(2)), again
        if spent.leavers < plan.leavers:
            yield ChannelUnregistered(now, book.id), replace(spent, leavers=spent.leavers + 1)

    # --- what is to be shown -----------------------------------------------------------------

    def none_is_stuck(self) -> None:
        """From each state the well-behaved path comes to an end, and never to where it was."""
        good: set[Hashable] = set()
        for start in self.benign:
            path: list[Hashable] = []
            on_path: set[Hashable] = set()
            here: Hashable | None = start
            while here is not None and here not in good:
                assert here not in on_path, f"goes round and round: {here}"
                path.append(here)
                on_path.add(here)
                here = self.benign[here]
            good.update(path)


def walk_all_of(plan: Plan) -> None:
    walk = Walk(plan)
    states = walk.all()
    walk.none_is_stuck()
    print(f"{states} states, {walk.transitions} transitions")
    assert states > 1000, "hardly a walk: the plan, or what tells its states apart, is wrong"


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_no_reachable_state_is_stuck_loses_a_batch_or_ends_one_twice(plan: Plan) -> None:
    """CONTRACT 17: every batch ends exactly once, from wherever one can get to."""
    walk_all_of(plan)


@pytest.mark.soak
@pytest.mark.parametrize("plan", LARGER.values(), ids=LARGER.keys())
def test_nor_is_any_state_of_a_larger_plan(plan: Plan) -> None:
    """CONTRACT 17"""
    walk_all_of(plan)
