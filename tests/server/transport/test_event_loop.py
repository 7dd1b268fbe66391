"""What a rank far away says and hears, message by message."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from penstock.errors import ProtocolError
from penstock.graph import Graph
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import Endpoint
from penstock.sampling.spec import CustomSpec, LinkSpec, NeighborSpec
from penstock.server.serving import Server
from penstock.wire.host import this_host
from penstock.wire.messages import (
    Call,
    EpochDone,
    Goodbye,
    Heartbeat,
    Registered,
    ReturnSlot,
    Reweigh,
    StartEpoch,
    Unregister,
)
from tests.client.graphs import (
    NODES,
    STEPS,
    TERMS,
    backend_of,
    digests,
    expected,
    rest,
)
from tests.processes import PATIENCE_S, until
from tests.server.ranks import BareRank, Parcel, hello

Ranks = Callable[..., BareRank]


# --- coming in ---------------------------------------------------------------------------------


def test_a_welcome_tells_of_the_graph_the_boot_and_the_way_to_the_hub(
    rank: Ranks, server: Server, graph: Graph
) -> None:
    welcome = rank(greeted=False).greet()
    assert welcome.address == server.address
    assert welcome.boot == server.boot
    assert (welcome.host, welcome.unix) == (this_host(), server.hub.address)
    assert welcome.outline.schema == graph.schema
    told = {array.key: (array.dtype, array.shape) for array in welcome.outline.arrays}
    kept = {key: found for key, found in graph.arrays.items() if key.group not in ("aid", "csr")}
    assert told == {key: (array.dtype, array.shape) for key, array in kept.items()}
    assert (welcome.partition.number, welcome.partition.of) == (0, 1)


def test_another_protocol_is_refused_in_words_that_say_what_to_do(rank: Ranks) -> None:
    visitor = rank(greeted=False)
    visitor.hello(protocol=99)
    error = visitor.refusal()
    assert isinstance(error, ProtocolError)
    assert "you speak protocol 99" in str(error)
    assert "install the same version" in str(error)


def test_who_was_refused_is_hung_up_on(rank: Ranks) -> None:
    """CONTRACT 73"""
    visitor = rank(greeted=False)
    visitor.hello(protocol=99)
    visitor.refusal()
    assert visitor.waits_for_end() == []


def test_a_sign_of_life_is_answered_if_an_answer_is_wanted(rank: Ranks) -> None:
    """CONTRACT 72"""
    visitor = rank()
    visitor.say(Heartbeat())
    visitor.say(Heartbeat(reply=True))
    assert visitor.call("ping") == (None, {})
    visitor.say(Heartbeat(reply=True))
    until(lambda: Heartbeat() in visitor.hear_all(), "it is answered")


# --- inputs ------------------------------------------------------------------------------------


def test_an_epoch_of_a_split_has_the_bytes_of_one_sampled_in_the_rank(
    rank: Ranks, graph: Graph
) -> None:
    """CONTRACT 5, CONTRACT 58"""
    reader = rank()
    reader.register(split="train")
    for epoch in (0, 3):
        reader.start(epoch)
        assert reader.read() == expected(graph, epoch)


def test_ids_may_come_with_the_registration(rank: Ranks, graph: Graph) -> None:
    """CONTRACT 58"""
    ids = np.random.default_rng(3).permutation(NODES)[:100]
    reader = rank()
    reader.register(arrays={"ids": ids})
    reader.start()
    assert reader.read() == expected(graph, inputs=ids)


def test_without_inputs_all_nodes_are_meant(rank: Ranks, graph: Graph) -> None:
    reader = rank()
    reader.register()
    reader.start()
    assert reader.read() == expected(graph, inputs=None)


def test_columns_travel_with_the_ids(rank: Ranks, graph: Graph) -> None:
    spec = LinkSpec(neighbors=NeighborSpec(num_neighbors=(3,)))
    edges = graph.edge_index()[:, :40]
    label = np.arange(40) % 3
    reader = rank()
    reader.register(
        spec=spec, arrays={"ids": edges, "columns/label": label}, edge_type=("", "", "")
    )
    reader.start()
    with backend_of(graph, spec, num_workers=0) as backend:
        backend.register_input("links", edges, columns={"label": label}, **TERMS)
        backend.start_new_epoch_sampling("links", 0)
        assert reader.read() == digests(rest(backend, "links"))


def test_ranks_take_turns_in_one_list(rank: Ranks, graph: Graph) -> None:
    whole = {index: digest for _, index, digest in expected(graph, world_size=1)}
    seen: dict[int, str] = {}
    for number in range(2):
        reader = rank()
        reader.register(split="train", rank=number, world_size=2, remainder="drop")
        reader.start()
        seen.update((index, digest) for _, index, digest in reader.read())
    assert seen.items() <= whole.items()
    assert len(seen) == 2 * (STEPS // 2)


def test_an_epoch_may_begin_anywhere(rank: Ranks, graph: Graph) -> None:
    reader = rank()
    reader.register(split="train")
    reader.start(0, first_step=9)
    assert reader.read() == expected(graph)[9:]


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"split": "nothing"}, "nothing"),
        ({"split": "train", "arrays": {"ids": np.arange(4)}}, "given twice"),
        ({"arrays": {"ids": np.array([0, NODES])}}, f"ids?\\[1\\] is {NODES}|\\[1\\] is {NODES}"),
        ({"arrays": {"ids": np.array([0.5])}}, "expected integers"),
        ({"arrays": {"idz": np.arange(4)}}, "'idz'"),
        ({"split": "train", "batch_size": 0}, "batch_size"),
        ({"split": "train", "slots": 0}, "slots is 0"),
        ({"split": "train", "spec": NeighborSpec(num_neighbors=(-7,))}, "num_neighbors"),
        ({"split": "train", "spec": CustomSpec(sampler="os:system")}, "was not started with"),
        ({"split": "train", "workers": 4000}, "num_workers"),
        ({"file": "/etc/passwd"}, "input_folders"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_enrolment_that_makes_no_sense_is_refused_and_another_may_follow(
    rank: Ranks, wishes: dict[str, Any], words: str
) -> None:
    """CONTRACT 25"""
    reader = rank()
    reader.ask_to_register(**wishes)
    with pytest.raises(Exception, match=words):
        raise reader.refusal()
    reader.register(split="train", request=2)


# --- credits -----------------------------------------------------------------------------------


def test_no_more_batches_come_than_there_are_slots(rank: Ranks, server: Server) -> None:
    """CONTRACT 9"""
    reader = rank()
    assert reader.register(split="train", slots=3).slots == 3
    reader.start()
    held = [reader.take() for _ in range(3)]
    assert reader.is_quiet(0.3)
    assert _statistics_of(server, reader).credits == 0
    first = held[0]
    assert isinstance(first, Parcel)
    reader.give_back(first)
    fourth = reader.take()
    assert isinstance(fourth, Parcel)
    assert fourth.ready.slot == first.ready.slot
    assert reader.is_quiet(0.1)


def test_a_reader_that_stops_holds_up_itself_alone(rank: Ranks, graph: Graph) -> None:
    """CONTRACT 9"""
    slow, quick = rank(), rank()
    slow.register(split="train", slots=2)
    slow.start()
    first = slow.take()
    quick.register(split="train")
    for epoch in range(3):
        quick.start(epoch)
        assert quick.read() == expected(graph, epoch)
    assert isinstance(first, Parcel)
    slow.give_back(first)
    assert sorted([first.digest, *slow.read()]) == expected(graph)


def test_starting_over_leaves_the_old_epoch_behind(rank: Ranks, graph: Graph) -> None:
    """CONTRACT 13"""
    reader = rank()
    reader.register(split="train", slots=2)
    reader.start(0)
    held = reader.take()
    assert isinstance(held, Parcel)
    reader.start(1)
    reader.give_back(held)
    seen = []
    while not (isinstance(come := reader.take(), EpochDone) and come.epoch == 1):
        if isinstance(come, Parcel):
            reader.give_back(come)
            seen.append((come.ready.batch.epoch, come.digest))
    assert sorted(digest for epoch, digest in seen if epoch == 1) == expected(graph, 1)
    assert [epoch for epoch, _ in seen] == sorted(epoch for epoch, _ in seen)


# --- leaving -----------------------------------------------------------------------------------


def test_unregistering_frees_the_hubs_channel_and_the_session_stays(
    rank: Ranks, server: Server
) -> None:
    """CONTRACT 28"""
    reader = rank(name="leaver")
    reader.register(split="train")
    until(lambda: _channels(server) == 1, "those of other tests are gone")
    reader.say(Unregister(channel=reader.channel))
    assert reader.call("ping") == (None, {})
    until(lambda: _channels(server) == 0, "the hub's channel is gone")
    reader.say(ReturnSlot(channel=reader.channel, slot=0))  # late, and no harm
    assert reader.call("ping", request=101) == (None, {})
    assert _statistics_of(server, reader, "leaver").channel == 0


def test_goodbye_frees_the_hubs_channel_and_the_session(rank: Ranks, server: Server) -> None:
    """CONTRACT 39"""
    reader = rank(name="polite")
    reader.register(split="train")
    until(lambda: _channels(server) == 1, "those of other tests are gone")
    ours = server.statistics()
    reader.goodbye()
    until(lambda: _channels(server) == 0, "the hub's channel is gone")
    assert not [one for one in server.statistics().sessions if one.name == "polite"]
    now = server.statistics()
    assert (now.leases_lost, now.refused) == (ours.leases_lost, ours.refused)


# --- questions ---------------------------------------------------------------------------------


def test_questions_are_answered_beside_a_channel(rank: Ranks, graph: Graph) -> None:
    reader = rank()
    reader.register(split="train")
    value, arrays = reader.call("get_node_ids", split="train")
    assert np.array_equal(next(iter(arrays.values())), graph.split("train")), value
    reader.start()
    assert len(reader.read()) == STEPS


def test_an_unknown_verb_is_refused_and_the_session_goes_on(rank: Ranks) -> None:
    reader = rank()
    with pytest.raises(ProtocolError, match="no verb 'eval'"):
        reader.call("eval")
    assert reader.call("ping") == (None, {})


# --- words that make no sense ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (lambda _: hello(), "Hello makes no sense now"),
        (lambda _: StartEpoch(channel=99, epoch=0), "channel 99 is not this session's"),
        (lambda at: ReturnSlot(channel=at, slot=0), "slot 0 was not with the rank"),
        (lambda at: Reweigh(channel=at, weight=-1.0), "weight"),
        (lambda at: StartEpoch(channel=at, epoch=0, first_step=10**6), "cannot start epoch"),
        (lambda _: Unregister(channel=12345), "channel 12345 is not this session's"),
        (lambda _: Call(request=0, verb="ping"), "request 0"),
        (lambda _: b"\xc1 no message", "makes no sense here"),
        (lambda _: b"", "belongs to no message"),
        (lambda _: Goodbye, None),
    ],
    ids=[
        "a second Hello",
        "another's channel",
        "a slot that is not out",
        "a weight below zero",
        "a step there is none of",
        "unregistering another's",
        "a request without number",
        "no message",
        "nothing",
        "goodbye",
    ],
)
def test_a_word_that_makes_no_sense_ends_that_session_and_no_other(
    rank: Ranks, graph: Graph, words: Callable[[int], Any], complaint: str | None
) -> None:
    """CONTRACT 40"""
    good, bad = rank(), rank()
    good.register(split="train")
    bad.register(split="train")
    good.start()
    said = words(bad.channel)
    if isinstance(said, bytes):
        bad.say_bytes(said)
    else:
        bad.say(Goodbye() if complaint is None else said)
    if complaint is not None:
        with pytest.raises(ProtocolError, match=complaint):
            raise bad.refusal()
    assert good.read() == expected(graph)
    assert bad.waits_for_end() == []


def test_a_client_whose_session_is_over_takes_its_connection_for_lost(server: Server) -> None:
    """CONTRACT 41: whyever it is over; whoever reads a channel then enrols again, and goes on."""
    patience = Deadline(PATIENCE_S)
    with closing(RemoteConnection.open(Endpoint(server.address), patience)) as connection:
        connection.post(Goodbye())
        with pytest.raises(ConnectionError, match="closed the connection"):
            _hear(connection, patience)


def test_a_client_may_be_willing_to_wait_for_years(server: Server) -> None:
    patience = Deadline(PATIENCE_S)
    with closing(RemoteConnection.open(Endpoint(server.address), patience)) as connection:
        connection.post(Goodbye())
        connection.wait(Deadline(10.0**9))


def test_a_message_before_hello_is_answered_with_what_is_missing(rank: Ranks) -> None:
    visitor = rank(greeted=False)
    visitor.say(Call(request=1, verb="ping"))
    with pytest.raises(ProtocolError, match="say Hello first"):
        raise visitor.refusal()


def test_a_payload_where_there_can_be_none_ends_the_session(rank: Ranks) -> None:
    visitor = rank()
    visitor.say(Heartbeat(), [memoryview(b"12345678")])
    with pytest.raises(ProtocolError, match="Heartbeat cannot have a payload"):
        raise visitor.refusal()


def test_another_request_may_follow_one_that_was_refused(rank: Ranks) -> None:
    visitor = rank()
    visitor.ask_to_register(arrays={"ids": np.arange(10), "idz": np.arange(1000)})
    with pytest.raises(ValueError, match="'idz'"):
        raise visitor.refusal()
    assert isinstance(visitor.register(split="train", request=2), Registered)


def _hear(connection: RemoteConnection, patience: Deadline) -> None:
    while not connection.receive():
        connection.wait(patience)


def _statistics_of(server: Server, rank: BareRank, name: str = "bare") -> Any:
    """The session of a rank, known by its channel or its name."""
    sessions = server.statistics().sessions
    (found,) = [
        one
        for one in sessions
        if (one.channel == rank.channel if name == "bare" else one.name == name)
    ]
    return found


def _channels(server: Server) -> int:
    return int(server.hub.statistics()["hub"]["channels"])
