"""Keeps what a worker's store logs as warnings, to be sent with its next batch.

A worker's own log goes to a file that nobody reads while it lives. That a server was lost, or is
back, is for the people who run the job.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

_STORE: Final = "penstock.store"
_KEPT: Final = 8


class Notices(logging.Handler):
    """Keeps the latest warnings of a store's servers. Thread-safe."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._kept: deque[str] = deque(maxlen=_KEPT)
        logging.getLogger(_STORE).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning."""
        self._kept.append(record.getMessage())

    def take(self) -> tuple[str, ...]:
        """Return the warnings since this was last called."""
        taken = []
        while self._kept:
            taken.append(self._kept.popleft())
        return tuple(taken)
