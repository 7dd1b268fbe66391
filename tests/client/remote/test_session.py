"""A channel's registration with a server: its batches, and the slots that they hold there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from penstock.client.remote.session import RemoteSession
from penstock.errors import ProtocolError
from penstock.wire.messages import (
    ArrayLayout,
    BatchId,
    BatchReady,
    Goodbye,
    Registered,
    ReturnSlot,
    Reweigh,
    StartEpoch,
)
from penstock.wire.payload import pack
from tests.rpc.puppets import CHANNEL, MOST_BYTES, SLOTS, Puppet, ready, registered, soon


@pytest.fixture
def session(server: Puppet) -> Iterator[RemoteSession]:
    told = Registered(request=1, channel=CHANNEL, slots=SLOTS, most_bytes=MOST_BYTES)
    with registered(server) as connection:
        yield RemoteSession(connection, told)


def received(session: RemoteSession) -> tuple[Any, Any]:
    session.connection.wait(soon())
    (found,) = session.connection.receive()
    return found


def test_a_batch_has_its_arrays_and_its_slot_goes_back_when_it_is_opened(
    server: Puppet, session: RemoteSession
) -> None:
    """CONTRACT 9: however long the reader holds on to it."""
    packed = pack({"n_id": np.arange(5), "x": np.ones((5, 2), np.float32)})
    said = BatchReady(
        batch=BatchId(CHANNEL, 0, 0),
        index=9,
        slot=3,
        layouts=packed.arrays,
        nbytes=packed.nbytes,
        facts={"batch_size": 5},
    )
    server.say(said, b"".join(packed.views))
    ready_batch = session.take(*received(session))
    assert server.is_quiet()
    batch = ready_batch.open()
    assert server.hear(ReturnSlot) == ReturnSlot(channel=CHANNEL, slot=3)
    assert np.array_equal(batch["n_id"], np.arange(5))
    assert np.array_equal(batch["x"], np.ones((5, 2)))
    assert (batch.epoch, batch.step, batch.index) == (0, 0, 9)
    assert batch.facts == {"batch_size": 5}
    assert session.held == 0


def test_a_slot_goes_back_when_its_batch_is_dropped(server: Puppet, session: RemoteSession) -> None:
    server.say(ready(0, slot=2))
    session.take(*received(session)).drop()
    assert server.hear(ReturnSlot).slot == 2


def test_a_slot_goes_back_though_its_arrays_make_no_sense(
    server: Puppet, session: RemoteSession
) -> None:
    lie = ArrayLayout("x", "int64", (100,), 0)
    said = BatchReady(batch=BatchId(CHANNEL, 0, 0), index=0, slot=1, layouts=(lie,), nbytes=8)
    server.say(said, bytes(8))
    ready_batch = session.take(*received(session))
    with pytest.raises(ProtocolError, match="ends at 800"):
        ready_batch.open()
    assert server.hear(ReturnSlot).slot == 1


@pytest.mark.parametrize(("channel", "slot"), [(CHANNEL + 1, 0), (CHANNEL, -1), (CHANNEL, SLOTS)])
def test_a_batch_of_another_channel_or_slot_makes_no_sense(
    session: RemoteSession, channel: int, slot: int
) -> None:
    other = BatchReady(batch=BatchId(channel, 0, 0), index=0, slot=slot, layouts=(), nbytes=0)
    with pytest.raises(ProtocolError, match=f"cannot be for channel {CHANNEL}"):
        session.take(other, np.zeros(0, np.uint8))


def test_an_epoch_is_asked_for_and_a_share_of_the_workers(
    server: Puppet, session: RemoteSession
) -> None:
    session.start(3, 2, 1)
    asked = StartEpoch(channel=CHANNEL, epoch=3, first=2, first_step=1)
    assert server.hear(StartEpoch) == asked
    session.reweigh(2.5)
    assert server.hear(Reweigh) == Reweigh(channel=CHANNEL, weight=2.5)


def test_closing_takes_leave_and_slots_that_come_back_later_are_not_said(
    server: Puppet, session: RemoteSession
) -> None:
    session.close()
    session.close()
    session.give_back(1)
    assert server.wait_for_end() == [Goodbye()]
