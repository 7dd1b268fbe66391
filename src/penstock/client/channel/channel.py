"""A channel of a hub: batches come over a session, and are read in order of steps.

Everything the hub has sent is in one of three places: in the socket, in the `ReorderBuffer`, or
with the user. When the hub dies, when it hangs up, or when a read was interrupted, the channel
drops its session and opens another one, which resumes at the first step that has not come. Batches
are pure functions, so none is lost and none repeated.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.client.channel.batch import Batch
from penstock.client.channel.inputs import Inputs
from penstock.client.channel.reader import Content, Reader
from penstock.client.channel.registration import Registration
from penstock.client.channel.reorder_buffer import ReorderBuffer
from penstock.client.channel.session import AnySession, close_all
from penstock.client.deadline import Deadline
from penstock.client.failures import error_of
from penstock.client.hub.connection import Received
from penstock.client.hub.hub import Provider
from penstock.core.plan import EpochPlan
from penstock.errors import ProtocolError
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

# How long whoever only looks waits for a hub that was lost, to begin with.
_MOMENT_S: Final = 1.0


class Channel(Reader):
    """The batches of one registration with a hub."""

    def __init__(self, hub: Provider, registration: Registration, **options: Any) -> None:
        super().__init__(registration.options.job, **options)
        self._hub = hub
        self.registration = registration
        self._broken: Report | None = None
        self._patience: Deadline | None = None  # runs since the hub was lost
        self._moment = _MOMENT_S
        self._sessions = 0
        self._ends = _Ends(registration.inputs)
        # At exit too: the hub is told by the socket's end, whoever else may hold batches.
        self._finalizer = weakref.finalize(self, self._ends.close)
        self._ends.session = self._enroll(Deadline(None))

    @property
    def rank(self) -> int:
        """Whose batches these are."""
        return self.registration.options.rank

    def plan(self, first: int = 0) -> EpochPlan:
        """The arithmetic of an epoch that begins at batch `first` of the list."""
        return self.registration.plan(first)

    def fileno(self) -> int:
        """Readable when something has come from the hub; -1 while there is no session."""
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

    def reweigh(self, weight: float) -> None:
        """Asks for a share of the workers in proportion to `weight`, from now on."""
        self._check_free()
        try:
            with self._busy:
                self.registration = self.registration.reweighed(weight)
                if self._ends.session is not None:
                    self._ends.session.reweigh(weight)
        finally:
            self._leave()

    # --- what `Reader` asks for ---

    def _begin(self, reading: ReorderBuffer[Content]) -> None:
        self._broken = None
        session = self._ends.session
        if session is not None and not self._unsure:
            session.start(reading.epoch, reading.plan.first, reading.first_step)
        # Else a new session is made when somebody waits, and begins there.

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
            # The next one begins anew, so it must have longer: or looking might never be enough.
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

    def _enroll(self, deadline: Deadline) -> AnySession:
        if self._patience is None:
            self._patience = Deadline(self._hub.patience)
        session = self._hub.enroll(self.registration, deadline, self._patience)
        self._patience, self._moment = None, _MOMENT_S
        self._sessions += 1
        return session

    def _start_over(self, deadline: Deadline) -> None:
        """Another session, which goes on with the first step that has not come."""
        self._lose_session()
        session = self._enroll(deadline)
        reading = self._reading
        if reading is not None:
            step, beyond = reading.resume()
            for content in beyond:
                content.drop()
            if self._broken is None:
                session.start(reading.epoch, reading.plan.first, step)
        # Not before: an interrupt would leave a session behind on which nothing was asked for.
        self._ends.session = session
        self._unsure = False

    def _lose_session(self) -> None:
        if self._ends.session is not None:
            self._ends.session.close()
        self._ends.session = None

    # --- what the hub says ---

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
                message, fds = received.pop(0)
                self._hear(session, message, fds)
        except BaseException:
            for _, left in received:
                close_all(left)
            raise

    def _hear(self, session: AnySession, message: FromHubToRank, fds: Sequence[int]) -> None:
        reading = self._reading
        match message:
            case BatchReady(batch=batch):
                ready_batch = session.take(message, fds)
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
                pass  # of an epoch that was left
            case Refused(report=report):
                raise error_of(report)
            case _:
                raise ProtocolError(f"{self} has no use for {type(message).__name__}")

    def _wants(self, epoch: int) -> bool:
        return self._reading is not None and self._reading.epoch == epoch

    def _check_complete(self, done: EpochDone) -> None:
        """By the time an epoch is done, everything of it must have come."""
        assert self._reading is not None
        if not self._reading.complete and self._broken is None:
            raise ProtocolError(
                f"the hub says that an epoch is done, but batches are missing: {done}"
            )


@dataclass
class _Ends:
    """What must be let go of with the channel: held apart, for the finalizer."""

    inputs: Inputs
    session: AnySession | None = None
    owner: int = field(default_factory=os.getpid)

    def close(self) -> None:
        if os.getpid() != self.owner:
            return  # a fork's copy; the parent goes on
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
