"""Sending never blocks, and anybody may do it at any moment: nothing is lost, or sent twice."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.wire.stream import Stream
from tests.wire.streams import (
    BOUND_S,
    Note,
    child_with_stream,
    connected,
    numbers,
    received_until_end,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

LARGE = b"x" * 600_000  # more than any socket takes at once


def filled(stream: Stream[Note]) -> int:
    """Sends until something is kept; how many notes that took."""
    number = 0
    while not stream.pending:
        stream.send(Note(number=number))
        number += 1
    return number


def test_what_does_not_fit_is_kept_and_sent_later_in_order() -> None:
    with connected() as (left, right):
        sent = filled(left)
        left.send(Note(number=sent))
        received = right.receive()
        assert len(received) < sent
        assert left.flush()
        assert not left.pending
        assert numbers(received + right.receive()) == list(range(sent + 1))


def test_the_next_message_takes_along_what_was_kept() -> None:
    with connected() as (left, right):
        sent = filled(left)
        received = right.receive()
        left.send(Note(number=sent))
        assert numbers(received + right.receive()) == list(range(sent + 1))


TOO_MANY_ON_THEIR_WAY = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
if os.geteuid() == 0:  # whom the kernel lets pass
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
for number in range(60):
    stream.send(Note(number=number), [0])
print(stream.queued, flush=True)
stream.flush(BOUND_S)
"""


def test_descriptors_that_the_kernel_takes_no_more_of_are_kept_and_sent_later() -> None:
    with child_with_stream(TOO_MANY_ON_THEIR_WAY) as (child, stream):
        assert child.stdout is not None
        assert int(child.stdout.readline()) > 0  # not a word has been read by now
        received = received_until_end(stream)
        for _, fds in received:
            assert len(fds) == 1
            os.close(fds[0])
        assert numbers(received) == list(range(60))


def test_a_message_larger_than_the_socket_goes_in_pieces() -> None:
    with connected() as (left, right):
        left.send(Note(number=1, text=LARGE))
        left.send(Note(number=2))
        received = []
        assert left.pending
        while not received:
            received += right.receive()
            left.flush()
        received += right.receive()
        assert numbers(received) == [1, 2]
        assert received[0][0].text == LARGE


def test_descriptors_may_be_closed_while_their_message_is_kept() -> None:
    with connected() as (left, right):
        filled(left)
        fd = os.memfd_create("test")
        inode = os.fstat(fd).st_ino
        left.send(Note(number=-1), fds=[fd])
        os.close(fd)
        right.receive()
        left.flush()
        note, (arrived,) = right.receive()[-1]
        assert note.number == -1
        assert os.fstat(arrived).st_ino == inode
        os.close(arrived)


def test_descriptors_of_a_message_sent_in_pieces_arrive_once() -> None:
    with connected() as (left, right):
        fd = os.memfd_create("test")
        left.send(Note(number=1, text=LARGE), fds=[fd])
        received = []
        while not received:
            received += right.receive()
            left.flush()
        ((_, arrived),) = received
        assert len(arrived) == 1
        for descriptor in (fd, *arrived):
            os.close(descriptor)


def test_flushing_waits_for_room_when_asked_to() -> None:
    with connected() as (left, right), running(lambda: received_until_end(right)):
        left.send(Note(number=1, text=LARGE))
        assert left.flush(BOUND_S)
        left.close()


def test_flushing_waits_no_longer_than_asked_to() -> None:
    with connected() as (left, _):
        filled(left)
        assert not left.flush(0.01)
        assert left.pending


def test_waiting_for_a_message_sends_what_was_kept() -> None:
    def answer() -> None:
        received = []
        while not received:
            assert right.wait(BOUND_S)
            received += right.receive()
        right.send(Note(number=2))

    with connected() as (left, right):
        left.send(Note(number=1, text=LARGE))
        with running(answer):
            assert left.wait(BOUND_S)
            assert numbers(left.receive()) == [2]


