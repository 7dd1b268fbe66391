"""A session: one channel's registration with one boot of a hub, and the slots that came over it.

When the hub dies, the session is over and another one is made. Batches that came over the old
session stay valid, because they keep its memory mapped. Slots go back from any thread, as soon as
the last view of a batch is gone; see `HubConnection.post`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy.typing as npt

from penstock.client.channel.batch import Batch
from penstock.client.channel.reader import Content
from penstock.client.hub.connection import HubConnection
from penstock.errors import ProtocolError
from penstock.rpc.deadline import Deadline
from penstock.wire.frames import private_copy, read
from penstock.wire.messages import (
    BatchReady,
    Registered,
    ReturnSlot,
    Reweigh,
    SlotPlan,
    StartEpoch,
)
from penstock.workers.arena import Arena, Bytes

# How many slots the hub needs to go on while the reader holds the rest: one that is being filled,
# and one that is ready.
_HUB_KEEPS: Final = 2


class AnyConnection(Protocol):
    """What a channel's reader needs of a connection; see `client.hub.connection`."""

    def wait(self, deadline: Deadline) -> None: ...
    def receive(self) -> list[Any]: ...
    def flush(self) -> None: ...
    @property
    def pending(self) -> bool: ...
    def fileno(self) -> int: ...
    def hang_up(self) -> None: ...


class AnySession(Protocol):
    """A channel that is registered with a hub or with a server."""

    @property
    def connection(self) -> AnyConnection: ...
    @property
    def held(self) -> int: ...
    @property
    def room(self) -> int | None: ...
    def start(self, epoch: int, first: int, first_step: int) -> None: ...
    def reweigh(self, weight: float) -> None: ...
    def take(self, ready: BatchReady, brought: Any) -> Content: ...
    def discard(self, brought: Any) -> None: ...
    def close(self) -> None: ...


class HubSession:
    """A channel that is registered with a hub on this host."""

    def __init__(
        self, connection: HubConnection, registered: Registered, fds: Sequence[int]
    ) -> None:
        self.connection = connection
        self.channel = registered.channel
        if registered.arena is None:
            close_all(fds)
            raise ProtocolError("a hub has registered a channel without memory")
        self._arena = Arena.attach(registered.arena, _only(fds))
        # The slots that the reader holds. Adding to and discarding from a set is atomic.
        self._held: set[int] = set()

    @property
    def plan(self) -> SlotPlan:
        """How many slots there are, and how large a batch may be."""
        return self._arena.plan

    def memory(self, slot: int) -> Bytes:
        """Return the bytes of a slot, for callers that forward a batch unread."""
        return self._arena.memory(slot)

    @property
    def held(self) -> int:
        """How many slots the reader holds."""
        return len(self._held)

    @property
    def room(self) -> int:
        """How many more slots the reader may hold before it gets copies."""
        return self._arena.plan.slots - self.held - _HUB_KEEPS

    def start(self, epoch: int, first: int, first_step: int) -> None:
        """Ask for an epoch."""
        self.connection.post(
            StartEpoch(channel=self.channel, epoch=epoch, first=first, first_step=first_step)
        )

    def reweigh(self, weight: float) -> None:
        """Ask for another share of the workers."""
        self.connection.post(Reweigh(channel=self.channel, weight=weight))

    def give_back(self, slot: int) -> None:
        """Give a slot back to the hub. Safe in any thread, at any time."""
        self._held.discard(slot)
        self.connection.post(ReturnSlot(channel=self.channel, slot=slot))

    def take(self, ready: BatchReady, brought: Sequence[int]) -> ReadyBatch:
        """Return a batch that has come. Takes ownership of the descriptors that it brought."""
        if ready.batch.channel != self.channel or not 0 <= ready.slot < self._arena.plan.slots:
            close_all(brought)
            raise ProtocolError(f"a batch came that cannot be for channel {self.channel}: {ready}")
        if ready.one_off is None:
            close_all(brought)
            return ReadyBatch(self, ready)
        return ReadyBatch(self, ready, Arena.attach_one_off(ready.one_off, _only(brought)))

    def discard(self, brought: Sequence[int]) -> None:
        """Close the descriptors of a message that nobody will hear."""
        close_all(brought)

    def open(
        self, ready: BatchReady, one_off: Arena | None
    ) -> tuple[dict[str, Any], Bytes | None, bool]:
        """Return the arrays of a batch, the slot they are in, and whether they are a private copy.

        A reader that holds many batches gets copies, so that the hub always has slots to fill.
        Memory that was made for this one batch (`one_off`) is never copied.
        """
        slot, spare, memory = ready.slot, self.room > 0, None
        if one_off is not None:
            arrays = self._open_one_off(ready, one_off, lend=spare)
        elif spare:
            self._held.add(slot)
            memory = self._arena.memory(slot)
            arrays = read(self._arena.lend(slot, self.give_back), ready.layouts)
        else:
            try:
                arrays = private_copy(self._arena.memory(slot), ready.layouts)
            finally:  # also if there is no memory for the copy
                self.give_back(slot)
        return arrays, memory, not spare and one_off is None

    def close(self) -> None:
        """End the registration, which lasts as long as the connection. Idempotent.

        The memory stays mapped while it contains a batch that was not fetched.
        """
        self.connection.close()

    def _open_one_off(
        self, ready: BatchReady, one_off: Arena, *, lend: bool
    ) -> dict[str, npt.NDArray[Any]]:
        try:
            if not lend:
                self.give_back(ready.slot)
                return read(one_off.memory(0), ready.layouts)
            self._held.add(ready.slot)
            memory = one_off.lend(0, lambda _: self.give_back(ready.slot))
            return read(memory, ready.layouts)
        finally:
            one_off.close()


@dataclass(frozen=True, slots=True, eq=False)
class ReadyBatch:
    """A batch that has come and was not fetched yet. It is opened or dropped, once."""

    session: HubSession
    ready: BatchReady
    one_off: Arena | None = None

    def open(self) -> Batch:
        """Return the batch for its reader."""
        ready = self.ready
        arrays, memory, copied = self.session.open(ready, self.one_off)
        return Batch(
            arrays=arrays,
            facts=ready.facts,
            epoch=ready.batch.epoch,
            step=ready.batch.step,
            index=ready.index,
            substitute=ready.substitute,
            retries=ready.retries,
            copied=copied,
            cost=ready.cost,
            dtypes={layout.name: layout.dtype for layout in ready.layouts},
            memory=memory,
        )

    def memory(self) -> Bytes:
        """Return the bytes of the batch in place; they stay mapped while a view of them lives."""
        memory = self.session.memory(self.ready.slot) if self.one_off is None else self._taken()
        return memory[: self.ready.nbytes]

    def _taken(self) -> Bytes:
        assert self.one_off is not None
        try:
            return self.one_off.memory(0)
        finally:
            self.one_off.close()

    def drop(self) -> None:
        """Give the slot back, unread."""
        if self.one_off is not None:
            self.one_off.close()
        self.session.give_back(self.ready.slot)


def _only(fds: Sequence[int]) -> int | None:
    if len(fds) > 1:
        close_all(fds)
        raise ProtocolError(f"{len(fds)} descriptors came where one was expected")
    return fds[0] if fds else None


def close_all(fds: Sequence[int]) -> None:
    """Close descriptors that came with a message that nobody wants."""
    for fd in fds:
        with suppress(OSError):
            os.close(fd)
