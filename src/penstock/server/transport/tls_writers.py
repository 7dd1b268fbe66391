"""Threads that encrypt large payloads, so that sending to one rank does not delay the others.

Encrypting takes longer than copying. So the event loop sends small messages itself and hands a
stream with more data to a thread. The thread sends one piece of it, then one piece of the next
waiting stream, in turn.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from penstock.server.transport.threads import Wakeup
from penstock.wire.tcp_stream import TcpStream

log = logging.getLogger(__name__)

# Bytes of one session that are encrypted before the next session has its turn.
PIECE: Final = 256 << 10
_JOIN_S: Final = 5.0


class TlsWriters:
    """A pool of up to `most` threads, which are started when there is work for them."""

    def __init__(self, most: int, wakeup: Wakeup) -> None:
        self._most = most
        self._wakeup = wakeup
        self._waiting: deque[tuple[TcpStream[Any], Callable[[], None]]] = deque()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def write(self, stream: TcpStream[Any], then: Callable[[], None]) -> None:
        """Send what a stream has queued.

        `then` is called in the loop's thread once all of it was sent or the socket has no room.
        """
        with self._changed:
            if self._closed:
                return
            if len(self._waiting) >= self._idle and len(self._threads) < self._most:
                name = f"penstock-encrypt-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._waiting.append((stream, then))
            self._changed.notify()

    def close(self) -> None:
        """End the threads. Idempotent, and takes a bounded time."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(_JOIN_S)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            stream, then = job
            try:
                stream.flush_some(PIECE)
            except Exception:  # no memory, for example: ends this session only
                log.exception("encrypting data for a rank failed")
                stream.hang_up()
                self._wakeup.call(then)
                continue
            if not stream.pending or stream.blocked or stream.broken:
                self._wakeup.call(then)
            else:
                with self._changed:
                    self._waiting.append(job)
            del job, stream, then  # an idle thread must not keep any of these alive

    def _next(self) -> tuple[TcpStream[Any], Callable[[], None]] | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._waiting or self._closed)
            self._idle -= 1
            return self._waiting.popleft() if self._waiting else None
