"""`penstock status` of a store: a row for each server, run as people run it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import Graph
from tests.cli.servers import COMMAND, WAIT_S, Running, run, save_small, serving
from tests.processes import until

pytestmark = pytest.mark.usefixtures("no_leaks_in_all")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("store")
    with Graph.open(save_small(folder / "graph")) as graph:
        return list(graph.partition(2, folder / "parts"))


@contextmanager
def both(parts: list[Path]) -> Iterator[tuple[Running, Running]]:
    """Both parts, each at a server that knows the other one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    known = "--store", f"tcp://127.0.0.1:{port}", "--workers", 1
    with serving(parts[0], *known, port=port) as first, serving(parts[1], *known) as second:
        until(lambda: len(look(first.address)["servers"]) == 2, "the servers know of each other")
        yield first, second


@pytest.fixture(scope="module")
def store(parts: list[Path]) -> Iterator[tuple[Running, Running]]:
    with both(parts) as servers:
        yield servers


def look(*addresses: str) -> dict[str, object]:
    done = run("status", *addresses, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_any_address_of_a_store_shows_all_its_servers(store: tuple[Running, Running]) -> None:
    first, second = store
    done = run("status", second.address)
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.split()}
    assert rows[first.address][1:8] == ["0", "of", "2", "1", "of", "1", "serving"]
    assert rows[second.address][1:8] == ["1", "of", "2", "1", "of", "1", "serving"]
    assert "2 servers, 2 parts, edges in parts" in done.stdout


def test_a_sample_of_a_store_is_that_of_the_whole_graph(
    store: tuple[Running, Running], parts: list[Path]
) -> None:
    wanted = "--input", "train", "--num-neighbors", "3,2", "--batch-size", 5, "--shuffle", "--json"
    with serving(parts[0].parents[1] / "graph", "--workers", 1) as whole:
        expected = run("sample", whole.address, *wanted)
    first, second = store
    for address in (second.address, f"{first.address},{second.address}"):
        done = run("sample", address, *wanted)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == json.loads(expected.stdout)


def test_the_environment_names_the_store(
    store: tuple[Running, Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = store
    monkeypatch.setenv("PENSTOCK_STORE", f"tcp://127.0.0.1:9, {second.address}")
    found = {each["address"]: each["state"] for each in look()["servers"]}  # type: ignore[attr-defined]
    assert found == {
        first.address: "serving",
        second.address: "serving",
        "tcp://127.0.0.1:9": "no answer",
    }


def test_a_store_is_watched_while_its_servers_come_and_go(parts: list[Path]) -> None:
    with both(parts) as (first, second):
        watch_one_die(first, second)
        done = run("status", first.address)
    assert done.returncode == 0, done.stderr
    assert "no server answers for: part 1" in done.stdout
    assert f"{second.address}   ?" in done.stdout
    assert "no answer" in done.stdout
    assert "Connection refused" in done.stdout


def watch_one_die(first: Running, second: Running) -> None:
    command = [COMMAND, "status", first.address, "--watch", "--json", "--every", "0.1"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    try:
        assert json.loads(watching.stdout.readline())["missing"] == []
        os.kill(second.process.pid, signal.SIGKILL)
        missing = next(found for line in watching.stdout if (found := json.loads(line))["missing"])
        assert missing["missing"] == [1]
        assert [each["part"] for each in missing["servers"]] == [0, 1]
    finally:
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=WAIT_S)
        second.process.wait(WAIT_S)


def test_one_server_of_a_store_can_be_seen_alone(store: tuple[Running, Running]) -> None:
    first, second = store
    done = run("status", first.address, "--alone", "--json")
    assert json.loads(done.stdout)["server"]["address"] == first.address
    assert run("status", first.address, "--alone").returncode == 0
    refused = run("status", first.address, second.address, "--alone")
    assert refused.returncode == 2
    assert "--alone is for one ADDRESS" in refused.stderr


def test_without_an_address_the_error_says_what_is_expected() -> None:
    done = run("status")
    assert done.returncode == 2
    assert "ADDRESS is missing: expected one, or the environment's PENSTOCK_STORE" in done.stderr


def test_a_store_of_which_nobody_answers_is_told_in_a_line() -> None:
    done = run("status", "tcp://127.0.0.1:9,tcp://127.0.0.1:1", "--timeout", 1)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: no server answers: tcp://127.0.0.1:9 (")
    assert "Traceback" not in done.stderr
