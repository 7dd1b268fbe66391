"""Messages that are well formed and mean harm: each is refused in words, and harms nobody else."""

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

from penstock.client.dist_calls import VERBS
from penstock.errors import AccessDenied, Overloaded, PenstockError, ProtocolError
from penstock.graph import Graph
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.failures import error_of
from penstock.rpc.server import RemoteServer
from penstock.sampling.spec import CustomSpec, Feed, NeighborSpec
from penstock.server.limits import LONGEST_NAME
from penstock.server.serving import Server, serve
from penstock.wire.conversation import TABLES, Medium, Side, State
from penstock.wire.framing import CHUNK
from penstock.wire.messages import (
    MOST_HELLO,
    MOST_MESSAGE,
    PROTOCOL,
    Answer,
    ArrayLayout,
    Call,
    Goodbye,
    Heartbeat,
    Hello,
    Message,
    Refused,
    Register,
    Registered,
    ReturnSlot,
    Reweigh,
    StartEpoch,
    Unregister,
)
from penstock.wire.payload import MOST_ARRAYS
from tests.client.graphs import PATIENCE_S, SPEC, STEPS, expected
from tests.processes import until
from tests.server.ranks import BareRank, Parcel, hello
from tests.wishes import register

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
    with serve(graph, num_workers=1, lease=PATIENCE_S, files=[files], samplers=[SAMPLER]) as served:
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


# --- every message in every state ---------------------------------------------------------------

SAID: dict[type[Message], Message] = {
    Hello: hello(),
    Register: Register(request=9, spec=SPEC, feed=Feed(num_inputs=0, batch_size=16), split="train"),
    Call: Call(request=9, verb="ping"),
    StartEpoch: StartEpoch(channel=1, epoch=0),
    ReturnSlot: ReturnSlot(channel=1, slot=0),
    Unregister: Unregister(channel=1),
    Reweigh: Reweigh(channel=1, weight=1.0),
    Heartbeat: Heartbeat(reply=True),
    Goodbye: Goodbye(),
}
ALLOWED = TABLES[Medium.TCP, Side.RANK]
# A rank is greeted as soon as it has said Hello: in between it can be heard saying nothing.
REACHED = (State.NEW, State.OPEN, State.REGISTERING, State.REGISTERED, State.LEFT)
WRONG = [(state, kind) for state in REACHED for kind in SAID if kind not in ALLOWED[state]]
RIGHT = [(state, kind) for state in REACHED for kind in SAID if kind in ALLOWED[state]]
# Beside a message that is open in lane 0.
LANE = 5


def _name(value: Any) -> str:
    return value.value if isinstance(value, State) else str(value.__name__)


def _brought_to(state: State, rank: BareRank) -> None:
    if state is State.NEW:
        return
    rank.greet()
    if state is State.REGISTERING:  # its inputs are still on their way
        rank.announce(
            Register(request=1, spec=SPEC, feed=Feed(num_inputs=0, batch_size=16)), 2 * CHUNK
        )
        rank.say_raw(bytes(CHUNK))
    if state in (State.REGISTERED, State.LEFT):
        rank.register(split="train")
    if state is State.LEFT:
        rank.say(Unregister(channel=rank.channel))


def test_every_message_that_a_rank_may_send_is_tried() -> None:
    assert set(SAID) == {kind for allowed in ALLOWED.values() for kind in allowed}


@pytest.mark.parametrize(("state", "kind"), WRONG, ids=_name)
def test_a_message_in_the_wrong_state_ends_that_session_and_no_other(
    rank: Ranks, state: State, kind: type[Message]
) -> None:
    """CONTRACT 53, CONTRACT 74: it is told why, and hung up on."""
    bystander, wrong = rank(), rank(greeted=False)
    _brought_to(state, wrong)
    wrong.say(SAID[kind], lane=LANE)
    words = "say Hello first" if state is State.NEW else f"{kind.__name__} makes no sense now"
    with pytest.raises(ProtocolError, match=words):
        raise wrong.refusal()
    assert wrong.waits_for_end() == []
    assert bystander.call("ping") == (None, {})


@pytest.mark.parametrize(("state", "kind"), RIGHT, ids=_name)
def test_a_message_in_the_right_state_is_taken(
    rank: Ranks, state: State, kind: type[Message]
) -> None:
    """CONTRACT 74: the same conversations, without the mistake."""
    right = rank(greeted=False)
    _brought_to(state, right)
    said = SAID[kind]
    if "channel" in said.__struct_fields__:
        said = msgspec.structs.replace(said, channel=right.channel)
    if kind is ReturnSlot and state is State.REGISTERED:
        right.start()
        parcel = right.take()
        assert isinstance(parcel, Parcel)
        said = ReturnSlot(channel=right.channel, slot=parcel.ready.slot)
    right.say(said, lane=LANE)
    if kind is Goodbye:
        assert right.waits_for_end() == []
        return
    right.say(Call(request=77, verb="ping"), lane=LANE)
    heard: Any = None
    while heard != Answer(request=77):
        heard, _ = right.hear_any()
        assert not isinstance(heard, Refused), heard


