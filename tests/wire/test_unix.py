"""Unix sockets: whose process is at the other end, and an address that is never up for grabs."""

from __future__ import annotations

import errno
import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.wire.transport.unix import UnixListener, connect, peer_user, socket_address
from tests.users import NOBODY, as_nobody, only_root

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def address() -> str:
    return f"unix://@penstock-test-{uuid.uuid4().hex}"


@pytest.fixture
def listener(address: str) -> Iterator[UnixListener]:
    made = UnixListener(address)
    yield made
    made.close()


def test_one_connects_to_a_hub_of_ones_own(listener: UnixListener) -> None:
    with connect(listener.address) as rank:
        assert peer_user(rank) == os.geteuid()
        assert not rank.getblocking()


@only_root
def test_nothing_is_said_to_another_user_who_has_taken_the_address(address: str) -> None:
    """A hub dies, somebody else binds its name: what a rank has to say is not for them."""
    taken: list[UnixListener] = []
    as_nobody(lambda: taken.append(UnixListener(address)))
    try:
        with pytest.raises(
            ConnectionRefusedError, match=f"user {NOBODY} listens at .*not your hub"
        ):
            connect(address)
        with socket.socket(fileno=os.dup(taken[0].fileno())) as listening:
            stranger, _ = listening.accept()
            with stranger:
                assert stranger.recv(100) == b""
    finally:
        taken[0].close()


def test_nobody_there_is_told_at_once(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConnectionRefusedError):
        connect(address)
    with pytest.raises(ConnectionRefusedError, match="there is no socket"):
        connect(f"unix://{tmp_path / 'none'}")


def test_two_cannot_listen_at_one_address(listener: UnixListener) -> None:
    with pytest.raises(OSError, match="in use") as caught:
        UnixListener(listener.address)
    assert caught.value.errno == errno.EADDRINUSE


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("words")
    with pytest.raises(OSError, match="in use"):
        UnixListener(f"unix://{path}")
    assert path.read_text() == "words"


def test_the_file_of_one_that_was_killed_is_taken_over_and_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "hub"
    abandoned = socket.socket(socket.AF_UNIX)
    abandoned.bind(str(path))
    abandoned.close()
    listener = UnixListener(f"unix://{path}")
    connect(listener.address).close()
    listener.close()
    assert not path.exists()


def test_while_nobody_accepts_the_address_stays_taken_and_visitors_wait(
    listener: UnixListener,
) -> None:
    """Between two hubs: the socket is the founder's, and each hub has a copy of it."""
    first = socket.socket(fileno=os.dup(listener.fileno()))
    first.close()  # that hub has died
    with connect(listener.address) as visitor, socket.socket(socket.AF_UNIX) as thief:
        with pytest.raises(OSError, match="in use"):
            thief.bind(socket_address(listener.address))
        visitor.send(b"hello")
        with socket.socket(fileno=os.dup(listener.fileno())) as second:
            accepted, _ = second.accept()
            with accepted:
                assert accepted.recv(10) == b"hello"
