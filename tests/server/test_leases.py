"""Ranks that vanish, ranks that are stopped, hubs that die: what is let go of, and who notices."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
import zmq

from penstock import connect
from penstock.errors import HubGone, ServerGone
from penstock.graph import Graph
from penstock.sampling.spec import NeighborSpec
from penstock.server import router
from penstock.server.serving import Server, serve
from penstock.wire.messages import BatchReady, ReturnSlot
from penstock.wire.remote import Answer, Call, Leaving
from tests.client.graphs import expected
from tests.client.ranks import ROOT
from tests.processes import PATIENCE_S, stopped, strike, until
from tests.server.links import Link
from tests.server.ranks import BareRank, channel_at

Ranks = Callable[..., BareRank]
LEASE = 2.0

# Of the graph of long rows: nodes, those of a batch of half a megabyte, and such batches.
WIDE = 2000
ROWS = 64
PIECES = 8 * WIDE // ROWS
SEEDS = NeighborSpec(num_neighbors=(0,))
# More words than may be left unread.
MANY = 1100
# Messages in the server that are more than what ZeroMQ and the kernel take at once when they have
# room again.
BEHIND = 256
# Bytes of a few batches.
LITTLE = 64 << 10

# A channel that is read without a pause: of each batch the step, and the first of its seeds.
READER = """
import sys
import numpy as np
from tests.server.ranks import channel_at
from tests.server.test_leases import SEEDS, WIDE
address, batches, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ids = np.resize(np.arange(WIDE), batches * rows)
with channel_at(address, ids, SEEDS, batch_size=rows, slots=100) as channel:
    channel.start(0)
    for batch in channel:
        print(batch.step, batch.arrays["n_id"][0], flush=True)
    print("enrolled again:", channel.statistics().recoveries, flush=True)
