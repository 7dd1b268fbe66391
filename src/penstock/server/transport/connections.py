"""Connections without a session: those before `Hello`, and those that are being closed.

Anybody can connect. So before a rank has said `Hello`, its connection may use little memory and
little time, and the number of such connections is limited: in all, per host and per second. A host
that was refused must wait before it tries again, longer each time. This does not apply to loopback
and proxies, where many ranks share one address.
"""

from __future__ import annotations

import logging
import select
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from penstock.errors import AccessDenied, HubGone, Overloaded, ProtocolError
from penstock.hub.reports import report_of
from penstock.server.limits import LONGEST_NAME
from penstock.server.transport import old_protocol
from penstock.server.transport.access import Peer
from penstock.server.transport.poller import READ, WRITE
from penstock.server.transport.rate_limits import Penalties, TokenBucket
from penstock.server.transport.session import UNACKNOWLEDGED
from penstock.server.transport.state import ServerState
from penstock.server.transport.threads import Threads
from penstock.wire.framing import PREAMBLE
from penstock.wire.messages import MOST_HELLO, PROTOCOL, Hello, Refused
from penstock.wire.tcp_stream import SCRATCH, ByteSocket, TcpStream
from penstock.wire.transport.tcp import is_loopback, notice_death
from penstock.wire.transport.tls import HANDSHAKE, NO_TLS_HERE, TlsSocket

log = logging.getLogger(__name__)

# Seconds in which to say Hello. With many connections pending, the oldest may be given only
# LEAST_HELLO_S.
HELLO_S: Final = 5.0
LEAST_HELLO_S: Final = 0.5
# Seconds to stop accepting when the process has no descriptor left.
NO_DESCRIPTOR_S: Final = 0.1
# Connections accepted in one turn of the loop.
AT_ONCE: Final = 64
# Seconds that a refused peer has to read the reason, and how many such peers there may be.
LAST_WORDS_S: Final = 1.0
MOST_LEAVING: Final = 256
# Bytes that `send` sends at once. The loop sends the rest later; encrypted data is sent by a
# thread.
INLINE: Final = 256 << 10
RECEIVED_AT_ONCE: Final = 1 << 20
ENCRYPTED_INLINE: Final = 16 << 10

Admit = Callable[[TcpStream[Any], Hello, Peer, bool], None]


class PendingConnection:
    """A connection that has not said `Hello`."""

    __slots__ = ("handler", "host", "name", "since", "socket", "stream", "tls")

    def __init__(self, connected: socket.socket, host: str, since: float) -> None:
        self.socket = connected
        self.host = host
        self.since = since
        self.name: str | None = None  # the name in its certificate
        self.tls: TlsSocket | None = None
        self.stream: TcpStream[Hello] | None = None
        self.handler: Callable[[int], None] = lambda events: None

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self) -> None:
        (self.stream or self.socket).close()


