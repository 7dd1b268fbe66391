"""Words that are well formed and mean harm: each is refused in words, and harms nobody else."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq

from penstock.client.failures import error_of
from penstock.errors import AccessDenied, HubGone, Overloaded, PenstockError, ProtocolError
from penstock.graph import Graph
from penstock.sampling.spec import CustomSpec, Feed, NeighborSpec
from penstock.server.serving import Server, serve
from penstock.wire.conversation import RANK_SAYS, State
from penstock.wire.messages import (
    Message,
    Refused,
    Register,
    ReturnSlot,
    Reweigh,
    StartEpoch,
    Unregister,
)
from penstock.wire.remote import (
    HEADER,
    Answer,
    ArrayInfo,
    Bulk,
    Call,
    Enroll,
    Enrolled,
    Goodbye,
    Greeting,
    Knock,
    Part,
)
from penstock.wire.verbs import VERBS
from tests.client.graphs import SPEC, STEPS, expected
from tests.processes import until
from tests.server.ranks import BareRank, Parcel, knock, visitors

Ranks = Callable[..., BareRank]
PETABYTE = 1 << 50
SAMPLER = "tests.client.samplers:Stars"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that may be read from, with all that should not be read in it."""
    folder: Path = tmp_path_factory.mktemp("allowed")
    np.save(folder / "good.npy", np.arange(32))
    np.save(folder.parent / "beside.npy", np.arange(32))
    np.save(folder / "objects.npy", np.array([{"a": 1}], object), allow_pickle=True)
    os.mkfifo(folder / "fifo.npy")
    (folder / "device.npy").symlink_to("/dev/zero")
    (folder / "outside.npy").symlink_to(folder.parent / "beside.npy")
    (folder / "way").symlink_to("/etc", target_is_directory=True)
    (folder / "circle.npy").symlink_to(folder / "circle.npy")
    (folder / "folder.npy").mkdir()
    (folder / "empty.npy").write_bytes(b"")
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }" % (PETABYTE // 8)
    padded = header.ljust(117) + b"\n"
    (folder / "petabyte.npy").write_bytes(b"\x93NUMPY\x01\x00" + b"\x76\x00" + padded)
    return folder


@pytest.fixture(scope="module")
def server(graph: Graph, files: Path) -> Iterator[Server]:
    with serve(graph, num_workers=1, files=[files], samplers=[SAMPLER]) as served:
        yield served


def ask(visitor: BareRank, verb: str, **arguments: Any) -> Any:
    """What a verb answers, without arrays; or raises what it refuses by."""
    visitor.say(Call(request=next(_requests), verb=verb, arguments=arguments))
    said, _ = visitor.hear_any()
    if isinstance(said, Refused):
        raise error_of(said.report)
    assert isinstance(said, Answer)
    return said.value


_requests = itertools.count(1000)


# --- every word in every state ------------------------------------------------------------------

SAID: dict[type[Message], Message] = {
    Knock: knock(),
    Enroll: Enroll(
        request=9,
        spec=SPEC,
        register=Register(request=0, backend=0, feed=Feed(num_inputs=0, batch_size=16)),
        split="train",
    ),
    Part: Part(request=9, offset=0),
    Call: Call(request=9, verb="ping"),
    StartEpoch: StartEpoch(channel=1, epoch=0),
    ReturnSlot: ReturnSlot(channel=1, slot=0),
    Unregister: Unregister(channel=1),
    Reweigh: Reweigh(channel=1, weight=1.0),
    Goodbye: Goodbye(),
}
REACHED = (State.STRANGER, State.GREETED, State.ENROLLED, State.LEFT, State.ENDED)
WRONG = [(state, word) for state in REACHED for word in SAID if (state, word) not in RANK_SAYS]


def _brought_to(state: State, rank: BareRank) -> None:
    if state is State.STRANGER:
        return
    rank.greet()
    if state in (State.ENROLLED, State.LEFT):
        rank.enroll(split="train")
    if state is State.LEFT:
        rank.say(Unregister(channel=rank.channel))
    if state is State.ENDED:
        rank.goodbye()


