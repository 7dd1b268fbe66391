"""A descriptor in reserve, for hanging up on one for whom there is none left.

A visitor who cannot be accepted stays in the listening socket's queue, and wakes whoever listens
for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class SpareDescriptor:
    """Kept open for nothing."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._reserve()

    @contextmanager
    def given_up(self) -> Iterator[None]:
        """For a moment there is one descriptor more; unless another thread is quicker."""
        self.close()
        try:
            yield
        finally:
            self._reserve()

    def close(self) -> None:
        """Gives it up. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _reserve(self) -> None:
        with suppress(OSError):  # there is none: perhaps later
            self._descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
