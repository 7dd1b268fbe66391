"""A queue of due times. It must not know the clock, nor the objects that are due."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    """An object with a due time, which may change at any moment.

    `Timers` owns both fields: `alarm` is the time of its entry, infinite if it has none;
    `alarm_order` is its place among those due at the same time, 0 until it gets one.
    """

    alarm: float
    alarm_order: int

    def due(self) -> float: ...


T = TypeVar("T", bound=Timed)


@dataclass(slots=True, eq=False)
class Timers(Generic[T]):
    """One entry for each object with a finite due time.

    A due time that becomes later (a worker sent a heartbeat) costs nothing: the entry is moved when
    it reaches the head of the heap. Only if it becomes earlier must `arm` be called. The order of
    objects due at the same time does not depend on when `next` was called.
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
        """Return when the first object is due, after moving entries whose due time has changed."""
        heap = self._heap
        while heap:
            at, _, _, owner = heap[0]
            if owner.alarm == at:
                if owner.due() <= at:
                    return at
                owner.alarm = inf
                heappop(heap)
                self.arm(owner)
            else:  # an earlier entry has replaced this one
                heappop(heap)
        return None

    def expired(self, now: float) -> Iterator[T]:
        """Yield each object that is due, once. The caller must move its due time beyond `now`."""
        while (at := self.next()) is not None and at <= now:
            owner = heappop(self._heap)[3]
            owner.alarm = inf
            yield owner
            self.arm(owner)
