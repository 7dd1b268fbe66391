"""The door: one thread, one selector, and everything that can happen to a server comes through it.

A turn: wait; hear what hubs, threads and ranks have to say; let time pass. The ROUTER's descriptor
tells of a change once, and any use of the socket may swallow that. So every turn looks at the
socket itself, and does not wait while there is something in it.
"""

from __future__ import annotations

import logging
import selectors
import threading
import time
from typing import Final

from penstock.errors import HubGone
from penstock.hub.reports import report_of
from penstock.server.callers import GUESTS_LOOK_S, LOOK_S, Callers
from penstock.server.desk import Bell
from penstock.server.heap import give_back
from penstock.server.premises import Premises
from penstock.server.reception import Reception
from penstock.server.session import Session
from penstock.server.statistics import ServerStatistics
from penstock.wire.messages import BatchLost, BatchReady, Refused
from penstock.wire.remote import Leaving, Pulse

log = logging.getLogger(__name__)

# Messages of ranks that are heard in one turn, and how long; relays and timers then have theirs.
AT_ONCE: Final = 256
AT_ONCE_S: Final = 0.05
# While a rank has so much to read that ZeroMQ takes no more: the sign that there is room again may
# be swallowed by whatever else is sent meanwhile, so that somebody has to look.
LOOK_AGAIN_S: Final = 0.05
# After somebody has gone, until everybody is spoken to: others who left with it are found, too.
SWEEP_S: Final = 0.05
_LOOK_S: Final = 0.1
# Leases that may go by between two parts of a request's arrays.
UPLOAD_LEASES: Final = 4


