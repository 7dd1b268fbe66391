"""A relay: one remote rank's channel, kept with the hub as a local rank would keep it.

The server is a client of its hub. What the hub says goes to the rank as it is, with the bytes of a
batch as its payload, out of the slot they lie in. What the rank says goes to the hub, once it is
known to be about this channel and about slots that are out. So credits, fairness, epochs and
retries are the hub's, for those who are far as for those who are near.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, TypeAlias

from msgspec import structs

from penstock.client.channel.session import HubSession, close_all
from penstock.errors import ProtocolError
from penstock.server.dist.id_map import IdMap
from penstock.wire.frames import read
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

# Messages on their way to a hub that does not listen, beside one for each slot.
MOST_WAITING: Final = 1024

ForTheRank: TypeAlias = tuple[FromServerToRank, Packed]


class Relay:
    """A registered channel and its rank's credits."""

    def __init__(self, session: HubSession, id_map: IdMap, job: str = "") -> None:
        self._session = session
        self._id_map = id_map
        self._out: set[int] = set()  # slots with batches that the rank has not given back
        self._unsent: set[int] = set()  # those of them of which the rank cannot have all
        self.channel = session.channel
        self.job = job
        self.slots = session.plan.slots
        self.most_bytes = session.plan.most_bytes

    @property
    def credits(self) -> int:
        """How many batches may come before the rank has to give a slot back."""
        return self.slots - len(self._out)

    def fileno(self) -> int:
        """Readable when the hub has said something, or has gone."""
        return self._session.connection.fileno()

    @property
    def pending(self) -> bool:
        """Whether something waits for room on the way to the hub."""
        return self._session.connection.pending

    @property
    def is_overfull(self) -> bool:
        """Whether far more waits on the way to the hub than an honest rank has to say."""
        return self._session.connection.queued > MOST_WAITING + self.slots

    def flush(self) -> None:
        """Sends it, as far as there is room."""
        self._session.connection.flush()

    def forward(self, message: StartEpoch | ReturnSlot | Reweigh) -> None:
        """A word of the rank's, checked. The hub looks at the rest."""
        if message.channel != self.channel:
            raise ProtocolError(f"channel {message.channel} is not this session's")
        if isinstance(message, ReturnSlot):
            if message.slot not in self._out or message.slot in self._unsent:
                raise ProtocolError(f"slot {message.slot} was not with the rank")
            self._out.discard(message.slot)
        self._session.connection.post(message)

    def note_sent(self, slot: int) -> None:
        """The rank may have all of a batch by now: from now on it can give the slot back."""
        self._unsent.discard(slot)

    def hear(self) -> Iterator[ForTheRank]:
        """What the hub has said, for the rank. `ConnectionError` when the hub has gone."""
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
                raise ProtocolError(f"a relay has no use for {type(message).__name__}")

    def _batch(self, ready: BatchReady, fds: list[int]) -> ForTheRank:
        memory = self._session.take(ready, fds).memory()
        self._out.add(ready.slot)
        self._unsent.add(ready.slot)
        if not self._id_map.is_identity:
            self._id_map.to_whole(read(memory, ready.layouts), ready.facts)
        packed = pack_batch(memory, ready.layouts)
        moved = structs.replace(ready, one_off=None, layouts=packed.arrays, nbytes=packed.nbytes)
        return moved, packed

    def close(self) -> None:
        """Gives the channel up: the connection to the hub is the lease. Idempotent."""
        with suppress(OSError):
            self._session.close()
