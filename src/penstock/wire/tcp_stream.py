"""Messages over a TCP connection, plain or encrypted, with the bytes of arrays as payloads.

    stream: TcpStream[FromServerToRank] = TcpStream(socket, FromServerToRank, reserve=memory_for)
    stream.send(BatchReady(…), payload=views, lane=0)
    for message, payload in stream.receive(): …

A payload is sent from its own memory, so it must not change before it is sent. Once a message is
decoded, its payload is received into the memory that `reserve` returns: only the first few
kilobytes are copied. Or it goes through a `Sink`, which takes it piece by piece as it comes.
Payloads of different lanes take turns (`wire.framing`).

Received data is not trusted: a length is checked before memory is used for it, and after an invalid
frame nothing more is read. Nothing blocks, except `wait` and `flush` with a timeout. `send` may be
called by any thread at any moment (`wire.sending`); all other methods belong to one thread, unless
they say otherwise.

After an interrupt (Ctrl-C) in the middle of sending, it is unknown how much was sent. The stream is
then broken, as if the connection had been lost. Batches are deterministic, so the reader registers
again and resumes.
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
# Returns memory of exactly the size of a message's payload, or what takes it piece by piece; None
# if it is not wanted.
Reserve: TypeAlias = "Callable[[Any, int], Bytes | Sink | None]"
Then: TypeAlias = Callable[[], None]

# Bytes received in one call if no memory is reserved for them.
SCRATCH: Final = 64 << 10
# The most bytes and messages of one `receive`, so that other connections get their turn.
AT_ONCE: Final = 4 << 20
MOST_AT_ONCE: Final = 64
# The most messages whose payload has not arrived completely.
MOST_OPEN: Final = 256
# Receiving calls in one `discard`.
_DISCARDED: Final = 16
# Buffers in one sending call; the system's limit is 1024.
_MOST_BUFFERS: Final = 256


class ByteSocket(Protocol):
    """The socket of a stream: a plain one, or `wire.transport.tls.TlsSocket`."""

    def fileno(self) -> int: ...
    def send(self, data: bytes, /) -> int: ...
    def sendmsg(self, buffers: Buffers, /) -> int: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def recvmsg_into(self, buffers: Buffers, /) -> tuple[int, *tuple[Any, ...]]: ...
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class Sink(Protocol):
    """Takes a payload piece by piece, in order, instead of memory for all of it."""

    def room(self) -> memoryview:
        """Return where the next bytes go; not empty as long as some are missing."""

    def came(self, nbytes: int) -> None:
        """Note that so many bytes were written to the start of `room`."""


class _Parcel:
    """One message to send. `at` is how many bytes of its payload are already in frames."""

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
        """Call `then`: the message is completely in frames, or will never be sent."""
        if self.then is not None:
            self.then()

    def next_frame(self) -> Buffers:
        """Return the buffers of the next frame, in order."""
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


# A mark in the outbox: messages before it that were not sent yet are to be dropped.
_DROP: Final = _Parcel(b"", 0, (), None)


class _Open:
    """A message whose payload is being received. Without memory, bytes are only counted."""

    __slots__ = ("have", "lane", "memory", "message", "nbytes", "sink", "view")

    def __init__(self, message: Any, lane: int, nbytes: int, memory: Bytes | Sink | None) -> None:
        self.message = message
        self.lane = lane
        self.nbytes = nbytes
        self.memory = memory if isinstance(memory, np.ndarray) else None
        self.sink = None if isinstance(memory, np.ndarray) else memory
        self.view = None if self.memory is None else self.memory.data
        self.have = 0

    def room(self, most: int) -> memoryview | None:
        """Return where the next bytes go, at most so many; None if they are not wanted."""
        if self.view is not None:
            return self.view[self.have : self.have + most]
        return None if self.sink is None else self.sink.room()[:most]


def encoded(message: Message) -> bytes:
    """Return a message as bytes; raise ValueError if it is too large for the other end."""
    body = encode(message)
    if len(body) > MOST_MESSAGE:
        raise ValueError(
            f"a {type(message).__name__} has {len(body)} bytes beside its arrays, and at most "
            f"{MOST_MESSAGE} may be sent: give arrays in the place of long lists"
        )
    return body


class TcpStream(Sender, Generic[Received]):
    """One end of a connection. It owns the socket.

    Args:
        socket: A connected, non-blocking socket.
        receives: The union of messages that may be received.
        limit: The most bytes of a message, without its payload.
        most_at_once: The most messages that one `receive` returns.
        reserve: Returns the memory for a payload. Without it, a payload is a protocol error.
        scratch: Memory that several streams of one thread may share.
        inline: How many bytes `send` sends itself; the rest is left to `flush`.
        at_once: About how many bytes one `receive` reads.
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
        # State of sending.
        self._inline = inline
        self._unsure = False  # still set after a send if an exception interrupted it
        self._lanes: dict[int, deque[_Parcel]] = {}
        self._ring: deque[int] = deque()  # the lanes, which take turns
        self._frame: Buffers = [PREAMBLE]
        self.blocked = False  # whether the socket had no room for more
        self.reason = ""  # why the connection has ended, if that is known
        self.bytes_out = self.bytes_in = self.payload_in = 0
        # State of receiving.
        self._expected = PREAMBLE
        self._partial = bytearray()  # bytes of a frame that is incomplete, or not parsed yet
        self._needed = 0  # how many bytes it must have before parsing makes sense
        self._open: dict[int, _Open] = {}
        self._current: _Open | None = None  # the message whose chunk is being received
        self._chunk_left = 0
        self._inbox: list[tuple[Received, Bytes | None]] = []
        self.has_more = False  # whether `receive` left data that no selector reports
        # Whether all has been received: the other end is gone, or this one is closed.
        self.ended = False

    # --- sending -----------------------------------------------------------------------------

    def send(
        self,
        message: Message,
        *,
        payload: Sequence[memoryview] = (),
        lane: int = 0,
        then: Then | None = None,
    ) -> None:
        """Send a message, or queue it until there is room.

        Once the connection has ended, at either end, this sends nothing.

        Args:
            message: The message.
            payload: Its payload, which must not change until it is sent.
            lane: The lane, within which order is kept.
            then: Called, in any thread, when only the chunk that is being sent is still referenced,
                or if the message is never sent.

        Raises:
            ValueError: The message is too large for the other end.
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
        """Send a message that is already encoded, as `send` does."""
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
        """Send an encoded message at once; return False if other data waits or is being sent.

        This is the fast path for small messages. Only what the socket did not take is queued.
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
        if self._outbox or self._closed:  # other threads have left this to us meanwhile
            self._push(self._inline)
        return True

    def _sent_nothing(self, error: OSError) -> int:
        """Note whether the socket was full or the connection is lost; return 0."""
        if isinstance(error, (BlockingIOError, InterruptedError)):
            self.blocked = True
        else:
            self._break(f"the connection was lost: {error.strerror or error}")
        return 0

    @property
    def pending(self) -> bool:
        """Whether data waits for room in the socket."""
        return bool(self._frame or self._ring or self._outbox)

    @property
    def broken(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._broken or self._closed

    @property
    def queued(self) -> int:
        """The number of messages that are not completely in frames yet."""
        waiting = sum(map(len, list(self._lanes.values())))
        return waiting + len(self._outbox)

    def flush_some(self, nbytes: int) -> None:
        """Send about `nbytes` of what is queued. `blocked` then says if the socket is full."""
        self._push(nbytes)

    def give_up_after(self, seconds: float) -> None:
        """Let the kernel end the connection if nothing is acknowledged for so long; 0: never."""
        with suppress(OSError):  # it has ended already
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
        """Set the next frame to send; return False if there is none."""
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
        """Move messages from the outbox to their lanes."""
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
        """Send as much of the frame as the socket takes; return the number of bytes."""
        frame = self._frame
        try:
            sent = self._socket.sendmsg(frame[:_MOST_BUFFERS])
        except OSError as error:
            return self._sent_nothing(error)
        self.bytes_out += sent
        self._frame = _without(frame, sent)
        return sent

    def _break(self, reason: str) -> None:
        """Stop sending for good. What the other end has sent can still be received."""
        self._broken = True
        self.reason = self.reason or reason

    def drop_queued(self) -> None:
        """Drop messages that were not sent; a frame that was begun is still completed.

        It never blocks: if a call is sending, perhaps further up this stack, that call drops them.
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

    # --- receiving ---------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether a payload is being received."""
        return bool(self._open)

    @property
    def held(self) -> int:
        """The bytes kept of an incomplete message."""
        return len(self._partial)

    def expect(self, receives: object, limit: int = MOST_MESSAGE) -> None:
        """Set which messages may be received from now on, and their largest size.

        It also sets the number of messages at once back to the default.
        """
        self._decoder, self._limit = decoder_for(receives), limit
        self.most_at_once = MOST_AT_ONCE

    def receive(self) -> list[tuple[Received, Bytes | None]]:
        """Return the messages that are complete, each with its payload, without blocking.

        Of a payload that a sink has taken nothing is returned.

        Sets `ended` when the other end has closed; incomplete messages are dropped.

        Raises:
            ProtocolError: The data is not valid. The stream has ended.
        """
        ended: bool = self.ended
        if ended:
            return []
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
        """Receive on the fast path, for the common case: one small message, complete at once.

        Returns None in any other case; `_take_in` then continues with what was received.
        """
        if self._current is not None or self._partial or self._open or self._expected:
            return None
        scratch = self._scratch
        try:
            nbytes = self._socket.recv_into(scratch)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:  # the kernel reports the reason only once
            self._lose(error)
            return None
        if not nbytes:  # the end: `_take_in` receives again, and handles it
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
        """Return whether the socket has buffered data that no selector reports."""
        return self._reads_ahead and bool(self._socket.has_buffered)  # type: ignore[attr-defined]

    def _take_in(self) -> None:
        if self.has_more:
            self.has_more = False
            self._parse(memoryview(b""))
        taken = 0
        while not self.ended and not self.has_more:
            if taken >= self._at_once or len(self._inbox) >= self.most_at_once:
                # An encrypted socket may have data left that no selector reports.
                self.has_more = True
                return
            nbytes, asked = self._receive_some()
            is_short = nbytes < asked and self._current is None
            if not nbytes or (is_short and not self._has_buffered()):
                return  # the socket had no more, or a selector will report it
            taken += nbytes

    def _receive_some(self) -> tuple[int, int]:
        """Receive once, and parse the data; return how many bytes came, and how many might have."""
        current, scratch = self._current, self._scratch
        asked = scratch.nbytes
        try:
            room = None if current is None else current.room(self._chunk_left)
            if room is None:
                nbytes = self._socket.recv_into(scratch)
                direct = 0
            elif room.nbytes < self._chunk_left:  # the rest of the chunk is next, and not copied
                nbytes = direct = self._socket.recv_into(room)
                asked = room.nbytes
            else:
                nbytes = self._socket.recvmsg_into([room, scratch[: HEADER.size]])[0]
                asked = room.nbytes + HEADER.size
                direct = min(nbytes, room.nbytes)
        except (BlockingIOError, InterruptedError):
            return 0, asked
        except OSError as error:  # for example a reset: the other end closed without reading all
            self._lose(error)
            return 0, asked
        if not nbytes:
            self.ended = True
            self.reason = self.reason or "the other side closed the connection"
            return 0, asked
        self.bytes_in += nbytes
        if direct:
            self._note_chunk(direct)
        if nbytes > direct:
            self._parse(scratch[: nbytes - direct])
        return nbytes, asked

    def _lose(self, error: OSError) -> None:
        self._break(f"the connection was lost: {error.strerror or error}")
        self.ended = True

    def _parse(self, data: memoryview) -> None:
        """Parse data into messages, and keep what is not complete."""
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
        """Parse the frame at the start of data, and return its size without its chunk.

        Returns 0 if it is incomplete, or must wait until earlier messages are handled.
        """
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
        """Return whether the received messages must be handled before the next one is parsed.

        `reserve` may depend on earlier messages, so before a payload all of them must be handled.
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
        if isinstance(memory, np.ndarray) and memory.nbytes != nbytes:
            raise AssertionError(f"{memory.nbytes} bytes were reserved for {nbytes}")
        # If the payload is not wanted, the message is not kept either, as it may be large.
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
        if (room := current.room(nbytes)) is not None:
            nbytes = room.nbytes
            room[:] = data[:nbytes]
        self._note_chunk(nbytes)
        return nbytes

    def _note_chunk(self, nbytes: int) -> None:
        current = self._current
        assert current is not None
        current.have += nbytes
        if current.sink is not None:
            current.sink.came(nbytes)
        self.payload_in += nbytes
        self._chunk_left -= nbytes
        if self._chunk_left:
            return
        self._current = None
        if current.have == current.nbytes:
            del self._open[current.lane]
            if current.message is not None:
                self._inbox.append((current.message, current.memory))

    # --- waiting, and the end ----------------------------------------------------------------

    def fileno(self) -> int:
        """Return the socket's descriptor, for a selector; -1 once closed."""
        return self._socket.fileno()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until there is something to receive, or the end; send queued messages meanwhile.

        Returns False after `timeout` seconds.
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
        """Receive some data and drop it; return False once the other end has closed."""
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
        """End the connection for both ends; the descriptor stays open. Safe from any thread."""
        if self.fileno() >= 0:
            with suppress(OSError):  # it has ended already
                self._socket.shutdown(socket.SHUT_RDWR)

    def stop_receiving(self) -> None:
        """Wake a thread that waits to receive; it finds the end. Safe from any thread."""
        if self.fileno() >= 0:
            with suppress(OSError):  # it has ended already
                self._socket.shutdown(socket.SHUT_RD)

    def finish(self) -> None:
        """Close the sending direction; the other end sees the end of the stream."""
        if self.fileno() >= 0:
            with suppress(OSError):  # it has ended already
                self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection; queued messages are dropped."""
        self._closed = True
        self._end()
        self._push()

    def _end(self) -> None:
        self.ended = True
        self._drop_incoming()
        self._inbox.clear()

    def _drop_incoming(self) -> None:
        self._partial = bytearray()  # a new one: a failed parse may hold a view of the old one
        self._open.clear()
        self._current, self._chunk_left = None, 0
        self.has_more = False


def _without(buffers: Buffers, sent: int) -> Buffers:
    """Return what is left of buffers after `sent` bytes were sent."""
    for place, buffer in enumerate(buffers):
        size = len(buffer) if isinstance(buffer, bytes) else buffer.nbytes
        if sent < size:
            return [memoryview(buffer)[sent:], *buffers[place + 1 :]]
        sent -= size
    return []
