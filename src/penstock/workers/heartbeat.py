"""The second thread of a worker: says that it lives, and ends it when nobody is left to hear it.

It runs while the first one samples, since kernels release the interpreter's lock. That it is silent
is news too: then native code keeps the lock, or the process is stopped. It waits in `poll`, so
that the hub's end is noticed at once, in the middle of a batch too.
"""

from __future__ import annotations

import os
import select
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from penstock.wire.messages import BatchId, Heartbeat
from penstock.wire.stream import LONGEST_POLL, Stream
from penstock.workers.restraints import private_bytes

# Enough for a thread that sends a message, and not the eight megabytes a limit would count.
_STACK: Final = 512 << 10
_HANGUP: Final = getattr(select, "POLLRDHUP", 0)


@dataclass(slots=True)
class Progress:
    """How far the worker is. Written by one thread, read by the other."""

    batches: int = 0
    batch: BatchId | None = None


class HeartbeatThread:
    """Beats every so many seconds, from `start` on to the end of the process."""

    def __init__(
        self, stream: Stream[Any], every: float, progress: Progress, exit_code: int
    ) -> None:
        self._stream = stream
        self._every = every
        self._progress = progress
        self._exit_code = exit_code
        # For who sends a message piece by piece, between which no beat may come.
        self.speaking = threading.Lock()

    def start(self) -> None:
        """Starts the thread, with a first beat."""
        before = threading.stack_size(_STACK)
        try:
            threading.Thread(target=self._run, name="heartbeat", daemon=True).start()
        finally:
            threading.stack_size(before)

    def _run(self) -> None:
        poll = select.poll()
        # Not for what there is to read: that is the other thread's. A hang-up is always told.
        poll.register(self._stream.fileno(), _HANGUP)
        while True:
            self._beat()
            if poll.poll(min(self._every * 1000, LONGEST_POLL)):
                os._exit(self._exit_code)

    def _beat(self) -> None:
        if self._stream.pending:
            return  # the hub does not read; more would only pile up
        # Without memory: the other thread is about to find out, and has the last word.
        with self.speaking, suppress(MemoryError):
            self._stream.send(
                Heartbeat(
                    private=private_bytes(),
                    cpu=time.process_time(),
                    batches=self._progress.batches,
                    batch=self._progress.batch,
                )
            )
