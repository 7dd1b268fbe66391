"""Messages and descriptors come out whole and in order, in whatever pieces they travel."""

from __future__ import annotations

import itertools
import os
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire import framing
from penstock.wire.messages import FromRankToHub, ReturnSlot
from penstock.wire.stream import MAX_FDS, Stream
from tests.graph.shared_children import open_descriptors
from tests.wire.streams import BOUND_S, Note, connected, numbers, raw_to_stream

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_a_message_arrives() -> None:
    with connected() as (left, right):
        left.send(Note(number=1, text=b"hello"))
        assert right.receive() == [(Note(number=1, text=b"hello"), [])]


def test_a_message_of_the_protocol_arrives_as_what_it_is() -> None:
    one, other = socket.socketpair()
    left: Stream[object] = Stream(one, FromRankToHub)
    right: Stream[object] = Stream(other, FromRankToHub)
    left.send(ReturnSlot(channel=3, slot=5))
    assert right.receive() == [(ReturnSlot(channel=3, slot=5), [])]
    left.close()
    right.close()


def test_messages_arrive_in_order() -> None:
    with connected() as (left, right):
        for number in range(100):
            left.send(Note(number=number))
        assert numbers(right.receive()) == list(range(100))


def test_both_sides_may_speak() -> None:
    with connected() as (left, right):
        left.send(Note(number=1))
        right.send(Note(number=2))
        assert numbers(left.receive()) == [2]
        assert numbers(right.receive()) == [1]


def test_nothing_is_received_when_nothing_came() -> None:
    with connected() as (left, _):
        assert left.receive() == []
        assert not left.ended


def test_a_small_message_takes_one_call() -> None:
    """So the kernel keeps it whole: a datagram socket shows where the calls were."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    left: Stream[Note] = Stream(one, Note)
    left.send(Note(number=1))
    assert other.recv(1000) == framing.frame(Note(number=1))
    left.close()
    other.close()


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes, cut at these places."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=6),
    st.lists(st.integers(0, 10_000), max_size=30),
)
def test_messages_are_whole_in_whatever_pieces_they_come(
    texts: list[bytes], cuts: list[int]
) -> None:
    notes = [Note(number=number, text=text) for number, text in enumerate(texts)]
    with raw_to_stream() as (raw, stream):
        received = []
        for piece in pieces(b"".join(framing.frame(note) for note in notes), cuts):
            raw.sendall(piece)
            received += stream.receive()
        assert [note for note, _ in received] == notes


def test_a_message_is_whole_byte_by_byte() -> None:
    frame = framing.frame(Note(number=7, text=b"x" * 50))
    with raw_to_stream() as (raw, stream):
        for at in range(len(frame) - 1):
            raw.sendall(frame[at : at + 1])
            assert stream.receive() == []
        raw.sendall(frame[-1:])
        assert numbers(stream.receive()) == [7]


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.lists(st.integers(0, 10_000), max_size=10),
    st.integers(0, 10),
    st.integers(1, 5),
)
def test_descriptors_reach_their_message_in_whatever_pieces_it_comes(
    counts: list[int], cuts: list[int], bearer: int, often: int
) -> None:
    """They come with some byte of their message, and not with those of another's."""
    before = open_descriptors()
    sent = [[_temporary() for _ in range(count)] for count in counts]
    received = []
    with raw_to_stream() as (raw, stream):
        for number, fds in enumerate(sent):
            frame = pieces(framing.frame(Note(number=number), len(fds)), cuts)
            for at, piece in enumerate(frame):
                socket.send_fds(raw, [piece], fds if at == bearer % len(frame) else [])
                if at % often == 0:
                    received += stream.receive()
        received += stream.receive()
    assert numbers(received) == list(range(len(counts)))
    for fds, (_, arrived) in zip(sent, received, strict=True):
        assert [_inode(fd) for fd in arrived] == [_inode(fd) for fd in fds]
        for fd in fds + arrived:
            os.close(fd)
    assert open_descriptors() == before


def test_descriptors_stay_the_senders() -> None:
    fd = _temporary()
    with connected() as (left, right):
        left.send(Note(number=1), fds=[fd])
        ((_, [arrived]),) = right.receive()
        os.close(arrived)
    os.close(fd)


def test_descriptors_that_arrive_are_not_inherited_by_children() -> None:
    fd = _temporary()
    with connected() as (left, right):
        left.send(Note(number=1), fds=[fd])
        ((_, [arrived]),) = right.receive()
        assert not os.get_inheritable(arrived)
        os.close(arrived)
    os.close(fd)


@pytest.mark.parametrize("count", [253, 254, 507, MAX_FDS])
def test_more_descriptors_than_one_call_takes_arrive_in_order(count: int) -> None:
    with connected() as (left, right):
        fds = [_temporary() for _ in range(count)]
        left.send(Note(number=1), fds=fds)
        left.send(Note(number=2), fds=fds[:1])
        (_, first), (_, second) = right.receive()
        assert [_inode(fd) for fd in first] == [_inode(fd) for fd in fds]
        assert [_inode(fd) for fd in second] == [_inode(fds[0])]
        for fd in fds + first + second:
            os.close(fd)


def test_a_message_too_long_is_the_senders_mistake() -> None:
    one, other = socket.socketpair()
    stream: Stream[Note] = Stream(one, Note, max_message=100)
    with pytest.raises(ValueError, match=r"Note has 1\d\d bytes .* at most 100"):
        stream.send(Note(number=1, text=b"x" * 100))
    stream.send(Note(number=2))
    assert other.recv(1000) == framing.frame(Note(number=2))
    stream.close()
    other.close()


def test_too_many_descriptors_are_the_senders_mistake() -> None:
    with connected() as (left, _):
        with pytest.raises(ValueError, match="1025 descriptors"):
            left.send(Note(number=1), fds=[0] * (MAX_FDS + 1))


def test_a_descriptor_that_is_none_is_the_senders_mistake() -> None:
    fd = _temporary()
    with connected() as (left, right):
        with pytest.raises(OSError, match="Bad file descriptor"):
            left.send(Note(number=1), fds=[fd, -1])
        assert right.receive() == []
    os.close(fd)


def test_waiting_ends_after_the_time_given() -> None:
    with connected() as (left, _):
        assert not left.wait(0.0)
        assert not left.wait(0.01)


def test_waiting_ends_when_a_message_comes() -> None:
    with connected() as (left, right):
        speaker = threading.Thread(target=right.send, args=(Note(number=1),))
        speaker.start()
        assert left.wait(BOUND_S)
        assert numbers(left.receive()) == [1]
        speaker.join()


def test_waiting_ends_when_the_other_side_goes() -> None:
    with connected() as (left, right):
        leaver = threading.Thread(target=right.close)
        leaver.start()
        assert left.wait(None)
        assert left.receive() == []
        assert left.ended
        leaver.join()


def _temporary() -> int:
    return os.memfd_create("test")


def _inode(fd: int) -> int:
    return os.fstat(fd).st_ino


@pytest.mark.parametrize("timeout", [1e12, float("inf")])
def test_one_may_wait_as_long_as_one_likes(timeout: float) -> None:
    with connected() as (left, right):
        left.send(Note(number=1))
        assert right.wait(timeout)
