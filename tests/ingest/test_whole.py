"""Builds as a whole, in processes of their own: killed at any moment, within memory, by command."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import GraphFormatError
from tests.ingest.tables import table_of, write
from tests.processes import until

ROOT = Path(__file__).parents[2]
# Builds a graph, and is killed at some call by which it changes the disk; prints how many calls.
BUILDER = """
import sys
import penstock as ps
from penstock.ingest.build import build
from tests.graph.faults import at_every_call, die_at
import os

calls = 0
if position := int(sys.argv[3]):
    die_at(position)
else:
    def count(number):
        global calls
        calls = number
    for name, wrapped in at_every_call(count).items():
        setattr(os, name, wrapped)
build(sys.argv[1], spec=sys.argv[2], memory="64MB").close()
print(calls)
"""


def run(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run `penstock` with these words."""
    command = [sys.executable, "-m", "penstock", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **more)


def described(folder: Path, seed: int, rows: int) -> Path:
    """Tables of every kind of work, and a description of them; the path of the latter."""
    rng = np.random.default_rng(seed)
    ids = [f"node {n}" for n in rng.permutation(rows).tolist()]
    nodes = {"id": ids, "v": rng.random(rows)}
    edges = {
        "s": [ids[n] for n in rng.integers(0, rows, 2 * rows).tolist()],
        "t": [ids[n] for n in rng.integers(0, rows, 2 * rows).tolist()],
        "at": rng.integers(0, 10**6, 2 * rows),
    }
    write(folder / f"nodes-{seed}.csv", table_of(nodes))
    write(folder / f"edges-{seed}.parquet", table_of(edges))
    spec = folder / f"graph-{seed}.toml"
    spec.write_text(f"""
        [nodes.a]
        files = "nodes-{seed}.csv"
        id = "id"
        features = {{x = {{columns = ["v"], store = "int8"}}}}
        split = {{by = "hash", val = 0.1}}
        [edges."a,to,a"]
        files = "edges-{seed}.parquet"
        source = "s"
        target = "t"
        time = "at"
        reverse = true
        duplicates = "drop"
        split = {{by = "time", val = 0.1, test = 0.1}}
    """)
    return spec


def built(out: Path, spec: Path, position: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BUILDER, out, spec, str(position)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def version_at(path: Path) -> str | None:
    """The version of the graph that is there, after all of it was read."""
    try:
        with ps.Graph.open(path) as graph:
            graph.validate()
            return graph.version
    except (FileNotFoundError, GraphFormatError):
        return None


def test_a_build_that_is_killed_at_any_call_leaves_the_old_graph_or_the_new(
    tmp_path: Path,
) -> None:
    """CONTRACT 77"""
    old, new, out = described(tmp_path, 1, 300), described(tmp_path, 2, 400), tmp_path / "g"
    with ps.build(tmp_path / "other", spec=new) as other:
        wanted = other.version
    done = built(out, old, 0)
    before, calls = version_at(out), int(done.stdout)
    assert calls > 30
    for position in sorted(random.Random(7).sample(range(1, calls), 4)):
        killed = built(out, new, position)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert version_at(out) in (before, wanted)
    done = built(out, new, 10**9)
    assert done.returncode == 0, done.stderr
    assert version_at(out) == wanted
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith(".")) == []
    assert len(list(out.iterdir())) == 2


def test_a_command_that_is_killed_is_started_again(tmp_path: Path) -> None:
    """CONTRACT 77"""
    spec, out = described(tmp_path, 3, 4000), tmp_path / "g"
    scratch, command = tmp_path / ".g.build", [sys.executable, "-m", "penstock", "build"]
    for is_far in (
        scratch.exists,
        lambda: scratch.exists() and len(list(scratch.iterdir())) > 5,
        lambda: any(out.glob("data-*/*")),
    ):
        with subprocess.Popen([*map(str, [*command, spec, "-o", out])], cwd=ROOT) as process:
            until(lambda: process.poll() is not None or is_far(), "it is under way")  # noqa: B023
            process.kill()
            process.wait()
        assert version_at(out) is None or process.returncode == 0
    done = run("build", spec, "-o", out, "--json", "--memory", "64MB")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["graph"]["version"] == version_at(out)
    assert told["left_out"]
    assert not scratch.exists()


