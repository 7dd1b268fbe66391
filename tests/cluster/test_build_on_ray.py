"""Parts built on a real Ray cluster of two hosts: files are those of one process, whatever dies.

All tests share the cluster; the last one kills a host.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner

import penstock as ps
from penstock.cli import main
from penstock.cluster import session
from penstock.errors import PenstockError
from penstock.ingest.tasks import task
from tests.cluster.hosts import RayHosts
from tests.ingest.folders import contents
from tests.ingest.shards import sharded
from tests.ingest.test_parts import BUYS, shop
from tests.processes import until

TASK = b"ray::penstock build: "


@pytest.fixture(scope="module")
def hosts() -> Iterator[RayHosts]:
    with RayHosts(2, cpus=1) as hosts, session.session():
        yield hosts


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables have several tasks, too."""
    monkeypatch.setattr(task, "LEAST_NBYTES", 1)


def many_edges(folder: Path, rows: int = 200_000, nodes: int = 20_000) -> dict[str, Any]:
    """A graph with ids of text and weights, in four files: tasks that take a moment."""
    rng = np.random.default_rng(4)
    names = np.array([f"node {number}" for number in rng.permutation(nodes).tolist()])
    ends = rng.integers(0, nodes, (2, rows))
    tables: dict[str, Any] = {
        "nodes": {"data": {"id": names, "x": rng.random(nodes)}, "id": "id"},
        "edges": {
            "data": {"s": names[ends[0]], "t": names[ends[1]], "w": rng.random(rows)},
            "source": "s",
            "target": "t",
            "weight": "w",
        },
    }
    tables["nodes"]["features"] = {"x": ["x"]}
    return sharded(folder, 4, tables)


def same_on_ray(folder: Path, parts: Any, tables: dict[str, Any]) -> None:
    """Build parts on Ray; compare all files with those that one process has built."""
    if not (folder / "one").exists():
        ps.build(folder / "one", **tables, parts=parts)
    ps.build(folder / "many", **tables, parts=parts, ray=True)
    expected, found = contents(folder / "one"), contents(folder / "many")
    assert list(found) == list(expected)
    assert [name for name in expected if found[name] != expected[name]] == []
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


class Striking(threading.Thread):
    """Kills the processes that perform one of some tasks, so many times, while they do."""

    def __init__(self, hosts: RayHosts, what: tuple[str, ...], times: int = 1) -> None:
        super().__init__()
        self.struck: list[str] = []
        self._hosts = hosts
        self._times = times
        self._titles = tuple(TASK + each.encode() for each in what)
        self._over = threading.Event()

    def run(self) -> None:
        workers: list[int] = []
        looked = 0.0
        while len(self.struck) < self._times and not self._over.is_set():
            if time.monotonic() - looked > 0.2:
                workers, looked = [*map(_pid, self._hosts.workers())], time.monotonic()
            for pid in workers:
                self._strike(pid)
            time.sleep(0.001)

    def _strike(self, pid: int) -> None:
        with suppress(OSError):
            if len(self.struck) == self._times or not _title(pid).startswith(self._titles):
                return
            # A stopped process does not end its task between the look and the blow.
            os.kill(pid, signal.SIGSTOP)
            if (title := _title(pid)).startswith(self._titles):
                os.kill(pid, signal.SIGKILL)
                self.struck.append(title.decode())
            else:
                os.kill(pid, signal.SIGCONT)

    def end(self) -> None:
        self._over.set()
        self.join()


@contextmanager
def striking(hosts: RayHosts, what: tuple[str, ...], times: int = 1) -> Iterator[Striking]:
    thread = Striking(hosts, what, times)
    thread.start()
    try:
        yield thread
    finally:
        thread.end()


def _pid(process: psutil.Process) -> int:
    return int(process.pid)


def _title(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "penstock", "build", *map(str, words)]


def spec_of(folder: Path, tables: dict[str, Any]) -> Path:
    """Write a description of one table of nodes and one of edges as a file."""
    lines = []
    for what, table in tables.items():
        lines.append(f"[{what}]")
        lines += [
            f"{word} = {json.dumps(value)}" for word, value in table.items() if word[0] != "f"
        ]
        lines.append(f"files = {json.dumps(table['files'])}")
    spec = folder / "graph.toml"
    spec.write_text("\n".join(lines))
    return spec


# --- the same files ------------------------------------------------------------------------------


def test_parts_are_those_of_one_process(hosts: RayHosts, tmp_path: Path) -> None:
    """CONTRACT 77: two types, ids of text and numbers, splits, reverse edges, a column of parts."""
    same_on_ray(tmp_path, {"n": 3, "edges": "both"}, sharded(tmp_path / "of", 3, shop(3)))


@pytest.mark.parametrize(
    "what",
    [("look up edges", "sort edges"), pytest.param(("write part 1",), marks=pytest.mark.soak)],
    ids=["edges", "part"],
)
def test_a_task_whose_process_is_killed_is_done_again(
    what: tuple[str, ...], hosts: RayHosts, tmp_path: Path
) -> None:
    """CONTRACT 77"""
    tables = many_edges(tmp_path / "of")
    with striking(hosts, what) as strike:
        same_on_ray(tmp_path, {"n": 3, "method": "hash"}, tables)
    assert len(strike.struck) == 1


