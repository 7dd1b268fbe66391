"""The door: who may come in, and what those are told who may not."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import socket
import threading
import uuid
from collections.abc import Iterator

import pytest

from penstock.hub.address import socket_address
from penstock.hub.door import AT_ONCE, Door, peer_user
from penstock.wire.messages import FromHubToRank, Hello, Refused
from penstock.wire.stream import Stream
from tests.hub.raw import Rank, running_hub

pytestmark = pytest.mark.usefixtures("no_leaks")

NOBODY = 65534
# The kernel keeps user ids by thread; only the C library makes them the process's.
SETRESUID = {"x86_64": 117, "aarch64": 147}.get(platform.machine())


@pytest.fixture
def door() -> Iterator[Door]:
    opened = Door(f"unix://@penstock-test-{uuid.uuid4().hex}")
    yield opened
    opened.close()


def knock(door: Door) -> socket.socket:
    visitor = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    visitor.connect(socket_address(door.address))
    return visitor


def told(visitor: socket.socket) -> list[FromHubToRank]:
    """All that a visitor is told before the door closes."""
    stream: Stream[FromHubToRank] = Stream(visitor, FromHubToRank)
    said: list[FromHubToRank] = []
    while not stream.ended:
        assert stream.wait(60)
        said += [message for message, _ in stream.receive()]
    stream.close()
    return said


def test_nobody_at_the_door_is_nobody_admitted(door: Door) -> None:
    assert door.admit(room=10) == []


def test_visitors_of_this_user_are_admitted(door: Door) -> None:
    with knock(door):
        [admitted] = door.admit(room=10)
        with admitted:
            assert peer_user(admitted) == os.geteuid()


def test_so_many_are_admitted_at_a_time(door: Door) -> None:
    visitors = [knock(door) for _ in range(AT_ONCE + 2)]
    first, rest = door.admit(room=100), door.admit(room=100)
    assert (len(first), len(rest)) == (AT_ONCE, 2)
    for each in (*visitors, *first, *rest):
        each.close()


def test_those_past_the_room_are_refused_with_the_setting(door: Door) -> None:
    """CONTRACT 53."""
    first, second = knock(door), knock(door)
    [admitted] = door.admit(room=1)
    [refused] = told(second)
    assert isinstance(refused, Refused)
    assert (refused.request, refused.report.kind) == (0, "Overloaded")
    assert "max_connections" in refused.report.message
    first.close()
    admitted.close()


def test_the_refusal_is_read_also_by_who_has_greeted_already(door: Door) -> None:
    visitor = knock(door)
    visitor.send(Stream.encode(Hello(protocol=1, pid=1)))
    assert door.admit(room=0) == []
    [refused] = told(visitor)
    assert isinstance(refused, Refused)


def test_a_visitor_that_has_left_is_no_trouble(door: Door) -> None:
    knock(door).close()
    for gone in door.admit(room=10):
        gone.close()
    knock(door).close()
    assert door.admit(room=0) == []


@pytest.mark.skipif(os.geteuid() != 0 or SETRESUID is None, reason="only root can be others")
def test_other_users_are_refused(door: Door) -> None:
    visitors: list[socket.socket] = []

    def knock_as_nobody() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.syscall(SETRESUID, -1, NOBODY, -1) == 0, os.strerror(ctypes.get_errno())
        visitors.append(knock(door))

    thread = threading.Thread(target=knock_as_nobody)
    thread.start()
    thread.join()
    assert door.admit(room=10) == []
    [refused] = told(visitors[0])
    assert isinstance(refused, Refused)
    assert f"you are user {NOBODY}" in refused.report.message


def test_two_doors_cannot_have_one_address(door: Door) -> None:
    with pytest.raises(OSError, match="in use") as caught:
        Door(door.address)
    assert caught.value.errno == errno.EADDRINUSE


def test_a_closed_door_is_closed_once(door: Door) -> None:
    door.close()
    door.close()
    with socket.socket(socket.AF_UNIX) as visitor, pytest.raises(ConnectionRefusedError):
        visitor.connect(socket_address(door.address))


def test_a_hub_without_descriptors_refuses_and_goes_on() -> None:
    """CONTRACT 53: it neither dies nor turns round and round over a visitor it cannot let in."""
    with running_hub(workers=0) as hub:
        pid, rank = hub.process.pid, hub.founder
        highest = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 2, highest + 2))
        inside: list[Rank] = []
        while True:
            visitor = Rank.knock(hub.address)
            visitor.stream.send(Hello(protocol=1, pid=os.getpid()))
            if isinstance(answer := visitor.next(), Refused):
                break
            inside.append(visitor)
        assert "ulimit -n" in answer.report.message
        visitor.close()
        before = rank.statistics()["hub"]["turns"]
        assert rank.statistics()["hub"]["turns"] == before + 1
        for each in inside:
            each.close()
        rank.statistics()
        with Rank.join(hub.address):
            pass
