"""The server's event loop: one thread and one poller that handle every event.

A turn: wait; handle what hubs, threads and ranks have sent; let time pass. Only the poller waits,
and nothing is polled in intervals: the end of a connection, room in a socket and the result of a
thread all wake the loop.

The loop reads from ranks and sends to them in portions, so that none delays the others.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from datetime import timedelta
from functools import partial
from typing import Any, Final

from penstock.errors import HubGone, Overloaded, ProtocolError
from penstock.hub.reports import report_of
from penstock.server.ops.malloc import give_back
from penstock.server.ops.statistics import ServerStatistics
from penstock.server.transport.access import Peer
from penstock.server.transport.connections import PendingConnections
from penstock.server.transport.poller import READ, WRITE
from penstock.server.transport.rank_messages import RankMessages
from penstock.server.transport.session import Session
from penstock.server.transport.state import ServerState
from penstock.server.transport.threads import Threads, Wakeup
from penstock.server.transport.tls_writers import TlsWriters
from penstock.wire.messages import (
    BatchLost,
    BatchReady,
    FromRankToServer,
    Hello,
    Leaving,
    Refused,
)
from penstock.wire.tcp_stream import TcpStream
from penstock.wire.transport import tls

log = logging.getLogger(__name__)

# Bytes sent to one session before the others have their turn.
SENT_AT_ONCE: Final = 1 << 20
# Leases that may pass without progress of a payload that has begun to arrive.
UPLOAD_LEASES: Final = 4
# How often the certificate's expiry is checked.
CERTIFICATE_S: Final = 24 * 3600.0
# Seconds after a session has ended until its memory is given back to the system.
GIVE_BACK_S: Final = 0.5
# How long sending last messages may take when the loop ends.
CLOSE_S: Final = 0.5
# Threads for TLS: for handshakes, and for encrypting.
HANDSHAKE_THREADS: Final = 2
ENCRYPTING_THREADS: Final = 4
# Bytes of a partly received message that are not counted against the budget.
_SMALL: Final = 4096
_LOOK_S: Final = 0.1
_BATCHES: Final = (BatchReady, BatchLost)


class EventLoop(threading.Thread):
    """The thread, from `start()` until `stop()`. `failure` is the exception that ended it."""

    def __init__(self, state: ServerState, wakeup: Wakeup, clock: tls.Clock = tls.now) -> None:
        super().__init__(name="penstock-loop", daemon=True)
        self._state = state
        self._wakeup = wakeup
        self._clock = clock
        self._lease = state.welcome.lease
        self._poller = state.poller
        self._touched = state.touched
        self._messages = RankMessages(state, self._statistics_of_this_turn, self._hear_hub)
        self._counted_at = -math.inf
        self._counted: ServerStatistics | None = None  # the statistics of that time
        self._handshaking = Threads("penstock-handshake", HANDSHAKE_THREADS, wakeup)
        self._writers = TlsWriters(ENCRYPTING_THREADS, wakeup)
        self._pending = PendingConnections(state, self._handshaking, self._lease, self._admit)
        self._now = self._began = time.monotonic()
        self._leases_at = math.inf  # when the first lease may end
        self._certificate_at = self._began
        self._unread: set[Session] = set()  # with buffered input that epoll does not see
        self._unwritten: set[Session] = set()  # ended, while a thread still encrypts
        self._left = False  # whether a session has ended since memory was given back
        self._stopping = False
        # Set when the last session has ended on a server that is leaving.
        self.empty = threading.Event()
        self.failure: BaseException | None = None
        self._poller.watch(state.listener.fileno(), READ, self._pending.accept)
        self._poller.watch(wakeup.fileno(), READ, lambda events: wakeup.run())

    @property
    def address(self) -> str:
        """Return the address it listens on."""
        return self._state.listener.address

    @property
    def boot(self) -> str:
        """Return the id of this start of the server."""
        return self._state.welcome.boot

    @property
    def leaving(self) -> bool:
        """Return whether new ranks are refused because the server is leaving."""
        return self._state.leaving is not None

    # --- called from other threads -----------------------------------------------------------

    def stop(self, reason: str) -> None:
        """End the thread soon. Thread-safe."""

        def stop() -> None:
            self._leave(reason, 0.0)
            self._stopping = True

        self._wakeup.call(stop)

    def drain(self, reason: str, grace: float) -> None:
        """Accept no more ranks, and tell those that are connected. Thread-safe."""
        self._wakeup.call(lambda: self._leave(reason, grace))

    def reload_certificates(self) -> None:
        """Read the certificate files again, for later connections. Thread-safe."""
        self._wakeup.call(self._reload)

    def statistics(self) -> ServerStatistics:
        """Return a snapshot. Thread-safe."""
        if not self.is_alive():
            return self._statistics()
        taken: list[ServerStatistics] = []
        done = threading.Event()

        def take() -> None:
            taken.append(self._statistics())
            done.set()

        self._wakeup.call(take)
        while self.is_alive() and not done.wait(_LOOK_S):
            pass  # the loop may end without having run `take`
        return taken[0] if taken else self._statistics()

    # --- the loop ----------------------------------------------------------------------------

    def run(self) -> None:
        """Run turns until told to stop."""
        try:
            while not self._stopping:
                self.turn()
        except BaseException as error:  # our own bug, not caused by a rank
            log.exception("the event loop has failed")
            self.failure = error
        finally:
            self._close()

    def turn(self) -> None:
        """Wait for events, and handle them."""
        due = min(self._leases_at, self._pending.due(), self._certificate_at)
        self._handle(0.0 if self._unread else max(0.0, due - time.monotonic()))
        if self._unread:
            self._read_on()
        if self._now >= due:
            self._let_time_pass()
        if self._state.leaving is not None:
            self._let_readers_go(self._state.leaving)
        if self._touched:
            self._tidy()

    def _read_on(self) -> None:
        for session in list(self._unread):
            self._unread.discard(session)
            self._attend(session, READ)

    def _let_time_pass(self) -> None:
        # This process may have been stopped between waking and reading the clock. Messages that
        # came meanwhile are handled before any rank is taken for silent.
        self._handle(0.0)
        if self._now >= self._pending.due():
            self._pending.pass_time()
        if self._now >= self._leases_at:
            self._look_at_leases()
        if self._now >= self._certificate_at:
            self._certificate_at = self._now + CERTIFICATE_S
            self._look_at_certificate()

    def _handle(self, timeout: float) -> None:
        events = self._poller.poll(timeout)
        self._now = self._pending.now = time.monotonic()
        for handler, mask in events:
            handler(mask)
            if self._touched:
                self._tidy()

    # --- ranks -------------------------------------------------------------------------------

    def _admit(self, stream: TcpStream[Any], hello: Hello, peer: Peer, encrypted: bool) -> None:
        """Open a session for a rank that has said Hello and is accepted."""
        state = self._state
        state.opened += 1
        session = Session(
            state.opened,
            hello,
            peer,
            stream,
            state.touched,
            encrypted=encrypted,
            max_answer_bytes=state.limits.max_answer_bytes,
        )
        session.heard_at = self._now
        self._look_at_leases_by(self._now + self._lease)
        stream.expect(FromRankToServer)
        stream.reserve = lambda message, nbytes: self._messages.reserve(session, message, nbytes)
        session.on_socket = partial(self._attend, session)
        session.conversation.rank_says(hello)
        state.sessions.add(session)
        session.say_encoded(state.welcome, state.welcome_bytes)
        self._watch(session)
        if stream.has_more:
            self._unread.add(session)

    def _attend(self, session: Session, events: int) -> None:
        try:
            if events & WRITE and session.ending is None:
                self._flush(session)
            if events & ~WRITE and session.ending is None:
                self._hear(session)
        except Exception as error:  # our own bug must not end the other sessions
            log.exception("handling %r failed", session)
            self._dismiss(session, error)

    def _hear(self, session: Session) -> None:
        """Handle what a rank has sent, as much as one turn allows."""
        stream = session.stream
        try:
            received = stream.receive()
            if session.partial or stream.held > _SMALL:
                self._count_partial(session)
        except (ProtocolError, Overloaded) as error:
            self._messages.expel(session, error)
            return
        session.heard_at = self._now
        for message, payload in received:
            self._messages.handle(session, message, payload)
            if session.ending is not None:
                return
        if stream.has_more:
            self._unread.add(session)
        elif stream.ended:
            session.lost = True
            session.end(stream.reason)

    def _count_partial(self, session: Session) -> None:
        held = session.stream.held
        counted = held if held > _SMALL else 0
        if counted != session.partial:
            budget = self._state.partial_budget
            budget.give(session.partial)
            session.partial = 0
            budget.take(counted)
            session.partial = counted

    def _flush(self, session: Session) -> None:
        """Send some of what is queued for a rank."""
        if session.encrypted:
            self._encrypt(session)
        else:
            session.stream.flush_some(SENT_AT_ONCE)
            self._watch(session)

    def _encrypt(self, session: Session) -> None:
        if session.in_writers:
            return

        def gone() -> None:
            session.in_writers = False
            if session.ending is None:
                self._watch(session)
            elif session in self._unwritten:
                self._hang_up(session)

        session.in_writers = True
        self._watch(session)
        self._writers.write(session.stream, gone)

    def _watch(self, session: Session) -> None:
        """Wait for input from a rank, and for room in its socket if data is queued."""
        stream = session.stream
        if stream.broken:
            session.lost = True
            session.end(stream.reason)
            return
        if session.encrypted and stream.pending and not stream.blocked and not session.in_writers:
            self._encrypt(session)
            return
        wants_room = stream.pending and not session.in_writers
        self._poller.watch(stream.fileno(), READ | WRITE if wants_room else READ, session.on_socket)

    # --- hubs --------------------------------------------------------------------------------

    def _hear_hub(self, session: Session, events: int) -> None:
        """Pass on what a hub has sent to a rank, or send on what waits for the hub."""
        relay = session.relay
        if relay is None or session.ending is not None:
            return  # the channel was closed a moment ago
        if events & WRITE:
            relay.flush()
            self._messages.watch_relay(session)
        if events & ~WRITE:
            try:
                self._carry(session)
            except ConnectionError as error:
                self._dismiss(session, HubGone(f"the hub of this server ended: {error}"))
            except Exception as error:  # e.g. no memory: it ends this session only
                log.exception("relaying a message of the hub to %r failed", session)
                self._dismiss(session, error)

    def _dismiss(self, session: Session, error: Exception) -> None:
        session.say_last(Refused(request=0, report=report_of(error)))
        session.end(str(error))

    def _carry(self, session: Session) -> None:
        assert session.relay is not None
        relay = session.relay
        for message, packed in relay.hear():
            if isinstance(message, _BATCHES):
                self._state.registrations.hub.note_progress()
            then = partial(relay.note_sent, message.slot) if type(message) is BatchReady else None
            session.say(message, packed, then)
            if isinstance(message, Refused):
                session.end(f"the hub says: {message.report.message}")
            if session.ending is not None:
                return

    # --- time --------------------------------------------------------------------------------

    def _look_at_leases_by(self, at: float) -> None:
        self._leases_at = min(self._leases_at, at)

    def _look_at_leases(self) -> None:
        """End sessions that have been silent for a lease, and those whose payload has stalled."""
        now, self._leases_at = self._now, math.inf
        for session in list(self._state.sessions):
            silent, stalled = now - session.heard_at, session.stalled_for(now)
            if silent >= self._lease:
                session.lost = True
                session.end(f"it was silent for {silent:.1f} s")
            elif session.stream.is_open and stalled > UPLOAD_LEASES * self._lease:
                self._dismiss(session, TimeoutError("the payload of a request did not arrive"))
            else:
                self._look_at_leases_by(session.heard_at + self._lease)
        if self._left:
            self._left = False
            give_back()

    def _look_at_certificate(self) -> None:
        certificates = self._state.access.certificates
        if certificates is not None and (words := certificates.warning(self._clock())):
            log.warning("%s", words)

    def _reload(self) -> None:
        certificates = self._state.access.certificates
        if certificates is None:
            return
        try:
            certificates.reload()
        except (OSError, ValueError) as error:
            log.error("the certificate is not reloaded, and stays as it was: %s", error)
            return
        log.warning("the certificate %s was reloaded", certificates.certificate)
        self._look_at_certificate()

    # --- sessions that end -------------------------------------------------------------------

    def _tidy(self) -> None:
        """Update what is watched for touched sessions, and close those that have ended."""
        touched = self._touched
        while touched:
            session = touched.pop()
            if session.ending is None:
                self._watch(session)
            if session.ending is not None:
                self._close_session(session)

    def _close_session(self, session: Session) -> None:
        if session in self._state.sessions:
            self._state.sessions.discard(session)
            self._unread.discard(session)
            self._left = True
            self._look_at_leases_by(self._now + GIVE_BACK_S)
            self._messages.farewell(session)
            self._hang_up(session)
        if self._state.leaving is not None and not self._state.sessions:
            self.empty.set()

    def _hang_up(self, session: Session) -> None:
        """Close the connection; a rank that still reads is sent the reason first."""
        stream = session.stream
        self._unwritten.discard(session)
        if session.lost or stream.broken:
            self._poller.forget(stream.fileno())
            stream.close()
        elif session.in_writers:  # the writers call back as soon as the socket has no more room
            self._poller.forget(stream.fileno())
            self._unwritten.add(session)
        else:
            self._pending.farewells.begin(stream, self._now)

    def _let_readers_go(self, reason: str) -> None:
        """End the sessions of a store's readers that wait for nothing.

        They ask another server, or wait for this one to come back. Where ranks can have channels,
        all are given their grace: a rank has several sessions.
        """
        if not self._state.only_answers:
            return
        for session in self._state.sessions:
            if session.ending is None and session.needs_nothing:
                session.end(reason)

    def _leave(self, reason: str, grace: float) -> None:
        self._state.leaving = reason
        for session in list(self._state.sessions):
            session.say(Leaving(reason=reason, grace=grace))
        if not self._state.sessions:
            self.empty.set()

    def _close(self) -> None:
        """End every session, and close the listener and the poller."""
        for session in list(self._state.sessions):
            session.end(self._state.leaving or "the server has failed")
        self._tidy()
        self._wait_for_last_words()
        self._handshaking.close()
        self._writers.close()
        self._pending.close()
        self._state.listener.close()
        self._poller.close()
        self.empty.set()

    def _wait_for_last_words(self) -> None:
        """Wait, for a bounded time, until last messages were read. Nobody else is accepted."""
        self._poller.forget(self._state.listener.fileno())
        deadline = time.monotonic() + CLOSE_S
        while self._has_last_words() and (left := deadline - time.monotonic()) > 0:
            self._handle(left)

    def _has_last_words(self) -> bool:
        return bool(self._pending.farewells or self._unwritten)

    def _statistics_of_this_turn(self) -> ServerStatistics:
        """Return statistics that are counted once a turn, however often they are asked for."""
        if self._counted is None or self._counted_at != self._now:
            self._counted, self._counted_at = self._statistics(), self._now
        return self._counted

    def _statistics(self) -> ServerStatistics:
        state, now = self._state, time.monotonic()
        sessions = list(state.sessions)
        certificates = state.access.certificates
        left = None if certificates is None else certificates.expires - self._clock()
        return ServerStatistics(
            address=self.address,
            boot=state.welcome.boot,
            seconds=now - self._began,
            draining=state.leaving is not None,
            sessions=tuple(session.statistics(now) for session in sessions),
            channels=state.registrations.channels.taken,
            strangers=len(self._pending),
            opened=state.opened,
            refused=state.refused,
            turned_away=state.turned_away,
            leases_lost=state.leases_lost,
            batches=state.batches_before + sum(session.batches for session in sessions),
            calls=state.calls_before + sum(session.calls_heard for session in sessions),
            bytes_in=state.bytes_in_before + sum(one.stream.bytes_in for one in sessions),
            bytes_out=state.bytes_out_before + sum(one.stream.bytes_out for one in sessions),
            input_bytes=state.registrations.budget.taken,
            certificate_days=None if left is None else left / timedelta(days=1),
        )
