"""Calls of many threads over one connection: who gets which answer, and what an end does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from penstock.client.dist_calls import TRANSPORT, VERBS
from penstock.errors import ChannelClosed, Overloaded, ProtocolError, ServerGone
from penstock.rpc import link
from penstock.rpc.deadline import Deadline
from penstock.rpc.rpc_client import AT_ONCE, RpcClient
from penstock.rpc.server import RemoteServer
from penstock.wire.framing import CHUNK
from penstock.wire.messages import (
    Answer,
    ArrayLayout,
    Call,
    Goodbye,
    Heartbeat,
    Hello,
    Message,
    Refused,
    Registered,
    Report,
)
from penstock.wire.payload import NOTHING, pack, reserved
from tests.processes import until
from tests.rpc.puppets import (
    LARGE,
    PATIENCE_S,
    Puppet,
    frames,
    opened,
    soon,
)
from tests.rpc.signals import interrupts, on_signal, strike_in


def ask(client: RpcClient, verb: str = "ping", deadline: Deadline | None = None) -> Any:
    return client.call(verb, {}, NOTHING, deadline or soon())[0]


# --- who gets which answer -----------------------------------------------------------------------


def test_each_gets_its_own_answer_in_whatever_order_they_come(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    verbs = [f"get_{number}" for number in range(8)]
    asked = {verb: threads.submit(ask, client, verb) for verb in verbs}
    heard = [server.hear(Call) for _ in verbs]
    for call in reversed(heard):
        server.say(Answer(request=call.request, value=call.verb))
    assert {verb: each.result(PATIENCE_S) for verb, each in asked.items()} == {
        verb: verb for verb in verbs
    }


def test_an_error_is_raised_where_it_was_asked_for(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    patient = threads.submit(ask, client, "get_patience")
    first = server.hear(Call).request
    refused = threads.submit(ask, client, "get_refused")
    report = Report(kind="Overloaded", message="there is no room")
    server.say(Refused(request=server.hear(Call).request, report=report))
    with pytest.raises(Overloaded, match="no room"):
        refused.result(PATIENCE_S)
    server.say(Answer(request=first, value="at last"))
    assert patient.result(PATIENCE_S) == "at last"


def given_up(server: Puppet, client: RpcClient) -> int:
    """The number of a call that nobody waits for any more, and that was not answered."""
    with pytest.raises(TimeoutError, match="not answered in time"):
        ask(client, "get_late", Deadline(0.05))
    return server.hear(Call).request


def test_an_answer_that_comes_too_late_is_nobody_elses(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """Nor does it end the connection: what others have hangs on it."""
    late = given_up(server, client)
    asked = threads.submit(ask, client, "get_next")
    call = server.hear(Call)
    server.say(Answer(request=late, value="late"))
    server.say(Answer(request=call.request, value="next"))
    assert asked.result(PATIENCE_S) == "next"
    again = threads.submit(ask, client, "get_again")
    server.say(Answer(request=server.hear(Call).request, value="again"))
    assert again.result(PATIENCE_S) == "again"


def test_arrays_that_come_too_late_take_no_memory(
    server: Puppet,
    client: RpcClient,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are thrown away as they come, in the middle of others."""
    late = given_up(server, client)
    taken: list[int] = []

    def count(arrays: Any, nbytes: int, *given: Any) -> Any:
        taken.append(nbytes)
        return reserved(arrays, nbytes, *given)

    monkeypatch.setattr(link, "reserved", count)
    packed = pack({"0": np.zeros(3 * CHUNK, np.uint8)})
    asked = threads.submit(client.call, "get_next", {}, NOTHING, soon())
    call = server.hear(Call)
    thrown = frames(Answer(request=late, arrays=packed.arrays), bytes(3 * CHUNK), lane=1)
    wanted = frames(Answer(request=call.request, arrays=packed.arrays), b"x" * 3 * CHUNK, lane=2)
    for one, other in zip(thrown, wanted, strict=True):
        server.say_raw(one + other)
    assert bytes(asked.result(PATIENCE_S)[1]["0"]) == b"x" * 3 * CHUNK
    assert taken == [3 * CHUNK]


