"""Messages over a TCP connection, plain or encrypted, with the bytes of arrays beside them.

    stream: TcpStream[FromServerToRank] = TcpStream(socket, FromServerToRank, reserve=memory_for)
    stream.send(BatchReady(…), payload=views, lane=0)
    for message, payload in stream.receive(): …

What is sent is read from where it lies, so a payload must not change before it is gone. What comes
in is received into the memory that `reserve` gives for it, once its message was decoded: nothing is
copied but the first few kilobytes. Payloads of different lanes take turns (`wire.framing`).

What comes in is not trusted: a length is checked before anything is kept for it, and after a frame
that makes no sense nothing more is read. Nothing here blocks, except `wait` and `flush` when asked
to. `send` may be called by any thread at any moment (`wire.sending`); everything else belongs to
one thread.

An interrupt (Ctrl-C) in the middle of sending leaves nobody knowing how much has gone. The stream
is then broken, as if the connection had been lost: batches are pure, so whoever reads them
registers again and goes on.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.errors import ProtocolError
from penstock.wire.framing import CHUNK, HEADER, PREAMBLE, decode, decoder_for, encode, head, poll
from penstock.wire.messages import MOST_MESSAGE, Message
from penstock.wire.sending import Sender
from penstock.wire.transport import tcp

Received = TypeVar("Received")
Bytes: TypeAlias = npt.NDArray[np.uint8]
Buffers: TypeAlias = list[Any]
# The memory for the payload of a message, of just its size; None if nobody wants it.
Reserve: TypeAlias = Callable[[Any, int], Bytes | None]
Then: TypeAlias = Callable[[], None]

# What is received in one go where no memory is reserved for it.
SCRATCH: Final = 64 << 10
# What one `receive` takes at most, in bytes and in messages: others have their turn then.
AT_ONCE: Final = 4 << 20
MOST_AT_ONCE: Final = 64
# Messages that may be open at once, of which the payload has not come yet.
MOST_OPEN: Final = 256
# Calls for throwing away what nobody reads, in one go.
_DISCARDED: Final = 16
# Buffers that one call may take; the system's limit is 1024.
_MOST_BUFFERS: Final = 256


class ByteSocket(Protocol):
    """What a stream does with its socket: a plain one, or `wire.transport.tls.TlsSocket`."""

    def fileno(self) -> int: ...
    def send(self, data: bytes, /) -> int: ...
    def sendmsg(self, buffers: Buffers, /) -> int: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def recvmsg_into(self, buffers: Buffers, /) -> tuple[int, *tuple[Any, ...]]: ...
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class _Parcel:
    """One message on its way out. `at` is how much of its payload is in frames already."""

    __slots__ = ("at", "body", "lane", "nbytes", "then", "views")

    def __init__(
        self, body: bytes, lane: int, views: Sequence[memoryview], then: Then | None
    ) -> None:
        self.body = body
        self.lane = lane
        self.views = deque(views)
        self.nbytes = sum(view.nbytes for view in views)
        self.then = then
        self.at = 0

    def done(self) -> None:
        """It is all in frames, or will never be."""
        if self.then is not None:
            self.then()

    def next_frame(self) -> Buffers:
        """The buffers of the next frame, in order."""
        nbytes = min(CHUNK, self.nbytes - self.at)
        if self.body:
            begin, self.body = head(self.body, 0, self.lane, self.nbytes), b""
        else:
            begin = HEADER.pack(0, 0, self.lane, nbytes)
        self.at += nbytes
        return [begin, *self._take(nbytes)]

    def _take(self, nbytes: int) -> Iterator[memoryview]:
        views = self.views
        while nbytes:
            view = views.popleft()
            if view.nbytes > nbytes:
                views.appendleft(view[nbytes:])
                view = view[:nbytes]
            nbytes -= view.nbytes
            yield view


# In the outbox: what was left there before, and has not been sent yet, is not to be.
_DROP: Final = _Parcel(b"", 0, (), None)


class _Open:
    """A message whose payload is coming in. Without memory, it is only counted."""

    __slots__ = ("have", "lane", "memory", "message", "nbytes", "view")

    def __init__(self, message: Any, lane: int, nbytes: int, memory: Bytes | None) -> None:
        self.message = message
        self.lane = lane
        self.nbytes = nbytes
        self.memory = memory
        self.view: memoryview | None = None if memory is None else memory.data
        self.have = 0


def encoded(message: Message) -> bytes:
    """A message in bytes. ValueError for one that the other side would not take."""
    body = encode(message)
    if len(body) > MOST_MESSAGE:
        raise ValueError(
            f"a {type(message).__name__} has {len(body)} bytes beside its arrays, and at most "
            f"{MOST_MESSAGE} may be sent: give arrays in the place of long lists"
        )
    return body


class TcpStream(Sender, Generic[Received]):
    """One side of a connection. Takes the socket over; `receives` is the union that may come in.

    Args:
        socket: connected, and set not to block.
        receives: the union of messages that may come in.
        limit: the most bytes of a message, without its payload.
        most_at_once: the most messages that one `receive` gives.
        reserve: gives the memory for a payload. Without it, a payload is a protocol error.
        scratch: memory that several streams of one thread may share.
        inline: how many bytes `send` sends itself; the rest is left to `flush`.
        at_once: about how many bytes one `receive` takes.
    """

    def __init__(
        self,
        socket: ByteSocket,
        receives: object,
        *,
        limit: int = MOST_MESSAGE,
        most_at_once: int = MOST_AT_ONCE,
        reserve: Reserve | None = None,
        scratch: memoryview | None = None,
        inline: int = CHUNK,
        at_once: int = AT_ONCE,
    ) -> None:
        super().__init__()
        self._socket = socket
        self._reads_ahead = hasattr(socket, "has_buffered")
        self._decoder = decoder_for(receives)
        self._limit = limit
        self.most_at_once = most_at_once
        self._at_once = at_once
        self.reserve = reserve
        self._scratch = memoryview(bytearray(SCRATCH)) if scratch is None else scratch
        # --- out ---
        self._inline = inline
        self._unsure = False  # an exception has struck in the middle of sending
        self._lanes: dict[int, deque[_Parcel]] = {}
        self._ring: deque[int] = deque()  # of the lanes, in turn
        self._frame: Buffers = [PREAMBLE]
        self.blocked = False  # whether the socket had no room for more
        self.reason = ""  # why the connection has ended, where that is known
        self.bytes_out = self.bytes_in = self.payload_in = 0
        # --- in ---
        self._expected = PREAMBLE
        self._partial = bytearray()  # of a frame that is not complete, or not looked at yet
        self._needed = 0  # bytes of it without which there is no use in looking
        self._open: dict[int, _Open] = {}
        self._current: _Open | None = None  # whose chunk is coming in
        self._chunk_left = 0
        self._inbox: list[tuple[Received, Bytes | None]] = []
        self.has_more = False  # whether `receive` left something that no selector tells of
        # Whether all has been received: the other side has gone, or this one is closed.
        self.ended = False

    # --- out ---------------------------------------------------------------------------------

    def send(
        self,
        message: Message,
        *,
        payload: Sequence[memoryview] = (),
        lane: int = 0,
        then: Then | None = None,
    ) -> None:
        """Sends a message, or keeps it until there is room.

        `then` is called, in any thread, when nothing of it is kept any more but the chunk that is
        being sent; also where it is never sent. Once the connection has ended, here or there, this
        does nothing. ValueError for a message that the other side would not take.
        """
        self.send_encoded(encoded(message), payload=payload, lane=lane, then=then)

    def send_encoded(
        self,
        body: bytes,
        *,
        payload: Sequence[memoryview] = (),
        lane: int = 0,
        then: Then | None = None,
    ) -> None:
        """The same of a message that was encoded before."""
        if not payload and self.try_send(body, lane):
            if then is not None:
                then()
            return
        parcel = _Parcel(body, lane, payload, then)
        if self._broken or self._closed:
            parcel.done()
            return
        self._outbox.append(parcel)
        self._push(self._inline)

    def try_send(self, body: bytes, lane: int = 0) -> bool:
        """Sends an encoded message at once, if nothing else waits or is being sent.

        The shortest way, for small messages. Only what the socket did not take of it is kept.
        """
        if self._frame or self._ring or self._outbox or self._turn.locked():
            return False
        frame = head(body, 0, lane, 0)
        with self._turn:
            if self.pending or self._unsure or self._broken or self._closed:
                return False
            self._unsure = True
            self._frame = [frame]
            try:
                sent = self._socket.send(frame)
            except OSError as error:
                sent = self._sent_nothing(error)
            self.bytes_out += sent
            self._frame = [memoryview(frame)[sent:]] if sent < len(frame) else []
            self._unsure = False
        if self._outbox or self._closed:  # meanwhile, by others, who have left it to us
            self._push(self._inline)
        return True

    def _sent_nothing(self, error: OSError) -> int:
        """Why nothing was sent: there was no room, or there is nobody any more."""
        if isinstance(error, (BlockingIOError, InterruptedError)):
            self.blocked = True
        else:
            self._break(f"the connection was lost: {error.strerror or error}")
        return 0

    @property
    def pending(self) -> bool:
        """Whether something waits for room in the socket."""
        return bool(self._frame or self._ring or self._outbox)

    @property
    def broken(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._broken or self._closed

    @property
    def queued(self) -> int:
        """How many messages have not gone completely."""
        waiting = sum(map(len, list(self._lanes.values())))
        return waiting + len(self._outbox)

    def flush_some(self, nbytes: int) -> None:
        """Sends about so many bytes of what is kept. `blocked` tells whether there was no room."""
        self._push(nbytes)

    def give_up_after(self, seconds: float) -> None:
        """Has the kernel end it when nothing is acknowledged for so long; 0: never."""
        with suppress(OSError):  # it has ended
            tcp.give_up_after(self._socket, seconds)

    def _drain(self, nbytes: float) -> bool:
        if self._unsure:
            self._break("it was interrupted while something was sent")
            return True
        self._unsure, self.blocked = True, False
        self._sort_outbox()
        while nbytes > 0 and (self._frame or self._next_frame()):
            sent = self._send_some()
            if not sent:
                break
            nbytes -= sent
        self._unsure = False
        return self._broken or not self.pending

    def _next_frame(self) -> bool:
        """Puts the next frame where it is sent from; False if there is none."""
        self._sort_outbox()
        if not self._ring:
            return False
        lane = self._ring.popleft()
        parcels = self._lanes[lane]
        self._frame = parcels[0].next_frame()
        if parcels[0].at == parcels[0].nbytes:
            parcels.popleft().done()
        if parcels:
            self._ring.append(lane)
        else:
            del self._lanes[lane]
        return True

    def _sort_outbox(self) -> None:
        """Puts what was left in the outbox into its lanes."""
        while self._outbox:
            parcel = self._outbox.popleft()
            if parcel is _DROP:
                self._drop_lanes()
                continue
            if parcel.lane not in self._lanes:
                self._lanes[parcel.lane] = deque()
                self._ring.append(parcel.lane)
            self._lanes[parcel.lane].append(parcel)

    def _send_some(self) -> int:
        """Sends as much of the frame as goes in; how many bytes, 0 if none."""
        frame = self._frame
        try:
            sent = self._socket.sendmsg(frame[:_MOST_BUFFERS])
        except OSError as error:
            return self._sent_nothing(error)
        self.bytes_out += sent
        self._frame = _without(frame, sent)
        return sent

    def _break(self, reason: str) -> None:
        """Nothing can be sent any more. What the other side has sent can still be received."""
        self._broken = True
        self.reason = self.reason or reason

    def drop_queued(self) -> None:
        """Lets go of messages that were not sent; a frame that was begun is still completed.

        Never waits: who is sending, which may be ourselves further up the stack, comes to it.
        """
        self._outbox.append(_DROP)
        self._push(0)

    def _drop_lanes(self) -> None:
        left = [parcel for lane in self._lanes.values() for parcel in lane]
        self._lanes.clear()
        self._ring.clear()
        for parcel in left:
            parcel.done()

    def _drop_unsent(self) -> None:
        self._sort_outbox()
        self._drop_lanes()
        self._frame = []
        if self._closed:
            self._socket.close()

    # --- in ----------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether a payload is on its way here."""
        return bool(self._open)

    @property
    def held(self) -> int:
        """Bytes of an incomplete message that are kept."""
        return len(self._partial)

    def expect(self, receives: object, limit: int = MOST_MESSAGE) -> None:
        """From now on these messages may come, of so many bytes, and as many at once as usual."""
        self._decoder, self._limit = decoder_for(receives), limit
        self.most_at_once = MOST_AT_ONCE

    def receive(self) -> list[tuple[Received, Bytes | None]]:
        """The messages that are complete, without waiting, each with its payload.

        Sets `ended` at the other side's end; what it did not complete is dropped. Raises
        `ProtocolError` if what came makes no sense; then all is over.
        """
        try:
            if (one := self._receive_one()) is not None:
                return [one]
            self._take_in()
        except BaseException:
            self._end()
            raise
        if self.ended:
            self._drop_incoming()
        received, self._inbox = self._inbox, []
        return received

    def _receive_one(self) -> tuple[Received, None] | None:
        """The shortest way, for what comes most often: one small message, all of it at once.

        None if it is something else: what has come by then is dealt with by `_take_in`.
        """
        if self._current is not None or self._partial or self._open or self._expected:
            return None
        scratch = self._scratch
        try:
            nbytes = self._socket.recv_into(scratch)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:  # the kernel says why only once
            self._lose(error)
            return None
        if not nbytes:  # asked for again, and looked into there
            return None
        self.bytes_in += nbytes
        if nbytes > HEADER.size:
            length, descriptors, _, payload = HEADER.unpack_from(scratch)
            is_whole = nbytes == HEADER.size + length and not (descriptors or payload)
            if is_whole and length <= self._limit:
                self.has_more = self._reads_ahead and self._has_buffered()
                return decode(self._decoder, scratch[HEADER.size : nbytes]), None
        self._parse(scratch[:nbytes])
        return None

    def _has_buffered(self) -> bool:
        """Whether the socket keeps something that no selector tells of."""
        return self._reads_ahead and bool(self._socket.has_buffered)  # type: ignore[attr-defined]

    def _take_in(self) -> None:
        if self.has_more:
            self.has_more = False
            self._parse(memoryview(b""))
        taken = 0
        while not self.ended and not self.has_more:
            if taken >= self._at_once or len(self._inbox) >= self.most_at_once:
                # An encrypted socket may have something left that no selector can see.
                self.has_more = True
                return
            nbytes = self._receive_some()
            is_short = nbytes < SCRATCH and self._current is None
            if not nbytes or (is_short and not self._has_buffered()):
                return  # the socket had no more, or a selector will tell
            taken += nbytes

    def _receive_some(self) -> int:
        """Receives what one call gives, and makes messages of it; how many bytes, 0 if none."""
        current, scratch = self._current, self._scratch
        try:
            if current is None or current.view is None:
                nbytes = self._socket.recv_into(scratch)
                direct = 0
            else:
                have = current.have
                room = current.view[have : have + self._chunk_left]
                nbytes = self._socket.recvmsg_into([room, scratch])[0]
                direct = min(nbytes, room.nbytes)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:  # a reset, say: the other side went without reading all
            self._lose(error)
            return 0
        if not nbytes:
            self.ended = True
            self.reason = self.reason or "the other side closed the connection"
            return 0
        self.bytes_in += nbytes
        if direct:
            self._note_chunk(direct)
        if nbytes > direct:
            self._parse(scratch[: nbytes - direct])
        return nbytes

    def _lose(self, error: OSError) -> None:
        self._break(f"the connection was lost: {error.strerror or error}")
        self.ended = True

    def _parse(self, data: memoryview) -> None:
        """Makes messages of what has come, and keeps what is not complete."""
        if self._partial:
            self._partial += data
            if len(self._partial) < self._needed:
                return
            data = memoryview(self._partial)
        at = self._check_preamble(data) if self._expected else 0
        while at < data.nbytes and not self.has_more:
            size = self._copy_chunk(data[at:]) if self._chunk_left else self._parse_frame(data[at:])
            if not size:
                break
            at += size
        if at < data.nbytes or self._partial:
            self._partial = bytearray(data[at:])

    def _check_preamble(self, data: memoryview) -> int:
        expected = self._expected
        came = bytes(data[: len(expected)])
        if not expected.startswith(came):
            raise ProtocolError("this is no connection of Penstock's")
        self._expected = expected[len(came) :]
        return len(came)

    def _parse_frame(self, data: memoryview) -> int:
        """The size of the frame that data begins with, without its chunk; 0 if it is not there."""
        self._needed = HEADER.size
        if data.nbytes < HEADER.size:
            return 0
        header: tuple[int, int, int, int] = HEADER.unpack_from(data)
        length, descriptors, lane, payload = header
        if self._must_wait(length, payload):
            self.has_more = True
            return 0
        if length > self._limit or descriptors:
            raise ProtocolError(
                f"a message of {length} bytes with {descriptors} descriptors is announced: at most "
                f"{self._limit} and none are taken"
            )
        if not length:
            self._go_on(lane, payload)
            return HEADER.size
        self._needed = end = HEADER.size + length
        if data.nbytes < end:
            return 0
        message = decode(self._decoder, data[HEADER.size : end])
        if lane in self._open:
            raise ProtocolError("a message came before the payload of the last one in its lane")
        if payload:
            self._begin(message, lane, payload)
        else:
            self._inbox.append((message, None))
        return end

    def _must_wait(self, length: int, payload: int) -> bool:
        """Whether messages that have come are to be dealt with before the next one.

        A payload is reserved memory for by whoever knows what was said before.
        """
        return len(self._inbox) >= (1 if length and payload else self.most_at_once)

    def _begin(self, message: Any, lane: int, nbytes: int) -> None:
        if self.reserve is None:
            raise ProtocolError(
                f"{type(message).__name__} came with a payload, which it cannot have"
            )
        if len(self._open) >= MOST_OPEN:
            raise ProtocolError(f"{MOST_OPEN} messages are open, and another one comes")
        memory = self.reserve(message, nbytes)
        if memory is not None and memory.nbytes != nbytes:
            raise AssertionError(f"{memory.nbytes} bytes were reserved for {nbytes}")
        # Of a payload that nobody wants the message is not kept either: it may be large.
        kept = None if memory is None else message
        self._current = self._open[lane] = _Open(kept, lane, nbytes, memory)
        self._chunk_left = min(nbytes, CHUNK)

    def _go_on(self, lane: int, nbytes: int) -> None:
        current = self._open.get(lane)
        if current is None or not 0 < nbytes <= min(CHUNK, current.nbytes - current.have):
            raise ProtocolError(f"a chunk of {nbytes} bytes came, which belongs to no message")
        self._current, self._chunk_left = current, nbytes

    def _copy_chunk(self, data: memoryview) -> int:
        current, nbytes = self._current, min(self._chunk_left, data.nbytes)
        assert current is not None
        if current.view is not None:
            current.view[current.have : current.have + nbytes] = data[:nbytes]
        self._note_chunk(nbytes)
        return nbytes

    def _note_chunk(self, nbytes: int) -> None:
        current = self._current
        assert current is not None
        current.have += nbytes
        self.payload_in += nbytes
        self._chunk_left -= nbytes
        if self._chunk_left:
            return
        self._current = None
        if current.have == current.nbytes:
            del self._open[current.lane]
            if current.memory is not None:
                self._inbox.append((current.message, current.memory))

    # --- waiting, and the end ----------------------------------------------------------------

    def fileno(self) -> int:
        """The socket's descriptor, for a selector; -1 once closed."""
        return self._socket.fileno()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until there is something to receive, or the end; sends what is kept meanwhile.

        False if `timeout` seconds went by without.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self._push()
        while not (self.ended or self._closed or self.has_more):
            wanted = select.POLLIN | (select.POLLOUT if self.pending else 0)
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = poll(self, wanted, left)
            if ready & ~select.POLLOUT:
                return True
            if not ready:
                return False
            self._push()
        return True

    def discard(self, scratch: memoryview) -> bool:
        """Throws away some of what has come, unread; False once the other side has ended."""
        try:
            for _ in range(_DISCARDED):
                if not self._socket.recvmsg_into([scratch])[0]:
                    return False
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        return True

    def hang_up(self) -> None:
        """Ends the connection for both sides; the descriptor stays open. Any thread."""
        if self.fileno() >= 0:
            with suppress(OSError):  # it has ended already
                self._socket.shutdown(socket.SHUT_RDWR)

    def stop_receiving(self) -> None:
        """Whoever waits for something to come wakes, and finds the end. Any thread."""
        if self.fileno() >= 0:
            with suppress(OSError):  # it has ended already
                self._socket.shutdown(socket.SHUT_RD)

    def finish(self) -> None:
        """Says that nothing more will be sent; the other side sees the end of the stream."""
        if self.fileno() >= 0:
            with suppress(OSError):  # it has ended already
                self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Closes the connection; what was not sent is not sent."""
        self._closed = True
        self._end()
        self._push()

    def _end(self) -> None:
        self.ended = True
        self._drop_incoming()
        self._inbox.clear()

    def _drop_incoming(self) -> None:
        self._partial = bytearray()  # a new one: whatever failed may still look at the old one
        self._open.clear()
        self._current, self._chunk_left = None, 0
        self.has_more = False


def _without(buffers: Buffers, sent: int) -> Buffers:
    """What is left of buffers of which so many bytes have gone."""
    for place, buffer in enumerate(buffers):
        size = len(buffer) if isinstance(buffer, bytes) else buffer.nbytes
        if sent < size:
            return [memoryview(buffer)[sent:], *buffers[place + 1 :]]
        sent -= size
    return []
