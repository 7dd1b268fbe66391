"""The thread that looks after connections: it receives, says that we live, notices silence."""

from __future__ import annotations

import gc
import os
import select
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.rpc import connection, io_thread, link
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import SILENCE_S
from penstock.rpc.link import Inbox, ServerLink
from penstock.rpc.rpc_client import RpcClient
from penstock.wire.messages import (
    Answer,
    Call,
    EpochDone,
    Goodbye,
    Heartbeat,
    Leaving,
    Message,
    Refused,
    Register,
    Registered,
    Report,
    ReturnSlot,
    StartEpoch,
)
from penstock.wire.payload import NOTHING, pack
from tests.client.ranks import rank
from tests.processes import until
from tests.rpc.puppets import (
    CHANNEL,
    LARGE,
    PATIENCE_S,
    REGISTER,
    Puppet,
    a_channel,
    greeted,
    opened,
    ready,
    registered,
    soon,
)

# A short lease; a sign of life is given twice in it.
LEASE_S = 0.4


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> float:
    """After so long a server is given up: long enough for what is said at once, however busy the
    machine may be."""
    monkeypatch.setattr(link, "SILENCE_S", 1.0)
    return 1.0


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> float:
    """The same, for tests in which nothing is said in time."""
    monkeypatch.setattr(link, "SILENCE_S", 0.25)
    return 0.25


# The threads of connections that others had in this process before a test.
_others: list[threading.Thread] = []


@pytest.fixture(autouse=True)
def _a_thread_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of when the thread ends do not share it with connections that others have left."""
    _others[:] = _io_threads()
    monkeypatch.setattr(io_thread, "_threads", {})


def _io_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "penstock-io"]


def threads_of_ours() -> list[threading.Thread]:
    return [thread for thread in _io_threads() if thread not in _others]


def start_epoch(server: Puppet, connection: RemoteConnection) -> None:
    connection.post(StartEpoch(channel=CHANNEL, epoch=0))
    server.hear(StartEpoch)


# --- receiving -----------------------------------------------------------------------------------


def test_a_batch_is_received_while_nobody_reads(server: Puppet) -> None:
    """All of it, which is more than kernels keep: or the server could not have said it."""
    data = os.urandom(LARGE)
    with registered(server) as connection:
        assert connection.receive() == []
        server.say(ready(len(data)), data)
        assert select.select([connection], [], [], PATIENCE_S)[0]
        ((message, memory),) = connection.receive()
        assert message == ready(len(data))
        assert bytes(memory) == data


def test_what_waits_for_room_is_sent_while_nobody_calls(server: Puppet) -> None:
    with registered(server) as connection:
        connection.send(
            Call(request=1, verb="get_it", arrays=(packed := pack(zeros())).arrays), packed
        )
        for slot in range(1000):
            connection.post(ReturnSlot(channel=CHANNEL, slot=slot))
        assert connection._link.pending
        assert server.hear_all_of(Call)[1] == bytes(LARGE)
        assert [server.hear(ReturnSlot).slot for _ in range(1000)] == list(range(1000))
        until(lambda: not connection._link.pending, "nothing waits any more")


def zeros() -> dict[str, Any]:
    return {"0": np.zeros(LARGE, np.uint8)}


def test_a_connection_that_stands_still_holds_up_no_other(server: Puppet) -> None:
    with registered(server) as stuck:
        stuck.send(Call(request=1, verb="get_it", arrays=(packed := pack(zeros())).arrays), packed)
        assert stuck._link.pending
        server.ignore()
        with registered(server) as other:
            server.say(ready(3), b"abc")
            other.wait(soon())
            assert len(other.receive()) == 1


# --- signs of life -------------------------------------------------------------------------------


def test_a_rank_says_that_it_lives_without_anybody_calling_anything(server: Puppet) -> None:
    """CONTRACT 40: nor is an answer wanted of a server that owes nothing."""
    with registered(server, lease=LEASE_S):
        for _ in range(3):
            assert server.hear(Heartbeat) == Heartbeat(reply=False)


def test_a_rank_that_waits_for_batches_asks_whether_the_server_lives(server: Puppet) -> None:
    """CONTRACT 41: from the start of an epoch until it is done."""
    with registered(server, lease=LEASE_S) as connection:
        start_epoch(server, connection)
        assert server.hear(Heartbeat).reply
        server.say(EpochDone(channel=CHANNEL, epoch=0, delivered=0, failed=0, cancelled=0))
        connection.wait(soon())
        while server.hear(Heartbeat).reply:  # said before the end was heard
            pass


def test_all_ranks_say_that_they_live_at_the_same_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is woken once for all of them has less to do."""
    now = SimpleNamespace(time=lambda: 1234.25, monotonic=lambda: 100.0)
    monkeypatch.setattr(link, "time", now)
    assert link._next_beat(5.0) == 100.75  # that is 1235.0 on the wall, a multiple of 2.5
    now.time = lambda: 1235.0
    assert link._next_beat(5.0) == 102.5


