"""The slow network for tests: everything arrives, later, in order, and without waiting in line."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.rpc.endpoint import Endpoint
from penstock.rpc.server import RemoteServer
from penstock.wire.framing import CHUNK
from penstock.wire.tcp_stream import TcpStream
from penstock.wire.transport.delay import VARIABLE, DelayedSocket, slowed
from penstock.wire.transport.tcp import Address, TcpListener, connect
from tests.cli.servers import save_small, serving
from tests.wire.streams import BOUND_S, Note
from tests.wire.tcp_streams import exchanged, heard, stream_of, tcp_pair

pytestmark = pytest.mark.usefixtures("no_leaks")

# Longer than what a busy machine takes for nothing.
DELAY_S = 0.2


@contextmanager
def streams(seconds: float = DELAY_S) -> Iterator[tuple[TcpStream[Note], TcpStream[Note]]]:
    """Both sides of a connection; what the first one sends is delayed."""
    one, other = tcp_pair()
    left, right = stream_of(DelayedSocket(one, seconds)), stream_of(other)
    try:
        yield left, right
    finally:
        left.close()
        right.close()


def test_messages_arrive_later_and_in_order() -> None:
    with streams() as (left, right):
        began = time.monotonic()
        for number in range(100):
            left.send(Note(number=number))
        assert [note.number for note, _ in heard(right, 100)] == [*range(100)]
        assert time.monotonic() - began >= DELAY_S


def test_many_are_on_their_way_at_once() -> None:
    """A hundred that waited for each other would take far longer than this may."""
    with streams() as (left, right):
        began = time.monotonic()
        for number in range(100):
            left.send(Note(number=number), lane=number)
        heard(right, 100)
        assert time.monotonic() - began < 50 * DELAY_S


def test_the_other_direction_is_not_delayed() -> None:
    with streams(5 * DELAY_S) as (left, right):
        right.send(Note(number=0, text=b"at once"))
        assert heard(left)[0][0].text == b"at once"


@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_a_large_payload_arrives_whole(seconds: float) -> None:
    """Also if the other end does not read for a while."""
    data = np.frombuffer(os.urandom(40 * CHUNK + 17), np.uint8)
    with streams(seconds) as (left, right):
        left.send(Note(number=1), payload=[data.data], lane=3)
        left.send(Note(number=2))
        found = {note.number: payload for note, payload in exchanged(left, right, 2)}
        assert found[2] is None
        assert np.array_equal(found[1], data)


def test_two_sockets_do_not_wait_for_each_other() -> None:
    """One whose other end does not read holds nobody up."""
    with streams(0.001) as (full, unread), streams(0.001) as (left, right):
        full.send(Note(number=0), payload=[memoryview(bytes(40 * CHUNK))])
        assert full.flush(BOUND_S)
        left.send(Note(number=0, text=b"well"))
        assert heard(right)[0][0].text == b"well"
        assert not unread.is_open
        assert len(heard(unread)) == 1


def test_what_was_sent_arrives_although_the_sender_has_closed() -> None:
    with streams() as (left, right):
        left.send(Note(number=0, text=b"last words"))
        left.close()
        assert left.fileno() == -1
        assert heard(right)[0][0].text == b"last words"
        assert right.wait(BOUND_S)
        right.receive()
        assert right.ended


def test_the_end_of_sending_comes_after_what_was_sent() -> None:
    with streams() as (left, right):
        left.send(Note(number=0, text=b"last words"))
        left.finish()
        assert heard(right)[0][0].text == b"last words"
        right.send(Note(number=0, text=b"I hear"))
        assert heard(left)[0][0].text == b"I hear"


def test_hanging_up_is_not_delayed() -> None:
    with streams(5 * DELAY_S) as (left, right):
        left.hang_up()
        assert right.wait(BOUND_S)
        right.receive()
        assert right.ended


def test_an_end_that_is_gone_is_told() -> None:
    with streams(0.001) as (left, right):
        right.close()
        while not left.broken:
            left.send(Note(number=0, text=b"are you there?"))
        assert left.reason


def test_the_thread_ends_with_the_last_socket() -> None:
    def running() -> bool:
        return any(each.name == "penstock-delay" for each in threading.enumerate())

    with streams(0.001) as (left, right):
        left.send(Note(number=0, text=b"well"))
        heard(right)
        assert running()
    deadline = time.monotonic() + BOUND_S
    while running():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


# --- by the environment --------------------------------------------------------------------------


def test_no_socket_is_delayed_unless_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    one, other = tcp_pair()
    with one, other:
        assert slowed(one) is one


@pytest.mark.parametrize("value", ["", "soon", "-1", "nan"])
def test_what_is_no_time_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    one, other = tcp_pair()
    with one, other:
        with pytest.raises(ValueError, match=VARIABLE):
            slowed(one)


def test_both_ends_of_a_connection_are_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    listener = TcpListener(Address.parse("tcp://127.0.0.1:0", listening=True))
    connected = connect(Address.parse(listener.address), BOUND_S)
    accepted: Any = None
    while accepted is None:
        accepted = listener.accept()
    try:
        assert isinstance(connected, DelayedSocket)
        assert isinstance(accepted[0], DelayedSocket)
        assert isinstance(connected, socket.socket)
    finally:
        connected.close()
        accepted[0].close()
        listener.close()


def test_a_call_to_a_server_takes_as_long_as_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(1000 * DELAY_S))
    graph = save_small(tmp_path / "small.graph")
    with serving(graph, "--workers", 1) as running:
        server = RemoteServer(Endpoint(running.address))
        try:
            server.call("ping")
            began = time.monotonic()
            server.call("ping")
            assert time.monotonic() - began >= 2 * DELAY_S
        finally:
            server.close()
