"""Values of columns reach the graph as they are, or are refused; none becomes another."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from tests.ingest.tables import write

EDGES = {"data": {"s": [0], "t": [0]}, "source": "s", "target": "t"}
# Text that is not UTF-8, as a Parquet file may have it: nobody looks when it is read.
NO_UTF8 = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())


def built(folder: Path, columns: Any, **words: Any) -> ps.Graph:
    """A graph with these nodes, and with edges between others."""
    said = words if "files" in words else {"data": columns, **words}
    return ps.build(folder / "g", nodes={"a": said}, edges={("b", "r", "b"): EDGES})


def refused(folder: Path, columns: Any, match: str = r"nodes\.a|data of", **words: Any) -> str:
    """What the error says."""
    with pytest.raises(ValueError, match=match) as caught:
        built(folder, columns, **words)
    return str(caught.value)


@pytest.mark.parametrize("word", ["label", "time"])
@pytest.mark.parametrize("values", [[1, 2**63], [None, 2**63]])
def test_what_int64_cannot_tell_is_refused(word: str, values: Any, tmp_path: Path) -> None:
    if word == "time" and None in values:
        return
    words = refused(tmp_path, pa.table({"v": pa.array(values, pa.uint64())}), **{word: "v"})
    assert "row 1: column 'v' of nodes.a is 9223372036854775808; expected a number that" in words


def test_weights_that_int64_cannot_tell_are_refused(tmp_path: Path) -> None:
    table = pa.table({"s": [0], "t": [0], "w": pa.array([2**63], pa.uint64())})
    with pytest.raises(ValueError, match=r"row 0: column 'w' .* a number that int64 can tell"):
        ps.build(tmp_path / "g", edges={**EDGES, "data": table, "weight": "w"})


def test_integers_beyond_float16_are_refused(tmp_path: Path) -> None:
    feature = {"x": {"columns": "v", "dtype": "float16"}}
    assert "is 70000; expected a number that float16 can tell" in refused(
        tmp_path, {"v": np.array([70000, 1])}, features=feature
    )


@pytest.mark.parametrize("dtype", [pa.float64(), pa.float32()])
def test_ids_where_floats_are_rounded_are_refused(dtype: Any, tmp_path: Path) -> None:
    limit = 2.0**53 if dtype == pa.float64() else 2.0**24
    table = pa.table({"id": pa.array([limit - 1, limit], dtype)})
    assert "row 1" in refused(tmp_path, table, id="id")
    with built(tmp_path, table.slice(0, 1), id="id") as graph:
        assert graph.ids("a").tolist() == [int(limit - 1)]


def test_ids_beyond_64_bits_are_named_where_edges_name_them_first(tmp_path: Path) -> None:
    table = pa.table({"s": pa.array([1, 2**63], pa.uint64()), "t": [1, 2]})
    with pytest.raises(ValueError, match=r"row 1: column 's' .* an id below"):
        ps.build(tmp_path / "g", edges={"data": table, "source": "s", "target": "t"})


def test_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    """Ids in a graph that nobody could read any more."""
    path = write(tmp_path / "n.parquet", pa.table({"v": NO_UTF8}))
    for words in ({"id": "v"}, {"label": "v"}, {"split": "v"}):
        told = refused(tmp_path, None, files=str(path), **words)
        assert told.startswith(
            f"{path}, row 1: column 'v' of nodes.a is b'\\xff'; expected text in"
        )


def test_labels_are_put_together_from_files_of_several_types(tmp_path: Path) -> None:
    columns = [
        pa.array([1, None]),
        pa.array([None, None], pa.null()),
        pa.array([None, decimal.Decimal("2.5")]),
        pa.array([0.25, None], pa.float32()),
    ]
    for at, column in enumerate(columns):
        write(tmp_path / f"n{at}.parquet", pa.table({"v": column}))
    with built(tmp_path, None, files=str(tmp_path / "n*.parquet"), label="v") as graph:
        found = graph.node_attribute("y", "a")
        nan = np.nan
        np.testing.assert_array_equal(found, [1, nan, nan, nan, nan, 2.5, 0.25, nan])
    with built(tmp_path, None, files=str(tmp_path / "n[01].parquet"), label="v") as graph:
        assert graph.node_attribute("y", "a").tolist() == [1, -1, -1, -1]


def test_categories_of_several_files_are_of_one_kind(tmp_path: Path) -> None:
    for at, values in enumerate([pa.array([5, 3]), pa.array(["a", "b"])]):
        write(tmp_path / f"n{at}.feather", pa.table({"v": values.dictionary_encode()}))
    words = refused(tmp_path, None, files=str(tmp_path / "*.feather"), label="v")
    files = [f"{tmp_path}/n{at}.feather" for at in (0, 1)]
    assert words == f"nodes.a: column 'v' is whole numbers in {files[0]} and text in {files[1]}"


@pytest.mark.parametrize("value", [dt.date(2020, 1, 1), b"a"])
def test_categories_are_what_a_graph_can_keep(value: Any, tmp_path: Path) -> None:
    table = pa.table({"v": pa.array([value]).dictionary_encode()})
    words = refused(tmp_path, table, label="v")
    assert words.endswith("categories are text, numbers or booleans")


def test_categories_may_be_numbers_of_several_types(tmp_path: Path) -> None:
    for at, values in enumerate([pa.array([500, 3]), pa.array([7, None], pa.int8())]):
        write(tmp_path / f"n{at}.feather", pa.table({"v": values.dictionary_encode()}))
    with built(tmp_path, None, files=str(tmp_path / "*.feather"), label="v") as graph:
        assert graph.node_attribute("y", "a").tolist() == [2, 0, 1, -1]
        assert graph.graph_attributes("a")["y_categories"] == [3, 7, 500]


def test_categories_may_be_floats_but_nan(tmp_path: Path) -> None:
    stars = pa.array([4.5, None, 0.5])
    with built(tmp_path, pa.table({"v": stars.dictionary_encode()}), label="v") as graph:
        assert graph.node_attribute("y", "a").tolist() == [1, -1, 0]
        assert graph.graph_attributes("a")["y_categories"] == [0.5, 4.5]
    table = pa.table({"v": pa.array([4.5, float("nan")]).dictionary_encode()})
    assert refused(tmp_path, table, label="v").endswith("has NaN among its categories")


def test_moments_beyond_pythons_years_are_named(tmp_path: Path) -> None:
    table = pa.table({"v": pa.array([0, 2**60], pa.timestamp("s"))})
    assert "row 1: column 'v' of nodes.a is 1152921504606846976 (timestamp[s])" in refused(
        tmp_path, table, time="v"
    )


def test_the_width_of_lists_is_that_of_rows_that_are_kept(tmp_path: Path) -> None:
    table = pa.table({"id": [None, 4], "v": pa.array([None, [1.0, 2.0]])})
    with built(tmp_path, table, id="id", on_missing="skip", features={"x": "v"}) as graph:
        assert graph.node_attribute("x", "a").tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("is_dictionary", [False, True])
def test_views_of_text_are_read_where_rows_are_left_out(
    is_dictionary: bool, tmp_path: Path
) -> None:
    words = pa.array(["b", "of more than twelve bytes", "a", None], pa.string_view())
    if is_dictionary:
        indices = pa.array([0, 1, 2, None])
        words = pa.DictionaryArray.from_arrays(indices, words.slice(0, 3))
    table = pa.table({"id": pa.array([5, None, 7, 8]), "v": words})
    with built(tmp_path, table, id="id", on_missing="skip", label="v") as graph:
        assert graph.node_attribute("y", "a").tolist() == [1, 0, -1]
    with built(tmp_path, table, id="v", on_missing="skip") as graph:
        assert graph.ids("a").tolist() == ["b", "of more than twelve bytes", "a"]


def test_a_file_without_rows_says_nothing_of_types(tmp_path: Path) -> None:
    """pandas writes columns of no objects as null."""
    write(tmp_path / "n0.parquet", pa.table({"id": pa.nulls(0), "x": pa.array([], pa.string())}))
    write(tmp_path / "n1.parquet", pa.table({"id": ["b"], "x": [0.5]}))
    files = str(tmp_path / "*.parquet")
    with built(tmp_path, None, files=files, id="id", features={"x": "x"}) as graph:
        assert graph.ids("a").tolist() == ["b"]
        assert graph.node_attribute("x", "a").tolist() == [0.5]


def test_columns_of_a_stream_that_nobody_reads_may_be_of_any_type(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        query = connection.sql("SELECT 7 AS id, INTERVAL 1 DAY AS i, union_value(k := 1) AS u")
        with built(tmp_path, query, id="id") as graph:
            assert graph.ids("a").tolist() == [7]


def test_a_table_that_is_none_is_named(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for table in (
        pandas.DataFrame({"id": ["a", 1]}),
        pandas.DataFrame([[1, 2]], columns=["id", "id"]),
    ):
        with pytest.raises(ValueError, match=r"nodes\.a\.data cannot be read: .*id"):
            built(tmp_path, table, id="id")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_numpys_archives_with_other_bytes_are_named(save: Any, tmp_path: Path) -> None:
    """CONTRACT 77: that is found out when an array has been read to its end."""
    path = tmp_path / "n.npz"
    save(path, id=np.random.default_rng(0).integers(0, 1 << 60, 1000))
    data = bytearray(path.read_bytes())
    data[2000] ^= 0xFF
    path.write_bytes(data)
    told = refused(tmp_path, None, files=str(path), id="id", match="npz")
    assert told.startswith(f"{path}: not a .npz file that can be read: ")


# --- lists of Python -----------------------------------------------------------------------------


def test_a_nul_at_the_end_of_an_id_stays(tmp_path: Path) -> None:
    with built(tmp_path, {"id": ["a", "a\0", ""]}, id="id") as graph:
        assert graph.ids("a").tolist() == ["a", "a\0", ""]


def test_lists_may_have_gaps_and_dates(tmp_path: Path) -> None:
    columns = {"id": [7, None, 3], "at": [dt.date(1970, 1, 2), None, dt.date(1970, 1, 3)]}
    with built(tmp_path, columns, id="id", on_missing="skip", time="at") as graph:
        assert graph.ids("a").tolist() == [7, 3]
        assert graph.node_attribute("time", "a").tolist() == [86_400 * 10**9, 2 * 86_400 * 10**9]


def test_numbers_beside_text_are_no_column(tmp_path: Path) -> None:
    assert "data of nodes.a: 'id' is no column" in refused(tmp_path, {"id": [1, "1"]}, id="id")


# --- descriptions --------------------------------------------------------------------------------


def test_files_may_be_paths(tmp_path: Path) -> None:
    path = write(tmp_path / "n.parquet", pa.table({"id": [9]}))
    for files in (path, [path]):
        with built(tmp_path, None, files=files, id="id") as graph:
            assert graph.ids("a").tolist() == [9]


def test_a_file_to_which_several_paths_lead_is_read_once(tmp_path: Path) -> None:
    """Its edges were there twice."""
    path = write(tmp_path / "e.parquet", pa.table({"s": [5], "t": [7]}))
    (tmp_path / "again").symlink_to(tmp_path)
    files = [path, f"{tmp_path}/again/../{tmp_path.name}/e.parquet", f"{tmp_path}/**/*.parquet"]
    with ps.build(tmp_path / "g", edges={"files": files, "source": "s", "target": "t"}) as graph:
        assert graph.num_edges() == 1


def test_a_feature_does_not_take_the_place_of_labels(tmp_path: Path) -> None:
    data = {"s": [0], "t": [0], "l": [1], "v": [0.5]}
    said = {"data": data, "source": "s", "target": "t", "label": "l"}
    with pytest.raises(ValueError, match="has the name 'edge_label'"):
        ps.build(tmp_path / "g", edges={**said, "features": {"edge_label": "v"}})


def test_columns_of_one_name_are_refused_in_memory_too(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["id", "id"])
    assert "has 2 columns that are called so" in refused(tmp_path, table, id="id")


def test_a_table_whose_ids_are_all_missing_goes_with_any_ids(tmp_path: Path) -> None:
    nodes = {"data": pa.table({"id": pa.nulls(1)}), "id": "id", "on_missing": "skip"}
    edges = {"data": {"s": ["a"], "t": ["a"]}, "source": "s", "target": "t", "on_missing": "skip"}
    with ps.build(tmp_path / "g", nodes=nodes, edges=edges) as graph:
        assert graph.num_nodes() == 0
        assert graph.graph_attributes()["left_out"] == {
            "nodes": {"missing": 1},
            "edges": {"missing": 1},
        }
