"""Who has to be looked at, and when. Knows no clock, and nothing of those it wakes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    """Something with a time at which it is due, which may move at any moment.

    Both fields belong to `Timers`: the time of its entry, infinite if it has none, and its place
    among those due at the same moment, 0 as long as it has none.
    """

    alarm: float
    alarm_order: int

    def due(self) -> float: ...


T = TypeVar("T", bound=Timed)


@dataclass(slots=True, eq=False)
class Timers(Generic[T]):
    """One entry for each that is due some day.

    A due time that moves back (a worker gave a sign of life) costs nothing: the entry is moved when
    it comes up. Only one that moves forward must be told with `arm`. In which order those due at
    the same moment come does not depend on when anybody looked.
    """

    _heap: list[tuple[float, int, int, T]] = field(default_factory=list)
    _number: int = 0
    _owners: int = 0

    def arm(self, owner: T) -> None:
        due = owner.due()
        if due < owner.alarm:
            owner.alarm = due
            if not owner.alarm_order:
                self._owners += 1
                owner.alarm_order = self._owners
            self._number += 1
            heappush(self._heap, (due, owner.alarm_order, self._number, owner))

    def next(self) -> float | None:
        """When the first one is due; what has moved meanwhile is put where it belongs."""
        heap = self._heap
        while heap:
            at, _, _, owner = heap[0]
            if owner.alarm == at:
                if owner.due() <= at:
                    return at
                owner.alarm = inf
                heappop(heap)
                self.arm(owner)
            else:  # an earlier entry has taken its place
                heappop(heap)
        return None

    def expired(self, now: float) -> Iterator[T]:
        """Each that is due, once. Whoever handles it must have moved its due time beyond now."""
        while (at := self.next()) is not None and at <= now:
            owner = heappop(self._heap)[3]
            owner.alarm = inf
            yield owner
            self.arm(owner)
