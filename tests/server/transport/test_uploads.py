"""Arrays on their way to a server: who waits, what is skipped, and what is not waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from penstock import connect
from penstock.errors import Overloaded, ProtocolError
from penstock.graph import Graph
from penstock.options import Limits
from penstock.sampling.spec import Feed, NeighborSpec
from penstock.server.serving import Server, serve
from penstock.server.transport.event_loop import UPLOAD_LEASES, EventLoop
from penstock.server.transport.session import Session
from penstock.wire import values
from penstock.wire.framing import CHUNK
from penstock.wire.messages import Answer, Call, Heartbeat, Refused, Register
from penstock.wire.payload import Packed, pack
from penstock.wire.tcp_stream import MOST_OPEN
from tests.client.graphs import SPEC
from tests.processes import PATIENCE_S, until
from tests.server.ranks import BareRank, channel_at

Ranks = Callable[..., BareRank]
# More than the kernel keeps of what was not received.
LARGE = 64 << 20
# Of the arguments of calls.
LIMIT = 4 << 20
LEASE = 1.0


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[Server]:
    """One that is in no hurry to give anybody up, and takes calls of some megabytes."""
    limits = Limits(max_call_bytes=LIMIT, max_input_bytes=LIMIT)
    with serve(graph, num_workers=1, lease=PATIENCE_S, limits=limits) as served:
        yield served


# --- a server that is slow to hear ---


@pytest.fixture
def slow_server(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """One that takes its time with everything that has a payload."""
    hear = EventLoop._hear

    def hear_slowly(loop: EventLoop, session: Session) -> None:
        hear(loop, session)
        time.sleep(0.02 if session.stream.is_open else 0.0)

    monkeypatch.setattr(EventLoop, "_hear", hear_slowly)
    with serve(graph, num_workers=1, lease=PATIENCE_S) as served:
        yield served


def test_a_rank_waits_until_its_arrays_are_taken(slow_server: Server, graph: Graph) -> None:
    """CONTRACT 53: and whoever reads meanwhile reads what is there."""
    ids = np.resize(np.arange(graph.num_nodes()), LARGE // 8)
    with channel_at(
        slow_server.address, ids, NeighborSpec(num_neighbors=(1,)), batch_size=4, shuffle=False
    ) as channel:
        channel.start(0)
        batch = channel.next(PATIENCE_S)
        assert batch is not None
        assert np.array_equal(batch.arrays["n_id"][:4], ids[:4])
        assert channel.statistics().recoveries == 0
        assert slow_server.statistics().leases_lost == 0


def test_threads_that_ask_with_large_arrays_wait_for_one_another(
    slow_server: Server, graph: Graph
) -> None:
    """Each gets its own answer."""
    index = np.zeros(LARGE // 3 // 8, np.int64)
    with connect(slow_server.address) as remote, ThreadPoolExecutor(3) as threads:
        asked = [
            threads.submit(remote.server.get_node_label, None, index + row) for row in range(3)
        ]
        for row, answer in enumerate(asked):
            labels = answer.result(PATIENCE_S)
            assert len(labels) == len(index)
            assert int(labels[0]) == int(graph.node_attribute("y")[row])
        assert slow_server.statistics().leases_lost == 0


@contextmanager
def standing_still(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Meanwhile the server hears nobody."""
    hear, go_on = EventLoop._hear, threading.Event()

    def hear_later(loop: EventLoop, session: Session) -> None:
        go_on.wait(PATIENCE_S)
        hear(loop, session)

    with monkeypatch.context() as patch:
        patch.setattr(EventLoop, "_hear", hear_later)
        try:
            yield
        finally:
            go_on.set()


