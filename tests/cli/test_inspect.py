"""`penstock inspect`, run as people run it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from penstock.graph import Graph, SharedArray
from penstock.graph.derived import SortedNeighbors
from penstock.graph.format import write
from penstock.graph.schema import EDGE, NODE, ArrayKey
from tests.graph.derived_graphs import EDGES, files_of, make_all, web
from tests.graph.format_graphs import Parts, data_files, library, shared, tiny

COMMAND = Path(sys.executable).with_name("penstock")


def run_inspect(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [COMMAND, "inspect", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A sound graph."""
    schema, arrays = tiny()
    more = shared({ArrayKey("split", NODE, "train"): np.array([4, 2])})
    schema = msgspec.structs.replace(schema, attributes={"source": "[bold]by hand[/bold]"})
    write(tmp_path / "x.graph", *Parts(schema, {**arrays, **more}))
    return tmp_path / "x.graph"


def test_it_tells_sizes_attributes_splits_degrees_memory_and_version(path: Path) -> None:
    done = run_inspect(path)
    told = words(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert "homogeneous, 5 nodes, 12 edges" in told
    assert "(topology 144 bytes, nodes 60 bytes, splits 16 bytes)" in told
    assert "(all) 5 x float32[5, 3] train 2" in told
    with Graph.open(path) as graph:
        assert f"version {graph.version}" in told
        degrees = graph.in_degrees()
    assert f"(all) {degrees.min()} {np.median(degrees):.1f} 2.4 {degrees.max()}" in told


def test_names_and_values_are_shown_as_they_are(path: Path) -> None:
    assert 'source "[bold]by hand[/bold]"' in words(run_inspect(path).stdout)


def test_it_tells_the_types_of_a_heterogeneous_graph(tmp_path: Path) -> None:
    write(tmp_path / "x.graph", *library())
    told = words(run_inspect(tmp_path / "x.graph").stdout)
    assert "heterogeneous, 16 nodes, 20 edges" in told
    assert "author 7 x float32[7, 4]" in told
    assert "author-writes-paper 20 weight float64[20] int32, with csr" in told
    assert "paper held out float32[0, 1048576]" in told
    assert "author-writes-paper since 1450" in told


def test_it_looks_at_files_without_reading_them_unless_told_to_verify(path: Path) -> None:
    damaged = next(path.glob("data-*/*-node-x.bin"))
    damaged.write_bytes(bytes(60))
    assert run_inspect(path).returncode == 0


@pytest.mark.parametrize("options", [["--json"], ["--json", "--verify"]])
def test_json_is_the_description_and_nothing_else(options: list[str], path: Path) -> None:
    done = run_inspect(path, *options)
    with Graph.open(path) as graph:
        described = msgspec.json.encode(graph.describe())
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == json.loads(described)


def test_verify_says_that_all_is_well(path: Path) -> None:
    done = run_inspect(path, "--verify")
    assert (done.returncode, done.stderr) == (0, "")
    assert "verified all sums agree, the topology is sound" in words(done.stdout)


def test_verify_shows_its_progress_on_a_terminal(path: Path) -> None:
    """A terminal for standard error alone: what is piped on stays clean."""
    ours, theirs = os.openpty()
    command = [str(COMMAND), "inspect", str(path), "--verify", "--json"]
    environment = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, env=environment, check=True
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 16)
    os.close(ours)
    assert b"checking sums" in shown
    assert json.loads(done.stdout)["num_edges"] == 12


def test_verify_names_the_damaged_file_and_exits_1(path: Path) -> None:
    for file in data_files(path):
        good = file.read_bytes()
        file.write_bytes(bytes([good[0] ^ 1]) + good[1:])
        done = run_inspect(path, "--verify")
        file.write_bytes(good)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"Error: {file}: damaged")


def test_verify_names_unsound_topology_whose_sums_agree(tmp_path: Path) -> None:
    schema, arrays = tiny()
    key = next(key for key in arrays if key.name == "adjacency")
    outside = arrays[key].array.copy()
    outside[3, 0] = 5
    write(tmp_path / "x.graph", schema, {**arrays, **shared({key: outside})})
    done = run_inspect(tmp_path / "x.graph", "--verify")
    assert (done.returncode, done.stdout) == (1, "")
    assert "csc-adjacency.bin" in done.stderr


