"""`penstock partition`, run as people run it."""

from __future__ import annotations

import json
import subprocess
import sys
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
    said = json.loads(done.stdout)
    told = said["parts"]
    assert sum(part["num_nodes"] for part in told) == 200
    with Graph.open(graph) as whole, Graph.open(tmp_path / "parts" / "part-2") as opened:
        part = opened.part
        assert part is not None
        assert (part.number, part.of, part.method) == (2, 3, "hash")
        assert sum(each["num_edges"] for each in told) == whole.num_edges()
        assert told[2]["edges_cut"] == sum(part.edges_cut)
    assert (said["method"], said["num_edges"]) == ("hash", 2000)
    assert said["edges_cut"] == sum(each["edges_cut"] for each in told)
    largest = max(each["num_nodes"] for each in told)
    assert said["balance"]["nodes"] == pytest.approx(largest * 3 / 200)


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
    assert "balance: nodes 1.00, edges 1.0" in done.stdout
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
    assert "balance: user 1.00, item 1.33, user-buys-item 1.00" in done.stdout


def test_another_word_for_a_method_is_refused(graph: Path, tmp_path: Path) -> None:
    done = run("partition", graph, tmp_path / "parts", "-n", 2, "--method", "metis")
    assert done.returncode == 2
    assert "expected range, hash, locality, streaming, or a file that ends" in " ".join(
        done.stderr.split()
    )


def test_a_folder_of_something_else_is_left_as_it_is(graph: Path, tmp_path: Path) -> None:
    done = run("partition", graph, tmp_path, "-n", 2)
    assert done.returncode == 1
    assert "left as it is" in done.stderr
    assert graph.is_dir()


# --- locality ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [["locality"], ["streaming", "--passes", 3]])
def test_parts_that_cut_few_edges_are_written(
    graph: Path, tmp_path: Path, options: list[object]
) -> None:
    done = run("partition", graph, tmp_path / "parts", "-n", 2, "--json", "--method", *options)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["method"] == options[0]
    assert said["edges_cut"] < 0.45 * said["num_edges"]
    with Graph.open(tmp_path / "parts" / "part-1") as part:
        assert part.num_own_nodes() == said["parts"][1]["num_nodes"]


def test_methods_are_compared_without_writing(graph: Path, tmp_path: Path) -> None:
    given = tmp_path / "given.npy"
    np.save(given, np.arange(200) % 2)
    before = sorted(tmp_path.iterdir())
    asked = ("partition", graph, "-n", 2, "--compare", "--method", given)
    said = json.loads(run(*asked, "--json").stdout)
    assert [row["method"] for row in said] == ["range", "hash", "locality", "streaming", str(given)]
    by_method = {row["method"]: row for row in said}
    assert by_method["locality"]["edges_cut"] < by_method["hash"]["edges_cut"]
    assert by_method["range"]["balance"]["nodes"] == 1.0
    done = run(*asked)
    for row in said:
        cut = f"{row['edges_cut']:,}", f"{row['edges_cut'] / 2000:.1%}"
        (line,) = (line for line in done.stdout.splitlines() if row["method"] in line)
        assert all(cell in line for cell in cut)
    assert sorted(tmp_path.iterdir()) == before


def test_figures_of_types_are_in_the_json(tmp_path: Path) -> None:
    edges = {("user", "buys", "item"): [[0, 1], [0, 2]]}
    with Graph.from_coo(edges, {"user": 2, "item": 3}) as shop:
        shop.save(tmp_path / "shop.graph")
    said = json.loads(
        run("partition", tmp_path / "shop.graph", "-n", 2, "--compare", "--json").stdout
    )
    by_type = said[0]["by_type"]
    assert by_type["num_edges"] == {"user-buys-item": 2}
    assert by_type["balance"]["nodes"] == {"user": 1.0, "item": pytest.approx(4 / 3)}
    assert said[0]["balance"]["nodes"] == pytest.approx(4 / 3)


# What the command does where a package is not installed.
WITHOUT = """
import sys
sys.modules["kaminpar"] = None
from penstock.cli import main
main()
"""


def test_a_package_that_is_missing_is_named(graph: Path, tmp_path: Path) -> None:
    def ask(*options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WITHOUT, "partition", graph, *options, "-n", 2]
        return subprocess.run([*map(str, command)], capture_output=True, text=True)

    done = ask(tmp_path / "parts", "--method", "locality")
    assert done.returncode == 1
    assert "pip install 'penstock-gnn[locality]'" in done.stderr
    assert not (tmp_path / "parts").exists()
    done = ask("--compare", "--json")
    assert done.returncode == 0
    assert [row["method"] for row in json.loads(done.stdout)] == ["range", "hash", "streaming"]
    assert "locality is left out: method='locality' needs the package kaminpar" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "Missing argument 'FOLDER'; only --compare needs none"),
        (["parts", "--passes", 3], "--passes is for --method streaming"),
        (["parts", "--method", "streaming", "--passes", 0], "0 is not in the range x>=1"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    graph: Path, options: list[object], words: str
) -> None:
    done = run("partition", graph, *options, "-n", 2)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
