"""Questions of many threads over one connection: who gets which answer, and what an end does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
import zmq

from penstock.client.deadline import Deadline
from penstock.client.remote.store import Store
from penstock.client.remote.switchboard import AT_ONCE, Switchboard
from penstock.errors import ChannelClosed, Overloaded, ProtocolError, ServerGone
from penstock.wire.bulk import pack
from penstock.wire.messages import Refused, Report
from penstock.wire.remote import Answer, Call, Enrolled, Goodbye, Knock, Part
from tests.client.remote.puppets import (
    PATIENCE_S,
    Puppet,
    soon,
)
from tests.processes import until

NOTHING = pack({})


def ask(board: Switchboard, verb: str = "ping", deadline: Deadline | None = None) -> Any:
    return board.call(verb, {}, NOTHING, deadline or soon())[0]


def test_each_gets_its_own_answer_in_whatever_order_they_come(
    server: Puppet, board: Switchboard, threads: ThreadPoolExecutor
) -> None:
    verbs = [f"get_{number}" for number in range(8)]
    asked = {verb: threads.submit(ask, board, verb) for verb in verbs}
    heard = [server.hear(Call) for _ in verbs]
    for call in reversed(heard):
        server.say(Answer(request=call.request, value=call.verb))
    assert {verb: each.result(PATIENCE_S) for verb, each in asked.items()} == {
        verb: verb for verb in verbs
    }


def test_an_error_is_raised_where_it_was_asked_for(
    server: Puppet, board: Switchboard, threads: ThreadPoolExecutor
) -> None:
    patient = threads.submit(ask, board, "get_patience")
    first = server.hear(Call).request
    refused = threads.submit(ask, board, "get_refused")
    report = Report(kind="Overloaded", message="there is no room")
    server.say(Refused(request=server.hear(Call).request, report=report))
    with pytest.raises(Overloaded, match="no room"):
        refused.result(PATIENCE_S)
    server.say(Answer(request=first, value="at last"))
    assert patient.result(PATIENCE_S) == "at last"


def test_an_answer_that_comes_too_late_is_nobody_elses(
    server: Puppet, board: Switchboard, threads: ThreadPoolExecutor
) -> None:
    """Nor does it end the connection: what others have hangs on it."""
    packed = pack({"0": np.arange(10)})
    with pytest.raises(TimeoutError, match="not answered in time"):
        ask(board, "get_late", Deadline(0.05))
    late = server.hear(Call).request
    server.say(Answer(request=late, value="late", bulk=packed.bulk))
    asked = threads.submit(ask, board, "get_next")
    call = server.hear(Call)
    server.say(Answer(request=call.request, value="next"))
    for offset, data in packed.parts():
        server.say(Part(request=late, offset=offset), bytes(data))
    assert asked.result(PATIENCE_S) == "next"
    again = threads.submit(ask, board, "get_again")
    server.say(Answer(request=server.hear(Call).request, value="again"))
    assert again.result(PATIENCE_S) == "again"
    assert board._connection.arrays_of(late) == {}


def test_who_listens_and_stops_hands_it_on(
    server: Puppet, board: Switchboard, threads: ThreadPoolExecutor
) -> None:
    """Whoever asked first listens; when it gives up, the others still get what they wait for."""
    first = threads.submit(ask, board, "get_first", Deadline(0.5))
    server.hear(Call)
    others = [threads.submit(ask, board, "get_other") for _ in range(3)]
    numbers = [server.hear(Call).request for _ in others]
    with pytest.raises(TimeoutError):
        first.result(PATIENCE_S)
    for number in numbers:
        server.say(Answer(request=number, value=number))
    assert {each.result(PATIENCE_S) for each in others} == set(numbers)


def test_an_interrupt_is_one_callers_alone(
    server: Puppet, board: Switchboard, threads: ThreadPoolExecutor
) -> None:
    """A real signal, in the thread that listens."""
    with interrupts():
        main = threading.main_thread().ident
        assert main is not None

        def interrupt() -> int:
            server.hear(Call)
            other = threads.submit(ask, board, "get_other")
            number = server.hear(Call).request
            signal.pthread_kill(main, signal.SIGUSR1)
            others.append(other)
            return number

        others: list[Any] = []
        number = threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            ask(board, "get_mine")
        server.say(Answer(request=number.result(PATIENCE_S), value="well"))
        assert others[0].result(PATIENCE_S) == "well"


def test_a_signals_handler_may_ask_while_its_thread_waits_for_an_answer(
    server: Puppet, board: Switchboard, threads: ThreadPoolExecutor
) -> None:
    found: list[Any] = []
    main = threading.main_thread().ident
    assert main is not None

    def answer() -> None:
        first = server.hear(Call)
        until(lambda: board._somebody_listens, "the main thread waits")
        signal.pthread_kill(main, signal.SIGUSR1)
        second = server.hear(Call)
        server.say(Answer(request=first.request, value=first.verb))
        server.say(Answer(request=second.request, value=second.verb))

    before = signal.signal(signal.SIGUSR1, lambda *_: found.append(ask(board, "get_inner")))
    try:
        answering = threads.submit(answer)
        assert ask(board, "get_outer") == "get_outer"
        answering.result(PATIENCE_S)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found == ["get_inner"]


@contextmanager
def interrupts() -> Iterator[None]:
    """SIGUSR1 does what Ctrl-C does, and is nobody else's."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