def test_many_threads_may_send_at_once() -> None:
    def say(speaker: int) -> None:
        for number in range(100):
            text = LARGE if number % 25 == 0 else b""
            left.send(Note(number=speaker * 1000 + number, text=text))

    with connected() as (left, right):
        received: list[tuple[Note, list[int]]] = []
        with running(*[lambda speaker=speaker: say(speaker) for speaker in range(4)]):
            while len(received) < 400:
                left.flush()
                received += right.receive()
        for speaker in range(4):
            heard = [n for n in numbers(received) if n // 1000 == speaker]
            assert heard == [speaker * 1000 + number for number in range(100)]


class Farewell:
    """Sends a note when it is collected; caught in a cycle, so that this happens at any moment."""

    def __init__(self, stream: Stream[Note], number: int) -> None:
        self.itself = self
        self.stream = stream
        self.number = number

    def __del__(self) -> None:
        self.stream.send(Note(number=self.number))


@contextmanager
def collecting_all_the_time() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def test_a_finalizer_may_send_in_the_middle_of_sending() -> None:
    with connected() as (left, right):
        received = []
        with collecting_all_the_time():
            for number in range(200):
                Farewell(left, 1000 + number)
                left.send(Note(number=number))
                received += right.receive()
        gc.collect()
        received += right.receive()
        heard = numbers(received)
        assert [number for number in heard if number < 1000] == list(range(200))
        assert sorted(number for number in heard if number >= 1000) == list(range(1000, 1200))


def test_a_finalizer_may_close_the_stream_in_the_middle_of_sending() -> None:
    class Slam:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            left.close()

    with connected() as (left, right):
        with collecting_all_the_time():
            Slam()
            for number in range(100):
                left.send(Note(number=number))
        gc.collect()
        received = numbers(received_until_end(right))
        assert received == list(range(len(received)))
        assert left.fileno() == -1


@pytest.mark.parametrize("fds", [(), (0,)], ids=["at once", "by the queue"])
def test_who_closes_in_the_middle_of_sending_leaves_no_socket_open(fds: tuple[int, ...]) -> None:
    class Slamming(socket.socket):
        """As a signal's handler or another thread would: closes while its data is being sent."""

        def send(self, *arguments: Any) -> int:
            stream.close()
            return super().send(*arguments)

        def sendmsg(self, *arguments: Any) -> int:
            stream.close()
            return super().sendmsg(*arguments)

    ours, theirs = socket.socketpair()
    stream: Stream[Note] = Stream(Slamming(fileno=ours.detach()), Note)
    with theirs:
        stream.send(Note(number=1), fds)
        assert stream.fileno() == -1
        assert not stream.pending


def test_closing_while_others_send_ends_the_connection() -> None:
    def say() -> None:
        for number in range(2000):
            left.send(Note(number=number))

    with connected() as (left, right):
        with running(say, say):
            left.close()
        received_until_end(right)
        assert left.fileno() == -1
        assert not left.pending


# Interrupts come at every instruction sooner or later, and the handler disarms itself so that it
# cannot strike outside of `try`. Each of many pairs of streams is interrupted once.
INTERRUPTED = """
class Interrupt(Exception): pass
armed = False
def interrupt(*_):
    global armed
    if armed:
        armed = False
        raise Interrupt
signal.signal(signal.SIGALRM, interrupt)
over = went_on = 0
for trial in range(600):
    left, right = (Stream(each, Note) for each in socket.socketpair())
    heard, number = [], 0
    signal.setitimer(signal.ITIMER_REAL, 1e-4 + 1e-6 * (trial % 100), 1e-4)
    try:
        armed = True
        while True:
            number += 1
            left.send(Note(number=number))
            heard += [note.number for note, _ in right.receive()]
    except Interrupt:
        pass
    signal.setitimer(signal.ITIMER_REAL, 0)
    left.send(Note(number=number + 1))
    left.flush(BOUND_S)
    is_over = left._broken or right.ended
    left.close()
    while not right.ended:
        right.wait(BOUND_S)
        heard += [note.number for note, _ in right.receive()]
    assert heard == sorted(set(heard)), heard
    assert heard == list(range(1, len(heard) + 1)) or not is_over
    over, went_on = over + is_over, went_on + (not is_over and heard[-1:] == [number + 1])
    right.close()
stream.close()
print(over, went_on)
"""


def test_an_interrupt_ends_a_stream_or_harms_nothing() -> None:
    """A slot that is given back twice would be filled under the eyes of its reader."""
    with child_with_stream(INTERRUPTED) as (child, _):
        output, errors = child.communicate(timeout=BOUND_S)
        assert (child.returncode, errors) == (0, "")
        over, went_on = map(int, output.split())
        assert over + went_on > 100


@contextmanager
def running(*targets: Callable[[], object]) -> Iterator[None]:
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
