"""Stores on a real Ray cluster of two hosts: brought up, read, killed, healed, taken down.

All tests share the cluster and two stores, and run in this order: the last ones kill and take down.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from click.testing import CliRunner, Result

from penstock import cluster
from penstock.cli import main
from penstock.cluster import ServerStatus, StoreStatus, session
from penstock.errors import PenstockError
from penstock.graph import Graph
from penstock.testing.digests import digest_of
from tests.cluster.hosts import RayHosts
from tests.processes import strike, until, wait_until_gone
from tests.store.loading import Reading, everyday, joined, small_graph, torch, whole_epoch

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "ray.md"

__all__ = ["torch"]  # its warnings are dealt with where it is imported


@pytest.fixture(scope="module")
def whole() -> Iterator[Graph]:
    with small_graph() as graph:
        yield graph


@pytest.fixture(scope="module")
def expected(whole: Graph) -> list[str]:
    return whole_epoch(whole)


@pytest.fixture(scope="module")
def folder(whole: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph in two parts, and in one."""
    folder = tmp_path_factory.mktemp("ray")
    whole.partition(2, folder / "two", "hash")
    whole.partition(1, folder / "one")
    return folder


@pytest.fixture(scope="module")
def hosts() -> Iterator[RayHosts]:
    with RayHosts(2) as hosts, session.session():
        yield hosts


@pytest.fixture(scope="module")
def stores(hosts: RayHosts, folder: Path) -> tuple[StoreStatus, StoreStatus]:
    """Brought up at once: two parts with a server each, and one part with two servers."""
    with ThreadPoolExecutor() as threads:
        once = threads.submit(cluster.up, "once", folder / "two")
        twice = threads.submit(cluster.up, "twice", folder / "one", replicas=2)
        return once.result(), twice.result()


@pytest.fixture(scope="module")
def once(stores: tuple[StoreStatus, StoreStatus]) -> StoreStatus:
    """A store with one server for each of two parts."""
    return stores[0]


@pytest.fixture(scope="module")
def twice(stores: tuple[StoreStatus, StoreStatus]) -> StoreStatus:
    """A store with two servers for its one part."""
    return stores[1]


def penstock(*words: object) -> Result:
    """What a command does, in this process: Ray is connected already."""
    return CliRunner().invoke(main, [str(word) for word in words])


def test_a_store_is_spread_and_read_by_its_name(
    hosts: RayHosts, once: StoreStatus, twice: StoreStatus, expected: list[str]
) -> None:
    """CONTRACT 66, 71: the same bytes as from the graph at hand, over TLS, from all parts."""
    assert once.is_up
    assert twice.is_up
    assert len({each.node for each in once.servers}) == 2
    assert len({each.node for each in twice.servers}) == 2
    with joined("ray:once") as data, everyday(data, "workers") as loader:
        assert [digest_of(batch) for batch in loader] == expected
        assert {*data.address.split(",")} == {*once.addresses}
        assert data.address.count("tls://") == 2
    for server in hosts.servers():
        maps = Path(f"/proc/{server.pid}/maps").read_text()
        assert not [name for name in ("_raylet", "libtorch", "libarrow") if name in maps]
    # Ray has its workers give way to all else; a server is as any other process, where it may be.
    for each in (*once.servers, *twice.servers):
        assert psutil.Process(each.pid).nice() == each.niceness
    # Servers know each other, and nobody else: a stranger knows neither authority nor token.
    with pytest.raises(PenstockError), joined(once.addresses[0], num_workers=0, timeout=1.0):
        pass


def test_bringing_up_what_is_up_changes_nothing(once: StoreStatus, folder: Path) -> None:
    told: list[str] = []
    again = cluster.up("once", folder / "two", progress=told.append)
    assert again == once
    assert told == ["the store once is up already: looking whether it lacks anything"]
    done = penstock("up", "once", folder / "two", "--resources", "CPU=1", "--json")
    assert json.loads(done.stdout)["servers"] == [*msgspec.to_builtins(once.servers)]


