"""The demonstration for real: ranks that train, a worker that is killed, a rank that pauses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock import Graph
from penstock.demo.fairness import jain
from tests.processes import strike

pytestmark = pytest.mark.skipif(
    find_spec("torch_geometric") is None, reason="the demo trains with PyG"
)

PENSTOCK = Path(sys.executable).with_name("penstock")
SMALL = ("--nodes", 2000, "--ranks", 2, "--pause", 0.2)
PNG = b"\x89PNG\r\n\x1a\n"


def command(*options: object) -> list[str]:
    return [str(PENSTOCK), "demo", *map(str, options)]


@dataclass(frozen=True)
class Played:
    """A demonstration that has been."""

    report: dict[str, Any]
    stderr: str
    output: Path
    kept: Path


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Played once; what comes of it is looked at from all sides."""
    folder = tmp_path_factory.mktemp("demo")
    # Paths that look like markup, and the largest seed there is.
    output, kept = folder / "[red]out" / "deep", folder / "x[" / "y].graph"
    kept.parent.mkdir()
    # Epochs enough that shares do not depend on who was late in one of them.
    options = ("--epochs", 10, "--seed", 2**64 - 1, "--output", output, "--keep", kept, "--json")
    done = subprocess.run(
        command(*SMALL, *options), capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    return Played(json.loads(done.stdout), done.stderr, output, kept)


def test_the_ranks_learn(played: Played) -> None:
    report = played.report
    assert report["accuracy"] > 4 * report["chance"]
    assert report["losses"][-1] < report["losses"][0] / 2


def test_every_rank_reads_as_many_batches(played: Played) -> None:
    report = played.report
    assert [rank["batches"] for rank in report["ranks"]] == [report["batches"] / 2] * 2
    assert [len(rank["batch_seconds"]) for rank in report["ranks"]] == [report["batches"] / 2] * 2


def test_the_rate_is_told(played: Played) -> None:
    report = played.report
    assert report["batches_per_second"] == pytest.approx(report["batches"] / report["seconds"])


def test_the_ranks_get_equal_shares(played: Played) -> None:
    """CONTRACT 7. The bound is three batches to one: as much as a busy machine may do to a rank."""
    shares = [rank["share"] for rank in played.report["ranks"]]
    assert played.report["jain"] == pytest.approx(jain(shares))
    assert played.report["jain"] > 0.8, shares


def test_the_killed_worker_has_a_story_and_a_successor(played: Played) -> None:
    killed = played.report["killed_worker"]
    assert killed["verdict"].startswith("SIGKILL, no sign of memory pressure")
    assert killed["successor"] > killed["worker"]
    assert killed["replaced_after_seconds"] > 0
    assert played.report["workers_lost"] == 1


def test_one_rank_pauses_for_as_long_as_was_asked(played: Played) -> None:
    pause = played.report["pause"]
    assert (pause["rank"], pause["seconds"] >= 0.2) == (1, True)


def test_all_batches_equal_those_of_an_undisturbed_run(played: Played) -> None:
    proof = played.report["proof"]
    assert proof == {
        "batches": played.report["batches"],
        "equal": proof["batches"],
        "differing": [],
    }


def test_there_is_a_plot(played: Played) -> None:
    assert played.report["plot"] == str(played.output / "rates.png")
    assert (played.output / "rates.png").read_bytes().startswith(PNG)


def test_the_report_is_kept_beside_it(played: Played) -> None:
    assert json.loads((played.output / "report.json").read_text()) == played.report


def test_the_graph_is_kept_if_wanted(played: Played) -> None:
    with Graph.open(played.kept) as graph:
        assert graph.num_nodes() == played.report["nodes"] == 2000


def test_what_happens_is_told_beside_the_json(played: Played) -> None:
    for words in (
        "all ranks train",
        "is killed by SIGKILL",
        "has taken its place",
        "pauses",
        "makes another one's",
    ):
        assert words in played.stderr
    assert "Traceback" not in played.stderr


@pytest.mark.usefixtures("no_leaks")
def test_a_graph_of_ones_own_is_trained_on_by_a_single_rank_quietly(
    played: Played, tmp_path: Path
) -> None:
    options = ("--graph", played.kept, "--ranks", 1, "--workers", 1, "--epochs", 1, "--pause", 0)
    done = subprocess.run(
        command(*options, "--quiet"), capture_output=True, text=True, cwd=tmp_path, timeout=280
    )
    assert (done.returncode, done.stderr) == (0, "")
    headings = [re.split(r" {2,}| (?=[a-z]+ )", line)[0] for line in done.stdout.splitlines()]
    assert headings[0].startswith("accuracy")
    assert len(headings) == 7
    assert (tmp_path / "penstock-demo" / "rates.png").exists()


@pytest.fixture
def endless(tmp_path: Path, no_leaks: None) -> Iterator[subprocess.Popen[str]]:
    """A demonstration that will not end by itself, and whose ranks train."""
    with subprocess.Popen(
        command(*SMALL, "--epochs", 1_000_000, "--output", tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # one that is killed leaves its files
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert any("all ranks train" in line for line in child.stdout), child.stderr.read()
        yield child
        child.kill()


def ranks_of(child: subprocess.Popen[str]) -> list[int]:
    """The processes of its ranks, in order."""
    family = psutil.Process(child.pid).children()
    return [process.pid for process in family if "penstock.demo.rank" in process.cmdline()]


def test_a_rank_that_dies_is_an_error_in_words(endless: subprocess.Popen[str]) -> None:
    ranks = ranks_of(endless)
    assert len(ranks) == 2
    strike(ranks[1])
    stderr = endless.communicate(timeout=120)[1]
    assert endless.returncode == 1
    assert stderr == f"Error: rank 1 (pid {ranks[1]}) was killed by SIGKILL\n"


@pytest.mark.usefixtures("no_leaks")
def test_a_rank_that_fails_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('this torch is broken')\n")
    done = subprocess.run(
        command(*SMALL, "--quiet", "--output", tmp_path / "out"),
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"Error: rank \d \(pid \d+\) failed: ImportError: this torch is broken\n", done.stderr
    )


def test_nothing_outlives_a_demo_that_is_killed(endless: subprocess.Popen[str]) -> None:
    strike(endless.pid)
    endless.communicate(timeout=120)
    assert endless.returncode == -9
