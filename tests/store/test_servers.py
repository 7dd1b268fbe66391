"""The servers of a store, as real processes: found, lost, stopped, added, and of other graphs."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec
import numpy as np
import pytest

from penstock.errors import AccessDenied, ChannelClosed, ServerGone
from penstock.rpc.endpoint import EndpointSpec
from penstock.store.servers import StoreHandle, StoreServers
from penstock.wire.transport import delay
from tests.cli.servers import Running
from tests.processes import PATIENCE_S, stop, stopped, strike, until
from tests.store.running import (
    NODES,
    address_of,
    ask,
    cut,
    free_ports,
    part_server,
    rows_of,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

HALF = NODES // 2
# Nodes of each of two parts.
IDS = ([0, 5, HALF - 1], [HALF, HALF + 7, NODES - 1])


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return cut(tmp_path_factory.mktemp("whole") / "parts")


@pytest.fixture(scope="module")
def pair(parts: list[Path]) -> Iterator[tuple[Running, Running]]:
    """A server of each part, for tests that leave them as they are."""
    with part_server(parts[0]) as one, part_server(parts[1]) as other:
        yield one, other


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as found:
        yield found


def connected(store: StoreServers, count: int) -> None:
    """Waits until so many servers are connected; some come a moment after the others."""

    def number() -> int:
        return sum(each.state == "connected" for each in store.statistics().servers)

    until(lambda: number() == count, f"{count} servers are connected")


# --- finding -------------------------------------------------------------------------------------


def test_any_one_address_finds_all_servers(parts: list[Path]) -> None:
    """CONTRACT 66."""
    ports = free_ports(2)
    with ExitStack() as ends:
        for part, port in zip(parts, ports, strict=True):
            ends.enter_context(part_server(part, port, ports))
        for port in ports:
            with StoreServers.find([address_of(port)]) as store:
                assert store.num_parts == 2
                assert set(store.addresses) == {address_of(each) for each in ports}
                calls = [ask(store, part, IDS[part]) for part in (0, 1)]
                assert [rows_of(call) for call in calls] == [*IDS]
                assert [each.schema.part.number for each in store.outlines()] == [0, 1]  # type: ignore[union-attr]


def test_servers_may_be_started_in_any_order_and_after_their_readers(
    parts: list[Path], threads: ThreadPoolExecutor
) -> None:
    ports = free_ports(2)
    finding = threads.submit(StoreServers.find, [address_of(ports[0])], timeout=PATIENCE_S)
    with part_server(parts[1], ports[1], ports), part_server(parts[0], ports[0], ports):
        with finding.result(PATIENCE_S) as store:
            assert rows_of(ask(store, 1, IDS[1])) == IDS[1]


def test_a_part_that_nobody_has_is_named_with_the_addresses_that_were_tried(
    parts: list[Path],
) -> None:
    ports = free_ports(2)
    with part_server(parts[0], ports[0], ports):
        with pytest.raises(ServerGone, match="part 1 of 2 has no server") as raised:
            StoreServers.find([address_of(ports[0])], timeout=1.0)
    assert address_of(ports[1]) in str(raised.value)
    assert "refused" in str(raised.value)


def test_nobody_at_all_is_told_with_the_addresses() -> None:
    ports = free_ports(2)
    with pytest.raises(ServerGone, match="no server of the store answers") as raised:
        StoreServers.find([address_of(port) for port in ports], timeout=0.5)
    for port in ports:
        assert address_of(port) in str(raised.value)


@pytest.mark.parametrize("addresses", [[], ["tcp://"], ["store:1"], ["tcp://a:0"]])
def test_what_is_no_list_of_addresses_is_refused(addresses: list[str]) -> None:
    with pytest.raises(ValueError, match="address"):
        StoreServers.find(addresses)


def test_a_server_by_two_addresses_is_one_server(parts: list[Path]) -> None:
    (port,) = free_ports(1)
    names = [address_of(port), f"tcp://localhost:{port}"]
    with part_server(parts[0], port), part_server(parts[1], 0) as other:
        with StoreServers.find([*names, other.address]) as store:

            def states() -> list[str]:
                return sorted(each.state for each in store.statistics().servers)

            until(lambda: states() == ["connected", "connected", "same"], "both were tried")
            assert len(store.handle().servers) == 2


def test_a_handle_leads_another_process_to_the_same_servers(pair: tuple[Running, Running]) -> None:
    """Nothing is connected before it is asked."""
    one, other = pair
    with StoreServers.find([one.address, other.address], patience=7.0) as store:
        handle = store.handle()
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(handle), type=StoreHandle)
    assert sent == handle
    assert sent.patience == 7.0
    with StoreServers.of(sent) as again:
        assert {each.state for each in again.statistics().servers} == {"lost"}
        calls = [ask(again, part, IDS[part]) for part in (0, 1)]
        assert [rows_of(call) for call in calls] == [*IDS]
        assert again.handle() == handle


# --- which store ---------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["another graph", "another cut", "another number of parts"])
def test_parts_that_do_not_fit_together_are_refused_by_name(
    pair: tuple[Running, Running], tmp_path: Path, other: str
) -> None:
    """CONTRACT 71."""
    given = {
        "another graph": {"seed": 1},
        "another cut": {"method": "hash"},
        "another number of parts": {"parts": 3},
    }[other]
    foreign = cut(tmp_path / "parts", **given)[1]  # type: ignore[arg-type]
    one = pair[0]
    with part_server(foreign) as two:
        with pytest.raises(ValueError, match="do not belong to one store") as raised:
            StoreServers.find([one.address, two.address], timeout=PATIENCE_S)
    assert any(each in str(raised.value) for each in (one.address, two.address))
    assert "of a graph of version" in str(raised.value)


def test_a_server_that_comes_back_with_another_graph_is_told(
    parts: list[Path], tmp_path: Path
) -> None:
    """At once: waiting would not help."""
    foreign = cut(tmp_path / "parts", seed=1)
    with part_server(parts[1]) as other, ExitStack() as ends:
        one = ends.enter_context(part_server(parts[0]))
        port = int(one.address.rpartition(":")[2])
        store = ends.enter_context(StoreServers.find([one.address, other.address], patience=1e6))
        one.process.kill()
        one.process.wait()
        with part_server(foreign[0], port):
            with pytest.raises(ServerGone, match="part 0 of 2 has no server") as raised:
                rows_of(ask(store, 0, IDS[0]))
            assert "of a graph of version" in str(raised.value)
            assert rows_of(ask(store, 1, IDS[1])) == IDS[1]


def test_a_server_may_come_back_with_another_part_of_the_same_graph(parts: list[Path]) -> None:
    with ExitStack() as ends:
        one = ends.enter_context(part_server(parts[0]))
        other = ends.enter_context(part_server(parts[1]))
        store = ends.enter_context(StoreServers.find([one.address, other.address]))
        for each in (one, other):
            each.process.kill()
            each.process.wait()
        ports = [int(each.address.rpartition(":")[2]) for each in (one, other)]
        with part_server(parts[1], ports[0]), part_server(parts[0], ports[1]):
            calls = [ask(store, part, IDS[part]) for part in (0, 1)]
            assert [rows_of(call) for call in calls] == [*IDS]


# --- losses --------------------------------------------------------------------------------------


class Readers:
    """Threads that ask both parts over and over, and look at every answer."""

    def __init__(self, store: StoreServers, threads: ThreadPoolExecutor, count: int = 4) -> None:
        self._store = store
        self._over = threading.Event()
        self.answers = 0
        self._reading = [threads.submit(self._read) for _ in range(count)]

    def _read(self) -> None:
        while not self._over.is_set():
            calls = [ask(self._store, part, IDS[part]) for part in (0, 1)]
            assert [rows_of(call) for call in calls] == [*IDS]
            self.answers += 1

    def read_on(self, more: int = 20) -> None:
        """Waits until so many more were answered."""
        wanted = self.answers + more
        until(
            lambda: self.answers >= wanted or any(each.done() for each in self._reading),
            "there are more answers",
        )

    def end(self) -> None:
        self._over.set()
        for each in self._reading:
            each.result(PATIENCE_S)


def test_the_loss_of_one_of_two_replicas_is_not_noticed(
    parts: list[Path], threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 67: not by who reads; statistics and the log know it."""
    with ExitStack() as ends:
        servers = [ends.enter_context(part_server(parts[each])) for each in (0, 0, 1)]
        addresses = [each.address for each in servers]
        store = ends.enter_context(StoreServers.find(addresses, patience=0.001))
        connected(store, 3)
        readers = Readers(store, threads)
        readers.read_on()
        servers[0].process.kill()
        readers.read_on()
        readers.end()
        numbers = {each.address: each for each in store.statistics().servers}
        assert [numbers[address].losses for address in addresses] == [1, 0, 0]
        assert all(numbers[address].calls > 0 for address in addresses)
        assert store.statistics().waits == 0


