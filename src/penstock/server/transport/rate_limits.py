"""Rate limits: so many events a second, and growing pauses for hosts that were refused.

Nothing here reads a clock: the caller passes the time.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

# How many refused hosts are remembered. Forgetting one early does little harm.
_MOST_HOSTS: Final = 4096


class TokenBucket:
    """Allows an event `rate` times a second, and up to `burst` times at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = -math.inf

    def take(self, now: float) -> bool:
        """Return whether the event may happen now; if so, count it."""
        self._fill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def when(self, now: float) -> float:
        """Return when the event may happen next."""
        self._fill(now)
        return now + max(0.0, 1.0 - self._tokens) / self._rate

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now


class Penalties:
    """Refused hosts must wait: `first` seconds, and twice as long after each further refusal."""

    def __init__(self, first: float = 1.0, longest: float = 60.0) -> None:
        self._first = first
        self._longest = longest
        self._hosts: OrderedDict[str, tuple[float, float]] = OrderedDict()  # until when, how long

    def note(self, host: str, now: float) -> float:
        """Record that a host was refused, and return how many seconds it must wait."""
        until, seconds = self._hosts.pop(host, (now, 0.0))
        # A host that was not refused for as long as it had to wait starts again at `first`.
        grew = 2 * seconds if seconds and now <= until + seconds else self._first
        seconds = min(grew, self._longest)
        self._hosts[host] = now + seconds, seconds
        if len(self._hosts) > _MOST_HOSTS:
            self._hosts.popitem(last=False)
        return seconds

    def waits(self, host: str, now: float) -> bool:
        """Return whether a host must wait now."""
        found = self._hosts.get(host)
        return found is not None and now < found[0]

    def forget(self, host: str) -> None:
        """Forget a host that was accepted after all."""
        self._hosts.pop(host, None)
