"""The rank's end of a connection: what it says, hears, and makes of a server that misbehaves."""

from __future__ import annotations

import gc
import os
import select
import socket
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest

from penstock.client.deadline import Deadline
from penstock.client.remote.connection import RemoteConnection
from penstock.client.remote.door import Door
from penstock.errors import Overloaded, ProtocolError
from penstock.wire.bulk import pack
from penstock.wire.messages import Message, Refused, Report, ReturnSlot
from penstock.wire.remote import (
    PIECE,
    UNTAKEN,
    Enroll,
    Enrolled,
    Goodbye,
    Knock,
    Leaving,
    Part,
    Piece,
    Pulse,
    Taken,
)
from tests.client.remote.puppets import (
    CHANNEL,
    ENROLL,
    MOST_BYTES,
    PATIENCE_S,
    Puppet,
    enrolled,
    greeted,
    ready,
    soon,
)


def batch_of(connection: RemoteConnection) -> Any:
    """The next batch, and its bytes."""
    while not (received := connection.receive()):
        connection.wait(soon())
    ((message, _),) = received
    return message, bytes(connection.take(message))


# --- the first words -----------------------------------------------------------------------------


def knocked(server: Puppet, answer: Message) -> Any:
    """What opening a connection comes to, if the server answers so."""
    outcome: list[Any] = []

    def knock() -> None:
        try:
            outcome.append(RemoteConnection.open(server.door, soon()))
        except Exception as error:
            outcome.append(error)

    rank = threading.Thread(target=knock)
    rank.start()
    server.hear(Knock)
    server.say(answer)
    rank.join()
    return outcome[0]


def test_a_greeting_tells_of_the_graph(server: Puppet) -> None:
    with closing(knocked(server, server.greeting())) as connection:
        assert connection.greeting.boot == "first"
        assert connection.greeting.outline.schema.nodes[0].num_nodes == 400


def test_another_protocol_is_refused(server: Puppet) -> None:
    error = knocked(server, server.greeting(protocol=99))
    assert isinstance(error, ProtocolError)
    assert "speaks protocol 99" in str(error)


def test_a_refusal_is_raised_as_what_it_says(server: Puppet) -> None:
    report = Report(kind="Overloaded", message="there are 3 sessions (setting: max_sessions)")
    error = knocked(server, Refused(request=0, report=report))
    assert isinstance(error, Overloaded)
    assert "max_sessions" in str(error)


def test_a_server_that_does_not_answer_is_not_waited_for_for_ever(server: Puppet) -> None:
    with pytest.raises(TimeoutError):
        RemoteConnection.open(server.door, Deadline(0.1))


