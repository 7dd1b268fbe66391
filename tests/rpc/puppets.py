"""A server that says what a test tells it to: a listening socket and bare streams, in this process.

It belongs to one thread at a time, and does nothing by itself: not even signs of life.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from penstock.graph import Graph
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import Endpoint
from penstock.sampling.spec import Feed, NeighborSpec
from penstock.server.dist.outline import outline_of
from penstock.wire.frames import Bytes, private_memory
from penstock.wire.framing import CHUNK, HEADER, encode, head
from penstock.wire.messages import (
    PROTOCOL,
    BatchId,
    BatchReady,
    FromRankToServer,
    Goodbye,
    Heartbeat,
    Hello,
    Message,
    Register,
    Registered,
    Welcome,
)
from penstock.wire.payload import NOTHING
from penstock.wire.tcp_stream import TcpStream
from tests.client.graphs import small_graph

# How long a test waits for what must come: a bound for liveness, never a measure.
PATIENCE_S = 60.0
CHANNEL, SLOTS, MOST_BYTES = 7, 4, 64 << 20
# So long that no sign of life is due while a test lasts: ranks give them at even times.
LEASE_S = 1e10
# More than the kernels of both sides keep of what nobody reads.
LARGE = 48 << 20

Said = TypeVar("Said", bound=Message)
_MOMENT_S = 0.05


def soon() -> Deadline:
    """Long enough for whatever must come."""
    return Deadline(PATIENCE_S)


class Puppet:
    """Hears whoever comes, and speaks to whoever spoke last."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ranks: dict[int, _Rank] = {}
        self._ignored: list[_Rank] = []
        self._heard: deque[tuple[_Rank, FromRankToServer, Bytes | None]] = deque()
        self.rank: _Rank | None = None

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.address)

    # --- hearing ---

    def hear(self, kind: type[Said]) -> Said:
        """The next message, which is of this kind.

        Signs of life are for those who want them. Whoever wants a Hello does not care who leaves.
        """
        return self.hear_all_of(kind)[0]

    def hear_all_of(self, kind: type[Said]) -> tuple[Said, bytes]:
        """The same, with the bytes of its payload."""
        deadline = soon()
        while True:
            while self._heard:
                self.rank, message, payload = self._heard.popleft()
                if isinstance(message, Heartbeat) and kind is not Heartbeat:
                    continue
                if isinstance(message, Goodbye) and kind is Hello:
                    continue
                assert isinstance(message, kind), message
                return message, b"" if payload is None else payload.tobytes()
            if kind is not Hello and self.rank is not None:
                assert not self.rank.stream.ended, "the rank has hung up"
            assert self._take_in(deadline.remaining), f"nobody says {kind.__name__}"

    def welcome_the_next(self, **given: Any) -> None:
        """Hears a Hello, and answers it."""
        self.hear(Hello)
        self.say(self.welcome(**given))

    @property
    def has_visitors(self) -> bool:
        """Whether somebody has said Hello who was not answered."""
        self._take_in(0)
        return any(isinstance(message, Hello) for _, message, _ in self._heard)

    def is_quiet(self) -> bool:
        """Whether nobody says anything for a moment, but that they live."""
        deadline = Deadline(_MOMENT_S)
        while self._take_in(deadline.remaining) and not deadline.passed:
            pass
        self._heard = deque(each for each in self._heard if not isinstance(each[1], Heartbeat))
        return not self._heard

    def wait_for_end(self) -> list[Message]:
        """All that whoever spoke last says before its connection ends, but that it lives."""
        rank, deadline = self._speaker, soon()
        while not rank.stream.ended:
            assert self._take_in(deadline.remaining), "the rank does not hang up"
        said: list[Message] = [
            message
            for whose, message, _ in self._heard
            if whose is rank and not isinstance(message, Heartbeat)
        ]
        self._heard = deque(each for each in self._heard if each[0] is not rank)
        return said

    def ignore(self) -> None:
        """Reads nothing more of whoever spoke last."""
        self._ignored.append(self._ranks.pop(self._speaker.socket.fileno()))

    def take_a_little(self) -> list[FromRankToServer]:
        """Reads some of what whoever spoke last sends; the messages that are complete by that."""
        return [message for message, _ in self._speaker.stream.receive()]

    def _take_in(self, timeout: float | None) -> bool:
        """Hears what comes next, from anybody; False if nothing does in so long."""
        listener = self._listener.fileno()
        waiting = select.poll()
        for descriptor in (listener, *self._ranks):
            waiting.register(descriptor, select.POLLIN)
        ready = waiting.poll(None if timeout is None else timeout * 1000)
        for descriptor, _ in ready:
            if descriptor == listener:
                rank = _Rank(self._listener.accept()[0])
                self._ranks[rank.socket.fileno()] = rank
            else:
                self._hear(self._ranks[descriptor])
        return bool(ready)

    def _hear(self, rank: _Rank) -> None:
        self._heard.extend((rank, message, payload) for message, payload in rank.receive())
        if rank.stream.ended:
            del self._ranks[rank.socket.fileno()]
            rank.stream.close()

    # --- saying ---

    def say(self, message: Message, payload: Any = b"", lane: int = 0) -> None:
        """Returns when the kernel has all of it."""
        views = [memoryview(payload)] if len(payload) else []
        stream = self._speaker.stream
        stream.send(message, payload=views, lane=lane)
        assert stream.flush(PATIENCE_S), "the rank does not listen"

    def say_bytes(self, body: bytes) -> None:
        """A message that may be none."""
        self.say_raw(head(body))

    def say_raw(self, data: bytes) -> None:
        """What may not even be a frame."""
        connected = self._speaker.socket
        connected.settimeout(PATIENCE_S)
        connected.sendall(data)
        connected.setblocking(False)

    @property
    def _speaker(self) -> _Rank:
        assert self.rank is not None, "nobody has spoken"
        return self.rank

    def welcome(self, **given: Any) -> Welcome:
        said: dict[str, Any] = {
            "protocol": PROTOCOL,
            "boot": "first",
            "pid": 1,
            "host": "elsewhere",
            "address": self.address,
            "outline": outline_of(self._graph),
            "lease": LEASE_S,
        }
        return Welcome(**(said | given))

    # --- its life ---

    def hang_up(self) -> None:
        """Ends the connection to whoever spoke last, without a word."""
        del self._ranks[self._speaker.socket.fileno()]
        self._speaker.stream.close()

    def die(self) -> None:
        """Ends all connections, and nobody listens any more."""
        self._listener.close()
        for rank in (*self._ranks.values(), *self._ignored):
            rank.stream.close()
        self._ranks.clear()

    def start_again(self) -> None:
        """At the same address."""
        self.die()
        port = int(self.address.rpartition(":")[2])
        self._listener = socket.create_server(("127.0.0.1", port))


