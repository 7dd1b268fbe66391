"""`penstock partition`, run as people run it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from penstock.graph import Graph
from tests.cli.servers import run, save_small


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return save_small(tmp_path / "small.graph")


def test_parts_are_written_and_told(graph: Path, tmp_path: Path) -> None:
    done = run("partition", graph, tmp_path / "parts", "-n", 3, "--method", "hash", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert sum(part["num_nodes"] for part in told) == 200
    with Graph.open(graph) as whole, Graph.open(tmp_path / "parts" / "part-2") as opened:
        part = opened.part
        assert part is not None
        assert (part.number, part.of, part.method) == (2, 3, "hash")
        assert sum(each["num_edges"] for each in told) == whole.num_edges()
        assert told[2]["edges_cut"] == sum(part.edges_cut)


def test_parts_are_told_in_lines_with_how_many_edges_were_cut(graph: Path, tmp_path: Path) -> None:
    done = run("partition", graph, tmp_path / "parts", "-n", 2)
    assert "part-0: 100 nodes" in done.stdout
    cut = 0
    for number in range(2):
        with Graph.open(tmp_path / "parts" / f"part-{number}") as opened:
            assert opened.part is not None
            cut += sum(opened.part.edges_cut)
            total = opened.num_edges()
    assert f"cut: {cut:,} of {total:,} edges ({cut / total:.1%})" in done.stdout
    assert done.stderr == ""


def test_layout_edges_and_a_file_of_parts_are_taken(graph: Path, tmp_path: Path) -> None:
    given = np.arange(200) % 3
    np.save(tmp_path / "given.npy", given)
    options = ["--method", tmp_path / "given.npy", "--edges", "both", "--topology", "whole"]
    done = run("partition", graph, tmp_path / "parts", "-n", 3, *options)
    assert done.returncode == 0, done.stderr
    with Graph.open(tmp_path / "parts" / "part-1") as opened:
        part = opened.part
        assert part is not None
        assert (part.method, part.edges, part.topology) == ("given", "both", "whole")
        assert opened.node_ids().tolist() == np.flatnonzero(given == 1).tolist()


def test_a_file_of_parts_may_have_an_array_for_each_type(tmp_path: Path) -> None:
    edges = {("user", "buys", "item"): [[0, 1], [0, 2]]}
    with Graph.from_coo(edges, {"user": 2, "item": 3}) as shop:
        shop.save(tmp_path / "shop.graph")
    np.savez(tmp_path / "given.npz", user=[0, 1], item=[1, 1, 0])
    done = run(
        "partition",
        tmp_path / "shop.graph",
        tmp_path / "parts",
        "-n",
        2,
        "--method",
        tmp_path / "given.npz",
    )
    assert done.returncode == 0, done.stderr
    assert "cut: 2 of 2 user-buys-item edges (100.0%)" in done.stdout


def test_another_word_for_a_method_is_refused(graph: Path, tmp_path: Path) -> None:
    done = run("partition", graph, tmp_path / "parts", "-n", 2, "--method", "metis")
    assert done.returncode == 2
    assert "expected range, hash, or a file that ends in .npy or .npz" in " ".join(
        done.stderr.split()
    )


def test_a_folder_of_something_else_is_left_as_it_is(graph: Path, tmp_path: Path) -> None:
    done = run("partition", graph, tmp_path, "-n", 2)
    assert done.returncode == 1
    assert "left as it is" in done.stderr
    assert graph.is_dir()
