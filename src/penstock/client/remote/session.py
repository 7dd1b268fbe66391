"""A session with a server: one channel's registration with one boot of it.

Batches that come over it are in memory of our own. So a slot is only a credit, and goes back when
its batch is opened; however many batches a reader keeps, nothing comes to a stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.client.channel.batch import Batch
from penstock.errors import ProtocolError
from penstock.rpc.buffer_pool import lasting
from penstock.rpc.connection import RemoteConnection
from penstock.wire.frames import Bytes, read
from penstock.wire.messages import BatchReady, Registered, ReturnSlot, Reweigh, StartEpoch


class RemoteSession:
    """A channel that is registered with a server."""

    def __init__(self, connection: RemoteConnection, registered: Registered) -> None:
        self.connection = connection
        self.channel = registered.channel
        self._slots = registered.slots

    @property
    def held(self) -> int:
        """How many slots the reader holds: always 0."""
        return 0

    @property
    def room(self) -> None:
        """How many more slots the reader may hold: any number."""
        return None

    def start(self, epoch: int, first: int, first_step: int) -> None:
        """Ask for an epoch."""
        self.connection.post(
            StartEpoch(channel=self.channel, epoch=epoch, first=first, first_step=first_step)
        )

    def reweigh(self, weight: float) -> None:
        """Ask for another share of the workers."""
        self.connection.post(Reweigh(channel=self.channel, weight=weight))

    def give_back(self, slot: int) -> None:
        """Give the server one more credit. Safe in any thread, at any time."""
        self.connection.post(ReturnSlot(channel=self.channel, slot=slot))

    def take(self, ready: BatchReady, brought: Any) -> RemoteReadyBatch:
        """Return a batch that has come; its bytes are the memory that it brought."""
        if ready.batch.channel != self.channel or not 0 <= ready.slot < self._slots:
            raise ProtocolError(f"a batch came that cannot be for channel {self.channel}: {ready}")
        return RemoteReadyBatch(self, ready, brought)

    def discard(self, brought: Any) -> None:
        """Forget the memory of a message that nobody will hear."""

    def close(self) -> None:
        """End the registration. Idempotent."""
        self.connection.close()


@dataclass(frozen=True, slots=True, eq=False)
class RemoteReadyBatch:
    """A batch that has come and was not fetched yet. It is opened or dropped, once."""

    session: RemoteSession
    ready: BatchReady
    memory: Bytes

    def open(self) -> Batch:
        """Return the batch for its reader."""
        ready = self.ready
        try:
            arrays = read(self.memory, ready.layouts)
        finally:
            self.session.give_back(ready.slot)
        return Batch(
            arrays=arrays,
            facts=ready.facts,
            epoch=ready.batch.epoch,
            step=ready.batch.step,
            index=ready.index,
            substitute=ready.substitute,
            retries=ready.retries,
            cost=ready.cost,
            dtypes={layout.name: layout.dtype for layout in ready.layouts},
            memory=lasting(self.memory),
        )

    def drop(self) -> None:
        """Give the slot back, unread."""
        self.session.give_back(self.ready.slot)
