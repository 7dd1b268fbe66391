"""A server that says what a test tells it to: a bare ROUTER, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import zmq

from penstock.client.deadline import Deadline
from penstock.client.remote.connection import RemoteConnection
from penstock.client.remote.door import Door
from penstock.graph import Graph
from penstock.sampling.spec import Feed, NeighborSpec
from penstock.server.outline import outline_of
from penstock.wire.bulk import pack
from penstock.wire.messages import BatchId, BatchReady, Message, Register
from penstock.wire.remote import (
    REMOTE_PROTOCOL,
    Enroll,
    Enrolled,
    FromRankToServer,
    Greeting,
    Knock,
)
from tests.client.graphs import small_graph

# How long a test waits for what must come: a bound for liveness, never a measure.
PATIENCE_S = 60.0
CHANNEL, SLOTS, MOST_BYTES = 7, 4, 1 << 20

Said = TypeVar("Said", bound=Message)
_DECODER = msgspec.msgpack.Decoder(FromRankToServer)


def soon() -> Deadline:
    """Long enough for whatever must come."""
    return Deadline(PATIENCE_S)


class Puppet:
    """Speaks to whoever spoke last."""

    def __init__(self, graph: Graph) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._graph = graph
        self.router = self._context.socket(zmq.ROUTER)
        self.router.linger = self.router.rcvhwm = 0
        port = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.address = f"tcp://127.0.0.1:{port}"
        self.rank = b""

    @property
    def door(self) -> Door:
        return Door(self.address)

    def hear(self, kind: type[Said]) -> Said:
        """The next word, which is of this kind."""
        assert self.router.poll(PATIENCE_S * 1000), "the rank says nothing"
        self.rank, header, *_ = self.router.recv_multipart()
        message = _DECODER.decode(header)
        assert isinstance(message, kind), message
        return message

    def say(self, message: Message, *data: bytes) -> None:
        self.say_bytes(msgspec.msgpack.encode(message), *data)

    def say_bytes(self, *frames: bytes) -> None:
        self.router.send_multipart([self.rank, *frames])

    def is_quiet(self) -> bool:
        return not self.router.poll(50)

    def greeting(self, **given: Any) -> Greeting:
        said: dict[str, Any] = {
            "protocol": REMOTE_PROTOCOL,
            "boot": "first",
            "pid": 1,
            "host": "elsewhere",
            "address": self.address,
            "outline": outline_of(self._graph),
        }
        return Greeting(**(said | given))

    def close(self) -> None:
        self.router.close()
        self._context.term()


@contextmanager
def puppet() -> Iterator[Puppet]:
    with small_graph() as graph:
        server = Puppet(graph)
        try:
            yield server
        finally:
            server.close()


@contextmanager
def greeted(server: Puppet) -> Iterator[RemoteConnection]:
    """A connection on which both have said hello."""
    connection = RemoteConnection(server.door)
    try:
        connection.say(KNOCK, Deadline(PATIENCE_S))
        server.hear(Knock)
        yield connection
    finally:
        connection.close()


@contextmanager
def enrolled(server: Puppet) -> Iterator[RemoteConnection]:
    """A connection with a channel."""
    with greeted(server) as connection:
        server.say(Enrolled(request=1, channel=CHANNEL, slots=SLOTS, most_bytes=MOST_BYTES))
        connection.enroll(ENROLL, pack({}), Deadline(PATIENCE_S))
        server.hear(Enroll)
        yield connection


KNOCK = Knock(protocol=REMOTE_PROTOCOL, pid=1, host="here")
ENROLL = Enroll(
    request=0,
    spec=NeighborSpec(num_neighbors=(2,)),
    register=Register(request=0, backend=0, feed=Feed(num_inputs=10, batch_size=5)),
)


def ready(nbytes: int, step: int = 0, slot: int = 0, **given: Any) -> BatchReady:
    batch = BatchId(CHANNEL, 0, step)
    return BatchReady(batch=batch, index=step, slot=slot, layouts=(), nbytes=nbytes, **given)
