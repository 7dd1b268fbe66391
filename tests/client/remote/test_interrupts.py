"""Interrupts in the middle of sending: a connection may be lost, but it never says garbage."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType

import numpy as np
import pytest

from penstock.rpc.connection import RemoteConnection
from penstock.wire.framing import CHUNK, HEADER
from penstock.wire.messages import Call, Goodbye, Message, ReturnSlot
from penstock.wire.payload import pack
from tests.client.ranks import rank
from tests.processes import until
from tests.rpc.puppets import CHANNEL, PATIENCE_S, Puppet, frames, ready, registered, soon
from tests.rpc.signals import interrupts, strike_in

# Of a frame: nothing, a part of its header, the header, a part of the message, all of it.
GONE = pytest.mark.parametrize("gone", [0, 5, HEADER.size, HEADER.size + 3, 1 << 20])


def returned(slot: int) -> ReturnSlot:
    return ReturnSlot(channel=CHANNEL, slot=slot)


def slots_of(said: list[Message]) -> list[int]:
    """Of what was said before a connection ended; a farewell may be missing."""
    assert said[-1:] in ([], [Goodbye()]) or all(isinstance(each, ReturnSlot) for each in said)
    return [each.slot for each in said if isinstance(each, ReturnSlot)]


@GONE
def test_an_interrupt_in_the_middle_of_a_message_leaves_no_garbage_on_the_wire(
    server: Puppet, gone: int
) -> None:
    """Nobody knows how much of it has gone: so nothing is said after it."""
    with registered(server) as connection:
        connection.post(returned(1))
        struck = strike_in(connection, "send", gone)
        with interrupts(), pytest.raises(KeyboardInterrupt):
            connection.post(returned(2))
        assert struck.has_struck
        connection.post(returned(3))
    said = server.wait_for_end()
    assert slots_of(said) == ([1, 2] if gone > 100 else [1])


@GONE
def test_an_interrupt_in_the_middle_of_arrays_leaves_no_garbage_on_the_wire(
    server: Puppet, gone: int
) -> None:
    packed = pack({"0": np.zeros(3 * CHUNK, np.uint8)})
    with registered(server) as connection:
        connection.post(returned(1))
        struck = strike_in(connection, "sendmsg", gone)
        with interrupts(), pytest.raises(KeyboardInterrupt):
            connection.send(Call(request=1, verb="take_it", arrays=packed.arrays), packed, 3)
        assert struck.has_struck
        connection.post(returned(2))
    assert slots_of(server.wait_for_end()) == [1]


def test_who_reads_a_connection_on_which_sending_was_interrupted_is_told_of_its_end(
    server: Puppet,
) -> None:
    """CONTRACT 41: batches are pure, so it registers again and goes on."""
    with registered(server) as connection:
        strike_in(connection, "send", gone=5)
        with interrupts(), pytest.raises(KeyboardInterrupt):
            connection.post(returned(1))
        connection.post(returned(2))
        server.say(ready(0))
        with pytest.raises(ConnectionError, match="interrupted"):
            read_to_the_end(connection)


def test_who_reads_a_connection_on_which_sending_was_interrupted_is_told_at_once(
    server: Puppet,
) -> None:
    with registered(server) as connection:
        heard = threading.Event()
        connection._link._io._call(heard.set)
        assert heard.wait(PATIENCE_S)  # the I/O thread has dealt with all that came before
        strike_in(connection, "send", gone=5)
        with interrupts(), pytest.raises(KeyboardInterrupt):
            connection.post(returned(1))
        connection.post(returned(2))
        until(lambda: connection._inbox.failure is not None, "its end is known", patience=5.0)
        with pytest.raises(ConnectionError, match="interrupted"):
            read_to_the_end(connection)


def read_to_the_end(connection: RemoteConnection) -> None:
    while True:
        connection.wait(soon())
        connection.receive()


@pytest.mark.parametrize("seed", range(3))
def test_interrupts_at_any_moment_leave_no_garbage_on_the_wire(server: Puppet, seed: int) -> None:
    """What has arrived is what was said before, in order; and perhaps what was said after."""
    random_, after, lost = random.Random(seed), 10_000, 0
    for _ in range(30):
        with registered(server) as connection:
            posted = post_until_interrupted(connection, random_.uniform(1e-5, 2e-3))
            connection.post(returned(after))
        slots = slots_of(server.wait_for_end())
        if slots[-1:] == [after]:
            slots.pop()
        else:
            lost += 1
        assert slots in (list(range(posted)), list(range(posted + 1)))
    assert lost < 30


def post_until_interrupted(connection: RemoteConnection, seconds: float) -> int:
    """How many times it was done by then."""
    posted = 0
    with suppress(KeyboardInterrupt), interrupted_after(seconds):
        while True:
            connection.post(returned(posted))
            posted += 1
    return posted


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """By a timer of processor time, which is nobody else's. Not before something is posted."""

    def strike(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is RemoteConnection.post.__code__:
                raise KeyboardInterrupt
            frame = frame.f_back
        signal.setitimer(signal.ITIMER_VIRTUAL, 1e-5)

    before = signal.signal(signal.SIGVTALRM, strike)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_an_interrupt_of_one_who_waits_loses_nothing(
    server: Puppet, threads: ThreadPoolExecutor
) -> None:
    """What comes is received by another thread, which no signal strikes."""
    main = threading.main_thread().ident
    assert main is not None
    with registered(server) as connection, interrupts():
        waits = threading.Event()

        def strike() -> None:
            assert waits.wait(PATIENCE_S)
            server.say_raw(begun)
            signal.pthread_kill(main, signal.SIGUSR1)

        begun, rest = frames(ready(2 * CHUNK), bytes(2 * CHUNK))
        striking = threads.submit(strike)
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 (the signal may strike before it)
            waits.set()
            connection.wait(soon())
        striking.result()
        server.say_raw(rest)
        connection.wait(soon())
        assert [message for message, _ in connection.receive()] == [ready(2 * CHUNK)]


OPENING = """
import linecache
import penstock
from pathlib import Path
from penstock.rpc.deadline import Deadline
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.endpoint import Endpoint
from tests.processes import until

OURS = str(Path(penstock.__file__).parent)
endpoint = Endpoint(sys.argv[1])

def is_interrupted(line):
    '''Opens a connection, but for an interrupt before such a line of our code; whether it came.'''
    left, entered = line, set()

    def leaves_with(frame):
        # A tracer comes by once more, where no signal can: it would part a lock from its release.
        if linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()[:5] != "with ":
            return False
        place = id(frame), frame.f_lineno
        was_there = place in entered
        entered.symmetric_difference_update([place])
        return was_there

    def trace(frame, event, _):
        nonlocal left
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line" and not leaves_with(frame):
            left -= 1
            if not left:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        opened = RemoteConnection(endpoint, Deadline(PATIENCE_S))
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    opened.close()
    return False

def threads():
    return [each for each in threading.enumerate() if each.name == "penstock-io"]

def descriptors():
    return len(os.listdir("/proc/self/fd"))

before, line = descriptors(), 1
while is_interrupted(line):
    line += 1
gc.collect()
try:
    until(lambda: not threads() and descriptors() == before, "nothing is left", patience=5.0)
    say([line, 0, 0])
except AssertionError:
    say([line, len(threads()), descriptors() - before])
os._exit(0)
"""


def test_an_interrupt_at_any_moment_of_connecting_leaves_nothing_behind(server: Puppet) -> None:
    """Neither a thread nor a descriptor; nor, at the server, a session that lives for ever."""
    with rank(OPENING, server.address) as opening:
        lines, threads, descriptors = opening.hear()
    assert lines > 50
    assert (threads, descriptors) == (0, 0)
