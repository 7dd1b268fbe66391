"""What a channel makes of a hub that says the wrong thing: no wrong batch, no hang, no leak."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from penstock.client.channel.channel import Channel
from penstock.client.channel.session import HubSession
from penstock.errors import HubGone, Overloaded, ProtocolError, SamplingError, WorkerDied
from penstock.wire.messages import (
    BatchId,
    BatchLost,
    ChannelBroken,
    EpochDone,
    Report,
    Resized,
    ReturnSlot,
    StartEpoch,
)
from tests.client.graphs import STEPS, small_graph
from tests.client.scripted import (
    CHANNEL,
    SLOTS,
    Script,
    ScriptedHub,
    bad_layout,
    mark,
    registration,
)

pytestmark = pytest.mark.usefixtures("no_leaks")


@contextmanager
def play(*scripts: Script) -> Iterator[Channel]:
    with small_graph() as graph:
        hub = ScriptedHub(graph, *scripts)
        try:
            with Channel(hub, registration(graph)) as channel:
                yield channel
        finally:
            hub.close()


def returned(slot: int) -> ReturnSlot:
    return ReturnSlot(channel=CHANNEL, slot=slot)


def start(epoch: int, first_step: int = 0) -> StartEpoch:
    return StartEpoch(channel=CHANNEL, epoch=epoch, first_step=first_step)


def test_batches_that_come_out_of_order_are_given_in_order() -> None:
    script = Script()
    with play(script) as channel:
        channel.start(0)
        for slot, step in enumerate([2, 0, 1]):
            script.say(script.ready(step, slot=slot))
        assert [mark(channel.next(10)) for _ in range(3)] == [0, 1, 2]


def test_a_batch_of_an_epoch_that_was_left_goes_straight_back() -> None:
    """CONTRACT 13, 14."""
    script = Script()
    with play(script) as channel:
        channel.start(0)
        script.say(script.ready(0, epoch=0, slot=0))
        channel.start(1)
        script.say(script.ready(1, epoch=0, slot=1))
        script.say(EpochDone(channel=CHANNEL, epoch=0, delivered=0, failed=0, cancelled=9))
        script.say(script.ready(0, epoch=1, slot=2))
        batch = channel.next(10)
        assert mark(batch) == 100
        assert script.hear() == [start(0), start(1), returned(0), returned(1)]


def test_what_had_come_of_an_epoch_that_is_left_goes_back() -> None:
    """CONTRACT 13: its slots are credit for the new one."""
    script = Script()
    with play(script) as channel:
        channel.start(0)
        script.say(script.ready(1, slot=3))
        assert not channel.is_epoch_done(0)
        channel.start(1)
        assert script.hear() == [start(0), returned(3), start(1)]


def test_a_batch_that_comes_twice_is_given_once() -> None:
    """CONTRACT 17."""
    script = Script()
    with play(script) as channel:
        channel.start(0)
        for slot, step in enumerate([0, 0, 1]):
            script.say(script.ready(step, slot=slot))
        found = [channel.next(10), channel.next(10)]
        assert [mark(batch) for batch in found] == [0, 1]
        assert returned(1) in script.hear()


def test_an_epoch_that_is_called_done_too_early_is_an_error_and_goes_on() -> None:
    """CONTRACT 17: the counts are checked; what is missing is asked for again."""
    first, second = Script(), Script()
    with play(first, second) as channel:
        channel.start(0)
        first.say(first.ready(0))
        first.say(EpochDone(channel=CHANNEL, epoch=0, delivered=1, failed=0, cancelled=0))
        with pytest.raises(ProtocolError, match="missing"):
            channel.next(10)
        second.say(second.ready(1))
        assert [mark(channel.next(10)) for _ in range(2)] == [0, 1]
        assert second.hear()[0] == start(0, first_step=1)


@pytest.mark.parametrize(
    "wrong", [{"batch": BatchId(CHANNEL + 1, 0, 0)}, {"slot": SLOTS}, {"slot": -1}]
)
def test_a_batch_that_cannot_be_ours_is_an_error_and_the_line_is_replaced(
    wrong: dict[str, Any],
) -> None:
    first, second = Script(), Script()
    with play(first, second) as channel:
        channel.start(0)
        first.say(msgspec.structs.replace(first.ready(0), **wrong))
        with pytest.raises(ProtocolError, match="cannot be for channel 7"):
            channel.next(10)
        second.say(second.ready(0))
        assert mark(channel.next(10)) == 0


def test_a_layout_that_reaches_outside_its_slot_is_an_error_for_that_batch() -> None:
    script = Script()
    with play(script) as channel:
        channel.start(0)
        script.say(script.ready(0, layouts=bad_layout()))
        script.say(script.ready(1, slot=1))
        with pytest.raises(ProtocolError, match="'mark'"):
            channel.next(10)
        assert mark(channel.next(10)) == 1
        assert script.hear() == [start(0), returned(0), returned(1)]


def test_a_batch_that_cannot_be_copied_gives_its_slot_back() -> None:
    """CONTRACT 23: or a reader that holds on to its batches would be left without any."""
    script = Script()
    with play(script) as channel:
        channel.start(0)
        for step in range(SLOTS - 2):
            script.say(script.ready(step, slot=step))
        held = [channel.next(10) for _ in range(SLOTS - 2)]
        script.say(script.ready(SLOTS - 2, slot=SLOTS - 1, layouts=bad_layout()))
        with pytest.raises(ProtocolError, match="'mark'"):
            channel.next(10)
        assert script.hear() == [start(0), returned(SLOTS - 1)]
        assert [mark(batch) for batch in held] == [0, 1]


def test_words_for_somebody_else_are_an_error_and_the_line_is_replaced() -> None:
    first, second = Script(), Script()
    with play(first, second) as channel:
        channel.start(0)
        first.say(Resized(request=9, workers=1))
        with pytest.raises(ProtocolError, match="Resized"):
            channel.next(10)
        second.say(second.ready(0))
        assert mark(channel.next(10)) == 0
        assert channel.statistics().recoveries == 1


def test_a_batch_that_will_not_come_is_raised_with_its_name_and_details() -> None:
    """CONTRACT 19: for its step; the following call goes on."""
    script = Script()
    report = Report(kind="WorkerDied", message="it died", details={"pid": 5})
    with play(script) as channel:
        channel.start(0)
        script.say(script.ready(1, slot=1))
        script.say(BatchLost(batch=BatchId(CHANNEL, 0, 0), index=0, report=report))
        with pytest.raises(WorkerDied, match="it died") as caught:
            channel.next(10)
        assert caught.value.details == {"pid": 5}
        assert caught.value.__notes__ == ["epoch 0, step 0, batch 0 of channel 'play'"]
        assert mark(channel.next(10)) == 1


def test_a_channel_that_nobody_can_serve_says_so_until_a_new_epoch() -> None:
    """CONTRACT 53: with the cause; a later epoch may be tried."""
    script = Script()
    report = Report(kind="SamplingError", message="no worker can be started")
    with play(script) as channel:
        channel.start(0)
        script.say(script.ready(0))
        script.say(ChannelBroken(channel=CHANNEL, epoch=0, report=report))
        assert mark(channel.next(10)) == 0
        for _ in range(2):
            with pytest.raises(SamplingError, match="no worker"):
                channel.next(10)
        assert channel.is_epoch_done(0)
        channel.start(1)
        script.say(script.ready(0, epoch=1, slot=1))
        assert mark(channel.next(10)) == 100


def test_a_refused_registration_is_raised_as_what_it_says() -> None:
    """CONTRACT 53: refused at the door, with a clear error."""
    report = Report(kind="Overloaded", message="too many channels (setting: max_channels)")
    with pytest.raises(Overloaded, match="max_channels"), play(Script(refusal=report)):
        pass


def test_a_hub_of_another_version_is_not_spoken_to() -> None:
    with pytest.raises(ProtocolError, match="protocol 99"), play(Script(protocol=99)):
        pass


def test_a_hub_that_hangs_up_is_replaced_until_hope_ends() -> None:
    """CONTRACT 22."""
    first, second = Script(), Script()
    with play(first, second) as channel:
        channel.start(0)
        first.say(first.ready(0))
        first.stream.close()
        second.say(second.ready(1))
        assert [mark(channel.next(10)) for _ in range(2)] == [0, 1]
        assert second.hear()[0] == start(0, first_step=1)
        second.stream.close()
        with pytest.raises(HubGone, match="the play is over"):
            channel.next(10)
        assert channel.statistics().due == 2
        assert channel.statistics().total == STEPS


def test_who_only_looks_waits_a_moment_for_a_hub_that_does_not_answer() -> None:
    """CONTRACT 22, 26: a longer one each time, until a hub was found."""
    first, mute, third = Script(), Script(mute=True), Script()
    with play(first, mute, third) as channel:
        channel.start(0)
        first.say(first.ready(0))
        assert not channel.is_epoch_done(0)
        first.stream.close()
        channel._moment = moment = 0.01
        assert not channel.is_epoch_done(0)
        assert channel._moment == 2 * moment
        assert mark(channel.next(0)) == 0  # it had come
        channel._moment = 10.0
        assert not channel.is_epoch_done(0)
        assert third.hear()[0] == start(0, first_step=1)
        assert channel._moment == 1.0


def test_an_interrupt_while_another_hub_is_found_leaves_no_line_on_which_nothing_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, third = Script(), Script(), Script()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with play(first, second, third) as channel:
        channel.start(0)
        first.stream.close()
        with monkeypatch.context() as patched:
            patched.setattr(HubSession, "start", interrupt)
            with pytest.raises(KeyboardInterrupt):
                channel.next(10)
        third.say(third.ready(0))
        assert mark(channel.next(10)) == 0
        assert third.hear()[0] == start(0)
