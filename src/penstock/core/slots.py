"""The slots of one channel: places in its memory, by number. What lies there, others know."""

from __future__ import annotations

from enum import Enum
from math import inf


class Slot(Enum):
    FREE = "free"
    RESERVED = "reserved"  # for a batch that is being made, or waits to be tried again
    LENT = "lent"  # with the rank


class Slots:
    """Each slot is free, reserved or lent. Free ones are used again last in, first out.

    The order of the stack is the order in which they became free: those at the bottom have rested
    longest, and give their pages back first.
    """

    __slots__ = ("_free", "_freed", "_used", "lent", "reserved", "state")

    def __init__(self, count: int) -> None:
        self.state = [Slot.FREE] * count
        self._free = list(range(count - 1, -1, -1))
        self._freed = [0.0] * count
        self._used = [False] * count  # since its pages were given back
        self.reserved = 0
        self.lent = 0

    def __repr__(self) -> str:
        held = {n: state.value for n, state in enumerate(self.state) if state is not Slot.FREE}
        resting = {slot: self._freed[slot] for slot in self._free if self._used[slot]}
        return f"Slots({len(self.state)}, held={held}, free={self._free}, resting={resting})"

    @property
    def free(self) -> int:
        return len(self._free)

    def reserve(self) -> int:
        slot = self._free.pop()
        self.state[slot] = Slot.RESERVED
        self.reserved += 1
        self._used[slot] = True
        return slot

    def lend(self, slot: int) -> None:
        self.state[slot] = Slot.LENT
        self.reserved -= 1
        self.lent += 1

    def release(self, slot: int, now: float) -> None:
        """Nothing will come of what was to be written here."""
        self.reserved -= 1
        self._rest(slot, now)

    def take_back(self, slot: int, now: float) -> bool:
        """The rank is done with it; false if the rank did not have it."""
        if not 0 <= slot < len(self.state) or self.state[slot] is not Slot.LENT:
            return False
        self.lent -= 1
        self._rest(slot, now)
        return True

    def rested(self, rest: float) -> float:
        """When the first of the used ones will have been free for so long; infinite if none is."""
        for slot in self._free:
            if self._used[slot]:
                return self._freed[slot] + rest
        return inf

    def trim(self, rest: float, now: float) -> tuple[int, ...]:
        """Those that have been free for so long; each is named once after it was used."""
        rested = [s for s in self._free if self._used[s] and self._freed[s] + rest <= now]
        for slot in rested:
            self._used[slot] = False
        return tuple(rested)

    def _rest(self, slot: int, now: float) -> None:
        self.state[slot] = Slot.FREE
        self._freed[slot] = now
        self._free.append(slot)
