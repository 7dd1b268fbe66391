"""Counts what a process moves between itself and the parts of a graph."""

from __future__ import annotations

import threading

from penstock.wire.messages import Moved


class Meter:
    """Totals of one process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = Moved()

    def add(
        self,
        *,
        bytes_in: int = 0,
        bytes_out: int = 0,
        rows: int = 0,
        hits: int = 0,
        calls: int = 0,
        waited: float = 0.0,
    ) -> None:
        """Add to the totals; see `Moved`."""
        with self._lock:
            total = self._total
            self._total = Moved(
                bytes_in=total.bytes_in + bytes_in,
                bytes_out=total.bytes_out + bytes_out,
                rows=total.rows + rows,
                hits=total.hits + hits,
                calls=total.calls + calls,
                waited=total.waited + waited,
            )

    def total(self) -> Moved:
        """Return the totals so far."""
        return self._total
