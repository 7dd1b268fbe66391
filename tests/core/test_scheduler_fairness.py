"""Who gets how much: shares of measured cost, by a fake clock, and a control that must fail.

Every scenario runs channels that always want more, and measures completed seconds of work. The same
measurements are made of a scheduler that serves first come, first served: it must fail them, or
they would prove nothing.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import combinations, groupby

import pytest

from penstock.core.events import (
    Assign,
    BatchDone,
    BatchKey,
    ChannelRegistered,
    Deliver,
    EpochStarted,
    Event,
    GroupSized,
    Instruction,
    SlotReturned,
    StartWorker,
    WeightChanged,
    WorkerReady,
)
from penstock.core.scheduler import Scheduler, Settings
from tests.core.scheduler_entries import registered
from tests.core.scheduler_world import Fate, Nature, Party, World

ENDLESS = range(10**9)


class Unfair(AssertionError):
    """A share, an index or a lag that is out of bounds."""


# --- the control -----------------------------------------------------------------------------


class FirstCome:
    """Serves whoever got a free slot first: one batch per slot, whatever it costs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.group_of: dict[int, str] = {}
        self.slots: dict[int, int] = {}
        self.step: Counter[int] = Counter()
        self.line: defaultdict[str, deque[tuple[int, int]]] = defaultdict(deque)
        self.load: dict[str, Counter[int]] = defaultdict(Counter)
        self.made: dict[BatchKey, Assign] = {}
        self.group_of_worker: list[str] = []

    def next_wakeup(self) -> None:
        return None

    def handle(self, event: Event) -> list[Instruction]:
        match event:
            case GroupSized():
                first = len(self.group_of_worker)
                self.group_of_worker += [event.group] * event.workers
                return [StartWorker(first + n, event.group) for n in range(event.workers)]
            case ChannelRegistered():
                self.group_of[event.channel], self.slots[event.channel] = event.group, event.slots
            case EpochStarted():
                line = self.line[self.group_of[event.channel]]
                line.extend((event.channel, slot) for slot in range(self.slots[event.channel]))
            case SlotReturned():
                self.line[self.group_of[event.channel]].append((event.channel, event.slot))
            case WorkerReady():
                self.load[self.group_of_worker[event.worker]][event.worker] = 0
            case BatchDone():
                self.load[self.group_of[event.batch.channel]][event.worker] -= 1
                order = self.made.pop(event.batch)
                done = Deliver(order.batch, order.slot, order.source, order.worker)
                return [done, *self._dispatch()]
        return self._dispatch()

    def _dispatch(self) -> list[Instruction]:
        orders: list[Instruction] = []
        for group, load in self.load.items():
            line = self.line[group]
            while line and load and min(load.values()) < self.settings.worker_concurrency:
                channel, slot = line.popleft()
                worker = min(load, key=lambda w: load[w])
                batch = BatchKey(channel, 0, self.step[channel])
                self.step[channel] += 1
                load[worker] += 1
                self.made[batch] = Assign(worker, batch, slot, batch.step, 1)
                orders.append(self.made[batch])
        return orders


# --- the scenarios ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Flow:
    """A channel that always wants more."""

    cost: float
    weight: float = 1.0
    group: str = ""
    spread: float = 0.0  # how far a batch's cost may be from it, as a fraction
    estimate: float | None = None  # None: it is registered with its true cost
    slots: int = 24

    @property
    def largest(self) -> float:
        """The most virtual time one of its batches takes."""
        return self.cost * (1 + self.spread) / self.weight


class Prices(Nature):
    """What batches cost: a pure function of the batch, as real ones are."""

    beat_every = 1e6

    def __init__(self, flows: list[Flow]) -> None:
        self.flows = flows

    def cost(self, batch: BatchKey, source: int) -> float:
        flow = self.flows[batch.channel]
        whim = random.Random(f"{batch.channel} {source}").uniform(-1, 1) if flow.spread else 0.0
        return flow.cost * (1 + flow.spread * whim)


