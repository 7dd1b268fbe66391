"""What is wrong with a table is named: the file, the row, the column, the value, and what to do."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.ingest.features import Streamed
from penstock.ingest.parts import ParquetPart
from penstock.ingest.tables import Table
from tests.ingest.tables import spread, table_of, write

EDGE_DATA = {"s": [0, 1, 1], "t": [1, 0, 2]}


def attempt(folder: Path, nodes: Any = None, edges: Any = None, **more: Any) -> str:
    """Build what cannot be built, and return what the error says."""
    edges = {"data": EDGE_DATA, "source": "s", "target": "t", **(edges or {})}
    with pytest.raises((ValueError, OSError)) as caught:
        ps.build(folder / "g", nodes=nodes, edges=edges, **more)
    assert not (folder / "g").exists()
    return str(caught.value)


def in_files(folder: Path, columns: dict[str, Any], form: str = "parquet") -> str:
    """The pattern of two files: the first has two rows, the second the others."""
    return spread(folder, table_of(columns), [2], form, "part")


@pytest.mark.parametrize("form", ["parquet", "csv", "feather", "arrows"])
def test_an_unknown_id_is_named_with_file_and_row(form: str, tmp_path: Path) -> None:
    """CONTRACT 77"""
    pattern = in_files(tmp_path, {"s": ["a", "b", "a", "a"], "t": ["a", "b", "a", "q"]}, form)
    words = attempt(
        tmp_path, {"data": {"id": ["a", "b"]}, "id": "id"}, {"files": pattern, "data": None}
    )
    assert words == (
        f"{tmp_path}/part-001.{form}, row 1: column 't' of edges is 'q'; expected an id of nodes "
        '(on_missing = "skip" leaves such rows out)'
    )


def test_a_missing_id_of_an_edge_is_named(tmp_path: Path) -> None:
    """CONTRACT 77"""
    pattern = in_files(tmp_path, {"s": [0, 1, None], "t": [1, 1, 1]})
    words = attempt(tmp_path, {"data": {"x": [1, 2]}}, {"files": pattern, "data": None})
    assert words.startswith(f"{tmp_path}/part-001.parquet, row 0: column 's' of edges is null")


@pytest.mark.parametrize("ids", [["a", "b", "c", "b"], [7, 9, 8, 9]])
def test_a_duplicate_id_is_named_with_both_of_its_places(ids: Any, tmp_path: Path) -> None:
    """CONTRACT 78"""
    pattern, edges = in_files(tmp_path, {"id": ids}), {"s": ids, "t": ids}
    words = attempt(tmp_path, {"files": pattern, "id": "id"}, {"data": edges})
    assert words == (
        f"{tmp_path}/part-001.parquet, row 1: column 'id' of nodes is {ids[1]!r}, an id that "
        f"{tmp_path}/part-000.parquet, row 1 has already; "
        'on_missing = "skip" keeps the first of them'
    )


def test_a_node_without_an_id_is_named(tmp_path: Path) -> None:
    pattern = in_files(tmp_path, {"id": ["a", "b", "c", None]})
    edges = {"s": ["a"], "t": ["b"]}
    words = attempt(tmp_path, {"files": pattern, "id": "id"}, {"data": edges})
    assert words.startswith(f"{tmp_path}/part-001.parquet, row 1: column 'id' of nodes is null")


@pytest.mark.parametrize(
    ("values", "row", "words"),
    [
        ([1.0, 2.0, None], 0, "is null; expected a value in every row"),
        ([[1.0], [2.0], [3.0, 4.0]], 0, "expected 1 numbers, as in the first row; these are 2"),
        ([[1.0], [2.0], [None]], 0, "expected a list without nulls"),
        ([1.0, 2.0, 1e300], 0, "is 1e+300; expected a number that float32 can tell"),
    ],
)
def test_a_feature_that_is_no_number_is_named(
    values: Any, row: int, words: str, tmp_path: Path
) -> None:
    pattern = in_files(tmp_path, {"v": values})
    said = attempt(tmp_path, {"files": pattern, "features": {"x": ["v"]}})
    assert said.startswith(f"{tmp_path}/part-001.parquet, row {row}: column 'v' of nodes is ")
    assert words in said


@pytest.mark.parametrize(
    ("store", "value", "words"),
    [("int8", float("nan"), "finite, to be stored as int8"), ("float16", 1e5, "at most 65504")],
)
def test_a_number_that_fewer_bytes_cannot_tell_is_named(
    store: str, value: float, words: str, tmp_path: Path
) -> None:
    pattern = in_files(tmp_path, {"a": [1.0, 2.0, 3.0], "v": [1.0, 2.0, value]})
    feature = {"columns": ["a", "v"], "store": store}
    said = attempt(tmp_path, {"files": pattern, "features": {"x": feature}})
    assert f"part-001.parquet, row 0: column 'v' of nodes is {value}" in said
    assert words in said


def test_text_among_numbers_of_csv_is_shown(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("v\n1\n2\nn/a\n")
    said = attempt(tmp_path, {"files": str(tmp_path / "a.csv"), "features": {"x": ["v"]}})
    assert "column 'v' of" in said
    assert "a.csv, row 2: 'n/a'" in said
    assert "categories = true" in said


def test_csv_that_does_not_have_the_given_type_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("v\n1\n2\nn/a\n")
    nodes = {
        "files": str(tmp_path / "a.csv"),
        "features": {"x": ["v"]},
        "csv": {"types": {"v": "DOUBLE"}},
    }
    said = attempt(tmp_path, nodes)
    assert re.search(r"a\.csv, line 4: .*n/a", said)
    nodes["csv"] = {"types": {"v": "DOUBLE"}, "nullstr": "n/a"}
    assert "a.csv, row 2: column 'v' of nodes is null" in attempt(tmp_path, nodes)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_weight_to_sample_by_is_checked(value: float, tmp_path: Path) -> None:
    pattern = in_files(tmp_path, {"s": [0, 1, 1], "t": [0, 0, 1], "w": [1.0, 2.0, value]})
    said = attempt(tmp_path, None, {"files": pattern, "data": None, "weight": "w"})
    assert "part-001.parquet, row 0: column 'w' of edges is" in said


def test_times_are_checked(tmp_path: Path) -> None:
    far = [dt.date(2000, 1, 1), dt.date(2000, 1, 2), dt.date(9000, 1, 1)]
    pattern = in_files(tmp_path, {"s": [0, 1, 1], "t": [0, 0, 1], "at": far})
    said = attempt(tmp_path, None, {"files": pattern, "data": None, "time": "at"})
    assert "part-001.parquet, row 0: column 'at' of edges is datetime.date(9000, 1, 1)" in said
    text = table_of({"s": [0], "t": [0], "at": ["yesterday"]})
    said = attempt(tmp_path, None, {"data": text, "time": "at"})
    assert "expected dates, timestamps or numbers" in said


def test_ids_are_of_one_kind_everywhere(tmp_path: Path) -> None:
    said = attempt(tmp_path, {"data": {"id": ["a", "b"]}, "id": "id"})
    assert "nodes.id has ids that are text, and edges.source (column 's') has numbers" in said
    said = attempt(tmp_path, {"data": {"x": [1.0]}}, {"data": {"s": ["a"], "t": ["a"]}})
    assert "is numbered by rows, has ids that are numbers, and edges.source" in said


@pytest.mark.parametrize(
    ("value", "words"),
    [(1.5, "a whole number, or text, for an id"), (2**63, "an id below 2^63")],
)
def test_an_id_that_is_none_is_named(value: Any, words: str, tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([1, value], pa.uint64() if value == 2**63 else None)})
    said = attempt(tmp_path, {"data": table, "id": "id"})
    assert "row 1: column 'id' of nodes is" in said
    assert words in said


def test_a_column_that_is_not_there_is_named_with_what_is(tmp_path: Path) -> None:
    for form in ("parquet", "csv"):
        pattern = in_files(tmp_path, {"price": [1.0, 2.0], "b": [1, 2]}, form)
        said = attempt(tmp_path, {"files": pattern, "features": {"x": ["prise"]}})
        assert f"nodes.features.x is 'prise', and {tmp_path}/part-000.{form} has no" in said
        assert "there are: 'price', 'b'; did you mean 'price'?" in said


def test_files_that_are_not_there_or_not_readable_are_named(tmp_path: Path) -> None:
    assert "nodes.files is 'x-*.parquet'" in attempt(tmp_path, {"files": "x-*.parquet"})
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing of the kind")
    said = attempt(tmp_path, {"files": str(tmp_path / "a.parquet")})
    assert f"{tmp_path}/a.parquet: not Parquet that can be read" in said
    (tmp_path / "a.feather").write_bytes(b"nothing of the kind")
    said = attempt(tmp_path, {"files": str(tmp_path / "a.feather")})
    assert f"{tmp_path}/a.feather: not Arrow that can be read" in said
    (tmp_path / "a.npz").write_bytes(b"nothing of the kind")
    said = attempt(tmp_path, {"files": str(tmp_path / "a.npz")})
    assert f"{tmp_path}/a.npz: not a .npz file" in said
    write(tmp_path / "whole.parquet", table_of({"v": list(range(1000))}))
    cut = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(cut[: len(cut) // 2])
    said = attempt(tmp_path, {"files": str(tmp_path / "cut.parquet")})
    assert f"{tmp_path}/cut.parquet: not Parquet that can be read" in said
    (tmp_path / "a.txt").write_text("x")
    assert "does not say what it is" in attempt(tmp_path, {"files": str(tmp_path / "a.txt")})


def test_npz_arrays_of_different_lengths_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones(3), y=np.ones(2))
    said = attempt(tmp_path, {"files": str(tmp_path / "a.npz")})
    assert "'y' has 2 rows, and 'x' has 3" in said


def test_self_loops_and_duplicates_are_refused_with_file_and_row(tmp_path: Path) -> None:
    pattern = in_files(tmp_path, {"s": [0, 1, 2, 1], "t": [1, 0, 2, 0]})
    files = {"files": pattern, "data": None}
    said = attempt(tmp_path, None, {**files, "self_loops": "refuse"})
    assert "part-001.parquet, row 0: column 't' of edges is 2; expected another node" in said
    said = attempt(tmp_path, None, {**files, "duplicates": "refuse"})
    assert "part-001.parquet, row 1: an edge of edges with the ends of an earlier one" in said


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"file": "x"}, "the word 'file', which is not known; did you mean 'files'?"),
        ({"data": {}, "file": "x"}, "the word 'file', which is not known; did you mean 'files'?"),
        ({"data": {}, "features": {"x": {"column": "a"}}}, "did you mean 'columns'?"),
        ({"data": {}, "features": ["a"]}, "nodes.features is ['a']; expected names and columns"),
        ({"data": {}, "split": {"by": "hsh", "val": 0.1}}, "nodes.split.by: Invalid enum value"),
        ({"data": {}, "split": {"by": "hash"}}, "holds out nothing"),
        ({"data": {}, "split": {"by": "hash", "val": 0.8, "test": 0.3}}, "more than all"),
        ({"data": {}, "split": {"by": "hash", "val": 2}}, "nodes.split.val is 2; expected a share"),
        ({"data": {}, "split": {"by": "time", "val": 0.8}}, "there is no time"),
        ({"data": {}, "split": {"by": "hash", "val": 0.1, "disjoint": 0.1}}, "is for links"),
        ({"data": {}, "features": {"x": {"columns": "a", "store": "int4"}}}, "mean 'int8'?"),
        ({"data": {}, "features": {"y": "a"}}, "under which a graph keeps something else"),
        ({"data": {}, "id": 7}, "nodes.id: Expected str | null, got int"),
        ({"data": {}, "csv": {"sep": ","}}, "nodes.csv has the word 'sep'"),
        ({"data": {}, "files": "x"}, "nodes has both files and data"),
        ({"data": 7}, "nodes.data is int; expected a table"),
    ],
)
def test_a_word_that_makes_no_sense_is_an_error(nodes: Any, words: str, tmp_path: Path) -> None:
    assert words in attempt(tmp_path, nodes)


@pytest.mark.parametrize("rows", [1, 3])
def test_an_array_with_other_rows_than_were_counted_is_an_error(rows: int) -> None:
    changed = Streamed("int64", (2,), lambda: iter([np.zeros(rows, np.int64)]))
    with pytest.raises(ValueError, match="changed while it was read"):
        list(changed.pieces())


def test_a_file_that_grows_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", table_of({"v": [1, 2]}))
    table = Table("nodes", [ParquetPart.of(path)], 1 << 26)
    write(path, table_of({"v": [1, 2, 3]}))
    with pytest.raises(ValueError, match=r"a\.parquet had 2 rows, and now 3: it was changed"):
        list(table.rows(["v"]))


def test_self_loops_are_for_edges_within_a_type(tmp_path: Path) -> None:
    said = {"data": EDGE_DATA, "source": "s", "target": "t", "self_loops": "drop"}
    with pytest.raises(ValueError, match=r"self_loops is 'drop', and no edge from 'a' to 'b'"):
        ps.build(tmp_path / "g", edges={("a", "to", "b"): said})
    with ps.build(tmp_path / "g", edges={("a", "to", "a"): said}) as graph:
        assert graph.num_edges(("a", "to", "a")) == 3


def test_a_description_in_toml_is_checked_too(tmp_path: Path) -> None:
    spec = tmp_path / "g.toml"
    for text, words in (
        ("[edges\n", "g.toml: Expected ']'"),
        ('[edges."a,b"]\nfiles = "x"\nsource = "s"\ntarget = "t"\n', "with two commas"),
        ('[edges."a,to,b"]\nfiles = "x"\ntarget = "t"\n', "lacks 'source'"),
        ('[nodess.a]\nfiles = "x"\n', "did you mean 'nodes'?"),
        ('[nodes.a]\nfiles = "x"\n', "there are no edges"),
        ('[edges]\nfiles = "none-*"\nsource = "s"\ntarget = "t"\n', "there is no such file"),
    ):
        spec.write_text(text)
        with pytest.raises((ValueError, FileNotFoundError), match=re.escape(words)):
            ps.build(tmp_path / "g", spec=spec)


def test_memory_is_a_size(tmp_path: Path) -> None:
    assert "memory is '1kB'; expected at least 64 MiB" in attempt(tmp_path, memory="1kB")


def test_a_folder_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    edges = {"data": EDGE_DATA, "source": "s", "target": "t"}
    with pytest.raises(FileExistsError, match=r"thesis\.tex"):
        ps.build(tmp_path / "mine", edges=edges)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        ps.build(tmp_path / "none" / "g", edges=edges)
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_rows_that_are_skipped_are_counted(tmp_path: Path) -> None:
    """CONTRACT 78"""
    nodes = {
        "data": table_of({"id": ["a", None, "b", "a", "c"], "v": [1.0, None, 2.0, None, 3.0]}),
        "id": "id",
        "features": {"x": ["v"]},
        "on_missing": "skip",
    }
    edges = {
        "data": table_of(
            {
                "s": ["a", "b", None, "c", "c", "a"],
                "t": ["c", "q", "a", "c", "a", "c"],
                "w": [1.0, -2.0, -3.0, -4.0, 5.0, -6.0],
            }
        ),
        "source": "s",
        "target": "t",
        "weight": "w",
        "on_missing": "skip",
        "self_loops": "drop",
        "duplicates": "drop",
    }
    with ps.build(tmp_path / "g", nodes=nodes, edges=edges) as graph:
        assert graph.node_attribute("x").tolist() == [[1.0], [2.0], [3.0]]
        assert graph.ids().tolist() == ["a", "b", "c"]
        assert graph.edge_index().tolist() == [[0, 2], [2, 0]]
        assert graph.edge_attribute("edge_weight").tolist() == [1.0, 5.0]
        assert graph.graph_attributes()["left_out"] == {
            "nodes": {"missing": 1, "duplicate": 1},
            "edges": {"missing": 2, "self_loops": 1, "duplicates": 1},
        }
