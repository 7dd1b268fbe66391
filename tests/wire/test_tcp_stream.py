"""Messages and payloads over TCP, plain and encrypted: whole, in order, and in any pieces."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.wire.frames import private_memory
from penstock.wire.framing import CHUNK, HEADER, PREAMBLE, encode, head
from penstock.wire.messages import MOST_MESSAGE
from penstock.wire.tcp_stream import MOST_AT_ONCE, MOST_OPEN, SCRATCH, TcpStream
from tests.processes import until
from tests.wire.streams import BOUND_S, Note
from tests.wire.tcp_streams import (
    connected,
    encrypted,
    exchanged,
    frame,
    heard,
    make_keys,
    numbers,
    raw_to_stream,
    stream_of,
    tcp_pair,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

Pair = tuple[TcpStream[Note], TcpStream[Note]]
# More than any socket takes at once.
LARGE = 9 * CHUNK + 12345


def view(array: Any) -> list[memoryview]:
    return [memoryview(array).cast("B")] if array.nbytes else []


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(params=["plain", "encrypted"])
def pair(request: pytest.FixtureRequest, keys: Path) -> Iterator[Pair]:
    """Both sides of a connection."""
    made: AbstractContextManager[Pair]
    made = connected() if request.param == "plain" else encrypted(keys)
    with made as streams:
        yield streams


# --- messages and payloads -----------------------------------------------------------------------


def test_a_message_arrives(pair: Pair) -> None:
    left, right = pair
    left.send(Note(number=1, text=b"hello"))
    assert heard(right) == [(Note(number=1, text=b"hello"), None)]


def test_messages_arrive_in_order_both_ways(pair: Pair) -> None:
    for sender, receiver in (pair, pair[::-1]):
        for number in range(500):
            sender.send(Note(number=number))
        assert numbers(exchanged(sender, receiver, 500)) == list(range(500))


@pytest.mark.parametrize("nbytes", [1, 100, SCRATCH, CHUNK - 1, CHUNK, CHUNK + 1, LARGE])
def test_a_payload_arrives_with_its_message(pair: Pair, nbytes: int) -> None:
    left, right = pair
    sent = np.random.default_rng(nbytes).integers(0, 256, nbytes).astype(np.uint8)
    left.send(Note(number=0))
    left.send(Note(number=1), payload=view(sent))
    left.send(Note(number=2))
    (_, nothing), (note, received), (after, _) = exchanged(left, right, 3)
    assert nothing is None
    assert (note.number, after.number) == (1, 2)
    assert np.array_equal(received, sent)


def test_a_payload_is_sent_from_many_buffers_as_one(pair: Pair) -> None:
    left, right = pair
    parts = [np.full(size, size % 251, np.uint8) for size in (1, 70_000, 3, CHUNK, 5, 2 * CHUNK)]
    left.send(Note(number=1), payload=[part.data for part in parts])
    ((_, received),) = exchanged(left, right)
    assert np.array_equal(received, np.concatenate(parts))


def test_a_payload_is_received_where_it_was_reserved() -> None:
    memory = np.zeros(LARGE, np.uint8)
    with connected(reserve=lambda note, nbytes: memory[:nbytes]) as (left, right):
        left.send(Note(number=1), payload=view(np.ones(LARGE, np.uint8)))
        ((_, received),) = exchanged(left, right)
        assert np.shares_memory(received, memory)
        assert memory.all()


class Pieces:
    """A sink with little room, which keeps what came."""

    def __init__(self, size: int) -> None:
        self.taken = bytearray()
        self._room = bytearray(size)
        self._have = 0

    def room(self) -> memoryview:
        return memoryview(self._room)[self._have :]

    def came(self, nbytes: int) -> None:
        self.taken += self._room[self._have : self._have + nbytes]
        self._have = (self._have + nbytes) % len(self._room)


@pytest.mark.parametrize("size", [1000, SCRATCH, CHUNK - 1, CHUNK, 2 * CHUNK + 5])
def test_a_payload_goes_through_a_sink_beside_those_of_other_lanes(pair: Pair, size: int) -> None:
    left, right = pair
    sinks = {1: Pieces(size), 2: Pieces(size)}
    right.reserve = lambda note, nbytes: sinks.get(note.number) or private_memory(nbytes)
    sent = {
        number: np.random.default_rng(number).integers(0, 256, nbytes).astype(np.uint8)
        for number, nbytes in {1: LARGE, 2: CHUNK + 1, 3: LARGE // 2}.items()
    }
    for number, payload in sent.items():
        left.send(Note(number=number), payload=view(payload), lane=number)
    left.send(Note(number=4))
    received = {note.number: payload for note, payload in exchanged(left, right, 4)}
    assert set(received) == {1, 2, 3, 4}
    assert np.array_equal(received[3], sent[3])
    for number, sink in sinks.items():
        assert received[number] is None
        assert sink.taken == sent[number].tobytes()


def test_a_payload_that_nobody_wants_is_skipped(pair: Pair) -> None:
    left, right = pair
    right.reserve = lambda note, nbytes: None if note.number == 1 else np.empty(nbytes, np.uint8)
    for number in range(3):
        left.send(Note(number=number), payload=view(np.full(LARGE, number, np.uint8)))
    received = exchanged(left, right, 2)
    assert numbers(received) == [0, 2]
    assert all((payload == note.number).all() for note, payload in received)


def test_a_small_message_in_another_lane_does_not_wait_for_a_large_one(pair: Pair) -> None:
    left, right = pair
    left.send(Note(number=1), payload=view(np.zeros(LARGE, np.uint8)), lane=1)
    left.send(Note(number=2), lane=2)
    assert numbers(exchanged(left, right, 2)) == [2, 1]


def test_within_a_lane_all_comes_in_the_order_it_was_sent(pair: Pair) -> None:
    left, right = pair
    left.send(Note(number=1), payload=view(np.zeros(LARGE, np.uint8)), lane=1)
    left.send(Note(number=2), lane=1)
    left.send(Note(number=3), payload=view(np.zeros(CHUNK + 1, np.uint8)), lane=1)
    assert numbers(exchanged(left, right, 3)) == [1, 2, 3]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 1000, SCRATCH, CHUNK, CHUNK + 7])),
        min_size=1,
        max_size=8,
    )
)
def test_payloads_of_many_lanes_come_out_whole(sent: list[tuple[int, int]]) -> None:
    payloads = [np.full(size, number, np.uint8) for number, (_, size) in enumerate(sent)]
    with connected() as (left, right):
        for number, (lane, _) in enumerate(sent):
            left.send(Note(number=number), payload=view(payloads[number]), lane=lane)
        received = exchanged(left, right, len(sent))
        for note, payload in received:
            expected = payloads[note.number]
            assert np.array_equal([] if payload is None else payload, expected)
        for lane in range(4):
            ours = [note.number for note, _ in received if sent[note.number][0] == lane]
            assert ours == sorted(ours)


def test_whoever_sent_is_told_when_nothing_is_kept_any_more(pair: Pair) -> None:
    left, right = pair
    told: list[int] = []
    left.send(Note(number=1), payload=view(np.zeros(LARGE, np.uint8)), then=lambda: told.append(1))
    left.send(Note(number=2), lane=1, then=lambda: told.append(2))
    assert 1 not in told
    exchanged(left, right, 2)
    assert sorted(told) == [1, 2]


def test_what_is_dropped_is_told_of_as_well_and_a_frame_begun_is_completed(pair: Pair) -> None:
    """As when a session ends: its last words follow, and are understood."""
    left, right = pair
    told: list[int] = []
    for number in range(3):
        left.send(
            Note(number=number),
            payload=view(np.zeros(LARGE, np.uint8)),
            then=lambda number=number: told.append(number),  # type: ignore[misc]
        )
    left.drop_queued()
    left.send(Note(number=9), lane=7)
    assert numbers(exchanged(left, right)) == [9]
    assert told == [0, 1, 2]


def test_a_message_too_long_is_the_senders_mistake(pair: Pair) -> None:
    left, right = pair
    with pytest.raises(ValueError, match=f"at most {MOST_MESSAGE} may be sent: give arrays"):
        left.send(Note(number=1, text=bytes(MOST_MESSAGE)))
    left.send(Note(number=2))
    assert numbers(heard(right)) == [2]


# --- in whatever pieces --------------------------------------------------------------------------


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes, cut at these places."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=300)), min_size=1, max_size=6),
    st.lists(st.integers(0, 10_000), max_size=30),
)
def test_messages_are_whole_in_whatever_pieces_they_come(
    said: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    notes = [Note(number=number, text=text) for number, (text, _) in enumerate(said)]
    data = b"".join(
        frame(encode(note), payload=len(payload)) + payload
        for note, (_, payload) in zip(notes, said, strict=True)
    )
    with raw_to_stream() as (raw, stream):
        received = []
        for piece in pieces(data, cuts):
            raw.sendall(piece)
            assert stream.wait(BOUND_S)
            received += stream.receive()
        while len(received) < len(notes):
            received += heard(stream)
        assert [note for note, _ in received] == notes
        found = [b"" if payload is None else payload.tobytes() for _, payload in received]
        assert found == [payload for _, payload in said]


def test_a_message_is_whole_byte_by_byte() -> None:
    data = frame(encode(Note(number=7, text=b"x" * 50)), payload=3) + b"abc"
    with raw_to_stream() as (raw, stream):
        for at in range(len(data) - 1):
            raw.sendall(data[at : at + 1])
            assert stream.wait(BOUND_S)
            assert stream.receive() == []
        raw.sendall(data[-1:])
        ((note, payload),) = heard(stream)
        assert (note.number, payload.tobytes()) == (7, b"abc")


def test_dribbled_bytes_are_not_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRACT 73: a message of a megabyte, a little at a time, does not cost its square."""
    body = encode(Note(number=1, text=bytes(MOST_MESSAGE - 100)))
    looked = 0
    parse = TcpStream._parse_frame

    def counting(stream: TcpStream[Note], data: memoryview) -> int:
        nonlocal looked
        looked += 1
        return parse(stream, data)

    monkeypatch.setattr(TcpStream, "_parse_frame", counting)
    with raw_to_stream() as (raw, stream):
        data, received = frame(body), []
        for at in range(0, len(data), 1000):
            raw.sendall(data[at : at + 1000])
            if stream.wait(0):
                received += stream.receive()
        assert numbers(received + heard(stream, 1 - len(received))) == [1]
    assert looked < 10


