"""`penstock partition`, run as people run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.graph.partition.partition import Partition
from tests.cli.servers import run, save_small


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return save_small(tmp_path / "small.graph")


def test_parts_are_written_and_told(graph: Path, tmp_path: Path) -> None:
    done = run("partition", graph, tmp_path / "parts", "-n", 3, "--method", "hash", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert sum(part["num_nodes"] for part in told) == 200
    with Partition.open(tmp_path / "parts" / "part-2") as part:
        assert (part.number, part.num_partitions, part.method) == (2, 3, "hash")


def test_parts_are_told_in_lines(graph: Path, tmp_path: Path) -> None:
    done = run("partition", graph, tmp_path / "parts", "-n", 2)
    assert "part-0: 100 nodes" in done.stdout
    assert done.stderr == ""


def test_a_folder_of_something_else_is_left_as_it_is(graph: Path, tmp_path: Path) -> None:
    done = run("partition", graph, tmp_path, "-n", 2)
    assert done.returncode == 1
    assert "left as it is" in done.stderr
    assert graph.is_dir()