# --- arrays --------------------------------------------------------------------------------------


def test_arrays_travel_both_ways(
    server: Puppet, board: Switchboard, threads: ThreadPoolExecutor
) -> None:
    numbers = np.arange(1000)
    packed = pack({"0": numbers * 2})
    asked = threads.submit(board.call, "double", {"by": 2}, pack({"0": numbers}), soon())
    call = server.hear(Call)
    assert (call.verb, call.arguments, call.bulk.nbytes) == ("double", {"by": 2}, 8000)
    assert server.hear(Part).request == call.request
    server.say(Answer(request=call.request, value="fine", bulk=packed.bulk))
    for offset, data in packed.parts(piece=4096):
        server.say(Part(request=call.request, offset=offset), bytes(data))
    value, arrays = asked.result(PATIENCE_S)
    assert value == "fine"
    assert np.array_equal(arrays["0"], numbers * 2)


def test_a_question_that_is_broken_off_in_its_middle_ends_the_connection(
    server: Puppet,
    board: Switchboard,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server would wait for the rest of it."""
    other = threads.submit(ask, board, "get_other")
    server.hear(Call)
    really = board._connection.has_sent
    monkeypatch.setattr(  # there is never room for more than the question itself
        board._connection, "has_sent", lambda message, *data: not data and really(message)
    )
    with pytest.raises(TimeoutError, match="has not listened"):
        board.call("double", {}, pack({"0": np.arange(3)}), Deadline(0.05))
    with pytest.raises(ConnectionError, match="broken off"):
        other.result(PATIENCE_S)
    assert board.is_over


# --- how many ------------------------------------------------------------------------------------


def test_so_many_are_on_their_way_and_who_ends_something_does_not_wait(
    server: Puppet, board: Switchboard, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 33: a destroy is never behind those who wait."""
    asked = [threads.submit(ask, board, "fetch_one_sampled_message") for _ in range(AT_ONCE)]
    numbers = [server.hear(Call).request for _ in asked]
    last = threads.submit(ask, board, "get_node_types")
    with pytest.raises(TimeoutError, match=f"{AT_ONCE} other questions"):
        ask(board, "get_impatient", Deadline(0.0))
    assert server.is_quiet()
    destroy = threads.submit(ask, board, "destroy_sampling_input")
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


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "error", "words"),
    [
        (Enrolled(request=1, channel=1, slots=1, most_bytes=1), ProtocolError, "expected Answer"),
        (
            Refused(request=0, report=Report(kind="Overloaded", message="too much")),
            Overloaded,
            "too",
        ),
    ],
)
def test_a_word_that_ends_it_is_told_to_all(
    server: Puppet,
    board: Switchboard,
    threads: ThreadPoolExecutor,
    word: Any,
    error: type[Exception],
    words: str,
) -> None:
    asked = [threads.submit(ask, board, "get_it") for _ in range(3)]
    for _ in asked:
        server.hear(Call)
    server.say(word)
    for each in asked:
        with pytest.raises(error, match=words):
            each.result(PATIENCE_S)
    assert board.is_over


