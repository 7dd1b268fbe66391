"""Messages over a connected unix socket, with descriptors.

    stream: Stream[FromWorkerToHub] = Stream(sock, FromWorkerToHub)    # the messages to receive
    stream.send(SampleBatch(…), fds=[fd])
    for message, fds in stream.receive(): …                            # the caller owns `fds`

Received data is not trusted: a length is checked before memory is used for it, and after an invalid
frame nothing more is read. Nothing blocks, except `wait` and `flush` with a timeout.

`send` may be called by any thread at any moment (`wire.sending`). All other methods belong to one
thread. `send` does not fail when the other end is gone: the frames that it sent before must still
be read, and `receive` finds the end by itself.

After an interrupt (Ctrl-C) in the middle of sending or receiving, it is unknown how much was sent
or received. The stream then ends, as if the connection had been lost; the reader of batches opens
another session and resumes at the step it was due.

This module must not know any message by name.
"""

from __future__ import annotations

import array
import errno
import os
import select
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, TypeAlias, TypeVar

from penstock.errors import ProtocolError
from penstock.wire import framing
from penstock.wire.framing import HEADER, LONGEST_POLL, decode, decoder_for, poll
from penstock.wire.messages import Message
from penstock.wire.sending import Sender

__all__ = ["DEFAULT_LIMIT", "LONGEST_POLL", "MAX_FDS", "Stream"]

Received = TypeVar("Received")

DEFAULT_LIMIT: Final = 16 << 20
# Descriptors of one message. By default a process may have 1024 open.
MAX_FDS: Final = 1024

_FD_SIZE: Final = array.array("i").itemsize
_FDS_AT_ONCE: Final = 253  # the kernel's limit for one call
_CHUNK: Final = 64 << 10
_ANCILLARY: Final = socket.CMSG_SPACE(_FDS_AT_ONCE * _FD_SIZE)
_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_TRUNCATED: Final = int(socket.MSG_CTRUNC)  # a plain number: flags of `enum` are slow to combine

# The kernel cannot take a message now, but will later: it has no memory, or too many descriptors of
# this user were sent and not yet received. Nothing of the message was sent.
_NOT_NOW: Final = frozenset({errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS})

# The arguments of `recvmsg`, for `map`.
_RECEIVING: Final = ((_CHUNK,), (_ANCILLARY,), (_CLOSE_ON_EXEC,))

_Ancillary: TypeAlias = list[tuple[int, int, Any]]


class _OutgoingFrame:
    """One frame to send. `sent` bytes, and the descriptors before `fds_sent`, have been sent."""

    __slots__ = ("data", "fds", "fds_sent", "sent")

    def __init__(self, data: bytes, fds: list[int], sent: int = 0) -> None:
        self.data = data
        self.fds = fds
        self.sent = sent
        self.fds_sent = 0

    def next_piece(self) -> tuple[memoryview, _Ancillary]:
        """Return the bytes to send next, and the descriptors to send with their first byte."""
        fds = self.fds[self.fds_sent : self.fds_sent + _FDS_AT_ONCE]
        # If descriptors are left for another call, bytes must be left for it, too.
        more = len(self.fds) > self.fds_sent + _FDS_AT_ONCE
        end = self.sent + 1 if more else len(self.data)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        return memoryview(self.data)[self.sent : end], rights

    def note_sent(self, nbytes: int) -> bool:
        """Count the bytes of one call; return whether the frame is complete."""
        self.sent += nbytes
        self.fds_sent += _FDS_AT_ONCE
        return self.sent == len(self.data)

    def close(self) -> None:
        _close_all(self.fds)


