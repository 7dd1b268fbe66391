"""Parts built by tasks: every file is that of building them in one process.

Here tasks are performed in turn, in this process; tests/cluster has them on Ray.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.graph.checksum import sum_of_array
from penstock.ingest.build import build_by_tasks
from penstock.ingest.description import described
from penstock.ingest.tasks import task
from penstock.ingest.tasks.plan import check_tasks
from penstock.ingest.tasks.sums import RangeSum, checksum_of
from tests.ingest.folders import contents
from tests.ingest.in_turn import InTurn
from tests.ingest.shards import sharded
from tests.ingest.test_parts import BUYS, KNOWS, shop, small_tables


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables have several tasks, too."""
    monkeypatch.setattr(task, "LEAST_NBYTES", 1)


def same_by_tasks(folder: Path, parts: Any, tables: dict[str, Any]) -> InTurn:
    """Build parts in one process, and by tasks; compare all files, and what is returned."""
    built = ps.build(folder / "one", **tables, parts=parts)
    runner = InTurn()
    found = build_by_tasks(folder / "many", described(**tables, parts=parts), runner)
    expected, many = contents(folder / "one"), contents(folder / "many")
    assert list(many) == list(expected)
    assert [name for name in expected if many[name] != expected[name]] == []
    assert [path.name for path in found] == [path.name for path in built]
    for figure in ("num_edges", "edges_cut", "balance"):
        assert getattr(found, figure) == getattr(built, figure)
    return runner


# --- the same files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        {"method": "hash"},
        pytest.param({"method": "column", "edges": "both"}, marks=pytest.mark.soak),
        pytest.param({"method": "range", "edges": "source"}, marks=pytest.mark.soak),
        pytest.param({"method": "hash", "topology": "whole"}, marks=pytest.mark.soak),
    ],
)
def test_parts_are_those_of_one_process(parts: dict[str, Any], tmp_path: Path) -> None:
    """CONTRACT 77: ids of text, reverse edges, int8, splits by time, duplicates, found persons."""
    tables = shop(3)
    if parts["method"] != "column":
        bought = tables["edges"][BUYS]["data"]
        ends = {"s": bought["s"], "t": np.arange(400) * 7 % 90}
        tables["edges"][KNOWS] = {"data": ends, "source": "s", "target": "t"}
    runner = same_by_tasks(tmp_path, {"n": 3, **parts}, sharded(tmp_path / "of", 3, tables))
    assert sum("look up" in name for name in runner.names) >= 4
    assert sum("sort" in name for name in runner.names) >= 6