def test_closing_wakes_all_who_wait(server: Puppet, threads: ThreadPoolExecutor) -> None:
    with served(server, threads) as store:
        asked = [threads.submit(store.call, "get_it") for _ in range(3)]
        for _ in asked:
            server.hear(Call)
        store.close()
        for each in asked:
            with pytest.raises(ChannelClosed, match="was closed"):
                each.result(PATIENCE_S)
        server.hear(Goodbye)


@pytest.mark.parametrize("verb", ["init_sampling_backend", "server_statistics", "describe"])
def test_a_server_that_came_back_unseen_is_asked_at_once(
    server: Puppet, threads: ThreadPoolExecutor, verb: str
) -> None:
    """CONTRACT 41: the end of the old connection is known before anything is said over it."""
    with served(server, threads) as store:
        board = store._held._switchboard
        assert board is not None
        with restarted(server):
            until(lambda: board._end is not None or board.is_over, "its end is known")
            asked = threads.submit(store.call, verb)
            server.hear(Knock)
            server.say(server.greeting(boot="second"))
            server.say(Answer(request=server.hear(Call).request, value=verb))
            assert asked.result(PATIENCE_S)[0] == verb


@pytest.mark.parametrize(
    "verb", ["server_statistics", "describe", "is_channel_epoch_done", "get_node_types"]
)
def test_what_changes_nothing_is_asked_again(
    server: Puppet, threads: ThreadPoolExecutor, verb: str
) -> None:
    """CONTRACT 41"""
    with served(server, threads) as store:
        asked = threads.submit(store.call, verb)
        server.hear(Call)
        with restarted(server):
            server.hear(Knock)
            server.say(server.greeting(boot="second"))
            server.say(Answer(request=server.hear(Call).request, value="again"))
            assert asked.result(PATIENCE_S)[0] == "again"


def test_what_changes_something_is_asked_once(server: Puppet, threads: ThreadPoolExecutor) -> None:
    with served(server, threads) as store:
        asked = threads.submit(store.call, "init_sampling_backend")
        server.hear(Call)
        server.router.close()
        with pytest.raises(ServerGone, match="Whether it did so is not known"):
            asked.result(PATIENCE_S)


def test_patience_begins_when_the_server_is_lost(
    server: Puppet, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 41: a long answer does not use it up."""
    with served(server, threads, patience=0.5) as store:
        asked = threads.submit(store.call, "get_much")
        server.hear(Call)
        spent = Deadline(0.6)
        until(lambda: spent.passed, "it takes longer than patience lasts")
        server.router.close()
        with pytest.raises(ServerGone, match=r"([2-9]|[0-9]{2,}) attempts to connect"):
            asked.result(PATIENCE_S)


@contextmanager
def served(server: Puppet, threads: ThreadPoolExecutor, patience: float = 30.0) -> Iterator[Store]:
    """A store that is connected."""
    store = Store(server.door, patience)
    with closing(store):
        connecting = threads.submit(store.connect, soon())
        server.hear(Knock)
        server.say(server.greeting())
        connecting.result(PATIENCE_S)
        yield store


@contextmanager
def restarted(server: Puppet) -> Iterator[None]:
    """Another start of it, at the same address."""
    server.router.close()
    context: zmq.Context[Any] = zmq.Context()
    try:
        server.router = context.socket(zmq.ROUTER)
        server.router.linger = 0
        until(lambda: _is_bound(server), "the address is free")
        yield
    finally:
        server.router.close()
        context.term()


def _is_bound(server: Puppet) -> bool:
    try:
        server.router.bind(server.address)
    except zmq.ZMQError:
        return False
    return True
