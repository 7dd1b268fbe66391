"""Strangers at a live server's socket: it answers others, does not grow, and no rank notices."""

from __future__ import annotations

import random
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq

from penstock.graph import Graph
from penstock.sampling.spec import Feed
from penstock.wire import bulk, values
from penstock.wire.messages import Register
from penstock.wire.remote import Call, Enroll, Goodbye, Part
from tests.cli.servers import Running
from tests.client.graphs import NODES, PATIENCE_S, SPEC, expected, small_graph
from tests.processes import until
from tests.server.bystanders import (
    REST_BYTES,
    answers_at_once,
    listened_to,
    memory_of,
    reset_peak,
    unharmed,
)
from tests.server.links import Link
from tests.server.ranks import BareRank, knock, visitors
from tests.server.strangers import (
    COMMAND,
    GREETING,
    LONG,
    MORE,
    Stranger,
    frame,
    ready,
)

LEASE = 1.5
KNOCK = frame(msgspec.msgpack.encode(knock(name="stranger")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("served") / "graph"
    with small_graph() as graph:
        graph.save(path)
    return path


@pytest.fixture(scope="module")
def graph(folder: Path) -> Iterator[Graph]:
    with Graph.open(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    """One that takes no rank for gone which only has to wait for the processor."""
    with listened_to(folder, "--workers", 1, "--lease", PATIENCE_S) as running:
        yield running


@pytest.fixture(scope="module")
def strict(folder: Path) -> Iterator[Running]:
    """One whose leases are short: for those who are to lose theirs."""
    with listened_to(folder, "--workers", 1, "--lease", LEASE) as running:
        yield running


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


# --- what is no conversation --------------------------------------------------------------------

_BYTES = random.Random(7).randbytes
WORDS: dict[str, tuple[bytes, ...]] = {
    "nothing at all": (),
    "garbage": (_BYTES(1 << 16),),
    "a page is asked for": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + _BYTES(500),),
    "a greeting's first byte": (b"\xff",),
    "half a greeting": (GREETING[:33],),
    "an older protocol": (b"\xff" + bytes(8) + b"\x7f\x01\x05",),
    "a protocol of the future": (b"\xff" + bytes(8) + b"\x7f\x7f" + bytes(53),),
    "another mechanism": (GREETING[:12] + b"CURVE".ljust(20, b"\0") + GREETING[32:],),
    "a mechanism there is none of": (GREETING[:12] + b"X" * 20 + GREETING[32:],),
    "a greeting without end": (b"\xff" * (1 << 20),),
    "a greeting and no more": (GREETING,),
    "a message before the handshake": (GREETING, frame(b"x" * 100)),
    "garbage for a handshake": (GREETING, _BYTES(4096)),
    "a handshake as long as it says": (GREETING, frame(b"\x05READY", COMMAND, size=1 << 62)),
    "properties that lie": (GREETING, frame(b"\x05READY\x0bSocket-Type\x7f\xff\xff\xff", COMMAND)),
    "an endless handshake": (GREETING, frame(b"\x05READY" + b"\0" * (4 << 20), COMMAND)),
    "a publisher": (GREETING, ready(kind=b"PUB")),
    "an error": (GREETING, frame(b"\x05ERROR\xff" + b"x" * 20, COMMAND)),
    "a name of its own": (GREETING, ready(b"\0abcd"), KNOCK),
    "too long a name": (GREETING, ready(b"x" * 4096), KNOCK),
    "a frame of an exabyte": (GREETING, ready(), frame(b"x", size=1 << 60)),
    "a frame below zero": (GREETING, ready(), bytes((LONG,)) + struct.pack(">q", -1)),
    "a frame of sixteen megabytes": (GREETING, ready(), frame(b"x", size=16 << 20)),
    "half a message": (GREETING, ready(), KNOCK[: len(KNOCK) // 2]),
    "reserved bits": (GREETING, ready(), b"\xf8\x03abc"),
    "a ping that is never answered": (GREETING, ready(), frame(b"\x04PING\0\x01x", COMMAND)),
    "commands without end": (GREETING, ready(), frame(b"\x04WHAT" + b"x" * 200, COMMAND) * 2000),
    "subscriptions": (GREETING, ready(), frame(b"\x01topic") * 2000),
    "empty messages": (GREETING, ready(), frame(b"") * 2000),
}


@pytest.mark.parametrize("name", WORDS)
def test_bytes_that_are_no_conversation_harm_nobody(
    server: Running, stack: ExitStack, name: str
) -> None:
    """CONTRACT 53: ten such connections at once; somebody new is answered meanwhile."""
    for _ in range(10):
        stack.enter_context(Stranger(server.address, *WORDS[name]))
    answers_at_once(server.address)


def test_all_of_them_together_leave_nothing_and_a_reader_notices_nothing(
    server: Running, graph: Graph
) -> None:
    """CONTRACT 40, CONTRACT 53: memory and descriptors are as before, the bytes are the same."""
    with unharmed(server, graph), ExitStack() as stack:
        for said in WORDS.values():
            for _ in range(3):
                stack.enter_context(Stranger(server.address, *said))
        answers_at_once(server.address)


def test_connections_that_end_in_the_middle_leave_nothing(server: Running, graph: Graph) -> None:
    """CONTRACT 40: reset, not closed; at any byte of a conversation.

    Nor is whoever comes next, and has the descriptor of one of them, taken for it.
    """
    more = ready() + KNOCK + frame(msgspec.msgpack.encode(Call(request=1, verb="ping")))
    words = [(GREETING[:end],) for end in range(0, len(GREETING), 9)]
    words += [(GREETING, more[:end]) for end in range(0, len(more), 5)]
    with unharmed(server, graph):
        for _ in range(8):
            for said in words:
                with Stranger(server.address, *said) as stranger:
                    stranger.socket.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
            answers_at_once(server.address)


# --- those who stay and say nothing -------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [(), (GREETING,), (GREETING, ready()), (GREETING, ready(), KNOCK[:20])],
    ids=["nothing", "a greeting", "a handshake", "half a message"],
)
def test_who_does_not_say_who_they_are_is_hung_up_on(
    strict: Running, stack: ExitStack, said: tuple[bytes, ...]
) -> None:
    """CONTRACT 53: silent connections would take every descriptor there is."""
    silent = [stack.enter_context(Stranger(strict.address, *said)) for _ in range(50)]
    until(lambda: all(one.is_closed for one in silent), "the server has hung up")


def test_real_sockets_that_never_knock_are_hung_up_on(strict: Running) -> None:
    """CONTRACT 53: those that answer every heartbeat, too."""
    context: zmq.Context[Any]
    with visitors() as context:
        silent = [context.socket(zmq.DEALER) for _ in range(50)]
        monitors = [one.get_monitor_socket(zmq.EVENT_DISCONNECTED) for one in silent]
        for one in silent:
            one.setsockopt(zmq.RECONNECT_IVL, -1)
            one.connect(strict.address)
        assert all(monitor.poll(60_000) for monitor in monitors)


def test_one_connection_too_many_is_refused_and_the_others_stay(
    folder: Path, stack: ExitStack
) -> None:
    """CONTRACT 53"""
    running = stack.enter_context(
        listened_to(folder, "--workers", 1, "--limit", "max_connections=8")
    )
    context = stack.enter_context(visitors())
    there = [stack.enter_context(BareRank(running.address, context)) for _ in range(8)]
    for rank in there:
        rank.greet()
    more = [stack.enter_context(Stranger(running.address, GREETING)) for _ in range(20)]
    until(lambda: all(one.is_closed for one in more), "they are refused")
    assert [rank.call("ping") for rank in there] == [(None, {})] * 8


def test_a_server_without_descriptors_left_comes_to_itself(
    folder: Path, graph: Graph, stack: ExitStack
) -> None:
    """CONTRACT 53: a reader does not notice, and others get in when strangers are hung up on."""
    running = stack.enter_context(listened_to(folder, "--workers", 1, "--lease", 2 * LEASE))
    context = stack.enter_context(visitors())
    reader = stack.enter_context(BareRank(running.address, context))
    reader.greet()
    reader.enroll(split="train")
    resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (60, 60))
    for _ in range(60):
        stack.enter_context(Stranger(running.address, b"\xff"))
    reader.start()
    assert reader.read() == expected(graph)
    late = stack.enter_context(BareRank(running.address, context))
    late.greet()
    late.enroll(split="train")
    late.start()
    assert late.read() == expected(graph)


def test_a_server_takes_all_descriptors_that_it_may_have(server: Running) -> None:
    """CONTRACT 53: what a shell gives at first is too little for a thousand ranks."""
    soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    assert soft == hard


# --- messages without end -----------------------------------------------------------------------


def _endless(stranger: Stranger) -> int:
    """Frames of a message that has no last one; how many were taken."""
    part, count = frame(bytes(1 << 20), MORE), 0
    while count < 4096 and stranger.send(part):
        count += 1
    return count


@pytest.mark.parametrize("knocks", [False, True], ids=["a stranger", "a rank"])
def test_a_message_without_end_is_cut_off(strict: Running, stack: ExitStack, knocks: bool) -> None:
    """CONTRACT 53: ZeroMQ keeps all frames until the last one has come.

    Ranks are looked at four times in a lease, which so bounds what one of them may send.
    """
    pid = strict.process.pid
    reset_peak(pid)
    before, _ = memory_of(pid)
    taken = []
    for _ in range(6):
        stranger = stack.enter_context(Stranger.greeted(strict.address))
        if knocks:
            stranger.send(KNOCK)
            assert stranger.socket.recv(100)
        taken.append(_endless(stranger))
        answers_at_once(strict.address)
    assert max(taken) < 4096, "four gigabytes were taken"
    # How much is taken is a matter of speed. It may be kept for the next time, and one may not be
    # quite gone when the next one comes; but it is not taken again each time.
    _, peak = memory_of(pid)
    assert peak - before < 2 * (max(taken) << 20) + REST_BYTES, taken


def test_a_message_of_very_many_frames_holds_nobody_up(
    server: Running, graph: Graph, stack: ExitStack
) -> None:
    """CONTRACT 9, CONTRACT 53: they cost the sender two bytes each."""
    with unharmed(server, graph):
        stranger = stack.enter_context(Stranger.greeted(server.address))
        stranger.send(frame(b"", MORE) * 200_000 + frame(b""))
        answers_at_once(server.address)
        stranger.close()


# --- ranks that misbehave -----------------------------------------------------------------------


def test_thousands_of_messages_without_waiting_hold_nobody_up(
    server: Running, graph: Graph, stack: ExitStack
) -> None:
    """CONTRACT 9: nobody reads the answers; whoever goes on like this is hung up on."""
    verbs = ("ping", "get_node_ids", "nonsense", "get_edge_index")
    words = (Call(request=number, verb=verbs[number % 4]) for number in count(1))
    context: zmq.Context[Any]
    with unharmed(server, graph), visitors() as context, Link(server.address) as link:
        deaf = BareRank(link.address, context, stays_away=True)
        deaf.greet(name="deaf")
        link.shut()
        for word in islice(words, 5000):
            deaf.say_if_connected(word)
        answers_at_once(server.address)
        until(lambda: not all(map(deaf.say_if_connected, islice(words, 100))), "it is hung up on")
        deaf.close()


def test_answers_that_nobody_reads_are_bounded(folder: Path, graph: Graph) -> None:
    """CONTRACT 53: each is a copy of rows, of many times what was asked with."""
    plain, arrays = values.pack({"index": np.zeros(100_000, np.int64)})
    packed = bulk.pack(arrays)
    context: zmq.Context[Any]
    with (
        listened_to(folder, "--workers", 1, "--limit", "max_answer_bytes=8MB") as running,
        unharmed(running, graph),
        visitors() as context,
        Link(running.address) as link,
    ):
        deaf = BareRank(link.address, context, stays_away=True)
        deaf.greet(name="deaf")
        link.shut()
        for number in range(1, 400):
            deaf.say_if_connected(
                Call(request=number, verb="get_node_feature", arguments=plain, bulk=packed.bulk)
            )
            for offset, data in packed.parts():
                deaf.say_if_connected(Part(request=number, offset=offset), data)
        answers_at_once(running.address)
        deaf.say_if_connected(Goodbye())
        until(lambda: not _sessions(running, "deaf"), "all of it was heard")
        deaf.close()


def test_a_rank_that_never_reads_its_batches_holds_up_itself_alone(
    server: Running, graph: Graph
) -> None:
    """CONTRACT 9"""
    context: zmq.Context[Any]
    ids = np.resize(np.arange(NODES), 200 * NODES)  # more than ZeroMQ and the kernel take
    with unharmed(server, graph), visitors() as context, ExitStack() as stack:
        link = stack.enter_context(Link(server.address))
        deaf = [stack.enter_context(BareRank(link.address, context)) for _ in range(4)]
        for rank in deaf:
            rank.greet(name="deaf")
            rank.enroll(arrays={"ids": ids}, batch_size=NODES, slots=200)
        link.shut()
        for rank in deaf:
            rank.start()
        until(
            lambda: sum(one["unsent"] > 0 for one in _sessions(server, "deaf")) == len(deaf),
            "batches wait for all of them",
        )
        answers_at_once(server.address)


def _sessions(running: Running, name: str) -> list[dict[str, Any]]:
    """Those of ranks with a name, as the server tells."""
    context: zmq.Context[Any]
    with visitors() as context, BareRank(running.address, context) as asking:
        asking.greet(name="asking")
        there, _ = asking.call("server_statistics")
        return [one for one in there["sessions"] if one["name"] == name]


def test_a_reader_of_single_bytes_holds_up_itself_alone(server: Running, graph: Graph) -> None:
    """CONTRACT 9: as over a very slow network."""
    with unharmed(server, graph):
        with Stranger.greeted(server.address) as slow:
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            slow.send(KNOCK)
            for _ in range(200):
                assert slow.socket.recv(1)
            answers_at_once(server.address)


def test_those_who_wait_for_the_end_hold_nobody_up(server: Running, graph: Graph) -> None:
    """CONTRACT 9: more of them than there are threads to answer anybody."""
    context: zmq.Context[Any]
    with unharmed(server, graph), visitors() as context, ExitStack() as stack:
        waiting = [stack.enter_context(BareRank(server.address, context)) for _ in range(40)]
        for rank in waiting:
            rank.greet(name="waiting")
            for number in range(1, 17):
                rank.say(Call(request=number, verb="wait_for_exit", arguments={"timeout": 30.0}))
        answers_at_once(server.address)


# --- sizes --------------------------------------------------------------------------------------


def _waits(rank: BareRank) -> Callable[[], bool]:
    return lambda: rank.call("server_statistics")[0]["input_bytes"] == 0


def test_inputs_that_are_announced_and_never_come_are_not_waited_for_for_ever(
    strict: Running, stack: ExitStack
) -> None:
    """CONTRACT 53: a few such would take all that there is for inputs."""
    context = stack.enter_context(visitors())
    other = stack.enter_context(BareRank(strict.address, context))
    other.greet()
    liar = stack.enter_context(BareRank(strict.address, context))
    liar.greet()
    announced = bulk.pack({"ids": np.arange(100_000)}).bulk
    register = Register(request=0, backend=0, feed=Feed(num_inputs=0, batch_size=16))
    liar.say(Enroll(request=1, spec=SPEC, register=register, bulk=announced))
    until(lambda: not _waits(other)(), "room is kept for them")
    until(_waits(other), "and then no more")
