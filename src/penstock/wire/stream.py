"""Messages over a connected unix socket: whole ones out of any pieces, descriptors beside them.

    stream: Stream[FromWorkerToHub] = Stream(sock, FromWorkerToHub)    # what may come in
    stream.send(Sample(…), fds=[fd])
    for message, fds in stream.receive(): …                            # the descriptors are ours

What comes in is not trusted: a length is checked before anything is kept for it, and after a frame
that makes no sense nothing more is read. Nothing here blocks, except `wait` and `flush` when asked
to.

`send` may be called by any thread at any moment (`wire.sending`). Everything else belongs to one
thread. That the other side has gone is no error of `send`: the frames it sent before are still to
be read, and `receive` comes to the end by itself.

Interrupts. Python may raise KeyboardInterrupt whenever a call returns, and the result of the call
is then lost. A frame must not be sent twice for that, so results of system calls are put down by
C code (`extend(map(…))`), and the steps that follow are free of calls.

This module knows no message by name.
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
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar

from penstock.errors import ProtocolError
from penstock.wire import framing
from penstock.wire.framing import HEADER, LONGEST_POLL, decode, decoder_for, poll
from penstock.wire.messages import Message
from penstock.wire.sending import Sender

__all__ = ["DEFAULT_LIMIT", "LONGEST_POLL", "MAX_FDS", "Stream"]

Received = TypeVar("Received")

DEFAULT_LIMIT: Final = 16 << 20
# Of a message. A process may have 1024 descriptors open unless told otherwise.
MAX_FDS: Final = 1024

_FD_SIZE: Final = array.array("i").itemsize
_FDS_AT_ONCE: Final = 253  # the kernel takes no more in one call
_CHUNK: Final = 64 << 10
_ANCILLARY: Final = socket.CMSG_SPACE(_FDS_AT_ONCE * _FD_SIZE)
_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_TRUNCATED: Final = int(socket.MSG_CTRUNC)  # a plain number: flags of `enum` are slow to combine

# The kernel cannot take a message now, and will later: no memory, or too many descriptors of this
# user's are on their way and not received yet. Nothing of the message has gone.
_NOT_NOW: Final = frozenset({errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS})

_Ancillary: TypeAlias = list[tuple[int, int, Any]]


@dataclass
class _Parcel:
    """One frame on its way out. `sent` has what each call took, so that nothing goes twice."""

    data: bytes
    fds: list[int]
    sent: list[int] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return sum(self.sent) == len(self.data)

    def next_piece(self) -> tuple[memoryview, _Ancillary]:
        """The bytes to send next, and the descriptors that go with their first byte."""
        calls, begin = len(self.sent), sum(self.sent)
        fds = self.fds[calls * _FDS_AT_ONCE : (calls + 1) * _FDS_AT_ONCE]
        # As long as descriptors are left for another call, so must be a byte.
        more = len(self.fds) > (calls + 1) * _FDS_AT_ONCE
        end = begin + 1 if more else len(self.data)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        return memoryview(self.data)[begin:end], rights

    def close(self) -> None:
        _close_all(self.fds)


class Stream(Sender, Generic[Received]):
    """One side of a connection. Takes the socket over; `receives` is the union that may come in."""

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
        self._unread = False  # an interrupted `receive` has left something here
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether all has been received: the other side has gone, or this one is closed."""
        return self._ended

    @property
    def pending(self) -> bool:
        """Whether something waits for room in the socket: flush when it is writable."""
        return bool(self._outbox)

    @property
    def queued(self) -> int:
        """How many messages wait for room in the socket."""
        return len(self._outbox)

    def fileno(self) -> int:
        """The socket's descriptor, for a selector; -1 once closed."""
        return self._sock.fileno()

    @staticmethod
    def encode(message: Message, fds: int = 0) -> bytes:
        """The frame of a message that goes with so many descriptors."""
        return framing.frame(message, fds)

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Sends a message, or keeps it until there is room. `fds` stay the caller's.

        Once the connection has ended, here or there, this does nothing.
        """
        frame = self.encode(message, len(fds))
        if len(frame) - HEADER.size > self._max_message or len(fds) > MAX_FDS:
            raise ValueError(
                f"{type(message).__name__} has {len(frame)} bytes and {len(fds)} descriptors: "
                f"at most {self._max_message} and {MAX_FDS} can be sent"
            )
        if not (self._broken or self._closed):
            self._outbox.append(_Parcel(frame, _duplicates(fds)))
            self._push()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until there is something to receive, or the end; sends what is kept meanwhile.

        False if `timeout` seconds went by without.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self._push()
        while not (self._ended or self._closed or self._unread):
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
        """All messages that are there, without waiting; their descriptors are the caller's now.

        Sets `ended` at the other side's end; a frame it did not complete is dropped. Raises
        `ProtocolError` if what came makes no sense; then all is over, and nothing stays open.
        """
        self._unread = True
        try:
            self._fill()
            self._decode()
        except ProtocolError:
            self._end()
            raise
        if self._ended:
            self._drop_unfinished()
        received, self._inbox, self._unread = self._inbox, [], False
        return received

    def close(self) -> None:
        """Closes the connection and every descriptor on its way; what was not sent is not sent."""
        self._closed = True
        self._end()
        self._push()

    # --- sending ---------------------------------------------------------------------------

    def _drain(self, nbytes: float) -> bool:
        while self._outbox and not (self._closed or self._broken):
            parcel = self._outbox[0]
            if parcel.done:
                self._outbox.popleft().close()
            elif not self._send_piece(parcel):
                return False
        return True

    def _send_piece(self, parcel: _Parcel) -> bool:
        piece, rights = parcel.next_piece()
        try:
            parcel.sent.extend(map(self._sock.sendmsg, ([piece],), (rights,)))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if error.errno in _NOT_NOW:
                return False
            self._broken = True
        return True

    def _drop_unsent(self) -> None:
        while self._outbox:
            self._outbox.popleft().close()
        if self._closed:
            self._sock.close()

    # --- receiving -------------------------------------------------------------------------

    def _fill(self) -> None:
        """Takes what the socket has; of a flood, as much as one message may have."""
        arguments = ((_CHUNK,), (_ANCILLARY,), (_CLOSE_ON_EXEC,))
        limit = len(self._bytes) + self._max_message
        self._absorb()
        while not self._ended and len(self._bytes) <= limit:
            try:
                self._chunks.extend(map(self._sock.recvmsg, *arguments))
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # a reset: the other side went without reading all; the end, like any
                self._ended = True
            self._absorb()

    def _absorb(self) -> None:
        while self._chunks:
            data, ancillary, flags, _ = self._chunks[0]
            fds, lost = _descriptors_in(ancillary), flags & _TRUNCATED
            self._ended = self._ended or not data
            self._bytes += data
            self._fds += fds
            del self._chunks[0]
            if lost:
                raise ProtocolError("descriptors were lost: this process has too many open files")

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
        # Descriptors come with their message's first bytes.
        if len(self._fds) > MAX_FDS or (self._fds and not self._bytes):
            raise ProtocolError("descriptors came that no message speaks of")

    def _decode_one(self, end: int, count: int) -> None:
        if count > len(self._fds):
            raise ProtocolError(f"{count} descriptors are announced, {len(self._fds)} came")
        message = decode(self._decoder, self._bytes[HEADER.size : end])
        self._inbox += [(message, self._fds[:count])]
        del self._bytes[:end], self._fds[:count]

    def _end(self) -> None:
        self._ended = True
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