@pytest.mark.parametrize(
    ("state", "word"),
    WRONG,
    ids=lambda value: value.value if isinstance(value, State) else value.__name__,
)
def test_a_word_in_the_wrong_state_ends_that_session(
    rank: Ranks, state: State, word: type[Message]
) -> None:
    """CONTRACT 53: whatever it says; who had a session is told that it has to knock again."""
    bystander, wrong = rank(), rank(greeted=False)
    _brought_to(state, wrong)
    wrong.say(SAID[word], *((b"12345678",) if word is Part else ()))
    if state is State.ENDED and word is Knock:
        wrong.hear(Greeting)
    else:
        assert isinstance(wrong.refusal(), HubGone if state is State.ENDED else ProtocolError)
    assert bystander.call("ping") == (None, {})


# --- what belongs to others ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "word",
    [
        lambda at: StartEpoch(channel=at, epoch=5),
        lambda at: ReturnSlot(channel=at, slot=0),
        lambda at: Reweigh(channel=at, weight=100.0),
        lambda at: Unregister(channel=at),
    ],
    ids=["StartEpoch", "ReturnSlot", "Reweigh", "Unregister"],
)
def test_the_channel_of_another_session_is_out_of_reach(
    rank: Ranks, graph: Graph, word: Callable[[int], Message]
) -> None:
    """CONTRACT 40: it reads on as if nothing had been said."""
    owner, thief = rank(), rank()
    owner.enroll(split="train", slots=2)
    thief.enroll(split="train")
    owner.start()
    first = owner.take()
    assert isinstance(first, Parcel)
    thief.say(word(owner.channel))
    with pytest.raises(ProtocolError, match="not this session's"):
        raise thief.refusal()
    owner.give_back(first)
    assert sorted([first.digest, *owner.read()]) == expected(graph)


def test_a_slot_is_given_back_once(rank: Ranks, graph: Graph) -> None:
    """CONTRACT 9: credits cannot be made up.

    No batch is left to fill the slot again in between, which would make the second return right.
    """
    rank_ = rank()
    rank_.enroll(split="train", slots=2)
    rank_.start(0, first_step=STEPS - 1)
    parcel = rank_.take()
    assert isinstance(parcel, Parcel)
    rank_.give_back(parcel)
    rank_.give_back(parcel)
    said: Any = None
    while not isinstance(said, Refused):
        said, _ = rank_.hear_any()
        if isinstance(said, Enrolled):
            pytest.fail("nothing was asked for")
    assert "was not with the rank" in said.report.message


def test_the_number_of_a_request_is_not_used_twice(rank: Ranks, server: Server) -> None:
    """CONTRACT 53: its refusal would be taken for the other's, and a channel be forgotten."""
    twice = rank()
    twice.ask_to_enroll(split="train", request=5)
    twice.say(Call(request=5, verb="nonsense"))
    said = [type(twice.hear_any()[0])]
    if said == [Enrolled]:  # it was quicker
        said.append(type(twice.hear_any()[0]))
    assert said[-1] is Refused
    until(lambda: server.hub.statistics()["hub"]["channels"] == 0, "no channel is left", 30)


# --- who may come in ----------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [0, 2, -1, 2**63, 2**64 - 1])
def test_another_version_is_told_what_to_do(rank: Ranks, protocol: int) -> None:
    visitor = rank(greeted=False)
    visitor.knock(protocol=protocol)
    with pytest.raises(ProtocolError, match="install the same version"):
        raise visitor.refusal()


@pytest.mark.parametrize("field", ["name", "host", "token"])
def test_nobody_has_a_name_of_half_a_megabyte(rank: Ranks, field: str) -> None:
    """CONTRACT 53: it would be kept, and shown in every statistic."""
    visitor = rank(greeted=False)
    visitor.knock(**{field: "x" * (1 << 19)})
    error = visitor.refusal()
    assert f"the {field} of a Knock" in str(error)
    assert len(str(error)) < 1000


