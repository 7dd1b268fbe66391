"""A cluster by a virtual clock: hosts with ranks that read a store, and the servers of the store.

What decides is the real code: each host has a `core.scheduler.Scheduler`, as its hub does, and each
worker chooses among replicas by `store.policy.Choice`, finds answers late by
`store.lateness.Lateness`, and tries lost servers again after `store.policy.pauses`. What takes time
is simulated:

- A worker makes a batch as `store.exchange` does: for each hop it computes, asks all parts at
  once, and waits for one answer after the other; then it asks for the rows.
- A server answers in the order in which it was asked, as many at once as it has cores. Its speed
  may change, and it may stop, or die and come back, at times that are laid down beforehand.
- A rank reads its batches in order, keeps each one for a training step, and returns its slot.

Nothing sleeps, and everything random comes from one seed: the same seed gives the same run. Not
simulated are the network's limits and the cores that the workers of a host share.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count
from math import inf
from typing import NamedTuple

from penstock.core.events import (
    Assign,
    BatchBegun,
    BatchDone,
    BatchKey,
    ChannelRegistered,
    ChannelUnregistered,
    Deliver,
    EpochStarted,
    Event,
    GroupSized,
    Instruction,
    SlotReturned,
    StartWorker,
    Tick,
    WorkerBeat,
    WorkerReady,
)
from penstock.core.scheduler import Scheduler, Settings
from penstock.options import ChannelOptions
from penstock.rpc.endpoint import SILENCE_S
from penstock.store.lateness import Lateness
from penstock.store.policy import Choice, Pace, load_of, pauses
from penstock.store.servers import LOOK_AROUND_S

ENDLESS = range(10**9)
TRAVEL_S = 0.0002  # of a message, one way
# What a hub expects the first batches to cost (`sampling.kinds.seconds_of`), over what they do.
ESTIMATED = 0.5


@dataclass(frozen=True)
class Size:
    """How much of everything, and what it costs. Times are in seconds."""

    ranks: int = 1000
    servers: int = 64
    replicas: int = 2
    ranks_of_a_host: int = 8
    workers: int = 4  # of a host
    hops: int = 2
    slots: int = 4
    compute: float = 1.2  # of a worker, for a batch
    draw: float = 0.002  # of a server, for one part of a hop
    rows: float = 0.012  # of a server, for the rows of one part
    step: float = 0.6  # of a rank, for a batch
    cores: int = 8  # of a server
    spread: float = 0.3  # how far each of these may be from it, as a fraction

    @property
    def parts(self) -> int:
        return max(1, self.servers // self.replicas)

    @property
    def hosts(self) -> int:
        """Of ranks, which are spread evenly."""
        return -(-self.ranks // self.ranks_of_a_host)


class Clock:
    """The virtual time, and what is to happen when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Have something happen; what falls on the same moment happens in the order of calls."""
        if when < inf:
            heapq.heappush(self._agenda, (max(when, self.now), next(self._order), what))

    def run(self, until: float) -> None:
        """Let everything happen up to then."""
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, what = heapq.heappop(self._agenda)
            what()
        self.now = until


@dataclass(frozen=True)
class Trouble:
    """What happens to one server, from one time to another."""

    server: int
    begin: float
    end: float
    speed: float = 0.0  # meanwhile, as a fraction; 0: it has stopped
    dies: bool = False  # it is lost, and what it was asked is lost too
    host: bool = False  # with its host, so that nobody is told


@dataclass
class SimServer:
    """A server of one part. When it answers is known when it is asked."""

    number: int
    part: int
    cores: int
    trouble: Trouble | None = None
    asked: int = 0
    free: list[float] = field(default_factory=list)

    def ask(self, now: float, work: float) -> tuple[float, bool]:
        """Return when the answer is there, or the server is known to be lost; and whether it is."""
        self.asked += 1
        free = self.free
        if len(free) < self.cores:
            start = now
        else:
            start = heapq.heappop(free)
            start = max(now, start)
        end, trouble = self._end(start, work), self.trouble
        if trouble is None or end <= trouble.begin:
            heapq.heappush(free, end)
            return end + 2 * TRAVEL_S, True
        if trouble.dies and now < trouble.end:
            heapq.heappush(free, trouble.end)
            return max(now, trouble.begin) + (SILENCE_S if trouble.host else TRAVEL_S), False
        silent_from = max(now, trouble.begin)
        if trouble.speed == 0 and min(end, trouble.end) - silent_from > SILENCE_S:
            heapq.heappush(free, max(start, trouble.end))  # it finds the connection closed
            return silent_from + SILENCE_S, False
        heapq.heappush(free, end)
        return end + 2 * TRAVEL_S, True

    def _end(self, start: float, work: float) -> float:
        """Return when work that begins then is done."""
        trouble = self.trouble
        if trouble is None or start >= trouble.end or start + work <= trouble.begin:
            return start + work
        before = max(0.0, trouble.begin - start)
        slow_from = max(start, trouble.begin)
        slowly = (work - before) / trouble.speed if trouble.speed else inf
        if slow_from + slowly <= trouble.end:
            return slow_from + slowly
        done = before + (trouble.end - slow_from) * trouble.speed
        return trouble.end + work - done

    def is_reached_again(self, lost_at: float) -> float:
        """Return when a reader that lost it, and has others to ask, is connected again."""
        trouble = self.trouble
        assert trouble is not None
        for waited in accumulate(pauses(), initial=0.0):
            if lost_at + waited >= trouble.end or waited >= LOOK_AROUND_S:
                break
        tried = lost_at + waited
        while tried < trouble.end:
            tried += LOOK_AROUND_S
        return tried

    def is_reached_by_who_waits(self, lost_at: float) -> float:
        """Return when a reader that has nobody else to ask is connected again."""
        trouble = self.trouble
        assert trouble is not None
        return next(
            lost_at + waited
            for waited in accumulate(pauses(), initial=0.0)
            if lost_at + waited >= trouble.end
        )


class Question(NamedTuple):
    """What all parts are asked at once: the verb, what takes equally long, and its seconds."""

    verb: str
    kind: tuple[str, int]
    work: float


class Attempt(NamedTuple):
    """A question that a server was asked."""

    link: Link
    asked_at: float
    there: float  # when the answer comes, or the server is known to be lost
    is_answer: bool


@dataclass(slots=True, eq=False)
class Link:
    """A worker's connection to a server: what `PartServer` and `RpcClient` count."""

    server: SimServer
    answered: int = 0
    late_at: int = -1
    pace: Pace = field(default_factory=Pace)
    given_up: list[float] = field(default_factory=list)  # when those answers will be there
    silent_until: float = inf  # when it will be known that the server is lost
    lost_at: float = inf
    back_at: float = -inf


