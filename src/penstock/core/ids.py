"""A compact set of increasing ids, possibly with gaps: which ones were ever assigned."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Ids:
    """All ids ever added, kept as runs of consecutive ids."""

    _starts: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self._ends[-1] if self._ends else -1

    def add(self, number: int) -> None:
        if self._ends and number == self._ends[-1] + 1:
            self._ends[-1] = number
        else:
            self._starts.append(number)
            self._ends.append(number)

    def __contains__(self, number: int) -> bool:
        run = bisect_right(self._starts, number) - 1
        return run >= 0 and number <= self._ends[run]
