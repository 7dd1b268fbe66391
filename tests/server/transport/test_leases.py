"""Ranks that vanish, ranks that are stopped, hubs that die: what is let go of, and who notices."""

from __future__ import annotations

import itertools
import logging
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from penstock import connect
from penstock.errors import HubGone, ProtocolError, ServerGone
from penstock.graph import Graph
from penstock.rpc.failures import error_of
from penstock.sampling.spec import NeighborSpec
from penstock.server.serving import Server, serve
from penstock.server.transport.session import MOST_UNREAD
from penstock.wire.framing import CHUNK, encode
from penstock.wire.messages import (
    Answer,
    BatchReady,
    Call,
    Heartbeat,
    Hello,
    Leaving,
    Refused,
    ReturnSlot,
)
from tests.client.graphs import expected
from tests.client.ranks import ROOT
from tests.processes import PATIENCE_S, stopped, strike, until
from tests.server.links import Link, cut
from tests.server.ranks import BareRank, channel_at
from tests.server.transport.strangers import frame

Ranks = Callable[..., BareRank]
LEASE = 1.5
# Of servers that take nobody for gone because it says nothing.
HOUR = 3600.0

# Of the graph of long rows: nodes, those of a batch of half a megabyte, and such batches.
WIDE = 2000
ROWS = 64
PIECES = 8 * WIDE // ROWS
SEEDS = NeighborSpec(num_neighbors=(0,))
# Messages in the server that are more than what the kernel takes at once when it has room again.
BEHIND = 256
# Bytes of a few batches.
LITTLE = 64 << 10
# Bytes of a refusal that names what it refuses, and more of them than may be left unread.
LONG = 8000
MANY = MOST_UNREAD // LONG + 100

# A channel that is read without a pause: of each batch the step, and the first of its seeds.
READER = """
import sys
import numpy as np
from tests.server.ranks import channel_at
from tests.server.transport.test_leases import SEEDS, WIDE
address, batches, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ids = np.resize(np.arange(WIDE), batches * rows)
with channel_at(address, ids, SEEDS, batch_size=rows, slots=100) as channel:
    channel.start(0)
    for batch in channel:
        print(batch.step, batch.arrays["n_id"][0], flush=True)
    print("registered again:", channel.statistics().recoveries, flush=True)
"""

