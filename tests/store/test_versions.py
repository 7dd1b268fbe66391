"""Servers of a store that are replaced under running readers: one by one, by more, by others."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.testing.digests import digest_of
from tests.processes import PATIENCE_S, until
from tests.store.loading import Reading, everyday, joined, small_graph, whole_epoch
from tests.store.servers import PartServer, StoreProcesses, free_port

pytestmark = pytest.mark.usefixtures("no_leaks_in_all")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the graph `parts`; of the same with one other number `later`; cut otherwise `others`."""
    path = tmp_path_factory.mktemp("versions")
    with small_graph() as graph, small_graph(shift=1.0) as later:
        graph.partition(2, path / "parts", "hash")
        later.partition(2, path / "later", "hash")
        graph.partition(2, path / "others", "range")
    return path


@pytest.fixture(scope="module")
def expected() -> list[str]:
    """Two epochs."""
    with small_graph() as graph:
        return whole_epoch(graph, 2)


def part(folder: Path, number: int, of: str = "parts") -> Path:
    return folder / of / f"part-{number}"


@pytest.fixture(scope="module")
def _once(folder: Path) -> Iterator[StoreProcesses]:
    with StoreProcesses([part(folder, 0), part(folder, 1)]) as servers:
        yield servers


@pytest.fixture
def once(_once: StoreProcesses, folder: Path) -> Iterator[StoreProcesses]:
    """Two servers; they have their parts again afterwards."""
    yield _once
    for number, server in enumerate(_once.servers):
        if server.folder != str(part(folder, number)):
            server.close()
            server.folder = str(part(folder, number))
    _once.restore()


@pytest.mark.parametrize(("way", "of"), [("inline", "others"), ("workers", "later")])
def test_a_server_that_comes_back_with_another_version_is_told_in_words(
    once: StoreProcesses, folder: Path, way: str, of: str
) -> None:
    """CONTRACT 71, and what the issue asks: running loaders are told, and get no other batch."""
    with joined(once.addresses) as data, everyday(data, way) as loader:
        reading = iter(loader)
        next(reading)
        once.servers[1].kill()
        once.servers[1].start(part(folder, 1, of))
        words = rf"part 1 of 2 has no server.*{once.servers[1].address}.*version"
        with pytest.raises(ps.ServerGone, match=words):
            for _ in reading:
                pass
        with pytest.raises(ps.ServerGone, match=words):
            data.get_node_feature()


def test_whoever_connects_to_two_versions_is_told(once: StoreProcesses, folder: Path) -> None:
    """CONTRACT 71: with both versions, and the address."""
    once.servers[0].kill()
    once.servers[0].start(part(folder, 0, "later"))
    with pytest.raises(ValueError, match=r"do not belong to one store.*version \w+.*version \w+"):
        ps.connect(once.addresses)
    with pytest.raises(ValueError, match="do not belong to one store"):
        ps.connect(once.addresses[1:])  # which names the other


def test_a_new_version_everywhere_is_read_by_those_who_come_anew(
    once: StoreProcesses, folder: Path
) -> None:
    """CONTRACT 71: old readers are told, new ones read the new graph."""
    with joined(once.addresses) as data, everyday(data) as loader:
        reading = iter(loader)
        next(reading)
        for number, server in enumerate(once.servers):
            server.kill()
            server.begin(part(folder, number, "later"))
        for server in once.servers:
            server.wait_until_up()
        with pytest.raises(ps.ServerGone, match="version"):
            for _ in reading:
                pass
        with joined(once.addresses) as anew, everyday(anew) as other, small_graph(1.0) as later:
            assert [digest_of(batch) for batch in other] == whole_epoch(later)


