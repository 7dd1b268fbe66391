"""How a connection ends: by words without sense, by leaving, by dying. Nothing stays open."""

from __future__ import annotations

import os
import signal
import socket
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.wire import framing
from penstock.wire.stream import MAX_FDS
from tests.graph.shared_children import open_descriptors
from tests.wire.streams import (
    BOUND_S,
    Note,
    child_with_stream,
    connected,
    numbers,
    raw_to_stream,
    received_until_end,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

GOOD = framing.frame(Note(number=1))


def frame(body: bytes, fds: int = 0) -> bytes:
    return struct.pack("<IHHQ", len(body), fds, 0, 0) + body


# --- words that make no sense ------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", b"\x80", b"\x81\xa4type\xa5Nope!", b"\xdd\xff\xff\xff\xff", b"\x91" * 10_000],
    ids=["nothing", "no msgpack", "no name", "unknown name", "endless list", "bottomless"],
)
def test_a_frame_that_is_no_message_is_refused(body: bytes) -> None:
    with raw_to_stream() as (raw, stream):
        raw.sendall(frame(body))
        with pytest.raises(ProtocolError, match="makes no sense"):
            stream.receive()


@given(st.binary(max_size=60))
def test_any_bytes_are_messages_or_refused(data: bytes) -> None:
    with raw_to_stream(max_message=1000) as (raw, stream):
        raw.sendall(data)
        raw.close()
        try:
            while not stream.ended:
                stream.receive()
        except ProtocolError:
            assert stream.ended


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_a_message_with_one_wrong_byte_is_a_message_or_refused(at: int, value: int) -> None:
    bad = bytearray(GOOD)
    bad[at] = value
    with raw_to_stream(max_message=1000) as (raw, stream):
        raw.sendall(bad)
        raw.close()
        try:
            stream.receive()
        except ProtocolError:
            assert stream.ended


def test_a_length_past_the_limit_is_refused_at_the_header() -> None:
    with raw_to_stream(max_message=1000) as (raw, stream):
        raw.sendall(struct.pack("<IHHQ", 1001, 0, 0, 0))
        with pytest.raises(ProtocolError, match=r"1001 bytes .* at most 1000"):
            stream.receive()


def test_a_length_within_the_limit_reserves_nothing() -> None:
    with raw_to_stream(max_message=1 << 30) as (raw, stream):
        raw.sendall(struct.pack("<IHHQ", 1 << 30, 0, 0, 0))
        tracemalloc.start()
        assert stream.receive() == []
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 20


def test_after_a_bad_frame_nothing_more_is_read() -> None:
    with raw_to_stream() as (raw, stream):
        raw.sendall(frame(b"") + GOOD)
        with pytest.raises(ProtocolError):
            stream.receive()
        assert stream.ended
        assert stream.receive() == []


def test_descriptors_of_a_bad_frame_are_closed() -> None:
    with raw_to_stream() as (raw, stream):
        before = open_descriptors()
        socket.send_fds(raw, [frame(b"", 2)], [0, 0])
        with pytest.raises(ProtocolError):
            stream.receive()
        assert open_descriptors() == before


def test_descriptors_of_messages_before_a_bad_frame_are_closed() -> None:
    with raw_to_stream() as (raw, stream):
        before = open_descriptors()
        socket.send_fds(raw, [framing.frame(Note(number=1), 1)], [0])
        raw.sendall(frame(b""))
        with pytest.raises(ProtocolError):
            stream.receive()
        assert open_descriptors() == before


def test_a_message_without_the_descriptors_it_announces_is_refused() -> None:
    with raw_to_stream() as (raw, stream):
        before = open_descriptors()
        socket.send_fds(raw, [framing.frame(Note(number=1), 2)], [0])
        with pytest.raises(ProtocolError, match="2 descriptors are announced, 1 came"):
            stream.receive()
        assert open_descriptors() == before


def test_descriptors_no_message_speaks_of_are_refused() -> None:
    with raw_to_stream() as (raw, stream):
        before = open_descriptors()
        socket.send_fds(raw, [GOOD], [0])
        with pytest.raises(ProtocolError, match="no message speaks of"):
            stream.receive()
        assert open_descriptors() == before


