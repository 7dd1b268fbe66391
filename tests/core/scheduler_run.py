"""A scheduler and its ledger, fed together; and what well-behaved surroundings would do next.

Every event goes to both, every answer is checked by both, and all of it is kept, so that a run can
be played again. It must not know what the events are for: machines, walks and simulations do.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.events import (
    BatchBegun,
    BatchDone,
    ChannelUnregistered,
    EpochStarted,
    Event,
    GroupSized,
    Instruction,
    SlotReturned,
    Tick,
    WorkerBeat,
    WorkerLost,
    WorkerReady,
)
from penstock.core.scheduler import Scheduler, SchedulerError, Settings
from penstock.core.statistics import SchedulerStatistics
from tests.core.scheduler_audit import audit
from tests.core.scheduler_books import Holder, Phase, WorkerBook
from tests.core.scheduler_model import Ledger


class Run:
    """One scheduler under watch."""

    def __init__(self, settings: Settings, look_every: int = 1) -> None:
        self.settings = settings
        self.look_every = look_every
        self.failed = False
        self.figures: SchedulerStatistics | None = None  # as of the last look
        self.scheduler = Scheduler(settings)
        self.ledger = Ledger(settings, look_every)
        self.log: list[tuple[Event, list[Instruction] | type[Exception]]] = []

    @property
    def now(self) -> float:
        """The latest time either of them has heard of."""
        return max(self.ledger.now, 0.0)

    def send(self, event: Event) -> list[Instruction]:
        """Feeds one event to both; what must be refused is, and changes nothing."""
        try:
            return self._send(event)
        except Exception as error:
            self.failed = True
            told = "\n".join(f"  {event} -> {answer}" for event, answer in self.log[-60:])
            error.add_note(f"the story so far:\n{told}\nand then {event}")
            raise

    def _send(self, event: Event) -> list[Instruction]:
        refusal = self.ledger.refusal(event)
        if refusal is not None:
            self._refused(event, refusal)
            return []
        answer = self.scheduler.handle(event)
        self.log.append((event, list(answer)))
        self.ledger.observe(event, answer, self.scheduler.next_wakeup())
        if self.ledger.number % self.look_every == 0:
            self.scheduler.check()
            self.figures = self.scheduler.statistics()
            audit(self.ledger, self.figures)
        return answer

    def _refused(self, event: Event, refusal: type[Exception]) -> None:
        before = self.scheduler.statistics()
        try:
            answer = self.scheduler.handle(event)
        except refusal:
            self.log.append((event, refusal))
        else:
            raise AssertionError(f"{event} was answered by {answer}, not by {refusal.__name__}")
        self.scheduler.check()
        assert self.scheduler.statistics() == before, f"{event} was refused, and left a trace"

    # --- well-behaved surroundings -----------------------------------------------------------

    def benign(self, cost: float = 1.0) -> Event | None:
        """What healthy workers and ranks would do next; None when all there is left is time."""
        return next(self._benign_moves(cost), None)

    def _benign_moves(self, cost: float) -> Iterator[Event]:
        for worker in self.ledger.workers.values():
            if (event := self._worker_move(worker, cost)) is not None:
                yield event
        for channel in self.ledger.channels.values():
            for number, slot in enumerate(channel.slots):
                if slot.holder is Holder.RANK and channel.phase is not Phase.GONE:
                    yield SlotReturned(self.now, channel.id, number)

    def _worker_move(self, worker: WorkerBook, cost: float) -> Event | None:
        if worker.fault is not None or (worker.leave is not None and not worker.held):
            return WorkerLost(self.now, worker.id, "ended")
        if worker.ready is None:
            return WorkerReady(self.now, worker.id)
        if worker.begun is not None:
            return BatchDone(self.now, worker.id, worker.begun.batch, cost)
        if worker.held:
            return BatchBegun(self.now, worker.id, worker.held[0].batch)
        return None

    @property
    def busy(self) -> bool:
        """Whether some batch or channel is still to end."""
        ledger = self.ledger
        open_phases = (Phase.ACTIVE, Phase.LEAVING)
        return any(c.phase in open_phases or c.flights for c in ledger.channels.values())

    def pass_time(self) -> bool:
        """Goes to the next wake-up, everybody showing that they live; False if there is none."""
        if (wakeup := self.scheduler.next_wakeup()) is None:
            return False
        now = max(wakeup, self.now)
        for worker in list(self.ledger.workers):
            self.send(WorkerBeat(now, worker))
        self.send(Tick(now))
        return True

    def drain(self, most: int = 2000) -> None:
        """Lets well-behaved surroundings go on until nothing is left to end."""
        for _ in range(most):
            event = self.benign()
            if event is not None:
                self.send(event)
            elif not self.busy or not self.pass_time():
                break
        assert not self.busy, f"stuck: {self.scheduler.describe()}"

    def close(self) -> None:
        """Everybody leaves: the channels, then the workers; and nothing is owed to anyone."""
        for channel in list(self.ledger.channels):
            self.send(ChannelUnregistered(self.now, channel))
        self.drain()
        for group in list(self.ledger.groups):
            self.send(GroupSized(self.now, group, 0, kept=False))
        self.drain()
        assert not self.ledger.workers, f"still there: {list(self.ledger.workers)}"
        phases = {channel.phase for channel in self.ledger.channels.values()}
        assert phases <= {Phase.GONE}
        self.rest()
        self.send(GroupSized(self.now + self.settings.breaker_rest, "", 0, kept=False))
        assert self.scheduler.statistics().groups == ()

    def rest(self) -> None:
        """With nobody there, nothing is left to wait for."""
        for _ in range(20):
            if not self.pass_time():
                return
        raise AssertionError(f"an empty scheduler still wakes at {self.scheduler.next_wakeup()}")

    def revive(self) -> None:
        """Gives every group a worker, and every channel an epoch that can be served."""
        for group, book in list(self.ledger.groups.items()):
            if book.wanted == 0:
                self.send(GroupSized(self.now, group, 1))

    def ask_again(self, steps: int = 2) -> list[int]:
        """Starts one more epoch on every channel there is; answers which."""
        here = [
            channel
            for channel in self.ledger.channels.values()
            if channel.phase in (Phase.IDLE, Phase.ACTIVE)
        ]
        for channel in here:
            self.send(EpochStarted(self.now, channel.id, channel.epoch + 1, range(steps)))
        return [channel.id for channel in here]

    def replay(self) -> None:
        """The same events, told to a fresh scheduler, have the same answers."""
        fresh = Scheduler(self.settings)
        for number, (event, answer) in enumerate(self.log):
            try:
                again: list[Instruction] | type[Exception] = list(fresh.handle(event))
            except (ValueError, KeyError, SchedulerError) as error:
                again = answer if isinstance(answer, type) and isinstance(error, answer) else []
            assert again == answer, f"event {number}, {event}: {answer} and then {again}"
