"""A spare descriptor, for accepting and closing a connection when no other one is left.

A connection that cannot be accepted stays in the queue of the listening socket, which then stays
readable, so the listener's loop would never sleep.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class SpareDescriptor:
    """A descriptor that is kept open only to be given up when it is needed."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._reserve()

    @contextmanager
    def given_up(self) -> Iterator[None]:
        """Make one descriptor available for a moment, unless another thread takes it first."""
        self.close()
        try:
            yield
        finally:
            self._reserve()

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _reserve(self) -> None:
        with suppress(OSError):  # none is left now; the next call tries again
            self._descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