def test_two_builds_of_one_graph_do_not_meet(tmp_path: Path) -> None:
    from penstock.ingest.workspace import workspace_of

    edges = {"data": {"s": [0], "t": [0]}, "source": "s", "target": "t"}
    with workspace_of(tmp_path / "g"):
        with pytest.raises(BlockingIOError, match="another process is building this graph"):
            ps.build(tmp_path / "g", edges=edges)
    ps.build(tmp_path / "g", edges=edges).close()


def test_memory_is_bounded_whatever_the_size_of_the_tables(tmp_path: Path) -> None:
    """CONTRACT 77"""
    rng, nodes, edges = np.random.default_rng(0), 300_000, 5_000_000
    ids = rng.permutation(3 * nodes)[:nodes]
    x = pa.FixedSizeListArray.from_arrays(rng.random(nodes * 128, dtype=np.float32), 128)
    pq.write_table(pa.table({"id": ids, "x": x}), tmp_path / "nodes.parquet")
    columns = {name: ids[rng.integers(0, nodes, edges)] for name in ("s", "t")}
    pq.write_table(pa.table({**columns, "w": rng.random(edges)}), tmp_path / "edges.parquet")
    del columns, x
    (tmp_path / "g.toml").write_text(
        '[nodes]\nfiles = "nodes.parquet"\nid = "id"\nfeatures = {x = "x"}\n'
        '[edges]\nfiles = "edges.parquet"\nsource = "s"\ntarget = "t"\nweight = "w"\n'
    )
    module = "tests.ingest.bounded_build"
    command = [sys.executable, "-m", module, tmp_path / "g", tmp_path / "g.toml", "64MB"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    # Beside it: a few pieces of files, and libraries that are imported on the way.
    assert int(done.stdout.split()[0]) < (64 << 20) + (96 << 20)
    with ps.Graph.open(tmp_path / "g") as graph:
        assert sum(array.nbytes for array in graph.arrays.values()) > 200 << 20


# --- the command ---------------------------------------------------------------------------------


def test_the_command_says_what_it_built(tmp_path: Path) -> None:
    spec, out = described(tmp_path, 4, 50), tmp_path / "g"
    done = run("build", spec, "-o", out)
    assert done.returncode == 0, done.stderr
    assert re.search(r"g: .*built in", done.stdout, re.DOTALL)
    assert "x int8 → float32[50, 1]" in done.stdout
    assert "train" in done.stdout
    assert re.search(r"a-to-a +val_links +int64\[2, 1\d\]", done.stdout)
    assert done.stderr == ""


def test_a_dry_run_says_what_it_found_and_builds_nothing(tmp_path: Path) -> None:
    spec, out = described(tmp_path, 5, 50), tmp_path / "g"
    done = run("build", spec, "-o", out, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "nodes.a" in done.stdout
    assert "v double" in done.stdout
    assert "at int64" in done.stdout
    assert "nodes of 'a': as many as rows" in done.stdout
    told = json.loads(run("build", spec, "-o", out, "--dry-run", "--json").stdout)
    assert [(each["name"], each["rows"]) for each in told["tables"]] == [
        ("nodes.a", None),
        ('edges."a,to,a"', 100),
    ]
    assert told["memory"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "edges-5.parquet",
        "graph-5.toml",
        "nodes-5.csv",
    ]


def test_an_error_is_one_line(tmp_path: Path) -> None:
    spec = described(tmp_path, 6, 50)
    spec.write_text(spec.read_text().replace('id = "id"', 'id = "idd"'))
    done = run("build", spec, "-o", tmp_path / "g")
    assert done.returncode == 1
    assert "did you mean 'id'?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("missing", ["pyarrow", "duckdb"])
def test_a_library_that_is_missing_is_named_with_its_extra(missing: str, tmp_path: Path) -> None:
    spec = described(tmp_path, 7, 5)
    (tmp_path / missing).mkdir()
    (tmp_path / missing / "__init__.py").write_text(f"raise ImportError('no {missing} here')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run("build", spec, "-o", tmp_path / "g", env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 1
    assert "pip install 'penstock-gnn[ingest]'" in done.stderr
    assert "Traceback" not in done.stderr