def test_one_receive_gives_so_many_messages_and_says_that_there_is_more() -> None:
    """CONTRACT 9: whoever says much at once has its turn, and then others have theirs."""
    count = 3 * MOST_AT_ONCE
    with raw_to_stream() as (raw, stream):
        raw.sendall(b"".join(frame(encode(Note(number=number))) for number in range(count)))
        received: list[Any] = []
        while len(received) < count:
            assert stream.wait(BOUND_S)
            got = stream.receive()
            assert len(got) <= MOST_AT_ONCE
            received += got
            assert stream.has_more or len(received) == count
        assert numbers(received) == list(range(count))


def test_memory_is_reserved_only_when_all_before_it_was_handed_over() -> None:
    """Whoever decides about it knows then what was said before."""
    order: list[int] = []

    def reserve(note: Note, nbytes: int) -> Any:
        order.append(note.number)
        return np.empty(nbytes, np.uint8)

    with raw_to_stream(reserve=reserve) as (raw, stream):
        raw.sendall(frame(encode(Note(number=1))) + frame(encode(Note(number=2)), payload=1) + b"x")
        assert stream.wait(BOUND_S)
        assert numbers(stream.receive()) == [1]
        assert order == []
        assert numbers(heard(stream)) == [2]
        assert order == [2]


