"""What ranks say, made up by chance: every message is heard, refused in words, or ends its session.

First the parts that read what comes, without a server around them, so that very much can be tried;
then a real server. Whatever is said, no exception leaves it but those that are expected, and what
was taken for a session is given back with it.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.client.dist_calls import VERBS
from penstock.errors import PenstockError, ProtocolError
from penstock.graph import Graph
from penstock.options import ChannelOptions, fields_of
from penstock.sampling.spec import CustomSpec, Feed, NeighborSpec, PPRSpec
from penstock.server.serving import Server, serve
from penstock.wire import values
from penstock.wire.frames import private_memory, read
from penstock.wire.framing import CHUNK, HEADER, PREAMBLE, encode
from penstock.wire.messages import (
    MOST_MESSAGE,
    ArrayLayout,
    Call,
    FromRankToServer,
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
from penstock.wire.payload import MOST_ARRAYS, reserved
from penstock.wire.tcp_stream import SCRATCH, TcpStream
from tests.client.graphs import PATIENCE_S, SPEC, small_graph
from tests.processes import until
from tests.server.ranks import BareRank
from tests.server.transport.strangers import frame
from tests.wishes import register

DECODER = msgspec.msgpack.Decoder(FromRankToServer)
MANY = settings(max_examples=200, deadline=None)
# Of those that go over a socket.
SOME = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

# --- numbers, words and lies ---

INTEGERS = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, 1, -1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 2**64 - 1]),
    st.integers(-2, 20),
)
FLOATS = st.one_of(st.floats(), st.sampled_from([float("nan"), float("inf"), -1.0, 0.0, 1e308]))
TEXT = st.one_of(st.text(max_size=20), st.sampled_from(["", "train", "..", "/etc/passwd", "\0"]))
SHAPES = st.lists(INTEGERS, max_size=40).map(tuple)
DTYPES = st.one_of(
    TEXT, st.sampled_from(["int64", "float32", "bool", "bfloat16", "object", "O", "V8", "S5", "U4"])
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXT | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)
LAYOUTS = st.builds(ArrayLayout, TEXT, DTYPES, SHAPES, INTEGERS)
ARRAYS = st.lists(LAYOUTS, max_size=4).map(tuple)
FEEDS = st.builds(
    Feed,
    num_inputs=INTEGERS,
    batch_size=INTEGERS,
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    seed=INTEGERS,
    node_type=st.none() | TEXT,
    edge_type=st.none() | st.tuples(TEXT, TEXT, TEXT),
)
SPECS = st.one_of(
    st.just(SPEC),
    st.builds(
        NeighborSpec,
        num_neighbors=st.lists(INTEGERS, max_size=4).map(tuple),
        replace=st.booleans(),
        disjoint=st.booleans(),
    ),
    st.builds(PPRSpec, alpha=FLOATS, eps=FLOATS, max_ppr_nodes=INTEGERS),
    st.builds(CustomSpec, sampler=TEXT, options=st.dictionaries(TEXT, ANYTHING, max_size=2)),
)
# What is said of an option whatever it may be: any number, or any text.
_ANY: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: INTEGERS,
    float: FLOATS,
    str: TEXT | st.sampled_from(["substitute", "drop"]),
    tuple: st.lists(TEXT, max_size=3).map(tuple),
}
OPTIONS = st.builds(
    ChannelOptions,
    **{
        field.name: st.none() | _ANY[field.kind] if field.is_optional else _ANY[field.kind]
        for field in fields_of(ChannelOptions).values()
    },
)
SAID: dict[type[Message], st.SearchStrategy[Any]] = {
    Hello: st.builds(
        Hello,
        protocol=INTEGERS,
        pid=INTEGERS,
        host=TEXT,
        name=TEXT,
        token=st.none() | TEXT,
        tenant=TEXT,
        graph=TEXT,
        trace=TEXT,
    ),
    Register: st.builds(
        Register,
        request=INTEGERS,
        feed=FEEDS,
        backend=INTEGERS | st.just(0),
        spec=st.none() | SPECS,
        split=st.none() | TEXT,
        file=st.none() | TEXT,
        arrays=ARRAYS | st.just(()),
        workers=st.none() | INTEGERS,
        options=OPTIONS,
    ),
    Call: st.builds(
        Call,
        request=INTEGERS,
        verb=TEXT | st.sampled_from(sorted(set(VERBS) - {"exit", "wait_for_exit"})),
        arguments=st.dictionaries(TEXT, ANYTHING, max_size=3),
        arrays=ARRAYS | st.just(()),
    ),
    StartEpoch: st.builds(
        StartEpoch, channel=INTEGERS, epoch=INTEGERS, first=INTEGERS, first_step=INTEGERS
    ),
    ReturnSlot: st.builds(ReturnSlot, channel=INTEGERS, slot=INTEGERS),
    Unregister: st.builds(Unregister, channel=INTEGERS),
    Reweigh: st.builds(Reweigh, channel=INTEGERS, weight=FLOATS),
    Heartbeat: st.builds(
        Heartbeat, reply=st.booleans(), private=INTEGERS, cpu=FLOATS, batches=INTEGERS
    ),
    Goodbye: st.just(Goodbye()),
}
ANY_MESSAGE = st.one_of(*SAID.values())


def test_every_message_of_a_rank_is_among_those_that_are_made_up() -> None:
    assert set(SAID) == set(FromRankToServer.__args__)


# --- single pieces of the decoder ---


@given(st.binary(max_size=200))
@example(b"\x91" * 5000)  # deep
@example(b"\xdd\xff\xff\xff\xff")  # an array of four thousand million
@example(b"\xdf\xff\xff\xff\xff\xa1x")
@example(b"\xdb\xff\xff\xff\xffx")
@example(b"\xc9\xff\xff\xff\xff\x01")
@MANY
def test_bytes_are_a_message_or_an_error_of_the_decoder(data: bytes) -> None:
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        DECODER.decode(data)


@given(ANY_MESSAGE, st.data())
@MANY
def test_a_message_that_is_cut_short_or_changed_is_a_message_or_an_error(
    message: Message, data: st.DataObject
) -> None:
    encoded = bytearray(encode(message))
    if data.draw(st.booleans(), "cut"):
        del encoded[data.draw(st.integers(0, len(encoded))) :]
    for _ in range(data.draw(st.integers(0, 3), "changes") if encoded else 0):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        DECODER.decode(bytes(encoded))


@given(ARRAYS, st.integers(0, 1 << 16))
@example((ArrayLayout("a", "int64", (2**62, 2**62), 0),), 64)
@example((ArrayLayout("a", "int64", (0, 2**64 - 1), 0),), 0)
@example((ArrayLayout("a", "int64", (-1,), 64),), 64)
@example((ArrayLayout("a", "object", (1,), 0),), 64)
@example(tuple(ArrayLayout(str(i), "bool", (0,), 0) for i in range(MOST_ARRAYS + 1)), 0)
@MANY
def test_arrays_that_do_not_fit_their_payload_are_a_protocol_error(
    arrays: tuple[ArrayLayout, ...], nbytes: int
) -> None:
    try:
        memory = reserved(arrays, nbytes)
        found = read(memory, arrays)
    except ProtocolError:
        return
    assert memory.nbytes == nbytes
    for array in found.values():
        assert array.nbytes <= nbytes


@given(st.lists(LAYOUTS, max_size=4))
@MANY
def test_a_layout_never_reaches_outside_the_memory(layouts: list[ArrayLayout]) -> None:
    memory = np.zeros(256, np.uint8)
    try:
        arrays = read(memory, layouts)
    except ProtocolError:
        return
    for array in arrays.values():
        assert array.nbytes == 0 or np.shares_memory(array, memory)
        assert array.nbytes <= 256


@given(ANYTHING, st.sampled_from(sorted(VERBS)))
@MANY
def test_arguments_that_are_none_are_errors_in_words(plain: Any, verb: str) -> None:
    with contextlib.suppress(ValueError, PenstockError):
        values.unpack(plain, {}, VERBS[verb].takes)


def test_values_that_nest_too_deep_are_refused() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    with pytest.raises(ProtocolError, match="nests deeper"):
        values.unpack({"index": deep}, {}, VERBS["get_node_feature"].takes)


# --- frames, in whatever order and pieces they come ---

SIZES = st.sampled_from([0, 0, 1, 3, 64, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5])
LANES = st.integers(0, 2)
PIECES = st.lists(st.sampled_from([1, 2, 15, 16, 17, 100, SCRATCH - 1, SCRATCH, CHUNK]), min_size=1)
# A message in a lane, with a payload of so many bytes; or a chunk of so many.
FRAMES = st.lists(st.tuples(st.booleans(), LANES, SIZES), max_size=8)


class Model:
    """What is to become of frames, told as simply as can be."""

    def __init__(self) -> None:
        self.complete: list[tuple[int, bytes]] = []  # messages by number, with their payloads
        self._open: dict[int, tuple[int, bytes, int]] = {}

    def frame(self, number: int, begins: bool, lane: int, nbytes: int) -> bytes | None:
        """The bytes of a frame; None if it makes no sense, and what comes then does not matter."""
        if begins:
            if lane in self._open:
                return None
            chunk = _noise(min(nbytes, CHUNK))
            self._open[lane] = number, b"", nbytes
            begin = frame(encode(Call(request=number, verb="x")), lane, nbytes)
        else:
            _, have, whole = self._open.get(lane, (0, b"", 0))
            if not 0 < nbytes <= min(CHUNK, whole - len(have)):
                return None
            chunk = _noise(nbytes)
            begin = HEADER.pack(0, 0, lane, nbytes)
        number, have, whole = self._open.pop(lane)
        if len(have) + len(chunk) == whole:
            self.complete.append((number, have + chunk))
        else:
            self._open[lane] = number, have + chunk, whole
        return begin + chunk


def _noise(nbytes: int) -> bytes:
    return bytes(itertools.islice(itertools.cycle(b"penstock's noise"), min(nbytes, 64))).ljust(
        nbytes, b"."
    )


@contextlib.contextmanager
def stream_of(**options: Any) -> Iterator[tuple[TcpStream[Any], socket.socket]]:
    """A stream, and the other end of its socket."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    stream: TcpStream[Any] = TcpStream(
        ours, FromRankToServer, reserve=lambda _, nbytes: private_memory(nbytes), **options
    )
    with ours, theirs:
        yield stream, theirs


