"""Strangers at a live server's socket: it answers others, does not grow, and no rank notices."""

from __future__ import annotations

import random
import resource
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import ProtocolError
from penstock.graph import Graph
from penstock.sampling.spec import Feed
from penstock.server.transport.authority import Authority
from penstock.wire import values
from penstock.wire.framing import CHUNK, HEADER, PREAMBLE, encode
from penstock.wire.messages import (
    MOST_HELLO,
    MOST_MESSAGE,
    Call,
    Goodbye,
    Heartbeat,
    Hello,
    Register,
    StartEpoch,
)
from penstock.wire.payload import pack
from penstock.wire.transport.tls import client_context
from tests.cli.servers import Running, serving
from tests.client.graphs import NODES, PATIENCE_S, SPEC, expected, small_graph
from tests.client.ranks import ROOT
from tests.processes import stopped, until
from tests.server.bystanders import AT_ONCE_S, answers_at_once, listened_to, unharmed
from tests.server.links import Link
from tests.server.ranks import BareRank, hello
from tests.server.transport.strangers import Stranger, frame

LEASE = 1.5
HELLO = frame(encode(hello(name="stranger")))
PING = frame(encode(Call(request=1, verb="ping")))
# Of SO_LINGER: nothing is waited for, and the other side hears of a reset.
RESET = struct.pack("ii", 1, 0)


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


def sessions(running: Running, name: str, tls: ssl.SSLContext | None = None) -> list[Any]:
    """Those of ranks with a name, as the server tells."""
    with BareRank(running.address, tls=tls) as asking:
        asking.greet(name="asking")
        there, _ = asking.call("server_statistics")
        return [one for one in there["sessions"] if one["name"] == name]


# --- what is no conversation --------------------------------------------------------------------

