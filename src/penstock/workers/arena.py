"""A channel's memory: one sparse mapping, cut into slots, in each of which one batch can lie.

    hub      arena = Arena.create(slots, slot_bytes, most_bytes)
             send(arena.plan, fds=arena.descriptors)    # to the rank, and to every worker
    worker   memory = Arena.attach(plan, fd).memory(slot)
    rank     memory = Arena.attach(plan, fd).lend(slot, give_back)

Who may touch a slot is said by messages, not here: no lock lies in the memory, so a process killed
at any instruction leaves nothing locked. Slots are generously sized, since untouched pages cost
nothing; `trim` gives those of a slot back.

Guard. Behind every slot lies a stretch that no process can touch: a kernel that runs past the end
of its slot dies there (SIGSEGV), before it has changed a byte of a neighbour. That costs address
space only, and nothing per batch.

Ownership. The hub keeps one descriptor per arena; whoever attaches keeps none. The mapping lives as
long as any view of it, also after `close()`.

Huge pages are not asked for: the arrays of a batch lie apart, each in room for the largest there
could be, and every one of them would hold up to 2 MiB that it does not need (ten arrays of 100 KiB
hold 1 MB without, 20 MB with).
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from penstock.errors import ProtocolError
from penstock.graph.handles import SegmentHandle
from penstock.graph.mapping import forbid_access, give_pages_back
from penstock.graph.segment import Segment
from penstock.wire.messages import SlotPlan

Bytes = npt.NDArray[np.uint8]

# More than a page, so that one long row cannot leap over it.
GUARD: Final = 1 << 20


class Arena:
    """Slots in shared memory. Made by `create`, `attach`, or the `one_off` pair."""

    def __init__(self, plan: SlotPlan, segment: Segment) -> None:
        self._plan = plan
        self._segment = segment
        data = segment.view("uint8", segment.nbytes)
        stride = plan.slot_bytes + GUARD
        self._slots = [data[at : at + plan.slot_bytes] for at in range(0, data.nbytes, stride)]
        for at in range(plan.slot_bytes, data.nbytes, stride):
            forbid_access(data[at : at + GUARD])

    @classmethod
    def create(
        cls, slots: int, slot_bytes: int, most_bytes: int, *, kind: str | None = None
    ) -> Self:
        """A new arena; `slot_bytes` is rounded up to whole pages. `kind`: see `Segment.create`."""
        _check_at_least_one(slots=slots, slot_bytes=slot_bytes)
        slot_bytes = -(-slot_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        segment = Segment.create(_total(slots, slot_bytes), kind=kind, sparse=True)
        plan = SlotPlan(
            memory=segment.handle,
            slots=slots,
            slot_bytes=slot_bytes,
            most_bytes=max(most_bytes, slot_bytes),
        )
        return cls._over(plan, segment)

    @classmethod
    def attach(cls, plan: SlotPlan, fd: int | None) -> Self:
        """The arena another process planned, writable. Takes `fd` over and closes it."""
        return cls._over(plan, Segment.attach(plan.memory, fd, writable=True, sparse=True))

    @classmethod
    def one_off(cls, nbytes: int, *, kind: str | None = None) -> Self:
        """Memory for one batch that is too large for a slot, as slot 0.

        Its maker sends `plan.memory` and the descriptor, and may close it then.
        """
        return cls.create(1, max(nbytes, 1), nbytes, kind=kind)

    @classmethod
    def attach_one_off(cls, handle: SegmentHandle, fd: int | None) -> Self:
        """What `one_off` made elsewhere. Takes `fd` over and closes it."""
        segment = Segment.attach(handle, fd, writable=True, sparse=True)
        room = segment.nbytes - GUARD
        plan = SlotPlan(memory=handle, slots=1, slot_bytes=room, most_bytes=max(room, 0))
        return cls._over(plan, segment)

    @classmethod
    def _over(cls, plan: SlotPlan, segment: Segment) -> Self:
        try:
            _check_plan(plan, segment.nbytes)
            return cls(plan, segment)
        except BaseException:
            segment.close()
            raise

    @property
    def plan(self) -> SlotPlan:
        """What another process needs to attach, together with `descriptors`."""
        return self._plan

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What must travel with the plan; in the creator only, and its own: do not close them."""
        return self._segment.descriptors

    @property
    def resident(self) -> int:
        """Bytes of memory that the arena takes up now, in all its slots. The creator knows."""
        # st_blocks counts in 512 bytes, whatever the size of a page.
        return os.fstat(self._segment.fileno()).st_blocks * 512

    def memory(self, slot: int) -> Bytes:
        """The bytes of a slot, all of them and no others; writable."""
        return np.asarray(_Window(self._slot(slot)))

    def lend(self, slot: int, give_back: Callable[[int], object]) -> Bytes:
        """As `memory`; calls `give_back(slot)` when the last view of it has gone.

        Views are arrays, and tensors, made from it in whatever way. It is called once, by whichever
        thread lets go last, possibly in the middle of anything else that thread does; also
        after `close()`. It is not called at interpreter exit, nor in a forked child.
        """
        window = _Window(self._slot(slot))
        memory: Bytes = np.asarray(window)
        # At exit views may still be read; the connection's end gives all slots back.
        weakref.finalize(window, _give_back, give_back, slot, os.getpid()).atexit = False
        return memory

    def trim(self, slots: Iterable[int]) -> None:
        """Gives the pages of these slots, in which no batch lies, back to the system."""
        for slot in slots:
            give_pages_back(self._slot(slot))

    def close(self) -> None:
        """Lets go of the mapping, and of the creator's descriptor. Views that live stay valid."""
        self._slots.clear()
        self._segment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        plan = self._plan
        return f"<{type(self).__name__} of {plan.slots} slots of {plan.slot_bytes} bytes>"

    def _slot(self, slot: int) -> Bytes:
        if self._segment.closed:
            raise ValueError("this arena has been closed")
        if not 0 <= slot < self._plan.slots:
            raise ValueError(f"slot is {slot}: there are {self._plan.slots}")
        return self._slots[slot]


class _Window:
    """What arrays over a slot hold on to; it shows NumPy the slot and nothing around it.

    An array made by slicing would have the whole mapping as its base.
    """

    def __init__(self, memory: Bytes) -> None:
        self._memory = memory  # keeps the mapping
        self.__array_interface__: dict[str, Any] = memory.__array_interface__


def _give_back(give_back: Callable[[int], object], slot: int, lender: int) -> None:
    # A forked child has inherited the loan, but the slot is not its to return.
    if os.getpid() == lender:
        give_back(slot)


def _total(slots: int, slot_bytes: int) -> int:
    return slots * (slot_bytes + GUARD)


def _check_at_least_one(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} is {number}: it must be at least 1")


def _check_plan(plan: SlotPlan, nbytes: int) -> None:
    whole = plan.slots > 0 and plan.slot_bytes > 0 and plan.slot_bytes % mmap.PAGESIZE == 0
    if not whole or _total(plan.slots, plan.slot_bytes) != nbytes:
        raise ProtocolError(
            f"{plan.slots} slots of {plan.slot_bytes} bytes are not what {nbytes} bytes hold"
        )
