"""What ranks and strangers can make a server keep, and what they cannot: its end among it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq

from penstock.client.deadline import Deadline
from penstock.client.remote.dist_server import RemoteDistServer
from penstock.client.remote.door import Door
from penstock.client.remote.store import Store
from penstock.errors import Overloaded, ProtocolError
from penstock.graph import Graph
from penstock.server import reception
from penstock.server import router as wire
from penstock.server import session as sessions
from penstock.server.admission import Peer
from penstock.server.callers import GUESTS_LOOK_S, UNHEARD_BYTES
from penstock.server.desk import WAITING
from penstock.server.limits import Limits
from penstock.server.questions import StoreVisit
from penstock.server.reception import Reception
from penstock.server.router import Frames, Sent
from penstock.server.serving import Server, serve
from penstock.server.session import Session, Upload
from penstock.wire.bulk import Assembly, pack
from penstock.wire.conversation import State
from penstock.wire.messages import Message
from penstock.wire.remote import (
    HEADER,
    PIECE,
    UNTAKEN,
    Answer,
    Bulk,
    Call,
    FromServerToRank,
    Goodbye,
    Part,
    Taken,
)
from penstock.wire.requests import (
    InitSamplingBackendRequest,
    RegisterBackendRequest,
    SamplerInput,
)
from tests.client.graphs import SPEC
from tests.client.ranks import ROOT
from tests.processes import PATIENCE_S, until
from tests.server.links import Link
from tests.server.ranks import BareRank, knock
from tests.server.strangers import Stranger, frame

Ranks = Callable[..., BareRank]
LIMIT = UNTAKEN  # of the arrays of calls
encoded = msgspec.msgpack.encode


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[Server]:
    """One that is in no hurry to give anybody up, and takes calls of some megabytes."""
    limits = Limits(max_call_bytes=LIMIT)
    with serve(graph, num_workers=1, lease=PATIENCE_S, limits=limits) as served:
        yield served


def hear_slowly(
    monkeypatch: pytest.MonkeyPatch, seconds: float, larger_than: int = 0
) -> threading.Semaphore:
    """Until the test ends, messages take the server so long; one release for each of them."""
    hear, heard = Reception.hear, threading.Semaphore(0)

    def hear_late(hearer: Reception, identity: bytes, frames: Frames) -> Any:
        if sum(map(len, frames)) > larger_than:
            time.sleep(seconds)
            heard.release()
        return hear(hearer, identity, frames)

    monkeypatch.setattr(Reception, "hear", hear_late)
    return heard


# --- the end of the socket -----------------------------------------------------------------------

# Of ten peers that read nothing, nine are reset while the socket waits for its last words to go, at
# different moments; heartbeats are due all the time.
RESET = """
import socket, struct, threading, time
from penstock.server.admission import LoopbackOnly
from penstock.server.router import Router, Sent
from tests.server.strangers import Stranger, frame

router = Router("tcp://127.0.0.1:0", LoopbackOnly(), 0.4)
data = memoryview(bytes(2 << 20))
strangers = [Stranger.greeted(router.address) for _ in range(10)]
for stranger in strangers:
    stranger.send(frame(b"hi"))
    while (received := router.receive()) is None:
        time.sleep(0.001)
    while router.send(received[0], b"x", data) is Sent.YES:
        pass

def reset():
    for stranger in strangers[1:]:
        time.sleep(0.02)
        stranger.send(frame(b"more") * 50)
    for stranger in strangers[1:]:
        time.sleep(0.02)
        stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stranger.close()

enemy = threading.Thread(target=reset)
enemy.start()
router.close()
enemy.join()
print("closed")
"""

# Each is two events for whoever watches, and here nobody does.
UNNOTICED = """
import socket
from penstock.server.admission import LoopbackOnly
from penstock.server.router import Router
from tests.server.strangers import place_of

router = Router("tcp://127.0.0.1:0", LoopbackOnly(), 5.0)
for _ in range(2200):
    socket.create_connection(place_of(router.address), 5.0).close()
