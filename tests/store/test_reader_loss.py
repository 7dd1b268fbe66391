"""Readers of a store that lose their workers, their hub or their own life; servers stay."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from penstock import CustomSpec, PenstockError, SharedDistSamplingBackend, WorkerDied
from penstock.graph import Graph
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.server import RemoteServer
from penstock.testing.digests import digest_of
from tests.faults.houses import MOODY
from tests.processes import PATIENCE_S, stop, stopped, strike, until, wait_until_gone
from tests.store.loading import Reading, everyday, joined, small_graph, whole_epoch
from tests.store.rank import Rank, read
from tests.store.servers import StoreProcesses

pytestmark = pytest.mark.usefixtures("no_leaks_in_all")

LEASE_S = 1.0


@pytest.fixture(scope="module")
def whole() -> Iterator[Graph]:
    with small_graph() as graph:
        yield graph


@pytest.fixture(scope="module")
def expected(whole: Graph) -> list[str]:
    return whole_epoch(whole)


@pytest.fixture(scope="module")
def due(whole: Graph) -> list[str]:
    """What ranks say that read the whole list."""
    return list(read(whole, num_workers=0))


@pytest.fixture(scope="module")
def store(whole: Graph, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcesses]:
    """Two parts, at two servers that let a silent reader go soon."""
    parts = whole.partition(2, tmp_path_factory.mktemp("readers") / "parts", "hash")
    with StoreProcesses(parts, lease=LEASE_S) as servers:
        yield servers


@pytest.fixture(scope="module")
def data(store: StoreProcesses) -> Iterator[Any]:
    """What the tests read that kill or stop workers and the hub: these are replaced."""
    with joined(store.addresses) as found:
        yield found


def workers_of(data: Any) -> list[int]:
    return [each["pid"] for each in data.hub_statistics()["pool"]["workers"]]


# --- workers and the hub -------------------------------------------------------------------------


def test_a_killed_worker_costs_no_batch(data: Any, expected: list[str]) -> None:
    """CONTRACT 18, 67: one at a time, then all at once."""
    with everyday(data, "workers") as loader:
        seen = []
        for step, batch in enumerate(loader):
            seen.append(digest_of(batch))
            if step == 4:
                strike(workers_of(data)[0])
            if step == 20:
                for pid in workers_of(data):
                    strike(pid)
        assert seen == expected
        assert loader.statistics().failed == 0


def test_a_stopped_worker_is_replaced_past_the_deadline(data: Any, expected: list[str]) -> None:
    """CONTRACT 51, 67: its batch is made by another one, of the same answers."""
    with everyday(data, "workers", deadline=2.0) as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading))]
        victim = workers_of(data)[0]
        stop(victim)
        seen += Reading(reading).finish()
        assert seen == expected
        strike(victim, signal.SIGCONT)


def test_a_killed_hub_is_replaced(data: Any, expected: list[str]) -> None:
    """CONTRACT 22, 67: the new one finds the servers, and goes on with the batch that is due."""
    with everyday(data, "workers") as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(5)]
        assert strike(data.provider.pid)
        seen += Reading(reading).finish()
        assert seen == expected
        assert loader.statistics().restarts_of_hub == 1


def test_a_stopped_hub_goes_on(data: Any, expected: list[str]) -> None:
    """CONTRACT 67: its workers are idle meanwhile, and the servers do not miss it."""
    with everyday(data, "workers") as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(3)]
        with stopped(data.provider.pid):
            rest = Reading(reading)
            assert not rest.is_over
        assert seen + rest.finish() == expected


def test_workers_and_servers_may_die_together(
    data: Any, store: StoreProcesses, expected: list[str]
) -> None:
    """CONTRACT 18, 67: workers that wait for a server are killed; others wait after them."""
    with everyday(data, "workers") as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(3)]
        store.servers[1].kill()
        rest = Reading(reading)
        for pid in workers_of(data):
            strike(pid)
        store.servers[1].start()
        assert seen + rest.finish() == expected


def test_a_batch_that_kills_workers_costs_its_attempts_in_all(data: Any) -> None:
    """CONTRACT 19, 67: not so many for each server; the others are not affected."""
    spec = CustomSpec(sampler=MOODY, options={"acts": {"5": "vanishes"}})
    lost = attempts_lost(data)
    with SharedDistSamplingBackend(data.provider, spec, num_workers=2) as backend:
        backend.register_input("bad", "train", batch_size=12, max_attempts=3)
        backend.start_new_epoch_sampling("bad", 0)
        found, failed = [], []
        while True:
            try:
                batch = backend.next_batch("bad", PATIENCE_S)
            except PenstockError as error:
                failed.append(error)
                continue
            if batch is None:
                break
            found.append(batch.index)
    assert found == [index for index in range(20) if index != 5]
    assert [type(error) for error in failed] == [WorkerDied]
    assert attempts_lost(data) - lost == 3


def attempts_lost(data: Any) -> int:
    """How often a batch has lost its worker, in all channels of the hub."""
    data.provider.start()
    return int(data.hub_statistics()["scheduler"]["totals"]["attempts_lost"])


# --- ranks ---------------------------------------------------------------------------------------


@contextmanager
def looked_at(address: str) -> Iterator[Any]:
    """Asks a server for its statistics, as `penstock status` does."""
    server = RemoteServer(Endpoint(address, name="looking"))
    try:
        server.connect(Deadline(PATIENCE_S))
        yield lambda: server.call("server_statistics", {}, {})[0]
    finally:
        server.close()


def are_connected(look: Any, family: list[psutil.Process]) -> bool:
    """Whether the server has a connection to any of these processes."""
    return not {each.pid for each in family}.isdisjoint(each["pid"] for each in look()["sessions"])


def family_of(rank: Rank) -> list[psutil.Process]:
    """A rank, its hub and its workers."""
    process = psutil.Process(rank.pid)
    return [*process.children(recursive=True), process]


def test_a_killed_rank_leaves_nothing_and_disturbs_nobody(
    store: StoreProcesses, due: list[str]
) -> None:
    """CONTRACT 40, 67: its hub and workers end; servers let its connections go."""
    with (
        looked_at(store.addresses[0]) as look,
        Rank(store.addresses[:1]) as doomed,
        Rank(store.addresses) as other,
    ):
        seen = other.read(3)
        assert doomed.read(5) == due[:5]
        family = family_of(doomed)
        assert len(family) >= 4  # a hub and two workers
        assert are_connected(look, family)
        strike(doomed.pid)
        wait_until_gone([each.pid for each in family])
        until(lambda: not are_connected(look, family), "its connections are gone")
        assert seen + other.finish() == due


@pytest.mark.parametrize("way", ["inline", "workers"])
def test_a_rank_stopped_beyond_its_lease_goes_on_where_it_was(
    store: StoreProcesses, due: list[str], way: str
) -> None:
    """CONTRACT 40, 67: with all that belongs to it; servers have let it go meanwhile."""
    with looked_at(store.addresses[0]) as look, Rank(store.addresses, way=way) as rank:
        seen = rank.read(4)
        family = family_of(rank)
        for process in family:
            stop(process.pid)
        until(lambda: not are_connected(look, family), "its connections were let go")
        for process in family:
            strike(process.pid, signal.SIGCONT)
        assert seen + rank.finish() == due


def test_ranks_share_the_list_of_batches_of_a_split(store: StoreProcesses, due: list[str]) -> None:
    """CONTRACT 6, 66: rank r of two takes every second batch of the one list."""
    with (
        Rank(store.addresses[:1], rank=0, world_size=2) as even,
        Rank(store.addresses[1:], rank=1, world_size=2, way="inline") as odd,
    ):
        assert (even.finish(), odd.finish()) == (due[::2], due[1::2])