@pytest.mark.parametrize("options", [[], ["--json"], ["--verify"]])
def test_what_is_no_graph_is_told_in_one_line(options: list[str], tmp_path: Path) -> None:
    done = run_inspect(tmp_path, *options)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {tmp_path}: an empty folder, not a saved graph\n"


def test_a_path_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    done = run_inspect(tmp_path / "nowhere")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "there is no graph here" in done.stderr


def test_its_help_has_examples() -> None:
    assert "penstock inspect products.graph --verify" in run_inspect("--help").stdout


def test_it_lists_the_derived_arrays_that_were_saved_and_verifies_them(tmp_path: Path) -> None:
    """CONTRACT 60."""
    with web() as graph:
        make_all(graph).save(tmp_path / "graph")
    done = run_inspect(tmp_path / "graph", "--verify")
    told = words(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert "verified all sums agree, the topology is sound, derived arrays agree with it" in told
    assert f"(all) in.weights.edge_weight int64[{EDGES}] 1.6 kB" in told
    assert f"(all) coo int32[2, {EDGES}] 1.6 kB" in told
    assert re.search(r"edges [\d.]+ kB, derived [\d.]+ kB", told)


def test_verify_names_the_file_of_an_derived_array_that_does_not_agree(tmp_path: Path) -> None:
    """Its own sum is right: only what it was made from tells."""
    with web() as graph:
        graph.sorted_rows()
        (in_rows,) = SortedNeighbors(EDGE).keys
        with SharedArray.from_array(graph.arrays[in_rows].array, writable=True) as copy:
            copy.array[...] = 0
            Graph(graph.schema, {**graph.arrays, in_rows: copy}).save(tmp_path / "graph")
    with Graph.open(tmp_path / "graph") as opened:
        file = files_of(opened)[in_rows]
    done = run_inspect(tmp_path / "graph", "--verify")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {file}: aid/in.sorted has other entries than")


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Two halves of a ring of four nodes, with a chord within the first half."""
    with Graph.from_coo([[0, 1, 2, 3, 1], [1, 2, 3, 0, 0]], 4, x=np.ones((4, 2))) as graph:
        return graph.partition(2, tmp_path / "parts")


@pytest.mark.parametrize("options", [[], ["--verify"]])
def test_it_tells_which_part_it_is_and_how_much_it_has(
    options: list[str], parts: list[Path]
) -> None:
    done = run_inspect(parts[0], *options)
    told = words(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert "part 0, of 2 (0 to 1): nodes by range, edges with their destination" in told
    assert "4 nodes, 5 edges in all parts" in told
    # 0 -> 1 and 1 -> 0 are within the part; 3 -> 0 comes from the other one.
    assert "nodes 2 4" in told
    assert "edges 3 2 1 5" in told
    assert ("all sums agree" in told) == bool(options)


def test_json_of_a_part_says_which_it_is(parts: list[Path]) -> None:
    told = json.loads(run_inspect(parts[1], "--json").stdout)
    assert told["num_nodes"] == 4
    part = told["part"]
    assert (part["number"], part["of"], part["method"]) == (1, 2, "range")
    assert part["edges_cut"] == [[["", "", ""], 1]]
    assert part["nodes"] == [["", 2, 4]]
    assert (part["topology"], len(part["cut"])) == ("parts", 32)


def test_it_tells_in_words_how_the_graph_was_cut(tmp_path: Path) -> None:
    with Graph.from_coo([[0, 1], [1, 0]], 2) as graph:
        given = {"method": [1, 0], "edges": "both", "topology": "whole"}
        (part, _) = graph.partition(2, tmp_path / "parts", **given)
    told = words(run_inspect(part).stdout)
    assert "nodes as given, edges with both ends; every part has all edges" in told


def test_damage_of_a_part_is_found(parts: list[Path]) -> None:
    file = max(parts[1].glob("data-*/*.bin"), key=lambda each: each.stat().st_size)
    file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
    done = run_inspect(parts[1], "--verify")
    assert done.returncode == 1
    assert str(file) in done.stderr.replace("\n", "")


def test_a_folder_of_parts_says_what_to_inspect(parts: list[Path]) -> None:
    done = run_inspect(parts[0].parent)
    assert done.returncode == 1
    assert "no graph, but 2 parts of one are here: inspect one, such as" in words(done.stderr)
