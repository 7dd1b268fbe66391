"""Requests on their way to a server: how much may be, what is too large, who is told of an end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from penstock.client.remote.switchboard import AT_ONCE, Switchboard
from penstock.errors import Overloaded
from penstock.wire.bulk import pack
from penstock.wire.messages import Refused, Report
from penstock.wire.remote import HEADER, PIECE, UNTAKEN, Answer, Call, Enroll, Enrolled, Taken
from tests.client.remote.puppets import (
    CHANNEL,
    ENROLL,
    MOST_BYTES,
    PATIENCE_S,
    SLOTS,
    Puppet,
    greeted,
    soon,
)

NOTHING = pack({})
LARGE = 900_000


def bytes_past(server: Puppet, least: float) -> int:
    """Of the next messages of a rank, all frames, until they are more than so many."""
    heard = 0
    while heard <= least:
        assert server.router.poll(int(PATIENCE_S * 1000)), "the rank says nothing"
        _, *frames = server.router.recv_multipart()
        heard += sum(map(len, frames))
    return heard


def test_plain_arguments_wait_for_room_as_arrays_do(
    server: Puppet, board: Switchboard, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 53: it is all the same to the server's memory."""
    for _ in range(AT_ONCE):
        threads.submit(board.call, "get_it", {"x": bytes(LARGE)}, NOTHING, soon())
    heard = bytes_past(server, UNTAKEN - 1.1 * LARGE)
    assert server.is_quiet()
    assert heard <= UNTAKEN
    taken = heard // 2
    server.say(Taken(nbytes=taken))
    heard += bytes_past(server, taken + UNTAKEN - 1.1 * LARGE - heard)
    assert server.is_quiet()
    assert heard <= taken + UNTAKEN
    board.close()


def test_arrays_wait_for_room_beside_plain_arguments(
    server: Puppet, board: Switchboard, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 53: the window is one for both, and the fields of a part are in it."""
    array = np.zeros(UNTAKEN, np.uint8)
    arguments = "get_it", {"x": bytes(LARGE)}, pack({"0": array}), soon()
    asked = threads.submit(board.call, *arguments)
    heard = bytes_past(server, UNTAKEN - PIECE)
    assert server.is_quiet()
    assert heard <= UNTAKEN
    server.say(Taken(nbytes=heard))
    bytes_past(server, UNTAKEN + LARGE - heard)
    server.say(Answer(request=1, value="all"))
    assert asked.result(PATIENCE_S)[0] == "all"


# --- a message's own fields ----------------------------------------------------------------------


def test_a_question_with_too_long_a_list_is_refused_at_once_and_the_next_is_asked(
    server: Puppet, board: Switchboard, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 53: the server would end the session, and all that hangs on it."""
    for _ in range(AT_ONCE + 1):
        with pytest.raises(ValueError, match=rf"\b{HEADER}\b.* arrays"):
            board.call("get_it", {"index": bytes(HEADER)}, NOTHING, soon())
    assert server.is_quiet()
    assert not board.is_over
    asked = threads.submit(board.call, "get_it", {"index": [1]}, NOTHING, soon())
    server.say(Answer(request=server.hear(Call).request, value="well"))
    assert asked.result(PATIENCE_S)[0] == "well"


def test_an_enrolment_with_too_many_bytes_of_its_own_is_refused_at_once(server: Puppet) -> None:
    """CONTRACT 53"""
    with greeted(server) as connection:
        large = structs.replace(ENROLL, file="x" * HEADER)
        with pytest.raises(ValueError, match=rf"\b{HEADER}\b.* arrays"):
            connection.enroll(large, NOTHING, soon())
        assert server.is_quiet()
        server.say(Enrolled(request=2, channel=CHANNEL, slots=SLOTS, most_bytes=MOST_BYTES))
        assert connection.enroll(ENROLL, NOTHING, soon()).channel == CHANNEL
        server.hear(Enroll)


# --- refusals ------------------------------------------------------------------------------------


def refusal(kind: str) -> Refused:
    return Refused(request=0, report=Report(kind=kind, message=f"it says {kind}"))


def test_who_waits_to_send_more_is_told_the_first_reason(
    server: Puppet, threads: ThreadPoolExecutor
) -> None:
    """What the server says of parts that come after it only follows from that."""
    inputs: Any = pack({"ids": np.zeros(2 * UNTAKEN, np.uint8)})
    with greeted(server) as connection:
        coming = threads.submit(connection.enroll, ENROLL, inputs, soon())
        server.hear(Enroll)
        bytes_past(server, UNTAKEN - PIECE)
        for kind in ("Overloaded", "HubGone", "HubGone"):
            server.say(refusal(kind))
        with pytest.raises(Overloaded, match="it says Overloaded"):
            coming.result(PATIENCE_S)
