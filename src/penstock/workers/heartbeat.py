"""A worker's second thread: sends heartbeats, and ends the worker when its hub has gone.

It runs while the first thread samples, since kernels release the GIL. If no heartbeats come, native
code holds the GIL or the process is stopped. The thread waits in `poll`, so it notices the hub's
end at once, even in the middle of a batch.
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

# Enough for a thread that sends messages; the default of 8 MiB would count against the limit.
_STACK: Final = 512 << 10
_HANGUP: Final = getattr(select, "POLLRDHUP", 0)


@dataclass(slots=True)
class Progress:
    """The worker's progress. One thread writes it, the other reads it."""

    batches: int = 0
    batch: BatchId | None = None


class HeartbeatThread:
    """Sends a heartbeat every `every` seconds, from `start` to the end of the process."""

    def __init__(
        self, stream: Stream[Any], every: float, progress: Progress, exit_code: int
    ) -> None:
        self._stream = stream
        self._every = every
        self._progress = progress
        self._exit_code = exit_code
        # Held by code that sends a message in pieces, between which no heartbeat may come.
        self.speaking = threading.Lock()

    def start(self) -> None:
        """Start the thread; it sends a first heartbeat at once."""
        before = threading.stack_size(_STACK)
        try:
            threading.Thread(target=self._run, name="heartbeat", daemon=True).start()
        finally:
            threading.stack_size(before)

    def _run(self) -> None:
        poll = select.poll()
        # Not for input, which the other thread reads. Hang-ups are always reported.
        poll.register(self._stream.fileno(), _HANGUP)
        while True:
            self._beat()
            if poll.poll(min(self._every * 1000, LONGEST_POLL)):
                os._exit(self._exit_code)

    def _beat(self) -> None:
        if self._stream.pending:
            return  # the hub does not read; more messages would only queue
        # Without memory, say nothing: the other thread is about to notice, and reports it.
        with self.speaking, suppress(MemoryError):
            self._stream.send(
                Heartbeat(
                    private=private_bytes(),
                    cpu=time.process_time(),
                    batches=self._progress.batches,
                    batch=self._progress.batch,
                )
            )