@dataclass
class Race:
    """Some flows sharing groups of equal size, from the moment all of them want batches."""

    flows: list[Flow]
    make: Callable[[Settings], Party] = Scheduler
    workers: int = 2
    concurrency: int = 2
    nature: Callable[[list[Flow]], Nature] = Prices
    world: World = field(init=False)
    weights: dict[int, float] = field(init=False)
    pairs: list[tuple[int, int]] = field(default_factory=list)
    worst_lag: float = 0.0  # of completed work, in batches of the larger cost
    worst_hand_out: float = 0.0  # the same of work handed out
    given: Counter[int] = field(default_factory=Counter)
    start: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        # Nobody beats here, and nobody is at fault for it.
        settings = Settings(worker_concurrency=self.concurrency, silence=1e9, trim_after=1e9)
        self.world = World(self.make(settings), self.nature(self.flows))
        self.weights = {number: flow.weight for number, flow in enumerate(self.flows)}
        for group in sorted({flow.group for flow in self.flows}):
            self.world.send(GroupSized(0.0, group, self.workers))
        for number, flow in enumerate(self.flows):
            self.register(number, flow)

    def register(self, number: int, flow: Flow) -> None:
        """One more that wants batches from now on."""
        guess = flow.cost if flow.estimate is None else flow.estimate
        now = self.world.now
        entry = registered(now, number, flow.group, flow.slots, guess, weight=flow.weight)
        self.world.start_epoch(self.world.register(entry), ENDLESS)

    def go(self, seconds: float) -> Race:
        """Lets it run on."""
        self.world.run(self.world.now + seconds)
        return self

    def mark(self) -> Race:
        """Measures from here."""
        self.start = self.world.service.copy()
        return self

    def watch_lag(self) -> Race:
        """Measures from here how far any two get apart, at every completion and hand-out."""
        self.mark()
        flows = self.flows
        both = combinations(range(len(flows)), 2)
        self.pairs = [(a, b) for a, b in both if flows[a].group == flows[b].group]
        self.world.on_done = self._note_lag
        self.world.on_assign = self._note_hand_out
        return self

    def _note_lag(self, batch: BatchKey) -> None:
        amounts = [self.received(number) for number in range(len(self.flows))]
        self.worst_lag = max(self.worst_lag, self._widest(batch.channel, amounts))

    def _note_hand_out(self, order: Assign) -> None:
        channel = order.batch.channel
        self.given[channel] += self.world.nature.cost(order.batch, order.source)
        amounts = [self.given[number] / self.weights[number] for number in range(len(self.flows))]
        self.worst_hand_out = max(self.worst_hand_out, self._widest(channel, amounts))

    def _widest(self, channel: int, amounts: list[float]) -> float:
        """The widest gap between this channel and another, in batches of the larger one."""
        gaps = [
            abs(amounts[a] - amounts[b]) / max(self.flows[a].largest, self.flows[b].largest)
            for a, b in self.pairs
            if channel in (a, b)
        ]
        return max(gaps, default=0.0)

    def served(self, channel: int) -> float:
        """Seconds of work since the mark."""
        return self.world.service[channel] - self.start[channel]

    def received(self, channel: int) -> float:
        """The same, by weight."""
        return self.served(channel) / self.weights[channel]


def jain(amounts: list[float]) -> float:
    """1 when all are equal, 1/n when one has it all."""
    squares = sum(amount * amount for amount in amounts)
    return sum(amounts) ** 2 / (len(amounts) * squares) if squares else 0.0


def demand_fair_shares(race: Race, channels: Iterable[int] | None = None) -> None:
    """Jain's index >= 0.99 and every share >= 95 % of ideal, among the backlogged of each group."""
    here = list(range(len(race.flows)) if channels is None else channels)
    for group in {race.flows[number].group for number in here}:
        members = [number for number in here if race.flows[number].group == group]
        index = jain([race.received(number) for number in members])
        if index < 0.99:
            raise Unfair(f"Jain's index is {index:.3f} in group {group!r}")
        total = sum(race.served(number) for number in members)
        weight = sum(race.weights[number] for number in members)
        for number in members:
            share = race.served(number) / (total * race.weights[number] / weight)
            if share < 0.95:
                raise Unfair(f"channel {number} has {share:.1%} of its ideal share")


