"""`penstock serve`, `status`, `sample` and `keys`, run as people run them."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock import Graph, NeighborSpec, SharedDistSamplingBackend
from tests.cli.servers import WAIT_S, Running, run, save_small, serving


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small(tmp_path_factory.mktemp("graphs") / "small.graph")


@pytest.fixture(scope="module")
def server(graph: Path) -> Iterator[Running]:
    with serving(graph, "--workers", 1, "--http", "127.0.0.1:0") as running:
        yield running


def test_a_sample_is_the_batch_that_is_made_here(server: Running, graph: Path) -> None:
    """CONTRACT 5, CONTRACT 58."""
    done = run(
        "sample", server.address, "--input", "train", "--index", 3, "--seed", 7, "--shuffle",
        "--num-neighbors", "5,5", "--epoch", 2, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    with (
        Graph.open(graph) as opened,
        SharedDistSamplingBackend(
            opened, NeighborSpec(num_neighbors=(5, 5)), num_workers=0
        ) as here,
    ):
        here.register_input("here", "train", batch_size=8, shuffle=True, seed=7)
        here.start_new_epoch_sampling("here", 2)
        batch = list(here.batches("here"))[3]
        assert told["n_id"] == batch.arrays["n_id"].tolist()
        assert np.array_equal(np.array(told["x"], np.float32), batch.arrays["x"])


def test_a_sample_is_shown_in_a_table(server: Running) -> None:
    done = run("sample", server.address, "--input", "4,8,15", "--num-neighbors", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "n_id" in done.stdout
    assert "4, 8, 15" in " ".join(done.stdout.replace(",", ", ").split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--input", "9999"], "9999"),
        (["--input", "holidays"], "holidays"),
        (["--num-neighbors", "some"], "expected whole numbers"),
        (["--index", "1000"], "the epoch has 25 batches"),
    ],
    ids=["id", "split", "fan-outs", "index"],
)
def test_a_sample_that_cannot_be_is_refused_in_a_line(
    server: Running, options: list[str], words: str
) -> None:
    done = run("sample", server.address, *options)
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_status_has_the_server_its_ranks_and_its_workers(server: Running) -> None:
    """CONTRACT 54, CONTRACT 57."""
    done = run("status", server.address)
    assert done.returncode == 0, done.stderr
    for word in (server.address, "channels:", "worker", "ready", "rank"):
        assert word in done.stdout


def test_the_status_is_there_as_json(server: Running) -> None:
    told = json.loads(run("status", server.address, "--json").stdout)
    assert told["server"]["address"] == server.address
    assert told["server"]["process"]["pid"] == server.process.pid
    assert len(told["hub"]["pool"]["workers"]) == 1


def test_the_status_of_the_hub_is_there_by_its_own_address(server: Running) -> None:
    told = json.loads(run("status", server.where["unix"], "--json").stdout)
    assert len(told["hub"]["pool"]["workers"]) == 1


def test_nobody_at_an_address_is_told_in_a_line() -> None:
    """CONTRACT 41."""
    done = run("status", "tcp://127.0.0.1:9", "--timeout", 0.5)
    assert done.returncode == 1
    assert "tcp://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_pages_are_up(server: Running) -> None:
    for page in ("healthz", "readyz"):
        with urllib.request.urlopen(f"{server.where['http']}/{page}", timeout=WAIT_S) as answer:
            assert answer.read() == b"ok\n"
    with urllib.request.urlopen(f"{server.where['http']}/metrics", timeout=WAIT_S) as answer:
        names = answer.read().decode()
    for name in (
        "penstock_server_process_cpu_seconds",
        "penstock_server_process_private_bytes",
        "penstock_server_bytes_out",
        "penstock_hub_pool_workers_private",
    ):
        assert name in names


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_it_with_all_its_processes(graph: Path, number: int) -> None:
    """CONTRACT 39."""
    with serving(graph, "--workers", 1) as running:
        told = json.loads(run("status", running.address, "--json").stdout)
        workers = [each["pid"] for each in told["hub"]["pool"]["workers"]]
        status, words = running.end(number)
    assert status == 0, words
    assert "Traceback" not in words
    assert_gone(workers)


def test_keys_are_made_once_and_open_the_door(graph: Path, tmp_path: Path) -> None:
    made = run("keys", tmp_path / "keys", "--token", "alice", "--json")
    assert made.returncode == 0, made.stderr
    token = json.loads(made.stdout)["tokens"]["alice"]
    key = tmp_path / "keys" / "server.public"
    again = run("keys", tmp_path / "keys")
    assert "already" in again.stdout
    secret, tokens = tmp_path / "keys" / "server.secret", tmp_path / "keys" / "tokens"
    with serving(graph, "--workers", 1, "--key", secret, "--tokens", tokens) as running:
        sample = ("sample", running.address, "--num-neighbors", "2", "--timeout", 5)
        assert run(*sample, "--key", key, "--token", token).returncode == 0
        without = run(*sample, "--key", key)
        assert "wants a token" in without.stderr
        assert run(*sample).returncode == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--bind", "tcp://0.0.0.0:0"], "--allow-plaintext"),
        (["--bind", "nonsense"], "--bind is 'nonsense'; expected tcp://host:port"),
        (["--workers", "0"], "at least 1"),
        (["--lease", "0"], "--lease is 0.0"),
        (["--http", "0.0.0.0:0"], "--http-public"),
        (["--clients", "."], "--key"),
        (["--files", "nowhere"], "--files"),
        (["--sampler", "odd"], "expected MODULE:CLASS"),
        (["--sampler", "nowhere.at_all:Walks"], "no module 'nowhere.at_all'"),
        (["--limit", "max_ranks=3"], "max_channels"),
        (["--limit", "max_channels=few"], "expected a whole number"),
        (["--limit", "max_input_bytes=much"], "max_input_bytes is 'much'"),
    ],
    ids=[
        "beyond", "address", "workers", "lease", "pages", "clients", "files", "sampler", "module",
        "limit", "number", "bytes",
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_before_anything_runs(
    graph: Path, options: list[str], words: str
) -> None:
    done = run("serve", graph, *options)
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_graph_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run("serve", tmp_path / "nowhere", "--bind", "tcp://127.0.0.1:0")
    assert done.returncode == 1
    assert "nowhere" in done.stderr


def test_a_port_that_is_taken_is_named(server: Running, graph: Path) -> None:
    done = run("serve", graph, "--bind", server.address, "--workers", 1)
    assert done.returncode == 1
    assert server.address in done.stderr


def test_a_part_of_a_graph_can_be_served(graph: Path, tmp_path: Path) -> None:
    with Graph.open(graph) as whole:
        parts = whole.partition(2, tmp_path / "parts")
    with serving(parts[1], "--workers", 1) as running:
        done = run("sample", running.address, "--input", "150,151", "--num-neighbors", 3, "--json")
        assert done.returncode == 0, done.stderr
        nodes = json.loads(done.stdout)["n_id"]
        assert nodes[:2] == [150, 151]
        assert min(nodes) >= 100
        foreign = run("sample", running.address, "--input", "3", "--num-neighbors", 3)
        assert "part 0" in foreign.stderr


def assert_gone(pids: list[int]) -> None:
    """They have ended, or are about to."""
    deadline = time.monotonic() + WAIT_S
    while any(_is_there(pid) for pid in pids):
        assert time.monotonic() < deadline, f"some of {pids} are still there"
        time.sleep(0.02)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
