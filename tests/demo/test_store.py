"""The demonstration with a store for real: parts at servers, of which one is killed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.demo.plan import Plan
from penstock.demo.servers import ServerDied, StoreProcesses
from penstock.demo.subject import generated
from tests.demo.test_run import command
from tests.processes import strike, until

pytestmark = pytest.mark.skipif(
    find_spec("torch_geometric") is None, reason="the demo trains with PyG"
)

SMALL = ("--store", 3, "--nodes", 2000, "--ranks", 2, "--pause", 0.2)
PLAN = Plan(ranks=1, workers=1, epochs=1, seed=0, classes=3, width=4, train=100, servers=2)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Played once: its report, and what was told meanwhile."""
    output = tmp_path_factory.mktemp("store")
    done = subprocess.run(
        command(*SMALL, "--epochs", 4, "--output", output, "--json"),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_server_is_killed_and_its_part_has_another_one(
    played: tuple[dict[str, Any], str],
) -> None:
    report, told = played
    store, killed = report["store"], report["store"]["killed_server"]
    assert (store["parts"], store["servers"], killed["part"]) == (3, 4, 1)
    assert store["edges_cut"] > 0
    assert store["calls"] > 0
    assert len(killed["others"]) == 1
    assert 0 < killed["at_seconds"] < report["seconds"]
    assert f"the server of part 1 at {killed['address']} is killed by SIGKILL" in told
    assert report["killed_worker"] is None
    assert report["workers_lost"] == 0


def test_it_is_told_for_how_long_nobody_got_a_batch(played: tuple[dict[str, Any], str]) -> None:
    report, _ = played
    killed = report["store"]["killed_server"]
    times = sorted(at for rank in report["ranks"] for at in rank["batch_seconds"])
    assert any(at > killed["at_seconds"] for at in times)
    assert 0 < killed["silent_seconds"] < report["seconds"]


def test_all_batches_equal_those_of_the_whole_graph(played: tuple[dict[str, Any], str]) -> None:
    report, told = played
    assert report["proof"] == {
        "batches": report["batches"],
        "equal": report["batches"],
        "differing": [],
    }
    assert report["accuracy"] > 3 * report["chance"]
    assert "Traceback" not in told
    assert "lost" not in told  # what is told is told in the words of the demo


@pytest.fixture
def endless(tmp_path: Path, no_leaks: None) -> Iterator[subprocess.Popen[str]]:
    """A demonstration that will not end by itself, and whose servers run."""
    with subprocess.Popen(
        command(*SMALL, "--epochs", 1_000_000, "--output", tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # one that is killed leaves its files
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert any("parts, each at a server" in line for line in child.stdout), child.stderr.read()
        yield child
        child.kill()


def test_no_server_outlives_a_demo_that_is_killed(endless: subprocess.Popen[str]) -> None:
    family = psutil.Process(endless.pid).children()
    assert sum("serve" in process.cmdline() for process in family) == 4
    strike(endless.pid)
    endless.communicate(timeout=120)


@pytest.mark.usefixtures("no_leaks")
def test_servers_end_with_the_store(tmp_path: Path) -> None:
    with generated(400, 0) as graph, StoreProcesses(graph, PLAN, tmp_path) as store:
        assert [server.part for server in store.servers] == [0, 1, 1]
        with store.opened() as parts:
            assert parts.num_edges() == graph.num_edges()
            store.victim.kill()
            assert parts.split("train").tolist() == graph.split("train").tolist()
    until(lambda: not any(server.is_alive for server in store.servers), "all servers end")


@pytest.mark.usefixtures("no_leaks")
def test_a_server_that_cannot_start_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('this numpy is broken')\n")
    with generated(400, 0) as graph:
        store = StoreProcesses(graph, PLAN, tmp_path)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        with pytest.raises(ServerDied, match=r"part 0 ended with exit code 1: .*this numpy is"):
            store.__enter__()