def test_nobody_there_is_told_at_once_with_the_reason() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        door = Door(f"tcp://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(ConnectionError, match="refused"):
            RemoteConnection.open(door, soon())


def test_a_host_that_nobody_knows_is_told_at_once() -> None:
    with pytest.raises(ConnectionError, match=r"'nowhere\.invalid' is not known"):
        RemoteConnection.open(Door("tcp://nowhere.invalid:5555"), soon())


@pytest.mark.parametrize(
    "address", ["tcp://", "tcp://host", "host:5", "tcp://host:0", 5, "tcp://a:b"]
)
def test_what_is_no_address_is_refused(address: Any) -> None:
    with pytest.raises(ValueError, match="expected 'tcp://host:port'"):
        Door(address)


# --- batches -------------------------------------------------------------------------------------


def test_a_batch_is_put_together_from_its_pieces(server: Puppet) -> None:
    with enrolled(server) as connection:
        said = ready(10)
        server.say(said)
        server.say(Piece(batch=said.batch, offset=0), b"0123")
        server.say(Pulse())
        server.say(Piece(batch=said.batch, offset=4), b"456789")
        assert batch_of(connection) == (said, b"0123456789")


def test_batches_may_come_side_by_side(server: Puppet) -> None:
    with enrolled(server) as connection:
        first, second = ready(2), ready(3, step=1, slot=1)
        server.say(first)
        server.say(second)
        server.say(Piece(batch=second.batch, offset=0), b"abc")
        server.say(Piece(batch=first.batch, offset=0), b"12")
        assert batch_of(connection) == (second, b"abc")
        assert batch_of(connection) == (first, b"12")


def test_a_batch_without_bytes_needs_no_piece(server: Puppet) -> None:
    with enrolled(server) as connection:
        server.say(ready(0))
        assert batch_of(connection) == (ready(0), b"")


def test_what_has_come_is_there_to_wait_for_until_it_is_taken(server: Puppet) -> None:
    """The descriptor stays readable, however the reader takes its turns."""
    with enrolled(server) as connection:
        for step in range(3):
            server.say(ready(0, step=step))
        for step in range(3):
            assert select.select([connection], [], [], PATIENCE_S)[0]
            assert batch_of(connection)[0].batch.step == step


@pytest.mark.parametrize(
    "pieces",
    [
        [(1, b"x")],
        [(0, b"12345678901")],
        [(0, b"1234"), (0, b"1234")],
        [(0, b"1234"), (5, b"1")],
        [(0, b"")],
        [(-1, b"12")],
    ],
    ids=["late start", "too long", "twice", "gap", "empty", "before"],
)
def test_pieces_that_do_not_fit_end_the_connection(
    server: Puppet, pieces: list[tuple[int, bytes]]
) -> None:
    with enrolled(server) as connection:
        said = ready(10)
        server.say(said)
        for offset, data in pieces:
            server.say(Piece(batch=said.batch, offset=offset), data)
        with pytest.raises(ProtocolError, match="a piece of"):
            batch_of(connection)


def test_a_batch_larger_than_was_agreed_reserves_no_memory(server: Puppet) -> None:
    with enrolled(server) as connection:
        server.say(ready(MOST_BYTES + 1))
        with pytest.raises(ProtocolError, match=f"of {MOST_BYTES}"):
            batch_of(connection)


@pytest.mark.parametrize(
    "frames",
    [(b"\xc1",), (b"",), (b"\x81\xa4type\xa5Knock",), (b"x" * 5000, b"y")],
    ids=["garbage", "nothing", "not for ranks", "long"],
)
def test_what_is_no_message_ends_the_connection(server: Puppet, frames: tuple[bytes, ...]) -> None:
    with enrolled(server) as connection:
        server.say_bytes(*frames)
        with pytest.raises(ProtocolError):
            batch_of(connection)


def test_a_batch_on_a_connection_without_a_channel_makes_no_sense(server: Puppet) -> None:
    with greeted(server) as connection:
        server.say(ready(1))
        with pytest.raises(ProtocolError, match="without a channel"):
            batch_of(connection)


# --- small words ---------------------------------------------------------------------------------


def test_a_slot_goes_back_at_once_from_a_finalizer_in_another_thread(server: Puppet) -> None:
    """CONTRACT 9: also while nobody reads, or else the server would stand still."""
    with enrolled(server) as connection:

        class Loan:
            pass

        loan = Loan()
        weakref.finalize(loan, connection.post, ReturnSlot(channel=CHANNEL, slot=2))
        held = [loan]
        del loan
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        assert server.hear(ReturnSlot).slot == 2


def test_many_threads_post_while_one_reads_and_nothing_is_lost(server: Puppet) -> None:
    threads, each = 8, 200
    with enrolled(server) as connection:

        def post(number: int) -> None:
            for count in range(each):
                connection.post(ReturnSlot(channel=number, slot=count))

        posting = [threading.Thread(target=post, args=(number,)) for number in range(threads)]
        for thread in posting:
            thread.start()
        for step in range(100):
            server.say(ready(1, step=step))
            server.say(Piece(batch=ready(1, step=step).batch, offset=0), b"x")
        assert [batch_of(connection)[0].batch.step for _ in range(100)] == list(range(100))
        for thread in posting:
            thread.join()
        heard = [server.hear(ReturnSlot) for _ in range(threads * each)]
        for number in range(threads):
            mine = [word.slot for word in heard if word.channel == number]
            assert mine == list(range(each))


def test_a_post_in_the_middle_of_a_post_is_sent_as_well(server: Puppet) -> None:
    """The garbage collector may run a finalizer anywhere, here too."""
    with enrolled(server) as connection:

        class Cycle:
            def __init__(self, slot: int) -> None:
                self.me = self
                weakref.finalize(self, connection.post, ReturnSlot(channel=1, slot=slot))

        before = gc.get_threshold()
        gc.set_threshold(1)
        try:
            for slot in range(50):
                Cycle(slot)
                connection.post(ReturnSlot(channel=0, slot=slot))
        finally:
            gc.set_threshold(*before)
        gc.collect()
        heard = [server.hear(ReturnSlot) for _ in range(100)]
        assert sorted(word.slot for word in heard if word.channel == 1) == list(range(50))


# --- arrays on their way to the server -----------------------------------------------------------


# What goes out unasked: the request itself and the words about each piece count, too.
FIRST = UNTAKEN - PIECE


@contextmanager
def upload(server: Puppet) -> Iterator[Future[Any]]:
    """A rank that enrols with more than may be on its way at once, as far as it gets by itself."""
    packed = pack({"ids": np.zeros(2 * UNTAKEN, np.uint8)})
    with greeted(server) as connection, ThreadPoolExecutor(1) as threads:
        coming = threads.submit(connection.enroll, ENROLL, packed, soon())
        server.hear(Enroll)
        for offset in range(0, FIRST, PIECE):
            assert server.hear(Part).offset == offset
        yield coming


def test_a_rank_sends_as_much_more_of_its_arrays_as_the_server_has_taken(server: Puppet) -> None:
    """CONTRACT 53"""
    with upload(server) as coming:
        assert server.is_quiet()
        server.say(Taken(nbytes=PIECE))
        assert server.hear(Part).offset == FIRST
        assert server.is_quiet()
        server.say(Taken(nbytes=FIRST))
        for offset in range(FIRST + PIECE, FIRST + UNTAKEN - PIECE, PIECE):
            assert server.hear(Part).offset == offset
        assert server.is_quiet()
        server.say(Taken(nbytes=FIRST + UNTAKEN - PIECE))
        for offset in range(FIRST + UNTAKEN - PIECE, 2 * UNTAKEN, PIECE):
            assert server.hear(Part).offset == offset
        server.say(Enrolled(request=1, channel=CHANNEL, slots=4, most_bytes=MOST_BYTES))
        assert coming.result(PATIENCE_S).channel == CHANNEL


def test_a_rank_that_waits_to_send_more_is_told_of_a_refusal_and_of_the_end(server: Puppet) -> None:
    with upload(server) as coming:
        server.say(Refused(request=0, report=Report(kind="HubGone", message="over")))
        with pytest.raises(ConnectionError, match="over"):
            coming.result(PATIENCE_S)


# --- the end -------------------------------------------------------------------------------------


def test_a_reader_that_waits_is_told_when_the_server_ends(server: Puppet) -> None:
    with enrolled(server) as connection:
        timer = threading.Timer(0.05, server.router.close)
        timer.start()
        with pytest.raises(ConnectionError, match="lost"):
            batch_of(connection)
        timer.join()


def test_a_hub_that_is_gone_is_the_end_and_what_crossed_on_the_way_is_not_heard(
    server: Puppet,
) -> None:
    with enrolled(server) as connection:
        server.say(Refused(request=0, report=Report(kind="HubGone", message="the hub has died")))
        server.say(Refused(request=0, report=Report(kind="ProtocolError", message="no session")))
        with pytest.raises(ConnectionError, match="the hub has died"):
            batch_of(connection)


@pytest.mark.parametrize("grace", [0.0, 0.1])
def test_a_server_that_leaves_is_gone_after_its_grace(server: Puppet, grace: float) -> None:
    with enrolled(server) as connection:
        server.say(Leaving(reason="it was told to", grace=grace))
        with pytest.raises(ConnectionError, match="has left"):
            batch_of(connection)


def test_a_server_that_is_leaving_still_sends_batches(server: Puppet) -> None:
    with enrolled(server) as connection:
        server.say(Leaving(reason="it was told to", grace=PATIENCE_S))
        server.say(ready(0))
        assert batch_of(connection)[0] == ready(0)


def test_hanging_up_wakes_who_waits(server: Puppet) -> None:
    with enrolled(server) as connection:
        timer = threading.Timer(0.05, connection.hang_up)
        timer.start()
        with pytest.raises(ConnectionError, match="hung up"):
            batch_of(connection)
        timer.join()


def test_closing_takes_leave_once(server: Puppet) -> None:
    with enrolled(server) as connection:
        connection.hang_up()
        connection.close()
        connection.close()
        connection.post(ReturnSlot(channel=0, slot=0))
    server.hear(Goodbye)
    assert server.is_quiet()


def test_one_that_is_dropped_is_closed(server: Puppet) -> None:
    with enrolled(server) as connection:
        descriptor = connection.fileno()
        dropped = RemoteConnection(server.door)
        other = dropped.fileno()
        del dropped
        assert os.stat(f"/proc/self/fd/{descriptor}")
        with pytest.raises(FileNotFoundError):
            os.stat(f"/proc/self/fd/{other}")


def test_nothing_is_left_of_many_connections(server: Puppet, no_leaks: None) -> None:
    """But for the thread that all of them share, which the first one has started."""
    for _ in range(20):
        with greeted(server):
            pass
        server.hear(Goodbye)