class Worker:
    """A process that makes batches for the ranks of its host, one after the other."""

    def __init__(self, hub: Hub, number: int, dice: random.Random) -> None:
        self.hub, self.number, self.dice = hub, number, dice
        self.queue: deque[Assign] = deque()
        self.busy = False
        self.busy_for = 0.0
        self.hedges = self.calls = 0
        self._lateness = Lateness()
        self._choice = Choice(random.Random(dice.random()))
        self._links = [
            [Link(server) for server in servers] for servers in hub.cluster.servers_of_part
        ]

    def take(self, order: Assign) -> None:
        self.queue.append(order)
        if not self.busy:
            self.busy = True
            self.hub.clock.at(self.hub.clock.now, self._next)

    def _next(self) -> None:
        if not self.queue:
            self.busy = False
            return
        hub, order = self.hub, self.queue.popleft()
        began = hub.clock.now
        hub.send(BatchBegun(began, self.number, order.batch))
        self._go_on(self._make(order), order, began)

    def _go_on(self, making: Iterator[float], order: Assign, began: float) -> None:
        clock = self.hub.clock
        when = next(making, None)
        if when is not None:
            clock.at(when, lambda: self._go_on(making, order, began))
            return
        cost = clock.now - began
        self.busy_for += cost
        self.hub.send(BatchDone(clock.now, self.number, order.batch, cost))
        self._next()

    def _make(self, order: Assign) -> Generator[float, None, None]:
        """Make a batch; yields until when nothing happens."""
        hub, size = self.hub, self.hub.cluster.size
        times = hub.ranks[order.batch.channel].cost
        spread = self.dice.uniform(1 - size.spread, 1 + size.spread)
        compute = size.compute * times * spread * hub.slowness() / (size.hops + 1)
        for hop in range(size.hops):
            yield hub.clock.now + compute
            yield from self._exchange("get_draws", hop, size.draw * times)
        yield from self._exchange("get_rows", 0, size.rows * times)
        yield hub.clock.now + compute

    # --- the store's client, as `PartCall` and `StoreServers` -----------------------------------

    def _exchange(self, verb: str, hop: int, work: float) -> Generator[float, None, None]:
        """Ask all parts, and wait for one answer after the other."""
        clock, spread = self.hub.clock, self.hub.cluster.size.spread
        question = Question(verb, (verb, hop), work)
        asked = [
            self._ask(
                part,
                question._replace(work=work * self.dice.uniform(1 - spread, 1 + spread)),
            )
            for part in range(len(self._links))
        ]
        for part, attempt in enumerate(asked):
            waits_from = clock.now
            if attempt is None or not attempt.is_answer or attempt.there > waits_from:
                yield from self._wait(part, attempt, question)
            else:
                self._take(attempt, question)
            self._lateness.note(verb, clock.now - waits_from)

    def _wait(
        self, part: int, first: Attempt | None, question: Question
    ) -> Generator[float, None, None]:
        """Wait for an answer about a part: that of the first server, or of another one."""
        clock = self.hub.clock
        attempts = [] if first is None else [first]
        late_from = clock.now
        while True:
            now = clock.now
            for attempt in [each for each in attempts if each.there <= now]:
                attempts.remove(attempt)
                if attempt.is_answer:
                    self._take(attempt, question, attempts)
                    return
                self._lose(attempt.link)
            if not attempts:
                again = self._ask(part, question)
                if again is None:
                    yield self._seek(part)
                else:
                    attempts.append(again)
                    late_from = now
                continue
            due = inf
            if len(self._connected(part)) > len(attempts):
                due = late_from + self._lateness.late_after(question.verb)
            if due <= now:
                late_from = now
                self._hedge(part, attempts, question)
                continue
            yield min(due, *(each.there for each in attempts))

    def _ask(self, part: int, question: Question, without: Sequence[Link] = ()) -> Attempt | None:
        """Ask a server of a part, unless there is none."""
        now = self.hub.clock.now
        links = [each for each in self._links[part] if each not in without]
        link = self._choice.among(links, question.kind, self._load, lambda each: each.pace)
        if link is None:
            return None
        self.calls += 1
        there, is_answer = link.server.ask(now + TRAVEL_S, question.work)
        if not is_answer:
            link.silent_until = min(link.silent_until, there)
        return Attempt(link, now, there, is_answer)

    def _load(self, link: Link) -> int | None:
        now = self.hub.clock.now
        if now >= link.silent_until:
            self._lose(link)
        if link.lost_at < inf:
            if now < link.back_at:
                return None
            link.lost_at = inf
        if link.given_up:
            waiting = [there for there in link.given_up if there > now]
            link.answered += len(link.given_up) - len(waiting)
            link.given_up = waiting
        is_late = link.late_at == link.answered
        return load_of(len(link.given_up), is_late=is_late, is_leaving=False)

    def _connected(self, part: int) -> list[Link]:
        now = self.hub.clock.now
        return [each for each in self._links[part] if each.lost_at == inf or now >= each.back_at]

    def _take(self, came: Attempt, question: Question, others: Sequence[Attempt] = ()) -> None:
        came.link.answered += 1
        came.link.pace.note(question.kind, came.there - came.asked_at)
        for other in others:
            if other.is_answer:
                other.link.given_up.append(other.there)
            other.link.pace.note_at_least(question.kind, self.hub.clock.now - other.asked_at)

    def _hedge(self, part: int, attempts: list[Attempt], question: Question) -> None:
        for attempt in attempts:
            attempt.link.late_at = attempt.link.answered
        if not self._lateness.may_ask_twice():
            return
        other = self._ask(part, question, [each.link for each in attempts])
        if other is not None:
            self.hedges += 1
            attempts.append(other)

    def _lose(self, link: Link) -> None:
        link.lost_at = self.hub.clock.now
        link.back_at = link.server.is_reached_again(link.lost_at)
        link.silent_until, link.given_up, link.late_at, link.pace = inf, [], -1, Pace()

    def _seek(self, part: int) -> float:
        """Return when a server of a part is there again; who waits for one tries all of them."""
        for link in self._links[part]:
            link.back_at = min(link.back_at, link.server.is_reached_by_who_waits(link.lost_at))
        return min(link.back_at for link in self._links[part])


