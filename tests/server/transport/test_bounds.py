"""What ranks and strangers can make a server keep, and what they cannot: its end among it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import count, repeat, takewhile
from typing import Any

import numpy as np
import pytest

from penstock.client.remote.dist_server import RemoteDistServer
from penstock.errors import Overloaded, ProtocolError
from penstock.graph import Graph
from penstock.options import Limits
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.failures import error_of
from penstock.rpc.server import RemoteServer
from penstock.server.dist.rpc import DistServerSession
from penstock.server.serving import Server, serve
from penstock.server.transport.session import BESIDE_A_MESSAGE, MOST_UNREAD
from penstock.server.transport.threads import WAITING
from penstock.wire import values
from penstock.wire.framing import encode
from penstock.wire.messages import (
    MOST_HELLO,
    MOST_MESSAGE,
    Answer,
    Call,
    Goodbye,
    Heartbeat,
    Message,
    Refused,
    Reweigh,
)
from penstock.wire.payload import pack
from penstock.wire.requests import (
    InitSamplingBackendRequest,
    RegisterBackendRequest,
    SamplerInput,
)
from tests.client.graphs import SPEC
from tests.client.ranks import ROOT
from tests.processes import PATIENCE_S, stopped, until
from tests.server.links import Link
from tests.server.ranks import BareRank, hello
from tests.server.transport.strangers import frame

Ranks = Callable[..., BareRank]
# Of answers that one session leaves unread, of those of all, and of messages that came in part.
UNREAD = 4 << 20
ALL_UNREAD = 6 << 20
PARTIAL = 3 * MOST_MESSAGE + 1000
# What the kernel keeps for a rank that does not read, and of what a server has sent.
KEPT = 4096
IN_KERNEL = 2 << 20


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[Server]:
    """One that is in no hurry to give anybody up, and keeps little for those who do not read."""
    limits = Limits(
        max_answer_bytes=UNREAD, max_answers_bytes=ALL_UNREAD, max_partial_bytes=PARTIAL
    )
    with serve(graph, num_workers=1, lease=PATIENCE_S, limits=limits) as served:
        yield served


@pytest.fixture
def deaf(server: Server) -> Iterator[BareRank]:
    """One that has yet to read what it is told, behind a kernel that keeps little of it."""
    with BareRank(server.address, kept=KEPT) as rank:
        rank.greet(name="deaf")
        yield rank
    there = server.statistics
    until(lambda: all(one.name != "deaf" for one in there().sessions), "it has gone")


# --- the end of a server -------------------------------------------------------------------------

# Of ten ranks that read nothing, nine are reset while the server waits for its last words to go, at
# different moments.
RESET = """
import threading, time
import numpy as np
from penstock.server.serving import serve
from tests.client.graphs import NODES, small_graph
from tests.processes import until
from tests.server.ranks import BareRank

with small_graph() as graph:
    server = serve(graph, num_workers=1, lease=60.0)
    ranks = [BareRank(server.address, kept=4096) for _ in range(10)]
    for rank in ranks:
        rank.greet()
        ids = np.resize(np.arange(NODES), 100 * NODES)
        rank.register(arrays={"ids": ids}, batch_size=NODES, slots=100)
        rank.start()
    until(lambda: all(one.unsent for one in server.statistics().sessions), "batches wait for all")

    def reset():
        for rank in ranks[1:]:
            time.sleep(0.02)
            rank.reset()

    enemy = threading.Thread(target=reset)
    enemy.start()
    server.close()
    enemy.join()
print("closed")
"""

# Each is gone before the server has looked at it.
UNNOTICED = """
import socket
from penstock.server.serving import serve
from tests.client.graphs import small_graph
from tests.server.transport.strangers import place_of

with small_graph() as graph:
    server = serve(graph, num_workers=1)
    for _ in range(2200):
        socket.create_connection(place_of(server.address), 5.0).close()
    server.close()