class PendingConnections:
    """All connections before `Hello`. Calls `admit` for each that said `Hello` and is accepted."""

    def __init__(self, state: ServerState, threads: Threads, lease: float, admit: Admit) -> None:
        self._state = state
        self._threads = threads  # for handshakes
        self._lease = lease
        self._admit = admit
        self._there: dict[PendingConnection, None] = {}  # oldest first
        self._hosts: Counter[str] = Counter()
        limits = state.limits
        self._accepts = TokenBucket(limits.max_accepts, limits.max_accepts)
        self._handshakes = TokenBucket(limits.max_handshakes, limits.max_handshakes)
        self._penalties = Penalties()
        self._unencrypted: dict[PendingConnection, None] = {}  # those that wait for a handshake
        self._paused_until: float | None = None
        self._scratch = memoryview(bytearray(SCRATCH))  # shared by all streams of this thread
        self.farewells = Farewells(state)
        self._seconds = min(HELLO_S, lease)
        self._warned_at = float("-inf")
        self.now = 0.0

    def __len__(self) -> int:
        return len(self._there)

    # --- accepting ---------------------------------------------------------------------------

    def accept(self, events: int) -> None:
        """Accept waiting connections, a limited number at once."""
        for _ in range(AT_ONCE):
            if not self._has_room():
                return
            try:
                found = self._state.listener.accept()
            except BlockingIOError as error:  # e.g. no descriptor; one may be free soon
                log.warning("no connection can be accepted for a moment: %s", error.strerror)
                self._pause(self.now + NO_DESCRIPTOR_S)
                return
            if found is None:
                return
            self._came(*found)

    def _has_room(self) -> bool:
        """Return whether one more may connect now; if not, stop listening for a while."""
        if len(self._there) >= self._state.limits.max_strangers:
            oldest = next(iter(self._there))
            if self.now - oldest.since < LEAST_HELLO_S:
                self._pause(oldest.since + LEAST_HELLO_S)
                return False
            self._turn_away(oldest, "it has not said Hello, and others wait to connect")
        if not self._accepts.take(self.now):
            self._pause(self._accepts.when(self.now))
            return False
        return True

    def _pause(self, until: float) -> None:
        self._state.poller.forget(self._state.listener.fileno())
        self._paused_until = until

    def _came(self, connected: socket.socket, host: str) -> None:
        reason = self._objection(host)
        if reason:
            self._state.turned_away += 1
            log.info("a connection of %s is refused: %s", host, reason)
            connected.close()
            return
        try:
            notice_death(connected, UNACKNOWLEDGED * self._lease)
        except OSError:  # the peer has gone
            connected.close()
            return
        pending = PendingConnection(connected, host, self.now)
        pending.handler = lambda events: self._attend(pending, events)
        try:
            self._state.poller.watch(pending.fileno(), READ, pending.handler)
        except OSError as error:  # the system has no memory for it
            log.warning("a connection of %s is refused: %s", host, error)
            connected.close()
            return
        self._there[pending] = None
        self._hosts[host] += 1

    def _objection(self, host: str) -> str:
        """Return why a host may not even say Hello; "" if it may."""
        limits, state = self._state.limits, self._state
        if len(self._there) + len(state.sessions) >= limits.max_connections:
            if self.now - self._warned_at > 1.0:
                self._warned_at = self.now
                log.warning(
                    "connections are refused: there are %d (setting: max_connections)",
                    limits.max_connections,
                )
            return f"there are {limits.max_connections} connections (setting: max_connections)"
        if self._is_shared(host):
            return ""
        if self._penalties.waits(host, self.now):
            return "it was refused, and must wait before it tries again"
        if self._hosts[host] >= limits.max_strangers_per_host:
            return "that host has too many without a Hello (setting: max_strangers_per_host)"
        return ""

    def _is_shared(self, host: str) -> bool:
        """Return whether ranks may share this address; then none is penalized for another."""
        return is_loopback(host) or host in self._state.proxies

    # --- messages before a session -----------------------------------------------------------

    def _attend(self, pending: PendingConnection, events: int) -> None:
        try:
            if pending.stream is None and pending.tls is None and pending in self._there:
                self._begin(pending)
            elif pending.stream is None and pending in self._there:
                self._shake_hands(pending)
            if pending.stream is not None and pending in self._there:
                self._hear(pending)
        except OSError as error:
            self._turn_away(pending, f"the connection is lost: {error}")
        except Exception:  # our own bug must not end the other connections
            log.exception("handling a connection of %s failed", pending.host)
            self._turn_away(pending, "handling it failed")

    def _begin(self, pending: PendingConnection) -> None:
        """Look at the first byte, which tells all protocols apart that peers may speak."""
        first = pending.socket.recv(1, socket.MSG_PEEK)
        if not first:
            self._turn_away(pending, "it closed without saying Hello")
        elif first[0] == old_protocol.FIRST:
            self._part_from(pending, "it speaks ZeroMQ", old_protocol.OldClient)
        elif self._state.access.certificates is None:
            if first[0] == HANDSHAKE:
                self._tell(pending, NO_TLS_HERE, "it speaks TLS")
            else:
                self._open(pending, pending.socket)
        elif first[0] == HANDSHAKE:
            self._encrypt(pending)
        elif first[0] == PREAMBLE[0]:
            self._open(pending, pending.socket)
            self._refuse(pending, AccessDenied(_WANTS_TLS))
        else:
            self._turn_away(pending, "it does not speak this protocol")

    def _open(self, pending: PendingConnection, connected: ByteSocket) -> None:
        pending.stream = TcpStream(
            connected,
            Hello,
            limit=MOST_HELLO,
            most_at_once=1,
            scratch=self._scratch,
            inline=INLINE if pending.tls is None else ENCRYPTED_INLINE,
            at_once=RECEIVED_AT_ONCE,
        )

    def _hear(self, pending: PendingConnection) -> None:
        stream = pending.stream
        assert stream is not None
        try:
            received = stream.receive()
        except ProtocolError as error:
            self._refuse(pending, ProtocolError(f"there is no session, say Hello first: {error}"))
            return
        if received:
            self._hello(pending, received[0][0])
        elif stream.ended:
            self._turn_away(pending, stream.reason)

    def _hello(self, pending: PendingConnection, hello: Hello) -> None:
        try:
            self._check(hello)
            self._state.access.check(hello)
        except Exception as error:
            self._refuse(pending, error)
            return
        self._forget(pending)
        self._penalties.forget(pending.host)
        assert pending.stream is not None
        peer = Peer(pending.host, pending.name)
        self._admit(pending.stream, hello, peer, pending.tls is not None)

    def _check(self, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            raise ProtocolError(
                f"you speak protocol {hello.protocol}, this server {PROTOCOL}: "
                "install the same version of penstock-gnn on both sides"
            )
        if self._state.leaving is not None:
            raise HubGone(f"the server is leaving: {self._state.leaving}")
        for name in ("name", "host", "token", "tenant", "graph", "trace"):
            if len(getattr(hello, name) or "") > LONGEST_NAME:
                raise ProtocolError(f"the {name} of a Hello is longer than {LONGEST_NAME} letters")
        most = self._state.limits.max_sessions
        if len(self._state.sessions) >= most:
            raise Overloaded(f"there are {most} sessions, and no more (setting: max_sessions)")

    # --- TLS ---------------------------------------------------------------------------------

    def _encrypt(self, pending: PendingConnection) -> None:
        if not self._handshakes.take(self.now):
            # Read no more from it until the rate limit allows its handshake.
            self._state.poller.forget(pending.fileno())
            self._unencrypted[pending] = None
            return
        certificates = self._state.access.certificates
        assert certificates is not None
        pending.tls = TlsSocket(certificates.context, pending.socket, server_side=True)
        self._shake_hands(pending)

    def _shake_hands(self, pending: PendingConnection) -> None:
        """Continue a handshake in a thread, since it is the slowest step here."""
        assert pending.tls is not None
        self._state.poller.forget(pending.fileno())
        self._threads.ask(
            pending.tls.handshake, lambda outcome: self._shook(pending, outcome), pending
        )

    def _shook(self, pending: PendingConnection, outcome: Any) -> None:
        if pending not in self._there:
            return
        if isinstance(outcome, Exception):
            self._note_refusal(pending.host)
            self._part_from(pending, f"no TLS: {outcome}")
        elif outcome is not None:
            events = READ if outcome == select.POLLIN else WRITE
            self._state.poller.watch(pending.fileno(), events, pending.handler)
        else:
            assert pending.tls is not None
            pending.name = pending.tls.peer_name()
            self._open(pending, pending.tls)
            self._state.poller.watch(pending.fileno(), READ, pending.handler)
            self._attend(pending, READ)

    # --- refusing ----------------------------------------------------------------------------

    def _refuse(self, pending: PendingConnection, error: Exception) -> None:
        """Send the reason why it is refused, and close the connection."""
        who = pending.host
        log.info("%s is refused: %s", who, error)
        self._state.refused += 1
        if not isinstance(error, Overloaded | HubGone):
            self._note_refusal(who)
        stream = pending.stream
        assert stream is not None
        self._forget(pending)
        stream.send(Refused(request=0, report=report_of(error)))
        self.farewells.begin(stream, self.now)

    def _note_refusal(self, host: str) -> None:
        if not self._is_shared(host):
            seconds = self._penalties.note(host, self.now)
            log.warning("%s was refused: it may try again in %g s", host, seconds)

    def _tell(self, pending: PendingConnection, words: bytes, reason: str) -> None:
        """Send bytes to a peer that speaks another protocol, and close the connection."""
        with suppress(OSError):
            pending.socket.send(words)
        self._part_from(pending, reason)

    def _part_from(
        self,
        pending: PendingConnection,
        reason: str,
        end: Callable[[socket.socket], End] | None = None,
    ) -> None:
        """Close a connection whose peer may still be reading what it was sent."""
        self._state.refused += 1
        log.info("%s is refused: %s", pending.host, reason)
        self._forget(pending)
        self.farewells.begin((end or RawEnd)(pending.socket), self.now)

    def _turn_away(self, pending: PendingConnection, reason: str) -> None:
        if pending in self._there:
            log.info("a connection of %s is ended: %s", pending.host, reason)
            self._state.turned_away += 1
            self._forget(pending)
            pending.close()

    def _forget(self, pending: PendingConnection) -> None:
        """Remove it from the pending connections; its descriptor stays open."""
        del self._there[pending]
        self._unencrypted.pop(pending, None)
        self._hosts[pending.host] -= 1
        if not self._hosts[pending.host]:
            del self._hosts[pending.host]
        self._state.poller.forget(pending.fileno())
        self._threads.drop(pending)
        if self._paused_until is not None:
            self._paused_until = self.now

    # --- time --------------------------------------------------------------------------------

    def due(self) -> float:
        """Return the time at which `pass_time` has to be called next."""
        due = self.farewells.due()
        if self._there:
            due = min(due, next(iter(self._there)).since + self._seconds)
        if self._paused_until is not None:
            due = min(due, self._paused_until)
        if self._unencrypted:
            due = min(due, self._handshakes.when(self.now))
        return due

    def pass_time(self) -> None:
        """Close connections whose time is up, resume handshakes, and listen again."""
        self.farewells.pass_time(self.now)
        for pending in list(self._there):
            if self.now - pending.since < self._seconds:
                break
            self._turn_away(pending, f"it has not said Hello for {self._seconds:g} s")
        for pending in list(self._unencrypted):
            del self._unencrypted[pending]
            self._attend(pending, READ)
            if pending in self._unencrypted:
                break  # the rate limit allows no more
        if self._paused_until is not None and self.now >= self._paused_until:
            self._paused_until = None
            self._state.poller.watch(self._state.listener.fileno(), READ, self.accept)

    def close(self) -> None:
        """Close all of them."""
        for pending in list(self._there):
            self._turn_away(pending, "the server ends")
        self.farewells.close()


_WANTS_TLS: Final = "this server speaks TLS: connect to tls://host:port, with its authority (ca=…)"


class End(Protocol):
    """A connection that is closed once its peer has read the last message."""

    @property
    def pending(self) -> bool: ...
    @property
    def broken(self) -> bool: ...
    def fileno(self) -> int: ...
    def flush_some(self, nbytes: int) -> None: ...
    def finish(self) -> None: ...
    def discard(self, scratch: memoryview) -> bool: ...
    def close(self) -> None: ...


class RawEnd:
    """The end of a connection in another protocol: all of it is in the kernel's buffer already."""

    pending = broken = False

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def fileno(self) -> int:
        return self._socket.fileno()

    def flush_some(self, nbytes: int) -> None:
        """Do nothing: there is nothing left to send."""

    def finish(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def discard(self, scratch: memoryview) -> bool:
        try:
            return self._socket.recv_into(scratch) > 0
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        self._socket.close()


class Farewells:
    """Connections that are closed once their peers have read the last message.

    Closing a socket with unread input would make the kernel discard what was sent.
    """

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._until: dict[End, float] = {}  # the first to expire first
        self._scratch = memoryview(bytearray(16 << 10))

    def __bool__(self) -> bool:
        return bool(self._until)

    def begin(self, stream: End, now: float) -> None:
        """Send what is left; close when the peer has closed, or after a while in any case."""
        if stream.broken or len(self._until) >= MOST_LEAVING:
            self._state.poller.forget(stream.fileno())
            stream.close()
            return
        self._until[stream] = now + LAST_WORDS_S
        self._attend(stream, WRITE)

    def _attend(self, stream: End, events: int) -> None:
        if stream not in self._until:
            return
        if events & WRITE:
            stream.flush_some(ENCRYPTED_INLINE)
            if not stream.pending:
                stream.finish()
        if (events & ~WRITE and not stream.discard(self._scratch)) or stream.broken:
            self._end(stream)
            return
        wanted = READ | WRITE if stream.pending else READ
        self._state.poller.watch(
            stream.fileno(), wanted, lambda events: self._attend(stream, events)
        )

    def _end(self, stream: End) -> None:
        del self._until[stream]
        self._state.poller.forget(stream.fileno())
        stream.close()

    def due(self) -> float:
        """Return when the first of them expires."""
        return next(iter(self._until.values()), float("inf"))

    def pass_time(self, now: float) -> None:
        """Close those that have expired."""
        for stream, until in list(self._until.items()):
            if now < until:
                return
            self._end(stream)

    def close(self) -> None:
        """Close all of them."""
        for stream in list(self._until):
            self._end(stream)