# A rank in a process of its own, as users have them. It takes so many batches of an epoch, and then
# does something else, or nothing.
PROGRAM = """
import sys
from tests.client.graphs import SPEC, TERMS
from tests.server.ranks import channel_at
address, name, batches, slots, then = sys.argv[1:]
with channel_at(address, "train", SPEC, name=name, **{**TERMS, "slots": int(slots)}) as channel:
    channel.start(0)
    held = [channel.next(60.0) for _ in range(int(batches))]
    print("here", flush=True)
    while then == "computes":
        pass
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[Server]:
    """One that only lets go of ranks whose connection has ended."""
    with serve(graph, num_workers=1, lease=HOUR) as served:
        yield served


@pytest.fixture(scope="module")
def strict(graph: Graph) -> Iterator[Server]:
    """One whose leases are short."""
    with serve(graph, num_workers=1, lease=LEASE) as served:
        yield served


@contextmanager
def far_rank(
    server: Server, name: str, batches: int = 2, slots: int = 4, then: str = "waits"
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, server.address, name, str(batches), str(slots), then],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def is_here(server: Server, name: str) -> bool:
    return any(session.name == name for session in server.statistics().sessions)


def channels(server: Server) -> int:
    return int(server.hub.statistics()["hub"]["channels"])


# --- connections that end ---


def test_a_killed_rank_is_noticed_at_once_while_another_goes_on(
    server: Server, rank: Ranks, graph: Graph
) -> None:
    """CONTRACT 40, CONTRACT 72: long before its lease, which is an hour."""
    other = rank()
    other.register(split="train", slots=2)
    other.start()
    before, lost = channels(server), server.statistics().leases_lost
    with far_rank(server, "killed") as process:
        assert channels(server) == before + 1
        process.kill()
        until(lambda: not is_here(server, "killed"), "the killed rank is let go of")
        until(lambda: channels(server) == before, "its channel is freed")
    assert server.statistics().leases_lost > lost
    assert other.read() == expected(graph)


def test_a_rank_behind_a_cut_cable_is_noticed_by_tcp_whatever_it_says(
    strict: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """CONTRACT 72: nothing of what it is sent is acknowledged, though its signs of life come."""
    with BareRank(strict.address) as rank, caplog.at_level(logging.INFO):
        rank.greet(name="behind a cut cable")
        cut(rank.socket)

        def has_gone() -> bool:
            rank.stream.send(Heartbeat(reply=True))
            return not is_here(strict, "behind a cut cable")

        until(has_gone, "its session is over")
        assert "the connection was lost: Connection timed out" in caplog.text


@pytest.mark.parametrize("says", ["nothing", "batches"])
def test_a_host_that_has_vanished_is_noticed_by_its_silence(
    strict: Server, rank: Ranks, says: str
) -> None:
    """CONTRACT 72: neither side hears anything of the other any more."""
    vanished = rank(strict.address, name="vanished")
    (session,) = (one for one in strict._loop._state.sessions if one.hello.name == "vanished")
    if says == "batches":
        vanished.register(split="train")
        vanished.start()
    with socket.socket(fileno=os.dup(session.stream.fileno())) as other_end:
        cut(other_end)
    cut(vanished.socket)

    def has_gone() -> bool:
        vanished.stream.send(Heartbeat(reply=True))
        return not is_here(strict, "vanished")

    until(has_gone, "its session is over")
    until(lambda: channels(strict) == 0, "its channel is freed")


def _hang_up(rank: BareRank) -> None:
    rank.socket.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    "end",
    [BareRank.close, BareRank.reset, _hang_up],
    ids=["closed", "reset", "one direction closed"],
)
def test_the_end_of_a_connection_is_noticed_at_once(
    server: Server, rank: Ranks, end: Callable[[BareRank], None]
) -> None:
    """CONTRACT 72: with a channel, and with batches that were not read."""
    gone = rank(name="gone")
    gone.register(split="train")
    gone.start()
    gone.take()
    lost = server.statistics().leases_lost
    end(gone)
    until(lambda: not is_here(server, "gone"), "its session is over")
    until(lambda: channels(server) == 0, "its channel is freed")
    assert server.statistics().leases_lost == lost + 1


def test_what_was_said_before_the_end_of_a_connection_is_done(server: Server, rank: Ranks) -> None:
    """CONTRACT 72: who says Goodbye and goes was not lost."""
    lost = server.statistics().leases_lost
    polite = rank(name="polite")
    polite.goodbye()
    polite.close()
    until(lambda: not is_here(server, "polite"), "its session is over")
    assert server.statistics().leases_lost == lost


def test_after_goodbye_the_server_hangs_up_without_a_word(rank: Ranks) -> None:
    """CONTRACT 72"""
    polite = rank()
    polite.goodbye()
    assert polite.waits_for_end() == []


# --- silence ---


def test_a_rank_that_says_nothing_loses_its_lease(strict: Server, rank: Ranks) -> None:
    """CONTRACT 40, CONTRACT 72: although its host answers for it."""
    lost = strict.statistics().leases_lost
    silent = rank(strict.address, name="silent")
    silent.register(split="train")
    assert silent.waits_for_end() == []
    until(lambda: not is_here(strict, "silent"), "its session is over")
    until(lambda: channels(strict) == 0, "its channel is freed")
    assert strict.statistics().leases_lost == lost + 1


def test_signs_of_life_keep_a_lease(strict: Server, rank: Ranks) -> None:
    """CONTRACT 72"""
    alive = rank(strict.address, name="alive")

    def has_lived() -> bool:
        alive.live()
        return _seconds(strict, "alive") > 1.5 * LEASE

    until(has_lived, "more than a lease has gone by")
    assert alive.call("ping") == (None, {})


def test_a_sign_of_life_is_answered_if_it_is_asked_for(rank: Ranks) -> None:
    """CONTRACT 72: so a rank knows that the server lives, too."""
    asks = rank()
    asks.say(Heartbeat())
    asks.say(Heartbeat(reply=True))
    asks.say(Call(request=1, verb="ping"))
    heard: list[object] = []
    while len(heard) < 2:
        assert asks.stream.wait(PATIENCE_S)
        heard += asks.hear_all()
    assert heard == [Heartbeat(), Answer(request=1)]


def test_every_byte_is_a_sign_of_life(strict: Server, rank: Ranks) -> None:
    """CONTRACT 72: of a message that takes longer than a lease to arrive."""
    slow = rank(strict.address, name="slow")
    words = frame(encode(Call(request=1, verb="ping", arguments={"x": bytes(5000)})))
    sent = itertools.count()

    def has_lived() -> bool:
        at = next(sent)
        slow.say_raw(words[at : at + 1])
        return _seconds(strict, "slow") > 1.5 * LEASE

    until(has_lived, "more than a lease has gone by")
    slow.say_raw(words[next(sent) :])
    assert slow.hear(Answer).request == 1


def test_a_rank_that_does_not_read_but_gives_signs_of_life_keeps_its_lease(
    strict: Server, rank: Ranks
) -> None:
    """CONTRACT 9, CONTRACT 72: it may be waiting for others; its batches wait for it."""
    busy = rank(strict.address, name="busy")
    busy.register(split="train")
    busy.start()
    until(lambda: _kept_alive(busy, strict) > 1.5 * LEASE, "more than a lease has gone by")
    assert len(busy.read()) == 15


def _kept_alive(rank: BareRank, server: Server, name: str = "busy") -> float:
    """Says that it lives, without reading anything; for how long it has been there."""
    rank.stream.send(Heartbeat())
    rank.stream.flush(0.01)
    return _seconds(server, name)


def test_a_stopped_rank_loses_its_lease_and_nobody_else_notices(
    strict: Server, rank: Ranks, graph: Graph
) -> None:
    """CONTRACT 40"""
    other, epochs = rank(strict.address), itertools.count()
    other.register(split="train")
    with far_rank(strict, "stopped", batches=1) as process, stopped(process.pid):

        def is_let_go_of() -> bool:
            epoch = next(epochs)
            other.start(epoch)
            seen = other.read()
            assert seen == expected(graph, epoch) if epoch < 3 else len(seen) == 15
            return not is_here(strict, "stopped")

        until(is_let_go_of, "the stopped rank is let go of")
    assert other.call("ping") == (None, {})


@pytest.mark.parametrize("then", ["waits", "computes"])
def test_a_rank_whose_python_does_something_else_keeps_its_lease(strict: Server, then: str) -> None:
    """CONTRACT 40: its own thread says that it lives."""
    with far_rank(strict, "busy", then=then):
        until(lambda: _seconds(strict, "busy") > 1.5 * LEASE, "more than a lease has gone by")


def _seconds(server: Server, name: str) -> float:
    """For how long they have been there, those of one name."""
    return min(one.seconds for one in server.statistics().sessions if one.name == name)


# --- more on its way than the network takes ---


@pytest.fixture(scope="module")
def wide() -> Iterator[Graph]:
    """A graph of long rows."""
    rows = np.zeros((WIDE, 2000), np.float32)
    edges = np.random.default_rng(2).integers(0, WIDE, (2, 10 * WIDE))
    with Graph.from_coo(edges, WIDE, x=rows, train=np.arange(WIDE)) as made:
        yield made


@pytest.fixture(scope="module")
def wide_server(wide: Graph) -> Iterator[Server]:
    """One whose leases are short."""
    with serve(wide, num_workers=1, lease=LEASE) as served:
        yield served


@pytest.fixture(scope="module")
def patient(wide: Graph) -> Iterator[Server]:
    """One that leaves everybody as much time as a test may take."""
    with serve(wide, num_workers=1, lease=HOUR) as served:
        yield served


@pytest.fixture
def link(patient: Server) -> Iterator[Link]:
    """What the rank that is slow is behind."""
    with Link(patient.address) as made:
        yield made


@pytest.fixture
def slow(patient: Server, link: Link) -> Iterator[BareRank]:
    """A rank with more batches on their way to it than its link lets through, which is nothing."""
    with BareRank(link.address) as rank:
        rank.greet(name="slow")
        rank.register(
            spec=SEEDS, arrays={"ids": np.arange(WIDE)}, batch_size=1, shuffle=False, slots=600
        )
        link.shut()
        rank.start()
        until(lambda: _unsent(patient) > BEHIND, "much is on its way")
        yield rank
    until(lambda: not is_here(patient, "slow"), "it has gone")


def test_who_gives_slots_back_without_having_read_them_is_expelled(wide_server: Server) -> None:
    """CONTRACT 73: or batches without end would wait for it."""
    with BareRank(wide_server.address, kept=LITTLE) as blind:
        blind.greet(name="blind")
        blind.register(spec=SEEDS, split="train", batch_size=ROWS, shuffle=False, slots=30)
        blind.start()
        until(lambda: _unsent(wide_server, "blind") > 2, "much is on its way")
        (session,) = (one for one in wide_server._loop._state.sessions if one.relay is not None)
        assert session.relay is not None
        blind.say(ReturnSlot(channel=blind.channel, slot=max(session.relay._unsent)))
        until(lambda: not is_here(wide_server, "blind"), "it is hung up on")


def _unsent(server: Server, name: str = "slow") -> float:
    """What waits for a rank; more than any number if it was let go of already."""
    there = server.statistics().sessions
    return max((one.unsent for one in there if one.name == name and one.channel), default=math.inf)


def test_a_rank_stopped_with_more_on_its_way_than_the_kernel_takes_loses_its_lease_too(
    wide_server: Server,
) -> None:
    """CONTRACT 40"""
    with far_rank(wide_server, "stopped", slots=100) as process, stopped(process.pid):
        until(lambda: _unsent(wide_server, "stopped") > 0, "much is on its way")
        until(lambda: not is_here(wide_server, "stopped"), "the stopped rank is let go of")


def test_a_rank_that_reads_nothing_for_longer_than_a_lease_keeps_it_by_signs_of_life(
    wide_server: Server,
) -> None:
    """CONTRACT 9, CONTRACT 72: also when every buffer on the way to it is full."""
    with BareRank(wide_server.address, kept=LITTLE) as rank:
        rank.greet(name="full")
        rank.register(spec=SEEDS, split="train", batch_size=ROWS, shuffle=False, slots=30)
        rank.start()
        until(lambda: _unsent(wide_server, "full") > 0, "much is on its way")
        until(lambda: _kept_alive(rank, wide_server, "full") > 3 * LEASE, "three leases go by")
        assert len(rank.read()) == -(-WIDE // ROWS)


def test_a_rank_that_goes_on_the_moment_its_lease_has_ended_reads_on(wide: Graph) -> None:
    """CONTRACT 40, CONTRACT 41: with full buffers; none is lost, none twice, and nobody is told."""
    with (
        serve(wide, num_workers=1, lease=LEASE / 2) as server,
        subprocess.Popen(
            [sys.executable, "-c", READER, server.address, str(PIECES), str(ROWS)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline()]
            with stopped(process.pid):
                until(lambda: _unsent(server, "reader") > 0, "much is on its way")
                until(lambda: not _channels_of(server, "reader"), "it is let go of")
            lines += process.stdout
        finally:
            process.kill()
    firsts = [step * ROWS % WIDE for step in range(PIECES)]
    assert lines[:-1] == [f"{step} {first}\n" for step, first in enumerate(firsts)]
    assert lines[-1].startswith("registered again: ")
    assert int(lines[-1].split()[-1]) >= 1


def _channels_of(server: Server, name: str) -> list[int]:
    sessions = server.statistics().sessions
    return [session.channel for session in sessions if session.name == name and session.channel]


def test_a_rank_behind_a_slow_network_keeps_its_lease(wide_server: Server) -> None:
    """CONTRACT 40: what is on its way to it takes longer than a lease, and comes all the time."""
    lost = wide_server.statistics().leases_lost
    ids = np.tile(np.arange(WIDE), 4)
    with (
        Link(wide_server.address, bytes_a_second=1.5e6) as link,
        channel_at(link.address, ids, SEEDS, batch_size=ROWS, slots=100) as channel,
    ):
        channel.start(0)
        began = time.monotonic()
        while time.monotonic() - began < 2 * LEASE:
            assert channel.next(PATIENCE_S) is not None
        assert _unsent(wide_server, "reader") < math.inf
        assert channel.statistics().recoveries == 0
        # Not afterwards: the link may end before it has carried the goodbye.
        assert wide_server.statistics().leases_lost == lost
    until(lambda: not is_here(wide_server, "reader"), "it has gone")


def test_messages_that_were_read_are_not_held_against_a_rank_that_is_always_behind(
    patient: Server, link: Link, slow: BareRank
) -> None:
    """CONTRACT 9: more bytes of them than may wait at once, while something always waits."""
    refused = steps = 0

    def is_behind() -> bool:
        """It reads what has come, or nothing more would wait for it."""
        nonlocal refused, steps
        for message in slow.hear_all():
            refused += isinstance(message, Refused)
            if isinstance(message, BatchReady):
                assert message.batch.step == steps
                steps += 1
                slow.say(ReturnSlot(channel=slow.channel, slot=message.slot))
                slow.say(Call(request=1000 + steps, verb="x" * LONG))
        unsent = _unsent(patient)
        assert unsent < math.inf
        return unsent > BEHIND

    while refused < MANY or steps < MANY:
        until(is_behind, "it is behind")
        link.let_through(LITTLE)


def test_a_rank_that_leaves_too_many_messages_unread_is_hung_up_on(
    patient: Server, slow: BareRank
) -> None:
    """CONTRACT 41, CONTRACT 73: it could not be told; a loader then registers again, and goes on.

    Its Goodbye would have made it a polite end.
    """
    lost = patient.statistics().leases_lost
    messages = (Call(request=number, verb="x" * LONG) for number in range(1000, 1000 + 4 * MANY))
    # It may be hung up on before it has said them all.
    assert sum(1 for _ in itertools.takewhile(slow.say_if_connected, messages)) > 0
    until(lambda: not is_here(patient, "slow"), "its session is over")
    until(lambda: slow.is_hung_up_on, "its connection is closed")
    assert patient.statistics().leases_lost == lost + 1


# --- last words ---


@pytest.mark.parametrize("rows", [1, 4 * CHUNK // 8000], ids=["small batches", "large ones"])
def test_who_is_expelled_while_batches_are_written_reads_why_behind_whole_frames(
    patient: Server, rows: int
) -> None:
    """CONTRACT 72: what was begun is completed, what was not is dropped, and the reason comes."""
    with BareRank(patient.address, kept=LITTLE) as rank:
        rank.greet(name="expelled")
        ids = np.resize(np.arange(WIDE), 10 * WIDE)
        rank.register(spec=SEEDS, arrays={"ids": ids}, batch_size=rows, shuffle=False, slots=400)
        rank.start()
        until(lambda: _unsent(patient, "expelled") > 10, "much is on its way")
        rank.say(Hello(protocol=2, pid=1))
        *batches, refused = rank.waits_for_end()
    assert [batch.batch.step for batch in batches] == list(range(len(batches)))
    assert len(batches) < 400
    with pytest.raises(ProtocolError, match="Hello makes no sense now"):
        raise error_of(refused.report)
    assert refused.request == 0


def test_the_death_of_the_hub_is_told_and_ranks_register_again(graph: Graph) -> None:
    """CONTRACT 22, CONTRACT 72: the session is over, and the server hangs up."""
    with serve(graph, num_workers=1, lease=HOUR) as server:
        with BareRank(server.address) as reader:
            reader.greet()
            reader.register(split="train")
            reader.start()
            reader.take()
            assert strike(server.hub.pid)
            error = reader.waits_for_end()[-1]
            assert (error.request, error.report.kind) == (0, HubGone.__name__)
        with BareRank(server.address) as reader:
            reader.greet()
            reader.register(split="train")
            reader.start(0, first_step=1)
            assert reader.read() == expected(graph)[1:]


def test_a_server_that_leaves_says_so_and_waits_for_ranks(graph: Graph) -> None:
    with (
        serve(graph, num_workers=1, lease=HOUR) as server,
        BareRank(server.address) as reader,
    ):
        reader.greet()
        assert not server.drain(0.01)
        assert reader.hear(Leaving).reason == "it was asked to end"
        reader.ask_to_register(split="train")
        with pytest.raises(HubGone, match="the server is leaving"):
            raise reader.refusal()
        with BareRank(server.address) as late:
            late.hello()
            with pytest.raises(HubGone, match="the server is leaving"):
                raise late.refusal()
            assert late.waits_for_end() == []
        assert server.check_ready() == "the server is leaving"
        reader.goodbye()
        assert server.drain(PATIENCE_S)


def test_who_connects_to_a_server_that_leaves_hears_why_it_cannot(graph: Graph) -> None:
    with serve(graph, num_workers=1, lease=HOUR) as server, BareRank(server.address) as reader:
        reader.greet()
        assert not server.drain(0.01)
        with pytest.raises(
            ServerGone, match="the last: the server is leaving: it was asked to end"
        ):
            connect(server.address, timeout=1.0)