@contextmanager
def asked_for(
    server: Puppet, what: str, patience: float = PATIENCE_S, **given: Any
) -> Iterator[Future[Any]]:
    """What becomes of one who waits for something that the server owes."""
    with ExitStack() as stack:
        waiting = stack.enter_context(ThreadPoolExecutor(1))
        if what == "a call":
            client = stack.enter_context(closing(RpcClient(opened(server, driven=True, **given))))
            yield waiting.submit(client.call, "get_it", {}, NOTHING, Deadline(patience))
        elif what == "a registration":
            connection = stack.enter_context(greeted(server, **given))
            yield waiting.submit(connection.register, REGISTER, NOTHING, Deadline(patience))
        else:
            connection = stack.enter_context(registered(server, **given))
            start_epoch(server, connection)
            yield waiting.submit(next_message, connection, patience)


def next_message(connection: RemoteConnection, patience: float = PATIENCE_S) -> Any:
    connection.wait(Deadline(patience))
    return connection.receive()[0][0]


OWED = pytest.mark.parametrize("what", ["a call", "a registration", "a batch"])


@OWED
def test_a_server_that_owes_something_and_says_nothing_is_given_up(
    server: Puppet, short_silence: float, what: str
) -> None:
    """CONTRACT 41"""
    with asked_for(server, what, lease=LEASE_S) as coming:
        with pytest.raises(ConnectionError, match=r"said nothing for [\d.]+ s"):
            coming.result(PATIENCE_S)


@OWED
def test_a_server_that_owes_something_and_says_that_it_lives_is_waited_for(
    server: Puppet, silence: float, what: str
) -> None:
    """CONTRACT 41: however long it takes."""
    answers: dict[str, Message] = {
        "a call": Answer(request=1),
        "a registration": Registered(request=1, channel=CHANNEL, slots=1, most_bytes=1),
        "a batch": ready(0),
    }
    with asked_for(server, what, lease=LEASE_S) as coming:
        if what != "a batch":
            server.hear(Call if what == "a call" else Register)
        over = Deadline(1.5 * silence)
        while not over.passed:
            if server.hear(Heartbeat).reply:
                server.say(Heartbeat())
        server.say(answers[what])
        assert coming.result(PATIENCE_S)


def test_a_server_that_owes_nothing_may_say_nothing(server: Puppet, short_silence: float) -> None:
    with registered(server, lease=LEASE_S) as connection:
        while server.hear(Heartbeat).reply:
            pass  # it was sent while the registration was owed
        over = Deadline(4 * short_silence)
        while not over.passed:
            assert not server.hear(Heartbeat).reply
        server.say(ready(0))
        assert next_message(connection) == ready(0)


def test_silence_before_anything_was_asked_for_does_not_count(
    server: Puppet, silence: float
) -> None:
    with registered(server, lease=LEASE_S) as connection:
        over = Deadline(1.5 * silence)
        while not over.passed:
            server.hear(Heartbeat)
        start_epoch(server, connection)
        assert server.hear(Heartbeat).reply
        server.say(ready(0))
        assert next_message(connection) == ready(0)


@OWED
def test_a_server_that_was_not_asked_whether_it_lives_is_not_given_up(
    server: Puppet, short_silence: float, what: str
) -> None:
    """CONTRACT 41: whatever the lease may be."""
    lease = 8 * short_silence
    with greeted(server, lease=lease):
        server.hear(Heartbeat)  # so that there is time until the next one
        with asked_for(server, what, lease=lease) as coming:
            if what != "a batch":
                server.hear(Call if what == "a call" else Register)
            while not server.hear(Heartbeat).reply:
                assert not coming.done(), coming.exception()


def test_silence_is_noticed_whatever_the_lease_may_be(server: Puppet, short_silence: float) -> None:
    """CONTRACT 41: within seconds."""
    with asked_for(server, "a call", patience=5.0) as coming:
        with pytest.raises(ConnectionError, match="said nothing"):
            coming.result(PATIENCE_S)


