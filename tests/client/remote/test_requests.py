"""Requests on their way to a server: what waits for room, what is too large, what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from msgspec import structs

from penstock.errors import Overloaded
from penstock.rpc.rpc_client import AT_ONCE, RpcClient
from penstock.wire.messages import MOST_MESSAGE, Answer, Call, Refused, Register, Report
from penstock.wire.payload import NOTHING, pack
from tests.processes import until
from tests.rpc.puppets import (
    CHANNEL,
    LARGE,
    PATIENCE_S,
    REGISTER,
    Puppet,
    a_channel,
    greeted,
    soon,
)

LONG = 900_000


def test_plain_arguments_wait_for_room_as_arrays_do(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 53: nothing is lost of what the server takes late."""
    asked = [
        threads.submit(client.call, "get_it", {"x": bytes(LONG)}, NOTHING, soon())
        for _ in range(AT_ONCE)
    ]
    until(lambda: len(client.calls.sent) == AT_ONCE, "all were asked")
    assert client._connection._link.pending
    calls = [server.hear(Call) for _ in asked]
    assert {call.request for call in calls} == set(range(1, AT_ONCE + 1))
    assert {len(call.arguments["x"]) for call in calls} == {LONG}
    for call in calls:
        server.say(Answer(request=call.request, value="well"))
    assert {each.result(PATIENCE_S)[0] for each in asked} == {"well"}


def test_arrays_wait_for_room_beside_plain_arguments(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 53"""
    array = np.resize(np.arange(251, dtype=np.uint8), LARGE)
    asked = threads.submit(
        client.call, "get_it", {"x": bytes(LONG)}, pack({"0": array, "1": array[:9]}), soon()
    )
    until(lambda: client._connection._link.pending, "no more goes into the socket")
    call, payload = server.hear_all_of(Call)
    assert len(call.arguments["x"]) == LONG
    assert payload.startswith(array.tobytes())
    assert payload.endswith(array[:9].tobytes())
    server.say(Answer(request=1, value="all"))
    assert asked.result(PATIENCE_S)[0] == "all"


# --- a message's own fields ----------------------------------------------------------------------


def test_a_call_with_too_long_a_list_is_refused_at_once_and_the_next_is_made(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 53: the server would end the session, and all that hangs on it."""
    for _ in range(AT_ONCE + 1):
        with pytest.raises(ValueError, match=rf"\b{MOST_MESSAGE}\b.* arrays"):
            client.call("get_it", {"index": bytes(MOST_MESSAGE)}, NOTHING, soon())
    assert server.is_quiet()
    assert not client.is_over()
    asked = threads.submit(client.call, "get_it", {"index": [1]}, NOTHING, soon())
    server.say(Answer(request=server.hear(Call).request, value="well"))
    assert asked.result(PATIENCE_S)[0] == "well"


TOO_LONG = structs.replace(REGISTER, file="x" * MOST_MESSAGE)


def test_a_registration_with_too_many_bytes_of_its_own_is_refused_at_once(server: Puppet) -> None:
    """CONTRACT 53"""
    with greeted(server) as connection:
        with pytest.raises(ValueError, match=rf"\b{MOST_MESSAGE}\b.* arrays"):
            connection.register(TOO_LONG, NOTHING, soon())
        assert server.is_quiet()


def test_after_a_registration_that_was_too_large_another_one_may_be_tried(
    server: Puppet, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 53"""
    with greeted(server) as connection:
        with pytest.raises(ValueError, match=rf"\b{MOST_MESSAGE}\b.* arrays"):
            connection.register(TOO_LONG, NOTHING, soon())
        coming = threads.submit(connection.register, REGISTER, NOTHING, soon())
        until(lambda: coming.done() or not server.is_quiet(), "it was asked for, or failed")
        assert not coming.done(), coming.exception()
        server.say(a_channel(server.hear(Register)))
        assert coming.result(PATIENCE_S).channel == CHANNEL


# --- refusals ------------------------------------------------------------------------------------


def refusal(kind: str) -> Refused:
    return Refused(request=0, report=Report(kind=kind, message=f"it says {kind}"))


def test_who_waits_to_send_more_is_told_the_first_reason(
    server: Puppet, threads: ThreadPoolExecutor
) -> None:
    """What the server says of what comes after it only follows from that."""
    inputs = pack({"ids": np.zeros(LARGE, np.uint8)})
    with greeted(server) as connection:
        coming = threads.submit(connection.register, REGISTER, inputs, soon())
        until(lambda: connection._link.pending, "no more goes into the socket")
        for kind in ("Overloaded", "HubGone", "HubGone"):
            server.say(refusal(kind))
        with pytest.raises(Overloaded, match="it says Overloaded"):
            coming.result(PATIENCE_S)


def test_a_call_that_is_refused_while_its_arrays_are_sent_is_told_at_once(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 53: the rest of it is sent even so, and the next call is answered."""
    arrays = pack({"0": np.zeros(LARGE, np.uint8)})
    asked = threads.submit(client.call, "take_much", {}, arrays, soon())
    until(lambda: client._connection._link.pending, "no more goes into the socket")
    server.say(Refused(request=1, report=Report(kind="Overloaded", message="too many bytes")))
    with pytest.raises(Overloaded, match="too many bytes"):
        asked.result(PATIENCE_S)
    again = threads.submit(client.call, "get_it", {}, NOTHING, soon())
    verbs = {server.hear(Call).verb for _ in range(2)}
    assert verbs == {"take_much", "get_it"}
    server.say(Answer(request=2, value="well"))
    assert again.result(PATIENCE_S)[0] == "well"