def fed(stream: TcpStream[Any], source: socket.socket, data: bytes) -> Iterator[tuple[Any, Any]]:
    """Sends a piece, and gives the messages that have come by then."""
    for begin in range(0, len(data), SCRATCH):
        source.sendall(data[begin : begin + SCRATCH])
        while True:
            yield from stream.receive()
            if not stream.has_more:
                break


def cut(data: bytes, pieces: list[int]) -> Iterator[bytes]:
    """Pieces of these sizes, in turn; what is long is not cut into very many."""
    at = 0
    for turn, size in enumerate(itertools.cycle(pieces)):
        yield data[at : at + (size if turn < 400 else SCRATCH)]
        at += size if turn < 400 else SCRATCH
        if at >= len(data):
            return


@given(FRAMES, PIECES)
@example([(True, 0, CHUNK + 1), (True, 1, 3), (False, 0, 1)], [1])
@example([(True, 0, CHUNK + 1), (False, 0, 2)], [SCRATCH])
@example([(True, 0, CHUNK + 1), (True, 0, 0)], [CHUNK])
@example([(False, 1, 1)], [SCRATCH])
@example([(True, 0, 0), (False, 1, 0)], [7])
@settings(max_examples=100, deadline=None)
def test_frames_are_messages_or_a_protocol_error_however_they_are_cut(
    frames: list[tuple[bool, int, int]], pieces: list[int]
) -> None:
    """CONTRACT 73: chunks before their message, twice, too long, in a lane that is in use."""
    model, data, is_wrong = Model(), PREAMBLE, False
    for number, (begins, lane, nbytes) in enumerate(frames, 1):
        made = model.frame(number, begins, lane, nbytes)
        if made is None:
            body = encode(Call(request=number, verb="x")) if begins else b""
            data, is_wrong = data + frame(body, lane, nbytes), True
            break
        data += made
    heard: list[tuple[int, bytes]] = []
    with stream_of() as (stream, source):
        try:
            for piece in cut(data, pieces):
                for message, payload in fed(stream, source, piece):
                    heard.append((message.request, b"" if payload is None else bytes(payload)))
        except ProtocolError:
            assert is_wrong
            assert heard == model.complete[: len(heard)]
            assert stream.ended
            return
    assert not is_wrong
    assert heard == model.complete