"""

# A rank in a process of its own. It reads so many batches of an epoch, and then nothing.
PROGRAM = """
import sys
from tests.server.ranks import BareRank, visitors
address, name, batches, slots = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with visitors() as context, BareRank(address, context) as rank:
    rank.greet(name=name)
    rank.enroll(split="train", slots=slots)
    rank.start()
    held = [rank.take() for _ in range(batches)]
    print("here", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[Server]:
    """One whose leases are short."""
    with serve(graph, num_workers=1, lease=LEASE) as served:
        yield served


@contextmanager
def far_rank(
    server: Server, name: str, batches: int = 2, slots: int = 4
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, server.address, name, str(batches), str(slots)],
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


def test_a_killed_rank_is_freed_within_its_lease_while_another_goes_on(
    server: Server, rank: Ranks, graph: Graph
) -> None:
    """CONTRACT 40"""
    other = rank()
    other.enroll(split="train", slots=2)
    other.start()
    before, lost = channels(server), server.statistics().leases_lost
    with far_rank(server, "killed") as process:
        assert channels(server) == before + 1
        process.kill()
        began = time.monotonic()
        until(lambda: not is_here(server, "killed"), "the killed rank is let go of")
        until(lambda: channels(server) == before, "its channel is freed")
        assert time.monotonic() - began < LEASE + PATIENCE_S / 4
    assert server.statistics().leases_lost == lost + 1
    assert other.read() == expected(graph)


def test_a_stopped_rank_loses_its_lease_and_nobody_else_notices(
    server: Server, rank: Ranks, graph: Graph
) -> None:
    """CONTRACT 40"""
    other = rank()
    other.enroll(split="train")
    with far_rank(server, "stopped", batches=1) as process, stopped(process.pid):
        for epoch in range(3):
            other.start(epoch)
            assert other.read() == expected(graph, epoch)
        until(lambda: not is_here(server, "stopped"), "the stopped rank is let go of")
    assert other.call("ping") == (None, {})


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
    with serve(wide, num_workers=1, lease=PATIENCE_S) as served:
        yield served


@pytest.fixture
def link(patient: Server) -> Iterator[Link]:
    """What the rank that is slow is behind."""
    with Link(patient.address) as made:
        yield made


@pytest.fixture
def slow(patient: Server, link: Link, context: zmq.Context[Any]) -> Iterator[BareRank]:
    """A rank with more batches on their way to it than its link lets through, which is nothing."""
    with BareRank(link.address, context, stays_away=True) as rank:
        rank.greet(name="slow")
        rank.enroll(
            spec=SEEDS, arrays={"ids": np.arange(WIDE)}, batch_size=1, shuffle=False, slots=600
        )
        link.shut()
        rank.start()
        until(lambda: _unsent(patient) > BEHIND, "much is on its way")
        yield rank
    until(lambda: not is_here(patient, "slow"), "it has gone")


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


def test_a_rank_that_goes_on_the_moment_its_lease_has_ended_reads_on(
    wide: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 40, CONTRACT 41: with full buffers; none is lost, none twice, and nobody is told.

    Who is first to find that it does not read is a matter of moments: here it is the door, and not
    ZeroMQ or the kernel, which leave nothing to tell.
    """
    set_up = router._set_up
    monkeypatch.setattr(router, "_set_up", lambda socket, _: set_up(socket, PATIENCE_S))
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
    assert lines[-1].startswith("enrolled again: ")
    assert int(lines[-1].split()[-1]) >= 1


def _channels_of(server: Server, name: str) -> list[int]:
    sessions = server.statistics().sessions
    return [session.channel for session in sessions if session.name == name and session.channel]


def test_a_rank_behind_a_slow_network_keeps_its_lease(wide_server: Server) -> None:
    """CONTRACT 40: ZeroMQ shows no room for longer than a lease, and bytes come all the time."""
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


def test_words_that_were_read_are_not_held_against_a_rank_that_is_always_behind(
    patient: Server, link: Link, slow: BareRank
) -> None:
    """CONTRACT 9: a thousand batches and a thousand answers, while something always waits."""
    answers = steps = 0

    def is_behind() -> bool:
        """It reads what has come, or nothing more would wait for it."""
        nonlocal answers, steps
        for word in slow.hear_all():
            answers += isinstance(word, Answer)
            if isinstance(word, BatchReady):
                assert word.batch.step == steps
                steps += 1
                slow.say(ReturnSlot(channel=slow.channel, slot=word.slot))
                slow.say(Call(request=1000 + steps, verb="ping"))
        unsent = _unsent(patient)
        assert unsent < math.inf
        return unsent > BEHIND

    while answers < MANY or steps < MANY:
        until(is_behind, "it is behind")
        link.let_through(LITTLE)


def test_a_rank_that_leaves_too_many_words_unread_is_hung_up_on(
    patient: Server, slow: BareRank
) -> None:
    """CONTRACT 41: it could not be told; a loader then enrols again, and goes on."""
    with closing(slow.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)) as monitor:
        words = (Call(request=1000 + number, verb="ping") for number in range(2000))
        # It may be hung up on before it has said them all.
        assert sum(1 for _ in itertools.takewhile(slow.say_if_connected, words)) > 0
        until(lambda: not is_here(patient, "slow"), "its session is over")
        until(lambda: bool(monitor.poll(0)), "its connection is closed")
        slow.socket.disable_monitor()


def test_a_rank_that_is_busy_keeps_its_lease(server: Server) -> None:
    """Its Python does nothing; ZeroMQ's own thread answers for it."""
    with far_rank(server, "busy"):
        until(lambda: _seconds(server, "busy") > 1.5 * LEASE, "more than a lease has gone by")


def _seconds(server: Server, name: str) -> float:
    (seconds,) = [one.seconds for one in server.statistics().sessions if one.name == name]
    return seconds


def test_the_death_of_the_hub_is_told_and_ranks_enrol_again(
    graph: Graph, context: zmq.Context[Any]
) -> None:
    """CONTRACT 22"""
    with serve(graph, num_workers=1) as server, BareRank(server.address, context) as reader:
        reader.greet()
        reader.enroll(split="train")
        reader.start()
        reader.take()
        assert strike(server.hub.pid)
        error = None
        while error is None:
            message, _ = reader.hear_any()
            if type(message).__name__ == "Refused":
                error = message
        assert (error.request, error.report.kind) == (0, HubGone.__name__)
        reader.greet()
        reader.enroll(split="train")
        reader.start(0, first_step=1)
        assert reader.read() == expected(graph)[1:]


def test_a_server_that_leaves_says_so_and_waits_for_ranks(
    graph: Graph, context: zmq.Context[Any]
) -> None:
    with serve(graph, num_workers=1) as server, BareRank(server.address, context) as reader:
        reader.greet()
        assert not server.drain(0.01)
        assert reader.hear(Leaving).reason == "it was told to end"
        reader.ask_to_enroll(split="train")
        with pytest.raises(HubGone, match="the server is leaving"):
            raise reader.refusal()
        with BareRank(server.address, context) as late:
            late.knock()
            with pytest.raises(HubGone, match="the server is leaving"):
                raise late.refusal()
        with pytest.raises(ServerGone, match="the last: the server is leaving: it was told to end"):
            connect(server.address, timeout=1.0)
        assert server.check_ready() == "the server is leaving"
        reader.goodbye()
        assert server.drain(PATIENCE_S)