def test_servers_upgraded_one_by_one_change_no_byte(
    once: StoreProcesses, expected: list[str]
) -> None:
    """CONTRACT 67: each leaves as it should, and comes back; without replicas readers wait."""
    with joined(once.addresses[0]) as data, everyday(data, "workers") as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(3)]
        for server in once.servers:
            server.leave()
            server.begin()
            rest = Reading(next(reading) for _ in range(6))
            server.wait_until_up()
            seen += rest.finish()
        seen += Reading(reading).finish()
        assert seen == expected[: len(expected) // 2]
        assert loader.statistics().failed == 0


def test_an_upgrade_with_drain_under_replicas_is_not_noticed(
    folder: Path, expected: list[str]
) -> None:
    """CONTRACT 67: `penstock serve` ends by SIGTERM as it should, while an epoch runs.

    It does not wait for readers that wait for nothing, however long it would wait for others.
    """
    from tests.cli.servers import serving

    ports = [free_port() for _ in range(3)]
    store = ",".join(f"tcp://127.0.0.1:{port}" for port in ports)

    def served(number: int, port: int) -> Any:
        options = ("--workers", 1, "--store", store, "--grace", 600)
        return serving(part(folder, number), *options, port=port)

    with served(1, ports[2]), served(0, ports[0]) as first, served(0, ports[1]) as second:
        with joined(first.address) as data, everyday(data, "workers") as loader:
            reading = iter(loader)
            seen = [digest_of(next(reading)) for _ in range(3)]
            status, _ = first.end(signal.SIGTERM)
            assert status == 0
            seen += [digest_of(next(reading)) for _ in range(3)]
            with served(0, ports[0]):
                second.process.kill()
                seen += Reading(reading).finish()
            assert seen == expected[: len(expected) // 2]
            assert loader.statistics().failed == 0


def test_a_server_waits_for_no_reader_that_asks_nothing(folder: Path, expected: list[str]) -> None:
    """CONTRACT 67: it may end at once, and readers find it again."""
    with ps.serve(part(folder, 0), "tcp://127.0.0.1:0", num_workers=1) as first:
        with ps.serve(part(folder, 1), "tcp://127.0.0.1:0", num_workers=1) as second:
            with joined([first.address, second.address]) as data, everyday(data) as loader:
                reading = iter(loader)
                seen = [digest_of(next(reading)) for _ in range(3)]
                assert first.drain(PATIENCE_S)
                address = first.address
                first.close()
                with ps.serve(part(folder, 0), address, num_workers=1):
                    seen += [digest_of(batch) for batch in reading]
                assert seen == expected[: len(expected) // 2]


def test_ranks_of_a_part_alone_are_given_their_grace(folder: Path) -> None:
    """CONTRACT 67: they have channels at the server, and questions beside them."""
    with (
        ps.serve(part(folder, 0), "tcp://127.0.0.1:0", num_workers=1, part_only=True) as server,
        ThreadPoolExecutor(1) as threads,
    ):
        with ps.connect(server.address, part_only=True, same_host=False) as data:
            with everyday(data, "workers", part_only=True) as loader:
                reading = iter(loader)
                next(reading)
                drained = threads.submit(server.drain, PATIENCE_S)
                until(lambda: server.statistics().draining, "it has begun to leave")
                assert data.get_node_types() is None
                assert sum(1 for _ in reading) > 1
            assert not drained.done()
        assert drained.result()


def test_a_replica_that_is_added_live_is_used(
    once: StoreProcesses, folder: Path, expected: list[str]
) -> None:
    """CONTRACT 67: it announces itself; when the old one dies, nobody waits."""
    old = once.servers[1]
    added = PartServer(part(folder, 1), once.addresses[:1], free_port())
    with joined(once.addresses) as data, everyday(data, "workers") as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(3)]
        try:
            added.start()
            until(lambda: added.address in named_by(once), "the others name it")
            old.kill()
            seen += Reading(reading).finish()
            assert seen == expected[: len(expected) // 2]
            assert not old.is_up
        finally:
            added.close()


def named_by(store: StoreProcesses) -> tuple[str, ...]:
    """The servers that the first one names to whoever comes."""
    with ps.connect(store.addresses[0], part_only=True, same_host=False) as data:
        return tuple(data.partition.peers)
