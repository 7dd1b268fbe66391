"""Ranks of a server that vanish, stop, come and go: who notices, and what is left of them."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.graph import Graph
from tests.cli.servers import Running, serving
from tests.client.graphs import expected, small_graph
from tests.faults.far_rank import FarRank, due
from tests.faults.processes import descriptors, private_bytes
from tests.processes import PATIENCE_S, stopped, strike, until
from tests.server.bystanders import listened_to
from tests.server.ranks import BareRank, Parcel

LEASE = 4.0
# What a busy machine may add to a lease before anybody calls it late.
LATE = PATIENCE_S / 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("served") / "graph"
    with small_graph() as graph:
        graph.save(path)
    return path


@pytest.fixture(scope="module")
def graph(folder: Path) -> Iterator[Graph]:
    with Graph.open(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    """For tests that leave it as it was."""
    with listened_to(folder, "--workers", 2, "--lease", LEASE) as running:
        yield running


@pytest.fixture
def asking(server: Running) -> Iterator[Callable[[str], Any]]:
    """Asks the server for numbers."""
    with asked(server) as ask:
        yield ask


@contextmanager
def asked(server: Running) -> Iterator[Callable[[str], Any]]:
    with BareRank(server.address) as rank:
        rank.greet(name="asking")
        yield lambda verb: rank.call(verb)[0]


def names(numbers: dict[str, Any]) -> set[str]:
    return {session["name"] for session in numbers["sessions"]}


def test_a_killed_rank_is_gone_from_server_and_hub_within_its_lease(
    server: Running, graph: Graph, asking: Callable[[str], Any]
) -> None:
    """CONTRACT 40: the others get every batch, as if nothing had been."""
    with (
        FarRank(server.address, name="killed", hold_at=(0, 3)) as doomed,
        FarRank(server.address, name="well", hold_at=(0, 5)) as well,
    ):
        doomed.wait_at_hold()
        well.wait_at_hold()
        assert asking("hub_statistics")["hub"]["channels"] == 2
        strike(doomed.pid)
        began = time.monotonic()
        until(lambda: "killed" not in names(asking("server_statistics")), "its session is over")
        until(lambda: asking("hub_statistics")["hub"]["channels"] == 1, "its channel is gone")
        assert time.monotonic() - began < LEASE + LATE
        well.go_on()
        assert well.finish() == due(graph)


def test_a_rank_stopped_for_less_than_its_lease_keeps_its_channel(
    folder: Path, graph: Graph
) -> None:
    """CONTRACT 40: nothing is lost, nothing comes twice, and it was never taken for dead."""
    with (
        listened_to(folder, "--workers", 1, "--lease", PATIENCE_S) as server,
        asked(server) as asking,
        FarRank(server.address, name="paused", hold_at=(0, 3)) as rank,
    ):

        def sessions() -> set[int]:
            there = asking("server_statistics")["sessions"]
            return {session["number"] for session in there if session["name"] == "paused"}

        rank.wait_at_hold()
        before = sessions()
        with stopped(rank.pid):
            # What is tested is that this much time makes no difference: a heartbeat is missed.
            time.sleep(1.5)
        assert sessions() == before
        rank.go_on()
        assert rank.finish() == due(graph)
        assert sessions() <= before


def test_a_rank_stopped_for_longer_than_its_lease_resumes_with_the_batch_it_was_due(
    server: Running, graph: Graph, asking: Callable[[str], Any]
) -> None:
    """CONTRACT 40, CONTRACT 41: its slots are freed meanwhile; none lost, none twice."""
    with FarRank(server.address, name="stopped", hold_at=(0, 3)) as rank:
        rank.wait_at_hold()
        with stopped(rank.pid):
            until(lambda: "stopped" not in names(asking("server_statistics")), "its lease is over")
            until(lambda: asking("hub_statistics")["hub"]["channels"] == 0, "its slots are free")
        rank.go_on()
        assert rank.finish() == due(graph)


def test_a_worker_killed_under_a_far_rank_costs_it_nothing(
    server: Running, graph: Graph, asking: Callable[[str], Any]
) -> None:
    """CONTRACT 18, seen from a remote rank."""
    with FarRank(server.address, hold_at=(0, 2)) as rank:
        rank.wait_at_hold()
        for worker in asking("hub_statistics")["pool"]["workers"]:
            strike(worker["pid"])
        rank.go_on()
        assert rank.finish() == due(graph)


def test_ranks_that_come_and_go_at_random_leave_nothing(
    server: Running, graph: Graph, asking: Callable[[str], Any]
) -> None:
    """CONTRACT 40, CONTRACT 62: fifty of them, never counted beforehand; a reader is unharmed."""
    pid, before = server.process.pid, (0, 0)
    with BareRank(server.address) as reader:
        reader.greet(name="reader")
        reader.register(split="train", slots=2)
        for around in range(3):
            reader.start(around)
            _come_and_go(server.address, seed=around)
            assert reader.read() == expected(graph, around)
            until(lambda: names(asking("server_statistics")) == {"reader", "asking"}, "all left")
            until(lambda: asking("hub_statistics")["hub"]["channels"] == 1, "so did channels")
            assert asking("server_statistics")["input_bytes"] == 0
            if around == 0:  # which warms up threads and pools
                before = descriptors(pid), private_bytes(pid)
    until(lambda: descriptors(pid) <= before[0], "no descriptor is left")
    assert private_bytes(pid) < before[1] + (16 << 20)


def _come_and_go(address: str, seed: int, ranks: int = 50) -> None:
    """Ranks in this process that say hello, register, read a little, and leave in some way."""
    random_ = random.Random(seed)
    with ExitStack() as stack:
        there: list[BareRank] = []
        for number in range(ranks):
            rank = stack.enter_context(BareRank(address))
            there.append(rank)
            rank.greet(name=f"passing {number}")
            for step in range(random_.randrange(4)):
                (_register, _begin, _take)[step](rank)
            if random_.random() < 0.5:
                leaving = there.pop(random_.randrange(len(there)))
                random_.choice((_take_leave, BareRank.close, BareRank.reset))(leaving)


def _take_leave(rank: BareRank) -> None:
    rank.goodbye()
    rank.close()


def _register(rank: BareRank) -> None:
    rank.register(split="train", slots=2)


def _begin(rank: BareRank) -> None:
    rank.start()


def _take(rank: BareRank) -> None:
    assert isinstance(rank.take(), Parcel)


def test_a_server_told_to_end_lets_ranks_read_on_and_then_ends(folder: Path, graph: Graph) -> None:
    """CONTRACT 39: SIGTERM drains; who is in the middle of an epoch finishes it."""
    with serving(folder, "--workers", 1, "--grace", 50) as running:
        with FarRank(running.address, epochs=1, hold_at=(0, 3)) as rank:
            rank.wait_at_hold()
            running.process.send_signal(signal.SIGTERM)
            until(lambda: _is_leaving(running.address), "nobody new is let in")
            rank.go_on()
            assert rank.finish() == due(graph, 1)
        assert running.process.wait(PATIENCE_S) == 0


def _is_leaving(address: str) -> bool:
    with BareRank(address) as late:
        late.hello(name="late")
        return type(late.hear_any()[0]).__name__ == "Refused"
