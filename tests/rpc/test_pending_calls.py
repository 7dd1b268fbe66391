"""Calls that are begun first and collected later: at one server, or at several."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from penstock.errors import Overloaded
from penstock.rpc.deadline import Deadline
from penstock.rpc.reception import GroupReception, Inbox
from penstock.rpc.rpc_client import AT_ONCE, PendingCall, RpcClient
from penstock.wire.framing import CHUNK
from penstock.wire.messages import Answer, Call, Refused, Report
from penstock.wire.payload import NOTHING, pack
from tests.processes import until
from tests.rpc.puppets import LARGE, PATIENCE_S, Puppet, frames, opened, puppet, soon


def begun(client: RpcClient, verb: str = "get_it", inbox: Inbox | None = None) -> PendingCall:
    return client.begin(verb, {}, NOTHING, soon(), inbox)


# --- at one server -------------------------------------------------------------------------------


def test_calls_are_sent_when_they_are_begun_and_collected_in_any_order(
    server: Puppet, client: RpcClient
) -> None:
    pending = {verb: begun(client, verb) for verb in ("get_a", "get_b", "get_c")}
    for _ in pending:
        call = server.hear(Call)
        server.say(Answer(request=call.request, value=call.verb))
    for verb in ("get_c", "get_a", "get_b"):
        assert pending[verb].result(soon()) == (verb, {})


def test_a_call_can_be_waited_for_a_little_at_a_time(server: Puppet, client: RpcClient) -> None:
    pending = begun(client)
    assert not pending.wait(0)
    assert not pending.wait(0.01)
    with pytest.raises(TimeoutError, match="not answered in time"):
        pending.result(Deadline(0.01))
    server.say(Answer(request=server.hear(Call).request, value="at last"))
    assert pending.wait(PATIENCE_S)
    assert pending.has_come
    assert pending.result()[0] == "at last"


def test_a_refusal_is_raised_when_the_call_is_collected(server: Puppet, client: RpcClient) -> None:
    pending = begun(client)
    report = Report(kind="Overloaded", message="there is no room")
    server.say(Refused(request=server.hear(Call).request, report=report))
    assert pending.wait(PATIENCE_S)
    with pytest.raises(Overloaded, match="no room"):
        pending.result()


def test_the_end_of_the_connection_is_told_to_all_that_were_begun(
    server: Puppet, client: RpcClient
) -> None:
    pending = [begun(client) for _ in range(3)]
    for _ in pending:
        server.hear(Call)
    server.hang_up()
    for each in pending:
        with pytest.raises(ConnectionError):
            each.result(soon())
    with pytest.raises(ConnectionError):
        begun(client)


@pytest.mark.parametrize("way", ["abandoned", "dropped"])
def test_the_answer_to_a_call_that_was_given_up_is_skipped(
    server: Puppet, client: RpcClient, way: str
) -> None:
    pending: PendingCall | None = begun(client, "get_much")
    assert pending is not None
    number = server.hear(Call).request
    if way == "abandoned":
        pending.abandon()
    del pending
    gc.collect()
    assert not client.calls.waiting
    assert client.calls.sent == {number}
    other = begun(client, "get_little")
    packed = pack({"0": np.zeros(2 * CHUNK, np.uint8)})
    for frame in frames(Answer(request=number, arrays=packed.arrays), bytes(2 * CHUNK), lane=1):
        server.say_raw(frame)
    server.say(Answer(request=server.hear(Call).request, value="well"))
    assert other.result(soon())[0] == "well"
    assert not client.calls.sent


def test_arrays_of_a_call_that_was_begun_are_sent_while_nobody_waits(
    server: Puppet, client: RpcClient
) -> None:
    data = np.frombuffer(os.urandom(LARGE), np.uint8)
    pending = client.begin("take_much", {}, pack({"0": data}), soon())
    call, payload = server.hear_all_of(Call)
    assert payload == data.tobytes()
    server.say(Answer(request=call.request, value="thanks"))
    assert pending.result(soon())[0] == "thanks"


def test_whoever_begins_too_many_receives_until_there_is_room(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """Nobody waits for an answer meanwhile: the thread that begins takes it in itself."""
    pending = [begun(client) for _ in range(AT_ONCE)]
    numbers = [server.hear(Call).request for _ in pending]
    with pytest.raises(TimeoutError, match="other calls"):
        client.begin("get_it", {}, NOTHING, Deadline(0.01))
    one_more = threads.submit(begun, client, "get_one_more")
    until(lambda: len(client.calls.outside) == 1, "it waits for room")
    server.say(Answer(request=numbers[0], value="first"))
    last = one_more.result(PATIENCE_S)
    assert pending[0].has_come
    server.say(Answer(request=server.hear(Call).request, value="more"))
    assert last.result(soon())[0] == "more"


def test_a_thread_that_waits_gets_its_answer_though_others_are_begun_and_not_waited_for(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """The role of receiving goes to threads that wait, not to calls."""
    idle = [begun(client, "get_idle") for _ in range(3)]
    for _ in idle:
        server.hear(Call)
    first, second = (threads.submit(begun(client, "get_it").result, soon()) for _ in range(2))
    numbers = [server.hear(Call).request for _ in range(2)]
    until(lambda: client.reception.receiver is not None, "one of them receives")
    for number in numbers:
        server.say(Answer(request=number, value="well"))
    assert [first.result(PATIENCE_S)[0], second.result(PATIENCE_S)[0]] == ["well", "well"]


# --- at several ----------------------------------------------------------------------------------


class Group:
    """Puppets, and clients that receive as one."""

    def __init__(self, ends: ExitStack, count: int) -> None:
        self.reception = GroupReception()
        self.servers = [ends.enter_context(puppet()) for _ in range(count)]
        self.clients = []
        for server in self.servers:
            connection = opened(server, driven=True)
            self.clients.append(RpcClient(connection, self.reception))
            self.reception.add(connection)
            ends.callback(self.clients[-1].close)
        ends.callback(self.reception.close)

    def answer(self, number: int, value: Any = None, **given: Any) -> None:
        server = self.servers[number]
        server.say(Answer(request=server.hear(Call).request, value=value), **given)


@pytest.fixture
def group(no_leaks: None) -> Iterator[Group]:
    with ExitStack() as ends:
        yield Group(ends, 3)


def test_answers_of_several_servers_are_collected_one_after_the_other(group: Group) -> None:
    pending = [begun(client) for client in group.clients]
    for number in (2, 0, 1):
        group.answer(number, f"from {number}")
    assert [each.result(soon())[0] for each in pending] == ["from 0", "from 1", "from 2"]


def test_who_waits_for_one_server_takes_in_what_the_others_send(
    group: Group, threads: ThreadPoolExecutor
) -> None:
    """So a large answer does not wait in its server until it is collected."""
    first, second = begun(group.clients[0]), begun(group.clients[1])
    waiting = threads.submit(first.result, soon())
    packed = pack({"0": np.arange(LARGE // 8)})
    call = group.servers[1].hear(Call)
    answer = Answer(request=call.request, arrays=packed.arrays)
    group.servers[1].say(answer, packed.views[0])  # returns when the kernel has all of it
    until(lambda: second.has_come, "it was taken in")
    assert not waiting.done()
    group.answer(0, "at last")
    assert waiting.result(PATIENCE_S)[0] == "at last"
    assert np.array_equal(second.result()[1]["0"], np.arange(LARGE // 8))


def test_a_thread_can_wait_for_the_first_of_two_servers(group: Group) -> None:
    inbox: Inbox = SimpleQueue()
    pending = [begun(client, inbox=inbox) for client in group.clients[:2]]
    group.answer(1, "faster")
    assert group.reception.wait(inbox, lambda: any(each.has_come for each in pending), soon())
    assert [each.has_come for each in pending] == [False, True]
    assert pending[1].result()[0] == "faster"


def test_a_server_that_is_lost_disturbs_no_other(group: Group, threads: ThreadPoolExecutor) -> None:
    pending = [begun(client) for client in group.clients]
    waiting = threads.submit(pending[0].result, soon())
    group.servers[1].hear(Call)
    group.servers[1].die()
    until(lambda: pending[1].has_come, "its loss is known")
    with pytest.raises(ConnectionError):
        pending[1].result(soon())
    group.clients[1].close()
    group.answer(0, "well")
    assert waiting.result(PATIENCE_S)[0] == "well"
    group.answer(2, "too")
    assert pending[2].result(soon())[0] == "too"


def test_a_connection_is_closed_while_a_thread_receives_from_all(
    group: Group, threads: ThreadPoolExecutor
) -> None:
    waiting = threads.submit(begun(group.clients[0]).result, soon())
    until(lambda: group.reception.receiver is not None, "it receives")
    other = begun(group.clients[1])
    group.servers[1].hear(Call)
    group.clients[1].close()
    with pytest.raises(ConnectionError):
        other.result(soon())
    group.servers[1].wait_for_end()
    group.answer(0, "well")
    assert waiting.result(PATIENCE_S)[0] == "well"
