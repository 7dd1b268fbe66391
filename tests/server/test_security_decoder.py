"""What ranks say, made up by chance: every word is heard, refused in words, or ends its session.

The reception is the real one, with a real server around it; only the socket is left out, so that
very many words can be tried. Whatever is said, no exception leaves it, and what was taken for a
session is given back with it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError, ProtocolError
from penstock.graph import Graph
from penstock.sampling.spec import CustomSpec, Feed, NeighborSpec, PPRSpec
from penstock.server.serving import Server, serve
from penstock.wire import bulk, values
from penstock.wire.bulk import Assembly
from penstock.wire.frames import read
from penstock.wire.messages import (
    ArrayLayout,
    Message,
    Refused,
    Register,
    ReturnSlot,
    Reweigh,
    Share,
    StartEpoch,
    Unregister,
)
from penstock.wire.remote import (
    ArrayInfo,
    Bulk,
    Call,
    Enroll,
    Enrolled,
    FromRankToServer,
    Goodbye,
    Knock,
    Part,
)
from penstock.wire.verbs import VERBS
from tests.client.graphs import SPEC, small_graph
from tests.processes import until
from tests.server.ranks import BareRank, visitors

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
ARRAYS = st.builds(ArrayInfo, TEXT, DTYPES, SHAPES, INTEGERS)
BULKS = st.builds(Bulk, arrays=st.lists(ARRAYS, max_size=4).map(tuple), nbytes=INTEGERS)
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
REGISTERS = st.builds(
    Register,
    request=INTEGERS,
    backend=INTEGERS,
    feed=FEEDS,
    share=st.builds(Share, rank=INTEGERS, world_size=INTEGERS, remainder=TEXT),
    slots=st.none() | INTEGERS,
    slot_bytes=st.none() | INTEGERS,
    most_bytes=st.none() | INTEGERS,
    weight=FLOATS,
    deadline=st.none() | FLOATS,
    max_attempts=INTEGERS,
    on_error=TEXT | st.sampled_from(["raise", "substitute"]),
    max_substitutes=INTEGERS,
    job=TEXT,
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
WORDS: dict[type[Message], st.SearchStrategy[Any]] = {
    Knock: st.builds(
        Knock, protocol=INTEGERS, pid=INTEGERS, host=TEXT, name=TEXT, token=st.none() | TEXT
    ),
    Enroll: st.builds(
        Enroll,
        request=INTEGERS,
        spec=SPECS,
        register=REGISTERS,
        split=st.none() | TEXT,
        file=st.none() | TEXT,
        bulk=BULKS | st.just(Bulk()),
        workers=st.none() | INTEGERS,
    ),
    Part: st.builds(Part, request=INTEGERS, offset=INTEGERS),
    Call: st.builds(
        Call,
        request=INTEGERS,
        verb=TEXT | st.sampled_from(sorted(set(VERBS) - {"exit", "wait_for_exit"})),
        arguments=st.dictionaries(TEXT, ANYTHING, max_size=3),
        bulk=BULKS | st.just(Bulk()),
    ),
    StartEpoch: st.builds(
        StartEpoch, channel=INTEGERS, epoch=INTEGERS, first=INTEGERS, first_step=INTEGERS
    ),
    ReturnSlot: st.builds(ReturnSlot, channel=INTEGERS, slot=INTEGERS),
    Unregister: st.builds(Unregister, channel=INTEGERS),
    Reweigh: st.builds(Reweigh, channel=INTEGERS, weight=FLOATS),
    Goodbye: st.just(Goodbye()),
}
ANY_WORD = st.one_of(*WORDS.values())


def test_every_word_of_a_rank_is_among_those_that_are_made_up() -> None:
    assert set(WORDS) == set(FromRankToServer.__args__)


# --- single pieces of the decoder ---


@given(st.binary(max_size=200))
@example(b"\x91" * 5000)  # deep
@example(b"\xdd\xff\xff\xff\xff")  # an array of four thousand million
@example(b"\xdf\xff\xff\xff\xff\xa1x")
@example(b"\xdb\xff\xff\xff\xffx")
@example(b"\xc9\xff\xff\xff\xff\x01")
@MANY
def test_bytes_are_a_word_or_an_error_of_the_decoder(data: bytes) -> None:
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        DECODER.decode(data)


@given(ANY_WORD, st.data())
@MANY
def test_a_word_that_is_cut_short_or_changed_is_a_word_or_an_error(
    word: Message, data: st.DataObject
) -> None:
    encoded = bytearray(msgspec.msgpack.encode(word))
    if data.draw(st.booleans(), "cut"):
        del encoded[data.draw(st.integers(0, len(encoded))) :]
    for _ in range(data.draw(st.integers(0, 3), "changes") if encoded else 0):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        DECODER.decode(bytes(encoded))


@given(BULKS)
@example(Bulk(arrays=(ArrayInfo("a", "int64", (2**62, 2**62), 0),), nbytes=64))
@example(Bulk(arrays=(ArrayInfo("a", "int64", (0, 2**64 - 1), 0),), nbytes=0))
@example(Bulk(arrays=(ArrayInfo("a", "int64", (-1,), 64),), nbytes=64))
@example(Bulk(arrays=(ArrayInfo("a", "object", (1,), 0),), nbytes=64))
@example(Bulk(arrays=tuple(ArrayInfo(str(i), "bool", (0,), 0) for i in range(5000))))
@MANY
def test_a_bulk_that_lies_is_a_protocol_error(announced: Bulk) -> None:
    small = msgspec.structs.replace(announced, nbytes=min(announced.nbytes, 1 << 16))
    try:
        assembly = Assembly(small)
    except ProtocolError:
        return
    if assembly.complete:
        for array in assembly.arrays().values():
            assert array.nbytes <= small.nbytes


PLAIN = bulk.pack({"a": np.arange(20), "b": np.zeros(3, np.float32)})


@given(st.lists(st.tuples(INTEGERS, st.integers(0, 300)), max_size=8))
@example([(0, 172)])
@example([(0, 160), (0, 160)])
@example([(192, 12), (0, 160)])
@example([(0, 160), (192, 13)])
@example([(0, 0)])
@MANY
def test_parts_out_of_order_too_many_or_too_long_are_protocol_errors(
    parts: list[tuple[int, int]],
) -> None:
    assembly, end = Assembly(PLAIN.bulk), 0
    for offset, nbytes in parts:
        fits = end <= offset < end + 64 and nbytes and offset + nbytes <= PLAIN.bulk.nbytes
        if not fits:
            with pytest.raises(ProtocolError):
                assembly.add(offset, bytes(nbytes))
            return
        assembly.add(offset, bytes(nbytes))
        end = offset + nbytes
    assert assembly.complete == (end == PLAIN.bulk.nbytes)


LAYOUTS = st.builds(ArrayLayout, TEXT, DTYPES, SHAPES, INTEGERS)


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


# --- a server that hears them all ---


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    with small_graph() as made:
        yield made


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[Server]:
    with serve(graph, num_workers=1, samplers=["tests.client.samplers:Stars"]) as served:
        yield served


_names = itertools.count()


@pytest.fixture(scope="module")
def steady(server: Server) -> Iterator[BareRank]:
    """Somebody who has been there all the time."""
    context: zmq.Context[Any]
    with visitors() as context, BareRank(server.address, context) as rank:
        rank.greet(name="steady")
        yield rank


@given(st.lists(ANY_WORD, max_size=6), st.booleans())
@SOME
def test_words_made_up_by_chance_harm_nobody(
    server: Server, steady: BareRank, words: list[Message], enrols: bool
) -> None:
    """CONTRACT 53: the server answers others, has the hub it had, and keeps nothing."""
    hub = server.hub.pid
    context: zmq.Context[Any]
    with visitors() as context, BareRank(server.address, context) as rank:
        rank.greet(name=f"made up {next(_names)}")
        if enrols:
            rank.enroll(split="train", request=1000)
        for word in words:
            data = (b"12345678",) if isinstance(word, Part) else ()
            rank.say(word, *data)
        assert steady.call("ping") == (None, {})
    assert server.trouble() is None
    assert server.hub.pid == hub


# One field of an enrolment that would be granted is something else.
RIGHT = Register(request=0, backend=0, feed=Feed(num_inputs=0, batch_size=16), slots=2)
OF_A_REGISTER: dict[str, st.SearchStrategy[Any]] = {
    "slots": INTEGERS,
    "slot_bytes": INTEGERS,
    "most_bytes": INTEGERS,
    "weight": FLOATS,
    "deadline": FLOATS,
    "max_attempts": INTEGERS,
    "max_substitutes": INTEGERS,
    "on_error": TEXT,
    "share": st.builds(Share, rank=INTEGERS, world_size=INTEGERS, remainder=st.just("drop")),
    "job": TEXT,
}
OF_A_FEED: dict[str, st.SearchStrategy[Any]] = {
    "num_inputs": INTEGERS,
    "batch_size": INTEGERS,
    "seed": INTEGERS,
    "node_type": TEXT,
    "edge_type": st.tuples(TEXT, TEXT, TEXT),
}


@st.composite
def nearly_right(draw: st.DrawFn) -> Enroll:
    """An enrolment with one thing wrong, or unusual."""
    register, spec = RIGHT, SPEC
    match draw(st.sampled_from(["register", "feed", "spec"])):
        case "register":
            name = draw(st.sampled_from(sorted(OF_A_REGISTER)))
            register = msgspec.structs.replace(RIGHT, **{name: draw(OF_A_REGISTER[name])})
        case "feed":
            name = draw(st.sampled_from(sorted(OF_A_FEED)))
            feed = msgspec.structs.replace(RIGHT.feed, **{name: draw(OF_A_FEED[name])})
            register = msgspec.structs.replace(RIGHT, feed=feed)
        case _:
            spec = draw(SPECS)
    return Enroll(request=1, spec=spec, register=register, split="train")


@given(nearly_right(), INTEGERS, INTEGERS, INTEGERS)
@SOME
def test_an_enrolment_with_one_thing_wrong_is_refused_or_works(
    server: Server, steady: BareRank, enroll: Enroll, epoch: int, first: int, first_step: int
) -> None:
    """CONTRACT 25, CONTRACT 53: and so is any epoch of it; the hub hears nothing that ends it."""
    hub = server.hub.pid
    context: zmq.Context[Any]
    with visitors() as context, BareRank(server.address, context) as rank:
        rank.greet(name="nearly right")
        rank.say(enroll)
        said, _ = rank.hear_any()
        if isinstance(said, Enrolled):
            rank.say(
                StartEpoch(channel=said.channel, epoch=epoch, first=first, first_step=first_step)
            )
            rank.say(Call(request=2, verb="hub_statistics"))
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