class Door(threading.Thread):
    """Runs from `start()` until `stop()`. `failure` is what ended it, should that ever happen."""

    def __init__(self, premises: Premises, bell: Bell) -> None:
        super().__init__(name="penstock-door", daemon=True)
        self._premises = premises
        self._bell = bell
        self._reception = Reception(premises, self._statistics)
        self._selector = premises.watch.selector
        self._lease = premises.greeting.lease
        self._began = time.monotonic()
        self._pulse_at = self._began + self._lease / 4
        self._blocked: set[Session] = set()
        self._left = False  # whether somebody has, since the last pulse
        self._stopping = False
        self.empty = (
            threading.Event()
        )  # set when the last session has left a server that is leaving
        self.failure: BaseException | None = None
        self._selector.register(premises.router, selectors.EVENT_READ, premises.router)
        self._callers = premises.router.callers
        self._look_at = self._guests_at = self._began
        self._selector.register(self._callers, selectors.EVENT_READ, self._callers)
        self._callers.note()  # it tells only those who have looked before
        self._selector.register(bell, selectors.EVENT_READ, bell)

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._premises.router.address

    @property
    def boot(self) -> str:
        """Which start of the server this is."""
        return self._premises.greeting.boot

    @property
    def leaving(self) -> bool:
        """Whether nobody is taken in any more."""
        return self._premises.leaving is not None

    # --- asked by others ---------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Ends the thread soon; from any thread."""

        def stop() -> None:
            self._leave(reason, 0.0)
            self._stopping = True

        self._bell.ring(stop)

    def drain(self, reason: str, grace: float) -> None:
        """Takes nobody in any more, and tells those who are there; from any thread."""
        self._bell.ring(lambda: self._leave(reason, grace))

    def statistics(self) -> ServerStatistics:
        """A snapshot; from any thread."""
        if not self.is_alive():
            return self._statistics()
        taken: list[ServerStatistics] = []
        done = threading.Event()

        def take() -> None:
            taken.append(self._statistics())
            done.set()

        self._bell.ring(take)
        while self.is_alive() and not done.wait(_LOOK_S):
            pass  # it may end without having heard the question
        return taken[0] if taken else self._statistics()

    # --- the loop ----------------------------------------------------------------------------

    def run(self) -> None:
        """Turns until it is told to stop."""
        try:
            while not self._stopping:
                self.turn()
        except BaseException as error:  # a mistake of ours, and no rank's doing
            log.exception("the door has failed")
            self.failure = error
        finally:
            self._close()

    def turn(self) -> None:
        """Waits for something to happen, and deals with it."""
        for key, mask in self._selector.select(self._timeout()):
            match key.data:
                case Session():
                    self._attend(key.data, mask)
                case Bell():
                    self._bell.answer()
                case Callers():
                    if self._callers.note():
                        self._pulse_at = min(self._pulse_at, time.monotonic() + SWEEP_S)
            self._tidy()
        self._hear_ranks()
        self._make_room()
        now = time.monotonic()
        if self._callers.has_strangers and now >= self._look_at:
            self._look_at_strangers(now)
        if now >= self._guests_at:
            self._look_at_guests(now)
        if now >= self._pulse_at:
            self._pulse()
        self._tidy()

    def _timeout(self) -> float:
        if self._premises.router.has_more:
            return 0.0
        now = time.monotonic()
        wait = max(0.0, self._pulse_at - now)
        if self._callers.has_strangers:
            wait = min(wait, max(0.0, self._look_at - now))
        if self._premises.sessions:
            wait = min(wait, max(0.0, self._guests_at - now))
        return min(wait, LOOK_AGAIN_S) if self._blocked else wait

    def _hear_ranks(self) -> None:
        until = time.monotonic() + AT_ONCE_S
        for _ in range(AT_ONCE):
            if time.monotonic() > until or (received := self._premises.router.receive()) is None:
                return
            self._reception.hear(*received)
            self._tidy()

    def _attend(self, session: Session, mask: int) -> None:
        """A hub has something to say to a rank, or takes again what a rank says."""
        relay = session.relay
        if relay is None or session.ending is not None:
            return  # given up a moment ago
        if mask & selectors.EVENT_WRITE:
            relay.flush()
            self._premises.watch.heed(relay)
        if mask & selectors.EVENT_READ:
            try:
                self._carry(session)
            except ConnectionError as error:
                self._dismiss(session, HubGone(f"the hub of this server has gone: {error}"))
            except Exception as error:  # memory, descriptors: whatever it is, it is this one's
                log.exception("what the hub says cannot be carried to %r", session)
                self._dismiss(session, error)

    def _dismiss(self, session: Session, error: Exception) -> None:
        session.say(Refused(request=0, report=report_of(error)))
        session.end(str(error))

    def _carry(self, session: Session) -> None:
        assert session.relay is not None
        for message, data in session.relay.hear():
            if isinstance(message, BatchReady | BatchLost):
                self._premises.enrolments.hub.note_progress()
            session.say(message, data)
            if isinstance(message, Refused):
                session.end(f"the hub says: {message.report.message}")
            if session.ending is not None:
                return

    # --- time --------------------------------------------------------------------------------

    def _pulse(self) -> None:
        """A word to everybody: who cannot be spoken to has gone, and so has who never listens."""
        now = time.monotonic()
        self._pulse_at = now + self._lease / 4
        for session in list(self._premises.sessions.values()):
            if session.blocked:
                self._check_reading(session, now)
            else:
                session.say(Pulse())
            if session.uploads:
                self._check_uploads(session, now)
        if self._left:
            self._left = False
            give_back()

    def _check_uploads(self, session: Session, now: float) -> None:
        acknowledged = self._callers.acknowledged(session.caller)
        if session.keeps_waiting_for(now, acknowledged) > UPLOAD_LEASES * self._lease:
            self._dismiss(session, TimeoutError("the arrays of a request have not come"))

    def _check_reading(self, session: Session, now: float) -> None:
        session.note_taken(self._callers.acknowledged(session.caller), now)
        if session.stuck_for(now) > self._lease:
            session.lost = True
            session.end(f"it has read nothing for {session.stuck_for(now):.1f} s")

    def _look_at_guests(self, now: float) -> None:
        """Hangs up on those who send what never becomes a message, or more than can be heard."""
        all_heard = not self._premises.router.has_more
        self._guests_at = now + (GUESTS_LOOK_S if all_heard else LOOK_S)
        sessions = self._premises.sessions.values()
        there = {session.caller: session for session in sessions if session.caller is not None}
        for caller, reason in self._callers.tiresome_guests(there, all_heard=all_heard):
            there[caller].lost = True
            there[caller].end(reason)

    def _look_at_strangers(self, now: float) -> None:
        self._look_at = now + LOOK_S
        all_heard = not self._premises.router.has_more
        for caller, reason in self._callers.tiresome_strangers(all_heard=all_heard):
            log.info("a connection is ended: %s", reason)
            self._callers.hang_up(caller)

    def _make_room(self) -> None:
        """Sends what has waited for somebody to read."""
        for session in list(self._blocked):
            session.flush()
            if not session.blocked:
                self._blocked.discard(session)

    # --- sessions that end -------------------------------------------------------------------

    def _tidy(self) -> None:
        """Looks at sessions that something has become of."""
        touched = self._premises.touched
        while touched:
            session = touched.pop()
            if session.ending is not None:
                self._close_session(session)
            elif session.blocked:
                self._blocked.add(session)

    def _close_session(self, session: Session) -> None:
        self._blocked.discard(session)
        if self._premises.sessions.pop(session.identity, None) is not None:
            self._left = True
            self._callers.forget(session.caller)
            self._hang_up(session)
            self._reception.farewell(session)
        if self._premises.leaving is not None and not self._premises.sessions:
            self.empty.set()

    def _hang_up(self, session: Session) -> None:
        """Has a rank find out that its session is over, if it cannot have heard so.

        Of a connection that has gone, the descriptor may be somebody else's by now, also when the
        session was only made of what it had left to be heard.
        """
        unheard = session.lost or session.blocked
        if session.caller is not None and unheard and not session.disconnected:
            self._callers.hang_up(session.caller)

    def _leave(self, reason: str, grace: float) -> None:
        self._premises.leaving = reason
        for session in list(self._premises.sessions.values()):
            session.say(Leaving(reason=reason, grace=grace))
        if not self._premises.sessions:
            self.empty.set()

    def _close(self) -> None:
        """Lets go of every session, and of the socket."""
        for session in list(self._premises.sessions.values()):
            session.end(self._premises.leaving or "the server has failed")
        self._tidy()
        self._premises.watch.close()
        self._premises.router.close()
        self.empty.set()

    def _statistics(self) -> ServerStatistics:
        premises, now = self._premises, time.monotonic()
        sessions = list(premises.sessions.values())
        return ServerStatistics(
            address=premises.router.address,
            boot=premises.greeting.boot,
            seconds=now - self._began,
            draining=premises.leaving is not None,
            sessions=tuple(session.statistics(now) for session in sessions),
            channels=premises.enrolments.channels.taken,
            opened=premises.opened,
            refused=premises.refused,
            leases_lost=premises.leases_lost,
            batches=premises.batches_before + sum(session.batches for session in sessions),
            calls=premises.calls_before + sum(session.calls_heard for session in sessions),
            bytes_in=premises.router.bytes_in,
            bytes_out=premises.router.bytes_out,
            input_bytes=premises.enrolments.budget.taken,
        )
