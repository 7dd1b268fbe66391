"""How often something may happen: so many a second, and ever more seldom for who was refused.

Nothing here knows a clock: every question says what time it is.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

# Of hosts that were refused: how many are remembered. Forgetting one early does little harm.
_MOST_HOSTS: Final = 4096


class TokenBucket:
    """Something that may happen `rate` times a second, and up to `burst` times at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = -math.inf

    def take(self, now: float) -> bool:
        """Whether it may happen now; then it counts."""
        self._fill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def when(self, now: float) -> float:
        """When it may happen next."""
        self._fill(now)
        return now + max(0.0, 1.0 - self._tokens) / self._rate

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now


class Penalties:
    """Who was refused waits: `first` seconds, twice as long after each further refusal."""

    def __init__(self, first: float = 1.0, longest: float = 60.0) -> None:
        self._first = first
        self._longest = longest
        self._hosts: OrderedDict[str, tuple[float, float]] = OrderedDict()  # until when, how long

    def note(self, host: str, now: float) -> float:
        """A host was refused; how many seconds it waits."""
        until, seconds = self._hosts.pop(host, (now, 0.0))
        # Who has behaved for as long as it was made to wait begins anew.
        grew = 2 * seconds if seconds and now <= until + seconds else self._first
        seconds = min(grew, self._longest)
        self._hosts[host] = now + seconds, seconds
        if len(self._hosts) > _MOST_HOSTS:
            self._hosts.popitem(last=False)
        return seconds

    def waits(self, host: str, now: float) -> bool:
        """Whether a host is to wait now."""
        found = self._hosts.get(host)
        return found is not None and now < found[0]

    def forget(self, host: str) -> None:
        """A host was let in after all."""
        self._hosts.pop(host, None)