@dataclass(slots=True, eq=False)
class Rank:
    """A rank that trains: it reads its batches in order, one after the other."""

    hub: Hub
    channel: int
    step: float
    dice: random.Random
    cost: float = 1.0  # of its batches, as a multiple
    name: int = 0
    at: int = 0
    slots: dict[int, int] = field(default_factory=dict)  # by step: what was delivered, and not read
    idle_since: float | None = 0.0
    paused_until: float = -inf
    read_at: list[float] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)  # (when, how long) for a batch
    gone: bool = False

    def deliver(self, step: int, slot: int) -> None:
        self.slots[step] = slot
        if self.idle_since is not None:
            self._read()

    def _read(self) -> None:
        now = self.hub.clock.now
        if self.gone or self.at not in self.slots:
            return
        assert self.idle_since is not None
        self.waits.append((now, now - self.idle_since))
        self.idle_since = None
        slot = self.slots.pop(self.at)
        self.at += 1
        until = max(now + self.step * self.dice.uniform(0.9, 1.1), self.paused_until)
        self.hub.clock.at(until, lambda: self._done(slot))

    def _done(self, slot: int) -> None:
        if self.gone:
            return
        now = self.hub.clock.now
        if now < self.paused_until:
            self.hub.clock.at(self.paused_until, lambda: self._done(slot))
            return
        self.read_at.append(now)
        self.idle_since = now
        self.hub.send(SlotReturned(now, self.channel, slot))
        self._read()