def test_descriptors_without_end_are_refused() -> None:
    with raw_to_stream() as (raw, stream):
        before = open_descriptors()
        raw.sendall(struct.pack("<IHHQ", 1000, 1, 0, 0))
        for _ in range(MAX_FDS // 200):
            socket.send_fds(raw, [b"x"], [0] * 200)
            assert stream.receive() == []
        socket.send_fds(raw, [b"x"], [0] * 200)
        with pytest.raises(ProtocolError, match="no message speaks of"):
            stream.receive()
        assert open_descriptors() == before


def test_more_descriptors_than_a_message_may_have_are_refused_at_the_header() -> None:
    with raw_to_stream() as (raw, stream):
        raw.sendall(struct.pack("<IHHQ", 10, MAX_FDS + 1, 0, 0))
        with pytest.raises(ProtocolError, match="1025 descriptors"):
            stream.receive()


def test_descriptors_for_which_there_is_no_room_are_missed() -> None:
    program = """
import resource
from penstock.errors import ProtocolError
from tests.graph.shared_children import open_descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_descriptors()) + 3,) * 2)
stream.wait(BOUND_S)
try:
    stream.receive()
except ProtocolError as error:
    print(error, stream.ended)
stream.close()
"""
    with child_with_stream(program) as (child, stream):
        stream.send(Note(number=1), fds=[0] * 200)
        output, errors = child.communicate(timeout=BOUND_S)
        assert errors == ""
        assert output == "descriptors were lost: this process has too many open files True\n"


# --- leaving -----------------------------------------------------------------------------------


def test_what_was_sent_before_closing_is_still_received() -> None:
    with connected() as (left, right):
        left.send(Note(number=1))
        left.close()
        assert numbers(received_until_end(right)) == [1]


def test_what_was_sent_is_received_although_the_sender_never_listened() -> None:
    """The kernel calls that a reset; it is an end like any other."""
    with connected() as (left, right):
        right.send(Note(number=0))
        left.send(Note(number=1))
        left.close()
        assert numbers(received_until_end(right)) == [1]


def test_what_was_sent_is_received_although_an_answer_failed() -> None:
    with connected() as (left, right):
        left.send(Note(number=1))
        left.close()
        right.send(Note(number=2))
        assert numbers(received_until_end(right)) == [1]


def test_sending_to_one_who_left_is_no_error_and_keeps_nothing() -> None:
    with connected() as (left, right):
        right.close()
        before = open_descriptors()
        left.send(Note(number=1), fds=[0])
        left.send(Note(number=2), fds=[0])
        assert not left.pending
        assert open_descriptors() == before


def test_flushing_to_one_who_left_ends_at_once() -> None:
    with connected() as (left, right):
        while not left.pending:
            left.send(Note(number=1), fds=[0])
        right.close()
        assert left.flush(BOUND_S)
        assert not left.pending


def test_the_end_in_the_middle_of_a_message_drops_it() -> None:
    with raw_to_stream() as (raw, stream):
        before = open_descriptors() - {raw.fileno()}
        raw.sendall(GOOD)
        socket.send_fds(raw, [framing.frame(Note(number=2), 1)[:-1]], [0])
        raw.close()
        assert numbers(stream.receive()) == [1]
        assert stream.ended
        assert open_descriptors() == before


def test_closing_lets_go_of_descriptors_on_their_way() -> None:
    fd = os.memfd_create("test")
    before = open_descriptors()
    with connected() as (left, right):
        while not left.pending:
            left.send(Note(number=1), fds=[fd])
        right.send(Note(number=2), fds=[fd])
        with socket.socket(fileno=os.dup(right.fileno())) as raw:
            socket.send_fds(raw, [framing.frame(Note(number=3), 1)[:-1]], [fd])
        ((_, arrived),) = left.receive()
        os.close(*arrived)
    assert open_descriptors() == before
    os.close(fd)


def test_a_closed_stream_ignores_what_it_is_given() -> None:
    with connected() as (left, right):
        left.close()
        left.send(Note(number=1), fds=[0])
        assert left.fileno() == -1
        assert left.ended
        assert not left.pending
        assert left.receive() == []
        assert left.wait(None)
        assert left.flush(BOUND_S)
        assert received_until_end(right) == []


def test_closing_again_does_nothing() -> None:
    with connected() as (left, _):
        left.close()
        left.close()
        assert left.fileno() == -1


# --- dying -------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0, 3, 6, 9])
def test_what_a_killed_sender_completed_is_received(part: int) -> None:
    """CONTRACT 18: a batch whose message was sent in whole is not lost with its worker."""
    program = f"""
for number in range(100):
    stream.send(Note(number=number))
os.write(stream.fileno(), framing.frame(Note(number=100))[:{part}])
print("sent", flush=True)
signal.pause()
"""
    with child_with_stream(program) as (child, stream):
        stream.send(Note(number=0))  # which it will not read
        assert child.stdout.readline() == "sent\n"
        child.send_signal(signal.SIGKILL)
        child.wait(BOUND_S)
        assert numbers(received_until_end(stream)) == list(range(100))


def test_a_sender_killed_at_any_moment_leaves_whole_messages() -> None:
    program = """
print("begun", flush=True)
number = 0
while True:
    stream.send(Note(number=number, text=b"x" * (number % 7 * 1000)))
    number += 1
    stream.flush(BOUND_S)
"""
    with child_with_stream(program) as (child, stream):
        assert child.stdout.readline() == "begun\n"
        received = []
        while len(received) < 1000:
            assert stream.wait(BOUND_S)
            received += stream.receive()
        child.kill()
        received += received_until_end(stream)
        assert numbers(received) == list(range(len(received)))


def test_descriptors_a_killed_sender_sent_are_received() -> None:
    program = """
fd = os.memfd_create("test")
os.write(fd, b"here")
stream.send(Note(number=1), fds=[fd])
print("sent", flush=True)
signal.pause()
"""
    with child_with_stream(program) as (child, stream):
        assert child.stdout.readline() == "sent\n"
        child.kill()
        child.wait(BOUND_S)
        ((_, [fd]),) = received_until_end(stream)
        assert os.pread(fd, 10, 0) == b"here"
        os.close(fd)