print("closed")
"""
# Long for what takes a second, and nothing where it takes for ever.
SOON_S = 30


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


def test_ranks_that_are_reset_while_the_server_closes_do_not_end_the_process() -> None:
    """CONTRACT 39, CONTRACT 73: nor keep it from ending."""
    assert ended(RESET) == (0, "closed\n", "")


def test_a_server_closes_after_thousands_of_connections_that_nobody_noticed() -> None:
    """CONTRACT 39, CONTRACT 73"""
    assert ended(UNNOTICED) == (0, "closed\n", "")


# --- a message's own fields ----------------------------------------------------------------------


def call_of(nbytes: int, request: int = 1) -> bytes:
    """A ping in so many bytes."""
    empty = Call(request=request, verb="ping", arguments={"x": bytes(MOST_HELLO << 6)})
    beside = len(encode(empty)) - (MOST_HELLO << 6)
    made = encode(Call(request=request, verb="ping", arguments={"x": bytes(nbytes - beside)}))
    assert len(made) == nbytes
    return made


def test_a_message_with_too_many_bytes_of_its_own_ends_its_session_only(rank: Ranks) -> None:
    """CONTRACT 53, CONTRACT 73: plain data takes many times its bytes once it is read."""
    large, other = rank(), rank()
    large.say_bytes(call_of(MOST_MESSAGE))
    large.hear(Answer)
    # The header alone is enough to know.
    large.say_raw(frame(b"", size=MOST_MESSAGE + 1))
    with pytest.raises(ProtocolError, match=f"{MOST_MESSAGE + 1} bytes .* at most {MOST_MESSAGE}"):
        raise large.refusal()
    assert large.waits_for_end() == []
    assert other.call("ping") == (None, {})


@pytest.mark.parametrize("size", [2**32 - 1, 2**31, MOST_MESSAGE + 1])
def test_what_is_announced_beyond_the_limit_is_not_waited_for(rank: Ranks, size: int) -> None:
    """CONTRACT 73"""
    liar = rank()
    liar.say_raw(frame(b"x", size=size))
    with pytest.raises(ProtocolError, match=f"a message of {size} bytes"):
        raise liar.refusal()
    assert liar.waits_for_end() == []


def test_a_long_list_of_ids_travels_as_an_array(server: Server, graph: Graph) -> None:
    """CONTRACT 38"""
    ids = [7] * 500_000
    with closing(RemoteServer(Endpoint(server.address))) as store:
        remote = RemoteDistServer(store)
        labels = remote.get_node_label(None, ids)
        backend = remote.init_sampling_backend(
            InitSamplingBackendRequest(backend_key="long", sampling_config=SPEC)
        )
        remote.register_sampling_input(
            RegisterBackendRequest(
                backend_id=backend,
                sampler_input=SamplerInput(ids=ids),
                channel_options={"batch_size": 16},
            )
        )
    assert len(labels) == len(ids)
    assert set(labels.tolist()) == {int(graph.node_attribute("y")[7])}
    until(lambda: not server.statistics().sessions, "it has gone")


@pytest.mark.parametrize(
    "words",
    [
        b"\xc1" * 1000,
        b"\x91" * MOST_HELLO,
        b"\xdd\xff\xff\xff\xff",
        encode(Call(request=1, verb="ping", arguments={"x": [[]] * (MOST_HELLO // 2)})),
        encode(Goodbye()),
        encode(Heartbeat(reply=True)),
        b"\x80",
    ],
    ids=["garbage", "deep", "a list without end", "a large Call", "Goodbye", "Heartbeat", "{}"],
)
def test_of_who_has_no_session_nothing_is_read_but_a_hello(rank: Ranks, words: bytes) -> None:
    """CONTRACT 53, CONTRACT 74: whatever it is, the answer is the same."""
    stranger = rank(greeted=False)
    stranger.say_bytes(words)
    with pytest.raises(ProtocolError, match="there is no session, say Hello first"):
        raise stranger.refusal()
    assert stranger.waits_for_end() == []


def test_a_hello_with_a_payload_is_refused(rank: Ranks) -> None:
    """CONTRACT 73: nothing is kept for those who have no session."""
    stranger = rank(greeted=False)
    stranger.say(hello(), [memoryview(b"12345678")])
    with pytest.raises(ProtocolError, match="came with a payload, which it cannot have"):
        raise stranger.refusal()


# --- messages that have come in part -------------------------------------------------------------


def test_messages_that_have_come_in_part_are_bounded_for_all_together(
    server: Server, rank: Ranks
) -> None:
    """CONTRACT 73: whoever is one too many is told so, and the others go on."""
    words = frame(call_of(MOST_MESSAGE))
    there = [rank(name=f"in part {number}") for number in range(3)]
    for one in there:
        _say_all_but_one_byte(one, words, server)
    last = rank(name="one too many")
    last.say_if_connected(Heartbeat())
    last.say_raw(words[: len(words) // 2])
    with pytest.raises(Overloaded, match="max_partial_bytes"):
        raise last.refusal()
    assert last.waits_for_end() == []
    for one in there:
        one.say_raw(words[-1:])
        assert one.hear(Answer).request == 1
    # There is room again.
    again = rank()
    _say_all_but_one_byte(again, words, server)
    again.say_raw(words[-1:])
    again.hear(Answer)


def _say_all_but_one_byte(rank: BareRank, words: bytes, server: Server) -> None:
    """Returns when the server has received it."""
    before = server.statistics().bytes_in
    rank.say_raw(words[:-1])
    until(lambda: server.statistics().bytes_in - before >= len(words) - 1, "it has come")


def test_what_came_in_part_of_those_who_have_gone_is_not_kept(server: Server, rank: Ranks) -> None:
    """CONTRACT 73: or the next ones would find no room."""
    words = frame(call_of(MOST_MESSAGE))
    for _ in range(8):
        gone = rank()
        _say_all_but_one_byte(gone, words, server)
        gone.close()
    until(lambda: not server.statistics().sessions, "they have gone")
    for one in [rank() for _ in range(3)]:
        _say_all_but_one_byte(one, words, server)
        assert not one.is_hung_up_on


# --- what waits to be read -----------------------------------------------------------------------

_requests = count(1)


def ask_for_rows(rank: BareRank, nbytes: int) -> int:
    """A question whose answer has so many bytes; the number of the request."""
    plain, arrays = values.pack({"index": np.zeros(nbytes // 24, np.int64)})
    packed, request = pack(arrays), next(_requests)
    call = Call(request=request, verb="get_node_feature", arguments=plain, arrays=packed.arrays)
    rank.stream.send(call, payload=packed.views)
    assert rank.stream.flush(PATIENCE_S)
    return request


def test_answers_that_one_rank_leaves_unread_are_bounded(server: Server, deaf: BareRank) -> None:
    """CONTRACT 53, CONTRACT 73: it is refused more until it has read; nothing that was granted is
    lost."""
    asked = []
    for number in range(40):
        asked.append(ask_for_rows(deaf, 1 << 20))
        until(partial(_answered, server, number + 1), "it is answered")
    heard = {}
    for _ in asked:
        message, payload = deaf.hear_any()
        heard[message.request] = message if isinstance(message, Refused) else payload.nbytes
    assert sorted(heard) == asked
    granted = [nbytes for nbytes in heard.values() if isinstance(nbytes, int)]
    refused = [each for each in heard.values() if isinstance(each, Refused)]
    assert UNREAD // 2 < sum(granted) <= UNREAD + (1 << 20) + IN_KERNEL
    assert len(refused) == 40 - len(granted)
    for each in refused:
        with pytest.raises(Overloaded, match="setting: max_answer_bytes"):
            raise error_of(each.report)
    ask_for_rows(deaf, UNREAD // 4)
    deaf.hear(Answer)


def _answered(server: Server, count: int) -> bool:
    """Whether so many requests were answered, or refused."""
    (one,) = server.statistics().sessions
    return one.calls_in_flight == 0 and one.bytes_in > count * (1 << 20) / 3


def test_answers_that_all_together_leave_unread_are_bounded(
    server: Server, rank: Ranks, deaf: BareRank
) -> None:
    """CONTRACT 73: until somebody reads, or leaves."""
    budget = server._loop._state.answer_budget
    with BareRank(server.address, kept=KEPT) as other:
        other.greet(name="deaf as well")
        ask_for_rows(deaf, UNREAD - (64 << 10))
        until(lambda: budget.taken > UNREAD // 2, "the first one's answer waits")
        ask_for_rows(other, UNREAD - (64 << 10))
        with pytest.raises(Overloaded, match="setting: max_answers_bytes"):
            raise other.refusal()
        # A small one has room.
        small = ask_for_rows(other, 1 << 20)
        assert other.hear(Answer).request == small
    deaf.reset()
    until(lambda: budget.taken == 0, "what the first one left is free")
    asks = rank()
    ask_for_rows(asks, UNREAD - (64 << 10))
    asks.hear(Answer)


def _unread(server: Server, name: str) -> int:
    """Messages that wait for somebody."""
    return sum(one.unsent for one in server.statistics().sessions if one.name == name)


@pytest.mark.parametrize(
    "message",
    [
        lambda number: Heartbeat(reply=True),
        lambda number: Call(request=number, verb="ping"),
        lambda number: Call(request=number, verb="nonsense " * 1000),
    ],
    ids=["signs of life", "answers", "refusals"],
)
def test_who_never_reads_what_it_asks_for_is_hung_up_on(
    server: Server, deaf: BareRank, message: Callable[[int], Message]
) -> None:
    """CONTRACT 73: messages are counted by their bytes, and by what they take beside."""
    lost, most, numbers = server.statistics().leases_lost, 0, count(1)
    while not deaf.stream.broken:
        deaf.stream.send(message(next(numbers)))
        if deaf.stream.pending:
            deaf.stream.flush(0.01)
            most = max(most, _unread(server, "deaf"))
    assert most <= MOST_UNREAD // BESIDE_A_MESSAGE + 10
    until(lambda: not server.statistics().sessions, "its session is over")
    assert server.statistics().leases_lost == lost + 1


def test_what_waits_for_a_hub_that_does_not_listen_is_bounded(graph: Graph) -> None:
    """CONTRACT 73: the rank that says it is held back, or has to go."""
    with serve(graph, num_workers=1, lease=PATIENCE_S) as served, BareRank(served.address) as pushy:
        pushy.greet(name="pushy")
        pushy.register(split="train")
        (session,) = served._loop._state.sessions
        assert session.relay is not None
        waiting = session.relay._session.connection._stream._outbox
        words = frame(encode(Reweigh(channel=pushy.channel, weight=1.0))) * 1000
        looks: deque[int] = deque(maxlen=50)

        def nothing_comes_any_more() -> bool:
            looks.append(session.stream.bytes_in)
            return session.ending is not None or (len(looks) == 50 and looks[0] == looks[-1])

        with stopped(served.hub.pid):
            for _ in takewhile(pushy.sends, repeat(words, 100)):
                pass
            until(nothing_comes_any_more, "all of it has come, or it is held back")
            assert len(waiting) < 20_000


def test_a_rank_behind_a_slow_network_has_time_to_send_its_arrays(graph: Graph) -> None:
    """CONTRACT 40: an answer that is on its way to it takes longer than arrays may fail to come."""
    with (
        serve(graph, num_workers=1, lease=1.0) as slow,
        Link(slow.address, bytes_a_second=2e6) as link,
        closing(RemoteServer(Endpoint(link.address))) as store,
        ThreadPoolExecutor(2) as threads,
    ):
        reads = threads.submit(RemoteDistServer(store).get_node_label, None, np.zeros(1 << 20, int))
        until(lambda: slow.statistics().bytes_out > 1 << 20, "its answer is on its way")
        asks = threads.submit(
            RemoteDistServer(store).get_node_label, "none", np.zeros(3 << 20, int)
        )
        with pytest.raises(ValueError, match="none"):
            asks.result(PATIENCE_S)
        assert len(reads.result(PATIENCE_S)) == 1 << 20
        assert slow.statistics().leases_lost == 0


# --- questions of those who have left ------------------------------------------------------------

ARRAYS = pack({"0": np.zeros(8192)})


class Standstill:
    """Questions are begun, as many as there are threads for, and not answered."""

    def __init__(self, server: Server) -> None:
        self._state = server._loop._state
        self.begun = 0
        self.go_on = threading.Event()
        self.rows: Any = None  # what all are answered with

    def answer(self, *_: Any) -> tuple[None, dict[str, Any]]:
        self.begun += 1
        self.go_on.wait(PATIENCE_S)
        return None, {} if self.rows is None else {"rows": self.rows}

    @property
    def waiting(self) -> int:
        """Questions that nobody has begun."""
        return len(self._state.answering._by_verb["wait_for_exit"]._jobs)

    @property
    def taken(self) -> int:
        """Bytes of the budget for arguments."""
        return self._state.call_budget.taken


@contextmanager
def standstill(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standstill]:
    made = Standstill(server)
    monkeypatch.setattr(DistServerSession, "answer", made.answer)
    try:
        yield made
    finally:
        made.go_on.set()
    until(lambda: made.taken == 0, "all is given back")


def ask_to_wait(rank: BareRank, times: int) -> None:
    for request in range(1, times + 1):
        call = Call(request=request, verb="wait_for_exit", arrays=ARRAYS.arrays)
        rank.say(call, ARRAYS.views)


def test_questions_of_those_who_have_left_do_not_stay(
    server: Server, rank: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 53: or who leaves and comes back has as many as it likes."""
    stays = rank()
    with standstill(server, monkeypatch) as still:
        ask_to_wait(stays, WAITING)
        until(lambda: still.begun == WAITING, "all threads are busy")
        taken = still.taken
        for _ in range(20):
            leaves = rank()
            ask_to_wait(leaves, 8)
            leaves.goodbye()
        until(lambda: len(server.statistics().sessions) == 1, "it has left")
        assert (still.begun, still.waiting, still.taken) == (WAITING, 0, taken)
        still.go_on.set()
        for _ in range(WAITING):
            stays.hear(Answer)


