"""Builds of parts in processes of their own: killed, on a full disk, within memory, by command."""

from __future__ import annotations

import errno
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
from penstock.graph.format import verify
from penstock.graph.partition.partition import parts_in
from tests.ingest.folders import contents
from tests.ingest.test_whole import ROOT, described, run
from tests.processes import until

# Builds parts, and is killed at some call by which it changes the disk; prints how many calls.
BUILDER = """
import os, sys
from penstock.ingest.build import build
from tests.graph.faults import at_every_call, die_at

calls = 0
if position := int(sys.argv[4]):
    die_at(position)
else:
    def count(number):
        global calls
        calls = number
    for name, wrapped in at_every_call(count).items():
        setattr(os, name, wrapped)
parts = {"n": int(sys.argv[3]), "method": "hash"}
build(sys.argv[1], spec=sys.argv[2], memory="64MB", parts=parts)
print(calls)
"""


def built(out: Path, spec: Path, n: int, position: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BUILDER, out, spec, str(n), str(position)]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=ROOT)


def versions_at(folder: Path) -> list[str]:
    """The versions of the parts that are there, after all of them were read; none, or all."""
    try:
        found = [verify(path) for path in parts_in(folder)]
        for path in parts_in(folder):
            with ps.Graph.open(path) as graph:
                assert graph.part is not None
                assert graph.part.of == len(found)
    except (FileNotFoundError, GraphFormatError):
        return []
    return found


def test_a_build_that_is_killed_at_any_call_leaves_the_old_parts_or_the_new(
    tmp_path: Path,
) -> None:
    """CONTRACT 77"""
    old, new, out = described(tmp_path, 1, 100), described(tmp_path, 2, 150), tmp_path / "parts"
    wanted = versions_at(_built_parts(tmp_path / "other", new, 2))
    _built_parts(tmp_path / "replaced", old, 3)
    done = built(tmp_path / "replaced", new, 2, 0)
    calls = int(done.stdout)  # the last of them remove the parts that were replaced
    assert calls > 200
    before = versions_at(_built_parts(out, old, 3))
    assert len(before) == 3
    early, late = random.Random(5), random.Random(6)
    positions = [*early.sample(range(1, calls - 60), 2), *late.sample(range(calls - 60, calls), 2)]
    for position in sorted(positions):
        killed = built(out, new, 2, position)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert versions_at(out) in (before, wanted)
    done = built(out, new, 2, 10**9)
    assert done.returncode == 0, done.stderr
    assert versions_at(out) == wanted
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def _built_parts(out: Path, spec: Path, n: int) -> Path:
    ps.build(out, spec=spec, parts={"n": n, "method": "hash"})
    return out


def test_a_command_that_is_killed_is_started_again(tmp_path: Path) -> None:
    """CONTRACT 77"""
    spec, out = described(tmp_path, 3, 4000), tmp_path / "parts"
    scratch = tmp_path / ".parts.build"
    command = [sys.executable, "-m", "penstock", "build", spec, "-o", out, "-n", 4]
    for is_far in (
        lambda: any(scratch.glob("*-segments/*")),
        lambda: any(scratch.glob("*-parts/part-1/data-*/*")),
    ):
        with subprocess.Popen([*map(str, command)], cwd=ROOT) as process:
            until(lambda: process.poll() is not None or is_far(), "it is under way")  # noqa: B023
            process.kill()
            process.wait()
        assert versions_at(out) == [] or process.returncode == 0
    done = run(*command[3:], "--json", "--memory", "64MB", "--method", "hash")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["method"] == "hash"
    assert [part["part"] for part in told["parts"]] == [0, 1, 2, 3]
    assert sum(part["num_edges"] for part in told["parts"]) == told["num_edges"]
    assert told["left_out"]
    assert len(versions_at(out)) == 4
    assert not scratch.exists()


