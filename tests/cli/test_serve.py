"""`penstock serve`, `status`, `sample` and `keys`, run as people run them."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import termios
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from penstock import Graph, NeighborLoader, NeighborSpec, SharedDistSamplingBackend, connect
from penstock.errors import PenstockError
from penstock.server.ops.lifecycle import LEFT_BEHIND
from tests.cli.servers import COMMAND, WAIT_S, Running, run, save_small, serving
from tests.processes import wait_until_gone


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small(tmp_path_factory.mktemp("graphs") / "small.graph")


@pytest.fixture(scope="module")
def server(graph: Path) -> Iterator[Running]:
    with serving(graph, "--workers", 1, "--http", "127.0.0.1:0") as running:
        assert sampled(running).returncode == 0  # so that there is a worker
        yield running


def sampled(running: Running) -> CompletedProcess[str]:
    """A batch, for which workers are started."""
    return run("sample", running.address, "--num-neighbors", "2", "--timeout", WAIT_S)


def test_a_sample_is_the_batch_that_is_made_here(server: Running, graph: Path) -> None:
    """CONTRACT 5, CONTRACT 58."""
    done = run(
        "sample", server.address, "--input", "train", "--index", 3, "--seed", 7, "--shuffle",
        "--num-neighbors", "5,5", "--epoch", 2, "--timeout", WAIT_S, "--json",
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


def test_the_status_is_told_again_and_again_and_outlives_the_server(graph: Path) -> None:
    """CONTRACT 27: one that was started again is looked at again."""
    with serving(graph, "--workers", 1) as running, watching(running.address) as boots:
        port = int(running.address.rpartition(":")[2])
        first = next(boots)
        assert next(boots) == first
        running.process.kill()
        running.process.wait(WAIT_S)
        with serving(graph, "--workers", 1, port=port):
            assert next(boot for boot in boots if boot != first)


@contextmanager
def watching(address: str) -> Iterator[Iterator[str]]:
    """Which start of the server each look has seen."""
    command = [COMMAND, "status", address, "--watch", "--json", "--every", "0.1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield (json.loads(line)["server"]["boot"] for line in process.stdout)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_S)


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
        assert sampled(running).returncode == 0
        told = json.loads(run("status", running.address, "--json").stdout)
        workers = [each["pid"] for each in told["hub"]["pool"]["workers"]]
        assert workers
        status, words = running.end(number)
    assert status == 0, words
    assert "Traceback" not in words
    wait_until_gone(workers)


def test_a_second_signal_waits_for_nobody_and_what_ranks_left_is_told(graph: Path) -> None:
    """CONTRACT 39: a rank that holds on to its channel has no say in it."""
    with (
        serving(graph, "--workers", 1, "--grace", 600) as running,
        connect(running.address, same_host=False) as far,
    ):
        loader = NeighborLoader(far, [2], "train", batch_size=8)
        with closing(loader):
            next(iter(loader))
            running.process.send_signal(signal.SIGTERM)
            assert running.process.stderr is not None
            assert "ranks have 600 s" in running.process.stderr.readline()
            status, words = running.end(signal.SIGTERM)
    assert status == LEFT_BEHIND, words
    assert "left open" in words


def test_a_rank_may_end_it_where_that_was_said(graph: Path, server: Running) -> None:
    """CONTRACT 39."""
    with connect(server.address) as other, pytest.raises(PenstockError, match="exit_by_ranks"):
        other.server.exit()
    with serving(graph, "--workers", 1, "--exit-by-ranks") as running:
        with connect(running.address) as rank:
            assert rank.server.exit()
        assert running.process.wait(WAIT_S) == 0


def test_certificates_are_made_once_and_let_in_who_knows_them(graph: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    made = run("keys", keys, "--token", "alice", "--client", "rank-0", "--json")
    assert made.returncode == 0, made.stderr
    token = json.loads(made.stdout)["tokens"]["alice"]
    assert json.loads(made.stdout)["ca"] == str(keys / "ca.pem")
    before = (keys / "server.pem").read_bytes()
    assert "nothing to make" in run("keys", keys).stdout
    assert "--renew" in run("keys", keys, "--host", "store").stderr
    assert (keys / "server.pem").read_bytes() == before
    own = ("--certificate", keys / "server.pem", "--key", keys / "server.key")
    wanted = ("--client-ca", keys / "ca.pem", "--tokens", keys / "tokens")
    with serving(graph, "--workers", 1, *own, *wanted) as running:
        assert running.address.startswith("tls://")
        sample = ("sample", running.address, "--num-neighbors", "2", "--timeout", WAIT_S)
        client = (
            "--certificate",
            keys / "clients/rank-0.pem",
            "--key",
            keys / "clients/rank-0.key",
        )
        opened = run(*sample, "--ca", keys / "ca.pem", *client, "--token", token)
        assert opened.returncode == 0, opened.stderr
        without = run(*sample, "--ca", keys / "ca.pem", *client)
        assert "requires a token" in without.stderr
        unknown = run(*sample, "--ca", keys / "ca.pem", "--token", token)
        assert "wants one" in unknown.stderr
        assert "is not trusted" in run(*sample, "--token", token).stderr


def test_sighup_has_the_certificate_read_again_and_drops_nobody(
    graph: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    assert run("keys", keys).returncode == 0
    own = ("--certificate", keys / "server.pem", "--key", keys / "server.key")
    with serving(graph, "--workers", 1, *own) as running:
        assert running.process.stderr is not None
        with connect(running.address, ca=keys / "ca.pem", same_host=False) as far:
            assert run("keys", keys, "--renew").returncode == 0
            running.process.send_signal(signal.SIGHUP)
            assert "was reloaded" in running.process.stderr.readline()
            assert len(far.get_node_ids("train")) == 100
            told = far.server.statistics()
            assert told
        with connect(running.address, ca=keys / "ca.pem", same_host=False) as far:
            assert len(far.get_node_ids("train")) == 100
        status, words = running.end(signal.SIGTERM)
    assert status == 0, words


def test_a_terminal_that_is_closed_ends_the_server(graph: Path) -> None:
    """By SIGHUP, too; but then nobody is left whom it could be served for."""
    leader, terminal = os.openpty()
    command = [COMMAND, "serve", graph, "--json", "--bind", "tcp://127.0.0.1:0", "--workers", "1"]
    process = subprocess.Popen(
        command,
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )
    os.close(terminal)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline()
        os.close(leader)
        assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--bind", "tcp://0.0.0.0:0"], "--allow-plaintext"),
        (["--bind", "nonsense"], "--bind is 'nonsense'; expected 'tcp://host:port'"),
        (["--bind", "tcp://127.0.0.1:70000"], "65535"),
        (["--workers", "0"], "at least 1"),
        (["--lease", "0"], "--lease is 0.0"),
        (["--http", "0.0.0.0:0"], "--http-public"),
        (["--client-ca", "ca.pem"], "--client-ca is given, but certificate"),
        (["--files", "nowhere"], "--files"),
        (["--sampler", "odd"], "expected MODULE:CLASS"),
        (["--sampler", "nowhere.at_all:Walks"], "no module 'nowhere.at_all'"),
        (["--limit", "max_ranks=3"], "max_channels"),
        (["--limit", "max_channels=few"], "expected a whole number"),
        (["--limit", "max_input_bytes=much"], "max_input_bytes is 'much'"),
        (["--pool", "patience=3"], "worker_concurrency"),
        (["--pool", "silence=long"], "silence is 'long'; expected a number above 0"),
        (["--pool", "silence=0"], "silence is 0.0; expected a number above 0"),
        (["--hard-memory", "much"], "--hard-memory is 'much'"),
    ],
    ids=[
        "beyond", "address", "port", "workers", "lease", "pages", "clients", "files", "sampler",
        "module", "limit", "number", "bytes", "pool", "seconds", "none", "memory",
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
    with serving(parts[1], "--workers", 1, "--part-only") as running:
        sample = ("sample", running.address, "--num-neighbors", 3, "--timeout", WAIT_S)
        done = run(*sample, "--input", "150,151", "--json")
        assert done.returncode == 0, done.stderr
        nodes = json.loads(done.stdout)["n_id"]
        assert nodes[:2] == [150, 151]
        assert min(nodes) >= 100
        foreign = run(*sample, "--input", "3")
        assert "part 0" in foreign.stderr
