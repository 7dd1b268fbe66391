"""Sending from any thread without blocking: the thread that is sending also sends for others.

`send` of a stream may be called by any thread at any moment, even by a finalizer that runs in the
middle of another `send`. So no caller waits for a lock: if another call is sending, the message
stays in the outbox, and the sending thread checks the outbox again after it has released the lock.
"""

from __future__ import annotations

import math
import select
import time
from abc import ABC, abstractmethod
from collections import deque
from threading import Lock
from typing import Any

from penstock.wire.framing import poll


class Sender(ABC):
    """The outbox of a stream, and the lock of the thread that is sending."""

    def __init__(self) -> None:
        self._outbox: deque[Any] = deque()
        self._turn = Lock()  # held by the thread that is sending; no thread waits for it
        self._broken = False  # nothing can be sent any more
        self._closed = False

    @abstractmethod
    def fileno(self) -> int:
        """Return the socket's descriptor, for a selector; -1 once closed."""

    @property
    @abstractmethod
    def pending(self) -> bool:
        """Whether data waits for room in the socket: call `flush` when it is writable."""

    @abstractmethod
    def _drain(self, nbytes: float) -> bool:
        """Send all; return False if the socket is full or about `nbytes` have been sent."""

    @abstractmethod
    def _drop_unsent(self) -> None:
        """Drop what was not sent; if the stream is closed, close the socket."""

    @property
    def is_sending(self) -> bool:
        """Whether something waits to be sent, or is being sent by some thread."""
        return self.pending or self._turn.locked()

    def flush(self, timeout: float = 0.0) -> bool:
        """Send what is queued, waiting up to `timeout` seconds; return whether nothing is left."""
        deadline = time.monotonic() + timeout
        self._push()
        while self.pending and not self._closed and (left := deadline - time.monotonic()) > 0:
            poll(self, select.POLLOUT, left)
            self._push()
        return not self.pending

    def _push(self, nbytes: float = math.inf) -> None:
        # If the lock is held, return: the holder may be this thread, further up the stack. The
        # holder checks again after it has released the lock, so that nothing is left behind. The
        # lock is taken by `with`, so that an interrupt cannot prevent its release. Two threads that
        # arrive at the same time wait for each other, for a moment.
        full = False
        while self._has_work(full) and not self._turn.locked():
            with self._turn:
                if self._closed or self._broken:
                    self._drop_unsent()
                    full = False  # what other threads have queued meanwhile must be dropped, too
                else:
                    full = not self._drain(nbytes)

    def _has_work(self, full: bool) -> bool:
        if self._closed and self.fileno() >= 0:
            return True
        return self.pending and not full
