"""What becomes of ranks when their server dies and comes back, or does not; and when they stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

import penstock as ps
from penstock.testing.digests import digest_of
from tests.loader.epochs import torch
from tests.loader.server_process import server_of
from tests.loader.servers import NODES, plain_graph
from tests.processes import stop, strike, until

WAYS = pytest.mark.parametrize("way", ["by TCP", "by shared memory"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "plain"
    with plain_graph() as graph:
        graph.save(path)
    return path


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[str]:
    with ps.Graph.open(folder) as graph, everyday(graph) as loader:
        return [digest_of(batch) for batch in loader]


def everyday(data: Any, **options: Any) -> Any:
    wanted = {"batch_size": 8, "shuffle": True, "seed": 3}
    return ps.NeighborLoader(data, [4, 3], "train", **(wanted | options))


def joined(address: str, way: str, **options: Any) -> Any:
    data = ps.connect(address, same_host=way == "by shared memory", **options)
    assert data.is_on_this_host == (way == "by shared memory")
    return data


@WAYS
def test_a_server_that_comes_back_is_gone_on_with(
    folder: Path, expected: list[str], way: str
) -> None:
    """CONTRACT 41: with the batch that was due; none is lost, none comes twice."""
    with (
        server_of(folder) as server,
        joined(server.address, way) as data,
        everyday(data, prefetch=2) as loader,
    ):
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(3)]
        server.kill()
        server.start(folder)
        seen += [digest_of(batch) for batch in reading]
        assert seen == expected
        assert loader.statistics().restarts_of_hub == 1
        assert torch.equal(data.get_node_ids("train"), torch.from_numpy(split(folder)))


def split(folder: Path) -> Any:
    with ps.Graph.open(folder) as graph:
        return graph.split("train").copy()


@WAYS
def test_a_rank_that_waits_goes_on_when_its_server_is_back(
    folder: Path, expected: list[str], way: str
) -> None:
    """CONTRACT 41: it is waiting while the server dies, and is not told of anything."""
    with (
        server_of(folder) as server,
        joined(server.address, way) as data,
        everyday(data, prefetch=1) as loader,
    ):
        reading, seen = iter(loader), list[str]()
        server.kill()  # before anything was read
        reader = threading.Thread(target=lambda: seen.extend(map(digest_of, reading)))
        reader.start()
        server.start(folder)
        reader.join()
        assert seen == expected


def test_a_hub_that_dies_under_its_server_is_gone_on_with(
    folder: Path, expected: list[str]
) -> None:
    with (
        server_of(folder) as server,
        joined(server.address, "by TCP") as data,
        everyday(data, prefetch=2) as loader,
    ):
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(3)]
        (worker,) = data.provider.statistics()["pool"]["workers"]
        strike(psutil.Process(worker["pid"]).ppid())
        seen += [digest_of(batch) for batch in reading]
        assert seen == expected


@WAYS
def test_a_server_that_does_not_come_back_is_named(folder: Path, way: str) -> None:
    """CONTRACT 41: with its address, what was tried, for how long, and the last error."""
    with (
        server_of(folder) as server,
        joined(server.address, way, patience=1.0) as data,
        everyday(data, prefetch=1) as loader,
    ):
        reading = iter(loader)
        next(reading)
        server.kill()
        words = rf"the server at {server.address} does not answer: \d+ attempts .*patience.*refused"
        with pytest.raises(ps.ServerGone, match=words):
            for _ in reading:
                pass
        with pytest.raises(ps.ServerGone, match=words):
            data.get_node_types()
        assert issubclass(ps.ServerGone, ps.HubGone)


@WAYS
def test_a_server_that_comes_back_with_another_graph_is_told_from_it(
    folder: Path, tmp_path: Path, way: str
) -> None:
    with plain_graph() as graph:  # the same, but for one number
        x = graph.node_attribute("x").copy()
        x[7] += 1
        other = ps.Graph.from_coo(graph.edge_index(), NODES, x=x, train=graph.split("train"))
        with other:
            other.save(tmp_path / "other")
    with (
        server_of(folder) as server,
        joined(server.address, way) as data,
        everyday(data, prefetch=1) as loader,
    ):
        reading = iter(loader)
        next(reading)
        server.kill()
        server.start(tmp_path / "other")
        with pytest.raises(ps.ServerGone, match="come back with another graph"):
            for _ in reading:
                pass


def test_nobody_there_is_waited_for_and_then_named() -> None:
    """A rank may be started before its server: `timeout` says how long it waits."""
    words = r"tcp://127.0.0.1:1 does not answer: \d+ attempts .*timeout.*refused"
    with pytest.raises(ps.ServerGone, match=words):
        ps.connect("tcp://127.0.0.1:1", timeout=1.0)


def test_a_rank_waits_for_a_server_that_is_started_after_it(folder: Path) -> None:
    with server_of(folder) as server:
        server.kill()
        found: list[Any] = []
        rank = threading.Thread(target=lambda: found.append(ps.connect(server.address)))
        rank.start()
        server.start(folder)
        rank.join()
        with found[0] as data:
            assert data.get_node_types() is None


def test_a_rank_stopped_beyond_its_lease_goes_on_where_it_was(
    folder: Path, expected: list[str]
) -> None:
    """CONTRACT 40, 41: its channel is let go of meanwhile; it registers again by itself."""
    with (
        server_of(folder, lease=1.0) as server,
        joined(server.address, "by TCP") as data,
        subprocess.Popen(
            [sys.executable, "-m", "tests.loader.remote_rank", server.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as rank,
    ):
        assert rank.stdin is not None
        assert rank.stdout is not None
        seen = [rank.stdout.readline().strip()]
        stop(rank.pid)
        until(lambda: not data.provider.statistics()["channels"], "the rank's channel is gone")
        os.kill(rank.pid, signal.SIGCONT)
        rank.stdin.write("\n" * len(expected))
        rank.stdin.close()
        seen += rank.stdout.read().split()
        assert rank.wait() == 0
        assert seen[:-1] == expected
        assert int(seen[-1]) >= 1  # a short lease may be lost again on a busy machine