def test_a_full_disk_is_named_and_leaves_the_parts_that_were_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 77"""
    spec, out = described(tmp_path, 1, 100), tmp_path / "parts"
    _built_parts(out, spec, 2)
    before, write, count = contents(out), os.write, 0

    def counted(fd: int, data: Any) -> int:
        nonlocal count
        count += 1
        if count == full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    monkeypatch.setattr(os, "write", counted)
    full = -1
    _built_parts(tmp_path / "other", spec, 3)
    for position in random.Random(1).sample(range(1, count), 4):
        full, count = position, 0
        with pytest.raises(OSError, match="No space left") as raised:
            _built_parts(out, spec, 3)
        assert str(raised.value.filename).startswith(str(tmp_path / ".parts.build"))
        assert contents(out) == before
        assert not (tmp_path / ".parts.build").exists()


@pytest.mark.parametrize(
    "words",
    [
        pytest.param({"method": "hash"}, id="hash"),
        pytest.param(
            {"method": "streaming", "edges": "both"}, id="streaming", marks=pytest.mark.soak
        ),
    ],
)
def test_memory_is_bounded_whatever_the_size_of_the_tables(
    words: dict[str, Any], tmp_path: Path
) -> None:
    """CONTRACT 77"""
    rng, nodes, edges = np.random.default_rng(0), 200_000, 3_000_000
    ids = np.array([f"node {n:07d}" for n in rng.permutation(nodes).tolist()])
    x = pa.FixedSizeListArray.from_arrays(rng.random(nodes * 128, dtype=np.float32), 128)
    pq.write_table(pa.table({"id": ids, "x": x}), tmp_path / "nodes.parquet")
    columns = {name: pa.array(ids).take(rng.integers(0, nodes, edges)) for name in ("s", "t")}
    pq.write_table(pa.table({**columns, "w": rng.random(edges)}), tmp_path / "edges.parquet")
    del columns, x
    (tmp_path / "g.toml").write_text(
        '[nodes]\nfiles = "nodes.parquet"\nid = "id"\nfeatures = {x = "x"}\n'
        '[edges]\nfiles = "edges.parquet"\nsource = "s"\ntarget = "t"\nweight = "w"\n'
    )
    module, parts = "tests.ingest.bounded_build", json.dumps({"n": 3, **words})
    out = tmp_path / "parts"
    command = [sys.executable, "-m", module, out, tmp_path / "g.toml", "64MB", parts]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    # Beside it: a few pieces of files, and libraries that are imported on the way.
    assert int(done.stdout.split()[0]) < (64 << 20) + (96 << 20)
    assert sum(path.stat().st_size for path in out.rglob("*.bin")) > 140 << 20


# --- the command ---------------------------------------------------------------------------------


def test_the_command_says_which_parts_it_built(tmp_path: Path) -> None:
    spec, out = described(tmp_path, 4, 50), tmp_path / "parts"
    done = run("build", spec, "-o", out, "--parts", 2)
    assert done.returncode == 0, done.stderr
    assert re.search(r"parts/part-0: 25 nodes, \d+ edges, \d+ of them cut", done.stdout)
    assert re.search(r"cut: \d+ of \d+ a-to-a edges", done.stdout)
    assert "balance: a 1.00" in done.stdout
    assert "built in" in done.stdout
    assert done.stderr == ""


def test_parts_may_be_described_in_the_file(tmp_path: Path) -> None:
    spec, out = described(tmp_path, 4, 50), tmp_path / "parts"
    with open(spec, "a") as file:
        file.write('[parts]\nn = 3\nmethod = "hash"\ntopology = "whole"\n')
    assert len(ps.build(out, spec=spec)) == 3
    before = contents(out)
    done = run("build", spec, "-o", out, "--json")
    assert json.loads(done.stdout)["method"] == "hash"
    assert contents(out) == before
    assert len(ps.build(out, spec=spec, parts=2)) == 2
    with ps.Graph.open(out / "part-1") as part:
        assert part.part is not None
        assert (part.part.method, part.part.topology) == ("hash", "whole")


def test_a_file_of_parts_is_taken(tmp_path: Path) -> None:
    spec, out = described(tmp_path, 4, 50), tmp_path / "parts"
    np.savez(tmp_path / "mine.npz", a=np.arange(50) % 2)
    done = run("build", spec, "-o", out, "-n", 2, "--method", tmp_path / "mine.npz")
    assert done.returncode == 0, done.stderr
    with ps.Graph.open(out / "part-1") as part:
        assert part.node_ids("a").tolist() == list(range(1, 50, 2))


def test_a_dry_run_says_which_parts_there_would_be(tmp_path: Path) -> None:
    spec, out = described(tmp_path, 5, 50), tmp_path / "parts"
    done = run("build", spec, "-o", out, "-n", 4, "--method", "hash", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "parts: 4 by hash, edges by destination, topology parts; about" in done.stdout
    assert "for all parts" in done.stdout
    whole = json.loads(run("build", spec, "-o", out, "--dry-run", "--json").stdout)
    told = json.loads(
        run("build", spec, "-o", out, "--dry-run", "--json", "-n", 4, "--topology", "whole").stdout
    )
    assert whole["parts"] is None
    assert told["parts"]["topology"] == "whole"
    assert told["disk"] > whole["disk"]
    assert not out.exists()


def test_words_of_parts_without_their_number_are_refused(tmp_path: Path) -> None:
    spec = described(tmp_path, 6, 50)
    done = run("build", spec, "-o", tmp_path / "parts", "--method", "hash")
    assert done.returncode == 1
    assert "parts lacks 'n'" in done.stderr
    done = run("build", spec, "-o", tmp_path / "parts", "-n", 2, "--method", "hahs")
    assert done.returncode == 2
    assert "did you mean 'hash'?" in done.stderr