# --- what makes no sense -------------------------------------------------------------------------

NOTE = encode(Note(number=1))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frame(b"\xc1"), "makes no sense"),
        (frame(b"\x91" * 10_000), "makes no sense"),
        (HEADER.pack(MOST_MESSAGE + 1, 0, 0, 0), "is announced"),
        (HEADER.pack(10, 1, 0, 0), "with 1 descriptors"),
        (HEADER.pack(0, 0, 0, 0), "belongs to no message"),
        (HEADER.pack(0, 0, 0, 5), "belongs to no message"),
        (frame(NOTE, 1, 2 * CHUNK) + bytes(CHUNK) + HEADER.pack(0, 0, 2, 5), "to no message"),
        (frame(NOTE, 1, CHUNK + 5) + bytes(CHUNK) + HEADER.pack(0, 0, 1, 6), "of 6 bytes"),
        (frame(NOTE, 1, 2 * CHUNK) + bytes(CHUNK) + frame(NOTE, 1), "before the payload"),
        (frame(NOTE, 1, 3 * CHUNK) + bytes(CHUNK) + HEADER.pack(0, 0, 1, CHUNK + 1), "chunk of"),
    ],
    ids=[
        "no msgpack",
        "bottomless",
        "too long",
        "descriptors",
        "nothing",
        "a chunk of nothing",
        "a chunk of another lane",
        "a chunk too long",
        "a lane used twice",
        "more than a chunk",
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_more_is_read(data: bytes, words: str) -> None:
    """CONTRACT 73"""
    with raw_to_stream() as (raw, stream):
        raw.sendall(data + frame(NOTE))
        with pytest.raises(ProtocolError, match=words):
            heard(stream, 1000)
        assert stream.ended
        assert stream.receive() == []


def test_one_who_does_not_begin_as_we_do_is_refused_at_the_first_byte() -> None:
    raw, other = tcp_pair()
    stream = stream_of(other)
    raw.send(b"G")
    with pytest.raises(ProtocolError, match="no connection of Penstock's"):
        heard(stream)
    raw.close()
    stream.close()


def test_a_payload_where_none_may_come_is_refused() -> None:
    with raw_to_stream(reserve=None) as (raw, stream):
        raw.sendall(frame(NOTE, payload=1))
        with pytest.raises(ProtocolError, match="cannot have"):
            heard(stream)


def test_so_many_messages_may_be_open_at_once() -> None:
    """CONTRACT 73"""
    with raw_to_stream() as (raw, stream):
        raw.setblocking(True)

        def say() -> None:
            try:
                for lane in range(MOST_OPEN + 1):
                    raw.sendall(frame(NOTE, lane, CHUNK + 1) + bytes(CHUNK))
            except OSError:
                pass  # hung up on

        thread = threading.Thread(target=say)
        thread.start()
        with pytest.raises(ProtocolError, match=f"{MOST_OPEN} messages are open"):
            heard(stream, MOST_OPEN + 1)
        stream.close()
        thread.join()


def test_a_length_within_the_limit_reserves_nothing() -> None:
    """CONTRACT 73"""
    with raw_to_stream(limit=1 << 30) as (raw, stream):
        raw.sendall(HEADER.pack(1 << 30, 0, 0, 0))
        tracemalloc.start()
        assert stream.wait(BOUND_S)
        assert stream.receive() == []
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 20


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_refused(data: bytes) -> None:
    with raw_to_stream(limit=1000) as (raw, stream):
        raw.sendall(data)
        raw.close()
        try:
            while not stream.ended:
                assert stream.wait(BOUND_S)
                stream.receive()
        except ProtocolError:
            assert stream.ended


# --- the end -------------------------------------------------------------------------------------


def test_what_was_sent_before_closing_is_still_received(pair: Pair) -> None:
    left, right = pair
    right.send(Note(number=0))  # which is never read
    left.send(Note(number=1))
    left.finish()
    assert numbers(heard(right)) == [1]
    until(lambda: right.wait(0) and not right.receive() and right.ended, "its end is seen")
    assert "closed the connection" in right.reason


def test_a_reset_is_an_end_with_a_reason(pair: Pair) -> None:
    left, right = pair
    with socket.socket(fileno=os.dup(left.fileno())) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    left.close()
    while not right.ended:
        assert right.wait(BOUND_S)
        right.receive()
    assert right.reason
    right.send(Note(number=1))
    assert right.broken or not right.pending


def test_a_payload_that_ends_in_its_middle_is_dropped(pair: Pair) -> None:
    left, right = pair
    left.send(Note(number=1), payload=view(np.zeros(LARGE, np.uint8)))
    assert left.pending
    left.close()
    while not right.ended:
        assert right.wait(BOUND_S)
        assert right.receive() == []


def test_a_closed_stream_ignores_what_it_is_given(pair: Pair) -> None:
    left, _ = pair
    left.close()
    left.close()
    told: list[int] = []
    left.send(Note(number=1), payload=view(np.zeros(10, np.uint8)), then=lambda: told.append(1))
    assert (left.fileno(), left.ended, left.pending, left.receive()) == (-1, True, False, [])
    assert told == [1]


def test_hanging_up_wakes_who_waits(pair: Pair) -> None:
    left, _ = pair
    thread = threading.Thread(target=left.hang_up)
    thread.start()
    while not left.ended:  # what OpenSSL says of its own accord wakes, too
        assert left.wait(BOUND_S)
        assert left.receive() == []
    thread.join()


# --- from any thread -----------------------------------------------------------------------------


def test_many_threads_send_while_one_receives(pair: Pair) -> None:
    left, right = pair
    threads, each = 4, 200

    def say(speaker: int) -> None:
        for number in range(each):
            payload = view(np.full(200_000, speaker, np.uint8)) if number % 50 == 0 else ()
            left.send(Note(number=speaker * 1000 + number), payload=payload, lane=speaker)

    speakers = [threading.Thread(target=say, args=(number,)) for number in range(threads)]
    for thread in speakers:
        thread.start()
    received: list[Any] = []
    while len(received) < threads * each:
        left.flush()
        if right.wait(0.01):
            received += right.receive()
    for thread in speakers:
        thread.join()
    for speaker in range(threads):
        ours = [number for number in numbers(received) if number // 1000 == speaker]
        assert ours == [speaker * 1000 + number for number in range(each)]


def test_encrypted_streams_are_read_and_written_by_two_threads_at_once(keys: Path) -> None:
    """OpenSSL cannot bear that; each record has the lock to itself."""
    rounds = 200
    payload = np.random.default_rng(1).integers(0, 256, 300_000).astype(np.uint8)
    with encrypted(keys) as (left, right):

        def echo() -> None:
            for note, came in _all_of(right, rounds):
                right.send(Note(number=note.number), payload=view(came))

        def say() -> None:
            for number in range(rounds):
                left.send(Note(number=number), payload=view(payload))
                while left.pending and not left.flush(0.01):
                    pass

        def flush() -> None:
            while not done.is_set():
                right.flush(0.01)

        done = threading.Event()
        threads = [threading.Thread(target=target) for target in (echo, say, flush)]
        for thread in threads:
            thread.start()
        for number, (note, came) in enumerate(_all_of(left, rounds)):
            assert note.number == number
            assert np.array_equal(came, payload)
        done.set()
        for thread in threads:
            thread.join()


def _all_of(stream: TcpStream[Note], count: int) -> Iterator[tuple[Note, Any]]:
    for _ in range(count):
        got = heard(stream)
        while len(got) > 1:
            yield got.pop(0)
            count -= 1
        yield from got


INTERRUPTED = """
import signal, socket, sys
import numpy as np
from penstock.wire.tcp_stream import TcpStream
from tests.wire.streams import BOUND_S, Note
class Interrupt(Exception): pass
armed = False
def interrupt(*_):
    global armed
    if armed:
        armed = False
        raise Interrupt
end = socket.socket(fileno=int(sys.argv[1]))
end.setblocking(False)
stream = TcpStream(end, Note)
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
number, payload = 0, np.zeros(50_000, np.uint8)
try:
    armed = True
    while number < 3000 and not stream.broken:
        number += 1
        stream.send(Note(number=number), payload=[payload.data] if number % 7 == 0 else ())
        stream.flush(BOUND_S)
    armed = False
except Interrupt:
    pass
signal.setitimer(signal.ITIMER_REAL, 0)
stream.send(Note(number=-1))
stream.flush(BOUND_S)
stream.close()
"""


def test_an_interrupt_while_sending_ends_the_stream_and_never_garbles_it() -> None:
    """What the other side has understood until then stands; it sees an end like any other."""
    for _ in range(10):
        ours, theirs = tcp_pair()
        stream = stream_of(ours)
        child = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=Path(__file__).parents[2],
        )
        theirs.close()
        received: list[Any] = []
        while not stream.ended:
            assert stream.wait(BOUND_S)
            received += stream.receive()
        assert child.wait(BOUND_S) == 0
        sent = [number for number in numbers(received) if number >= 0]
        assert sent == list(range(1, len(sent) + 1))
        stream.close()


# --- what is sent at once ------------------------------------------------------------------------


def test_a_stream_sends_so_much_by_itself_and_the_rest_when_it_is_flushed() -> None:
    with connected(inline=1000) as (left, right):
        left.send(Note(number=1), payload=view(np.zeros(50 * CHUNK, np.uint8)))
        assert left.bytes_out <= CHUNK + 1000
        before = left.bytes_out
        left.flush_some(1)
        assert before <= left.bytes_out <= before + CHUNK + 100
        exchanged(left, right)
        assert not left.pending


def test_a_preamble_goes_first_and_is_expected_first(pair: Pair) -> None:
    left, right = pair
    assert left.flush(BOUND_S)
    assert left.bytes_out == len(PREAMBLE)
    left.send(Note(number=1))
    assert numbers(heard(right)) == [1]
    assert right.bytes_in == left.bytes_out == len(PREAMBLE) + len(head(NOTE))
