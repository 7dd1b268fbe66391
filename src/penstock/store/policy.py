"""Rules of a reader of a store: which server of a part it asks, and when it tries a lost one again.

They have no clock, connections or threads, so `benchmarks/simulate.py` runs them by a clock of its
own. When an answer is late is in `lateness`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, TypeVar

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.5
# Added to the load of a server that is late, or that is leaving, so that others are preferred.
LATE: Final = 1 << 20
LEAVING: Final = 1 << 10
# A server is slow if it takes so many times as long as the fastest of its part, and so much longer.
SLOW: Final = 3.0
SLOW_S: Final = 0.002
# The weight of a new time in the mean, if it is above the mean, and if it is below. What is above
# counts as so many means at most: a reader that was busy hears of an answer late.
ABOVE: Final = 1 / 4
BELOW: Final = 1 / 2
OUTLIER: Final = 4.0
# The shortest time that is noted: a mean of nothing would stay so for ever.
LEAST_S: Final = 1e-6
# How often a slow server is passed over until it is asked again; then twice as often, and so on.
FIRST_PASSES: Final = 16
MOST_PASSES: Final = 256

S = TypeVar("S")


class Pace:
    """How long a server takes to answer one reader, by the kind of question. Any thread may use it.

    Two questions are of the same kind if they are likely to take equally long.
    """

    __slots__ = ("_most", "_passed", "_seconds")

    def __init__(self) -> None:
        self._seconds: dict[Hashable, float] = {}
        self._passed = 0
        self._most = FIRST_PASSES

    def seconds(self, kind: Hashable) -> float | None:
        """Return the mean time of an answer; None if none has come."""
        return self._seconds.get(kind)

    def note(self, kind: Hashable, seconds: float) -> None:
        """Note how long an answer took."""
        seconds = max(seconds, LEAST_S)
        before = self._seconds.get(kind, seconds)
        if seconds < before:
            self._most = FIRST_PASSES
        weight = ABOVE if seconds > before else BELOW
        self._seconds[kind] = before + weight * (min(seconds, OUTLIER * before) - before)

    def note_at_least(self, kind: Hashable, seconds: float) -> None:
        """Note that an answer would have taken longer than that: it was not waited for."""
        if seconds > self._seconds.get(kind, 0.0):
            self.note(kind, seconds)

    def is_passed_over(self) -> bool:
        """Return whether others are asked, because it is slow; now and then it is asked itself."""
        self._passed += 1
        if self._passed <= self._most:
            return True
        self._passed, self._most = 0, min(2 * self._most, MOST_PASSES)
        return False


class Choice:
    """Chooses the server of a part that is likely to answer first; by lot if several are.

    By lot, not in turn: a reader asks the parts in a pattern of its own. By turns, one that asks an
    even number of parts for each hop would ask one of two servers always, and the other one never.

    Args:
        dice: What lots are drawn with; None: some.
    """

    def __init__(self, dice: random.Random | None = None) -> None:
        self._dice = random.Random() if dice is None else dice

    def among(
        self,
        servers: Sequence[S],
        kind: Hashable,
        load: Callable[[S], int | None],
        pace: Callable[[S], Pace],
    ) -> S | None:
        """Return the server to ask.

        Args:
            servers: The connected servers of a part.
            kind: The kind of the question.
            load: Returns how loaded a server is (`load_of`); None: it cannot be asked.
            pace: Returns how long it takes.

        Returns:
            The server; None if none of them can be asked.
        """
        candidates = [
            (server, loaded, pace(server))
            for server in servers
            if (loaded := load(server)) is not None
        ]
        times = [each.seconds(kind) for _, _, each in candidates]
        fastest = min((each for each in times if each is not None), default=0.0)
        first = int(self._dice.random() * len(candidates))
        best, least = None, 0.0
        for place in range(first, first + len(candidates)):
            server, loaded, its_pace = candidates[place % len(candidates)]
            seconds = times[place % len(candidates)]
            score = loaded + 1.0
            if seconds is not None and seconds > max(SLOW * fastest, fastest + SLOW_S):
                is_tried = loaded == 0 and not its_pace.is_passed_over()
                score = 0.0 if is_tried else score * seconds / fastest
            if best is None or score < least:
                best, least = server, score
        return best


def load_of(unanswered: int, *, is_late: bool, is_leaving: bool) -> int:
    """Return the load of a server that owes the reader so many answers."""
    return unanswered + LEAVING * is_leaving + LATE * is_late


def pauses() -> Iterator[float]:
    """Yield the seconds between attempts to connect to a lost server: doubling, and limited."""
    pause = FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE_S)
