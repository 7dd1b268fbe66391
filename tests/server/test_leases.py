"""Ranks that vanish, ranks that are stopped, hubs that die: what is let go of, and who notices."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import zmq

from penstock import connect
from penstock.errors import HubGone, ServerGone
from penstock.graph import Graph
from penstock.server.serving import Server, serve
from penstock.wire.remote import Leaving
from tests.client.graphs import expected
from tests.client.ranks import ROOT
from tests.processes import PATIENCE_S, stopped, strike, until
from tests.server.ranks import BareRank

Ranks = Callable[..., BareRank]
LEASE = 2.0

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


def test_a_rank_stopped_with_more_on_its_way_than_the_kernel_takes_loses_its_lease_too() -> None:
    """CONTRACT 40"""
    rows = np.zeros((2000, 2000), np.float32)
    edges = np.random.default_rng(2).integers(0, 2000, (2, 20000))
    with Graph.from_coo(edges, 2000, x=rows, train=np.arange(2000)) as wide:
        with serve(wide, num_workers=1, lease=LEASE) as server:
            with far_rank(server, "stopped", slots=100) as process, stopped(process.pid):
                until(lambda: _unsent(server) > 0, "much is on its way")
                until(lambda: not is_here(server, "stopped"), "the stopped rank is let go of")


def _unsent(server: Server) -> float:
    """What waits for the only rank there is; more than any number if it was let go of already."""
    return next((session.unsent for session in server.statistics().sessions), math.inf)


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