class Stream(Sender, Generic[Received]):
    """One end of a connection. It owns the socket.

    Args:
        sock: A connected socket.
        receives: The union of messages that may be received.
        max_message: The most bytes of a message.
    """

    def __init__(
        self, sock: socket.socket, receives: object, *, max_message: int = DEFAULT_LIMIT
    ) -> None:
        super().__init__()
        sock.setblocking(False)
        self._sock = sock
        self._decoder = decoder_for(receives)
        self._max_message = max_message
        self._chunks: list[tuple[bytes, _Ancillary, int, Any]] = []
        self._bytes = bytearray()
        self._fds: list[int] = []
        self._inbox: list[tuple[Received, list[int]]] = []
        self._unsure = False  # still set after a send if an exception interrupted it
        self.exhausted = False  # whether the last `receive` has emptied the socket
        # Whether all has been received: the other end is gone, or this one is closed.
        self.ended = False

    @property
    def pending(self) -> bool:
        """Whether data waits for room in the socket: call `flush` when it is writable."""
        return bool(self._outbox)

    @property
    def queued(self) -> int:
        """The number of messages that wait for room in the socket."""
        return len(self._outbox)

    def fileno(self) -> int:
        """Return the socket's descriptor, for a selector; -1 once closed."""
        return self._sock.fileno()

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Send a message, or queue it until there is room. The caller keeps `fds`.

        Once the connection has ended, at either end, this does nothing.

        Raises:
            ValueError: The message has too many bytes or descriptors.
        """
        frame = framing.frame(message, len(fds))
        if len(frame) - HEADER.size > self._max_message or len(fds) > MAX_FDS:
            raise ValueError(
                f"{type(message).__name__} has {len(frame)} bytes and {len(fds)} descriptors: "
                f"at most {self._max_message} and {MAX_FDS} can be sent"
            )
        if self._broken or self._closed:
            return
        if not fds and not self._outbox and not self._turn.locked():
            self._send_at_once(frame)
        else:
            self._outbox.append(_OutgoingFrame(frame, _duplicates(fds) if fds else []))
        if self._outbox or self._closed:  # by others, who have left it to us
            self._push()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until there is something to receive, or the end; send queued messages meanwhile.

        Returns False after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self._push()
        while not (self.ended or self._closed):
            wanted = select.POLLIN | (select.POLLOUT if self._outbox else 0)
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = poll(self._sock, wanted, left)
            if ready & ~select.POLLOUT:
                return True
            if not ready:
                return False
            self._push()
        return True

    def receive(self) -> list[tuple[Received, list[int]]]:
        """Return the messages that have arrived, without blocking. The caller owns their fds.

        Sets `ended` when the other end has closed; an incomplete frame is dropped.

        Raises:
            ProtocolError: The data is not valid. The stream has ended, and no descriptor is left
                open.
        """
        try:
            self._fill()
            self._decode()
        except BaseException:
            self._end()
            raise
        if self.ended:
            self._drop_unfinished()
        received, self._inbox = self._inbox, []
        return received

    def close(self) -> None:
        """Close the connection and all queued descriptors; queued messages are dropped."""
        self._closed = True
        self._end()
        self._push()

    # --- sending -----------------------------------------------------------------------------

    def _send_at_once(self, frame: bytes) -> None:
        """Send on the fast path, for the common case: a small message and an empty outbox."""
        with self._turn:
            if self._outbox or self._unsure or self._broken or self._closed:
                self._outbox.append(_OutgoingFrame(frame, []))
                return
            self._unsure = True
            try:
                sent = self._sock.send(frame)
            except OSError as error:
                sent = self._sent_nothing(error)
            if sent < len(frame) and not self._broken:
                self._outbox.appendleft(_OutgoingFrame(frame, [], sent))
            self._unsure = False

    def _drain(self, nbytes: float) -> bool:
        if self._unsure:
            self._broken = True
            return True
        self._unsure, goes_on = True, True
        while goes_on and self._outbox and not (self._closed or self._broken):
            goes_on = self._send_piece(self._outbox[0])
        self._unsure = False
        return goes_on

    def _send_piece(self, parcel: _OutgoingFrame) -> bool:
        piece, rights = parcel.next_piece()
        try:
            sent = self._sock.sendmsg([piece], rights)
        except OSError as error:
            self._sent_nothing(error)
            return self._broken
        if parcel.note_sent(sent):
            self._outbox.popleft()
            parcel.close()
        return True

    def _sent_nothing(self, error: OSError) -> int:
        """Mark the stream as broken unless the socket was only full; return 0."""
        is_full = isinstance(error, (BlockingIOError, InterruptedError))
        if not (is_full or error.errno in _NOT_NOW):
            self._broken = True
        return 0

    def _drop_unsent(self) -> None:
        while self._outbox:
            self._outbox.popleft().close()
        if self._closed:
            self._sock.close()

    # --- receiving ---------------------------------------------------------------------------

    def _fill(self) -> None:
        """Read what the socket has, but no more than about the size of the largest message."""
        limit = len(self._bytes) + self._max_message
        self.exhausted = False
        while not self.ended and len(self._bytes) <= limit:
            try:
                # C code stores the result, so that an interrupt cannot leak a descriptor.
                self._chunks.extend(map(self._sock.recvmsg, *_RECEIVING))
            except (BlockingIOError, InterruptedError):
                self.exhausted = True
                return
            except OSError:  # a reset: the other end closed without reading all, which is an end
                self.ended = self.exhausted = True
                return
            data, ancillary, flags, _ = self._chunks[0]
            if ancillary:
                self._fds += _descriptors_in(ancillary)
            self._chunks.clear()
            self._bytes += data
            if flags & _TRUNCATED:
                raise ProtocolError("descriptors were lost: this process has too many open files")
            if not data:
                self.ended = self.exhausted = True
            elif len(data) < _CHUNK and not ancillary:
                return  # most likely that was all; if not, the selector reports it

    def _decode(self) -> None:
        while len(self._bytes) >= HEADER.size:
            length, count, lane, payload = HEADER.unpack_from(self._bytes)
            if length > self._max_message or count > MAX_FDS:
                raise ProtocolError(
                    f"a message of {length} bytes with {count} descriptors is announced: "
                    f"at most {self._max_message} and {MAX_FDS} are taken"
                )
            if lane or payload:
                raise ProtocolError("a payload is announced, which no unix socket carries")
            if len(self._bytes) < HEADER.size + length:
                break
            self._decode_one(HEADER.size + length, count)
        # Descriptors arrive with the first bytes of their message.
        if len(self._fds) > MAX_FDS or (self._fds and not self._bytes):
            raise ProtocolError("descriptors came that no message speaks of")

    def _decode_one(self, end: int, count: int) -> None:
        if count > len(self._fds):
            raise ProtocolError(f"{count} descriptors are announced, {len(self._fds)} came")
        message = decode(self._decoder, self._bytes[HEADER.size : end])
        self._inbox += [(message, self._fds[:count])]
        del self._bytes[:end], self._fds[:count]

    def _end(self) -> None:
        self.ended = True
        self._drop_unfinished()
        for _, fds in self._inbox:
            _close_all(fds)
        self._inbox.clear()

    def _drop_unfinished(self) -> None:
        for _, ancillary, _, _ in self._chunks:
            _close_all(_descriptors_in(ancillary))
        _close_all(self._fds)
        self._chunks.clear()
        self._fds.clear()
        self._bytes.clear()


def _duplicates(fds: Iterable[int]) -> list[int]:
    copies: list[int] = []
    try:
        for fd in fds:
            copies.append(os.dup(fd))
    except BaseException:
        _close_all(copies)
        raise
    return copies


def _descriptors_in(ancillary: _Ancillary) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % _FD_SIZE])
    return fds.tolist()


def _close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        with suppress(OSError):
            os.close(fd)
