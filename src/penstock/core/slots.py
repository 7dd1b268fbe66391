"""The slots of one channel: which are free, reserved or lent.

The scheduler tracks slot numbers only; their contents belong to the arena.
"""

from __future__ import annotations

from enum import Enum
from math import inf


class Slot(Enum):
    FREE = "free"
    RESERVED = "reserved"  # for a batch that is being made, or waits to be tried again
    LENT = "lent"  # the rank has it


class Slots:
    """The slots of a channel. Each is free, reserved or lent; free ones are reused LIFO.

    The stack of free slots is in the order in which they became free: those at the bottom have been
    unused longest, and give their pages back first.
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
        """Free a reserved slot whose batch will not be delivered."""
        self.reserved -= 1
        self._rest(slot, now)

    def take_back(self, slot: int, now: float) -> bool:
        """Free a slot that the rank returns; return False if the rank did not have it."""
        if not 0 <= slot < len(self.state) or self.state[slot] is not Slot.LENT:
            return False
        self.lent -= 1
        self._rest(slot, now)
        return True

    def rested(self, rest: float) -> float:
        """Return when the first used slot will have been free for `rest` seconds; else infinity."""
        for slot in self._free:
            if self._used[slot]:
                return self._freed[slot] + rest
        return inf

    def trim(self, rest: float, now: float) -> tuple[int, ...]:
        """Return the slots free for at least `rest` seconds, each once after it was used."""
        rested = [s for s in self._free if self._used[s] and self._freed[s] + rest <= now]
        for slot in rested:
            self._used[slot] = False
        return tuple(rested)

    def _rest(self, slot: int, now: float) -> None:
        self.state[slot] = Slot.FREE
        self._freed[slot] = now
        self._free.append(slot)