def test_a_job_has_no_name_of_half_a_megabyte(rank: Ranks) -> None:
    visitor = rank()
    feed = Feed(num_inputs=0, batch_size=16)
    register = Register(request=0, backend=0, feed=feed, job="x" * (HEADER // 2))
    visitor.say(Enroll(request=1, spec=SPEC, register=register, split="train"))
    with pytest.raises(ValueError, match="job's name is longer"):
        raise visitor.refusal()


def test_refusals_do_not_repeat_megabytes(rank: Ranks) -> None:
    visitor = rank()
    with pytest.raises(ProtocolError) as caught:
        visitor.call("x" * (4 << 20))
    assert len(str(caught.value)) < 100_000


@pytest.mark.parametrize("token", [None, "", "wrong", "right ", "RIGHT", "right\0"])
def test_without_the_token_there_is_no_way_in(
    guarded: Server, context: zmq.Context[Any], token: str | None
) -> None:
    with BareRank(guarded.address, context) as visitor:
        visitor.knock(token=token)
        error = visitor.refusal()
        assert isinstance(error, AccessDenied)
        assert "right" not in str(error)
        visitor.say(Call(request=1, verb="get_node_ids"))
        assert isinstance(visitor.refusal(), ProtocolError)
        visitor.greet(token="right")


@pytest.fixture(scope="module")
def guarded(graph: Graph) -> Iterator[Server]:
    with serve(graph, num_workers=1, tokens={"somebody": "right"}) as served:
        yield served


# --- files and samplers -------------------------------------------------------------------------

FORBIDDEN = [
    *("fifo.npy", "device.npy", "outside.npy", "way/passwd", "circle.npy", "folder.npy", "."),
    *("", "..", "../beside.npy", "good.npy/../../beside.npy", "/etc/passwd", "/dev/zero"),
    *("/proc/self/mem", "/proc/self/environ", "~/.bashrc", "good.npy\0", "x" * 5000),
    *("file:///etc/passwd", "objects.npy", "empty.npy", "petabyte.npy", "//good.npy"),
]


@pytest.mark.parametrize("file", FORBIDDEN, ids=lambda file: repr(file[:30]))
def test_a_file_that_may_not_be_read_is_not_even_opened(rank: Ranks, file: str) -> None:
    """CONTRACT 58: nothing is followed out of the folder, nothing waited for, nothing run."""
    visitor = rank()
    visitor.ask_to_enroll(file=file)
    with pytest.raises((ValueError, Overloaded)) as caught:
        raise visitor.refusal()
    assert "root:" not in str(caught.value)
    wishes = {"sampler_input": {"file": file}, "terms": {"batch_size": 4}}
    request = {"backend_id": _backend(visitor), **wishes}
    with pytest.raises((ValueError, Overloaded)):
        ask(visitor, "register_sampling_input", request=request)


def _backend(visitor: BareRank, config: Any = SPEC) -> int:
    request = {"backend_key": "words", "sampling_config": msgspec.to_builtins(config)}
    found = ask(visitor, "init_sampling_backend", request=request)
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize(
    "name",
    [
        *("os:system", "tests.client.samplers:Other", "tests.client.samplers:Stars ", ""),
        *("tests.client.samplers", "/etc/passwd:x", "../x.py:Stars", "builtins:eval", ":"),
        *("tests.client.samplers:Stars.__init__.__globals__", "penstock.graph:Graph"),
    ],
)
def test_only_samplers_that_the_server_was_started_with_are_loaded(rank: Ranks, name: str) -> None:
    """CONTRACT 64"""
    visitor = rank()
    visitor.ask_to_enroll(spec=CustomSpec(sampler=name), split="train")
    with pytest.raises(ValueError, match="setting: samplers"):
        raise visitor.refusal()
    with pytest.raises(ValueError, match="sampler is"):
        _backend(visitor, CustomSpec(sampler=name))


def test_options_do_not_bring_another_sampler(rank: Ranks) -> None:
    """CONTRACT 64: a name that is put into the config by its options is looked at as well."""
    request = {
        "backend_key": "options",
        "sampling_config": msgspec.to_builtins(CustomSpec(sampler=SAMPLER)),
        "sampler_options": {"sampler": "os:system"},
    }
    visitor = rank()
    value: Any = None
    try:
        value = ask(visitor, "init_sampling_backend", request=request)
    except (ValueError, PenstockError):
        return
    # For a sampler of the user's own they are options that it gets, and cannot be names.
    assert isinstance(value, int)


# --- sizes --------------------------------------------------------------------------------------


def _enrol(visitor: BareRank, **fields: Any) -> None:
    register = Register(
        request=0, backend=0, feed=Feed(num_inputs=0, batch_size=16), **fields.pop("register", {})
    )
    wishes = {"spec": SPEC, "split": "train", **fields}
    visitor.say(Enroll(request=1, register=register, **wishes))


HUGE: dict[str, dict[str, Any]] = {
    "inputs": {"bulk": Bulk(nbytes=PETABYTE), "split": None},
    "inputs that wrap around": {"bulk": Bulk(nbytes=2**64 - 1), "split": None},
    "inputs below nothing": {"bulk": Bulk(nbytes=-1), "split": None},
    "an array": {
        "bulk": Bulk(arrays=(ArrayInfo("ids", "int64", (PETABYTE,), 0),), nbytes=64),
        "split": None,
    },
    "slots": {"register": {"slots": 1 << 40}},
    "a slot": {"register": {"slot_bytes": PETABYTE}},
    "a batch": {"register": {"most_bytes": PETABYTE}},
    "workers": {"workers": 1 << 30},
}


@pytest.mark.parametrize("what", HUGE)
def test_a_petabyte_is_refused_before_it_is_reserved(
    rank: Ranks, server: Server, what: str
) -> None:
    """CONTRACT 53"""
    visitor = rank()
    _enrol(visitor, **HUGE[what])
    error = visitor.refusal()
    assert isinstance(error, PenstockError | ValueError)
    assert not isinstance(error, MemoryError)
    assert server.statistics().input_bytes == 0


@pytest.mark.parametrize(
    "bulk",
    [
        Bulk(nbytes=PETABYTE),
        Bulk(nbytes=2**64 - 1),
        Bulk(arrays=(ArrayInfo("0", "int64", (PETABYTE,), 0),), nbytes=64),
        Bulk(arrays=(ArrayInfo("0", "int64", (2**32, 2**32), 0),), nbytes=64),
    ],
    ids=["bytes", "bytes that wrap around", "an array", "a product that wraps around"],
)
def test_arguments_of_a_petabyte_are_refused(rank: Ranks, bulk: Bulk) -> None:
    """CONTRACT 53"""
    visitor = rank()
    visitor.say(Call(request=1, verb="get_node_feature", bulk=bulk))
    assert isinstance(visitor.refusal(), Overloaded | ProtocolError)


def test_a_fan_out_without_end_costs_what_the_graph_has(rank: Ranks, graph: Graph) -> None:
    """CONTRACT 45: a slot is as large as a batch can be in this graph, whatever is asked for."""
    visitor = rank()
    spec = NeighborSpec(num_neighbors=(2**40, 2**40))
    visitor.ask_to_enroll(spec=spec, split="train", shuffle=True, seed=7)
    said, _ = visitor.hear_any()
    if isinstance(said, Refused):
        assert isinstance(error_of(said.report), PenstockError | ValueError)
        return
    visitor.channel = said.channel
    visitor.start()
    assert visitor.read() == expected(graph, spec=NeighborSpec(num_neighbors=(-1, -1)))


# --- verbs --------------------------------------------------------------------------------------

ODD: list[Any] = [
    *(None, -1, 2**63, 2**64 - 1, 1.5, float("nan"), float("inf"), True, "", "x", "\0"),
    *(b"bytes", [], [1, 2], [[[]]], {}, {"a": 1}, ["a", "b", "c"], msgspec.msgpack.Ext(1, b"0")),
    *(msgspec.msgpack.Ext(2, b"9"), msgspec.msgpack.Ext(99, b""), {"split": {"split": {}}}),
]
# Nobody asks the server to end, or waits for that, in a test that goes on with it.
SAFE = sorted(set(VERBS) - {"exit", "wait_for_exit"})


@pytest.mark.parametrize("verb", SAFE)
def test_a_verb_with_arguments_that_make_no_sense_is_refused_in_words(
    rank: Ranks, server: Server, verb: str
) -> None:
    """CONTRACT 32, CONTRACT 38: each argument, one that there is none of, and too few."""
    visitor, hub, number = rank(), server.hub.pid, 0
    fields = VERBS[verb].takes.__struct_fields__
    for name in (*fields, "there_is_none", "self", "holder", "__class__"):
        for value in ODD:
            number += 1
            visitor.say(Call(request=number, verb=verb, arguments={name: value}))
            said, _ = visitor.hear_any()
            assert isinstance(said, Refused | Answer), said
            if isinstance(said, Refused):
                assert said.request == number
                assert said.report.kind in ("ValueError", "KeyError", *_OURS), said.report
            else:
                _rest_of(visitor, said)
    assert server.hub.pid == hub
    assert server.store.statistics()["channels"] == {}


@pytest.mark.parametrize("field", NeighborSpec.__struct_fields__)
def test_options_of_a_sampler_are_read_as_strictly_as_its_config(
    rank: Ranks, server: Server, field: str
) -> None:
    """CONTRACT 62: what comes in by this way is a spec's field, too."""
    visitor, hub, bystander = rank(), server.hub.pid, rank()
    bystander.enroll(split="train")
    config = msgspec.to_builtins(SPEC)
    for number, value in enumerate(ODD):
        request = {
            "backend_key": f"{field} {number}",
            "sampling_config": config,
            "sampler_options": {field: value},
        }
        with contextlib.suppress(ValueError, PenstockError):
            ask(visitor, "init_sampling_backend", request=request)
    bystander.start()
    assert len(bystander.read()) == 15
    assert server.hub.pid == hub


_OURS = ("ProtocolError", "Overloaded", "PenstockError", "GraphFormatError", "TypeError")


def _rest_of(visitor: BareRank, answer: Answer) -> None:
    have = 0
    while have < answer.bulk.nbytes:
        part, data = visitor.hear_any()
        assert isinstance(part, Part)
        have = part.offset + len(data)


@pytest.mark.parametrize(
    "index", [np.array([2**40]), np.array([-1]), np.array([400]), np.array([[0]]), np.array([0.5])]
)
@pytest.mark.parametrize("verb", ["get_node_feature", "get_node_label", "get_node_partition_id"])
def test_a_row_that_is_not_there_is_an_error(server: Server, verb: str, index: Any) -> None:
    """CONTRACT 38: never a wrong row."""
    from penstock.client.remote.door import Door
    from penstock.client.remote.store import Store

    store = Store(Door(server.address))
    try:
        with pytest.raises((ValueError, PenstockError)):
            store.ask(verb, index=index)
    finally:
        store.close()


def test_what_a_session_made_by_verbs_goes_with_it(rank: Ranks, server: Server) -> None:
    """CONTRACT 40"""
    maker = rank()
    request = {"backend_id": _backend(maker), "sampler_input": {"split": "train"}}
    terms = {"terms": {"batch_size": 16}}
    number = ask(maker, "register_sampling_input", request={**request, **terms})
    other = rank()
    maker.close()
    until(lambda: server.store.statistics()["channels"] == {}, "its channel is gone")
    with pytest.raises(PenstockError):
        other.call("fetch_one_sampled_message", channel_id=number)


def test_who_waits_is_not_waited_for(rank: Ranks, server: Server) -> None:
    """CONTRACT 40: what a rank has is freed with its lease, whatever it was waiting for."""
    maker = rank()
    request = {"backend_id": _backend(maker), "sampler_input": {"split": "train"}}
    ask(maker, "register_sampling_input", request={**request, "terms": {"batch_size": 16}})
    for number in range(1, 10):
        maker.say(Call(request=number, verb="wait_for_exit", arguments={"timeout": 50.0}))
    assert maker.call("ping") == (None, {})
    maker.close()
    until(lambda: server.store.statistics()["channels"] == {}, "its channel is gone", 40.0)


def test_nothing_is_left_of_all_this(server: Server) -> None:
    """CONTRACT 40"""
    with visitors() as context, BareRank(server.address, context) as last:
        last.greet()
        until(lambda: len(server.statistics().sessions) == 1, "all others have gone")
        until(lambda: server.hub.statistics()["hub"]["channels"] == 0, "so have their channels")
        assert server.statistics().input_bytes == 0
        until(lambda: server.store.statistics()["backends"] == {}, "and backends")