_BYTES = random.Random(7).randbytes
_LARGE = frame(encode(Call(request=2, verb="get_node_label")), 3, CHUNK + 1) + bytes(CHUNK)
# Each is sent as these pieces.
WORDS: dict[str, tuple[bytes, ...]] = {
    "nothing at all": (),
    "garbage": (_BYTES(1 << 16),),
    "a page is asked for": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + _BYTES(500),),
    "TLS that ends at once": (b"\x16",),
    "the protocol before this one": (b"\xff" + bytes(8) + b"\x7f\x03", bytes(53), b"\x04\x05READY"),
    "zeros": (bytes(1 << 16),),
    "all bits": (b"\xff" * (1 << 20),),
    # --- before the first frame is complete
    "half a preamble": (PREAMBLE[:4],),
    "a preamble that ends otherwise": (PREAMBLE[:4], b"tock"),
    "a preamble and no more": (PREAMBLE,),
    "a preamble again and again": (PREAMBLE * 1000,),
    "half a header": (PREAMBLE, HELLO[:7]),
    "a header and no more": (PREAMBLE, HELLO[: HEADER.size]),
    "half a message": (PREAMBLE, HELLO[: len(HELLO) // 2]),
    "all but a byte": (PREAMBLE, HELLO[:-1]),
    # --- first frames that lie
    "a first message of 4 GiB": (PREAMBLE, frame(b"x", size=2**32 - 1)),
    "one byte too many": (PREAMBLE, frame(bytes(MOST_HELLO + 1))),
    "a payload of 2**64 bytes": (PREAMBLE, frame(encode(hello()), payload=2**64 - 1)),
    "a payload of one byte": (PREAMBLE, frame(encode(hello()), payload=1) + b"x"),
    "descriptors": (PREAMBLE, frame(encode(hello()), descriptors=3)),
    "as many descriptors as there can be": (PREAMBLE, frame(b"x", descriptors=2**16 - 1)),
    "a chunk of no message": (PREAMBLE, HEADER.pack(0, 0, 0, 100) + bytes(100)),
    "empty frames": (PREAMBLE, bytes(HEADER.size) * 2000),
    "a message of no bytes with all lanes": (PREAMBLE, HEADER.pack(0, 0, 2**16 - 1, 0)),
    "garbage for a message": (PREAMBLE, frame(_BYTES(500))),
    "a list that never ends": (PREAMBLE, frame(b"\xdd\xff\xff\xff\xff")),
    "lists in lists": (PREAMBLE, frame(b"\x91" * 8000)),
    "a call before Hello": (PREAMBLE, PING),
    # --- after Hello
    "Hello twice": (PREAMBLE, HELLO * 2),
    "Hello and garbage": (PREAMBLE, HELLO, _BYTES(1 << 16)),
    "a message of 4 GiB": (PREAMBLE, HELLO, frame(b"x", size=2**32 - 1)),
    "descriptors after Hello": (PREAMBLE, HELLO, frame(encode(Heartbeat()), descriptors=1)),
    "a chunk of no message after Hello": (PREAMBLE, HELLO, HEADER.pack(0, 0, 5, 8) + bytes(8)),
    "a chunk of no bytes": (PREAMBLE, HELLO, _LARGE, HEADER.pack(0, 0, 3, 0)),
    "a chunk longer than announced": (PREAMBLE, HELLO, _LARGE, HEADER.pack(0, 0, 3, 2) + b"xx"),
    "a chunk of another lane": (PREAMBLE, HELLO, _LARGE, HEADER.pack(0, 0, 4, 1) + b"x"),
    "a lane used twice": (PREAMBLE, HELLO, _LARGE, frame(encode(Heartbeat()), 3)),
    "a payload that never comes": (PREAMBLE, HELLO, frame(encode(Call(request=3, verb="x")), 1, 9)),
    "a sign of life with a payload": (PREAMBLE, HELLO, frame(encode(Heartbeat()), payload=8)),
    "Goodbye and more": (PREAMBLE, HELLO, frame(encode(Goodbye())) + _BYTES(1 << 16)),
    "very many signs of life": (PREAMBLE, HELLO, frame(encode(Heartbeat())) * 2000),
    "questions without end": (PREAMBLE, HELLO, PING * 2000),
}


def saying(address: str, said: tuple[bytes, ...]) -> Stranger:
    """Somebody who says all that, and waits to be welcomed where that is due."""
    stranger = Stranger(address)
    for data in said:
        stranger.send(data)
        if data == HELLO:
            assert stranger.socket.recv(100)
    return stranger


@pytest.mark.parametrize("name", WORDS)
def test_bytes_that_are_no_conversation_harm_nobody(
    server: Running, stack: ExitStack, name: str
) -> None:
    """CONTRACT 53, CONTRACT 73: ten such connections at once, while somebody new is answered."""
    for _ in range(10):
        stack.enter_context(saying(server.address, WORDS[name]))
    answers_at_once(server.address)


def test_all_of_them_together_leave_nothing_and_a_reader_notices_nothing(
    server: Running, graph: Graph
) -> None:
    """CONTRACT 40, CONTRACT 73: memory and descriptors are as before, the bytes are the same."""
    with unharmed(server, graph), ExitStack() as stack:
        for said in WORDS.values():
            for _ in range(3):
                stack.enter_context(saying(server.address, said))
        answers_at_once(server.address)


def test_the_same_bytes_harm_nobody_when_they_come_all_at_once(folder: Path, graph: Graph) -> None:
    """CONTRACT 73: what follows the first message is there before that was dealt with."""
    options = ("--workers", 1, "--lease", PATIENCE_S)
    with listened_to(folder, *options) as running, unharmed(running, graph):
        for said in WORDS.values():
            with ExitStack() as stack:
                for _ in range(3):
                    stack.enter_context(Stranger(running.address, b"".join(said)))
                answers_at_once(running.address)


def test_the_same_bytes_harm_nobody_when_they_come_in_parts(
    folder: Path, graph: Graph, stack: ExitStack
) -> None:
    """CONTRACT 73: each cut where the server has to keep the beginning until the rest is there.

    Who is answered in between shows that all that came before was read.
    """
    options = ("--workers", 1, "--lease", PATIENCE_S)
    with listened_to(folder, *options) as running, unharmed(running, graph):
        steady = stack.enter_context(BareRank(running.address))
        steady.greet(name="steady")
        for name, said in WORDS.items():
            data = b"".join(said)
            begin = len(PREAMBLE) + len(HELLO) * (HELLO in data)
            with Stranger(running.address, data[:begin]) as stranger:
                for end in (begin + 3, begin + HEADER.size, begin + HEADER.size + 1, len(data)):
                    assert steady.call("ping") == (None, {}), name
                    stranger.send(data[begin:end])
                    begin = end
                answers_at_once(running.address)
        steady.goodbye()


def conversation() -> bytes:
    """All that a rank may say, with payloads."""
    packed = pack({"ids": np.arange(20)})
    feed = Feed(num_inputs=0, batch_size=16)
    plain, arrays = values.pack({"index": np.arange(5)})
    asked = pack(arrays)
    call = Call(request=2, verb="get_node_label", arguments=plain, arrays=asked.arrays)
    register = Register(request=1, spec=SPEC, feed=feed, arrays=packed.arrays)
    return b"".join(
        [
            PREAMBLE + HELLO,
            frame(encode(call), 2, asked.nbytes) + b"".join(asked.views),
            frame(encode(register), 0, packed.nbytes) + b"".join(packed.views),
            frame(encode(Heartbeat(reply=True))),
            PING,
            frame(encode(StartEpoch(channel=1, epoch=0))),
            frame(encode(Goodbye())),
        ]
    )


def test_connections_that_end_in_the_middle_leave_nothing(server: Running, graph: Graph) -> None:
    """CONTRACT 40, CONTRACT 72: reset, not closed; at any byte of a conversation.

    Nor is whoever comes next, and has the descriptor of one of them, taken for it.
    """
    words = conversation()
    with unharmed(server, graph):
        for first in range(7):
            for end in range(first, len(words), 7):
                with Stranger(server.address, words[:end]) as stranger:
                    stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            answers_at_once(server.address)


def test_connections_that_close_in_the_middle_leave_nothing(server: Running, graph: Graph) -> None:
    """CONTRACT 40, CONTRACT 72: what was complete is done, what was not is dropped."""
    words = conversation()
    with unharmed(server, graph):
        for end in range(0, len(words), 11):
            with Stranger(server.address, words[:end]) as stranger:
                stranger.socket.shutdown(socket.SHUT_WR)
                stranger.hear_all()
        answers_at_once(server.address)


# --- those who stay and say nothing -------------------------------------------------------------

SILENT = {
    "nothing": (),
    "half a preamble": (PREAMBLE[:3],),
    "a preamble": (PREAMBLE,),
    "half a header": (PREAMBLE, HELLO[:9]),
    "half a message": (PREAMBLE, HELLO[:20]),
}


def _are_closed(strangers: list[Stranger]) -> bool:
    return all(one.is_closed for one in strangers)


def test_who_does_not_say_who_they_are_is_hung_up_on(strict: Running, stack: ExitStack) -> None:
    """CONTRACT 53, CONTRACT 73: silent connections would take every descriptor there is."""
    silent = {
        name: [stack.enter_context(Stranger(strict.address, *said)) for _ in range(20)]
        for name, said in SILENT.items()
    }
    for name, there in silent.items():
        until(partial(_are_closed, there), f"who says {name} is hung up on")


def test_who_says_hello_byte_by_byte_has_no_more_time_for_it(
    strict: Running, stack: ExitStack
) -> None:
    """CONTRACT 73: or it would be a stranger for as long as it likes."""
    words = frame(encode(hello(name="x" * 500, host="x" * 500, trace="x" * 500)))
    slow = stack.enter_context(Stranger(strict.address, PREAMBLE))
    sent = count()

    def is_hung_up_on() -> bool:
        at = next(sent)
        assert at < len(words), "it was let say all of it"
        return not slow.send(words[at : at + 1]) or slow.is_closed

    until(is_hung_up_on, "the server has hung up")


def test_with_room_for_few_strangers_the_oldest_makes_room_and_ranks_get_in(
    folder: Path, stack: ExitStack
) -> None:
    """CONTRACT 73: ten connections say nothing, in the place of four."""
    running = stack.enter_context(
        listened_to(folder, "--workers", 1, "--lease", 10 * LEASE, "--limit", "max_strangers=4")
    )
    silent = [stack.enter_context(Stranger(running.address)) for _ in range(10)]
    for _ in range(3):
        answers_at_once(running.address)
    gone = [one.is_closed for one in silent]
    assert sum(gone) >= 6
    assert gone == sorted(gone, reverse=True), "others than the oldest had to go"


def test_one_connection_too_many_is_refused_and_the_others_stay(
    folder: Path, stack: ExitStack
) -> None:
    """CONTRACT 53"""
    running = stack.enter_context(
        listened_to(folder, "--workers", 1, "--lease", PATIENCE_S, "--limit", "max_connections=8")
    )
    there = [stack.enter_context(BareRank(running.address)) for _ in range(8)]
    for rank in there:
        rank.greet()
    more = [stack.enter_context(Stranger(running.address, PREAMBLE)) for _ in range(20)]
    until(lambda: all(one.is_closed for one in more), "they are refused")
    assert [rank.call("ping") for rank in there] == [(None, {})] * 8
    there[0].goodbye()
    there[0].waits_for_end()
    there[0].close()
    until(lambda: _gets_in(running.address), "there is room again")


def _gets_in(address: str) -> bool:
    with BareRank(address) as late:
        late.hello()
        try:
            late.hear_any()
        except ConnectionError:
            return False
        return True


def test_connections_that_come_too_fast_wait_for_their_turn(
    folder: Path, graph: Graph, stack: ExitStack
) -> None:
    """CONTRACT 73: nobody is refused for it, and who is there already does not notice."""
    running = stack.enter_context(
        listened_to(folder, "--workers", 1, "--lease", PATIENCE_S, "--limit", "max_accepts=10")
    )
    reader = stack.enter_context(BareRank(running.address))
    reader.greet()
    reader.register(split="train")
    many = [stack.enter_context(BareRank(running.address)) for _ in range(30)]
    for rank in many:
        rank.hello()
    reader.start()
    assert reader.read() == expected(graph)
    for rank in many:
        rank.hear_any()
        assert rank.call("ping") == (None, {})


def test_a_server_without_descriptors_left_comes_to_itself(
    folder: Path, graph: Graph, stack: ExitStack
) -> None:
    """CONTRACT 53: a reader does not notice, and others get in when strangers are hung up on."""
    running = stack.enter_context(listened_to(folder, "--workers", 1, "--lease", 2 * LEASE))
    reader = stack.enter_context(BareRank(running.address))
    reader.greet()
    reader.register(split="train")
    resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (60, 60))
    strangers = [stack.enter_context(Stranger(running.address, PREAMBLE[:1])) for _ in range(60)]
    reader.start()
    assert reader.read() == expected(graph)
    until(lambda: all(one.is_closed for one in strangers), "they are hung up on")
    late = stack.enter_context(BareRank(running.address))
    late.greet()
    late.register(split="train")
    late.start()
    assert late.read() == expected(graph)


