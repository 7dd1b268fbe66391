"""Servers of a store that are killed, or stopped, under readers: with replicas, and without."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.graph import Graph
from penstock.testing.digests import digest_of
from tests.processes import until
from tests.store.loading import WAYS, Reading, everyday, joined, small_graph, torch, whole_epoch
from tests.store.servers import StoreProcesses

pytestmark = pytest.mark.usefixtures("no_leaks_in_all")

every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(scope="module")
def whole() -> Iterator[Graph]:
    with small_graph() as graph:
        yield graph


@pytest.fixture(scope="module")
def expected(whole: Graph) -> list[str]:
    """Two epochs."""
    return whole_epoch(whole, 2)


@pytest.fixture(scope="module")
def parts(whole: Graph, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return whole.partition(2, tmp_path_factory.mktemp("loss") / "parts", "hash")


@pytest.fixture(scope="module")
def _twice(parts: list[Path]) -> Iterator[StoreProcesses]:
    with StoreProcesses(parts, replicas=2) as servers:
        yield servers


@pytest.fixture(scope="module")
def _once(parts: list[Path]) -> Iterator[StoreProcesses]:
    with StoreProcesses(parts) as servers:
        yield servers


@pytest.fixture
def twice(_twice: StoreProcesses) -> Iterator[StoreProcesses]:
    """Two parts, each at two servers; all are up again afterwards."""
    yield _twice
    _twice.restore()


@pytest.fixture
def once(_once: StoreProcesses) -> Iterator[StoreProcesses]:
    """Two parts, each at one server; both are up again afterwards."""
    yield _once
    _once.restore()


def losses_in(log: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in log.messages if "was lost" in text]


def named_in(log: pytest.LogCaptureFixture) -> set[str]:
    """The servers whose loss the log of this process tells of; also what workers noticed."""
    return {found for text in losses_in(log) for found in re.findall(r"tcp://[\d.:]+\d", text)}


# --- with replicas -------------------------------------------------------------------------------


@every_way
def test_a_killed_server_with_a_replica_is_not_noticed(
    twice: StoreProcesses, expected: list[str], way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CONTRACT 67: made up for at once: nothing fails, nobody waits, no byte changes."""
    with joined(twice.addresses[0]) as data, everyday(data, way) as loader:
        seen = []
        for victims in ([twice.of(0)[0], twice.of(1)[1]], []):
            for step, batch in enumerate(loader):
                seen.append(digest_of(batch))
                if step in (3, 17) and victims:
                    victims.pop().kill()
        assert seen == expected
        told = loader.statistics()
        assert (told.failed, told.retries, told.restarts_of_hub) == (0, 0, 0)
        assert told.restarts_of_workers == 0
        assert data.servers.statistics().waits == 0
        gone = {twice.of(0)[0].address, twice.of(1)[1].address}
        until(lambda: named_in(caplog) >= gone, "the log names those that were lost")
        assert all("1 more have it" in text for text in losses_in(caplog))
        assert named_in(caplog) == gone


@every_way
def test_a_stopped_server_with_a_replica_is_not_noticed(
    twice: StoreProcesses, expected: list[str], way: str
) -> None:
    """CONTRACT 67: it is silent, and its connections stand; others are asked meanwhile."""
    with joined(twice.addresses[0]) as data, everyday(data, way) as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(3)]
        twice.of(0)[1].stop()
        twice.of(1)[0].stop()
        seen += Reading(reading).finish()  # to its end, while they are silent
        twice.of(0)[1].go_on()
        twice.of(1)[0].go_on()
        seen += Reading(loader).finish()
        assert seen == expected
        assert loader.statistics().failed == 0


def test_questions_do_not_notice_a_killed_server_with_a_replica(
    twice: StoreProcesses, whole: Graph
) -> None:
    """CONTRACT 67, 68: they are asked again of another one."""
    x = torch.from_numpy(whole.node_attribute("x").copy())
    with joined(twice.addresses[1]) as data:
        assert torch.equal(data.get_node_feature(), x)
        twice.of(0)[0].kill()
        twice.of(1)[0].kill()
        assert torch.equal(data.get_node_feature(), x)
        assert data.get_node_ids("train").tolist() == whole.split("train").tolist()
        assert torch.equal(data.get_edge_index(), torch.from_numpy(whole.edge_index()))


def test_servers_with_replicas_may_be_killed_in_turn(
    twice: StoreProcesses, expected: list[str]
) -> None:
    """CONTRACT 66, 67: one of each part is left at any time; that suffices to come, and to read."""
    for server in (twice.of(0)[0], twice.of(1)[0]):
        server.kill()
    with joined(twice.of(0)[1].address) as data, everyday(data, "workers") as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(5)]
        for part in range(2):
            twice.of(part)[0].start()
            twice.of(part)[1].kill()
            seen += [digest_of(next(reading)) for _ in range(5)]
        seen += Reading(reading).finish()
        assert seen == expected[: len(expected) // 2]


# --- without replicas ----------------------------------------------------------------------------


def test_what_is_complete_is_delivered_before_anybody_waits(
    once: StoreProcesses, expected: list[str]
) -> None:
    """CONTRACT 67: batches that were made already come at once; the others when it is back."""
    with joined(once.addresses) as data, everyday(data, "workers", prefetch=6) as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading))]
        until(lambda: is_full(data), "every slot has a batch")
        once.of(1)[0].kill()
        ready = channel_in(data)["delivered"] - 1
        rest = Reading(reading)
        rest.wait_for(ready)  # without the server
        until(lambda: channel_in(data)["in_flight"] > 0, "workers wait for the server")
        assert not rest.is_over
        assert ready <= len(rest.seen) < 20
        once.of(1)[0].start()
        assert seen + rest.finish() == expected[: len(expected) // 2]
        assert loader.statistics().failed == 0


def channel_in(data: Any) -> dict[str, Any]:
    """The one channel, as the scheduler sees it."""
    (channel,) = data.hub_statistics()["scheduler"]["channels"]
    return dict(channel)


def is_full(data: Any) -> bool:
    """Whether all batches that could be made ahead were made, and none is being made."""
    channel = channel_in(data)
    made = channel["handed_out"] == channel["delivered"] > 1
    return bool(made and not channel["slots_free"])


@every_way
def test_a_killed_server_is_waited_for(once: StoreProcesses, expected: list[str], way: str) -> None:
    """CONTRACT 67: it comes back at its address: no batch is lost, none comes twice."""
    with joined(once.addresses[0]) as data, everyday(data, way) as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(3)]
        for part in (0, 1):
            once.of(part)[0].kill()
            rest = Reading(next(reading) for _ in range(8))
            once.of(part)[0].start()
            seen += rest.finish()
        seen += Reading(reading).finish()
        seen += Reading(loader).finish()
        assert seen == expected
        told = loader.statistics()
        assert (told.failed, told.restarts_of_hub, told.restarts_of_workers) == (0, 0, 0)