@pytest.mark.parametrize("kind", SAID, ids=_name)
def test_after_goodbye_nothing_is_heard(rank: Ranks, server: Server, kind: type[Message]) -> None:
    """CONTRACT 74: nor answered; the session is over."""
    over, opened = rank(), server.statistics().opened
    over.goodbye()
    over.say(SAID[kind])
    assert over.waits_for_end() == []
    assert server.statistics().opened == opened


CANNOT = [kind for kind in SAID if kind not in (Register, Call, Goodbye)]


@pytest.mark.parametrize("kind", CANNOT, ids=_name)
def test_a_payload_on_a_message_that_cannot_have_one_ends_that_session(
    rank: Ranks, kind: type[Message]
) -> None:
    """CONTRACT 73, CONTRACT 74: wherever that message may stand."""
    wrong, bystander = rank(), rank()
    if kind in ALLOWED[State.REGISTERED]:
        wrong.register(split="train")
    wrong.announce(SAID[kind], 8)
    assert isinstance(wrong.refusal(), ProtocolError)
    assert wrong.waits_for_end() == []
    assert bystander.call("ping") == (None, {})


def test_a_goodbye_with_a_payload_ends_that_session(graph: Graph) -> None:
    """CONTRACT 73: the end of a conversation is no place for another refusal; nobody fails."""
    with (
        serve(graph, num_workers=1, lease=PATIENCE_S) as served,
        BareRank(served.address) as wrong,
        BareRank(served.address) as bystander,
    ):
        bystander.greet()
        wrong.greet()
        wrong.announce(Goodbye(), 8)
        wrong.waits_for_end()
        assert bystander.call("ping") == (None, {})
        assert served.trouble() is None


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
    owner.register(split="train", slots=2)
    thief.register(split="train")
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
    rank_.register(split="train", slots=2)
    rank_.start(0, first_step=STEPS - 1)
    parcel = rank_.take()
    assert isinstance(parcel, Parcel)
    rank_.give_back(parcel)
    rank_.give_back(parcel)
    said: Any = None
    while not isinstance(said, Refused):
        said, _ = rank_.hear_any()
        if isinstance(said, Registered):
            pytest.fail("nothing was asked for")
    assert "was not with the rank" in said.report.message


@pytest.mark.parametrize(
    "first",
    [
        Register(request=5, spec=SPEC, feed=Feed(num_inputs=0, batch_size=16)),
        Call(request=5, verb="get_node_label"),
    ],
    ids=["Register", "Call"],
)
def test_the_number_of_a_request_is_not_used_twice(
    rank: Ranks, server: Server, first: Message
) -> None:
    """CONTRACT 53: its refusal would be taken for the other's, and a channel be forgotten."""
    twice = rank()
    twice.announce(first, 2 * CHUNK)
    twice.say_raw(bytes(CHUNK))  # the rest is on its way
    twice.say(Call(request=5, verb="nonsense"), lane=LANE)
    with pytest.raises(ProtocolError, match="request 5 cannot be used"):
        raise twice.refusal()
    assert twice.waits_for_end() == []
    until(lambda: server.statistics().input_bytes == 0, "nothing is kept of it")


@pytest.mark.parametrize("number", [0, -1, -(2**63)])
def test_a_request_has_a_number_of_its_own(rank: Ranks, number: int) -> None:
    """0 is what the server says of its own accord."""
    wrong = rank()
    wrong.say(Call(request=number, verb="ping"))
    with pytest.raises(ProtocolError, match=f"request {number} cannot be used"):
        raise wrong.refusal()


# --- who may come in ----------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [0, PROTOCOL - 1, PROTOCOL + 1, -1, 2**63, 2**64 - 1])
def test_another_version_is_told_what_to_do(rank: Ranks, protocol: int) -> None:
    visitor = rank(greeted=False)
    visitor.hello(protocol=protocol)
    with pytest.raises(ProtocolError, match="install the same version"):
        raise visitor.refusal()
    assert visitor.waits_for_end() == []


