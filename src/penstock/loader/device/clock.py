"""Tells what the GPU waits for: batches that are not there, copies that take long, or nothing.

Marks in the GPU's streams say when it was done with the batch before, when the copies of this one
began and ended, and when it could go on. They are read later, when it has passed them, so nobody
waits for this.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from penstock.loader.device.gpu import Mark

_MOST: Final = 256  # deliveries that were not read yet


class Delivery(NamedTuple):
    """Marks of one batch: two in the stream that computes, two in the one that copies."""

    wanted: Mark  # all that was asked for before the user wanted this batch
    begun: Mark
    copied: Mark
    went_on: Mark


class DeviceClock:
    """Adds up how long a GPU waited, and for what."""

    def __init__(self) -> None:
        self.batches = self.copies = 0.0  # seconds
        self._unread: deque[Delivery] = deque(maxlen=_MOST)

    def note(self, delivery: Delivery) -> None:
        """Note a delivery; read those that the GPU has passed."""
        self._unread.append(delivery)
        self.look()

    def look(self) -> None:
        """Read the deliveries that the GPU has passed."""
        while self._unread and self._unread[0].went_on.passed():
            wanted, begun, copied, went_on = self._unread.popleft()
            waited = max(0.0, went_on.since(wanted))
            copying = max(0.0, min(copied.since(begun), copied.since(wanted), waited))
            self.copies += copying
            self.batches += waited - copying
