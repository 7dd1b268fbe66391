"""What was tried to reach a server, in words: for the error that says it has gone."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from penstock.errors import ServerGone


@dataclass(eq=False)
class Tries:
    """Attempts since the last that succeeded. Any thread; numbers are for people."""

    count: int = 0
    since: float = field(default_factory=time.monotonic)
    last: Exception | None = None

    def failed(self, error: Exception) -> None:
        """Another one in vain. Of one that only had too little time, nothing can be learnt."""
        if not self.count:
            self.since = time.monotonic()
        self.count += 1
        if self.last is None or not isinstance(error, TimeoutError):
            self.last = error

    def succeeded(self) -> None:
        """Somebody answered."""
        self.count, self.last = 0, None

    def gone(self, address: str, error: Exception, setting: str = "patience") -> ServerGone:
        """What to raise when it is over."""
        seconds = time.monotonic() - self.since
        attempts = f"{self.count} attempts" if self.count > 1 else "1 attempt"
        return ServerGone(
            f"the server at {address} does not answer: {attempts} to connect "
            f"in {seconds:.1f} s (setting: {setting}), the last: {self.last or error}. Whoever "
            "starts it again at the same address, with the same graph, can have everything go on"
        )