@pytest.mark.soak
def test_parts_that_are_given_as_arrays_are_taken(tmp_path: Path) -> None:
    """CONTRACT 77"""
    method = {"user": np.arange(60) % 2, "item": np.arange(50) // 30}
    same_by_tasks(tmp_path, {"n": 2, "method": method}, sharded(tmp_path / "of", 2, shop(2)))


@pytest.mark.parametrize("split", ["random", pytest.param("hash", marks=pytest.mark.soak)])
def test_reverse_edges_of_one_type_come_after_all_others(split: str, tmp_path: Path) -> None:
    """CONTRACT 77: their ids are counted across all runs; loops are their own reverse edges."""
    rng = np.random.default_rng(1)
    ends = rng.integers(0, 40, (2, 150))
    words = {"by": split, "val": 0.2, "test": 0.1}
    edges = {
        "data": {"s": ends[0], "t": ends[1], "w": rng.random(150), "at": np.arange(150)},
        "source": "s",
        "target": "t",
        "weight": "w",
        "time": "at",
        "reverse": True,
        "split": words if split == "hash" else {**words, "disjoint": 0.3},
    }
    same_by_tasks(tmp_path, 3, sharded(tmp_path / "of", 4, {"edges": edges}))


def test_what_is_left_out_is_counted_in_all_files(tmp_path: Path) -> None:
    """CONTRACT 77: ids that are missing, unknown or there twice; labels of text; NumPy files."""
    rng = np.random.default_rng(2)
    ids = rng.integers(0, 60, 80)
    nodes = {
        "data": {"id": ids, "y": np.array(["b", "a", "c", "a"] * 20), "x": rng.random(80)},
        "id": "id",
        "label": "y",
        "features": {"x": ["x"]},
        "on_missing": "skip",
        "split": {"by": "hash", "val": 0.5},
    }
    for number in range(3):
        np.save(tmp_path / f"ends-{number}.npy", rng.integers(0, 70, (50 + number, 2)))
    edges = {
        "files": str(tmp_path / "ends-*.npy"),
        "source": "0",
        "target": "1",
        "on_missing": "skip",
        "self_loops": "drop",
    }
    tables = {**sharded(tmp_path / "of", 4, {"nodes": nodes}), "edges": edges}
    same_by_tasks(tmp_path, {"n": 2, "method": "hash"}, tables)
    with ps.Graph.open(tmp_path / "many" / "part-0") as part:
        left_out = part.graph_attributes()["left_out"]
    assert left_out["nodes"]["duplicate"] > 0
    assert {"missing", "self_loops"} == {*left_out["edges"]}


def test_edges_that_come_sorted_stay_without_their_ids(tmp_path: Path) -> None:
    """CONTRACT 77: sorted within each file, and from one to the next; or not."""
    for number, targets in enumerate((np.arange(90) // 9, np.arange(90)[::-1] // 30 % 3)):
        folder = tmp_path / str(number)
        folder.mkdir()
        edges = {"data": {"s": np.arange(90) % 10, "t": targets}, "source": "s", "target": "t"}
        same_by_tasks(folder, {"n": 2}, sharded(folder / "of", 3, {"edges": edges}))


@pytest.mark.soak
def test_types_without_nodes_and_without_edges_have_empty_parts(tmp_path: Path) -> None:
    """CONTRACT 77"""
    nothing = np.empty(0, np.int64)
    nodes = {
        "a": {"data": {"id": nothing, "x": nothing}, "id": "id", "features": {"x": "x"}},
        "b": {"data": {"id": np.array(["one", "two", ""])}, "id": "id"},
    }
    edges: dict[Any, Any] = {
        ("a", "to", "b"): {"data": {"s": nothing, "t": np.empty(0, "U1"), "w": nothing}},
        ("b", "to", "b"): {"data": {"s": ["two", ""], "t": ["one", "one"], "w": [0.5, 1]}},
    }
    for said in edges.values():
        said.update(source="s", target="t", weight="w", reverse=True)
    tables = sharded(tmp_path / "of", 3, {"nodes": nodes, "edges": edges})
    same_by_tasks(tmp_path, {"n": 2, "method": "hash", "edges": "both"}, tables)


@pytest.mark.soak
def test_rows_longer_than_what_is_sorted_in_memory_are_given_out(tmp_path: Path) -> None:
    """CONTRACT 77: most edges lead to one node, which has a range that is sorted out of core."""
    rng = np.random.default_rng(0)
    targets = np.where(rng.random(700_000) < 0.9, 5, rng.integers(0, 9, 700_000))
    edges = {
        "data": {"s": rng.integers(0, 1000, 700_000), "t": targets},
        "source": "s",
        "target": "t",
    }
    nodes = {"data": {"id": np.arange(1000)}}
    tables = sharded(tmp_path / "of", 3, {"nodes": nodes, "edges": edges})
    words = {"n": 3, "method": "hash", "edges": "both"}
    same_by_tasks(tmp_path, words, tables)


@pytest.mark.soak
@given(
    small_tables(),
    st.fixed_dictionaries(
        {
            "n": st.integers(1, 5),
            "method": st.sampled_from(["range", "hash"]),
            "edges": st.sampled_from(["destination", "source", "both"]),
            "topology": st.sampled_from(["parts", "whole"]),
        }
    ),
    st.integers(1, 5),
)
@settings(max_examples=25, deadline=None)
def test_whatever_the_tables_parts_are_those_of_one_process(
    tables: dict[str, Any], parts: dict[str, Any], files: int
) -> None:
    """CONTRACT 77"""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "LEAST_NBYTES", 1)
        folder = Path(name)
        same_by_tasks(folder, parts, sharded(folder / "of", files, tables))


def test_the_sum_of_an_array_is_that_of_its_ranges(tmp_path: Path) -> None:
    """Pieces are digested within ranges; what is left at their ends, by whoever has all of them."""
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, (40 << 20) + 123, np.uint8)
    for bounds in ([], [1], [16 << 20], [5, 5, 17 << 20], [(16 << 20) - 1, (32 << 20) + 1]):
        found = []
        for number, (begin, end) in enumerate(zip([0, *bounds], [*bounds, len(data)], strict=True)):
            total = RangeSum(begin, tmp_path / f"{len(bounds)}-{number}-{begin}")
            for at in range(begin, end, 7 << 20):
                total.add(data[at : min(at + (7 << 20), end)])
            found.append(total.summed())
        assert checksum_of(found) == sum_of_array(data)


# --- what is refused -----------------------------------------------------------------------------


def test_a_row_that_is_wrong_is_named_as_in_one_process(tmp_path: Path) -> None:
    """CONTRACT 77: with its file; and nothing is left."""
    tables = shop(2)
    tables["edges"][BUYS]["data"]["t"][[350, 399]] = 999
    said = sharded(tmp_path / "of", 4, tables)
    words = r"003.parquet, row 50: column 't' of edges.*is 999; expected an id of nodes.item"
    with pytest.raises(ValueError, match=words):
        ps.build(tmp_path / "parts", **said, parts=2)
    with pytest.raises(ValueError, match=words):
        build_by_tasks(tmp_path / "parts", described(**said, parts=2), InTurn())
    assert [path.name for path in tmp_path.iterdir()] == ["of"]


def test_duplicates_that_are_refused_are_named_as_in_one_process(tmp_path: Path) -> None:
    """CONTRACT 77"""
    ends = {"s": np.arange(40), "t": np.arange(40) % 7}
    ends["s"][33], ends["t"][33] = 4, 4
    edges = {"data": ends, "source": "s", "target": "t", "duplicates": "refuse"}
    said = sharded(tmp_path / "of", 4, {"edges": edges})
    words = r"003.parquet, row 3: an edge of edges with the ends of an earlier one"
    with pytest.raises(ValueError, match=words):
        ps.build(tmp_path / "parts", **said, parts=2)
    with pytest.raises(ValueError, match=words):
        build_by_tasks(tmp_path / "parts", described(**said, parts=2), InTurn())


@pytest.mark.parametrize(
    ("parts", "more", "words"),
    [
        (None, {}, "on Ray a graph is built in parts: say how many"),
        ({"n": 2, "method": "streaming"}, {}, "method is 'streaming', which goes .* take 'range'"),
        ({"n": 2, "method": "locality"}, {}, "method is 'locality', which goes"),
        (2, {"data": {"s": [0], "t": [0]}}, "edges.data is a table in memory, which other hosts"),
    ],
)
def test_what_one_process_has_to_do_is_refused(parts: Any, more: Any, words: str) -> None:
    edges = {"source": "s", "target": "t", **(more or {"files": "*.parquet"})}
    with pytest.raises(ValueError, match=words):
        ps.build("parts", edges=edges, parts=parts, ray=True)


def test_csv_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("s,t\n0,1\n")
    edges = {"files": str(tmp_path / "edges.csv"), "source": "s", "target": "t"}
    said = described(edges=edges, parts=2)
    check_tasks(said)
    with pytest.raises(ValueError, match=r"edges: the files are CSV, .* turn it into several Parq"):
        build_by_tasks(tmp_path / "parts", said, InTurn())
    assert [path.name for path in tmp_path.iterdir()] == ["edges.csv"]
