"""A relay: one remote rank's channel, held at the hub as a local rank would hold it.

The server is a client of its hub. Messages of the hub go to the rank unchanged, with the bytes of a
batch as payload, sent directly from the slot. Messages of the rank go to the hub after a check that
they concern this channel and slots that the rank has. So the hub does credits, fairness, epochs and
retries for remote ranks as for local ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, TypeAlias

from msgspec import structs

from penstock.client.channel.session import HubSession, close_all
from penstock.errors import ProtocolError
from penstock.wire.messages import (
    BatchLost,
    BatchReady,
    ChannelBroken,
    EpochDone,
    FromHubToRank,
    FromServerToRank,
    Refused,
    ReturnSlot,
    Reweigh,
    StartEpoch,
)
from penstock.wire.payload import NOTHING, Packed, pack_batch

# Messages that may be queued for a hub that does not read, in addition to one for each slot.
MOST_WAITING: Final = 1024

ForTheRank: TypeAlias = tuple[FromServerToRank, Packed]


class Relay:
    """A registered channel and its rank's credits."""

    def __init__(self, session: HubSession, job: str = "") -> None:
        self._session = session
        self._out: set[int] = set()  # slots with batches that the rank has not returned
        self._unsent: set[int] = set()  # those of them that are not completely sent yet
        self.channel = session.channel
        self.job = job
        self.slots = session.plan.slots
        self.most_bytes = session.plan.most_bytes

    @property
    def credits(self) -> int:
        """Return how many batches may come before the rank has to return a slot."""
        return self.slots - len(self._out)

    def fileno(self) -> int:
        """Return the descriptor; it is readable when the hub has sent something or has gone."""
        return self._session.connection.fileno()

    @property
    def pending(self) -> bool:
        """Return whether messages to the hub wait for room in the socket."""
        return self._session.connection.pending

    @property
    def is_overfull(self) -> bool:
        """Return whether far more is queued for the hub than a well-behaved rank would send."""
        return self._session.connection.queued > MOST_WAITING + self.slots

    def flush(self) -> None:
        """Send queued messages to the hub, as far as there is room."""
        self._session.connection.flush()

    def forward(self, message: StartEpoch | ReturnSlot | Reweigh) -> None:
        """Check a message of the rank, and send it to the hub, which checks the rest."""
        if message.channel != self.channel:
            raise ProtocolError(f"channel {message.channel} is not this session's")
        if isinstance(message, ReturnSlot):
            if message.slot not in self._out or message.slot in self._unsent:
                raise ProtocolError(f"slot {message.slot} was not with the rank")
            self._out.discard(message.slot)
        self._session.connection.post(message)

    def note_sent(self, slot: int) -> None:
        """Record that all of a batch was sent: from now on the rank may return the slot."""
        self._unsent.discard(slot)

    def hear(self) -> Iterator[ForTheRank]:
        """Yield what the hub has sent, for the rank; `ConnectionError` when the hub has gone."""
        received = self._session.connection.receive()
        try:
            while received:
                message, fds = received.pop(0)
                yield from self._for_the_rank(message, fds)
        finally:
            for _, left in received:
                close_all(left)

    def _for_the_rank(self, message: FromHubToRank, fds: list[int]) -> Iterator[ForTheRank]:
        match message:
            case BatchReady():
                yield self._batch(message, fds)
            case BatchLost() | EpochDone() | ChannelBroken() | Refused():
                close_all(fds)
                yield message, NOTHING
            case _:
                close_all(fds)
                raise ProtocolError(f"a relay cannot handle {type(message).__name__}")

    def _batch(self, ready: BatchReady, fds: list[int]) -> ForTheRank:
        memory = self._session.take(ready, fds).memory()
        self._out.add(ready.slot)
        self._unsent.add(ready.slot)
        packed = pack_batch(memory, ready.layouts)
        moved = structs.replace(ready, one_off=None, layouts=packed.arrays, nbytes=packed.nbytes)
        return moved, packed

    def close(self) -> None:
        """Close the channel: the connection to the hub is its lease. Idempotent."""
        with suppress(OSError):
            self._session.close()