def test_answers_to_calls_made_at_once_are_bounded_for_each_rank(
    server: Server, rank: Ranks, deaf: BareRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 73: or one that does not read takes all that there is for others, too."""
    unread = server._loop._state.answer_budget
    answer = DistServerSession.answer
    with standstill(server, monkeypatch) as still:
        for _ in range(10):
            ask_for_rows(deaf, 1 << 20)
        until(lambda: still.begun == 10, "all are being answered")
        monkeypatch.setattr(DistServerSession, "answer", answer)
        still.rows = np.zeros(1 << 20, np.uint8)
        still.go_on.set()
        until(lambda: server.statistics().sessions[0].calls_in_flight == 0, "all are answered")
    assert unread.taken <= UNREAD + (1 << 20)
    other = rank()
    ask_for_rows(other, 1 << 20)
    other.hear(Answer)


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
        assert still.taken >= ARRAYS.nbytes


def test_arrays_that_have_come_in_part_of_who_has_left_are_not_kept(
    server: Server, rank: Ranks
) -> None:
    """CONTRACT 73"""
    budget = server._loop._state.call_budget
    gone = rank()
    gone.announce(Call(request=1, verb="get_node_label", arrays=ARRAYS.arrays), ARRAYS.nbytes)
    gone.say_raw(b"x" * (ARRAYS.nbytes - 1))
    until(lambda: budget.taken >= ARRAYS.nbytes, "room is kept for them")
    gone.reset()
    until(lambda: budget.taken == 0, "all is given back")