def test_who_does_not_wait_is_held_back_by_the_kernel(
    server: Server, rank: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 73: what the server has not received is none of its memory."""
    pushy = rank()
    most = sum(int(_setting(f"tcp_{name}").split()[-1]) for name in ("rmem", "wmem"))
    packed = pack({"index": np.zeros((most + LARGE) // 8, np.int64)})
    with standing_still(monkeypatch):
        pushy.stream.send(
            Call(request=1, verb="get_node_label", arrays=packed.arrays), payload=packed.views
        )
        assert not pushy.stream.flush(0.5)
        assert pushy.stream.bytes_out < most
    with pytest.raises(Overloaded, match="max_call_bytes"):
        raise pushy.refusal()


def _setting(name: str) -> str:
    return Path(f"/proc/sys/net/ipv4/{name}").read_text()


def test_a_small_call_is_answered_while_a_large_payload_is_on_its_way(rank: Ranks) -> None:
    """In a lane of its own, between two chunks."""
    asks = rank()
    call, packed = _labels(LIMIT // 8)
    data = b"".join(packed.views)
    asks.announce(call, packed.nbytes, lane=7)
    asks.say_raw(data[:CHUNK])
    assert asks.call("ping") == (None, {})
    for begin in range(CHUNK, len(data), CHUNK):
        asks.go_on(data[begin : begin + CHUNK], lane=7)
    assert asks.hear(Answer).request == call.request


def _labels(count: int) -> tuple[Call, Packed]:
    """A question with an array."""
    plain, arrays = values.pack({"index": np.zeros(count, np.int64)})
    packed = pack(arrays)
    call = Call(request=1, verb="get_node_label", arguments=plain, arrays=packed.arrays)
    return call, packed


# --- arrays that are refused ---


def announce_too_much(rank: BareRank, nbytes: int, request: int = 1, lane: int = 1) -> None:
    """A question whose arrays are refused before they come."""
    rank.announce(Call(request=request, verb="get_node_label"), nbytes, lane)
    with pytest.raises(Overloaded, match="max_call_bytes"):
        raise rank.refusal()


def test_refused_arrays_are_skipped_to_the_last_byte_whatever_else_is_refused(rank: Ranks) -> None:
    """CONTRACT 73: nobody who waits for an answer can know what is on its way."""
    asks, nbytes = rank(), LIMIT + CHUNK // 2
    announce_too_much(asks, nbytes)
    asks.say_raw(bytes(CHUNK))
    for request in range(200, 300):
        with pytest.raises(ProtocolError, match="no verb"):
            asks.call("no_such_verb", request=request)
    for begin in range(CHUNK, nbytes, CHUNK):
        asks.go_on(bytes(min(CHUNK, nbytes - begin)), lane=1)
        assert asks.call("ping") == (None, {})
    # The lane is free again.
    asks.say(Call(request=2, verb="ping"), lane=1)
    assert asks.hear(Answer).request == 2


def test_a_payload_that_exceeds_every_limit_is_refused_and_the_session_goes_on(
    rank: Ranks, server: Server
) -> None:
    """CONTRACT 73: as much of it as was sent is skipped, and the rest need never come."""
    asks = rank()
    announce_too_much(asks, 2**64 - 1)
    asks.say_raw(bytes(CHUNK))
    register = Register(request=2, spec=SPEC, feed=Feed(num_inputs=0, batch_size=16))
    asks.announce(register, 2**63, lane=2)
    with pytest.raises(Overloaded, match="max_input_bytes"):
        raise asks.refusal()
    asks.say_raw(bytes(CHUNK))
    assert server.statistics().input_bytes == 0
    assert asks.call("get_node_types") == (None, {})
    asks.register(split="train", request=3)
    asks.start()
    assert len(asks.read()) == 15


def test_a_chunk_after_the_last_one_makes_no_sense(rank: Ranks) -> None:
    asks, nbytes = rank(), LIMIT + 1
    announce_too_much(asks, nbytes)
    asks.say_raw(bytes(CHUNK))
    for begin in range(CHUNK, nbytes, CHUNK):
        asks.go_on(bytes(min(CHUNK, nbytes - begin)), lane=1)
    assert asks.call("ping") == (None, {})
    asks.go_on(b"x", lane=1)
    with pytest.raises(ProtocolError, match="a chunk of 1 bytes came, which belongs to no message"):
        raise asks.refusal()
    assert asks.waits_for_end() == []


def test_only_so_many_messages_may_be_open_refused_or_not(rank: Ranks) -> None:
    """CONTRACT 73: each is kept until all of its payload has come."""
    asks = rank()
    for lane in range(MOST_OPEN):
        asks.announce(Call(request=1 + lane, verb="get_node_label"), 2**60, lane)
        asks.say_raw(bytes(CHUNK))
        assert isinstance(asks.refusal(), Overloaded)
    asks.announce(Call(request=999, verb="get_node_label"), 2**60, MOST_OPEN)
    with pytest.raises(ProtocolError, match="messages are open"):
        raise asks.refusal()


# --- arrays that do not come ---


@pytest.fixture
def strict(graph: Graph) -> Iterator[Server]:
    """One whose leases are short."""
    with serve(graph, num_workers=1, lease=LEASE) as served:
        yield served


def _register() -> Register:
    return Register(request=1, spec=SPEC, feed=Feed(num_inputs=0, batch_size=16))


def test_arrays_that_do_not_come_are_not_waited_for_for_ever(strict: Server, rank: Ranks) -> None:
    """CONTRACT 53, CONTRACT 73: whatever signs of life the rank gives; a few such would take all
    that there is for inputs."""
    liar = rank(strict.address)
    liar.announce(_register(), 4 * CHUNK)
    liar.say_raw(bytes(CHUNK))
    until(lambda: strict.statistics().input_bytes == 4 * CHUNK, "room is kept for them")
    began = time.monotonic()
    until(lambda: not liar.say_if_connected(Heartbeat(), lane=1), "it is hung up on")
    assert time.monotonic() - began > (UPLOAD_LEASES - 1) * LEASE
    (refused,) = liar.hear_all()
    assert isinstance(refused, Refused)
    assert (refused.request, refused.report.kind) == (0, "TimeoutError")
    assert "did not arrive" in refused.report.message
    until(lambda: strict.statistics().input_bytes == 0, "their room is free again")


def test_arrays_that_come_byte_by_byte_are_waited_for(strict: Server, rank: Ranks) -> None:
    """CONTRACT 72: each is a sign of life, and nothing else may stand within a chunk."""
    slow = rank(strict.address)
    call, packed = _labels(1000)
    data = b"".join(packed.views)
    slow.announce(call, packed.nbytes)
    sent = count()

    def has_taken_long() -> bool:
        at = next(sent)
        slow.say_raw(data[at : at + 1])
        return strict.statistics().sessions[0].seconds > (UPLOAD_LEASES + 1) * LEASE

    until(has_taken_long, "it has taken longer than arrays may fail to come")
    slow.say_raw(data[next(sent) :])
    assert slow.hear(Answer).request == call.request


def test_refused_arrays_are_not_waited_for_for_ever_either(strict: Server, rank: Ranks) -> None:
    """CONTRACT 73: nor is the message kept that they came with, which may be large."""
    liar = rank(strict.address, name="liar")
    announce_too_much(liar, 1 << 40)
    (session,) = (one for one in strict._loop._state.sessions if one.hello.name == "liar")
    until(lambda: session.stream.is_open, "what was announced is known")
    assert [each.message for each in session.stream._open.values()] == [None]
    liar.say_raw(bytes(CHUNK))
    until(lambda: not liar.say_if_connected(Heartbeat(), lane=2), "it is hung up on")
    (refused,) = liar.hear_all()
    assert isinstance(refused, Refused)
    assert refused.report.kind == "TimeoutError"


def test_who_announces_arrays_and_says_nothing_more_loses_its_lease(
    strict: Server, rank: Ranks
) -> None:
    """CONTRACT 72, CONTRACT 73"""
    silent = rank(strict.address)
    silent.announce(_register(), 4 * CHUNK)
    assert silent.waits_for_end() == []
    until(lambda: strict.statistics().input_bytes == 0, "their room is free again")


def test_arrays_of_an_old_session_have_as_much_time_as_those_of_a_new_one(
    strict: Server, rank: Ranks
) -> None:
    """CONTRACT 72: who has been idle for long, and then sends arrays, is not expelled at once."""
    old, call, packed = rank(strict.address), *_labels(1000)

    def is_old() -> bool:
        old.live()
        return strict.statistics().sessions[0].seconds > (UPLOAD_LEASES + 1) * LEASE

    until(is_old, "it has been there for long")
    old.announce(call, packed.nbytes)
    # Half a second after somebody has left, the server looks at all leases.
    opened = strict.statistics().opened
    rank(strict.address).goodbye()
    assert old.is_quiet(0.7 * LEASE)
    assert strict.statistics().opened == opened + 1
    old.say_raw(b"".join(packed.views))
    assert old.hear(Answer).request == call.request