class _Rank:
    """Whoever has connected."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.socket = connected
        self.stream: TcpStream[FromRankToServer] = TcpStream(
            connected, FromRankToServer, reserve=lambda _, nbytes: private_memory(nbytes)
        )

    def receive(self) -> Iterator[tuple[FromRankToServer, Bytes | None]]:
        while True:
            yield from self.stream.receive()
            if not self.stream.has_more:
                return


@contextmanager
def puppet() -> Iterator[Puppet]:
    with small_graph() as graph:
        server = Puppet(graph)
        try:
            yield server
        finally:
            server.die()


# --- connections to it ---------------------------------------------------------------------------


def opened(server: Puppet, *, driven: bool = False, **welcome: Any) -> RemoteConnection:
    """A connection on which both have said hello."""
    with ThreadPoolExecutor(1) as rank:
        opening = rank.submit(RemoteConnection.open, server.endpoint, soon(), driven=driven)
        server.hear(Hello)
        server.say(server.welcome(**welcome))
        return opening.result(PATIENCE_S)


@contextmanager
def greeted(server: Puppet, **given: Any) -> Iterator[RemoteConnection]:
    """The same, closed afterwards."""
    connection = opened(server, **given)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def registered(server: Puppet, **given: Any) -> Iterator[RemoteConnection]:
    """A connection with a channel."""
    with greeted(server, **given) as connection:
        with ThreadPoolExecutor(1) as rank:
            registering = rank.submit(connection.register, REGISTER, NOTHING, soon())
            server.say(a_channel(server.hear(Register)))
            registering.result(PATIENCE_S)
        yield connection


REGISTER = Register(
    request=0, spec=NeighborSpec(num_neighbors=(2,)), feed=Feed(num_inputs=10, batch_size=5)
)


def a_channel(asked: Register) -> Registered:
    return Registered(request=asked.request, channel=CHANNEL, slots=SLOTS, most_bytes=MOST_BYTES)


def ready(nbytes: int, step: int = 0, slot: int = 0, **given: Any) -> BatchReady:
    batch = BatchId(CHANNEL, 0, step)
    return BatchReady(batch=batch, index=step, slot=slot, layouts=(), nbytes=nbytes, **given)


# --- frames --------------------------------------------------------------------------------------


def frames(message: Message, payload: bytes, lane: int = 0) -> Iterator[bytes]:
    """A message and its payload as they lie on the wire, cut as senders do."""
    yield head(encode(message), 0, lane, len(payload)) + payload[:CHUNK]
    for at in range(CHUNK, len(payload), CHUNK):
        yield chunk(payload[at : at + CHUNK], lane)


def chunk(data: bytes, lane: int = 0) -> bytes:
    """A further frame of a payload."""
    return HEADER.pack(0, 0, lane, len(data)) + data