router.close()
print("closed")
"""
# Long for what takes a second, and nothing where it takes for ever.
SOON_S = 20


def ended(program: str) -> tuple[int, str, str]:
    """What becomes of a process; one that hangs tells where."""
    watched = f"import faulthandler; faulthandler.dump_traceback_later({SOON_S}, exit=True)"
    done = subprocess.run(
        [sys.executable, "-c", watched + program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return done.returncode, done.stdout, done.stderr


def test_peers_that_are_reset_while_the_socket_closes_do_not_end_the_process() -> None:
    """CONTRACT 39: ZeroMQ would, where it is left to wait for them."""
    assert ended(RESET) == (0, "closed\n", "")


def test_a_socket_closes_after_thousands_of_connections_that_nobody_noticed() -> None:
    """CONTRACT 39: what tells of them has a limit, where ZeroMQ waits for it to be heard."""
    assert ended(UNNOTICED) == (0, "closed\n", "")


# --- bytes that were not heard -------------------------------------------------------------------


def announce_too_much(rank: BareRank, nbytes: int, request: int = 1) -> None:
    """A question whose arrays are refused before they come."""
    rank.say(Call(request=request, verb="get_node_label", bulk=Bulk(nbytes=nbytes)))
    with pytest.raises(Overloaded, match="max_call_bytes"):
        raise rank.refusal()


def send_parts(rank: BareRank, begin: int, end: int) -> None:
    """The arrays of request 1; each part is heard before the next is sent."""
    for offset in range(begin, end, PIECE):
        rank.say(Part(request=1, offset=offset), bytes(min(PIECE, end - offset)))
        assert rank.call("ping") == (None, {})


def test_what_was_heard_in_one_session_is_not_held_against_the_next(
    server: Server, context: zmq.Context[Any], rank: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 40: a rank may leave, and knock again over the same connection."""
    lost, noisy = server.statistics().leases_lost, rank()
    with BareRank(server.address, context, stays_away=True) as twice:
        twice.greet(name="twice")
        announce_too_much(twice, UNHEARD_BYTES + PIECE)
        send_parts(twice, 0, UNHEARD_BYTES + PIECE)
        a_look = Deadline(1.2 * GUESTS_LOOK_S)
        until(lambda: a_look.passed, "the server has looked at how much has come")
        twice.goodbye()
        twice.greet(name="twice")
        # While something is always left to be heard, it is looked at again.
        hear_slowly(monkeypatch, 0.005)
        for request in range(1, 150):
            noisy.say(Call(request=request, verb="ping"))
        for _ in range(1, 150):
            noisy.hear(Answer)
        assert twice.say_if_connected(Call(request=1, verb="ping"))
        twice.hear(Answer)
        assert server.statistics().leases_lost == lost
        twice.goodbye()