def test_a_server_is_asked_whether_it_lives_in_the_middle_of_an_upload(
    server: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 41: it takes what comes all the time, if slowly, and says so when it is asked.

    The upload takes longer than the silence that is allowed, which is eight times as long as
    between two looks at what has come: long enough, however busy the machine may be.
    """
    monkeypatch.setattr(link, "SILENCE_S", silence := 2.0)
    with greeted(server, lease=LEASE_S) as connection, ThreadPoolExecutor(1) as threads:
        coming = threads.submit(connection.register, REGISTER, pack(zeros()), soon())
        try:
            came: Register | None = None
            while came is None:
                moment = Deadline(silence / 8)
                until(lambda moment=moment: moment.passed, "it takes its time")  # type: ignore[misc]
                for message in server.take_a_little():
                    if isinstance(message, Register):
                        came = message
                    elif message == Heartbeat(reply=True):
                        server.say(Heartbeat())
                assert not coming.done(), coming.exception()
            server.say(a_channel(came))
            assert coming.result(PATIENCE_S).channel == CHANNEL
        finally:
            connection.hang_up()


def test_what_has_come_and_was_not_taken_in_yet_is_no_silence(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 41: of a process that was stopped, any thread may be the first to go on."""
    connection = client._connection
    with client.reception._taking_turns:  # nobody receives
        coming = threads.submit(client.call, "get_it", {}, NOTHING, soon())
        server.hear(Call)
        server.say(Heartbeat())
        assert select.select([connection._link.descriptor], [], [], PATIENCE_S)[0]
        connection._link.beat(time.monotonic() + 2 * SILENCE_S)
    server.say(Answer(request=1, value="well"))
    assert coming.result(PATIENCE_S)[0] == "well"


# --- its life ------------------------------------------------------------------------------------


def test_the_thread_ends_with_the_last_connection_and_another_one_comes_with_the_next(
    no_leaks: None, server: Puppet
) -> None:
    assert not threads_of_ours()
    with greeted(server):
        (first,) = threads_of_ours()
        with greeted(server), greeted(server):
            assert threads_of_ours() == [first]
        assert threads_of_ours() == [first]
    until(lambda: not threads_of_ours(), "the thread has ended")
    with greeted(server):
        (second,) = threads_of_ours()
        assert second is not first
    until(lambda: not threads_of_ours(), "so has the other one")


def test_connections_that_come_and_go_in_many_threads_leave_no_thread(
    no_leaks: None, server: Puppet, threads: ThreadPoolExecutor
) -> None:
    """The last one may go while the next one comes."""
    rounds, at_once = 40, 4

    def come_and_go() -> None:
        for _ in range(rounds):
            RemoteConnection.open(server.endpoint, soon()).close()

    coming = [threads.submit(come_and_go) for _ in range(at_once)]
    for _ in range(rounds * at_once):
        server.welcome_the_next()
    for each in coming:
        each.result(PATIENCE_S)
    until(lambda: not threads_of_ours(), "the thread has ended")


def test_a_connection_that_is_closed_while_its_heartbeat_is_sent_says_goodbye(
    no_leaks: None, server: Puppet
) -> None:
    connection = opened(server)
    link = connection._link
    real, begun, go = link._stream._socket, threading.Event(), threading.Event()

    class Slow:
        """Sends when it is told to."""

        def send(self, data: bytes) -> int:
            begun.set()
            go.wait(PATIENCE_S)
            return real.send(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    link._stream._socket = Slow()  # type: ignore[assignment]
    assert link._io is not None
    link._io.keep_alive(link, 0.0)  # one is due at once
    assert begun.wait(PATIENCE_S)
    connection.close()
    go.set()
    assert server.wait_for_end() == [Goodbye()]
    until(lambda: not threads_of_ours(), "the thread has ended")


def test_a_connection_in_a_cycle_is_closed_when_it_is_collected(
    no_leaks: None, server: Puppet
) -> None:
    cycle: list[Any] = [opened(server)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert server.wait_for_end() == [Goodbye()]
    until(lambda: not threads_of_ours(), "the thread has ended")


def test_a_connection_that_has_ended_costs_nothing_until_it_is_closed(
    server: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads it may be busy for a long time."""
    looked_after: Counter[ServerLink] = Counter()
    attend = ServerLink.attend

    def count(connected: ServerLink, **given: Any) -> None:
        looked_after[connected] += 1
        attend(connected, **given)

    monkeypatch.setattr(ServerLink, "attend", count)
    with registered(server) as ended:
        server.hang_up()
        until(lambda: ended._inbox.failure is not None, "its end is known")
        with greeted(server, lease=LEASE_S):
            server.hear(Heartbeat)
            before = looked_after[ended._link]
            server.hear(Heartbeat)
            assert looked_after[ended._link] - before < 3


# --- moments -------------------------------------------------------------------------------------


def test_an_end_that_comes_while_old_news_is_cleared_is_not_cleared_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inbox, read = Inbox(), os.eventfd_read

    def end_first(descriptor: int) -> int:
        inbox.end(ConnectionResetError("over"))
        return read(descriptor)

    try:
        monkeypatch.setattr(os, "eventfd_read", end_first)
        inbox.wake()
        inbox.clear()
        assert select.select([inbox.nudge], [], [], 0)[0]
    finally:
        inbox.close()


def test_a_thread_that_ends_before_it_is_woken_is_not_woken(
    server: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be awake already when the last connection is closed."""
    write = os.eventfd_write

    def write_late(descriptor: int, value: int) -> None:
        if threading.current_thread() is threading.main_thread() and descriptor == nudge:
            write(descriptor, value)
            thread.join(1.0)
        write(descriptor, value)

    with greeted(server) as connection:
        (thread,) = threads_of_ours()
        nudge = connection._link._io._nudge
        monkeypatch.setattr(os, "eventfd_write", write_late)
        connection.close()
    until(lambda: not thread.is_alive(), "the thread has ended")


# --- processes of their own ----------------------------------------------------------------------

CONNECTED = """
from penstock.rpc.deadline import Deadline
from penstock.rpc import io_thread
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.endpoint import Endpoint
from penstock.wire.messages import *
from penstock.wire.payload import NOTHING
from tests.rpc.puppets import CHANNEL, REGISTER

def connect():
    return RemoteConnection.open(Endpoint(sys.argv[1]), Deadline(PATIENCE_S))

def post(slot):
    connection.post(ReturnSlot(channel=CHANNEL, slot=slot))

def forked(do):
    pid = os.fork()
    if not pid:
        signal.alarm(20)  # one that is stuck ends, and says so by its status
        do()
        os._exit(0)
    return os.waitpid(pid, 0)[1]

connection = connect()
"""

FORKING = """
connection.register(REGISTER, NOTHING, Deadline(PATIENCE_S))
post(1)

def in_the_fork():
    global connection
    post(2)
    connection.hang_up()
    connection.close()
    post(3)
    connection = None
    gc.collect()
    if sys.argv[2] == "by itself":
        sys.exit()

try:
    say(forked(in_the_fork))
except SystemExit:
    raise  # of the fork
post(4)
input()
connection.close()
"""


@pytest.mark.parametrize("end", ["at once", "by itself"])
def test_a_fork_neither_speaks_on_its_parents_connection_nor_closes_it(
    server: Puppet, end: str
) -> None:
    with rank(CONNECTED + FORKING, server.address, end) as parent:
        server.welcome_the_next()
        server.say(a_channel(server.hear(Register)))
        assert parent.hear() == 0
        assert [server.hear(ReturnSlot).slot for _ in range(2)] == [1, 4]
        parent.go_on()
        assert server.wait_for_end() == [Goodbye()]
        assert parent.end() == 0


CONNECTING_IN_A_FORK = """
def in_the_fork():
    other = connect()
    other.close()

say(forked(in_the_fork))
"""


def test_a_fork_has_connections_and_a_thread_of_its_own(server: Puppet) -> None:
    with rank(CONNECTED + CONNECTING_IN_A_FORK, server.address) as parent:
        server.welcome_the_next()
        server.welcome_the_next()
        assert server.wait_for_end() == [Goodbye()]
        assert parent.hear() == 0


AT_A_BAD_MOMENT = """
taken, over = threading.Event(), threading.Event()

def take():
    with io_thread._LOCK:  # as the I/O thread does, for a moment, in every turn
        taken.set()
        over.wait()

threading.Thread(target=take, daemon=True).start()
taken.wait()
"""


def test_a_fork_has_a_thread_of_its_own_whatever_its_parents_was_doing(server: Puppet) -> None:
    with rank(CONNECTED + AT_A_BAD_MOMENT + CONNECTING_IN_A_FORK, server.address) as parent:
        server.welcome_the_next()
        server.welcome_the_next()
        assert parent.hear() == 0


COLLECTED = """
class Collecting:
    '''A socket over which nothing is sent without garbage being collected meanwhile.'''
    def __init__(self, socket):
        self._socket = socket
    def send(self, data):
        gc.collect()
        return self._socket.send(data)
    def __getattr__(self, name):
        return getattr(self._socket, name)

stream = connection._link._stream
stream._socket = Collecting(stream._socket)
del stream
(thread,) = [each for each in threading.enumerate() if each.name == "penstock-io"]
gc.disable()
cycle = [connection]
cycle.append(cycle)
del connection, cycle
thread.join(float(sys.argv[2]))
say(thread.is_alive())
"""


def test_a_connection_that_is_collected_while_its_heartbeat_is_sent_is_closed(
    server: Puppet,
) -> None:
    """The garbage collector may run anywhere, in the I/O thread too."""
    with rank(CONNECTED + COLLECTED, server.address, "5") as dropping:
        server.welcome_the_next(lease=LEASE_S)
        assert dropping.hear() is False


FAILING = """
from penstock.rpc.link import ServerLink
from penstock.rpc.io_thread import IoThread

def fail(*_, **__):
    raise RuntimeError("a mistake of ours")

def next_of(connection):
    try:
        connection.wait(Deadline(PATIENCE_S))
        return [type(message).__name__ for message, _ in connection.receive()]
    except Exception as error:
        return repr(error)
"""

IN_A_CONNECTION = """
other = connect()
attend = ServerLink.attend
ours = connection._link
ServerLink.attend = lambda link, **given: (fail if link is ours else attend)(link, **given)
say("failing")
say(next_of(connection))
say(next_of(other))
connection.close()
other.close()
"""


def test_a_mistake_with_one_connection_is_told_to_who_reads_it_and_no_other(
    server: Puppet,
) -> None:
    """Where it is not known what has come of it, it is over."""
    with rank(CONNECTED + FAILING + IN_A_CONNECTION, server.address) as failing:
        server.welcome_the_next()
        first = server.rank
        server.welcome_the_next()
        other, server.rank = server.rank, first
        assert failing.hear() == "failing"
        server.say(Leaving(reason="it is heard by all", grace=PATIENCE_S))
        assert "ConnectionResetError" in failing.hear()
        server.rank = other
        server.say(Refused(request=0, report=Report(kind="Overloaded", message="heard")))
        assert failing.hear() == ["Refused"]
        assert failing.end() == 0


IN_THE_THREAD = """
turn, IoThread._turn = IoThread._turn, fail
say("failing")
say(next_of(connection))
IoThread._turn = turn
connect().close()
connection.close()
say("connected")
"""


def test_a_mistake_of_the_thread_ends_its_connections_and_the_next_ones_get_another(
    server: Puppet,
) -> None:
    with rank(CONNECTED + FAILING + IN_THE_THREAD, server.address) as failing:
        server.welcome_the_next()
        assert failing.hear() == "failing"
        server.say(Heartbeat())
        assert "ConnectionResetError" in failing.hear()
        server.welcome_the_next()
        assert failing.hear() == "connected"
        assert failing.end() == 0


# --- interrupts ----------------------------------------------------------------------------------

# Where a signal can strike: when a function begins, and when one written in C has returned.
STRIKING = ("call", "c_return")
CLOSING = {module.__file__ for module in (connection, link, io_thread, weakref)}


@contextmanager
def struck_at(moment: int) -> Iterator[list[str]]:
    """Interrupts the code that closes a connection once, at its so-manieth moment, if there is."""
    moments: list[str] = []

    def strike(frame: FrameType, event: str, _: Any) -> None:
        if event in STRIKING and frame.f_code.co_filename in CLOSING:
            moments.append(f"{event} in {frame.f_code.co_qualname}")
            if len(moments) == moment:
                raise KeyboardInterrupt

    sys.setprofile(strike)
    try:
        with suppress(KeyboardInterrupt):
            yield moments
    finally:
        sys.setprofile(None)


def test_an_interrupt_anywhere_as_it_is_closed_leaves_no_connection(server: Puppet) -> None:
    """Nobody could close it any more, and its thread would live on."""
    for moment in count(1):
        closing = opened(server)
        with struck_at(moment) as moments:
            closing.close()
        del closing
        until(lambda: not threads_of_ours(), f"nothing is left after {moments}")
        if len(moments) < moment:
            break
    assert moment > 10