def test_a_server_that_may_have_fewer_descriptors_than_it_has_lives_on(
    folder: Path, stack: ExitStack
) -> None:
    """CONTRACT 73: then not even the one is to be had that is kept in reserve.

    The same happens when another thread is quicker to take the one that was given up.
    """
    running = stack.enter_context(listened_to(folder, "--workers", 1, "--lease", PATIENCE_S))
    steady = stack.enter_context(BareRank(running.address))
    steady.greet()
    pid = running.process.pid
    _, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (8, most))
    for _ in range(3):
        stack.enter_context(Stranger(running.address, PREAMBLE))
        assert steady.call("ping") == (None, {})
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
    assert steady.call("ping") == (None, {})
    until(lambda: _gets_in(running.address), "others get in again")


def test_a_server_takes_all_descriptors_that_it_may_have(server: Running) -> None:
    """CONTRACT 53: what a shell gives at first is too little for a thousand ranks."""
    soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    assert soft == hard


# --- hosts that were refused --------------------------------------------------------------------


def own_address() -> str:
    """This host's, by which others would know it."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as one:
        try:
            one.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this host has no address but loopback")
        found: str = one.getsockname()[0]
    if found.startswith("127."):
        pytest.skip("this host has no address but loopback")
    return found


@pytest.fixture
def public(folder: Path, stack: ExitStack) -> str:
    """A server that is reached as from another host; its address."""
    own = own_address()
    options = ("--bind", f"tcp://{own}:0", "--allow-plaintext", "--workers", 1)
    limits = ("--lease", PATIENCE_S, "--limit", "max_strangers_per_host=5")
    running = stack.enter_context(listened_to(folder, *options, *limits))
    return running.address


def test_a_host_that_was_refused_waits_before_it_is_heard_again(
    public: str, stack: ExitStack
) -> None:
    """CONTRACT 73: longer each time; who is let in after all does not wait any more."""
    refused = stack.enter_context(BareRank(public))
    refused.hello(protocol=99)
    with pytest.raises(ProtocolError, match="install the same version"):
        raise refused.refusal()
    assert not _gets_in(public)
    until(lambda: _gets_in(public), "it may try again")
    assert _gets_in(public)


def test_a_host_that_was_refused_keeps_the_sessions_it_has(public: str, stack: ExitStack) -> None:
    """CONTRACT 73"""
    steady = stack.enter_context(BareRank(public))
    steady.greet()
    stack.enter_context(Stranger(public, b"GET / HTTP/1.1\r\n\r\n")).hear_all()
    assert not _gets_in(public)
    assert steady.call("ping") == (None, {})


def test_so_many_connections_of_one_host_may_say_nothing(public: str, stack: ExitStack) -> None:
    """CONTRACT 73: more are refused at once, until the first ones are gone."""
    silent = [stack.enter_context(Stranger(public)) for _ in range(5)]
    more = [stack.enter_context(Stranger(public)) for _ in range(5)]
    until(lambda: all(one.is_closed for one in more), "they are refused")
    assert not any(one.is_closed for one in silent)
    silent[0].close()
    until(lambda: _gets_in(public), "there is room again")


def test_on_loopback_nobody_waits_because_another_was_refused(
    server: Running, stack: ExitStack
) -> None:
    """CONTRACT 73: many may share that address."""
    for _ in range(20):
        stack.enter_context(Stranger(server.address, b"GET / HTTP/1.1\r\n\r\n")).hear_all()
    answers_at_once(server.address)


def test_loopback_is_loopback_for_a_server_of_both_kinds_of_address(
    folder: Path, stack: ExitStack
) -> None:
    """CONTRACT 73"""
    options = ("--bind", "tcp://[::]:0", "--allow-plaintext", "--workers", 1)
    running = stack.enter_context(serving(folder, *options, "--lease", PATIENCE_S))
    address = running.address.replace("[::]", "127.0.0.1")
    stack.enter_context(Stranger(address, b"GET / HTTP/1.1\r\n\r\n")).hear_all()
    answers_at_once(address)


# --- messages without end -----------------------------------------------------------------------


def _endless(stranger: Stranger) -> int:
    """Sends zeros for as long as somebody takes them; how many megabytes were taken."""
    data, taken = bytes(1 << 20), 0
    while taken < 16384 and stranger.send(data):
        taken += 1
    return taken


@pytest.mark.parametrize("greets", [False, True], ids=["a stranger", "a rank"])
def test_bytes_without_end_are_not_kept_and_cut_off(
    server: Running, graph: Graph, stack: ExitStack, greets: bool
) -> None:
    """CONTRACT 73: of frames that make no sense nothing more is read after the first."""
    begin = (PREAMBLE, HELLO) if greets else (PREAMBLE,)
    with unharmed(server, graph):
        with saying(server.address, begin) as stranger:
            assert _endless(stranger) < 16384, "sixteen gigabytes were taken"
        answers_at_once(server.address)


def test_a_refused_payload_is_skipped_and_not_kept(
    server: Running, graph: Graph, stack: ExitStack
) -> None:
    """CONTRACT 73: however much of it comes."""
    with unharmed(server, graph):
        rank = stack.enter_context(BareRank(server.address))
        rank.greet(name="generous")
        rank.announce(Call(request=1, verb="get_node_label"), 2**50, lane=1)
        rank.say_raw(bytes(CHUNK))
        assert "max_call_bytes" in str(rank.refusal())
        for _ in range(400):
            rank.go_on(bytes(CHUNK), lane=1)
        assert rank.call("ping") == (None, {})
        rank.close()


def test_memory_that_was_granted_is_not_taken_before_it_is_filled(
    server: Running, graph: Graph, stack: ExitStack
) -> None:
    """CONTRACT 73: a gigabyte each, of which a few bytes come."""
    with unharmed(server, graph):
        for _ in range(8):
            rank = stack.enter_context(BareRank(server.address))
            rank.greet(name="greedy")
            rank.announce(Call(request=1, verb="get_node_label"), 1 << 30, lane=1)
            rank.say_raw(bytes(CHUNK))
        answers_at_once(server.address)
        stack.close()


def test_messages_in_part_of_very_many_ranks_are_bounded(folder: Path, graph: Graph) -> None:
    """CONTRACT 73: a megabyte each, of which the last byte never comes."""
    words = frame(encode(Call(request=1, verb="x", arguments={"x": bytes(MOST_MESSAGE - 100)})))
    options = ("--workers", 1, "--lease", PATIENCE_S, "--limit", "max_partial_bytes=32MB")
    with listened_to(folder, *options) as running, unharmed(running, graph):
        with ExitStack() as stack:
            ranks = [stack.enter_context(BareRank(running.address)) for _ in range(300)]
            for rank in ranks:
                rank.greet(name="in part")
                stack.callback(rank.reset)
                rank.stream.send_encoded(b"")  # nothing of its own stands in between
            for rank in ranks:
                _send_what_goes(rank, words[:-1])
            until(lambda: sum(one.is_hung_up_on for one in ranks) >= 250, "most are refused")
            assert len(sessions(running, "in part")) <= 34


def _send_what_goes(rank: BareRank, data: bytes) -> None:
    """All of it, unless it is hung up on."""
    rank.socket.setblocking(True)
    try:
        rank.socket.sendall(data)
    except OSError:
        return
    finally:
        rank.socket.setblocking(False)


@pytest.mark.parametrize(
    "message", [Heartbeat(), Heartbeat(reply=True)], ids=["not answered", "answered"]
)
def test_very_many_tiny_messages_hold_nobody_up(
    server: Running, graph: Graph, stack: ExitStack, message: Heartbeat
) -> None:
    """CONTRACT 9, CONTRACT 73: who sends them waits, and nobody else."""
    with unharmed(server, graph):
        rank = stack.enter_context(BareRank(server.address))
        rank.greet(name="busy")
        words = frame(encode(message)) * 1000
        for _ in range(100):
            rank.say_raw(words)
            rank.hear_all()
        answers_at_once(server.address)
        assert rank.call("ping") == (None, {})
        rank.close()


def test_who_comes_and_goes_again_and_again_leaves_nothing(server: Running, graph: Graph) -> None:
    """CONTRACT 40, CONTRACT 73: a thousand sessions, some with a channel."""
    with unharmed(server, graph):
        for number in range(1000):
            with BareRank(server.address) as rank:
                rank.greet(name="restless")
                if number % 50 == 0:
                    rank.register(split="train")
                if number % 2:
                    rank.goodbye()
        answers_at_once(server.address)
        until(lambda: not sessions(server, "restless"), "all of them have gone")


# --- ranks that misbehave -----------------------------------------------------------------------


def test_thousands_of_messages_without_waiting_hold_nobody_up(
    server: Running, graph: Graph
) -> None:
    """CONTRACT 9: nobody reads the answers; whoever goes on like this is hung up on."""
    verbs = ("ping", "get_node_ids", "nonsense", "get_edge_index")
    messages = (Call(request=number, verb=verbs[number % 4]) for number in count(1))
    with unharmed(server, graph), Link(server.address) as link:
        with BareRank(link.address) as deaf:
            deaf.greet(name="deaf")
            link.shut()
            for message in islice(messages, 5000):
                deaf.say_if_connected(message)
            answers_at_once(server.address)
            until(
                lambda: not all(map(deaf.say_if_connected, islice(messages, 1000))),
                "it is hung up on",
            )


def test_answers_that_nobody_reads_are_bounded(folder: Path, graph: Graph) -> None:
    """CONTRACT 53: each is a copy of rows, of many times what was asked with."""
    plain, arrays = values.pack({"index": np.zeros(100_000, np.int64)})
    packed = pack(arrays)
    options = ("--lease", PATIENCE_S, "--limit", "max_answer_bytes=8MB")
    with (
        listened_to(folder, "--workers", 1, *options) as running,
        unharmed(running, graph),
        Link(running.address) as link,
        BareRank(link.address) as deaf,
    ):
        deaf.greet(name="deaf")
        link.shut()
        for number in range(1, 400):
            call = Call(
                request=number, verb="get_node_feature", arguments=plain, arrays=packed.arrays
            )
            assert deaf.say_if_connected(call, packed.views)
            until(lambda: deaf.stream.flush(0.01), "it was sent")
        answers_at_once(running.address)
        deaf.say(Goodbye())
        until(lambda: not sessions(running, "deaf"), "all of it was heard")


def test_a_rank_that_never_reads_its_batches_holds_up_itself_alone(
    server: Running, graph: Graph
) -> None:
    """CONTRACT 9"""
    ids = np.resize(np.arange(NODES), 200 * NODES)  # more than the kernel takes
    with unharmed(server, graph), ExitStack() as stack:
        link = stack.enter_context(Link(server.address))
        deaf = [stack.enter_context(BareRank(link.address)) for _ in range(4)]
        for rank in deaf:
            rank.greet(name="deaf")
            rank.register(arrays={"ids": ids}, batch_size=NODES, slots=200)
        link.shut()
        for rank in deaf:
            rank.start()
        until(
            lambda: sum(one["unsent"] > 0 for one in sessions(server, "deaf")) == len(deaf),
            "batches wait for all of them",
        )
        answers_at_once(server.address)


def test_a_reader_of_single_bytes_holds_up_itself_alone(server: Running, graph: Graph) -> None:
    """CONTRACT 9: as over a very slow network."""
    with unharmed(server, graph):
        with Stranger(server.address, PREAMBLE, HELLO) as slow:
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            for _ in range(200):
                assert slow.socket.recv(1)
            answers_at_once(server.address)


def test_those_who_wait_for_the_end_hold_nobody_up(server: Running, graph: Graph) -> None:
    """CONTRACT 9: more of them than there are threads to answer anybody."""
    with unharmed(server, graph), ExitStack() as stack:
        waiting = [stack.enter_context(BareRank(server.address)) for _ in range(40)]
        for rank in waiting:
            rank.greet(name="waiting")
            for number in range(1, 17):
                rank.say(Call(request=number, verb="wait_for_exit", arguments={"timeout": 30.0}))
        answers_at_once(server.address)


# --- where all is encrypted ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("keys")
    Authority(made).issue_server()
    return made


@pytest.fixture(scope="module")
def tls(keys: Path) -> ssl.SSLContext:
    return client_context(keys / "ca.pem")


@pytest.fixture(scope="module")
def encrypted(folder: Path, keys: Path, tls: ssl.SSLContext) -> Iterator[Running]:
    options = ("--certificate", keys / "server.pem", "--key", keys / "server.key")
    with listened_to(folder, "--workers", 1, "--lease", PATIENCE_S, *options, tls=tls) as running:
        yield running


class Recorder:
    """Encrypts as a rank would, without a socket of its own."""

    def __init__(self, address: str, tls: ssl.SSLContext, change: int | None = None) -> None:
        """`change`: which of the bytes that it sends is another one."""
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._in, self._out, server_hostname="localhost")
        self._change = change
        self._sent = 0
        self.stranger = Stranger(address)

    def greet(self, most: int) -> bool:
        """Goes through the handshake, but sends at most so many bytes; whether it got through."""
        while True:
            try:
                self._tls.do_handshake()
                return self._send(most) >= 0
            except ssl.SSLWantReadError:
                most = self._send(most)
                if most <= 0 or not (data := self.stranger.hear_some()):
                    return False
                self._in.write(data)

    def say(self, data: bytes, most: int) -> int:
        """Sends it encrypted, at most so many bytes of it; how many more there may be."""
        self._tls.write(data)
        return self._send(most)

    def _send(self, most: int) -> int:
        data = bytearray(self._out.read())
        if self._change is not None and 0 <= self._change - self._sent < len(data):
            data[self._change - self._sent] ^= 0x10
        self._sent += len(data)
        self.stranger.send(data[: max(0, most)])
        return most - len(data)


def test_encrypted_connections_that_end_at_any_byte_leave_nothing(
    encrypted: Running, graph: Graph, tls: ssl.SSLContext
) -> None:
    """CONTRACT 40, CONTRACT 72: reset in the handshake, and in the conversation after it."""
    words = conversation()
    with unharmed(encrypted, graph, tls), BareRank(encrypted.address, tls=tls) as steady:
        steady.greet(name="steady")
        for most in range(0, 2600, 23):
            recorder = Recorder(encrypted.address, tls)
            with recorder.stranger as stranger:
                if recorder.greet(most):
                    recorder.say(words, most - 600)
                for _ in range(3):  # it was accepted, looked at, and dealt with
                    assert steady.call("ping") == (None, {})
                stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        steady.goodbye()


def test_encrypted_bytes_that_were_changed_on_the_way_harm_nobody(
    encrypted: Running, graph: Graph, tls: ssl.SSLContext
) -> None:
    """CONTRACT 73: the conversation ends there, in the handshake or after it."""
    words = conversation()
    with unharmed(encrypted, graph, tls):
        for at in range(0, 2600, 41):
            recorder = Recorder(encrypted.address, tls, change=at)
            with recorder.stranger:
                with suppress(ssl.SSLError):  # it may be told so
                    if recorder.greet(1 << 30):
                        recorder.say(words, 1 << 30)
                answers_at_once(encrypted.address, tls)


def test_what_follows_a_payload_in_the_same_record_is_heard_at_once(
    encrypted: Running, tls: ssl.SSLContext
) -> None:
    """CONTRACT 72: how a rank cuts what it encrypts is its own affair."""
    plain, arrays = values.pack({"index": np.zeros(20_000, np.int64)})
    packed = pack(arrays)
    data = b"".join(packed.views)
    with BareRank(encrypted.address, tls=tls) as rank:
        rank.greet(name="joins")
        call = Call(request=2, verb="get_node_label", arguments=plain, arrays=packed.arrays)
        rank.announce(call, packed.nbytes)
        rank.say_raw(data[:-100])
        (there,) = sessions(encrypted, "joins", tls)  # so all of that was received
        assert there["bytes_in"] > packed.nbytes - 100
        rank.say_raw(data[-100:] + PING)
        heard = {rank.hear_any(AT_ONCE_S / 2)[0].request for _ in range(2)}
        assert heard == {1, 2}


# Python has no way to ask for new keys, but OpenSSL, which it has loaded, has. The pointer to the
# connection is the second field of the object.
UPDATING = """
import ctypes, _ssl, sys
from penstock.wire.transport.tls import client_context
from tests.processes import until
from tests.server.transport.test_security_socket import HELLO, PREAMBLE, Recorder
library = ctypes.CDLL(_ssl.__file__)
library.SSL_key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
library.SSL_do_handshake.argtypes = [ctypes.c_void_p]
recorder = Recorder(sys.argv[1], client_context(sys.argv[2]))
with recorder.stranger as stranger:
    assert recorder.greet(1 << 30)
    recorder.say(PREAMBLE + HELLO, 1 << 30)
    pointer = ctypes.c_void_p.from_address(id(recorder._tls._sslobj) + 24).value
    for _ in range(20_000):
        assert library.SSL_key_update(pointer, 0) == 1
        library.SSL_do_handshake(pointer)
    data = recorder._out.read()
    assert len(data) > 20_000 * 20
    print("updating", flush=True)
    stranger.send(data)
    until(lambda: stranger.is_closed, "it is hung up on, long before its lease ends")
    print("hung up on", flush=True)
