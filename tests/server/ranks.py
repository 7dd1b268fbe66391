"""A remote rank as it comes over the wire: a bare DEALER that says words, in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self, TypeVar

import msgspec
import numpy as np
import zmq

from penstock.client.channel import Channel
from penstock.client.deadline import Deadline
from penstock.client.failures import error_of
from penstock.client.inputs import inputs_of
from penstock.client.registration import Registration
from penstock.client.remote.door import Door
from penstock.client.remote.hub import RemoteHub
from penstock.client.remote.store import Store
from penstock.core.plan import EpochPlan
from penstock.sampling.digest import batch_digest
from penstock.sampling.spec import Feed, Spec
from penstock.wire.bulk import Assembly, pack
from penstock.wire.frames import read
from penstock.wire.host import this_host
from penstock.wire.messages import (
    BatchReady,
    EpochDone,
    Message,
    Refused,
    Register,
    ReturnSlot,
    Share,
    StartEpoch,
)
from penstock.wire.pieces import follows
from penstock.wire.remote import (
    REMOTE_PROTOCOL,
    Answer,
    Call,
    Enroll,
    Enrolled,
    FromServerToRank,
    Goodbye,
    Greeting,
    Knock,
    Part,
    Piece,
    Pulse,
    Taken,
)
from tests.client.graphs import BATCH, PATIENCE_S, SPEC

Said = TypeVar("Said", bound=Message)
_DECODER = msgspec.msgpack.Decoder(FromServerToRank)


class Parcel:
    """A batch and its bytes."""

    def __init__(self, ready: BatchReady, memory: Any) -> None:
        self.ready = ready
        self.arrays = read(memory, ready.layouts)

    @property
    def digest(self) -> tuple[int, int, str]:
        return self.ready.batch.step, self.ready.index, batch_digest(self.arrays)


class BareRank:
    """Says and hears single words; nothing of it is automatic."""

    def __init__(
        self, address: str, context: zmq.Context[Any], *, stays_away: bool = False
    ) -> None:
        """`stays_away`: when it is hung up on, where others connect again and say the rest."""
        self.socket = context.socket(zmq.DEALER)
        # No limit to what it has not heard (docs/adr/0014): who is not to read is behind a `Link`.
        # Nor does it give up a server that is kept from answering.
        options = {zmq.RCVHWM: 0, zmq.SNDHWM: 0, zmq.LINGER: 0, zmq.HEARTBEAT_IVL: 500}
        options |= {zmq.HEARTBEAT_TIMEOUT: int(PATIENCE_S * 1000)}
        if stays_away:
            options |= {zmq.RECONNECT_IVL: -1}
        for option, value in options.items():
            self.socket.setsockopt(option, value)
        self.socket.connect(address)
        self.channel = 0

    # --- words ---

    def say(self, message: Message, *data: Any) -> None:
        self.socket.send_multipart([msgspec.msgpack.encode(message), *data])

    def say_if_connected(self, message: Message, *data: Any) -> bool:
        """Says it unless it was hung up on, and stays away: `say` would wait for ever then."""
        try:
            self.socket.send_multipart([msgspec.msgpack.encode(message), *data], zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def say_bytes(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def hear_any(self, patience: float = PATIENCE_S) -> tuple[Any, Any]:
        """The next word that is no sign of life, nor of parts that were taken, and its bytes."""
        heard = self._next_word(patience)
        assert heard is not None, "the server says nothing"
        return heard

    def hear(self, kind: type[Said]) -> Said:
        message, _ = self.hear_any()
        assert isinstance(message, kind), f"expected {kind.__name__}, got {message}"
        return message

    def hear_all(self) -> list[Message]:
        """What has come until now, signs of life among it."""
        heard = []
        while self.socket.poll(0):
            heard.append(_DECODER.decode(self.socket.recv_multipart()[0]))
        return heard

    def is_quiet(self, seconds: float) -> bool:
        """Whether nothing comes for a while but what `hear_any` leaves out."""
        return self._next_word(seconds) is None

    def _next_word(self, patience: float) -> tuple[Any, Any] | None:
        # Signs of life come as often as a lease needs them: the time is that of all of them.
        deadline = time.monotonic() + patience
        while self.socket.poll(max(0, int((deadline - time.monotonic()) * 1000))):
            header, *data = self.socket.recv_multipart()
            message = _DECODER.decode(header)
            if not isinstance(message, Pulse | Taken):
                return message, data[0] if data else None
        return None

    def refusal(self) -> Exception:
        """The error that the server says next."""
        return error_of(self.hear(Refused).report)

    # --- a rank's life ---

    def knock(self, **given: Any) -> None:
        self.say(knock(**given))

    def greet(self, **given: Any) -> Greeting:
        self.knock(**given)
        return self.hear(Greeting)

    def enroll(self, **wishes: Any) -> Enrolled:
        self.ask_to_enroll(**wishes)
        enrolled = self.hear(Enrolled)
        self.channel = enrolled.channel
        return enrolled

    def ask_to_enroll(
        self,
        spec: Spec = SPEC,
        arrays: Any = None,
        split: str | None = None,
        file: str | None = None,
        slots: int | None = 4,
        request: int = 1,
        piece: int = 1 << 20,
        workers: int | None = None,
        node_type: str | None = None,
        share: Share = Share(),  # noqa: B008 - frozen
        **feed: Any,
    ) -> None:
        terms = {"batch_size": BATCH, "shuffle": True, "seed": 7, **feed}
        packed = pack(arrays or {})
        register = Register(
            request=0,
            backend=0,
            feed=Feed(num_inputs=0, node_type=node_type, **terms),
            slots=slots,
            share=share,
        )
        self.say(
            Enroll(
                request=request,
                spec=spec,
                register=register,
                split=split,
                file=file,
                bulk=packed.bulk,
                workers=workers,
            )
        )
        for offset, data in packed.parts(piece):
            self.say(Part(request=request, offset=offset), bytes(data))

    def start(self, epoch: int = 0, **where: int) -> None:
        self.say(StartEpoch(channel=self.channel, epoch=epoch, **where))

    def take(self) -> Parcel | EpochDone:
        """The next batch, put together; or the end of the epoch."""
        message, _ = self.hear_any()
        if isinstance(message, EpochDone):
            return message
        assert isinstance(message, BatchReady), message
        assert message.one_off is None
        memory = np.empty(message.nbytes, np.uint8)
        have = 0
        while have < message.nbytes:
            piece, data = self.hear_any()
            assert isinstance(piece, Piece)
            assert piece.batch == message.batch
            assert follows(piece.offset, have)
            have = piece.offset + len(data)
            memory[piece.offset : have] = np.frombuffer(data, np.uint8)
        return Parcel(message, memory)

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
        message, _ = self.hear_any()
        if isinstance(message, Refused):
            raise error_of(message.report)
        assert isinstance(message, Answer)
        assembly = Assembly(message.bulk)
        while not assembly.complete:
            part, data = self.hear_any()
            assembly.add(part.offset, data)
        return message.value, assembly.arrays()

    def goodbye(self) -> None:
        self.say(Goodbye())

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def knock(**given: Any) -> Knock:
    """A first word."""
    words: dict[str, Any] = {
        "protocol": REMOTE_PROTOCOL,
        "pid": os.getpid(),
        "host": this_host(),
        "name": "bare",
        **given,
    }
    return Knock(**words)


@contextmanager
def visitors() -> Iterator[zmq.Context[Any]]:
    """A context for ranks, which leaves nothing."""
    context: zmq.Context[Any] = zmq.Context()
    try:
        yield context
    finally:
        context.destroy(linger=0)


@contextmanager
def channel_at(address: str, inputs: Any, spec: Spec, **wishes: Any) -> Iterator[Channel]:
    """A channel as loaders have it: it enrols again by itself."""
    with ExitStack() as stack:
        store = Store(Door(address, name="reader"))
        stack.callback(store.close)
        store.connect(Deadline(PATIENCE_S))
        hub = RemoteHub(store)
        registration = Registration.make(hub.graph, spec, inputs_of(hub.graph, inputs), wishes)
        yield stack.enter_context(Channel(hub, registration.named("reader")))


def plan_of(num_inputs: int) -> EpochPlan:
    return EpochPlan(num_inputs, BATCH, False)
