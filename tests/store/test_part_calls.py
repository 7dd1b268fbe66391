"""A call to a part with two replicas: who is asked, who is asked too, and whose answer counts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from penstock.errors import Overloaded, ServerGone
from penstock.rpc.deadline import Deadline
from penstock.store.lateness import LEAST_S
from penstock.store.part_call import TIMES, PartCall
from penstock.store.servers import StoreServers
from penstock.wire.framing import CHUNK
from penstock.wire.messages import (
    Answer,
    Call,
    Hello,
    Leaving,
    PartitionNote,
    Refused,
    Report,
)
from penstock.wire.payload import pack
from tests.processes import until
from tests.rpc.puppets import PATIENCE_S, Puppet, frames, puppet
from tests.rpc.signals import interrupts, on_signal

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as found:
        yield found


class Store:
    """Two servers of the one part of a store, which say what a test has them say."""

    def __init__(self, ends: ExitStack, threads: ThreadPoolExecutor) -> None:
        self.servers = [ends.enter_context(puppet()) for _ in range(2)]
        addresses = [server.address for server in self.servers]
        finding = threads.submit(StoreServers.find, addresses, patience=PATIENCE_S)
        for server in self.servers:
            welcome(server)
        self.store = ends.enter_context(finding.result(PATIENCE_S))
        until(lambda: len(self.numbers("connected")) == 2, "both are connected")

    def begin(
        self, verb: str = "get_it", arrays: Any = None, into: Any = None
    ) -> tuple[PartCall, Puppet, Puppet]:
        """A call, the server that was asked, and the other one."""
        before = self.numbers("calls")
        call = self.store.begin(0, verb, {}, arrays, into)
        (asked,) = (at for at, calls in enumerate(self.numbers("calls")) if calls > before[at])
        return call, self.servers[asked], self.servers[1 - asked]

    def numbers(self, name: str) -> list[Any]:
        """A number of each server; or the servers that are in a state."""
        servers = self.store.statistics().servers
        if name == "connected":
            return [each for each in servers if each.state == name]
        return [getattr(each, name) for each in servers]

    def get_used_to(self, calls: int = 8) -> None:
        """Has calls answered at once, so that it is known what is late."""
        for _ in range(calls):
            call, asked, _ = self.begin()
            answer(asked)
            call.result()


def welcome(server: Puppet) -> None:
    server.welcome_the_next(boot=server.address, partition=PartitionNote(version="v"))


def answer(server: Puppet, value: Any = None) -> None:
    server.say(Answer(request=server.hear(Call).request, value=value))


@pytest.fixture
def replicas(no_leaks: None, threads: ThreadPoolExecutor) -> Iterator[Store]:
    with ExitStack() as ends:
        yield Store(ends, threads)


def test_the_server_with_fewer_unanswered_calls_is_asked(replicas: Store) -> None:
    calls = [replicas.begin()[0] for _ in range(6)]
    assert replicas.numbers("unanswered") == [3, 3]
    busy = replicas.servers[0]
    for _ in range(3):
        answer(replicas.servers[1], "free")
    until(lambda: sum(each.wait(0.01) for each in calls) == 3, "half of them are answered")
    for _ in range(3):
        _, asked, _ = replicas.begin()
        assert asked is not busy


def test_what_is_late_is_asked_of_another_server_too_and_the_first_answer_counts(
    replicas: Store, threads: ThreadPoolExecutor
) -> None:
    replicas.get_used_to()
    call, late, other = replicas.begin()
    request = late.hear(Call).request
    waiting = threads.submit(call.result)
    answer(other, "in time")
    assert waiting.result(PATIENCE_S)[0] == "in time"
    assert sorted(replicas.numbers("hedges")) == sorted(replicas.numbers("hedges_won")) == [0, 1]
    # Until it answers, the other one is preferred, however many calls that has.
    more = [replicas.begin() for _ in range(5)]
    assert all(asked is other for _, asked, _ in more)
    late.say(Answer(request=request, value="too late"))
    for each, _, _ in more:
        answer(other, "well")
        assert each.result()[0] == "well"
    until(lambda: sum(replicas.numbers("unanswered")) == 0, "the late answer has come")
    assert {replicas.begin()[1] for _ in range(2)} == {late, other}


def test_a_large_answer_that_is_on_its_way_is_not_late(
    replicas: Store, threads: ThreadPoolExecutor
) -> None:
    replicas.get_used_to()
    call, asked, other = replicas.begin()
    packed = pack({"0": np.arange(16 * CHUNK // 8)})
    said = Answer(request=asked.hear(Call).request, arrays=packed.arrays)
    pieces = frames(said, b"".join(packed.views), lane=1)
    waiting = threads.submit(call.result)
    for piece in pieces:
        asked.say_raw(piece)
        assert other.is_quiet()  # for a moment, so that all of them together are long
    assert np.array_equal(waiting.result(PATIENCE_S)[1]["0"], np.arange(16 * CHUNK // 8))
    assert replicas.numbers("hedges") == [0, 0]


def test_a_call_that_was_not_waited_for_is_not_late(replicas: Store) -> None:
    """Whoever computes meanwhile finds the answer there."""
    replicas.get_used_to()
    call, asked, other = replicas.begin()
    spent = Deadline(2 * LEAST_S)
    answer(asked, "there")
    until(lambda: spent.passed, "it takes longer than an answer usually does")
    assert call.result()[0] == "there"
    assert replicas.numbers("hedges") == [0, 0]
    assert other.is_quiet()


def test_a_lost_server_is_made_up_for_at_once(replicas: Store, threads: ThreadPoolExecutor) -> None:
    call, asked, other = replicas.begin("get_it", {"ids": np.arange(10)})
    asked.hear(Call)
    waiting = threads.submit(call.result)
    asked.die()
    heard, payload = other.hear_all_of(Call)
    assert (heard.verb, payload) == ("get_it", np.arange(10).tobytes())
    other.say(Answer(request=heard.request, value="well"))
    assert waiting.result(PATIENCE_S)[0] == "well"
    assert sorted(replicas.numbers("losses")) == [0, 1]


def test_a_call_that_ends_every_server_is_not_made_for_ever(
    replicas: Store, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 67: it may be what kills them."""
    call, asked, other = replicas.begin("get_killed")
    waiting = threads.submit(call.result)
    for time in range(TIMES):
        asked.hear(Call)
        asked.start_again()
        if time == 0:
            asked = other
        elif time < TIMES - 1:
            asked = next_visited(replicas)
            welcome(asked)
    with pytest.raises(ServerGone, match=f"lost {TIMES} times while they were asked to get_killed"):
        waiting.result(PATIENCE_S)