def test_all_servers_may_be_gone_at_once_and_come_back_in_any_order(
    once: StoreProcesses, expected: list[str]
) -> None:
    """CONTRACT 67: nothing that a reader needs was kept by a server alone."""
    with joined(once.addresses) as data, everyday(data, "workers") as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(2)]
        for server in once.servers:
            server.kill()
        rest = Reading(reading)
        for server in once.servers[::-1]:
            server.start()
        assert seen + rest.finish() == expected[: len(expected) // 2]


@every_way
def test_a_stopped_server_is_waited_for(
    once: StoreProcesses, expected: list[str], way: str
) -> None:
    """CONTRACT 67: it goes on as if nothing had been."""
    with joined(once.addresses) as data, everyday(data, way) as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(2)]
        once.of(0)[0].stop()
        rest = Reading(reading)
        assert not rest.is_over
        once.of(0)[0].go_on()
        assert seen + rest.finish() == expected[: len(expected) // 2]
        assert loader.statistics().failed == 0


def test_a_server_silent_beyond_all_measure_is_given_up_and_found_again(
    once: StoreProcesses, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """CONTRACT 67, 72: a stopped process is noticed by its silence, and named in the log."""
    with joined(once.addresses) as data, everyday(data) as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(2)]
        once.of(0)[0].stop()
        rest = Reading(reading)
        until(lambda: bool(losses_in(caplog)), "the silence was noticed")
        assert once.of(0)[0].address in losses_in(caplog)[0]
        once.of(0)[0].go_on()
        assert seen + rest.finish() == expected[: len(expected) // 2]


@every_way
def test_patience_ends_with_an_error_that_names_part_and_addresses(
    once: StoreProcesses, expected: list[str], way: str
) -> None:
    """CONTRACT 67: of a batch, and of a question. Later ones succeed when it is back."""
    gone = once.of(1)[0]
    words = rf"part 1 of 2 has no server .*patience.*{re.escape(gone.address)}.*attempts.*refused"
    with joined(once.addresses, patience=1.0) as data, everyday(data, way) as loader:
        reading = iter(loader)
        next(reading)
        gone.kill()
        with pytest.raises(ps.ServerGone, match=words):
            for _ in reading:
                pass
        with pytest.raises(ps.ServerGone, match=words):
            data.get_node_feature()
        assert set(data.get_node_partition_id(index=np.arange(9)).tolist()) <= {0, 1}
        gone.start()
        assert data.get_node_feature().shape == (400, 6)
        assert Reading(loader).finish() == expected[len(expected) // 2 :]


def test_a_part_without_a_server_is_named_when_one_connects(once: StoreProcesses) -> None:
    """CONTRACT 66, 67: with the addresses that were tried."""
    once.of(0)[0].kill()
    words = rf"part 0 of 2 has no server .*timeout.*{re.escape(once.of(0)[0].address)}"
    with pytest.raises(ps.ServerGone, match=words):
        ps.connect(once.addresses[1:], timeout=1.0)


def test_a_reader_waits_for_servers_that_are_started_after_it(
    once: StoreProcesses, expected: list[str]
) -> None:
    """CONTRACT 66: in any order."""
    for server in once.servers:
        server.kill()
    found: list[str] = []

    def read() -> Iterator[Any]:
        with joined(once.addresses[:1]) as data, everyday(data) as loader:
            yield from loader

    reading = Reading(read())
    for server in once.servers[::-1]:
        server.start()
    found = reading.finish()
    assert found == expected[: len(expected) // 2]


@pytest.mark.soak
@every_way
def test_a_storm_of_kills_and_stops_changes_nothing(
    twice: StoreProcesses, whole: Graph, way: str
) -> None:
    """CONTRACT 67: any server at any time, often both of a part; all come back."""
    rng = np.random.default_rng(8)
    epochs = 40
    logging.getLogger("penstock").setLevel(logging.ERROR)
    with joined(twice.addresses) as data, everyday(data, way) as loader:
        rest = Reading(batch for _ in range(epochs) for batch in loader)
        while not rest.is_over:
            server = twice.servers[rng.integers(4)]
            if rng.random() < 0.5:
                victims = twice.of(rng.integers(2))[: rng.integers(1, 3)]
                for each in victims:
                    each.kill()
                for each in victims:
                    each.start()
            else:
                server.stop()
                at = len(rest.seen)
                until(lambda at=at: len(rest.seen) > at + 50 or rest.is_over, "it went on", 20)
                server.go_on()
        assert rest.finish() == whole_epoch(whole, epochs)
