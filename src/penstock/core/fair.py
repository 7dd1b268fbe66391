"""Fair shares of a group's time: start-time fair queueing on measured cost.

Every flow has a virtual time: the seconds it was served, divided by its weight. The flow that is
furthest behind is next. The cost of a batch is estimated when it is handed out, and settled when it
is known. This module must not know channels or workers, only flows, seconds and weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar


@dataclass(slots=True, eq=False, kw_only=True)
class Flow:
    """A client of the run queue. `vtime` includes `outstanding`: charged, but not settled."""

    weight: float = 1.0
    vtime: float = 0.0
    outstanding: float = 0.0
    place: int = 0  # the number of its one valid entry in the run queue; 0: none
    stands_at: float = 0.0  # the virtual time of that entry

    def charge(self, seconds: float) -> float:
        """Charge an estimate, and return the virtual time charged, which is settled later."""
        charged = seconds / self.weight
        self.vtime += charged
        self.outstanding += charged
        return charged

    def settle(self, charged: float, served: float, *, last: bool) -> None:
        """Replace the virtual time that was charged by what was really served."""
        self.vtime += served - charged
        # With nothing in flight, nothing is outstanding. Rounding errors must not accumulate.
        self.outstanding = 0.0 if last else self.outstanding - charged


F = TypeVar("F", bound=Flow)


@dataclass(slots=True, eq=False)
class RunQueue(Generic[F]):
    """The flows that could be served now, by virtual time, and by arrival where that is equal.

    A flow has at most one valid entry. When its virtual time changes it gets a new entry; the old
    one is recognised by its number when it reaches the head of the heap, and dropped.
    """

    virtual_now: float = 0.0
    _heap: list[tuple[float, int, F]] = field(default_factory=list)
    _number: int = 0
    _size: int = 0

    def __len__(self) -> int:
        return self._size

    def entries(self) -> tuple[tuple[float, int, F], ...]:
        """Return all entries, including stale ones, for the invariant checks."""
        return tuple(self._heap)

    def wake(self, flow: F) -> None:
        """Add a flow that could not be served until now. It keeps no credit for that time.

        Its virtual time is raised to that of the flow served last, not to that of the flow which
        is next, so a flow that was away no longer than its own batch took loses nothing.
        """
        if flow.vtime < self.virtual_now:
            flow.vtime = self.virtual_now
        self.push(flow)

    def push(self, flow: F) -> None:
        """Add a flow that could be served all the time, without changing its virtual time."""
        self._size += 1
        self._enter(flow)

    def renew(self, flow: F) -> None:
        """Move a queued flow to its place if its virtual time has changed."""
        if flow.vtime != flow.stands_at:
            self._enter(flow)

    def remove(self, flow: F) -> None:
        flow.place = 0
        self._size -= 1

    def pop(self) -> F | None:
        """Remove and return the flow that is next."""
        flow = self._first()
        if flow is None:
            return None
        heappop(self._heap)
        self.remove(flow)
        # Estimates do not count here. If they were too high, a flow that wakes now would have to
        # wait until the flow that gets the refund has caught up.
        self.virtual_now = max(self.virtual_now, flow.vtime - flow.outstanding)
        return flow

    def rebase(self, flows: Iterable[F]) -> None:
        """Make the current virtual time zero. `flows` are all flows, queued or not."""
        shift, self.virtual_now = self.virtual_now, 0.0
        waiting = sorted(entry for entry in self._heap if entry[2].place == entry[1])
        self._heap.clear()
        for flow in flows:
            flow.vtime -= shift
        for _, _, flow in waiting:  # equal ones keep their order
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
    """A running mean: exact over the first `memory` values, then exponentially weighted."""

    memory: int
    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += (value - self.value) / min(self.count, self.memory)