def next_visited(replicas: Store) -> Puppet:
    """The server that somebody connects to next."""
    until(lambda: any(each.has_visitors for each in replicas.servers), "somebody comes")
    return next(each for each in replicas.servers if each.has_visitors)


def test_a_server_that_is_full_leaves_a_call_to_another(
    replicas: Store, threads: ThreadPoolExecutor
) -> None:
    full = Report(kind="Overloaded", message="64 calls at once (setting: max_calls)")
    call, asked, other = replicas.begin()
    waiting = threads.submit(call.result)
    asked.say(Refused(request=asked.hear(Call).request, report=full))
    answer(other, "well")
    assert waiting.result(PATIENCE_S)[0] == "well"
    call, asked, other = replicas.begin()
    waiting = threads.submit(call.result)
    for each in (asked, other):
        each.say(Refused(request=each.hear(Call).request, report=full))
    with pytest.raises(Overloaded, match="max_calls"):
        waiting.result(PATIENCE_S)


def test_an_error_of_one_server_is_not_asked_of_another(
    replicas: Store, threads: ThreadPoolExecutor
) -> None:
    call, asked, other = replicas.begin()
    report = Report(kind="ValueError", message="ids[0] is 9")
    asked.say(Refused(request=asked.hear(Call).request, report=report))
    with pytest.raises(ValueError, match="ids"):
        call.result(PATIENCE_S)
    assert other.is_quiet()


