"""Sending without waiting, from any thread: whoever is sending takes along what others have left.

`send` of a stream may be called by any thread at any moment, also by a finalizer that runs in the
middle of another `send`. So nobody waits for a lock: who finds somebody sending leaves the message
in the outbox, and whoever is sending looks there again after leaving.
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
    """The outbox of a stream, and whose turn it is to send."""

    def __init__(self) -> None:
        self._outbox: deque[Any] = deque()
        self._turn = Lock()  # held by the one that is sending; nobody waits for it
        self._broken = False  # nothing can be sent any more
        self._closed = False

    @abstractmethod
    def fileno(self) -> int:
        """The socket's descriptor, for a selector; -1 once closed."""

    @property
    @abstractmethod
    def pending(self) -> bool:
        """Whether something waits for room in the socket: flush when it is writable."""

    @abstractmethod
    def _drain(self, nbytes: float) -> bool:
        """Sends until nothing is left; False if no more goes in, or about `nbytes` have gone."""

    @abstractmethod
    def _drop_unsent(self) -> None:
        """Lets go of what was not sent; of the socket too, if the stream is closed."""

    def flush(self, timeout: float = 0.0) -> bool:
        """Sends what is kept, waiting up to `timeout` seconds for room; true if nothing is left."""
        deadline = time.monotonic() + timeout
        self._push()
        while self.pending and not self._closed and (left := deadline - time.monotonic()) > 0:
            poll(self, select.POLLOUT, left)
            self._push()
        return not self.pending

    def _push(self, nbytes: float = math.inf) -> None:
        # Who finds a sender at work leaves: it may be ourselves, further up the stack. The sender
        # looks again after its turn, so that nothing is left behind. The lock is taken by `with`,
        # which an interrupt cannot part from the release; two who come at once wait a moment.
        full = False
        while self._has_work(full) and not self._turn.locked():
            with self._turn:
                if self._closed or self._broken:
                    self._drop_unsent()
                    full = False  # what somebody has left meanwhile must go, too
                else:
                    full = not self._drain(nbytes)

    def _has_work(self, full: bool) -> bool:
        if self._closed and self.fileno() >= 0:
            return True
        return self.pending and not full