def demand_bounded_lag(race: Race) -> None:
    """No two are further apart than (workers + 1) batches of the larger cost.

    With many batches queued at each worker that can be promised only of what is handed out: it is
    not called back, and how soon it is done depends on what lies in front of it there. Where costs
    are known beforehand, what is handed out is never more than one batch apart.
    """
    queued = race.concurrency > 2
    most = race.workers * race.concurrency + 1 if queued else race.workers + 1
    if race.worst_lag > most:
        raise Unfair(f"two channels are {race.worst_lag:.1f} batches apart, not {most}")
    exact = not any(flow.spread for flow in race.flows)
    most = 1 if exact else race.workers + 1
    if race.worst_hand_out > most + 1e-6:
        raise Unfair(f"{race.worst_hand_out:.1f} batches more were handed out to one than another")


SKEWED = [Flow(cost) for cost in (0.01, 0.03, 0.1, 0.3, 1.0)]
SIZES = [Flow(cost, spread=0.8) for cost in (0.05, 0.2, 0.5, 1.0)]
WEIGHTS = [Flow(0.1, 1.0), Flow(0.1, 2.0), Flow(0.4, 4.0), Flow(0.02, 0.5)]
CREWS = [Flow(c, group=group) for c, group in [(0.01, "a"), (1.0, "a"), (0.5, "b"), (0.05, "b")]]
STRANGERS = [Flow(cost, estimate=0.0) for cost in (0.01, 0.1, 1.0)]
WRONG = [Flow(0.01, estimate=1.0), Flow(1.0, estimate=0.01), Flow(0.1, estimate=0.1)]
SCENARIOS = {
    "a hundredfold skew of cost": SKEWED,
    "batches of unequal size": SIZES,
    "unequal weights": WEIGHTS,
    "several groups": CREWS,
    "costs nobody knew": STRANGERS,
    "costs guessed a hundredfold wrong": WRONG,
}
scenarios = pytest.mark.parametrize("flows", SCENARIOS.values(), ids=SCENARIOS.keys())
concurrencies = pytest.mark.parametrize("concurrency", [1, 2, 4])


# --- shares ----------------------------------------------------------------------------------


@concurrencies
@scenarios
def test_channels_that_want_more_share_the_measured_cost_by_weight(
    flows: list[Flow], concurrency: int
) -> None:
    """CONTRACT 7, CONTRACT 59"""
    race = Race(flows, concurrency=concurrency).go(20).mark().go(300)
    demand_fair_shares(race)


@scenarios
def test_first_come_first_served_fails_the_same_test_of_shares(flows: list[Flow]) -> None:
    race = Race(flows, FirstCome).go(20).mark().go(300)
    with pytest.raises(Unfair):
        demand_fair_shares(race)


@concurrencies
@pytest.mark.parametrize("workers", [1, 4])
def test_shares_are_fair_with_one_worker_and_with_many(workers: int, concurrency: int) -> None:
    """CONTRACT 7, CONTRACT 59"""
    race = Race(SKEWED, workers=workers, concurrency=concurrency).go(20).mark().go(300)
    demand_fair_shares(race)


def test_a_group_gives_all_it_has_while_anybody_wants_it() -> None:
    """CONTRACT 7: fairness costs nothing."""
    race = Race(SKEWED, workers=3).go(20).mark().go(100)
    total = sum(race.served(number) for number in range(len(SKEWED)))
    assert total == pytest.approx(300, rel=0.02)


def test_a_changed_weight_changes_the_share_from_then_on() -> None:
    """CONTRACT 7"""
    race = Race([Flow(0.1), Flow(0.1), Flow(0.1)]).go(50)
    race.world.send(WeightChanged(race.world.now, 1, 4.0))
    race.weights[1] = 4.0
    race.mark().go(100)
    demand_fair_shares(race)


