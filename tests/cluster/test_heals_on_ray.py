"""Stores on a Ray cluster of four hosts, where hosts, servers and directories die repeatedly."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock import cluster
from penstock.cluster import StoreStatus, session
from penstock.errors import PenstockError
from penstock.graph import Graph
from penstock.testing.digests import digest_of
from tests.cluster.hosts import RayHosts
from tests.processes import strike, until
from tests.store.loading import Reading, everyday, joined, small_graph, torch, whole_epoch

__all__ = ["torch"]  # its warnings are dealt with where it is imported

pytestmark = pytest.mark.soak

LITTLE = {"CPU": 0.25}
PATIENT = {"patience": 120.0}


@pytest.fixture(scope="module")
def whole() -> Iterator[Graph]:
    with small_graph() as graph:
        yield graph


@pytest.fixture(scope="module")
def parts(whole: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heals") / "parts"
    whole.partition(4, folder, "hash")
    return folder


@pytest.fixture(scope="module")
def hosts() -> Iterator[RayHosts]:
    with RayHosts(4) as hosts, session.session():
        yield hosts


@pytest.fixture
def store(hosts: RayHosts, parts: Path) -> Iterator[StoreStatus]:
    """Four parts, each at two of four hosts."""
    yield cluster.up("many", parts, replicas=2, resources=LITTLE, progress=print)
    cluster.down("many")
    until(lambda: not hosts.servers(), "no server is left")


def hosts_of(store: StoreStatus, part: int) -> set[str | None]:
    return {each.node for each in store.servers if each.part == part}


def are_apart(store: StoreStatus) -> bool:
    return store.is_up and all(len(hosts_of(store, part)) == 2 for part in range(4))


@pytest.mark.parametrize("way", ["inline", "workers"])
def test_hosts_die_one_after_the_other(
    hosts: RayHosts, store: StoreStatus, whole: Graph, way: str
) -> None:
    """CONTRACT 67: each is replaced by another one; epochs have the same bytes all the while."""
    assert are_apart(store)
    assert len({each.node for each in store.servers}) == 4
    with joined("ray:many", **PATIENT) as data, everyday(data, way) as loader:
        seen = []
        for _ in range(4):
            reading = iter(loader)
            seen += [digest_of(next(reading)) for _ in range(9)]
            hosts.kill(random.choice(hosts.hosts))
            rest = Reading(reading)
            hosts.add_host()
            seen += rest.finish()
            until(lambda: are_apart(cluster.status("many")), "replicas are apart again")
        assert seen == whole_epoch(whole, 4)


def test_all_hosts_but_one_die_at_once(hosts: RayHosts, store: StoreStatus, whole: Graph) -> None:
    """CONTRACT 67: what is lost altogether is waited for, and comes elsewhere."""
    with joined("ray:many", **PATIENT) as data, everyday(data, "workers") as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(9)]
        for host in list(hosts.hosts):
            hosts.kill(host)
        rest = Reading(reading)
        for _ in range(3):
            hosts.add_host()
        assert seen + rest.finish() == whole_epoch(whole)
    until(lambda: are_apart(cluster.status("many")), "replicas are apart again")


def test_servers_parents_and_the_directory_are_killed(
    hosts: RayHosts, store: StoreStatus, whole: Graph
) -> None:
    """CONTRACT 66, 67: Ray makes actors anew, and servers report to a directory that is new."""
    with joined("ray:many", **PATIENT) as data, everyday(data, "workers") as loader:
        seen = []
        for _ in range(4):
            reading = iter(loader)
            seen += [digest_of(next(reading)) for _ in range(9)]
            victims = random.sample([each.pid for each in cluster.status("many").servers], 3)
            for pid in filter(None, victims[:2]):
                strike(pid)
            parent = psutil.Process(victims[2]).parent() if victims[2] else None
            strike(None if parent is None else parent.pid)
            strike(directory_pid())
            seen += Reading(reading).finish()
            until(lambda: cluster.status("many").is_up, "all serve")
        assert seen == whole_epoch(whole, 4)


def directory_pid() -> int:
    """The process of the directory, which Ray names so."""
    named = (each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"])
    return next(each.pid for each in named if each.info["cmdline"][0] == "ray::Directory")


def test_another_number_of_replicas_takes_the_place_under_readers(
    hosts: RayHosts, store: StoreStatus, parts: Path, whole: Graph
) -> None:
    with joined("ray:many", **PATIENT) as data, everyday(data, "workers") as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(9)]
        rest = Reading(reading)
        now = cluster.up("many", parts, replicas=1, resources=LITTLE, replace=True)
        assert len(now.servers) == 4
        assert seen + rest.finish() == whole_epoch(whole)


def test_what_cannot_start_is_told_and_leaves_nothing(
    hosts: RayHosts, parts: Path, tmp_path: Path
) -> None:
    shutil.copytree(parts, tmp_path / "damaged")
    (tmp_path / "damaged" / "part-2" / "manifest.json").write_text("{")
    with pytest.raises(PenstockError, match=r"cannot be brought up: .*part 2, replica 0: .*part-2"):
        cluster.up("damaged", tmp_path / "damaged", resources=LITTLE)
    until(lambda: not hosts.servers(), "no server is left")
    assert cluster.names() == []


def test_an_interrupted_start_leaves_nothing(hosts: RayHosts, parts: Path) -> None:
    """Ctrl-C, while it waits for room that there is not."""
    command = [sys.executable, "-m", "penstock", "up", "large", str(parts), "--resources", "CPU=64"]
    asking = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert asking.stderr is not None
    assert "waits for a host with CPU 64" in asking.stderr.readline()
    asking.send_signal(2)
    assert asking.wait(60) == 130
    asking.stderr.close()
    assert cluster.names() == []