def test_a_server_that_is_leaving_is_left(replicas: Store) -> None:
    """It need not wait for readers that have another one."""
    call, leaving, other = replicas.begin()
    leaving.say(Leaving(reason="it was asked to end", grace=PATIENCE_S))
    answer(leaving, "the last")
    assert call.result()[0] == "the last"
    for _ in range(4):
        more, asked, _ = replicas.begin()
        assert asked is other
        answer(other, "well")
        assert more.result()[0] == "well"
    leaving.wait_for_end()


def test_a_server_that_says_what_makes_no_sense_is_lost(
    replicas: Store, threads: ThreadPoolExecutor
) -> None:
    call, asked, other = replicas.begin()
    asked.hear(Call)
    waiting = threads.submit(call.result)
    asked.say_raw(b"\xff" * 64)
    answer(other, "well")
    assert waiting.result(PATIENCE_S)[0] == "well"


def test_waiting_a_little_at_a_time_makes_up_for_a_lost_server_too(replicas: Store) -> None:
    call, asked, other = replicas.begin()
    asked.hear(Call)
    asked.die()
    until(lambda: call.wait(0) or other.is_quiet() is False, "the other one is asked")
    answer(other, "well")
    until(lambda: call.wait(0), "it has come")
    assert call.result()[0] == "well"


# --- signals -------------------------------------------------------------------------------------


def test_an_interrupt_ends_one_call_alone(replicas: Store, threads: ThreadPoolExecutor) -> None:
    """A real signal, in the thread that receives for all servers."""
    call, asked, _ = replicas.begin("get_mine")
    asked.hear(Call)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        until(lambda: replicas.store.reception.receiver is not None, "the main thread waits")
        signal.pthread_kill(main, signal.SIGUSR1)

    with interrupts():
        striking = threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            call.result()
    striking.result(PATIENCE_S)
    call.abandon()
    more, asked, _ = replicas.begin("get_more")
    answer(asked, "well")
    assert more.result()[0] == "well"
    assert replicas.numbers("losses") == [0, 0]


def test_a_signals_handler_may_call_while_its_thread_waits(
    replicas: Store, threads: ThreadPoolExecutor
) -> None:
    found: list[Any] = []
    outer, first, second = replicas.begin("get_outer")
    request = first.hear(Call).request
    main = threading.main_thread().ident
    assert main is not None

    def answering() -> None:
        until(lambda: replicas.store.reception.receiver is not None, "the main thread waits")
        signal.pthread_kill(main, signal.SIGUSR1)
        answer(second, "inner")
        until(lambda: bool(found), "the handler has its answer")
        first.say(Answer(request=request, value="outer"))

    with on_signal(lambda: found.append(replicas.store.call(0, "get_inner")[0])):
        told = threads.submit(answering)
        assert outer.result()[0] == "outer"
    told.result(PATIENCE_S)
    assert found == ["inner"]


# --- another graph -------------------------------------------------------------------------------


def test_a_replica_that_comes_back_with_another_version_is_not_asked(replicas: Store) -> None:
    call, asked, other = replicas.begin()
    asked.hear(Call)
    asked.start_again()
    assert not call.wait(0.01)
    answer(other, "well")
    assert call.result()[0] == "well"
    asked.hear(Hello)
    asked.say(asked.welcome(boot="second", partition=PartitionNote(version="w")))
    until(lambda: "refused" in replicas.numbers("state"), "it is refused")
    (trouble,) = (each for each in replicas.numbers("trouble") if each)
    assert "version w" in trouble