def test_a_channel_with_a_single_slot_that_comes_back_at_once_has_its_full_share() -> None:
    """CONTRACT 7: whoever asks again at once has not been idle."""
    flows = [Flow(0.1, slots=1), Flow(0.1), Flow(0.1), Flow(0.5), Flow(0.02)]
    race = Race(flows, workers=1, concurrency=1).go(20).mark().go(300)
    demand_fair_shares(race)


# --- lag -------------------------------------------------------------------------------------

KNOWN = {name: flows for name, flows in SCENARIOS.items() if flows not in (STRANGERS, WRONG)}
known_costs = pytest.mark.parametrize("flows", KNOWN.values(), ids=KNOWN.keys())


@concurrencies
@pytest.mark.parametrize("workers", [1, 2, 4])
@known_costs
def test_no_two_channels_drift_apart_by_more_than_a_batch_per_worker_and_one(
    flows: list[Flow], workers: int, concurrency: int
) -> None:
    """CONTRACT 7, CONTRACT 59"""
    race = Race(flows, workers=workers, concurrency=concurrency).watch_lag().go(100)
    demand_bounded_lag(race)


@known_costs
def test_first_come_first_served_fails_the_same_test_of_lag(flows: list[Flow]) -> None:
    with pytest.raises(Unfair):
        demand_bounded_lag(Race(flows, FirstCome).watch_lag().go(100))


@concurrencies
@pytest.mark.parametrize("flows", [STRANGERS, WRONG], ids=["unknown", "wrong"])
def test_a_wrong_guess_costs_the_others_no_more_than_what_was_in_flight(
    flows: list[Flow], concurrency: int
) -> None:
    """CONTRACT 7: an estimate is settled when the batch is done, so no error lasts."""
    race = Race(flows, concurrency=concurrency).watch_lag().go(100)
    in_flight = race.workers * concurrency
    assert race.worst_lag <= in_flight + race.workers + 1


# --- pausing and waking ----------------------------------------------------------------------

PAUSED = 0
STEADY = [Flow(0.2), Flow(0.1), Flow(0.1), Flow(0.3)]
GLACIAL = [Flow(1e5 * flow.cost) for flow in STEADY]  # as if it had run for months


def paused_race(
    make: Callable[[Settings], Party] = Scheduler, concurrency: int = 2, pause: float = 30.0
) -> Race:
    """One rank has stopped reading, long enough for its slots to be full."""
    race = Race(STEADY, make, concurrency=concurrency).go(20)
    race.world.ranks[PAUSED].paused = True
    return race.go(pause)


def demand_no_burst(race: Race, seconds: float = 5.0) -> None:
    """Once awake it has its share of the time and one batch per worker and one besides at most.

    Nor does it have more than that many in a row, sooner or later.
    """
    order: list[int] = []
    race.mark().world.on_done = lambda batch: order.append(batch.channel)
    race.world.wake(race.world.ranks[PAUSED])
    race.go(seconds)
    share = race.workers * seconds / len(race.flows)
    most = share + (race.workers + 1) * race.flows[PAUSED].cost
    if race.served(PAUSED) > most:
        raise Unfair(f"{race.served(PAUSED):.1f} s of work on waking, {share:.1f} s were its share")
    race.go(20.0)
    runs = [len(list(run)) for channel, run in groupby(order) if channel == PAUSED]
    if max(runs) > race.workers + 1:
        raise Unfair(f"{max(runs)} batches in a row on waking")


@concurrencies
def test_a_paused_consumer_holds_up_its_own_channel_only(concurrency: int) -> None:
    """CONTRACT 9"""
    race = paused_race(concurrency=concurrency).mark().go(100)
    assert race.served(PAUSED) == 0
    demand_fair_shares(race, [1, 2, 3])
    assert sum(map(race.served, [1, 2, 3])) == pytest.approx(100 * race.workers, rel=0.02)


@concurrencies
def test_a_channel_that_was_paused_takes_no_burst_on_waking(concurrency: int) -> None:
    """CONTRACT 7: nothing is banked."""
    for seconds in (1.0, 2.0, 5.0):
        demand_no_burst(paused_race(concurrency=concurrency), seconds)


