"""Fair shares of a group's time: start-time fair queueing on measured cost.

Every flow has a virtual time: the seconds it was served, divided by its weight. The flow that is
furthest behind is next. What a batch will cost is estimated when it is handed out and settled when
it is known. This module knows neither channels nor workers, only flows, seconds and weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar


@dataclass(slots=True, eq=False, kw_only=True)
class Flow:
    """One that takes turns. `vtime` contains `outstanding`: what was charged and is not settled."""

    weight: float = 1.0
    vtime: float = 0.0
    outstanding: float = 0.0
    place: int = 0  # the number of its one valid entry in the run queue; 0: it is not there
    stands_at: float = 0.0  # the virtual time of that entry

    def charge(self, seconds: float) -> float:
        """Count an estimate, and say how much virtual time that was, to be settled later."""
        charged = seconds / self.weight
        self.vtime += charged
        self.outstanding += charged
        return charged

    def settle(self, charged: float, served: float, *, last: bool) -> None:
        """Put what was really served (virtual time) in the place of what was charged for it."""
        self.vtime += served - charged
        # With nothing in flight nothing is outstanding: rounding must not pile up over the years.
        self.outstanding = 0.0 if last else self.outstanding - charged


F = TypeVar("F", bound=Flow)


@dataclass(slots=True, eq=False)
class RunQueue(Generic[F]):
    """The flows that could be served now, least virtual time first, equals in order of arrival.

    A flow has at most one valid entry. One whose virtual time changes gets a new entry; the old one
    is recognised by its number when it comes up, and dropped.
    """

    virtual_now: float = 0.0
    _heap: list[tuple[float, int, F]] = field(default_factory=list)
    _number: int = 0
    _size: int = 0

    def __len__(self) -> int:
        return self._size

    def entries(self) -> tuple[tuple[float, int, F], ...]:
        """All entries, the dead ones too, for those who check."""
        return tuple(self._heap)

    def wake(self, flow: F) -> None:
        """A flow that could not be served comes (back): it has nothing saved up.

        It is measured by whoever was served last, not by whoever is next: one that was asleep for
        no longer than its own batch took has lost nothing.
        """
        if flow.vtime < self.virtual_now:
            flow.vtime = self.virtual_now
        self.push(flow)

    def push(self, flow: F) -> None:
        """A flow that never slept stands in line again, with all that it is owed."""
        self._size += 1
        self._enter(flow)

    def renew(self, flow: F) -> None:
        """The virtual time of a flow in the queue may have changed."""
        if flow.vtime != flow.stands_at:
            self._enter(flow)

    def remove(self, flow: F) -> None:
        flow.place = 0
        self._size -= 1

    def pop(self) -> F | None:
        """The flow that is next, taken out of the queue."""
        flow = self._first()
        if flow is None:
            return None
        heappop(self._heap)
        self.remove(flow)
        # Estimates do not count here: were they too high, whoever came now would have to wait until
        # the one that is refunded has caught up.
        self.virtual_now = max(self.virtual_now, flow.vtime - flow.outstanding)
        return flow

    def rebase(self, flows: Iterable[F]) -> None:
        """Count virtual time from here. `flows`: all there are, in the queue or not."""
        shift, self.virtual_now = self.virtual_now, 0.0
        waiting = sorted(entry for entry in self._heap if entry[2].place == entry[1])
        self._heap.clear()
        for flow in flows:
            flow.vtime -= shift
        for _, _, flow in waiting:  # equals stay in their order
            self._enter(flow)

    def _enter(self, flow: F) -> None:
        self._number += 1
        flow.place, flow.stands_at = self._number, flow.vtime
        heappush(self._heap, (flow.vtime, self._number, flow))
        if len(self._heap) > 2 * self._size + 64:
            self._heap = [entry for entry in self._heap if entry[2].place == entry[1]]
            heapify(self._heap)

    def _first(self) -> F | None:
        heap = self._heap
        while heap:
            _, number, flow = heap[0]
            if flow.place == number:
                return flow
            heappop(heap)
        return None


@dataclass(slots=True, eq=False)
class Mean:
    """A running mean that forgets: of the first `memory` values exactly, then exponentially."""

    memory: int
    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += (value - self.value) / min(self.count, self.memory)
