"""A channel of a hub: batches come over a session, and are read in order of steps.

Everything that the hub has sent is in one of three places: in the socket, in the `ReorderBuffer`,
or with the user. When the hub dies, when it closes the connection, or when a read was interrupted,
the channel drops its session and opens another one, which resumes at the first step that has not
come. Batches are pure functions of their key, so none is lost and none is repeated.
"""

from __future__ import annotations

import logging
import os
import weakref
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.client.channel.batch import Batch
from penstock.client.channel.inputs import Inputs
from penstock.client.channel.reader import Content, Reader
from penstock.client.channel.registration import Registration
from penstock.client.channel.reorder_buffer import ReorderBuffer
from penstock.client.channel.session import AnySession
from penstock.client.hub.connection import Received
from penstock.client.hub.hub import Provider
from penstock.core.plan import EpochPlan
from penstock.errors import ProtocolError
from penstock.rpc.deadline import Deadline
from penstock.rpc.failures import error_of
from penstock.wire.messages import (
    BatchLost,
    BatchReady,
    ChannelBroken,
    EpochDone,
    FromHubToRank,
    Refused,
    Report,
)

log = logging.getLogger(__name__)

# Seconds that `is_epoch_done` waits at first for a lost hub; each failed try doubles them.
_MOMENT_S: Final = 1.0


