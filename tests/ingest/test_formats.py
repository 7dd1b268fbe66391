"""Building from every format, on disk and in memory: the graph that `from_coo` makes."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import penstock as ps
from penstock.ingest.numbering import numbered
from penstock.ingest.parts import MemoryPart
from penstock.ingest.tables import Table
from penstock.ingest.workspace import workspace_of
from tests.ingest.tables import FORMATS, same_graph, spread, table_of, write

BUYS = ("user", "buys", "item")
USERS = {"id": np.array([30, 10, 20]), "age": np.array([3.5, 1.0, 2.5])}
ITEMS = {"sku": [7, 8], "price": [1.0, 2.5], "kind": [1, 0]}
EDGES = {"who": [10, 30, 20, 10], "what": [8, 7, 7, 7], "stars": [1.0, 4.5, 2.0, 3.0]}


def expected() -> ps.Graph:
    return ps.Graph.from_coo(
        {BUYS: [[1, 0, 2, 1], [1, 0, 0, 0]]},
        {"user": 3, "item": 2},
        x={
            "user": np.array([[3.5], [1.0], [2.5]], np.float32),
            "item": np.array([[1.0, 1], [2.5, 0]], np.float32),
        },
        edge_weight={BUYS: np.array([1.0, 4.5, 2.0, 3.0])},
        node_ids={"user": [30, 10, 20], "item": [7, 8]},
    )


def built(out: Path, users: Any, items: Any, edges: Any) -> ps.Graph:
    return ps.build(
        out,
        nodes={
            "user": {**users, "id": "id", "features": {"x": ["age"]}},
            "item": {**items, "id": "sku", "features": {"x": ["price", "kind"]}},
        },
        edges={BUYS: {**edges, "source": "who", "target": "what", "weight": "stars"}},
    )


@pytest.mark.parametrize("form", FORMATS)
def test_a_graph_is_that_of_from_coo_whatever_the_format(form: str, tmp_path: Path) -> None:
    tables = [table_of(each) for each in (USERS, ITEMS, EDGES)]
    files = [
        {"files": spread(tmp_path, table, [1, 2], form, f"table{number}")}
        for number, table in enumerate(tables)
    ]
    with built(tmp_path / "g", *files) as graph, expected() as other:
        same_graph(graph, other)
        assert not (tmp_path / ".g.build").exists()


@pytest.mark.parametrize(
    "kind", ["pandas", "polars", "pyarrow", "batches", "duckdb", "arrays", "stream"]
)
def test_a_graph_is_that_of_from_coo_from_memory_too(kind: str, tmp_path: Path) -> None:
    connection = duckdb.connect()

    def of(columns: Any) -> Any:
        table = table_of(columns)
        match kind:
            case "pandas":
                return pd.DataFrame(columns)
            case "polars":
                return pl.DataFrame(columns)
            case "pyarrow":
                return table
            case "batches":
                return table.to_batches()[0]
            case "stream":
                return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
            case "duckdb":
                return connection.from_arrow(table)
        return columns

    data = [{"data": of(each)} for each in (USERS, ITEMS, EDGES)]
    with built(tmp_path / "g", *data) as graph, expected() as other:
        same_graph(graph, other)
    connection.close()


def test_npy_files_are_read_by_the_number_of_the_column(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", np.array([[0, 1], [1, 2], [2, 0]]))
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    with ps.build(
        tmp_path / "g",
        nodes={"files": str(tmp_path / "x.npy"), "features": {"x": "data", "one": ["1"]}},
        edges={"files": str(tmp_path / "edges.npy"), "source": "0", "target": "1"},
    ) as graph:
        assert graph.edge_index().tolist() == [[0, 1, 2], [1, 2, 0]]
        assert graph.node_attribute("x").tolist() == np.arange(12).reshape(3, 4).tolist()
        assert graph.node_attribute("one").tolist() == [[1.0], [5.0], [9.0]]


def test_columns_of_every_kind_stand_side_by_side(tmp_path: Path) -> None:
    nodes = pa.table(
        {
            "a": pa.array([1, 2], pa.int16()),
            "b": pa.array([True, False]),
            "list": pa.array([[1.0, 2.0], [3.0, 4.0]]),
            "fixed": pa.array([[5, 6], [7, 8]], pa.list_(pa.int32(), 2)),
            "day": pa.array([dt.date(1970, 1, 3), dt.date(1970, 1, 1)]),
            "kind": pa.array(["b", "a"]).dictionary_encode(),
            "word": ["z", "y"],
            "big": pa.array([1, 2], pa.uint64()),
        }
    )
    features = {
        "x": ["a", "b", "list", "fixed", "day", "kind"],
        "alone": "a",
        "word": {"columns": "word", "categories": True},
        "exact": {"columns": ["list"], "dtype": "float64"},
        "b": "b",
        "big": "big",
        "day": "day",
    }
    edges = {"data": {"s": [0], "t": [1]}, "source": "s", "target": "t"}
    with ps.build(tmp_path / "g", nodes={"data": nodes, "features": features}, edges=edges) as g:
        assert g.node_attribute("x").tolist() == [
            [1, 1, 1, 2, 5, 6, 2, 1],
            [2, 0, 3, 4, 7, 8, 0, 0],
        ]
        kinds = {name: (array.dtype, array.shape) for name, array in g.node_attributes().items()}
        assert kinds == {
            "x": ("float32", (2, 8)),
            "alone": ("int16", (2,)),
            "word": ("int64", (2,)),
            "exact": ("float64", (2, 2)),
            "b": ("bool", (2,)),
            "big": ("int64", (2,)),
            "day": ("float32", (2,)),
        }
        assert g.node_attribute("word").tolist() == [1, 0]
        assert g.graph_attributes() == {
            "word_categories": {"word": ["y", "z"]},
            "x_categories": {"kind": ["a", "b"]},
        }


def test_labels_are_codes_and_times_are_nanoseconds(tmp_path: Path) -> None:
    moment = dt.datetime(2024, 5, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    nodes = {
        "data": pl.DataFrame({"y": ["dog", "cat", None], "at": [moment] * 3}),
        "label": "y",
        "time": "at",
    }
    edges = {
        "data": {"s": [0, 1], "t": [1, 2], "at": np.array(["2024-05-01", "1970-01-02"], "M8[D]")},
        "source": "s",
        "target": "t",
        "time": "at",
        "label": "at",
    }
    with pytest.raises(ValueError, match=r"edges.label: column 'at' .* expected numbers, text or"):
        ps.build(tmp_path / "g", nodes=nodes, edges=edges)
    with ps.build(tmp_path / "g", nodes=nodes, edges={**edges, "label": "s"}) as graph:
        assert graph.node_attribute("y").tolist() == [1, 0, -1]
        assert graph.graph_attributes() == {"y_categories": ["cat", "dog"]}
        ten = int(dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC).timestamp()) * 10**9
        assert graph.node_attribute("time").tolist() == [ten] * 3
        day = int(dt.datetime(2024, 5, 1, tzinfo=dt.UTC).timestamp()) * 10**9
        assert graph.edge_attribute("edge_time").tolist() == [day, 86_400 * 10**9]
        assert graph.edge_attribute("edge_label").tolist() == [0, 1]


@pytest.mark.parametrize("store", ["int8", "float16", "bfloat16"])
def test_features_in_fewer_bytes_are_those_of_quantize(store: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    edges = {"data": {"s": [0], "t": [1]}, "source": "s", "target": "t"}
    with (
        ps.build(
            tmp_path / "g",
            nodes={"data": {"v": x}, "features": {"x": {"columns": "v", "store": store}}},
            edges=edges,
        ) as graph,
        ps.Graph.from_coo([[0], [1]], x=x, features={"x": ps.quantize(store)}) as other,
    ):
        same_graph(graph, other)
        assert graph.version == other.version


def test_csv_is_read_as_the_description_says(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("s\tt\n0\t1\n")
    (tmp_path / "b.txt").write_text("1|0|-\n1|1|2.5\n")
    csv = {"names": ["s", "t", "w"], "delim": "|", "nullstr": "-", "types": {"w": "FLOAT"}}
    edges = {
        ("a", "to", "a"): {"files": str(tmp_path / "a.tsv")},
        ("a", "of", "a"): {
            "files": str(tmp_path / "b.txt"),
            "format": "csv",
            "csv": csv,
            "label": "w",
        },
    }
    edges = {kind: {**said, "source": "s", "target": "t"} for kind, said in edges.items()}
    with ps.build(tmp_path / "g", edges=edges) as graph:
        assert graph.edge_index(("a", "to", "a")).tolist() == [[0], [1]]
        assert graph.edge_index(("a", "of", "a")).tolist() == [[1, 1], [0, 1]]
        label = graph.edge_attribute("edge_label", ("a", "of", "a"))
        assert label.dtype == np.float32
        assert np.isnan(label[0])
        assert label[1] == 2.5


def test_ids_that_are_written_as_numbers_in_csv_are_text_where_others_are(tmp_path: Path) -> None:
    write(tmp_path / "nodes.csv", table_of({"id": ["007", "x1"]}))
    (tmp_path / "edges.csv").write_text("a,b\n007,007\n")
    with ps.build(
        tmp_path / "g",
        nodes={"files": str(tmp_path / "nodes.csv"), "id": "id"},
        edges={"files": str(tmp_path / "edges.csv"), "source": "a", "target": "b"},
    ) as graph:
        assert graph.edge_index().tolist() == [[0], [0]]


@pytest.mark.parametrize(
    "ids", [["2024-01-01", "2024-01-02"], ["18446744073709551616", "18446744073709551617"]]
)
def test_ids_of_csv_that_are_no_whole_numbers_are_text(ids: list[str], tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text(f"a,b\n{ids[0]},{ids[1]}\n")
    edges = {"files": str(tmp_path / "edges.csv"), "source": "a", "target": "b"}
    with ps.build(tmp_path / "g", edges=edges) as graph:
        assert graph.ids().tolist() == ids


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_a_table_of_ids_that_does_not_fit_in_memory_is_in_a_file(
    memory: int, tmp_path: Path
) -> None:
    ids = np.random.default_rng(0).permutation(10_000) * 7
    part = MemoryPart(table_of({"id": ids}), "data")
    with workspace_of(tmp_path / "g") as workspace:
        found = numbered(
            Table("nodes", [part], 1 << 20),
            "id",
            text=False,
            skip=False,
            workspace=workspace,
            memory=memory,
        )
        assert found.numbering.find(ids).tolist() == list(range(10_000))
        assert found.numbering.find(ids + 1).tolist() == [-1] * 10_000
        assert any("slots" in path.name for path in workspace.folder.iterdir()) == (memory == 0)


def test_nodes_without_a_table_are_what_edges_name_in_order(tmp_path: Path) -> None:
    edges = {
        ("a", "to", "a"): {"data": {"s": [9, 5], "t": [5, 7]}, "source": "s", "target": "t"},
        ("a", "of", "b"): {"data": {"s": [3, 9], "t": ["y", "x"]}, "source": "s", "target": "t"},
    }
    with ps.build(tmp_path / "g", edges=edges) as graph:
        assert graph.edge_index(("a", "to", "a")).tolist() == [[0, 1], [1, 2]]
        assert graph.edge_index(("a", "of", "b")).tolist() == [[3, 0], [0, 1]]
        assert (graph.num_nodes("a"), graph.num_nodes("b")) == (4, 2)


def test_files_are_read_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name, sources in (("b", [2, 3]), ("a", [0, 1]), ("c/d", [4])):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / f"{name}.parquet", table_of({"s": sources, "t": sources}))
    (tmp_path / "g.toml").write_text(
        '[edges]\nfiles = ["**/*.parquet", "b.parquet"]\nsource = "s"\ntarget = "t"\n'
    )
    with ps.build(tmp_path / "g", spec=tmp_path / "g.toml") as graph:
        assert graph.edge_index()[0].tolist() == [0, 1, 2, 3, 4]