def test_another_store_of_the_same_name_is_refused(once: StoreStatus, folder: Path) -> None:
    words = "with replicas 1 instead of 2; take it down first"
    with pytest.raises(ValueError, match=f"name is 'once': a store of that name is up, {words}"):
        cluster.up("once", folder / "two", replicas=2)
    assert cluster.status("once") == once


@pytest.mark.usefixtures("once", "twice")
def test_an_unknown_name_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="no store of that name; there are once, twice; did you"):
        joined("ray:onc").__enter__()
    assert cluster.names() == ["once", "twice"]


@pytest.mark.usefixtures("hosts")
def test_what_has_no_room_is_told_and_leaves_nothing(folder: Path) -> None:
    words = r"is not up in time .*: part 0 replica 0, part 1 replica 0: waits for a host with "
    with pytest.raises(
        PenstockError, match=f"{words}CPU 64 free; Ray has 2 hosts with CPU 8 in all"
    ):
        cluster.up("large", folder / "two", resources={"CPU": 64}, wait=0.5)
    assert "large" not in cluster.names()


def test_a_killed_server_is_started_again_in_its_place(
    hosts: RayHosts, once: StoreStatus, expected: list[str]
) -> None:
    """CONTRACT 67: readers wait for it, and go on with what they were due."""
    with joined("ray:once") as data, everyday(data, "workers") as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(5)]
        strike(once.servers[1].pid)
        assert seen + Reading(reading).finish() == expected
    now = cluster.status("once")
    assert now.addresses == once.addresses  # its port was free
    assert now.servers[1].pid != once.servers[1].pid
    assert now.servers[1].starts == 2
    assert "was ended by SIGKILL" in now.servers[1].trouble


def test_status_shows_where_servers_are(twice: StoreStatus) -> None:
    shown = penstock("status", "ray:twice")
    assert not shown.exit_code, shown.stderr
    for each in twice.servers:
        assert each.address is not None
        assert shown.stdout.count(each.address) == 2  # as Ray has placed it, and as it answers
    told: dict[str, Any] = json.loads(penstock("status", "ray:twice", "--json").stdout)
    assert told["ray"]["is_up"]
    assert told["store"]["missing"] == []


def test_the_guide_works_as_it_is_written(
    hosts: RayHosts, twice: StoreStatus, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = GUIDE.read_text().replace('"parts/"', repr(str(folder / "one")))
    text = text.replace('"products"', '"twice"').replace("ray:products", "ray:twice")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(compile(block, "a block of the guide", "exec"), names)
    assert names["store"] == twice
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(" 127")[0] for line in shown] == [
        "part 0 replica 0 serving",
        "part 0 replica 1 serving",
    ]


@pytest.mark.usefixtures("once")
def test_a_directory_that_was_told_something_wrong_is_told_again() -> None:
    """As by a parent on a host that Ray has given up, which reports once more before it ends."""
    with session.session() as ray:
        directory = session.directory_of(ray, "once")
        before = ray.get(directory.look.remote()).reports
        stale = msgspec.structs.replace(before[0], address="tls://127.0.0.1:1", node="gone")
        ray.get(directory.report.remote(stale))
        until(lambda: set(ray.get(directory.look.remote()).reports) == set(before), "it is right")


@pytest.mark.usefixtures("once")
def test_a_parent_that_ray_has_given_up_is_told_and_made_anew(folder: Path) -> None:
    with session.session() as ray:
        lost = ray.get_actor("once/part-1/replica-0", namespace=session.NAMESPACE)
        ray.kill(lost, no_restart=True)
        until(lambda: cluster.status("once").missing == (1,), "it is told")
    assert "Ray has given its parent up" in cluster.status("once").servers[1].trouble
    now = cluster.up("once", folder / "two")
    assert now.is_up
    assert now.servers[0].pid == cluster.status("once").servers[0].pid
    assert psutil.pid_exists(now.servers[1].pid or 0)


