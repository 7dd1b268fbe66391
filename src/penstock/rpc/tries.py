"""Counts attempts to reach a server, for the error that says that it is gone."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from penstock.errors import ServerGone


@dataclass(eq=False)
class Tries:
    """The attempts since the last success. Any thread may use it; the numbers are for people."""

    count: int = 0
    since: float = field(default_factory=time.monotonic)
    last: Exception | None = None

    def failed(self, error: Exception) -> None:
        """Count a failed attempt.

        A timeout does not replace an earlier error, because it says nothing about the cause.
        """
        if not self.count:
            self.since = time.monotonic()
        self.count += 1
        if self.last is None or not isinstance(error, TimeoutError):
            self.last = error

    def succeeded(self) -> None:
        """Note that the server answered."""
        self.count, self.last = 0, None

    def gone(self, address: str, error: Exception, setting: str = "patience") -> ServerGone:
        """Return the error to raise when there are no more attempts."""
        seconds = time.monotonic() - self.since
        attempts = f"{self.count} attempts" if self.count > 1 else "1 attempt"
        return ServerGone(
            f"the server at {address} does not answer: {attempts} to connect "
            f"in {seconds:.1f} s (setting: {setting}), the last: {self.last or error}. Whoever "
            "starts it again at the same address, with the same graph, can have everything go on"
        )
