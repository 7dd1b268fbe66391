"""Servers that die, come back, or do not; and ranks that are there before them."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from penstock.graph import Graph
from tests.cli.servers import Running, serving
from tests.client.graphs import NODES, TRAIN, small_graph
from tests.faults.far_rank import FarRank, due
from tests.processes import PATIENCE_S, stopped, strike, until, wait_until_gone
from tests.server.transport.strangers import place_of


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


def killed(running: Running) -> None:
    """SIGKILL, and reaped."""
    strike(running.process.pid)
    running.process.wait(PATIENCE_S)


def port_of(running: Running) -> int:
    return place_of(running.address)[1]


def free_port() -> int:
    """One that is free, and that nobody gets who asks the kernel for any: so it stays free."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(lowest // 2, lowest)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def test_a_server_killed_and_started_again_goes_on_with_every_rank(
    folder: Path, graph: Graph
) -> None:
    """CONTRACT 41, CONTRACT 5: three by TCP and one by shared memory; none lost, none twice."""
    with serving(folder, "--workers", 2) as first, ExitStack() as stack:
        ranks = [
            stack.enter_context(
                FarRank(first.address, name=f"rank {number}", hold_at=(0, 4 + number))
            )
            for number in range(3)
        ]
        ranks.append(stack.enter_context(FarRank(first.address, same_host=True, hold_at=(1, 2))))
        for rank in ranks:
            rank.wait_at_hold()
        killed(first)
        for rank in ranks:
            rank.go_on()  # some find out before there is another
        with serving(folder, "--workers", 2, port=port_of(first)):
            assert [rank.finish() for rank in ranks] == [due(graph)] * 4


def test_a_server_killed_again_and_again_loses_nothing(folder: Path, graph: Graph) -> None:
    """CONTRACT 41"""
    with ExitStack() as stack:
        running = stack.enter_context(serving(folder, "--workers", 1))
        port = port_of(running)
        rank = stack.enter_context(FarRank(running.address, epochs=4))
        for batches in (3, 17, 18, 40):
            while len(rank.lines) < batches:
                rank.hear()
            killed(running)
            running = stack.enter_context(serving(folder, "--workers", 1, port=port))
        assert rank.finish() == due(graph, 4)


def test_a_hub_killed_under_a_server_is_replaced_and_ranks_go_on(
    folder: Path, graph: Graph
) -> None:
    """CONTRACT 22, seen from remote ranks."""
    with serving(folder, "--workers", 2) as running, ExitStack() as stack:
        ranks = [
            stack.enter_context(FarRank(running.address, hold_at=(0, 3 + number)))
            for number in range(2)
        ]
        for rank in ranks:
            rank.wait_at_hold()
        (hub,) = psutil.Process(running.process.pid).children()
        strike(hub.pid)
        wait_until_gone([hub.pid])
        for rank in ranks:
            rank.go_on()
        assert [rank.finish() for rank in ranks] == [due(graph)] * 2
        assert running.process.poll() is None


@pytest.mark.parametrize("same_host", [False, True], ids=["by TCP", "by shared memory"])
def test_a_server_that_stays_away_is_named_with_what_was_tried(
    folder: Path, same_host: bool
) -> None:
    """CONTRACT 41: within the rank's patience."""
    with serving(folder, "--workers", 1) as running:
        rank = FarRank(running.address, same_host=same_host, hold_at=(0, 3), patience=2.0)
        with rank:
            rank.wait_at_hold()
            killed(running)
            began = time.monotonic()
            rank.go_on()
            told = rank.error()
            assert time.monotonic() - began < 2.0 + PATIENCE_S / 2
    assert told["kind"] == "ServerGone"
    assert running.address in told["message"]
    assert "attempts to connect" in told["message"]
    assert "patience" in told["message"]


def test_a_server_that_is_stopped_is_named_to_a_rank_that_waits(folder: Path) -> None:
    """CONTRACT 41: its kernel answers for it, and lets in who comes; only it says nothing."""
    with serving(folder, "--workers", 1) as running:
        with FarRank(running.address, hold_at=(0, 3), patience=2.0) as rank:
            rank.wait_at_hold()
            with stopped(running.process.pid):
                rank.go_on()
                told = rank.error()
    assert told["kind"] == "ServerGone"
    assert running.address in told["message"]


def test_a_server_that_was_stopped_goes_on_with_a_rank_that_has_given_it_up(
    folder: Path, graph: Graph
) -> None:
    """CONTRACT 41: none lost, none twice, though both ends of the first connection live on."""
    with serving(folder, "--workers", 1) as running:
        with FarRank(running.address, hold_at=(0, 3)) as rank:
            rank.wait_at_hold()
            before = ports(rank.pid)
            with stopped(running.process.pid):
                rank.go_on()
                until(lambda: bool(ports(rank.pid) - before), "the rank connects again")
            assert rank.finish() == due(graph)


def ports(pid: int) -> set[int]:
    """Of its own ends of connections."""
    return {each.laddr.port for each in psutil.Process(pid).net_connections("tcp")}


@pytest.mark.parametrize("nodes", [300, NODES], ids=["a smaller one", "one of the same shape"])
@pytest.mark.parametrize("same_host", [False, True], ids=["by TCP", "by shared memory"])
def test_a_server_that_comes_back_with_another_graph_is_not_read_from(
    folder: Path, tmp_path: Path, same_host: bool, nodes: int
) -> None:
    """CONTRACT 41"""
    rng = np.random.default_rng(9)
    with Graph.from_coo(
        rng.integers(0, nodes, (2, 8 * NODES)),
        nodes,
        x=rng.normal(size=(nodes, 6)).astype("float32"),
        y=rng.integers(0, 4, nodes),
        train=rng.permutation(nodes)[:TRAIN],
    ) as other:
        other.save(tmp_path / "other")
    with serving(folder, "--workers", 1) as running:
        with FarRank(running.address, same_host=same_host, hold_at=(0, 3)) as rank:
            rank.wait_at_hold()
            killed(running)
            with serving(tmp_path / "other", "--workers", 1, port=port_of(running)):
                rank.go_on()
                told = rank.error()
    assert running.address in told["message"], told
    assert "graph" in told["message"]


def test_ranks_may_be_there_before_the_server(folder: Path, graph: Graph) -> None:
    """CONTRACT 62: start in any order."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    with FarRank(address, epochs=1) as far, FarRank(address, epochs=1, same_host=True) as near:
        time.sleep(0.3)  # long enough that they have looked in vain; if not, nothing is shown
        with serving(folder, "--workers", 1, port=port) as running:
            assert far.finish() == near.finish() == due(graph, 1)
            until(lambda: running.process.poll() is None, "the server goes on")


def test_a_server_killed_leaves_no_process_behind(folder: Path) -> None:
    """CONTRACT 29"""
    with (
        serving(folder, "--workers", 2) as running,
        FarRank(running.address, hold_at=(0, 0)) as rank,
    ):
        rank.wait_at_hold()  # there are no workers before somebody comes
        server, pids = psutil.Process(running.process.pid), set[int]()

        def all_are_here() -> bool:
            pids.update(one.pid for one in server.children(recursive=True))
            return len(pids) >= 3

        until(all_are_here, "a hub and two workers")
        killed(running)
        wait_until_gone(pids)