def test_a_channel_that_slept_for_months_wakes_to_its_share_no_more_and_no_less() -> None:
    """CONTRACT 7: however far virtual time has gone meanwhile."""
    race = Race(GLACIAL).go(2e6)
    race.world.ranks[PAUSED].paused = True
    race.go(3e7)
    demand_no_burst(race, 5e5)
    race.mark().go(4e6)
    demand_fair_shares(race)


@concurrencies
def test_whoever_comes_does_not_wait_for_a_guess_that_was_too_high(concurrency: int) -> None:
    """CONTRACT 7: what was charged and is given back later has not been served."""
    race = Race([Flow(0.1, estimate=100.0), Flow(0.1, estimate=100.0)], concurrency=concurrency)
    race.go(0.55)
    race.flows.append(Flow(0.1))
    race.weights[2] = 1.0
    race.register(2, race.flows[2])
    race.mark().go(30)
    demand_fair_shares(race)


def test_shares_stay_fair_over_months() -> None:
    """CONTRACT 7: virtual time is not allowed to lose its small change."""
    months = Race([Flow(1e5), Flow(1e3), Flow(3e4, weight=2.0)]).go(1e7).watch_lag().go(1e8)
    demand_fair_shares(months)
    assert months.worst_hand_out <= 1 + months.workers


def test_first_come_first_served_fails_the_same_test_of_bursts() -> None:
    with pytest.raises(Unfair):
        demand_no_burst(paused_race(FirstCome))


@concurrencies
def test_channels_that_pause_and_wake_all_the_time_leave_the_others_their_share(
    concurrency: int,
) -> None:
    """CONTRACT 7, CONTRACT 9"""
    race = Race(STEADY, concurrency=concurrency).go(20)
    rank = race.world.ranks[PAUSED]
    race.mark()
    for _ in range(60):
        rank.paused = True
        race.go(2.0)
        race.world.wake(rank)
        race.go(1.5)
    demand_fair_shares(race, [1, 2, 3])
    fair = 60 * 3.5 * race.workers / len(STEADY)
    assert 0 < race.served(PAUSED) <= fair * 1.02


def test_a_channel_that_comes_late_is_not_owed_what_it_missed() -> None:
    """CONTRACT 7"""
    race = Race([Flow(0.1), Flow(0.1)]).go(100)
    race.flows.append(Flow(0.1))
    race.weights[2] = 1.0
    race.register(2, race.flows[2])
    race.mark().go(3.0)
    assert race.served(2) <= race.workers * 3.0 / 3 + (race.workers + 1) * 0.1
    race.mark().go(100)
    demand_fair_shares(race)


def test_a_channel_between_epochs_banks_nothing() -> None:
    """CONTRACT 7"""
    race = Race([Flow(0.1), Flow(0.1)])
    entry = registered(0.0, 2, "", 24, 0.1)
    race.flows.append(Flow(0.1))
    race.weights[2] = 1.0
    rank = race.world.register(entry)
    race.world.start_epoch(rank, range(10))
    race.go(100)
    assert rank.done == {0: 1}
    race.world.start_epoch(rank, ENDLESS)
    race.mark().go(3.0)
    assert race.served(2) <= race.workers * 3.0 / 3 + (race.workers + 1) * 0.1


# --- lost work is work -----------------------------------------------------------------------


class Killer(Prices):
    """Channel 0's batches kill whoever begins them, half way through."""

    start_takes = 0.0

    def fate(self, order: Assign) -> Fate:
        return Fate.DIES if order.batch.channel == 0 else Fate.WELL


def test_a_channel_whose_batches_kill_workers_pays_for_the_time_they_took() -> None:
    """CONTRACT 7: attempts that were lost are charged, so that nobody else pays for them."""
    race = Race([Flow(0.4), Flow(0.1), Flow(0.1)], nature=Killer, workers=3).go(200)
    spent = race.world.lost_time[0]
    total = spent + sum(map(race.served, [1, 2]))
    assert 0 < spent <= total / 3 * 1.05
    demand_fair_shares(race, [1, 2])
