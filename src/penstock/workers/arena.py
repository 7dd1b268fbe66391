"""A channel's memory: one sparse mapping, cut into slots; each slot can hold one batch.

    hub      arena = Arena.create(slots, slot_bytes, most_bytes)
             send(arena.plan, fds=arena.descriptors)    # to the rank, and to every worker
    worker   memory = Arena.attach(plan, fd).memory(slot)
    rank     memory = Arena.attach(plan, fd).lend(slot, give_back)

Messages decide who may touch a slot, not this module. There is no lock in the memory, so a process
killed at any instruction leaves nothing locked. Slots are large, since untouched pages cost
nothing; `trim` gives the pages of a slot back.

Guard. Behind every slot lies a range that no process can access: a kernel that writes past the end
of its slot dies there (SIGSEGV) before it changes a byte of the next slot. That costs address space
only, and nothing per batch.

Ownership. The hub keeps one descriptor per arena; processes that attach keep none. The mapping
lives as long as any view of it, even after `close()`.

Huge pages are not used: each array of a batch has room for the largest possible one, so every array
would hold up to 2 MiB that it does not need (ten arrays of 100 KiB take 1 MB without, 20 MB with).
"""

from __future__ import annotations

import mmap
import os
import sys
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

# More than a page, so that one long row cannot skip it.
GUARD: Final = 1 << 20


class Arena:
    """Slots in shared memory. Made by `create`, `attach`, or the `one_off` pair."""

    def __init__(self, plan: SlotPlan, segment: Segment) -> None:
        self._plan = plan
        self._segment = segment
        data = segment.view("uint8", segment.nbytes)
        stride = plan.slot_bytes + GUARD
        self._slots: list[Bytes] = [
            np.asarray(_Window(data[at : at + plan.slot_bytes]))
            for at in range(0, data.nbytes, stride)
        ]
        for at in range(plan.slot_bytes, data.nbytes, stride):
            forbid_access(data[at : at + GUARD])

    @classmethod
    def create(
        cls, slots: int, slot_bytes: int, most_bytes: int, *, kind: str | None = None
    ) -> Self:
        """Make an arena; rounds `slot_bytes` up to whole pages. `kind`: see `Segment.create`."""
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
        """Map an arena that another process made, writable. Takes over `fd` and closes it."""
        return cls._over(plan, Segment.attach(plan.memory, fd, writable=True, sparse=True))

    @classmethod
    def one_off(cls, nbytes: int, *, kind: str | None = None) -> Self:
        """Make memory for one batch that is too large for a slot; it is slot 0.

        The process that makes it sends `plan.memory` and the descriptor, and may close it after
        that.
        """
        return cls.create(1, max(nbytes, 1), nbytes, kind=kind)

    @classmethod
    def attach_one_off(cls, handle: SegmentHandle, fd: int | None) -> Self:
        """Map what `one_off` made in another process. Takes over `fd` and closes it."""
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
        """Return what another process needs to attach, together with `descriptors`."""
        return self._plan

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors to send with the plan, in the creator only. Do not close them."""
        return self._segment.descriptors

    @property
    def resident(self) -> int:
        """Return the bytes of memory that all slots take up now; only in the creator."""
        # st_blocks counts units of 512 bytes, whatever the page size.
        return os.fstat(self._segment.fileno()).st_blocks * 512

    def memory(self, slot: int) -> Bytes:
        """Return exactly the bytes of a slot, writable."""
        return self._slot(slot)

    def lend(self, slot: int, give_back: Callable[[int], object]) -> Bytes:
        """Return the bytes of a slot; call `give_back(slot)` when the last view of them has gone.

        Views are arrays and tensors made from it in any way. `give_back` is called once, by the
        thread that drops the last view, possibly in the middle of other work of that thread; also
        after `close()`. It is not called at interpreter exit, nor in a forked child.
        """
        return np.asarray(_Loan(self._slot(slot), give_back, slot))

    def trim(self, slots: Iterable[int]) -> None:
        """Give the pages of these slots back to the system; there must be no batch in them."""
        for slot in slots:
            give_pages_back(self._slot(slot))

    def close(self) -> None:
        """Release the mapping and the creator's descriptor. Existing views stay valid."""
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
    """The base object of arrays over a slot; it shows NumPy the slot and nothing around it.

    An array made by slicing would have the whole mapping as its base.
    """

    __slots__ = ("__array_interface__", "_memory")

    def __init__(self, memory: Bytes) -> None:
        self._memory = memory  # keeps the mapping alive
        self.__array_interface__: dict[str, Any] = memory.__array_interface__


class _Loan(_Window):
    """The base object of arrays over a slot that is given back when the last of them is gone."""

    __slots__ = ("_give_back", "_lender", "_slot")

    def __init__(self, memory: Bytes, give_back: Callable[[int], object], slot: int) -> None:
        super().__init__(memory)
        self._give_back = give_back
        self._slot = slot
        self._lender = os.getpid()  # last: an interrupt may have come before

    # The functions are arguments because at exit the modules may be gone before the last view.
    def __del__(
        self,
        is_exiting: Callable[[], bool] = sys.is_finalizing,
        process: Callable[[], int] = os.getpid,
    ) -> None:
        # At exit the end of the connection returns all slots. A forked child inherits the view, but
        # must not return the slot.
        if not is_exiting() and process() == getattr(self, "_lender", None):
            self._give_back(self._slot)


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