@pytest.mark.parametrize("field", ["name", "host", "token", "tenant", "graph", "trace"])
def test_nobody_has_a_very_long_name(rank: Ranks, field: str) -> None:
    """CONTRACT 53, CONTRACT 73: it would be kept, and shown in every statistic."""
    visitor = rank(greeted=False)
    visitor.hello(**{field: "x" * (LONGEST_NAME + 1)})
    error = visitor.refusal()
    assert f"the {field} of a Hello is longer" in str(error)
    assert len(str(error)) < 1000
    rank(greeted=False).greet(**{field: "x" * LONGEST_NAME})


@pytest.mark.parametrize("nbytes", [MOST_HELLO, 1 << 19])
def test_a_first_message_is_short(rank: Ranks, nbytes: int) -> None:
    """CONTRACT 73: nothing of a longer one is kept, let alone read."""
    visitor = rank(greeted=False)
    visitor.hello(name="x" * nbytes)
    error = visitor.refusal()
    assert f"at most {MOST_HELLO}" in str(error)
    assert len(str(error)) < 1000


def test_a_job_has_no_name_of_half_a_megabyte(rank: Ranks) -> None:
    visitor = rank()
    feed = Feed(num_inputs=0, batch_size=16)
    job = "x" * (MOST_MESSAGE // 2)
    visitor.say(register(request=1, spec=SPEC, feed=feed, job=job, split="train"))
    with pytest.raises(ValueError, match="job's name is longer"):
        raise visitor.refusal()


def test_refusals_do_not_repeat_megabytes(rank: Ranks) -> None:
    visitor = rank()
    with pytest.raises(ProtocolError) as caught:
        visitor.call("x" * (MOST_MESSAGE - 1000))
    assert len(str(caught.value)) < 100_000


@pytest.mark.parametrize("token", [None, "", "wrong", "right ", "RIGHT", "right\0"])
def test_without_the_token_there_is_no_way_in(guarded: Server, token: str | None) -> None:
    """CONTRACT 74: who was refused is hung up on, whatever it says next."""
    with BareRank(guarded.address) as visitor:
        visitor.hello(token=token)
        visitor.say(Call(request=1, verb="get_node_ids"))
        (refused,) = visitor.waits_for_end()
        error = error_of(refused.report)
        assert isinstance(error, AccessDenied)
        assert "right" not in str(error)
    with BareRank(guarded.address) as visitor:
        visitor.greet(token="right")


@pytest.fixture(scope="module")
def guarded(graph: Graph) -> Iterator[Server]:
    with serve(graph, num_workers=1, lease=PATIENCE_S, tokens={"somebody": "right"}) as served:
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
    visitor.ask_to_register(file=file)
    with pytest.raises((ValueError, Overloaded)) as caught:
        raise visitor.refusal()
    assert "root:" not in str(caught.value)
    wishes = {"sampler_input": {"file": file}, "channel_options": {"batch_size": 4}}
    request = {"backend_id": _backend(visitor), **wishes}
    with pytest.raises((ValueError, Overloaded)):
        ask(visitor, "register_sampling_input", request=request)


def _backend(visitor: BareRank, config: Any = SPEC) -> int:
    key = f"words {next(_requests)}"  # that of who has just left may still be on its way out
    request = {"backend_key": key, "sampling_config": msgspec.to_builtins(config)}
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
    visitor.ask_to_register(spec=CustomSpec(sampler=name), split="train")
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


LYING = (ArrayLayout("ids", "int64", (PETABYTE,), 0),)
# What a registration says of itself, and the bytes of its payload.
HUGE: dict[str, tuple[dict[str, Any], int]] = {
    "inputs": ({}, PETABYTE),
    "as much as can be announced": ({}, 2**64 - 1),
    "an array": ({"arrays": LYING}, 64),
    "slots": ({"slots": 1 << 40, "split": "train"}, 0),
    "a slot": ({"buffer_size": PETABYTE, "split": "train"}, 0),
    "a batch": ({"max_batch_bytes": PETABYTE, "split": "train"}, 0),
    "workers": ({"workers": 1 << 30, "split": "train"}, 0),
}


@pytest.mark.parametrize("what", HUGE)
def test_a_petabyte_is_refused_before_it_is_reserved(
    rank: Ranks, server: Server, what: str
) -> None:
    """CONTRACT 53, CONTRACT 73"""
    visitor = rank()
    fields, nbytes = HUGE[what]
    feed = Feed(num_inputs=0, batch_size=16)
    visitor.announce(register(request=1, spec=SPEC, feed=feed, **fields), nbytes)
    error = visitor.refusal()
    assert isinstance(error, PenstockError | ValueError)
    assert not isinstance(error, MemoryError)
    assert server.statistics().input_bytes == 0


@pytest.mark.parametrize(
    ("arrays", "nbytes"),
    [
        ((), PETABYTE),
        ((), 2**64 - 1),
        (LYING, 64),
        ((ArrayLayout("0", "int64", (2**32, 2**32), 0),), 64),
        ((ArrayLayout("0", "int64", (-8,), 0),), 64),
        ((ArrayLayout("0", "int64", (8,), -64),), 64),
        ((ArrayLayout("0", "int64", (8,), 2**63),), 64),
        ((ArrayLayout("0", "object", (8,), 0),), 64),
        ((ArrayLayout("0", "int64", (8,), 0), ArrayLayout("0", "int64", (8,), 0)), 64),
        (tuple(ArrayLayout(str(number), "int8", (0,), 0) for number in range(MOST_ARRAYS + 1)), 64),
    ],
    ids=[
        *("bytes", "as many as can be announced", "an array", "a product that wraps around"),
        *("a size below zero", "a place before the first byte", "a place far behind the last"),
        *("no numbers", "a name twice", "very many arrays"),
    ],
)
def test_arguments_that_do_not_fit_what_is_announced_are_refused(
    rank: Ranks, arrays: tuple[ArrayLayout, ...], nbytes: int
) -> None:
    """CONTRACT 53, CONTRACT 73: before any of them comes."""
    visitor = rank()
    visitor.announce(Call(request=1, verb="get_node_feature", arrays=arrays), nbytes)
    assert isinstance(visitor.refusal(), Overloaded | ProtocolError)


def test_a_fan_out_without_end_costs_what_the_graph_has(rank: Ranks, graph: Graph) -> None:
    """CONTRACT 45: a slot is as large as a batch can be in this graph, whatever is asked for."""
    visitor = rank()
    spec = NeighborSpec(num_neighbors=(2**40, 2**40))
    visitor.ask_to_register(spec=spec, split="train", shuffle=True, seed=7)
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
    assert server.hub.pid == hub
    assert server.store.statistics()["channels"] == {}


@pytest.mark.parametrize("field", NeighborSpec.__struct_fields__)
def test_options_of_a_sampler_are_read_as_strictly_as_its_config(
    rank: Ranks, server: Server, field: str
) -> None:
    """CONTRACT 62: what comes in by this way is a spec's field, too."""
    visitor, hub, bystander = rank(), server.hub.pid, rank()
    bystander.register(split="train")
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


@pytest.mark.parametrize(
    "index", [np.array([2**40]), np.array([-1]), np.array([400]), np.array([[0]]), np.array([0.5])]
)
@pytest.mark.parametrize("verb", ["get_node_feature", "get_node_label", "get_node_partition_id"])
def test_a_row_that_is_not_there_is_an_error(server: Server, verb: str, index: Any) -> None:
    """CONTRACT 38: never a wrong row."""
    store = RemoteServer(Endpoint(server.address))
    try:
        with pytest.raises((ValueError, PenstockError)):
            store.ask(verb, index=index)
    finally:
        store.close()


def test_what_a_session_made_by_verbs_goes_with_it(rank: Ranks, server: Server) -> None:
    """CONTRACT 40"""
    maker = rank()
    request = {"backend_id": _backend(maker), "sampler_input": {"split": "train"}}
    channel_options = {"channel_options": {"batch_size": 16}}
    number = ask(maker, "register_sampling_input", request={**request, **channel_options})
    other = rank()
    maker.close()
    until(lambda: server.store.statistics()["channels"] == {}, "its channel is gone")
    with pytest.raises(PenstockError):
        other.call("fetch_one_sampled_message", channel_id=number)


def test_who_waits_is_not_waited_for(rank: Ranks, server: Server) -> None:
    """CONTRACT 40: what a rank has is freed with its lease, whatever it was waiting for."""
    maker = rank()
    request = {"backend_id": _backend(maker), "sampler_input": {"split": "train"}}
    options = {"channel_options": {"batch_size": 16}}
    ask(maker, "register_sampling_input", request={**request, **options})
    for number in range(1, 10):
        maker.say(Call(request=number, verb="wait_for_exit", arguments={"timeout": 50.0}))
    assert maker.call("ping") == (None, {})
    maker.close()
    until(lambda: server.store.statistics()["channels"] == {}, "its channel is gone", 40.0)


def test_nothing_is_left_of_all_this(server: Server) -> None:
    """CONTRACT 40"""
    with BareRank(server.address) as last:
        last.greet()
        until(lambda: len(server.statistics().sessions) == 1, "all others have gone")
        until(lambda: server.hub.statistics()["hub"]["channels"] == 0, "so have their channels")
        assert server.statistics().input_bytes == 0
        until(lambda: server.store.statistics()["backends"] == {}, "and backends")
