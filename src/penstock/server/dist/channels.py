"""The channels of a server: each is one rank's stream of batches, fetched one at a time.

Any thread may start, fetch and destroy. Starts and fetches of one channel exclude each other. A
destroy waits for nobody and takes precedence: a thread that waits for a batch then gets the end of
the epoch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.client.channel.batch import Batch
from penstock.errors import ChannelClosed
from penstock.hub.timings import Timing
from penstock.rpc.deadline import Deadline
from penstock.server.dist.backends import ServedBackend
from penstock.server.dist.handles import HandleKind, Handles

log = logging.getLogger(__name__)

SLOW_FETCH_S: Final = 1.0
# How many numbers of channels whose ranks vanished are kept, to tell ranks that come back.
_REMEMBERED: Final = 1 << 16


@dataclass(eq=False)
class ServedChannel:
    """One channel. `gone` is set once, by whoever destroys it."""

    number: int
    backend: ServedBackend
    worker_key: str
    holder: int
    log_every_n: int
    nbytes: int = 0  # of its inputs
    gone: threading.Event = field(default_factory=threading.Event)
    epoch: int = -1
    messages: int = 0
    failures: int = 0
    fetching: Timing = field(default_factory=lambda: Timing("fetching"))
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def start(self, epoch: int, first: int, first_step: int, timeout: float) -> None:
        """Start an epoch; do nothing if the channel has gone."""
        with self._alone(Deadline(timeout)):
            if self.gone.is_set():
                return
            try:
                self.backend.up.start_new_epoch_sampling(
                    self.number, epoch, first=first, first_step=first_step
                )
            except ChannelClosed:
                if not self.gone.is_set():
                    raise
                return
            self.epoch = max(self.epoch, int(epoch))

    def fetch(self, timeout: float) -> tuple[Batch | None, bool]:
        """Return the epoch's next batch; (None, True) at its end, or if the channel has gone."""
        deadline, began = Deadline(timeout), time.perf_counter()
        with self._alone(deadline):
            if self.gone.is_set():
                return None, True
            if self.epoch < 0:
                raise ValueError(f"channel {self.number} has no epoch: start one first")
            batch = self._next(deadline)
            if batch is not None:
                self._count(time.perf_counter() - began)
            return (batch, batch is None)

    def is_epoch_done(self, epoch: int) -> bool:
        """Return whether every batch of an epoch has ended."""
        return self.backend.up.is_channel_epoch_done(self.number, epoch)

    def numbers(self) -> dict[str, Any]:
        """Return the channel's statistics as plain data."""
        return {
            "worker_key": self.worker_key,
            "backend": self.backend.number,
            "holder": self.holder,
            "epoch": self.epoch,
            "messages": self.messages,
            "failures": self.failures,
            "fetching": self.fetching.numbers(),
        }

    def _next(self, deadline: Deadline) -> Batch | None:
        try:
            return self.backend.up.next_batch(self.number, deadline.remaining)
        except TimeoutError as error:
            raise TimeoutError(
                f"channel {self.number}: no batch came in time (setting: request_timeout)"
            ) from error
        except ChannelClosed:
            if not self.gone.is_set():
                raise
            return None
        except Exception:
            self.failures += 1
            raise

    def _count(self, seconds: float) -> None:
        self.messages += 1
        if self.fetching.add(seconds, SLOW_FETCH_S) is not None:
            log.info("slow: channel %d waited %.3f s for a batch", self.number, seconds)
        if (window := self.fetching.close_window(self.log_every_n)) is not None:
            log.info("channel %d, worker_key %r: %s", self.number, self.worker_key, window)

    @contextmanager
    def _alone(self, deadline: Deadline) -> Iterator[None]:
        remaining = deadline.remaining
        if not self._turn.acquire(timeout=-1 if remaining is None else remaining):
            raise TimeoutError(
                f"channel {self.number} is in use by another call (setting: request_timeout)"
            )
        try:
            yield
        finally:
            self._turn.release()


class ServedChannels:
    """All channels of a server, by number."""

    def __init__(self, numbers: Handles) -> None:
        self._numbers = numbers
        self._lock = threading.Lock()
        self._there: dict[int, ServedChannel] = {}
        self._lost: set[int] = set()
        self._lost_in_order: deque[int] = deque()

    def add(self, channel: ServedChannel) -> None:
        """Add a channel that was opened."""
        with self._lock:
            self._there[channel.number] = channel

    def find(self, number: Any) -> ServedChannel | None:
        """Return the channel, or None if it was destroyed.

        Raises:
            KeyError: The number was never given out.
            ChannelClosed: The channel went with the connection of its rank. Its epoch has not
                ended, and must not be taken to have.
        """
        self._numbers.check(number, HandleKind.CHANNEL)
        with self._lock:
            if number in self._lost:
                raise ChannelClosed(
                    f"channel {number} was closed when the connection of its rank ended: "
                    "register it again, and start where you were"
                )
            return self._there.get(number)

    def take(self, number: Any, *, lost: bool = False) -> ServedChannel | None:
        """Remove a channel for good and return it; None if it is not there."""
        with self._lock:
            channel = self._there.pop(number, None)
            if channel is not None:
                channel.gone.set()
                if lost:
                    self._remember(number)
            return channel

    def holder_of(self, number: int) -> int | None:
        """Return the session that a channel belongs to; None if there is no such channel."""
        with self._lock:
            channel = self._there.get(number)
            return None if channel is None else channel.holder

    def of(self, holder: int) -> list[int]:
        """Return the numbers of a session's channels."""
        with self._lock:
            return [each.number for each in self._there.values() if each.holder == holder]

    def all(self) -> list[ServedChannel]:
        """Return the channels there are now."""
        with self._lock:
            return list(self._there.values())

    def _remember(self, number: int) -> None:
        self._lost.add(number)
        self._lost_in_order.append(number)
        if len(self._lost_in_order) > _REMEMBERED:
            self._lost.discard(self._lost_in_order.popleft())
