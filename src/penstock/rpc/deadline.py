"""Deadlines: until when a caller is willing to wait."""

from __future__ import annotations

import math
import threading
import time
from typing import Any


class Deadline:
    """A point in time, or never; made from a timeout in seconds, or None."""

    def __init__(self, timeout: float | None) -> None:
        if timeout is not None and (isinstance(timeout, bool) or not timeout >= 0):
            raise ValueError(f"timeout is {timeout!r}; expected seconds, or None to wait for ever")
        # A timeout that is longer than a lock can wait counts as no deadline.
        if timeout is None or timeout > threading.TIMEOUT_MAX:
            self.at = math.inf
        else:
            self.at = time.monotonic() + timeout

    def or_sooner(self, other: Deadline) -> Deadline:
        """Return the earlier of the two deadlines."""
        return self if self.at <= other.at else other

    @property
    def remaining(self) -> float | None:
        """Seconds left, 0 when the deadline has passed; None if there is no limit."""
        return None if self.at == math.inf else max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self.at


def positive_seconds(value: Any, name: str) -> float:
    """Return `value` as seconds; ValueError, which names the argument, unless it is positive."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{name} is {value!r}; expected seconds, greater than 0")
    return float(value)
