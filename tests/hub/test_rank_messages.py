"""What a rank may not say: refused, or the end of its connection; and of no other."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.graph.handles import ArrayHandle, FileHandle
from penstock.graph.shared import SharedArray
from penstock.hub.connection import AT_ONCE, ENOUGH
from penstock.hub.rank_messages import MOST_WAITING
from penstock.sampling.spec import CustomSpec, NeighborSpec
from penstock.wire import framing
from penstock.wire.framing import head
from penstock.wire.messages import (
    PROTOCOL,
    AskStatistics,
    AskWorkers,
    BackendCreated,
    CreateBackend,
    EpochDone,
    FromRankToHub,
    Hello,
    HubConfig,
    Refused,
    Register,
    Resize,
    Resized,
    ReturnSlot,
    Reweigh,
    StartEpoch,
    Statistics,
    Stop,
    Unregister,
)
from tests.hub.raw import SPEC, HubProcess, Rank, feed, running_hub, small_graph
from tests.processes import stopped
from tests.wishes import register

pytestmark = pytest.mark.usefixtures("no_leaks")


@contextmanager
def resting_hub(**more: Any) -> Iterator[tuple[HubProcess, Rank]]:
    """A hub with a pool that is never started, and a rank that joined it."""
    with running_hub(workers=0, **more) as hub, Rank.join(hub.address) as rank:
        yield hub, rank


@pytest.fixture(scope="module")
def shared_hub() -> Iterator[HubProcess]:
    """A hub for tests that must leave it as it was."""
    with running_hub(workers=0) as hub:
        yield hub


def ends_with(rank: Rank, complaint: str) -> None:
    """The hub must say what was wrong and close the connection."""
    *_, last = rank.waits_for_end()
    assert isinstance(last, Refused)
    assert last.request == 0
    assert last.report.kind == "ProtocolError"
    assert complaint in last.report.message


def open_files(hub: HubProcess) -> int:
    """How many descriptors the hub has open, once it is done with what it heard before."""
    hub.founder.statistics()
    return len(os.listdir(f"/proc/{hub.process.pid}/fd"))


# --- refused, with the reason -----------------------------------------------------------------


def test_specs_are_checked_when_the_backend_is_made() -> None:
    """CONTRACT 61."""
    with resting_hub() as (_, rank):
        bad = NeighborSpec(num_neighbors=(3,), node_attributes=("nope",))
        refusal = rank.refusal(CreateBackend(request=0, spec=bad))
        assert refusal.startswith("ValueError: node_attributes names 'nope'")
        assert rank.backend(SPEC) == 1  # it goes on


def test_equal_specs_have_one_backend() -> None:
    with resting_hub() as (hub, rank):
        backend = rank.backend(SPEC)
        assert hub.founder.backend(NeighborSpec(num_neighbors=(3, 2))) == backend
        assert rank.backend(NeighborSpec(num_neighbors=(3, 3))) != backend


def test_an_unknown_kind_of_spec_is_refused_when_the_backend_is_made(
    shared_hub: HubProcess,
) -> None:
    """CONTRACT 61: an unknown kind is refused, not found out by the first batch."""
    raw = msgspec.to_builtins(CreateBackend(request=1, spec=SPEC))
    raw["spec"]["type"] = "walks"
    with Rank.join(shared_hub.address) as rank:
        os.write(rank.stream.fileno(), head(msgspec.msgpack.encode(raw)))
        ends_with(rank, "walks")


@pytest.mark.parametrize(
    ("wishes", "complaint"),
    [
        ({"backend": 10**6}, "KeyError: there is no backend 1000000"),
        ({"slots": 0}, "ValueError: slots is 0"),
        ({"slots": 10**6}, "ValueError: slots is 1000000"),
        ({"slots": -1}, "ValueError: slots is -1"),
        ({"buffer_size": -5}, "ValueError: buffer_size is -5"),
        ({"buffer_size": 0}, "ValueError: buffer_size is 0"),
        ({"max_batch_bytes": -1}, "ValueError: max_batch_bytes is -1"),
        ({"weight": 0.0}, "ValueError: weight is 0.0"),
        ({"weight": 1e9}, "ValueError: weight is 1000000000.0; expected 0.0001 to 10000"),
        ({"weight": math.inf}, "ValueError: weight is inf"),
        ({"weight": math.nan}, "ValueError: weight is nan"),
        ({"deadline": -1.0}, "ValueError: deadline is -1.0"),
        ({"deadline": 0.0}, "ValueError: deadline is 0.0"),
        ({"max_attempts": 0}, "ValueError: max_attempts is 0"),
        ({"max_substitutes": -1}, "ValueError: max_substitutes is -1"),
        (
            {"on_error": "substitute", "max_substitutes": 0},
            "ValueError: max_substitutes is 0; expected at least 1",
        ),
        ({"retry_errors": -1}, "ValueError: retry_errors is -1; expected 0 to 1000"),
        ({"on_error": "ignore"}, "on_error is 'ignore'; expected 'raise' or 'substitute'"),
        ({"rank": 2, "world_size": 2}, "ValueError: rank is 2"),
        ({"rank": -1, "world_size": 2}, "ValueError: rank is -1"),
        ({"world_size": 0}, "ValueError: world_size must be at least 1"),
        ({"remainder": "pad"}, "remainder is 'pad'; expected 'wrap' or 'drop'"),
        ({"feed": feed(-1)}, "ValueError: num_inputs must be at least 0"),
        ({"feed": feed(4, 0)}, "ValueError: batch_size must be at least 1"),
        ({"feed": feed(201)}, "ValueError: num_inputs is 201; there are 200 nodes"),
        ({"feed": feed(node_type="paper")}, "ValueError: node_type is 'paper'"),
        ({"feed": feed(seed=-1)}, "ValueError: seed is -1"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(
    shared_hub: HubProcess, wishes: dict[str, Any], complaint: str
) -> None:
    """CONTRACT 32: and leave nothing behind."""
    with Rank.join(shared_hub.address) as rank:
        backend = rank.backend()
        wish = register(request=0, **{"backend": backend, "feed": feed(), **wishes})
        assert complaint in rank.refusal(wish)
        assert rank.statistics()["hub"]["channels"] == 0


def test_inputs_that_are_not_what_they_are_said_to_be_are_refused() -> None:
    with resting_hub() as (_, rank):
        backend = rank.backend()
        with SharedArray.from_array(np.arange(5)) as ids:
            fds = ids.segment.descriptors

            def refusal(*given: int, **more: Any) -> str:
                inputs = feed(**{"num_inputs": 5, "ids": ids.handle, **more})
                return rank.refusal(Register(request=0, backend=backend, feed=inputs), given)

            longer = ArrayHandle(ids.handle.segment, "int64", (500,))
            floats = ArrayHandle(ids.handle.segment, "float64", (5,))
            nowhere = ArrayHandle(FileHandle("/nowhere/ids"), "int64", (5,))
            assert "0 descriptors came with a feed that needs 1" in refusal()
            assert "2 descriptors came" in refusal(*fds, *fds)
            assert "1 descriptors came with a feed that needs 0" in refusal(*fds, ids=None)
            assert "too short" in refusal(*fds, num_inputs=500, ids=longer)
            assert "num_inputs is 4; 5 ids are given" in refusal(*fds, num_inputs=4)
            assert "must be a list of integers" in refusal(*fds, ids=floats)
            assert "/nowhere/ids" in refusal(ids=nowhere)
        assert rank.register(backend).number == 1


def test_a_path_that_is_a_pipe_is_refused_and_nobody_waits_for_it(
    shared_hub: HubProcess, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "ids")
    pipe = ArrayHandle(FileHandle(str(tmp_path / "ids")), "int64", (5,))
    with Rank.join(shared_hub.address) as rank:
        wish = Register(request=0, backend=rank.backend(SPEC), feed=feed(5, ids=pipe))
        assert "is not a regular file" in rank.refusal(wish)


def test_a_descriptor_of_something_else_is_refused(shared_hub: HubProcess) -> None:
    with Rank.join(shared_hub.address) as rank:
        with SharedArray.from_array(np.arange(5)) as ids, open(os.devnull) as other:
            inputs = feed(5, ids=ids.handle)
            wish = Register(request=0, backend=rank.backend(), feed=inputs)
            assert "is not that of the shared memory" in rank.refusal(wish, [other.fileno()])


def test_a_supplement_of_another_graph_is_refused(shared_hub: HubProcess) -> None:
    with Rank.join(shared_hub.address) as rank, small_graph(num_nodes=10) as other:
        other.csr()
        wish = CreateBackend(request=0, spec=SPEC, supplement=other.handle())
        assert "another graph" in rank.refusal(wish, other.descriptors)


def test_a_pool_of_an_impossible_size_is_refused(shared_hub: HubProcess) -> None:
    with Rank.join(shared_hub.address) as rank:
        assert "workers is -1" in rank.refusal(Resize(request=0, workers=-1))
        assert "workers is 1000000" in rank.refusal(Resize(request=0, workers=10**6))
        custom = CustomSpec(sampler="tests.hub.samplers:Seeds")
        refusal = rank.refusal(CreateBackend(request=0, spec=custom, workers=0))
        assert "workers is 0; expected 1" in refusal


def test_workers_of_an_unknown_backend_are_refused(shared_hub: HubProcess) -> None:
    with Rank.join(shared_hub.address) as rank:
        assert "no backend 1000000" in rank.refusal(AskWorkers(request=0, backend=10**6))


def test_channels_past_the_limit_are_refused() -> None:
    """CONTRACT 53: overload is refused at the door with a clear error."""
    with resting_hub(max_channels=2) as (hub, rank):
        backend = rank.backend()
        rank.register(backend)
        channel = hub.founder.register(backend)
        refusal = rank.refusal(Register(request=0, backend=backend, feed=feed()))
        assert refusal.startswith("Overloaded: ")
        assert "max_channels" in refusal
        hub.founder.say(Unregister(channel=channel.number))
        hub.founder.statistics()  # it has been heard
        rank.register(backend)


def test_memory_past_the_limit_is_refused() -> None:
    """CONTRACT 53."""
    with resting_hub(max_arena_bytes=1 << 20) as (_, rank):
        backend = rank.backend()
        rank.register(backend, slots=2, buffer_size=2 << 18)
        wish = register(request=0, backend=backend, feed=feed(), slots=3, buffer_size=3 << 18)
        refusal = rank.refusal(wish)
        assert refusal.startswith("Overloaded: ")
        assert "max_arena_bytes" in refusal
        rank.register(backend, slots=2, buffer_size=2 << 18)


def test_connections_past_the_limit_are_refused_at_the_door() -> None:
    """CONTRACT 53."""
    with resting_hub(max_connections=2) as (hub, rank):
        with Rank.knock(hub.address) as third:
            [refused] = third.waits_for_end()
            assert isinstance(refused, Refused)
            assert refused.report.kind == "Overloaded"
            assert "max_connections" in refused.report.message
        rank.close()
        hub.founder.statistics()  # its leaving was noticed before this was answered
        with Rank.join(hub.address):
            pass


# --- the end of the connection, and of no other -----------------------------------------------


def test_another_protocol_is_refused_by_name(shared_hub: HubProcess) -> None:
    with Rank.knock(shared_hub.address) as rank:
        rank.say(Hello(protocol=99, pid=1))
        ends_with(rank, "protocol 99")


def test_whoever_does_not_greet_is_not_heard(shared_hub: HubProcess) -> None:
    with Rank.knock(shared_hub.address) as rank:
        rank.say(Resize(request=1, workers=5))
        ends_with(
            rank, "Resize makes no sense now: the conversation is 'new'; expected Hello, HubConfig"
        )


# Stand for a channel of the rank's own, for one of another rank's, and for one that never was.
OWN, THEIRS, NONE = 101, 102, 10**6


@pytest.mark.parametrize(
    ("nonsense", "complaint"),
    [
        (StartEpoch(channel=NONE, epoch=0), "channel 1000000 was never registered"),
        (StartEpoch(channel=-1, epoch=0), "channel -1 was never registered"),
        (StartEpoch(channel=0, epoch=0), "channel 0 was never registered"),
        (ReturnSlot(channel=NONE, slot=0), "channel 1000000 was never registered"),
        (Reweigh(channel=NONE, weight=1.0), "channel 1000000 was never registered"),
        (StartEpoch(channel=THEIRS, epoch=0), "belongs to another connection"),
        (ReturnSlot(channel=THEIRS, slot=0), "belongs to another connection"),
        (Reweigh(channel=THEIRS, weight=1.0), "belongs to another connection"),
        (Unregister(channel=THEIRS), "belongs to another connection"),
        (ReturnSlot(channel=OWN, slot=64), "has no slot 64"),
        (ReturnSlot(channel=OWN, slot=-1), "has no slot -1"),
        (Reweigh(channel=OWN, weight=0.0), "weight is 0.0"),
        (Reweigh(channel=OWN, weight=1e9), "weight is 1000000000.0; expected 0.0001 to 10000"),
        (Reweigh(channel=OWN, weight=math.nan), "weight is nan"),
        (StartEpoch(channel=OWN, epoch=0, first=11), "first must be in range(0, 11), got 11"),
        (StartEpoch(channel=OWN, epoch=0, first=-1), "first must be at least 0"),
        (StartEpoch(channel=OWN, epoch=0, first_step=11), "at step 11"),
        (StartEpoch(channel=OWN, epoch=0, first_step=-1), "at step -1"),
        (StartEpoch(channel=OWN, epoch=2**63), "cannot start epoch"),
        (Hello(protocol=PROTOCOL, pid=1), "Hello makes no sense now"),
        (Stop(), "only the rank that started the hub may stop it"),
    ],
)
def test_nonsense_ends_the_connection_that_said_it(
    shared_hub: HubProcess, nonsense: FromRankToHub, complaint: str
) -> None:
    """CONTRACT 10: an id never registered is an error that names it. Others notice nothing."""
    with Rank.join(shared_hub.address) as other, Rank.join(shared_hub.address) as rank:
        backend = other.backend()
        theirs, own = other.register(backend), rank.register(backend)
        meant = {THEIRS: theirs.number, OWN: own.number}
        if (channel := getattr(nonsense, "channel", None)) in meant:
            nonsense = msgspec.structs.replace(nonsense, channel=meant[channel])
        rank.say(nonsense)
        ends_with(rank, complaint)
        numbers = other.statistics()
        assert list(numbers["channels"]) == [str(theirs.number)]
        other.say(Unregister(channel=theirs.number))
        other.statistics()  # it has been heard


@pytest.mark.parametrize("number", [-1, 0, NONE])
def test_leaving_a_channel_that_never_was_is_no_mistake(
    shared_hub: HubProcess, number: int
) -> None:
    """CONTRACT 15, 28: unknown id: no-op."""
    with Rank.join(shared_hub.address) as rank:
        rank.say(Unregister(channel=number))
        rank.statistics()


def test_whoever_waits_for_workers_too_often_is_refused() -> None:
    with running_hub(workers=1) as hub:
        rank = hub.founder
        with stopped(hub.process.pid):  # so that it finds all of this at once
            for request in range(MOST_WAITING + 1):
                rank.say(AskWorkers(request=request))
        assert rank.hear(Refused).request == MOST_WAITING
        answered = [rank.hear(Resized).request for _ in range(MOST_WAITING)]
        assert answered == list(range(MOST_WAITING))


def test_a_rank_that_leaves_while_it_is_not_heard_is_noticed() -> None:
    """CONTRACT 40: also one that has so much to read that nothing more is taken from it."""
    with resting_hub() as (hub, rank):
        channel = rank.register(rank.backend(), feed(0))
        for epoch in range(5 * ENOUGH):
            rank.stream.send(StartEpoch(channel=channel.number, epoch=epoch))
        rank.close()
        numbers = hub.founder.until(lambda numbers: numbers["hub"]["connections"] == 1)
        assert numbers["hub"]["channels"] == 0


def test_the_founding_words_are_the_founders(shared_hub: HubProcess) -> None:
    with small_graph() as graph:
        with Rank.join(shared_hub.address) as rank:
            rank.say(HubConfig(address="unix://@x", graph=graph.handle(), workers=1))
            ends_with(rank, "HubConfig makes no sense now")


def test_descriptors_that_nobody_asked_for_are_closed() -> None:
    with resting_hub() as (hub, rank):
        before = open_files(hub)
        with open(os.devnull) as file:
            rank.say(AskWorkers(request=1), [file.fileno()] * 5)
        ends_with(rank, "5 descriptors came with AskWorkers")
        assert open_files(hub) == before - 2


def test_bytes_that_are_no_message_end_the_connection() -> None:
    with resting_hub() as (hub, rank):
        os.write(rank.stream.fileno(), b"GET / HTTP/1.1\r\n\r\n")
        ends_with(rank, "is announced")
        hub.founder.statistics()


def test_nothing_stays_open_after_refusals() -> None:
    """CONTRACT 32: a failure leaves nothing behind."""
    with resting_hub() as (hub, rank), SharedArray.from_array(np.arange(5)) as ids:
        backend = rank.backend()
        inputs = feed(5, ids=ids.handle)
        bad = register(request=0, backend=backend, feed=inputs, slots=0)
        before = open_files(hub)
        for _ in range(20):
            rank.refusal(bad, ids.segment.descriptors)
        assert open_files(hub) == before


def test_a_channel_costs_its_descriptors_only_while_it_is_there() -> None:
    """CONTRACT 23, 40: the number of open files stays constant."""
    with resting_hub() as (hub, rank), SharedArray.from_array(np.arange(5)) as ids:
        backend = rank.backend()
        before = open_files(hub)
        for _ in range(5):
            inputs = feed(5, ids=ids.handle)
            channel = rank.register(backend, inputs, ids.segment.descriptors)
            assert open_files(hub) == before + 2
            rank.say(Unregister(channel=channel.number))
            rank.statistics()  # it has been heard
            assert open_files(hub) == before


def test_a_stray_return_is_counted_and_does_no_harm() -> None:
    with resting_hub() as (_, rank):
        channel = rank.register(rank.backend())
        channel.give_back(2)
        statistics = rank.statistics()
        [found], [there] = statistics["scheduler"]["channels"], statistics["channels"].values()
        assert found["stray_returns"] == 1
        assert found["slots_free"] == there["slots"]


def test_the_pool_can_be_given_another_size() -> None:
    with running_hub(workers=1) as hub:
        rank = hub.founder
        assert rank.workers() == 1
        assert rank.ask(Resize(request=0, workers=3), Resized).workers == 3
        assert len(rank.worker_pids()) == 3
        assert rank.ask(Resize(request=0, workers=1), Resized).workers == 1
        assert len(rank.register(rank.backend()).epoch(0)) == 10


def test_a_new_weight_is_heard() -> None:
    with resting_hub() as (_, rank):
        channel = rank.register(rank.backend(), weight=2.0)
        rank.say(Reweigh(channel=channel.number, weight=5.0))
        assert rank.statistics()["scheduler"]["channels"][0]["weight"] == 5.0


def test_a_rank_that_says_much_at_once_does_not_keep_others_waiting() -> None:
    """CONTRACT 9: commands are still handled while another rank floods the hub."""
    with resting_hub() as (hub, flood):
        channel = flood.register(flood.backend())
        frame = framing.frame(ReturnSlot(channel=channel.number, slot=0))
        with stopped(hub.process.pid):  # so that it finds all of this at once
            os.write(flood.stream.fileno(), frame * 3 * AT_ONCE)
            hub.founder.say(AskStatistics(request=1))
        [found] = hub.founder.hear(Statistics).numbers["scheduler"]["channels"]
        assert found["stray_returns"] <= AT_ONCE
        [found] = flood.statistics()["scheduler"]["channels"]
        assert found["stray_returns"] == 3 * AT_ONCE


def test_answers_that_nobody_reads_are_bounded() -> None:
    """CONTRACT 9: a rank that asks and never reads is not heard until it does."""
    with resting_hub() as (hub, rank):
        channel = rank.register(rank.backend())
        frame = framing.frame(AskStatistics(request=1))
        asked = 0
        os.set_blocking(rank.stream.fileno(), False)
        while asked < 20 * ENOUGH:
            try:
                asked += os.write(rank.stream.fileno(), frame) // len(frame)
            except BlockingIOError:
                break
            unread = hub.founder.statistics()["channels"][str(channel.number)]["unread"]
            assert unread <= 2 * ENOUGH


def test_epochs_that_nobody_hears_of_are_bounded() -> None:
    """CONTRACT 9: the announcements of a rank that never reads do not fill the hub's memory."""
    with resting_hub() as (hub, rank):
        channel = rank.register(rank.backend(), feed(0))
        for epoch in range(3000):
            rank.stream.send(StartEpoch(channel=channel.number, epoch=epoch))
        numbers = hub.founder.statistics()
        assert numbers["channels"][str(channel.number)]["unread"] <= 600
        done = [rank.hear(EpochDone).epoch for _ in range(3000)]
        assert done == list(range(3000))


def test_a_backend_of_another_boot_is_not_there() -> None:
    with resting_hub() as (_, rank):
        created = rank.ask(CreateBackend(request=0, spec=SPEC), BackendCreated)
        wish = Register(request=0, backend=created.backend + 1, feed=feed())
        assert "on this boot of the hub" in rank.refusal(wish)
