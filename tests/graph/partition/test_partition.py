"""Writing parts: all of them or none, beside what is there; and what is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock import Graph
from penstock.errors import GraphFormatError
from penstock.graph.derived import made_arrays
from penstock.graph.folder import exchange
from penstock.graph.format import verify
from penstock.graph.schema import ArrayKey
from penstock.kernels import Adjacency
from penstock.kernels.prepare import weight_sums
from tests.graph.partition.graphs import CITES, WRITES, cut, heterogeneous, homogeneous

ROOT = Path(__file__).parents[3]

# Cuts a graph in place of the parts that are there, and is killed when something was written.
KILLED = """
import os, signal, sys
from tests.graph.partition.graphs import heterogeneous

def die(done, total):
    os.kill(os.getpid(), signal.SIGKILL)

heterogeneous().partition(2, sys.argv[1], progress=die)
"""


def size_of(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*.bin"))


def test_parts_take_the_place_of_those_before(tmp_path: Path) -> None:
    with homogeneous() as graph:
        graph.partition(3, tmp_path / "parts")
        graph.partition(2, tmp_path / "parts")
    assert sorted(each.name for each in (tmp_path / "parts").iterdir()) == ["part-0", "part-1"]
    assert [each.name for each in tmp_path.iterdir()] == ["parts"]


def test_a_folder_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with homogeneous() as graph, pytest.raises(GraphFormatError, match="no folder of parts"):
        graph.partition(2, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_saved_graph_is_not_replaced_by_parts(tmp_path: Path) -> None:
    with homogeneous() as graph:
        graph.save(tmp_path / "graph")
        with pytest.raises(GraphFormatError, match="no folder of parts"):
            graph.partition(2, tmp_path / "graph")


def test_parts_that_cannot_be_written_leave_nothing_behind(tmp_path: Path) -> None:
    def stop(done: int, _: int) -> None:
        raise KeyboardInterrupt

    with homogeneous() as graph, pytest.raises(KeyboardInterrupt):
        graph.partition(2, tmp_path / "parts", progress=stop)
    assert not any(tmp_path.iterdir())


def test_a_cutter_that_is_killed_leaves_the_parts_that_were_there(tmp_path: Path) -> None:
    with homogeneous() as graph:
        graph.partition(3, tmp_path / "parts")
        command = [sys.executable, "-c", KILLED, str(tmp_path / "parts")]
        assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
        for place in range(3):
            verify(tmp_path / "parts" / f"part-{place}")
        assert len(graph.partition(2, tmp_path / "parts")) == 2


def test_progress_is_told_in_bytes_and_ends_at_the_total(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with homogeneous() as graph:
        graph.partition(3, tmp_path / "parts", "hash", progress=lambda *each: told.append(each))
    done = [each[0] for each in told]
    assert done == sorted(done)
    assert all(some <= total for some, total in told)
    assert told[-1] == (size_of(tmp_path), size_of(tmp_path))


@pytest.mark.parametrize("method", ["range", "hash", "given"])
@pytest.mark.parametrize("parts", [2, 7])
def test_parts_of_bare_rows_are_bare(tmp_path: Path, method: str, parts: int) -> None:
    """Edges that come sorted take 4 bytes each, without their ids, whole and in parts."""
    rng = np.random.default_rng(3)
    ends = rng.integers(0, 500, (2, 10_000))
    with Graph.from_coo(ends[:, np.argsort(ends[1])], 500) as graph:
        graph.save(tmp_path / "graph")
        with cut(graph, tmp_path, parts, method=method) as opened:
            assert size_of(tmp_path / "parts") <= 1.25 * size_of(tmp_path / "graph")
            for part in opened:
                assert part.topology().adjacency.ndim == 1
                part.validate()


@pytest.mark.parametrize(("at", "value"), [(0, -1), (1, 0), (3, 10**6)])
def test_edge_ids_of_a_part_that_cannot_be_are_found(tmp_path: Path, at: int, value: int) -> None:
    with Graph.from_coo([[1, 2, 3, 0, 0], [0, 0, 1, 2, 3]], num_nodes=4) as graph:
        path, _ = graph.partition(2, tmp_path / "parts", method=[0, 0, 0, 0])
    (file,) = path.rglob("*first_ids.bin")
    first_ids = np.fromfile(file, np.int32)
    assert first_ids.tolist() == [0, 2, 3, 4]
    first_ids[at] = value
    first_ids.tofile(file)
    with Graph.open(path) as part, pytest.raises(GraphFormatError, match=rf"\[{at}\] is {value}"):
        part.validate()


def test_rows_of_the_only_part_are_those_of_the_graph(tmp_path: Path) -> None:
    """Whatever samples the graph samples it: edge ids are positions."""
    with Graph.from_coo([[1, 2, 3, 0, 0], [0, 0, 1, 2, 3]], num_nodes=4) as graph:
        (path,) = graph.partition(1, tmp_path / "parts")
        with Graph.open(path) as part:
            part.validate()
            assert part.rows().native.num_edges == 5
            assert part.rows().edge_ids.tolist() == graph.rows().edge_ids.tolist()


def test_bare_rows_of_a_part_without_edge_ids_are_refused(tmp_path: Path) -> None:
    with heterogeneous() as graph, cut(graph, tmp_path) as (part, *_):
        key = ArrayKey("csc", CITES, "first_ids")
        lacking = {other: array for other, array in part.arrays.items() if other != key}
        with pytest.raises(GraphFormatError, match=r"first_ids is missing, and .*adjacency has"):
            Graph(part.schema, lacking)
        key = ArrayKey("csc", WRITES, "first_ids")
        (twice,) = made_arrays([("int32", (part.node_ids("paper").size,))], None, lambda out: None)
        with pytest.raises(GraphFormatError, match=r"first_ids is there, and .*adjacency has"):
            Graph(part.schema, {**part.arrays, key: twice})
        whole = {**graph.arrays, ArrayKey("csc", CITES, "first_ids"): twice}
        with pytest.raises(GraphFormatError, match="only rows of a part have first_ids"):
            Graph(graph.schema, whole)


def test_a_kernel_that_cannot_number_edges_gets_no_bare_rows_of_a_part(tmp_path: Path) -> None:
    with heterogeneous() as graph, cut(graph, tmp_path) as (part, *_):
        rows = part.rows(CITES)
        with pytest.raises(ValueError, match="edge ids of their own"):
            weight_sums(rows, np.ones(rows.num_edges), np.empty(rows.num_edges, np.int64))
        with pytest.raises(ValueError, match="first_ids has 1 entries; expected one for each of 2"):
            Adjacency(np.array([0, 1, 2]), np.zeros(2, np.int32), None, np.zeros(1, np.int32))


@pytest.mark.parametrize("method", ["range", "hash", "given"])
def test_parts_together_are_hardly_larger_than_the_graph(tmp_path: Path, method: str) -> None:
    """No array of a part has an entry for each edge, or 8 bytes for each node, of the whole."""
    rng = np.random.default_rng(3)
    with Graph.from_coo(
        rng.integers(0, 500, (2, 5000)), 500, x=rng.random((500, 16), dtype=np.float32)
    ) as graph:
        graph.save(tmp_path / "graph")
        with cut(graph, tmp_path, 4, method=method):
            assert size_of(tmp_path / "parts") <= 1.1 * size_of(tmp_path / "graph")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 0}, "n is 0; expected 1 to 65536 parts"),
        ({"n": True}, "n is True; expected 1 to 65536 parts"),
        (
            {"n": 2, "method": "metis"},
            "method is 'metis'; expected one of range, hash, locality, streaming, or",
        ),
        ({"n": 2, "method": "localty"}, "did you mean 'locality'"),
        ({"n": 2, "edges": "all"}, "edges is 'all'; expected one of destination, source, both"),
        ({"n": 2, "topology": "none"}, "topology is 'none'; expected one of parts, whole"),
        ({"n": 2, "method": np.zeros(3, int)}, r"method has shape \[3\]; expected \[60\]"),
        ({"n": 2, "method": np.zeros(60)}, "method has dtype float64; expected the numbers"),
        ({"n": 2, "method": [0, 2] * 30}, r"method\[1\] is 2; expected 0 <= part < 2"),
        ({"n": 2, "method": [0, -1] * 30}, r"method\[1\] is -1; expected 0 <= part < 2"),
        ({"n": 2, "method": {"": [0] * 60}}, "method is a mapping, and the graph has no types"),
    ],
)
def test_bad_arguments_are_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with homogeneous() as graph, pytest.raises(ValueError, match=words):
        graph.partition(path=tmp_path / "parts", **options)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ([0] * 50, "method is an array, and the graph has node types"),
        ({"author": [0] * 30}, "method has no parts of the nodes of 'paper'"),
        ({"author": [0] * 30, "papers": [0] * 20}, "a type of method is 'papers'.*'paper'"),
        ({"author": [0] * 30, "paper": [3] * 20}, r"method\['paper'\]\[0\] is 3; expected 0 <="),
    ],
)
def test_bad_assignments_of_types_are_refused(tmp_path: Path, method: Any, words: str) -> None:
    with heterogeneous() as graph, pytest.raises(ValueError, match=words):
        graph.partition(2, tmp_path / "parts", method=method)


# --- former parts --------------------------------------------------------------------------------


def former(graph: Graph, path: Path) -> Path:
    """A part as it was written once: two saved graphs."""
    graph.save(path / "graph")
    with Graph.from_coo({}, {}, graph_attrs={"partition": {"format": 2}}) as note:
        note.save(path / "cut")
    return path


def test_a_part_of_the_former_form_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "part-0").mkdir()
    with homogeneous() as graph:
        part = former(graph, tmp_path / "part-0")
    for path in (part, part / "graph", part / "cut"):
        with pytest.raises(
            GraphFormatError, match=r"not read any more .* cut the whole graph again"
        ):
            Graph.open(path)


def test_parts_of_the_former_form_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "parts" / "part-0").mkdir(parents=True)
    with homogeneous() as graph:
        former(graph, tmp_path / "parts" / "part-0")
        (part,) = graph.partition(1, tmp_path / "parts")
    Graph.open(part).close()


def test_a_folder_of_parts_is_no_graph(tmp_path: Path) -> None:
    with homogeneous() as graph:
        graph.partition(2, tmp_path / "parts")
    with pytest.raises(GraphFormatError, match=r"a folder of 2 parts .* open one of them"):
        Graph.open(tmp_path / "parts")


# --- soundness -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["csc-adjacency", "part-members", "node-x", "edge-edge_weight"])
def test_damage_to_a_part_is_found(tmp_path: Path, name: str) -> None:
    with homogeneous() as graph:
        (path, *_) = graph.partition(3, tmp_path / "parts", method="hash")
    (file, *_) = path.glob(f"data-*/*-{name}.bin")
    data = file.read_bytes()
    file.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(GraphFormatError, match=rf"damaged: .*{name.replace('-', '/')}"):
        verify(path)


def overwritten(path: Path, name: str, change: Any, dtype: Any = np.int64) -> None:
    """Change an array in its file; sums are not what these tests are about."""
    (file, *_) = sorted(path.glob(f"data-*/*-{name}.bin"))
    array = np.fromfile(file, dtype)
    change(array)
    array.tofile(file)


def put(at: int, value: int) -> Any:
    def change(array: Any) -> None:
        array[at] = value

    return change


@pytest.mark.parametrize(
    ("method", "name", "change", "dtype", "words"),
    [
        ("range", "part-members", put(1, 7), np.int64, "ranks are not those of their bits"),
        ("hash", "part-members", put(0, 1), np.int64, "has 1 ids; the part is said to have"),
        ("given", "part-book", put(slice(0, 5), 0), np.uint8, "part/book does not agree"),
        ("range", "split-train", put(0, 59), np.int32, r"split/train\[0\] is 59, which is not in"),
        ("range", "part-positions_train", put(0, 20), np.int32, "expected 0 <= id < 20"),
        ("range", "csc-adjacency", put(0, 60), np.int32, r"\[:, 0\]\[0\] is 60; expected 0 <= id"),
        (
            "range",
            "csc-indptr",
            put(1, 1000),
            np.int64,
            r"csc/indptr\[2\] is .*; expected at least",
        ),
    ],
)
def test_an_unsound_part_is_named(
    tmp_path: Path, method: str, name: str, change: Any, dtype: Any, words: str
) -> None:
    with homogeneous() as graph, cut(graph, tmp_path, method=method) as (part, *_):
        part.validate()
    path = tmp_path / "parts" / "part-0"
    overwritten(path, name, change, dtype)
    with Graph.open(path) as part, pytest.raises(GraphFormatError, match=words):
        part.validate()


def test_a_part_with_edges_of_another_is_not_sound(tmp_path: Path) -> None:
    with homogeneous() as graph:
        first, *_ = graph.partition(3, tmp_path / "parts", method=np.arange(60) % 3)
    words = "does not agree with the edges that part 0 of 3 has"
    with Graph.open(first) as part:
        ids = part.edge_members().ids()  # type: ignore[union-attr]
    foreign = next(each for each in range(400) if each not in set(ids.tolist()))
    overwritten(first, "csc-adjacency", put(1, foreign), np.int32)
    with Graph.open(first) as part, pytest.raises(GraphFormatError, match=words):
        part.validate()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("number", 3, "part 3 of 3 is none there can be"),
        ("num_nodes", (1, 2), "num_nodes are .*: one count per type is needed"),
        ("bounds", {"": (0, 10, 5, 60)}, "bounds of '' are .*: not those of its parts"),
        ("num_nodes", (21,), r"csc/indptr is int64\[21\]: int64\[22\] is needed"),
        ("num_edges", (1,), "is needed"),
    ],
)
def test_a_note_that_cannot_be_is_refused(
    tmp_path: Path, field: str, value: Any, words: str
) -> None:
    with homogeneous() as graph, cut(graph, tmp_path) as (part, *_):
        note = msgspec.structs.replace(part.part, **{field: value})
        schema = msgspec.structs.replace(part.schema, part=note)
        with pytest.raises(GraphFormatError, match=words):
            Graph(schema, part.arrays)


def test_an_array_that_a_part_needs_is_missed(tmp_path: Path) -> None:
    with heterogeneous() as graph, cut(graph, tmp_path, method="given") as (part, *_):
        for key in part.arrays:
            kept = {other: array for other, array in part.arrays.items() if other != key}
            if key.group in ("part", "csc"):
                with pytest.raises(GraphFormatError, match=r"is missing|is needed"):
                    Graph(part.schema, kept)
        assert any(key.type == CITES for key in part.arrays)


def test_whole_graphs_are_written_as_before(tmp_path: Path) -> None:
    with homogeneous() as graph:
        graph.save(tmp_path / "graph")
        (part, *_) = graph.partition(2, tmp_path / "parts")
    whole, cut_part = (path / "manifest.json" for path in (tmp_path / "graph", part))
    assert '"format_version":1' in whole.read_text()
    assert '"part"' not in whole.read_text()
    assert '"format_version":2' in cut_part.read_text()


def test_folders_change_places_in_one_step(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not exchange(tmp_path / "one", tmp_path / "other"):
        pytest.skip("the file system cannot do that")
    assert [(path.parent.name, path.name) for path in sorted(tmp_path.glob("*/*"))] == [
        ("one", "other"),
        ("other", "one"),
    ]
    assert not exchange(tmp_path / "one", tmp_path / "nowhere")


def test_parts_take_the_place_of_others_where_folders_cannot_change_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.graph.partition.partition.exchange", lambda one, other: False)
    with homogeneous() as graph:
        graph.partition(3, tmp_path / "parts")
        graph.partition(2, tmp_path / "parts")
    assert sorted(each.name for each in (tmp_path / "parts").iterdir()) == ["part-0", "part-1"]
    assert [each.name for each in tmp_path.iterdir()] == ["parts"]