class Channel(Reader):
    """The batches of one registration with a hub or a server."""

    def __init__(self, hub: Provider, registration: Registration, **options: Any) -> None:
        super().__init__(registration.options.job, **options)
        self._hub = hub
        self.registration = registration
        self._broken: Report | None = None
        self._patience: Deadline | None = None  # starts when the hub is lost
        self._moment = _MOMENT_S
        self._sessions = 0
        self._ends = _Ends(registration.inputs)
        # It runs at exit, too: the hub then sees the socket close, even if batches are still held.
        self._finalizer = weakref.finalize(self, self._ends.close)
        self._ends.session = self._open_session(Deadline(None))

    @property
    def rank(self) -> int:
        """The rank that reads this channel."""
        return self.registration.options.rank

    def plan(self, first: int = 0) -> EpochPlan:
        """Return the plan of an epoch that begins at batch `first` of the list."""
        return self.registration.plan(first)

    def fileno(self) -> int:
        """Return a descriptor, readable when the hub has sent something; -1 without a session."""
        session = self._ends.session
        if session is None or self._unsure or self.closed:
            return -1
        return session.connection.fileno()

    @property
    def pending(self) -> bool:
        """Whether something waits for room in the socket."""
        session = self._ends.session
        return session is not None and session.connection.pending

    @property
    def ready(self) -> bool:
        """Whether `next` would answer at once."""
        return super().ready or self._cut_short

    @property
    def room(self) -> int | None:
        """How many more batches may be held before they are copied; None: any number."""
        session = self._ends.session
        return None if session is None else session.room

    def reweigh(self, weight: float) -> None:
        """Ask for a share of the workers in proportion to `weight`, from now on."""
        self._check_free()
        try:
            with self._busy:
                self.registration = self.registration.reweighed(weight)
                if self._ends.session is not None:
                    self._ends.session.reweigh(weight)
        finally:
            self._leave()

    # --- hooks of `Reader` ---

    def _begin(self, reading: ReorderBuffer[Content]) -> None:
        self._broken = None
        session = self._ends.session
        if session is not None and not self._unsure:
            session.start(reading.epoch, reading.plan.first, reading.first_step)
        # Otherwise the next wait opens a session, which begins with this epoch.

    def _wait(self, reading: ReorderBuffer[Content], deadline: Deadline) -> None:
        session = self._ends.session
        if session is None or self._unsure:
            self._start_over(deadline)
        elif self._broken is not None:
            raise error_of(self._broken)
        else:
            session.connection.wait(deadline)
            self._take_in(session)

    def _glance(self) -> None:
        session = self._ends.session
        if session is not None and not self._unsure:
            session.connection.flush()
            self._take_in(session)

    def _seek(self) -> None:
        if self._ends.session is not None and not self._unsure:
            return
        try:
            self._start_over(Deadline(self._moment))
        except TimeoutError:
            # The next try starts from the beginning, so it must have more time: with the same time
            # every try might fail.
            self._moment = min(2 * self._moment, self._hub.patience)

    @property
    def _cut_short(self) -> bool:
        return self._broken is not None

    def _hang_up(self) -> None:
        session = self._ends.session
        if session is not None:
            session.connection.hang_up()

    def _let_go_of_all(self) -> None:
        self._abandon()
        self._finalizer()

    def _held(self) -> int:
        session = self._ends.session
        return 0 if session is None else session.held

    def _recoveries(self) -> int:
        return max(0, self._sessions - 1)

    # --- sessions ---

    def _open_session(self, deadline: Deadline) -> AnySession:
        if self._patience is None:
            self._patience = Deadline(self._hub.patience)
        session = self._hub.open_session(self.registration, deadline, self._patience)
        self._patience, self._moment = None, _MOMENT_S
        self._sessions += 1
        return session

    def _start_over(self, deadline: Deadline) -> None:
        """Open another session, which resumes at the first step that has not come."""
        self._lose_session()
        session = self._open_session(deadline)
        reading = self._reading
        if reading is not None:
            step, beyond = reading.resume()
            for content in beyond:
                content.drop()
            if self._broken is None:
                session.start(reading.epoch, reading.plan.first, step)
        # This must come last: after an interrupt, a session on which nothing was asked for would be
        # left behind.
        self._ends.session = session
        self._unsure = False

    def _lose_session(self) -> None:
        if self._ends.session is not None:
            self._ends.session.close()
        self._ends.session = None

    # --- messages of the hub ---

    def _take_in(self, session: AnySession) -> None:
        self._unsure = True
        try:
            received = session.connection.receive()
        except ConnectionError as error:
            log.info("%s lost its hub: %s", self, error)
            self._lose_session()
            self._unsure = False
            return
        self._hear_all(session, received)
        self._unsure = False

    def _hear_all(self, session: AnySession, received: Received) -> None:
        try:
            while received:
                message, brought = received.pop(0)
                self._hear(session, message, brought)
        except BaseException:
            for _, left in received:
                session.discard(left)
            raise

    def _hear(self, session: AnySession, message: FromHubToRank, brought: Any) -> None:
        reading = self._reading
        match message:
            case BatchReady(batch=batch):
                ready_batch = session.take(message, brought)
                if not self._wants(batch.epoch) or not _accept(reading, batch.step, ready_batch):
                    ready_batch.drop()
                self._hub.note_progress()
            case BatchLost(batch=batch) if self._wants(batch.epoch):
                _accept(reading, batch.step, _Loss(message))
                self._hub.note_progress()
            case EpochDone(epoch=epoch) if self._wants(epoch):
                self._check_complete(message)
            case ChannelBroken(epoch=epoch, report=report) if self._wants(epoch):
                self._broken = report
            case BatchLost() | EpochDone() | ChannelBroken():
                pass  # it belongs to an earlier epoch
            case Refused(report=report):
                raise error_of(report)
            case _:
                raise ProtocolError(f"{self} has no use for {type(message).__name__}")

    def _wants(self, epoch: int) -> bool:
        return self._reading is not None and self._reading.epoch == epoch

    def _check_complete(self, done: EpochDone) -> None:
        """Raise `ProtocolError` if batches of an epoch that the hub calls done are missing."""
        assert self._reading is not None
        if not self._reading.complete and self._broken is None:
            raise ProtocolError(
                f"the hub says that an epoch is done, but batches are missing: {done}"
            )


@dataclass
class _Ends:
    """What must be closed with the channel. The finalizer needs it in an object of its own."""

    inputs: Inputs
    session: AnySession | None = None
    owner: int = field(default_factory=os.getpid)

    def close(self) -> None:
        if os.getpid() != self.owner:
            return  # this is a fork's copy; the parent goes on using it
        session, self.session = self.session, None
        if session is not None:
            session.close()
        self.inputs.close()


@dataclass(frozen=True, slots=True, eq=False)
class _Loss:
    """A batch that will not come."""

    lost: BatchLost

    def open(self) -> Batch:
        raise error_of(self.lost.report)

    def drop(self) -> None:
        pass


def _accept(reading: ReorderBuffer[Content] | None, step: int, content: Content) -> bool:
    return reading is not None and reading.accept(step, content)