def test_who_knocks_and_leaves_again_and_again_is_counted_all_the_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 53: what it has sent is in the server's memory, whoever it was when it did."""
    large = Call(request=1, verb="ping", arguments={"x": bytes(HEADER - 1000)})
    words = b"".join(frame(encoded(word)) for word in (knock(), Goodbye(), large))
    heard = hear_slowly(monkeypatch, 0.05, larger_than=HEADER // 2)
    with Stranger.greeted(server.address) as stranger:
        for _ in range(UNHEARD_BYTES // HEADER):  # it never sends much between two looks
            if not stranger.send(4 * words):
                break
            assert heard.acquire(timeout=PATIENCE_S)
        until(lambda: stranger.is_closed, "it is hung up on", PATIENCE_S / 3)


# --- arrays that are refused ---------------------------------------------------------------------


def test_refused_arrays_are_dropped_to_the_last_part_whatever_else_is_refused(
    server: Server, rank: Ranks
) -> None:
    """Nobody who waits for an answer can know which parts are on their way."""
    asks, end = rank(), LIMIT + PIECE // 2
    announce_too_much(asks, end)
    send_parts(asks, 0, PIECE)
    for request in range(200, 300):
        with pytest.raises(ProtocolError, match="no verb"):
            asks.call("no_such_verb", request=request)
    send_parts(asks, PIECE, end)


def test_a_part_after_the_last_one_makes_no_sense(server: Server, rank: Ranks) -> None:
    asks, end = rank(), LIMIT + 1
    announce_too_much(asks, end)
    send_parts(asks, 0, end)
    asks.say(Part(request=1, offset=end), b"x")
    with pytest.raises(ProtocolError, match="request 1, which expects none"):
        raise asks.refusal()


# --- a message's own fields ----------------------------------------------------------------------


def call_of(nbytes: int) -> bytes:
    """A ping in so many bytes."""
    beside = len(encoded(Call(request=1, verb="ping", arguments={"x": bytes(HEADER)}))) - HEADER
    return encoded(Call(request=1, verb="ping", arguments={"x": bytes(nbytes - beside)}))


def test_a_message_with_too_many_bytes_of_its_own_ends_its_session_only(rank: Ranks) -> None:
    """CONTRACT 53: plain data takes many times its bytes once it is read."""
    large, other = rank(), rank()
    large.say_bytes(call_of(HEADER))
    large.hear(Answer)
    large.say_bytes(call_of(HEADER + 1))
    with pytest.raises(ProtocolError, match=f"{HEADER + 1} bytes of its own; at most {HEADER}"):
        raise large.refusal()
    assert other.call("ping") == (None, {})
    large.greet()


def test_a_long_list_of_ids_travels_as_an_array(server: Server, graph: Graph) -> None:
    """CONTRACT 38"""
    ids = [7] * 1_000_000
    with closing(Store(Door(server.address))) as store:
        remote = RemoteDistServer(store)
        labels = remote.get_node_label(None, ids)
        backend = remote.init_sampling_backend(
            InitSamplingBackendRequest(backend_key="long", sampling_config=SPEC)
        )
        remote.register_sampling_input(
            RegisterBackendRequest(
                backend_id=backend,
                sampler_input=SamplerInput(ids=ids),
                terms={"batch_size": 16},
            )
        )
    assert len(labels) == len(ids)
    assert set(labels.tolist()) == {int(graph.node_attribute("y")[7])}
    until(lambda: not server.statistics().sessions, "it has gone")


@pytest.mark.parametrize(
    "words",
    [
        b"\xc1" * 1000,
        b"\x91" * (HEADER // 2),
        encoded(Call(request=1, verb="ping", arguments={"x": [[]] * (HEADER // 4)})),
        encoded(Goodbye()),
    ],
    ids=["garbage", "deep", "a large Call", "Goodbye"],
)
def test_of_who_has_no_session_nothing_is_read_but_a_knock(
    rank: Ranks, words: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 53: whatever it is, the answer is the same."""
    stranger = rank(greeted=False)
    monkeypatch.setattr(reception, "_DECODER", None)  # of those who have one
    stranger.say_bytes(words)
    with pytest.raises(ProtocolError, match="there is no session, say Knock first"):
        raise stranger.refusal()
    stranger.greet()


# --- words that wait to be read ------------------------------------------------------------------


class FakeRouter:
    """A peer that takes nothing, or everything."""

    def __init__(self) -> None:
        self.takes = Sent.FULL
        self.sent: list[Message] = []

    def send(self, identity: bytes, header: bytes, data: memoryview | None = None) -> Sent:
        if self.takes is Sent.YES:
            self.sent.append(msgspec.msgpack.decode(header, type=FromServerToRank))
        return self.takes


class FakeTime:
    """It is as late as a test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    made = FakeTime()
    monkeypatch.setattr(sessions, "time", made)
    return made


@pytest.fixture
def router() -> FakeRouter:
    return FakeRouter()


@pytest.fixture
def blocked(clock: FakeTime, router: FakeRouter) -> Session:
    """One with an answer that waits, and arrays on their way here."""
    made: Any = Session(1, b"rank", knock(), Peer("127.0.0.1", None), router, set())  # type: ignore[arg-type]
    made.conversation.state = State.GREETED
    coming = Bulk(nbytes=UNTAKEN)
    made.expect(Upload(Call(request=2, verb="get_node_label", bulk=coming), Assembly(coming)))
    made.say(Answer(request=1))
    for offset in range(3):
        made.say(Part(request=1, offset=offset), memoryview(b"x"))
    assert made.blocked
    return made  # type: ignore[no-any-return]


def test_that_parts_were_taken_is_told_before_all_that_waits(
    blocked: Session, router: FakeRouter
) -> None:
    """A rank that waits to send more may be the one that is to read."""
    blocked.note_taken_in(UNTAKEN // 2)
    router.takes = Sent.YES
    blocked.flush()
    assert [type(word) for word in router.sent] == [Taken, Answer, Part, Part, Part]


def test_what_was_taken_last_is_what_a_rank_hears_last(
    blocked: Session, router: FakeRouter
) -> None:
    """Or it would believe that there is less room than there is."""
    for _ in range(3):
        blocked.note_taken_in(UNTAKEN // 4)
    router.takes = Sent.YES
    blocked.flush()
    told = [word.nbytes for word in router.sent if isinstance(word, Taken)]
    assert told[-1] == max(told) == 3 * UNTAKEN // 4


def test_who_has_yet_to_read_is_not_waited_for_in_vain(
    blocked: Session, router: FakeRouter, clock: FakeTime
) -> None:
    """It may have to hear that there is room; then it has as much time as anybody."""
    clock.now += 1000.0
    assert blocked.keeps_waiting_for(clock.now, 1) == 0.0
    router.takes = Sent.YES
    blocked.flush()
    assert blocked.keeps_waiting_for(clock.now, 1) == 0.0
    clock.now += 10.0
    assert blocked.keeps_waiting_for(clock.now, 1) == 10.0
    blocked.note_taken_in(UNTAKEN // 4)
    assert blocked.keeps_waiting_for(clock.now, 1) == 0.0
    clock.now += 10.0
    assert blocked.keeps_waiting_for(clock.now, 1 << 20) == 10.0


def test_a_rank_behind_a_slow_network_has_time_to_hear_that_there_is_room(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 40: an answer that is on its way to it takes longer than arrays may fail to come."""
    set_up, lease = wire._set_up, 0.25
    monkeypatch.setattr(wire, "_set_up", lambda socket, _: set_up(socket, PATIENCE_S))
    with (
        serve(graph, num_workers=1, lease=lease) as slow,
        Link(slow.address, bytes_a_second=5e6) as link,
        closing(Store(Door(link.address))) as store,
        ThreadPoolExecutor(2) as threads,
    ):
        reads = threads.submit(RemoteDistServer(store).get_node_label, None, np.zeros(1 << 20, int))
        until(lambda: slow.statistics().bytes_out > 8 << 20, "its answer is on its way")
        asks = threads.submit(
            RemoteDistServer(store).get_node_label, "none", np.zeros(3 << 20, int)
        )
        with pytest.raises(ValueError, match="none"):
            asks.result(PATIENCE_S)
        assert len(reads.result(PATIENCE_S)) == 1 << 20
        assert slow.statistics().opened == 1


# --- questions of those who have left ------------------------------------------------------------

ARRAYS = pack({"0": np.zeros(8192)})


class Standstill:
    """Questions are begun, as many as there are threads for, and not answered."""

    def __init__(self, server: Server) -> None:
        self._premises = server._door._premises
        self.begun = 0
        self.go_on = threading.Event()

    def answer(self, *_: Any) -> tuple[None, dict[str, Any]]:
        self.begun += 1
        self.go_on.wait(PATIENCE_S)
        return None, {}

    @property
    def waiting(self) -> int:
        """Questions that nobody has begun."""
        return len(self._premises.answering._by_verb["wait_for_exit"]._jobs)

    @property
    def taken(self) -> int:
        """Bytes of the budget for arguments."""
        return self._premises.call_budget.taken


@contextmanager
def standstill(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standstill]:
    made = Standstill(server)
    monkeypatch.setattr(StoreVisit, "answer", made.answer)
    try:
        yield made
    finally:
        made.go_on.set()
    until(lambda: made.taken == 0, "all is given back")


def ask_to_wait(rank: BareRank, times: int) -> None:
    for request in range(1, times + 1):
        rank.say(Call(request=request, verb="wait_for_exit", bulk=ARRAYS.bulk))
        for offset, data in ARRAYS.parts():
            rank.say(Part(request=request, offset=offset), bytes(data))


def test_questions_of_those_who_have_left_do_not_stay(
    server: Server, rank: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 53: or who leaves and comes back has as many as it likes."""
    stays, leaves = rank(), rank(greeted=False)
    with standstill(server, monkeypatch) as still:
        ask_to_wait(stays, WAITING)
        until(lambda: still.begun == WAITING, "all threads are busy")
        taken = still.taken
        for _ in range(20):
            leaves.greet()
            ask_to_wait(leaves, 8)
            leaves.goodbye()
        until(lambda: len(server.statistics().sessions) == 1, "it has left")
        assert (still.begun, still.waiting, still.taken) == (WAITING, 0, taken)
        still.go_on.set()
        for _ in range(WAITING):
            stays.hear(Answer)


def test_arrays_count_until_nobody_works_with_them(
    server: Server, rank: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 53: also when whoever has sent them left."""
    leaves = rank()
    with standstill(server, monkeypatch) as still:
        ask_to_wait(leaves, 1)
        until(lambda: still.begun == 1, "somebody works with them")
        leaves.goodbye()
        until(lambda: not server.statistics().sessions, "it has left")
        assert still.taken >= ARRAYS.bulk.nbytes