def test_a_call_that_was_given_up_is_on_its_way_until_it_is_answered(
    server: Puppet, client: RpcClient
) -> None:
    """The server works on it. Its arrays count as an answer from their beginning on."""
    late = given_up(server, client)
    assert client.calls.sent == {late}
    packed = pack({"0": np.zeros(10)})
    server.say(Answer(request=late, arrays=packed.arrays), b"".join(packed.views))
    until(lambda: not client.is_over() and not client.calls.sent, "its answer has come")


def test_a_small_answer_overtakes_a_large_one(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """Each has a lane of its own."""
    packed = pack({"0": np.arange(3 * CHUNK // 8)})
    large = threads.submit(client.call, "get_much", {}, NOTHING, soon())
    much = server.hear(Call).request
    small = threads.submit(ask, client, "get_little")
    little = server.hear(Call).request
    said = frames(Answer(request=much, arrays=packed.arrays), b"".join(packed.views), lane=much)
    server.say_raw(next(said))
    server.say(Answer(request=little, value="little"), lane=little)
    assert small.result(PATIENCE_S) == "little"
    assert not large.done()
    server.say_raw(b"".join(said))
    assert np.array_equal(large.result(PATIENCE_S)[1]["0"], np.arange(3 * CHUNK // 8))


def test_a_small_call_overtakes_the_arrays_of_a_large_one(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    arrays = pack({"0": np.zeros(LARGE, np.uint8)})
    large = threads.submit(client.call, "take_much", {}, arrays, soon())
    until(lambda: client._connection._link.pending, "no more goes into the socket")
    small = threads.submit(ask, client, "get_little")
    until(lambda: len(client.calls.sent) == 2, "both were asked")
    call = server.hear(Call)
    assert call.verb == "get_little"
    server.say(Answer(request=call.request, value="little"))
    assert small.result(PATIENCE_S) == "little"
    call, payload = server.hear_all_of(Call)
    assert (call.verb, len(payload)) == ("take_much", LARGE)
    server.say(Answer(request=call.request))
    large.result(PATIENCE_S)


def test_who_receives_and_stops_hands_it_on(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """Whoever called first receives; when it gives up, the others get what they wait for."""
    first = threads.submit(ask, client, "get_first", Deadline(0.5))
    server.hear(Call)
    others = [threads.submit(ask, client, "get_other") for _ in range(3)]
    numbers = [server.hear(Call).request for _ in others]
    with pytest.raises(TimeoutError):
        first.result(PATIENCE_S)
    for number in numbers:
        server.say(Answer(request=number, value=number))
    assert {each.result(PATIENCE_S) for each in others} == set(numbers)


def test_signs_of_life_are_no_answers(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    asked = threads.submit(ask, client, "get_it")
    call = server.hear(Call)
    server.say(Heartbeat())
    server.say(Answer(request=call.request, value="well"))
    assert asked.result(PATIENCE_S) == "well"


# --- signals -------------------------------------------------------------------------------------


def test_an_interrupt_is_one_callers_alone(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """A real signal, in the thread that receives."""
    with interrupts():
        main = threading.main_thread().ident
        assert main is not None

        def interrupt() -> int:
            server.hear(Call)
            until(lambda: client.reception.receiver is not None, "the main thread waits")
            other = threads.submit(ask, client, "get_other")
            number = server.hear(Call).request
            signal.pthread_kill(main, signal.SIGUSR1)
            others.append(other)
            return number

        others: list[Any] = []
        number = threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            ask(client, "get_mine")
        server.say(Answer(request=number.result(PATIENCE_S), value="well"))
        assert others[0].result(PATIENCE_S) == "well"


def test_a_signals_handler_may_call_while_its_thread_waits_for_an_answer(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    found: list[Any] = []
    main = threading.main_thread().ident
    assert main is not None

    def answer() -> None:
        first = server.hear(Call)
        until(lambda: client.reception.receiver is not None, "the main thread waits")
        signal.pthread_kill(main, signal.SIGUSR1)
        second = server.hear(Call)
        server.say(Answer(request=first.request, value=first.verb))
        server.say(Answer(request=second.request, value=second.verb))

    answering = threads.submit(answer)
    try:
        with on_signal(lambda: found.append(ask(client, "get_inner"))):
            assert ask(client, "get_outer") == "get_outer"
    finally:
        client.close()
        answering.result(PATIENCE_S)
    assert found == ["get_inner"]


def test_a_signals_handler_that_calls_in_the_middle_of_receiving_spoils_no_answer(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """It may fail, and so may the call that it struck; but none gets wrong bytes."""
    wanted = np.arange(CHUNK // 16)
    packed, gave_up = pack({"0": wanted}), threading.Event()

    def answer() -> None:
        (said,) = frames(
            Answer(request=server.hear(Call).request, arrays=packed.arrays), b"".join(packed.views)
        )
        third = len(said) // 3
        server.say_raw(said[:third])
        server.hear(Call)  # the handler's
        server.say_raw(said[third : 2 * third])
        gave_up.wait(PATIENCE_S)
        server.say_raw(said[2 * third :])

    def call() -> None:
        with suppress(TimeoutError):
            ask(client, "get_inner", Deadline(0.2))
        gave_up.set()

    strike_in(client._connection, "recvmsg_into")
    answering = threads.submit(answer)
    with on_signal(call), suppress(ConnectionError, RuntimeError):
        found = client.call("get_much", {}, NOTHING, soon())[1]["0"]
        assert np.array_equal(found, wanted)
    gave_up.set()
    answering.exception(PATIENCE_S)


def test_an_interrupt_in_the_middle_of_receiving_is_told_to_all(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """What has come by then is lost, and may have been anybody's."""
    packed = pack({"0": np.zeros(CHUNK)})
    others: list[Any] = []

    def answer() -> None:
        call = server.hear(Call)
        until(lambda: client.reception.receiver is not None, "the main thread does")
        others.append(threads.submit(ask, client, "get_other"))
        server.hear(Call)
        server.say(
            Answer(request=call.request, arrays=packed.arrays), b"".join(packed.views), lane=1
        )

    struck = strike_in(client._connection, "recvmsg_into")
    answering = threads.submit(answer)
    with interrupts(), pytest.raises(KeyboardInterrupt):
        ask(client, "get_mine")
    assert struck.has_struck
    with pytest.raises(ConnectionError):
        others[0].result(PATIENCE_S)
    assert client.is_over()
    client.close()
    answering.exception(PATIENCE_S)


# --- arrays --------------------------------------------------------------------------------------


def test_arrays_travel_both_ways(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    numbers = np.arange(1000)
    packed = pack({"0": numbers * 2})
    asked = threads.submit(client.call, "double", {"by": 2}, pack({"0": numbers}), soon())
    call, payload = server.hear_all_of(Call)
    assert (call.verb, call.arguments) == ("double", {"by": 2})
    assert [(each.name, each.dtype, each.shape) for each in call.arrays] == [
        ("0", "int64", (1000,))
    ]
    assert payload == numbers.tobytes()
    answer = Answer(request=call.request, value="fine", arrays=packed.arrays)
    server.say(answer, b"".join(packed.views))
    value, arrays = asked.result(PATIENCE_S)
    assert value == "fine"
    assert np.array_equal(arrays["0"], numbers * 2)


def test_a_call_that_is_given_up_while_its_arrays_are_sent_harms_no_other(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """The rest of it is sent even so, or the server would wait for that."""
    other = threads.submit(ask, client, "get_other")
    number = server.hear(Call).request
    with pytest.raises(TimeoutError, match="not answered in time"):
        client.call("take_much", {}, pack({"0": np.ones(LARGE, np.uint8)}), Deadline(0.05))
    call, payload = server.hear_all_of(Call)
    assert call.verb == "take_much"
    assert payload == b"\1" * LARGE
    server.say(Answer(request=number, value="well"))
    assert other.result(PATIENCE_S) == "well"
    assert not client.is_over()


FOUR = (ArrayLayout("0", "int64", (4,), 0),)


@pytest.mark.parametrize(
    ("arrays", "nbytes"),
    [
        (FOUR, 0),
        (FOUR, 31),
        ((ArrayLayout("0", "int64", (4,), 1),), 64),
        ((ArrayLayout("0", "int63", (4,), 0),), 64),
        ((ArrayLayout("0", "int64", (-1,), 0),), 64),
        (FOUR * 2, 64),
    ],
    ids=["no bytes", "too few", "not aligned", "no dtype", "no shape", "twice"],
)
def test_arrays_that_are_not_in_their_payload_end_the_connection(
    server: Puppet,
    client: RpcClient,
    threads: ThreadPoolExecutor,
    arrays: tuple[ArrayLayout, ...],
    nbytes: int,
) -> None:
    asked = threads.submit(client.call, "get_it", {}, NOTHING, soon())
    server.say(Answer(request=server.hear(Call).request, arrays=arrays), bytes(nbytes))
    with pytest.raises(ProtocolError):
        asked.result(PATIENCE_S)
    assert client.is_over()


# --- how many ------------------------------------------------------------------------------------


def test_so_many_are_on_their_way_and_who_ends_something_does_not_wait(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 33: a destroy is never behind those who wait."""
    asked = [threads.submit(ask, client, "fetch_one_sampled_message") for _ in range(AT_ONCE)]
    numbers = [server.hear(Call).request for _ in asked]
    last = threads.submit(ask, client, "get_node_types")
    with pytest.raises(TimeoutError, match=f"{AT_ONCE} other calls"):
        ask(client, "get_impatient", Deadline(0.0))
    assert server.is_quiet()
    destroy = threads.submit(ask, client, "destroy_sampling_input")
    call = server.hear(Call)
    assert call.verb == "destroy_sampling_input"
    server.say(Answer(request=call.request))
    assert destroy.result(PATIENCE_S) is None
    server.say(Answer(request=numbers.pop()))
    server.say(Answer(request=server.hear(Call).request, value="types"))
    assert last.result(PATIENCE_S) == "types"
    for number in numbers:
        server.say(Answer(request=number))
    assert {each.result(PATIENCE_S) for each in asked} == {None}


def test_who_waits_for_room_is_told_of_the_end(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    asked = [threads.submit(ask, client, "get_it") for _ in range(AT_ONCE)]
    for _ in asked:
        server.hear(Call)
    outside = [threads.submit(ask, client, "get_it") for _ in range(2)]
    until(lambda: len(client.calls.outside) == 2, "they wait for room")
    server.die()
    for each in (*asked, *outside):
        with pytest.raises(ConnectionError):
            each.result(PATIENCE_S)


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "error", "words"),
    [
        (
            Registered(request=1, channel=1, slots=1, most_bytes=1),
            ProtocolError,
            "Registered makes no sense now",
        ),
        (
            Refused(request=0, report=Report(kind="Overloaded", message="too much")),
            Overloaded,
            "too",
        ),
    ],
)
def test_a_message_that_ends_it_is_told_to_all(
    server: Puppet,
    client: RpcClient,
    threads: ThreadPoolExecutor,
    message: Message,
    error: type[Exception],
    words: str,
) -> None:
    asked = [threads.submit(ask, client, "get_it") for _ in range(3)]
    for _ in asked:
        server.hear(Call)
    server.say(message)
    for each in asked:
        with pytest.raises(error, match=words):
            each.result(PATIENCE_S)
    assert client.is_over()


def test_the_end_of_the_server_is_told_to_all_with_an_error_of_its_own(
    server: Puppet, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    asked = [threads.submit(ask, client, "get_it") for _ in range(3)]
    for _ in asked:
        server.hear(Call)
    server.die()
    errors = [each.exception(PATIENCE_S) for each in asked]
    assert all(isinstance(error, ConnectionError) for error in errors)
    assert len(set(map(id, errors))) == 3
    assert client.is_over()


def test_an_end_that_nobody_waited_for_is_found_by_looking(
    server: Puppet, client: RpcClient
) -> None:
    assert not client.is_over()
    server.die()
    until(client.is_over, "its end is known")
    with pytest.raises(ConnectionError):
        ask(client)


def test_closing_wakes_the_one_who_receives_and_those_who_wait(
    no_leaks: None, server: Puppet, threads: ThreadPoolExecutor
) -> None:
    client = RpcClient(opened(server, driven=True))
    asked = [threads.submit(ask, client, "get_it") for _ in range(3)]
    for _ in asked:
        server.hear(Call)
    until(lambda: client.reception.receiver is not None, "one of them receives")
    client.close()
    for each in asked:
        with pytest.raises(ConnectionError, match="closed"):
            each.result(PATIENCE_S)
    client.close()
    server.wait_for_end()


def test_a_client_that_is_dropped_is_closed(no_leaks: None, server: Puppet) -> None:
    RpcClient(opened(server, driven=True))
    assert server.wait_for_end() == [Goodbye()]


def test_closing_a_store_wakes_all_who_wait(server: Puppet, threads: ThreadPoolExecutor) -> None:
    with served(server, threads) as store:
        asked = [threads.submit(store.call, "get_node_types") for _ in range(3)]
        for _ in asked:
            server.hear(Call)
        store.close()
        for each in asked:
            with pytest.raises(ChannelClosed, match="was closed"):
                each.result(PATIENCE_S)
        server.wait_for_end()


def test_closing_takes_leave_also_while_somebody_waits(
    server: Puppet, threads: ThreadPoolExecutor
) -> None:
    with served(server, threads) as store:
        asked = threads.submit(store.call, "get_node_types")
        server.hear(Call)
        client = store._held._client
        assert client is not None
        until(lambda: client.reception.receiver is not None, "it receives")
        store.close()
        with pytest.raises(ChannelClosed):
            asked.result(PATIENCE_S)
        assert server.wait_for_end() == [Goodbye()]


@pytest.mark.parametrize("verb", ["init_sampling_backend", "server_statistics", "describe"])
def test_a_server_that_came_back_unseen_is_asked_at_once(
    server: Puppet, threads: ThreadPoolExecutor, verb: str
) -> None:
    """CONTRACT 41: the end of the old connection is known before anything is said over it."""
    with served(server, threads) as store:
        server.start_again()
        asked = threads.submit(store.call, verb)
        server.hear(Hello)
        server.say(server.welcome(boot="second"))
        server.say(Answer(request=server.hear(Call).request, value=verb))
        assert asked.result(PATIENCE_S)[0] == verb
        assert store.welcome.boot == "second"


@pytest.mark.parametrize(
    "verb", ["server_statistics", "describe", "is_channel_epoch_done", "get_node_types"]
)
def test_what_changes_nothing_is_asked_again(
    server: Puppet, threads: ThreadPoolExecutor, verb: str
) -> None:
    """CONTRACT 41"""
    assert {**VERBS, **TRANSPORT}[verb].traits.reads
    with served(server, threads) as store:
        asked = threads.submit(store.call, verb)
        server.hear(Call)
        server.start_again()
        server.hear(Hello)
        server.say(server.welcome(boot="second"))
        server.say(Answer(request=server.hear(Call).request, value="again"))
        assert asked.result(PATIENCE_S)[0] == "again"


def test_what_changes_something_is_asked_once(server: Puppet, threads: ThreadPoolExecutor) -> None:
    with served(server, threads) as store:
        asked = threads.submit(store.call, "init_sampling_backend")
        server.hear(Call)
        server.die()
        with pytest.raises(ServerGone, match="Whether it did so is not known"):
            asked.result(PATIENCE_S)


def test_what_a_server_does_not_survive_is_not_asked_for_ever(
    server: Puppet, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 41: it may be the question."""
    with served(server, threads) as store:
        asked = threads.submit(store.call, "get_node_types")
        for again in range(5):
            if again:
                server.welcome_the_next()
            server.hear(Call)
            server.hang_up()
        with pytest.raises(ServerGone, match="It has been asked 5 times"):
            asked.result(PATIENCE_S)


def test_patience_begins_when_the_server_is_lost(
    server: Puppet, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 41: a long answer does not use it up."""
    with served(server, threads, patience=0.5) as store:
        asked = threads.submit(store.call, "get_node_ids")
        server.hear(Call)
        spent = Deadline(0.6)
        until(lambda: spent.passed, "it takes longer than patience lasts")
        server.die()
        with pytest.raises(ServerGone, match=r"([2-9]|[0-9]{2,}) attempts to connect"):
            asked.result(PATIENCE_S)


@contextmanager
def served(
    server: Puppet, threads: ThreadPoolExecutor, patience: float = 30.0
) -> Iterator[RemoteServer]:
    """A store that is connected."""
    store = RemoteServer(server.endpoint, patience)
    with closing(store):
        connecting = threads.submit(store.connect, soon())
        server.welcome_the_next()
        connecting.result(PATIENCE_S)
        yield store
