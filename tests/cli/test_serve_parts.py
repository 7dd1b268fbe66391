"""`penstock serve` of parts: each by itself, and a folder of them at once."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.store.servers import StoreServers
from tests.cli.servers import COMMAND, WAIT_S, Running, run, serving
from tests.processes import is_alive, strike, wait_until_gone
from tests.store.running import NODES, address_of, ask, cut, free_ports, rows_of

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cut(tmp_path_factory.mktemp("whole") / "parts", 3)[0].parent


@contextmanager
def folder(parts: Path, *options: object, port: int = 0) -> Iterator[Running]:
    with serving(parts, "--workers", 1, *options, port=port) as running:
        try:
            yield running
        finally:
            strike(running.process.pid)
            wait_until_gone(pids(running))


def pids(running: Running) -> list[int]:
    return [each["pid"] for each in running.where["servers"]]


def addresses(running: Running) -> list[str]:
    return [each["address"] for each in running.where["servers"]]


def test_a_folder_of_parts_is_a_store(parts: Path) -> None:
    """It is ready when all parts are, and each knows all."""
    with folder(parts) as running:
        assert len({*pids(running)}) == 3
        for address in addresses(running):
            with StoreServers.find([address], timeout=WAIT_S) as store:
                assert set(store.addresses) == {*addresses(running)}
                calls = [ask(store, part, [part * NODES // 3 + 1]) for part in range(3)]
                assert [rows_of(call) for call in calls] == [[1], [134], [267]]


def test_parts_get_ports_that_follow_each_other(parts: Path) -> None:
    port = next(port for port in free_ports(8) if port < 65533)
    with folder(parts, port=port) as running:
        assert addresses(running) == [address_of(port + number) for number in range(3)]


def test_all_servers_end_together_when_they_are_asked_to(parts: Path) -> None:
    with folder(parts) as running:
        status, told = running.end(signal.SIGTERM)
        assert status == 0
        assert "leaving (SIGTERM)" in told
        assert not any(map(is_alive, pids(running)))


def test_the_end_of_one_server_ends_all(parts: Path) -> None:
    with folder(parts) as running:
        strike(pids(running)[1])
        _, told = running.process.communicate(timeout=WAIT_S)
        assert running.process.returncode == 1
        assert "part-1 has ended" in told
        assert not any(map(is_alive, pids(running)))


def test_servers_do_not_outlive_whoever_started_them(parts: Path) -> None:
    with folder(parts) as running:
        strike(running.process.pid)
        wait_until_gone(pids(running))


def test_options_are_passed_on_to_all(parts: Path) -> None:
    with folder(parts, "--limit", "max_calls=7", "--http", "127.0.0.1:0") as running:
        assert all(each["http"] for each in running.where["servers"])
        assert len({each["http"] for each in running.where["servers"]}) == 3


def test_a_server_that_cannot_be_started_is_named_and_none_is_left(parts: Path) -> None:
    done = run("serve", parts, "--bind", "tcp://127.0.0.1:0", "--limit", "max_calls=none")
    assert done.returncode == 1
    assert "part-0 has not started" in done.stderr
    assert "max_calls" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("what", "options", "words"),
    [
        ("", ["--bind", "nowhere"], "--bind is 'nowhere'"),
        ("", ["--unix", "unix://@here"], "--unix is given"),
        ("part-0", ["--store", "tcp://a:1,nowhere"], "--store is tcp://a:1, nowhere: address"),
    ],
)
def test_what_makes_no_sense_for_parts_is_refused(
    parts: Path, what: str, options: list[str], words: str
) -> None:
    done = run("serve", parts / what, *options)
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_people_are_told_where_each_part_is(parts: Path) -> None:
    command = [COMMAND, "serve", parts, "--bind", "tcp://127.0.0.1:0", "--workers", "1"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        assert [Path(line.split()[1]).name for line in lines[:3]] == ["part-0", "part-1", "part-2"]
        assert "all 3 parts are served" in lines[3]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_S)
    assert process.returncode == 0


def test_a_server_of_a_part_takes_the_list_of_the_store(parts: Path) -> None:
    ports = free_ports(3)
    store = ",".join(map(address_of, ports[:2])), address_of(ports[2])
    options = [option for each in store for option in ("--store", each)]
    with serving(parts / "part-0", "--workers", 1, *options, port=ports[0]) as running:
        with pytest.raises(Exception, match="parts 1, 2 of 3 have no server") as raised:
            StoreServers.find([running.address], timeout=0.5)
        for port in ports[1:]:
            assert address_of(port) in str(raised.value)


def test_a_part_alone_and_a_store_exclude_each_other(parts: Path) -> None:
    done = run("serve", parts / "part-0", "--part-only", "--store", "tcp://127.0.0.1:1")
    assert done.returncode != 0
    assert "--part-only is given with" in done.stderr
