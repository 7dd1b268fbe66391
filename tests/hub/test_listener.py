"""Where ranks come in: who may, and what those are told who may not."""

from __future__ import annotations

import errno
import os
import resource
import socket
import uuid
from collections.abc import Iterator

import pytest

from penstock.hub.listener import AT_ONCE, HubListener
from penstock.wire import framing
from penstock.wire.messages import PROTOCOL, FromHubToRank, Hello, Refused
from penstock.wire.stream import Stream
from penstock.wire.transport.unix import UnixListener, peer_user, socket_address
from tests.hub.raw import Rank, running_hub
from tests.users import NOBODY, as_nobody, only_root

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def listener() -> Iterator[HubListener]:
    address = f"unix://@penstock-test-{uuid.uuid4().hex}"
    founders = UnixListener(address)
    opened = HubListener(os.dup(founders.fileno()), address)
    founders.close()
    yield opened
    opened.close()


def knock(listener: HubListener) -> socket.socket:
    visitor = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    visitor.connect(socket_address(listener.address))
    return visitor


def told(visitor: socket.socket) -> list[FromHubToRank]:
    """All that a visitor is told before it is hung up on."""
    stream: Stream[FromHubToRank] = Stream(visitor, FromHubToRank)
    said: list[FromHubToRank] = []
    while not stream.ended:
        assert stream.wait(60)
        said += [message for message, _ in stream.receive()]
    stream.close()
    return said


def test_nobody_there_is_nobody_admitted(listener: HubListener) -> None:
    assert listener.admit(room=10) == []


def test_visitors_of_this_user_are_admitted(listener: HubListener) -> None:
    with knock(listener):
        [admitted] = listener.admit(room=10)
        with admitted:
            assert peer_user(admitted) == os.geteuid()


def test_so_many_are_admitted_at_a_time(listener: HubListener) -> None:
    visitors = [knock(listener) for _ in range(AT_ONCE + 2)]
    first, rest = listener.admit(room=100), listener.admit(room=100)
    assert (len(first), len(rest)) == (AT_ONCE, 2)
    for each in (*visitors, *first, *rest):
        each.close()


def test_those_past_the_room_are_refused_with_the_setting(listener: HubListener) -> None:
    """CONTRACT 53."""
    first, second = knock(listener), knock(listener)
    [admitted] = listener.admit(room=1)
    [refused] = told(second)
    assert isinstance(refused, Refused)
    assert (refused.request, refused.report.kind) == (0, "Overloaded")
    assert "max_connections" in refused.report.message
    first.close()
    admitted.close()


def test_the_refusal_is_read_also_by_who_has_greeted_already(listener: HubListener) -> None:
    visitor = knock(listener)
    visitor.send(framing.frame(Hello(protocol=PROTOCOL, pid=1)))
    assert listener.admit(room=0) == []
    [refused] = told(visitor)
    assert isinstance(refused, Refused)


def test_a_visitor_that_has_left_is_no_trouble(listener: HubListener) -> None:
    knock(listener).close()
    for gone in listener.admit(room=10):
        gone.close()
    knock(listener).close()
    assert listener.admit(room=0) == []


@only_root
def test_other_users_are_refused(listener: HubListener) -> None:
    visitors: list[socket.socket] = []
    as_nobody(lambda: visitors.append(knock(listener)))
    assert listener.admit(room=10) == []
    [refused] = told(visitors[0])
    assert isinstance(refused, Refused)
    assert f"you are user {NOBODY}" in refused.report.message


def test_two_cannot_listen_at_one_address(listener: HubListener) -> None:
    with pytest.raises(OSError, match="in use") as caught:
        UnixListener(listener.address)
    assert caught.value.errno == errno.EADDRINUSE


def test_one_that_is_closed_is_closed_once(listener: HubListener) -> None:
    listener.close()
    listener.close()
    with socket.socket(socket.AF_UNIX) as visitor, pytest.raises(ConnectionRefusedError):
        visitor.connect(socket_address(listener.address))


def test_a_hub_without_descriptors_refuses_and_goes_on() -> None:
    """CONTRACT 53: it neither dies nor turns round and round over a visitor it cannot let in."""
    with running_hub(workers=0) as hub:
        pid, rank = hub.process.pid, hub.founder
        highest = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 2, highest + 2))
        inside: list[Rank] = []
        while True:
            visitor = Rank.knock(hub.address)
            visitor.stream.send(Hello(protocol=PROTOCOL, pid=os.getpid()))
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