"""


def test_who_asks_for_new_keys_without_end_is_hung_up_on(
    encrypted: Running, keys: Path, tls: ssl.SSLContext
) -> None:
    """CONTRACT 73: each such record costs time, and carries nothing."""
    with BareRank(encrypted.address, tls=tls) as steady:
        steady.greet(name="steady")
        attack = subprocess.Popen(
            [sys.executable, "-c", UPDATING, encrypted.address, keys / "ca.pem"],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        said, _ = attack.communicate()
        if not said.startswith("updating"):
            pytest.skip("this Python's OpenSSL cannot be reached")
        assert said.splitlines() == ["updating", "hung up on"]
        assert steady.call("ping") == (None, {})
        steady.goodbye()


def test_who_is_reset_before_it_was_looked_at_harms_nobody(
    folder: Path, keys: Path, tls: ssl.SSLContext
) -> None:
    """CONTRACT 73: it has said something, and is gone when the server comes to it.

    Those who come next have the same descriptors.
    """
    options = ("--certificate", keys / "server.pem", "--key", keys / "server.key")
    with listened_to(folder, "--workers", 1, "--lease", PATIENCE_S, *options, tls=tls) as running:
        for _ in range(3):
            with stopped(running.process.pid):
                for _ in range(20):
                    with Stranger(running.address, b"\x16\x03\x01\x02\x00") as stranger:
                        stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            for _ in range(10):
                answers_at_once(running.address, tls)


@pytest.mark.parametrize("name", [name for name in WORDS if name != "nothing at all"])
def test_bytes_that_are_no_conversation_harm_nobody_when_they_are_encrypted(
    encrypted: Running, tls: ssl.SSLContext, name: str
) -> None:
    """CONTRACT 73"""
    recorder = Recorder(encrypted.address, tls)
    with recorder.stranger:
        assert recorder.greet(1 << 30)
        for data in WORDS[name]:
            recorder.say(data, 1 << 30)
        answers_at_once(encrypted.address, tls)


def test_ranks_that_never_read_what_is_encrypted_for_them_hold_up_themselves_alone(
    encrypted: Running, graph: Graph, tls: ssl.SSLContext
) -> None:
    """CONTRACT 9: more of them than there are threads that encrypt."""
    ids = np.resize(np.arange(NODES), 100 * NODES)
    with unharmed(encrypted, graph, tls), ExitStack() as stack:
        deaf = [
            stack.enter_context(BareRank(encrypted.address, kept=4096, tls=tls)) for _ in range(8)
        ]
        for rank in deaf:
            rank.greet(name="deaf")
            rank.register(arrays={"ids": ids}, batch_size=NODES, slots=100)
            rank.start()
        until(
            lambda: sum(one["unsent"] > 0 for one in sessions(encrypted, "deaf", tls)) == 8,
            "batches wait for all of them",
        )
        answers_at_once(encrypted.address, tls)


def test_who_is_expelled_while_batches_are_encrypted_reads_why(
    encrypted: Running, graph: Graph, tls: ssl.SSLContext
) -> None:
    """CONTRACT 72: what was begun is completed, so that the reason can be read behind it."""
    ids = np.resize(np.arange(NODES), 100 * NODES)
    with unharmed(encrypted, graph, tls):
        for _ in range(3):
            with BareRank(encrypted.address, kept=4096, tls=tls) as rank:
                rank.greet(name="expelled")
                rank.register(arrays={"ids": ids}, batch_size=NODES, slots=100)
                rank.start()
                rank.take()
                rank.say(Hello(protocol=2, pid=1))
                *_, last = rank.waits_for_end()
                assert "Hello makes no sense now" in last.report.message


def test_handshakes_beyond_those_in_a_second_wait_for_their_turn(
    folder: Path, keys: Path, tls: ssl.SSLContext, stack: ExitStack
) -> None:
    """CONTRACT 73: they cost more than anything else that a stranger can ask for."""
    options = ("--certificate", keys / "server.pem", "--key", keys / "server.key")
    limits = ("--lease", PATIENCE_S, "--limit", "max_handshakes=5")
    running = stack.enter_context(listened_to(folder, "--workers", 1, *options, *limits, tls=tls))
    silent = [stack.enter_context(Stranger(running.address, b"\x16\x03\x01")) for _ in range(5)]
    for _ in range(5):
        answers_at_once(running.address, tls)
    assert not all(one.is_closed for one in silent)