@given(st.binary(max_size=400), PIECES, st.booleans())
@example(frame(b"\xc1" * 10), [20], True)
@example(frame(b"", size=2**32 - 1), [3], True)
@example(frame(b"x", descriptors=1), [5], True)
@example(b"pensto" + b"xx", [6], False)
@MANY
def test_any_bytes_are_messages_or_a_protocol_error_however_they_are_cut(
    data: bytes, pieces: list[int], greets: bool
) -> None:
    """CONTRACT 73"""
    with stream_of() as (stream, source):
        try:
            for piece in cut((PREAMBLE if greets else b"") + data, pieces):
                list(fed(stream, source, piece))
        except ProtocolError:
            assert stream.ended
        assert stream.held <= len(data)


def _seconds_for(data: bytes, piece: int) -> float:
    """How long it takes to hear something in pieces of so many bytes."""
    with stream_of() as (stream, source):
        source.sendall(PREAMBLE)
        stream.receive()
        began = time.process_time()
        for at in range(0, len(data), piece):
            source.send(data[at : at + piece])
            stream.receive()
        return time.process_time() - began


def test_a_long_message_that_comes_in_small_pieces_costs_no_more_than_short_ones() -> None:
    """CONTRACT 73: what has come of it is not copied again with each piece.

    If it was, this would take about five times as long.
    """
    long = frame(encode(Call(request=1, verb="ping", arguments={"x": bytes(MOST_MESSAGE - 100)})))
    short = frame(encode(Call(request=1, verb="ping", arguments={"x": bytes(len(long) // 256)})))
    once = min(_seconds_for(long, 64) for _ in range(5))
    often = min(_seconds_for(256 * short, 64) for _ in range(5))
    assert once < 2.5 * often


# --- a server that hears them all ---


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    with small_graph() as made:
        yield made


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[Server]:
    with serve(
        graph, num_workers=1, lease=PATIENCE_S, samplers=["tests.client.samplers:Stars"]
    ) as served:
        yield served


_names = itertools.count()


@pytest.fixture(scope="module")
def steady(server: Server) -> Iterator[BareRank]:
    """Somebody who has been there all the time."""
    with BareRank(server.address) as rank:
        rank.greet(name="steady")
        yield rank


@given(st.lists(st.tuples(ANY_MESSAGE, st.integers(0, 100)), max_size=6), st.booleans())
@SOME
def test_messages_made_up_by_chance_harm_nobody(
    server: Server, steady: BareRank, messages: list[tuple[Message, int]], registers: bool
) -> None:
    """CONTRACT 53, CONTRACT 73: others are answered, the hub is the one it was, nothing is kept."""
    hub = server.hub.pid
    with BareRank(server.address) as rank:
        rank.greet(name=f"made up {next(_names)}")
        if registers:
            rank.register(split="train", request=1000)
        for message, nbytes in messages:
            payload = [memoryview(bytes(nbytes))] if isinstance(message, Register | Call) else []
            rank.say_if_connected(message, payload if nbytes else [])
        assert steady.call("ping") == (None, {})
    assert server.trouble() is None
    assert server.hub.pid == hub


# One field of a registration that would be granted is something else.
RIGHT = register(
    request=1, spec=SPEC, feed=Feed(num_inputs=0, batch_size=16), slots=2, split="train"
)
OF_THE_OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    field.name: _ANY[field.kind] for field in fields_of(ChannelOptions).values()
}
OF_A_FEED: dict[str, st.SearchStrategy[Any]] = {
    "num_inputs": INTEGERS,
    "batch_size": INTEGERS,
    "seed": INTEGERS,
    "node_type": TEXT,
    "edge_type": st.tuples(TEXT, TEXT, TEXT),
}


@st.composite
def nearly_right(draw: st.DrawFn) -> Register:
    """A registration with one thing wrong, or unusual."""
    match draw(st.sampled_from(["options", "feed", "spec"])):
        case "options":
            name = draw(st.sampled_from(sorted(OF_THE_OPTIONS)))
            options = msgspec.structs.replace(RIGHT.options, **{name: draw(OF_THE_OPTIONS[name])})
            return msgspec.structs.replace(RIGHT, options=options)
        case "feed":
            name = draw(st.sampled_from(sorted(OF_A_FEED)))
            feed = msgspec.structs.replace(RIGHT.feed, **{name: draw(OF_A_FEED[name])})
            return msgspec.structs.replace(RIGHT, feed=feed)
        case _:
            return msgspec.structs.replace(RIGHT, spec=draw(SPECS))


@given(nearly_right(), INTEGERS, INTEGERS, INTEGERS)
@SOME
def test_a_registration_with_one_thing_wrong_is_refused_or_works(
    server: Server, steady: BareRank, register: Register, epoch: int, first: int, first_step: int
) -> None:
    """CONTRACT 25, CONTRACT 53: and so is any epoch of it; the hub hears nothing that ends it."""
    hub = server.hub.pid
    with BareRank(server.address) as rank:
        rank.greet(name="nearly right")
        rank.say(register)
        said, _ = rank.hear_any()
        if isinstance(said, Registered):
            rank.say(
                StartEpoch(channel=said.channel, epoch=epoch, first=first, first_step=first_step)
            )
            rank.say_if_connected(Call(request=2, verb="hub_statistics"))
            rank.hear_any()
        else:
            assert isinstance(said, Refused)
    assert steady.call("ping") == (None, {})
    assert server.trouble() is None
    assert server.hub.pid == hub


def test_after_all_that_nothing_is_left(server: Server, steady: BareRank) -> None:
    """CONTRACT 40"""
    until(lambda: len(server.statistics().sessions) == 1, "only the steady one is here")
    until(lambda: server.hub.statistics()["hub"]["channels"] == 0, "no channel is left")
    assert server.statistics().input_bytes == 0
    assert server.store.statistics()["channels"] == {}
