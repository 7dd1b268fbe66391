"""A remote rank as it comes over the wire: a bare stream that says messages, in this process."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self, TypeVar

from penstock.client.channel.channel import Channel
from penstock.client.channel.inputs import inputs_of
from penstock.client.channel.registration import Registration
from penstock.client.remote.hub import RemoteHub
from penstock.core.plan import EpochPlan
from penstock.options import BatchOptions
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.failures import error_of
from penstock.rpc.server import RemoteServer
from penstock.sampling.digest import batch_digest
from penstock.sampling.spec import Feed, Spec
from penstock.wire.frames import Bytes, private_memory, read
from penstock.wire.framing import HEADER, encode
from penstock.wire.host import this_host
from penstock.wire.messages import (
    PROTOCOL,
    Answer,
    BatchReady,
    Call,
    EpochDone,
    FromServerToRank,
    Goodbye,
    Heartbeat,
    Hello,
    Message,
    Refused,
    Registered,
    ReturnSlot,
    StartEpoch,
    Welcome,
)
from penstock.wire.payload import pack
from penstock.wire.tcp_stream import TcpStream
from penstock.wire.transport.tls import TlsSocket
from tests.client.graphs import BATCH, PATIENCE_S, SPEC
from tests.server.transport.strangers import frame, place_of
from tests.wire.tcp_streams import shaken
from tests.wishes import register

Said = TypeVar("Said", bound=Message)


class Parcel:
    """A batch and its bytes."""

    def __init__(self, ready: BatchReady, memory: Any) -> None:
        self.ready = ready
        self.arrays = read(memory, ready.layouts)

    @property
    def digest(self) -> tuple[int, int, str]:
        return self.ready.batch.step, self.ready.index, batch_digest(self.arrays)


class BareRank:
    """Says and hears single messages; nothing of it is automatic, not even signs of life."""

    def __init__(
        self, address: str, *, kept: int | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """`kept`: what its kernel receives ahead of it; else as much as the system likes."""
        self.socket = socket.socket()
        if kept is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, kept)
        try:
            self.socket.connect(place_of(address))
            used = self._encrypted(tls) if tls is not None else self.socket
        except BaseException:
            self.socket.close()
            raise
        self.socket.setblocking(False)
        self._used = used
        self.stream: TcpStream[FromServerToRank] = TcpStream(
            used, FromServerToRank, limit=64 << 20, reserve=lambda _, n: private_memory(n)
        )
        self._heard: list[tuple[FromServerToRank, Bytes | None]] = []
        self.channel = 0

    def _encrypted(self, tls: ssl.SSLContext) -> TlsSocket:
        self.socket.settimeout(PATIENCE_S)
        return shaken(TlsSocket(tls, self.socket, server_name="localhost"))

    # --- messages ---

    def say(self, message: Message, payload: Sequence[memoryview] = (), lane: int = 0) -> None:
        """Returns when the kernel has all of it; what comes meanwhile is kept."""
        self.stream.send(message, payload=payload, lane=lane)
        deadline = time.monotonic() + PATIENCE_S
        while self.stream.pending and not self.stream.broken:
            assert time.monotonic() < deadline, "the server does not listen"
            if not self.stream.flush(0.01) and self.stream.wait(0):
                self._take_in()

    def say_if_connected(
        self, message: Message, payload: Sequence[memoryview] = (), lane: int = 0
    ) -> bool:
        """Says it unless it was hung up on, and whether it could."""
        if self.is_hung_up_on:
            return False
        self.stream.send(message, payload=payload, lane=lane)
        self.stream.flush(0.01)
        return not self.stream.broken

    def say_bytes(self, body: bytes) -> None:
        """A message that may be none."""
        self.stream.send_encoded(body)
        assert self.stream.flush(PATIENCE_S)

    def say_raw(self, data: bytes) -> None:
        """What may not even be a frame."""
        self.socket.setblocking(True)
        while data:
            data = data[self._used.send(data) :]
        self.socket.setblocking(False)

    def sends(self, data: bytes, patience: float = 1.0) -> bool:
        """Whether all of it could be sent before it was held back for so long, or hung up on."""
        self.socket.settimeout(patience)
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        finally:
            self.socket.setblocking(False)
        return True

    def announce(self, message: Message, nbytes: int, lane: int = 0) -> None:
        """A message with a payload of so many bytes, none of which is sent yet."""
        self.say_raw(frame(encode(message), lane, nbytes))

    def go_on(self, chunk: bytes, lane: int = 0) -> None:
        """A further chunk of a payload, after the first one."""
        self.say_raw(HEADER.pack(0, 0, lane, len(chunk)) + chunk)

    @property
    def is_hung_up_on(self) -> bool:
        """Whether the server has ended the connection. Reads what has come."""
        if self.stream.wait(0):
            self._take_in()
        return self.stream.ended or self.stream.broken

    def _take_in(self) -> None:
        while True:
            self._heard += self.stream.receive()
            if not self.stream.has_more:
                return

    def hear_any(self, patience: float = PATIENCE_S) -> tuple[Any, Any]:
        """The next message that is no sign of life, and its payload."""
        heard = self._next_message(patience)
        assert heard is not None, "the server says nothing"
        return heard

    def hear(self, kind: type[Said]) -> Said:
        message, _ = self.hear_any()
        assert isinstance(message, kind), f"expected {kind.__name__}, got {message}"
        return message

    def hear_all(self) -> list[Message]:
        """What has come until now, signs of life among it."""
        if self.stream.wait(0):
            self._take_in()
        heard, self._heard = self._heard, []
        return [message for message, _ in heard]

    def is_quiet(self, seconds: float) -> bool:
        """Whether nothing comes for a while but signs of life."""
        return self._next_message(seconds) is None

    def waits_for_end(self) -> list[Any]:
        """All that is said until the server hangs up."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.stream.ended:
            assert self.stream.wait(max(0.0, deadline - time.monotonic())), "it does not hang up"
            self._take_in()
        heard, self._heard = self._heard, []
        return [message for message, _ in heard]

    def _next_message(self, patience: float) -> tuple[Any, Any] | None:
        # Signs of life come as often as they are asked for: the time is that of all of them.
        deadline = time.monotonic() + patience
        while True:
            while self._heard:
                message, payload = self._heard.pop(0)
                if not isinstance(message, Heartbeat):
                    return message, payload
            if self.stream.ended:
                raise ConnectionResetError(self.stream.reason)
            if not self.stream.wait(max(0.0, deadline - time.monotonic())):
                return None
            self._take_in()

    def refusal(self) -> Exception:
        """The error that the server says next."""
        return error_of(self.hear(Refused).report)

    # --- a rank's life ---

    def hello(self, **given: Any) -> None:
        self.say(hello(**given))

    def greet(self, **given: Any) -> Welcome:
        self.hello(**given)
        return self.hear(Welcome)

    def register(self, **wishes: Any) -> Registered:
        self.ask_to_register(**wishes)
        registered = self.hear(Registered)
        self.channel = registered.channel
        return registered

    def ask_to_register(
        self,
        spec: Spec = SPEC,
        arrays: Any = None,
        split: str | None = None,
        file: str | None = None,
        slots: int | None = 4,
        request: int = 1,
        workers: int | None = None,
        node_type: str | None = None,
        edge_type: Any = None,
        **more: Any,
    ) -> None:
        own = {name: more.pop(name) for name in BatchOptions.__struct_fields__ if name in more}
        cut = {"batch_size": BATCH, "shuffle": True, "seed": 7, **own}
        packed = pack(arrays or {})
        asked = register(
            request=request,
            spec=spec,
            feed=Feed(num_inputs=0, node_type=node_type, edge_type=edge_type, **cut),
            slots=slots,
            **more,
            split=split,
            file=file,
            workers=workers,
            arrays=packed.arrays,
        )
        self.say(asked, packed.views)

    def start(self, epoch: int = 0, **where: int) -> None:
        self.say(StartEpoch(channel=self.channel, epoch=epoch, **where))

    def take(self) -> Parcel | EpochDone:
        """The next batch; or the end of the epoch."""
        message, payload = self.hear_any()
        if isinstance(message, EpochDone):
            return message
        assert isinstance(message, BatchReady), message
        assert message.one_off is None
        return Parcel(message, private_memory(0) if payload is None else payload)

    def give_back(self, parcel: Parcel) -> None:
        self.say(ReturnSlot(channel=self.channel, slot=parcel.ready.slot))

    def read(self) -> list[tuple[int, int, str]]:
        """The rest of an epoch, in order of steps."""
        digests = []
        while isinstance(parcel := self.take(), Parcel):
            digests.append(parcel.digest)
            self.give_back(parcel)
        return sorted(digests)

    def call(self, verb: str, request: int = 100, **arguments: Any) -> tuple[Any, Any]:
        """What a verb comes to."""
        self.say(Call(request=request, verb=verb, arguments=arguments))
        message, payload = self.hear_any()
        if isinstance(message, Refused):
            raise error_of(message.report)
        assert isinstance(message, Answer)
        memory = private_memory(0) if payload is None else payload
        return message.value, read(memory, message.arrays)

    def live(self) -> None:
        """A sign of life."""
        self.say(Heartbeat())

    def goodbye(self) -> None:
        self.say(Goodbye())

    def reset(self) -> None:
        """Ends the connection as a crash of the host's network stack would: without a farewell."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def hello(**given: Any) -> Hello:
    """A first message."""
    words: dict[str, Any] = {
        "protocol": PROTOCOL,
        "pid": os.getpid(),
        "host": this_host(),
        "name": "bare",
        **given,
    }
    return Hello(**words)


@contextmanager
def channel_at(
    address: str, inputs: Any, spec: Spec, *, name: str = "reader", **wishes: Any
) -> Iterator[Channel]:
    """A channel as loaders have it: it registers again by itself."""
    with ExitStack() as stack:
        store = RemoteServer(Endpoint(address, name=name))
        stack.callback(store.close)
        store.connect(Deadline(PATIENCE_S))
        hub = RemoteHub(store)
        registration = Registration.make(hub.graph, spec, inputs_of(hub.graph, inputs), wishes)
        yield stack.enter_context(Channel(hub, registration.named(name)))


def plan_of(num_inputs: int) -> EpochPlan:
    return EpochPlan(num_inputs, BATCH, False)
