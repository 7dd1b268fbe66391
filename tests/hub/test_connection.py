"""A connection's bounds, over a real socket with nobody reading at the other end."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from penstock.hub.connection import AT_ONCE, ENOUGH, TOO_MANY, RankConnection
from penstock.wire.messages import (
    PROTOCOL,
    BatchId,
    BatchLost,
    FromHubToRank,
    FromRankToHub,
    Hello,
    Report,
    ReturnSlot,
    Welcome,
)
from penstock.wire.stream import Stream

pytestmark = pytest.mark.usefixtures("no_leaks")

LOST = BatchLost(
    batch=BatchId(1, 0, 0), index=0, report=Report(kind="SamplingError", message="no" * 100)
)


@pytest.fixture
def touched() -> set[RankConnection]:
    return set()


@pytest.fixture
def line(touched: set[RankConnection]) -> Iterator[tuple[RankConnection, Stream[FromHubToRank]]]:
    ours, theirs = socket.socketpair()
    connection = RankConnection(1, Stream(ours, FromRankToHub), touched)
    connection.conversation.rank_says(Hello(protocol=PROTOCOL, pid=1))
    connection.conversation.hub_says(Welcome(protocol=PROTOCOL, boot="", pid=1, address=""))
    rank: Stream[FromHubToRank] = Stream(theirs, FromHubToRank)
    yield connection, rank
    connection.close()
    rank.close()


def test_whatever_is_said_marks_the_connection(
    line: tuple[RankConnection, Stream[FromHubToRank]], touched: set[RankConnection]
) -> None:
    connection, _ = line
    connection.send(LOST)
    assert touched == {connection}


def test_a_rank_that_reads_nothing_is_overfull_then_let_go_of(
    line: tuple[RankConnection, Stream[FromHubToRank]],
) -> None:
    """CONTRACT 9: what it leaves unread is bounded."""
    connection, _ = line
    while not connection.overfull:
        connection.send(LOST)
    assert connection.stream.queued == ENOUGH + 1
    assert connection.ending is None
    while connection.ending is None:
        connection.send(LOST)
    assert connection.stream.queued == TOO_MANY + 1
    assert "unread" in connection.ending
    connection.send(LOST)
    assert connection.stream.queued == TOO_MANY + 1


def test_a_rank_that_has_read_is_well_again(
    line: tuple[RankConnection, Stream[FromHubToRank]],
) -> None:
    connection, rank = line
    sent = 0
    while not connection.overfull:
        connection.send(LOST)
        sent += 1
    received = 0
    while received < sent:
        received += len(rank.receive())
        connection.stream.flush()
    assert received == sent
    assert not connection.overfull


def test_messages_are_answered_in_portions(
    line: tuple[RankConnection, Stream[FromHubToRank]],
) -> None:
    connection, rank = line
    for slot in range(AT_ONCE + 5):
        rank.send(ReturnSlot(channel=1, slot=slot))
    connection.receive()
    first = [message.slot for message, _ in connection.next_messages()]  # type: ignore[union-attr]
    rest = [message.slot for message, _ in connection.next_messages()]  # type: ignore[union-attr]
    assert first == list(range(AT_ONCE))
    assert rest == list(range(AT_ONCE, AT_ONCE + 5))


def test_nothing_more_is_answered_once_it_is_to_end(
    line: tuple[RankConnection, Stream[FromHubToRank]],
) -> None:
    connection, rank = line
    for slot in range(3):
        rank.send(ReturnSlot(channel=1, slot=slot))
    connection.receive()
    heard = []
    for message, _ in connection.next_messages():
        heard.append(message)
        connection.end("enough")
    assert len(heard) == 1


def test_descriptors_of_what_was_never_answered_are_closed(
    line: tuple[RankConnection, Stream[FromHubToRank]],
) -> None:
    connection, rank = line
    with open(os.devnull) as file:
        rank.send(ReturnSlot(channel=1, slot=0), [file.fileno()] * 3)
    connection.receive()
    connection.close()


def test_a_message_larger_than_any_may_be_ends_the_connection(
    line: tuple[RankConnection, Stream[FromHubToRank]],
) -> None:
    connection, _ = line
    report = Report(kind="SamplingError", message="x" * (17 << 20))
    connection.send(BatchLost(batch=BatchId(1, 0, 0), index=0, report=report))
    assert connection.ending is not None
    assert "BatchLost could not be sent" in connection.ending