def test_calls_wait_for_a_server_that_has_no_replica_and_go_on_when_it_is_back(
    parts: list[Path], threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 67."""
    with part_server(parts[1]) as other, ExitStack() as ends:
        one = ends.enter_context(part_server(parts[0]))
        port = int(one.address.rpartition(":")[2])
        store = ends.enter_context(StoreServers.find([one.address, other.address], patience=1e6))
        readers = Readers(store, threads)
        readers.read_on()
        one.process.kill()
        until(lambda: store.statistics().waits > 0, "somebody waits")
        with part_server(parts[0], port):
            readers.read_on()
            readers.end()
        assert store.statistics().waited > 0


def test_after_patience_the_error_names_the_part_and_the_addresses(parts: list[Path]) -> None:
    """CONTRACT 67."""
    with part_server(parts[0]) as other, ExitStack() as ends:
        one = ends.enter_context(part_server(parts[1]))
        store = ends.enter_context(StoreServers.find([one.address, other.address], patience=0.5))
        one.process.kill()
        one.process.wait()
        with pytest.raises(ServerGone, match="part 1 of 2 has no server") as raised:
            rows_of(ask(store, 1, IDS[1]))
        assert one.address in str(raised.value)
        assert other.address not in str(raised.value)
        assert "patience" in str(raised.value)
        assert rows_of(ask(store, 0, IDS[0])) == IDS[0]


def test_a_replica_that_is_stopped_is_made_up_for(
    parts: list[Path], threads: ThreadPoolExecutor
) -> None:
    """What it was asked is asked of the other one, too, before anybody knows what is wrong."""
    with ExitStack() as ends:
        servers = [ends.enter_context(part_server(parts[each])) for each in (0, 0, 1)]
        store = ends.enter_context(StoreServers.find([each.address for each in servers]))
        connected(store, 3)
        readers = Readers(store, threads)
        readers.read_on()
        with stopped(servers[0].process.pid):
            readers.read_on(200)
            hedged = {each.address: each.hedges for each in store.statistics().servers}
            assert hedged[servers[1].address] > 0
        readers.read_on()
        readers.end()


def test_a_server_that_was_stopped_for_a_while_is_used_again(
    parts: list[Path], threads: ThreadPoolExecutor
) -> None:
    with ExitStack() as ends:
        servers = [ends.enter_context(part_server(parts[each])) for each in (0, 0, 1)]
        store = ends.enter_context(StoreServers.find([each.address for each in servers]))
        connected(store, 3)
        readers = Readers(store, threads)

        def calls_of_first() -> int:
            return store.statistics().servers[0].calls

        with stopped(servers[0].process.pid):
            until(
                lambda: store.statistics().servers[0].losses > 0,
                "its silence is noticed",
            )
        before = calls_of_first()
        until(lambda: calls_of_first() > before + 10, "it is asked again")
        readers.end()


def test_a_lone_server_that_was_stopped_is_waited_for(pair: tuple[Running, Running]) -> None:
    """Its connection is given up by the heartbeat, and made again when it goes on."""
    one, other = pair
    with StoreServers.find([one.address, other.address], patience=1e6) as store:
        stop(one.process.pid)
        call = ask(store, 0, IDS[0])
        try:
            until(lambda: call.wait(0.05) or store.statistics().waits > 0, "it is missed")
        finally:
            os.kill(one.process.pid, signal.SIGCONT)
        assert rows_of(call) == IDS[0]


def test_a_replica_that_is_added_live_takes_over(parts: list[Path]) -> None:
    """It announces itself to the servers that it knows; readers ask these when they miss one."""
    with part_server(parts[1], store=["tcp://127.0.0.1:9"]) as other, ExitStack() as ends:
        one = ends.enter_context(part_server(parts[0], store=[other.address]))
        store = ends.enter_context(StoreServers.find([other.address], patience=1e6))
        assert rows_of(ask(store, 0, IDS[0])) == IDS[0]
        new = ends.enter_context(part_server(parts[0], store=[other.address]))
        assert new.address not in store.addresses
        until(lambda: new.address in announced(store, 1), "the others have heard of it")
        one.process.kill()
        one.process.wait()
        assert rows_of(ask(store, 0, IDS[0])) == IDS[0]
        assert new.address in store.addresses


def announced(store: StoreServers, part: int) -> list[str]:
    """The servers that a server of a part names."""
    return [str(each) for each in store.call(part, "get_store_servers")[0]]


def test_servers_are_told_of_each_other_through_a_third_one(parts: list[Path]) -> None:
    with part_server(parts[0], store=["tcp://127.0.0.1:9"]) as first, ExitStack() as ends:
        second = ends.enter_context(part_server(parts[1], store=[first.address]))
        store = ends.enter_context(StoreServers.find([first.address]))
        third = ends.enter_context(part_server(parts[1], store=[first.address]))
        for part in (0, 1):
            until(
                lambda part=part: {second.address, third.address} <= {*announced(store, part)},  # type: ignore[misc]
                "each knows all",
            )


def test_a_server_of_another_graph_is_not_named_to_ranks(parts: list[Path], tmp_path: Path) -> None:
    """CONTRACT 71: it is reached before it is believed."""
    foreign = cut(tmp_path / "parts", seed=1)[0]
    with part_server(parts[0], store=["tcp://127.0.0.1:9"]) as one, part_server(parts[1]) as two:
        with StoreServers.find([one.address, two.address]) as store, part_server(foreign) as other:
            with pytest.raises(Exception, match="has part 0 of 2 of version"):
                store.call(0, "announce", {"address": other.address})
            with pytest.raises(OSError, match="refused"):
                store.call(0, "announce", {"address": address_of(free_ports(1)[0])})
            with pytest.raises(Exception, match="belongs to no store"):
                store.call(1, "announce", {"address": one.address})
            assert other.address not in announced(store, 0)


def test_servers_are_replaced_one_by_one_while_others_read(
    parts: list[Path], threads: ThreadPoolExecutor
) -> None:
    """Readers leave a server that is leaving, so it need not wait for them."""
    with ExitStack() as ends:
        ports = free_ports(4)
        running = [
            ends.enter_context(part_server(parts[number % 2], port, ports, "--grace", 1e6))
            for number, port in enumerate(ports)
        ]
        store = ends.enter_context(StoreServers.find([address_of(ports[0])]))
        connected(store, 4)
        readers = Readers(store, threads)
        for number, port in enumerate(ports[:2]):  # one of each part
            readers.read_on()
            assert running[number].end(signal.SIGTERM)[0] == 0
            readers.read_on()
            ends.enter_context(part_server(parts[number % 2], port, ports))
            connected(store, 4)
        readers.read_on()
        readers.end()
        assert store.statistics().waits == 0


class Strikes:
    """Kills, stops and starts servers of a store, of which each part has one that goes on."""

    def __init__(self, ends: ExitStack, parts: list[Path], seed: int) -> None:
        self._ends = ends
        self._parts = parts
        self._chance = random.Random(seed)
        self._ports = free_ports(2 * len(parts))
        self._running = {number: self._started(number) for number in range(len(self._ports))}
        self._stopped: set[int] = set()
        self.addresses = [address_of(port) for port in self._ports]

    def _started(self, number: int) -> Running:
        part = self._parts[number % len(self._parts)]
        return self._ends.enter_context(part_server(part, self._ports[number], self._ports))

    def strike(self) -> None:
        number = self._chance.randrange(len(self._ports))
        process, twin = (
            self._running[number].process,
            (number + len(self._parts)) % len(self._ports),
        )
        if number in self._stopped:
            self._stopped.discard(number)
            strike(process.pid, signal.SIGCONT)
        elif twin in self._stopped:
            return
        elif self._chance.random() < 0.5:
            self._stopped.add(number)
            stop(process.pid)
        else:
            process.kill()
            process.wait()
            self._running[number] = self._started(number)

    def end(self) -> None:
        for number in self._stopped:
            strike(self._running[number].process.pid, signal.SIGCONT)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_servers_may_come_and_go_at_any_time(
    parts: list[Path], threads: ThreadPoolExecutor, seed: int
) -> None:
    with ExitStack() as ends:
        strikes = Strikes(ends, parts, seed)
        store = ends.enter_context(StoreServers.find(strikes.addresses[:1], patience=PATIENCE_S))
        readers = Readers(store, threads)
        try:
            for _ in range(40):
                readers.read_on(5)
                strikes.strike()
        finally:
            strikes.end()
        readers.read_on()
        readers.end()


def test_a_slow_network_changes_no_answer(
    parts: list[Path], threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(delay.VARIABLE, "2")
    with ExitStack() as ends:
        servers = [ends.enter_context(part_server(parts[each])) for each in (0, 0, 1)]
        store = ends.enter_context(StoreServers.find([each.address for each in servers]))
        connected(store, 3)
        readers = Readers(store, threads)
        readers.read_on()
        servers[0].process.kill()
        readers.read_on()
        readers.end()


# --- answers -------------------------------------------------------------------------------------


def test_what_goes_wrong_at_a_server_is_raised_here(pair: tuple[Running, Running]) -> None:
    one, other = pair
    with StoreServers.find([one.address, other.address]) as store:
        with pytest.raises(ValueError, match=f"{HALF}.* part 1"):
            rows_of(ask(store, 0, [HALF]))
        with pytest.raises(ValueError, match="part is 2"):
            ask(store, 2, [0])
        assert rows_of(ask(store, 0, [3])) == [3]


def test_large_arguments_and_answers_arrive_as_they_are(pair: tuple[Running, Running]) -> None:
    one, other = pair
    with StoreServers.find([one.address, other.address]) as store:
        ids = np.random.default_rng(0).integers(0, HALF, 2_000_000)
        calls = [ask(store, 0, ids), ask(store, 1, HALF + ids)]
        assert rows_of(calls[1])[:1000] == (HALF + ids[:1000]).tolist()
        assert rows_of(calls[0])[-1000:] == ids[-1000:].tolist()
        numbers = store.statistics().servers[0]
        assert numbers.bytes_out > ids.nbytes
        assert numbers.bytes_in > 16 * len(ids)


def test_a_call_may_be_given_up(pair: tuple[Running, Running]) -> None:
    one, other = pair
    with StoreServers.find([one.address, other.address]) as store:
        with stopped(one.process.pid):
            call = ask(store, 0, IDS[0])
            assert not call.wait(0.01)
            with pytest.raises(TimeoutError, match="part 0"):
                call.result(0.01)
            call.abandon()
        assert rows_of(ask(store, 0, IDS[0])) == IDS[0]


# --- its end -------------------------------------------------------------------------------------


def test_closing_tells_whoever_waits(parts: list[Path], threads: ThreadPoolExecutor) -> None:
    with part_server(parts[0]) as one, part_server(parts[1]) as other:
        store = StoreServers.find([one.address, other.address], patience=1e6)
        with stopped(one.process.pid):
            answered = threads.submit(rows_of, ask(store, 0, IDS[0]))
            other.process.kill()
            waiting = threads.submit(rows_of, ask(store, 1, IDS[1]))
            until(lambda: store.statistics().waits > 0, "it waits")
            store.close()
            for each in (answered, waiting):
                with pytest.raises(ChannelClosed, match="was closed"):
                    each.result(PATIENCE_S)
        with pytest.raises(ChannelClosed):
            ask(store, 0, IDS[0])
        store.close()


def test_nothing_runs_while_nobody_asks(parts: list[Path]) -> None:
    """One thread for heartbeats; none that looks for servers, whatever was lost before."""
    before = set(threading.enumerate())
    with part_server(parts[1]) as other, ExitStack() as ends:
        replicas = [ends.enter_context(part_server(parts[0])) for _ in range(2)]
        addresses = [other.address, *(each.address for each in replicas)]
        store = ends.enter_context(StoreServers.find(addresses, patience=0.2))
        connected(store, 3)
        replicas[0].process.kill()
        until(
            lambda: (
                rows_of(ask(store, 0, IDS[0])) == IDS[0]
                and store.statistics().servers[1].losses > 0
            ),
            "its loss is known",
        )

        def names() -> list[str]:
            return [each.name for each in set(threading.enumerate()) - before]

        until(lambda: names() == ["penstock-io"], "nobody tries to connect any more")


# --- who may come --------------------------------------------------------------------------------


def test_servers_know_each_other_by_certificate(parts: list[Path], tmp_path: Path) -> None:
    """CONTRACT 71."""
    from penstock.server.transport.authority import Authority

    keys = Authority(tmp_path / "keys")
    keys.issue_server()
    keys.issue_client("rank-0")
    stranger = Authority(tmp_path / "others")
    stranger.issue_server()

    def options(folder: Path) -> list[object]:
        return ["--certificate", folder / "server.pem", "--key", folder / "server.key",
                "--client-ca", folder / "ca.pem"]  # fmt: skip

    ours, theirs = options(keys.folder), options(stranger.folder)
    mine = {
        "ca": keys.certificate,
        "certificate": keys.folder / "clients" / "rank-0.pem",
        "key": keys.folder / "clients" / "rank-0.key",
    }
    with ExitStack() as ends:
        one = ends.enter_context(part_server(parts[0], 0, ["tcp://127.0.0.1:9"], *ours))
        two = ends.enter_context(part_server(parts[1], 0, [one.address], *ours))
        store = ends.enter_context(StoreServers.find([one.address], **mine))  # type: ignore[arg-type]
        assert store.addresses == (one.address, "tls://127.0.0.1:9", two.address)
        assert [rows_of(ask(store, part, IDS[part])) for part in (0, 1)] == [*IDS]
        other = ends.enter_context(part_server(parts[1], 0, ["tcp://127.0.0.1:9"], *theirs))
        with pytest.raises(Exception, match="not trusted"):
            store.call(0, "announce", {"address": other.address})
        with pytest.raises(AccessDenied):
            StoreServers.find([other.address], **mine)  # type: ignore[arg-type]


class JustBefore(StoreServers):
    """Somebody begins to wait when an attempt has been given up, and is not over yet."""

    @property
    def _is_needed(self) -> bool:
        was_needed = self._waiting > 0
        self._waiting = 1
        self._seek()
        return was_needed


def test_who_begins_to_wait_when_an_attempt_ends_has_the_server_tried_again() -> None:
    address = address_of(free_ports(1)[0])
    handle = StoreHandle(
        servers=(EndpointSpec(address=address),), parts=(0,), num_parts=1, version="", cut=""
    )
    with JustBefore.of(handle) as store:
        server = store._servers[address]
        store._try(server, 0.0)
        until(lambda: server.tries.count > 2, "it is tried again")