def test_a_row_that_is_wrong_is_named_as_in_one_process(hosts: RayHosts, tmp_path: Path) -> None:
    """CONTRACT 77: with its file, without a word of Ray; and nothing is left."""
    tables = shop(2)
    tables["edges"][BUYS]["data"]["t"][[150, 399]] = 999
    said = sharded(tmp_path / "of", 4, tables)
    words = r"001.parquet, row 50: column 't' of edges.*is 999; expected an id of nodes.item"
    with pytest.raises(ValueError, match=words) as raised:
        ps.build(tmp_path / "parts", **said, parts=2, ray=True)
    assert type(raised.value) is ValueError
    assert raised.value.__cause__ is None
    assert [path.name for path in tmp_path.iterdir()] == ["of"]


def test_a_task_that_needs_more_than_any_host_has_is_refused(
    hosts: RayHosts, tmp_path: Path
) -> None:
    said = sharded(tmp_path / "of", 1, shop(2))
    with pytest.raises(ValueError, match=r"memory is .* MiB, which each task takes, and no host"):
        ps.build(tmp_path / "parts", **said, parts=2, ray=True, memory="9TB")
    with pytest.raises(PenstockError, match="is for Ray's client: name the cluster by HOST:6379"):
        session._check_reachable("ray://127.0.0.1:10001")
    assert [path.name for path in tmp_path.iterdir()] == ["of"]


def test_the_command_tells_of_each_step(hosts: RayHosts, tmp_path: Path) -> None:
    spec = spec_of(tmp_path, many_edges(tmp_path / "of", 2000, 100))
    words = ("build", spec, "-o", tmp_path / "parts", "-n", 2, "--ray", "--json")
    # In this process, which is connected already.
    done = CliRunner().invoke(main, [*map(str, words)])
    assert done.exit_code == 0, done.stderr
    assert len(json.loads(done.stdout)["parts"]) == 2
    steps = [line.split(": ")[0] for line in done.stderr.splitlines()]
    assert [steps[0], steps[-1]] == ["number nodes", "write parts"]
    assert "sort edges: " in done.stderr
    assert "Traceback" not in done.stderr


# --- slow ----------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_dry_run_says_which_tasks_there_would_be(hosts: RayHosts, tmp_path: Path) -> None:
    spec = spec_of(tmp_path, many_edges(tmp_path / "of"))
    words = (spec, "-o", tmp_path / "parts", "-n", 2, "--ray", "--dry-run")
    shown = subprocess.run(command(*words), capture_output=True, text=True, timeout=120)
    assert shown.returncode == 0, shown.stderr
    assert "for each task, of which 2 run at a time" in shown.stdout
    assert "tasks: number nodes 1, look up edges" in shown.stdout
    told = subprocess.run(command(*words, "--json"), capture_output=True, text=True, timeout=120)
    assert json.loads(told.stdout)["tasks"]["write parts"] == 2
    assert not (tmp_path / "parts").exists()


@pytest.mark.soak
def test_a_task_that_dies_again_and_again_ends_the_build(hosts: RayHosts, tmp_path: Path) -> None:
    tables = many_edges(tmp_path / "of", 1_000_000)
    words = r"Ray could not perform the task 'penstock build: look up edges', .* tried 4 times: "
    with striking(hosts, ("look up edges",), times=1000) as strike:
        with pytest.raises(PenstockError, match=words):
            ps.build(tmp_path / "parts", **tables, parts=2, ray=True)
    assert len(strike.struck) >= 4
    assert not (tmp_path / "parts").exists()


@pytest.mark.soak
def test_a_cluster_is_named_by_its_address(hosts: RayHosts, tmp_path: Path) -> None:
    spec = spec_of(tmp_path, many_edges(tmp_path / "of", 2000, 100))
    address = os.environ["RAY_ADDRESS"]
    code = f"import penstock as ps; ps.build('parts', spec={str(spec)!r}, parts=2, ray={address!r})"
    environ = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "parts").iterdir())) == 2


@pytest.mark.soak
def test_what_a_killed_build_has_left_is_removed_by_the_next(
    hosts: RayHosts, tmp_path: Path
) -> None:
    """CONTRACT 77: it leaves nothing that opens."""
    tables = many_edges(tmp_path / "of", 1_000_000)
    tables["edges"].pop("weight")
    spec = spec_of(tmp_path, tables)
    words = command(spec, "-o", tmp_path / "many", "-n", 3, "--method", "hash", "--ray")
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    left = tmp_path / ".many.build"
    until(lambda: any(left.glob("tasks-*/look-up-*")), "edges are looked up")
    process.kill()
    process.wait()
    assert left.exists()
    assert not (tmp_path / "many").exists()
    tables["nodes"].pop("features")
    same_on_ray(tmp_path, {"n": 3, "method": "hash"}, tables)


@pytest.mark.soak
def test_a_host_that_dies_takes_no_file_with_it(hosts: RayHosts, tmp_path: Path) -> None:
    """CONTRACT 77: its tasks are done again by the others."""
    tables = many_edges(tmp_path / "of", 1_000_000)
    dead = threading.Event()

    def kill() -> None:
        until(lambda: any(tmp_path.glob(".many.build/tasks-*/sort-*")), "edges are sorted")
        hosts.kill(hosts.hosts[0])
        dead.set()

    ps.build(tmp_path / "one", **tables, parts=3)
    killing = threading.Thread(target=kill)
    killing.start()
    same_on_ray(tmp_path, 3, tables)
    killing.join()
    assert dead.is_set()
