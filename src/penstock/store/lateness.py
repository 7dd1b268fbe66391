"""Says from past waits when an answer is late, and how often that may be acted upon.

What is late is asked of another server, too. A cluster that is slow as a whole must not get twice
the work by that, so only a small share of all calls may be asked twice.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import Final

# A wait is late when it lasts so many medians, and at least LEAST_S: shorter ones are noise of busy
# machines. Until FEW waits are known, UNKNOWN_S.
MEDIANS: Final = 8.0
LEAST_S: Final = 0.1
UNKNOWN_S: Final = 1.0
FEW: Final = 8
_KEPT: Final = 64
_RENEWED_AFTER: Final = 16
# Each call allows for this share of a second request; so many can be saved up.
SHARE: Final = 0.1
MOST_SAVED: Final = 16.0


class _Waits:
    """The latest waits for one verb, and their median, which is renewed now and then."""

    __slots__ = ("_noted", "latest", "median")

    def __init__(self) -> None:
        self.latest: deque[float] = deque(maxlen=_KEPT)
        self.median = UNKNOWN_S
        self._noted = 0

    def note(self, seconds: float) -> None:
        self.latest.append(seconds)
        self._noted += 1
        if self._noted <= FEW or self._noted % _RENEWED_AFTER == 0:
            self.median = statistics.median(self.latest.copy())


class Lateness:
    """Knows how long answers to each verb usually take. Any thread may use it."""

    def __init__(self) -> None:
        self._waits: dict[str, _Waits] = {}
        self._saved = MOST_SAVED

    def note(self, verb: str, seconds: float) -> None:
        """Note for how long an answer was waited for."""
        waits = self._waits.get(verb)
        if waits is None:
            waits = self._waits.setdefault(verb, _Waits())
        waits.note(seconds)
        self._saved = min(MOST_SAVED, self._saved + SHARE)

    def late_after(self, verb: str) -> float:
        """Return after how many seconds of waiting an answer is late."""
        waits = self._waits.get(verb)
        if waits is None or len(waits.latest) < FEW:
            return UNKNOWN_S
        return max(LEAST_S, MEDIANS * waits.median)

    def medians(self) -> dict[str, float]:
        """Return the median of the latest waits in seconds, by verb."""
        return {verb: waits.median for verb, waits in list(self._waits.items())}

    def may_ask_twice(self) -> bool:
        """Return whether one more late call may be asked of another server; if so, count it."""
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True