def test_what_an_interrupted_end_has_left_is_replaced(folder: Path, expected: list[str]) -> None:
    with session.session() as ray:  # the directory is the first to go
        ray.kill(session.directory_of(ray, "once"), no_restart=True)
        until(lambda: "once" not in session.actor_names(ray), "it is gone")
    with pytest.raises(ValueError, match="whoever did it was interrupted: penstock down once"):
        cluster.status("once")
    assert cluster.up("once", folder / "two").is_up
    with joined("ray:once") as data, everyday(data) as loader:
        assert [digest_of(batch) for batch in loader] == expected


@pytest.mark.usefixtures("once")
def test_a_rank_that_disconnects_from_ray_reads_on_and_starts_no_cluster() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DISCONNECTING], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["True", "False", "True"], done.stderr


DISCONNECTING = """
import time
import penstock as ps
import ray
with ps.connect("ray:once", num_workers=0) as data:
    print(ray.is_initialized())
    ray.shutdown()
    time.sleep(1.5)  # longer than until the name is looked up again
    data.get_node_label()
    print(ray.is_initialized())
    ray.init(address="auto", log_to_driver=False)
print(ray.is_initialized())  # which is the user's
"""


def waiting_of(name: str) -> list[ServerStatus]:
    """The servers of a store that wait for Ray, which learns of a dead host by and by."""
    return [each for each in cluster.status(name).servers if each.state == "waiting"]


def test_a_dead_host_is_made_up_for_by_replicas_and_by_other_hosts(
    hosts: RayHosts, once: StoreStatus, twice: StoreStatus, expected: list[str]
) -> None:
    """CONTRACT 66, 67: with replicas nobody waits; without, until Ray has another host."""
    with (
        joined("ray:twice") as safe,
        joined("ray:once") as alone,
        everyday(safe) as of_safe,
        everyday(alone, "workers") as of_alone,
    ):
        first, second = iter(of_safe), iter(of_alone)
        seen = [digest_of(next(first)) for _ in range(5)]
        waiting = [digest_of(next(second)) for _ in range(5)]
        states = {"connected"}
        until(lambda: {each.state for each in safe.servers.statistics().servers} == states, "both")
        servers = hosts.kill(hosts.hosts[0])
        assert len(servers) >= 2
        seen += [digest_of(batch) for batch in first]
        rest = Reading(second)
        wait_until_gone(servers)  # they do not outlive their parents
        assert seen == expected
        assert safe.servers.statistics().waits == 0
        assert waiting + rest.finish() == expected
    now = cluster.status("once")
    assert {each.node for each in now.servers} == {hosts.head.node_id}
    assert now.addresses != once.addresses
    # A replica waits for a host of its own, and does not join the other one.
    wish = "waits for 2 hosts, one for each replica, with CPU 1 free"
    until(lambda: any(wish in each.trouble for each in waiting_of("twice")), "Ray knows of it")
    assert len(waiting_of("twice")) == 1
    hosts.add_host()
    until(lambda: cluster.status("twice").is_up, "the replica is back")
    assert len({each.node for each in cluster.status("twice").servers}) == 2


def test_a_store_is_taken_down_and_nothing_is_left(hosts: RayHosts) -> None:
    done = penstock("down", "once")
    assert (done.exit_code, done.stdout) == (0, "once is down\n"), done.stderr
    cluster.down("twice")
    until(lambda: not hosts.servers(), "no server is left")
    assert cluster.names() == []
    with session.session() as ray:
        total = ray.cluster_resources()["CPU"]
        until(lambda: ray.available_resources().get("CPU") == total, "nothing is reserved")
    done = penstock("down", "once")
    assert done.exit_code == 1
    assert "Ray has no store of that name, nor any other" in done.stderr