class Hub:
    """A host: the real scheduler, its workers and its ranks."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster, self.number, self.clock = cluster, number, cluster.clock
        self.dice = random.Random(cluster.dice.random())
        self.scheduler = Scheduler(Settings())
        self.workers: dict[int, Worker] = {}
        self.ranks: dict[int, Rank] = {}  # by channel
        self.events = 0
        self.slow: tuple[float, float, float] | None = None  # from, to, how many times slower
        self._wake = inf
        self.send(GroupSized(0.0, "", cluster.size.workers))

    def slowness(self) -> float:
        if self.slow is None or not self.slow[0] <= self.clock.now < self.slow[1]:
            return 1.0
        return self.slow[2]

    def join(self, name: int, cost: float = 1.0) -> Rank:
        """Let a rank come; it reads for ever."""
        size, channel = self.cluster.size, next(self.cluster.channels)
        rank = Rank(self, channel, size.step, random.Random(self.dice.random()), cost, name)
        rank.idle_since = self.clock.now
        self.ranks[channel] = rank
        options = ChannelOptions(deadline=3600.0)
        estimate = cost * size.compute * ESTIMATED
        self.send(ChannelRegistered(self.clock.now, channel, "", size.slots, options, estimate))
        self.send(EpochStarted(self.clock.now, channel, 0, ENDLESS))
        return rank

    def leave(self, rank: Rank) -> None:
        """Let a rank go, in the middle of what it does."""
        rank.gone = True
        self.send(ChannelUnregistered(self.clock.now, rank.channel))

    def send(self, event: Event) -> None:
        self.events += 1
        for instruction in self.scheduler.handle(event):
            self._carry_out(instruction)
        wakeup = self.scheduler.next_wakeup()
        if wakeup is not None and wakeup < self._wake:
            self._wake = wakeup
            self.clock.at(wakeup, self._tick)

    def _tick(self) -> None:
        if self.clock.now >= self._wake:
            self._wake = inf
            self.send(Tick(self.clock.now))

    def _carry_out(self, order: Instruction) -> None:
        match order:
            case StartWorker(worker=number):
                self.workers[number] = Worker(self, number, random.Random(self.dice.random()))
                ready = self.clock.now + self.dice.uniform(0.2, 0.4)
                self.clock.at(ready, lambda: self._ready(number))
            case Assign():
                self.workers[order.worker].take(order)
            case Deliver(batch=batch, slot=slot):
                self._deliver(batch, slot)
            case _:
                self.cluster.other[type(order).__name__] += 1

    def _deliver(self, batch: BatchKey, slot: int) -> None:
        rank = self.ranks[batch.channel]
        if not rank.gone:
            rank.deliver(batch.step, slot)

    def _ready(self, number: int) -> None:
        self.send(WorkerReady(self.clock.now, number))
        self._beat(number)

    def _beat(self, number: int) -> None:
        self.send(WorkerBeat(self.clock.now, number))
        self.clock.at(
            self.clock.now + self.scheduler.settings.beat_every, lambda: self._beat(number)
        )


class Cluster:
    """All hosts and servers."""

    def __init__(self, size: Size, seed: int, troubles: tuple[Trouble, ...] = ()) -> None:
        self.size, self.dice = size, random.Random(seed)
        self.clock = Clock()
        self.channels = count()
        self.other: Counter[str] = Counter()  # instructions that nothing was to be done about
        by_server = {each.server: each for each in troubles}
        self.servers = [
            SimServer(number, number % size.parts, size.cores, by_server.get(number))
            for number in range(size.servers)
        ]
        self.servers_of_part = [
            [each for each in self.servers if each.part == part] for part in range(size.parts)
        ]
        self.hubs = [Hub(self, number) for number in range(size.hosts)]
        self.ranks: list[Rank] = []
        self.idle_beside_work = 0  # how often a worker had room while a channel could be served

    def join(self, cost: Callable[[int], float] = lambda name: 1.0) -> None:
        """Let all ranks come, within a second."""
        for name in range(self.size.ranks):
            hub = self.hubs[name % len(self.hubs)]
            self.clock.at(self.dice.random(), lambda name=name, hub=hub: self.add(hub, name, cost))

    def add(self, hub: Hub, name: int, cost: Callable[[int], float]) -> Rank:
        rank = hub.join(name, cost(name))
        self.ranks.append(rank)
        return rank

    def run(self, until: float) -> None:
        """Let everything happen up to then; look at the invariants once in each second."""
        while self.clock.now < until:
            self.clock.run(min(until, self.clock.now + 1.0))
            for hub in self.hubs:
                hub.scheduler.check()
                for group in hub.scheduler.statistics().groups:
                    room = group.ready * hub.scheduler.settings.worker_concurrency
                    self.idle_beside_work += group.runnable > 0 and group.in_flight < room
