"""Builds of any small tables, in any types and files, beside a build in plain Python."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from tests.ingest.reference import Expected, Id, RefusedError, Shop, expected_of

KIND, BACK = ("a", "r", "b"), ("b", "rev_r", "a")
WORDS = ["", "a", "a\0", "\0", "b", "é", "日本語", "x" * 40, "1", "01", 'a "b,', "NA", "null"]
NUMBERS = [0, 1, 2, 3, -1, -5, 7, 100, 127, -128, 2**40, 2**63 - 1, -(2**63)]
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()]
SPLITS = [
    None,
    {"by": "random", "val": 0.3, "test": 0.2},
    {"by": "hash", "val": 0.3, "test": 0.2},
    {"by": "time", "val": 0.3},
    {"by": "random", "val": 0.2, "disjoint": 0.5},
]
MODULES = ("tables", "nodes", "numbering", "states", "splits", "edges")


@given(st.randoms(use_true_random=False))
def test_a_graph_is_what_plain_python_makes_of_the_tables(rng: random.Random) -> None:
    """CONTRACT 77, 78"""
    pools = [rng.choice([WORDS, NUMBERS[: rng.choice([7, 10, 13])]]) for _ in range(2)]
    shop = a_shop(rng, pools)
    split = rng.choice(SPLITS)
    try:
        expected = expected_of(shop)
    except RefusedError:
        expected = None
    with tempfile.TemporaryDirectory() as folder, few_rows_at_a_time(rng.choice([1, 2, 3, 1000])):
        said = tables(rng, Path(folder), shop, split)
        if expected is None:
            with pytest.raises(ValueError, match=r"on_missing|refused"):
                ps.build(Path(folder) / "g", **said)
            return
        with ps.build(Path(folder) / "g", **said) as graph:
            check_nodes(graph, shop, expected)
            check_edges(graph, shop, expected, split)


@contextmanager
def few_rows_at_a_time(rows: int) -> Iterator[None]:
    """Cut tables into pieces that matter only where there are many rows."""
    patches = [patch(f"penstock.ingest.{name}.MOST_ROWS", rows) for name in MODULES]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


# --- tables --------------------------------------------------------------------------------------


def a_shop(rng: random.Random, pools: Sequence[Sequence[Any]]) -> Shop:
    def drawn(pool: Sequence[Any]) -> Id:
        return None if rng.random() < 0.04 else rng.choice(pool)

    is_hetero = rng.random() < 0.6
    sources, targets = pools if is_hetero else (pools[0], pools[0])
    ids: list[Id] | None = [drawn(sources) for _ in range(rng.randint(1, 12))]
    if rng.random() < 0.6:
        ids = list(dict.fromkeys(ids or ()))
    return Shop(
        is_hetero,
        ids if rng.random() < 0.7 else None,
        [(drawn(sources), drawn(targets)) for _ in range(rng.randint(1, 30))],
        {
            "missing_ids": rng.choice(["skip", "raise"]),
            "missing_ends": rng.choice(["skip", "skip", "raise"]),
            "reverse": rng.random() < 0.5,
            "duplicates": rng.choice(["keep", "keep", "drop", "refuse"]),
            "self_loops": "keep" if is_hetero else rng.choice(["keep", "drop", "refuse"]),
        },
    )


def tables(rng: random.Random, folder: Path, shop: Shop, split: Any) -> dict[str, Any]:
    """What is said to `build`."""
    words = shop.words
    columns = {"s": [s for s, _ in shop.edges], "t": [t for _, t in shop.edges]}
    columns["at"] = list(range(len(shop.edges)))
    edges = {
        **put(rng, folder, "edges", columns),
        "source": "s",
        "target": "t",
        "time": "at",
        "split": split,
        **{word: words[word] for word in ("reverse", "duplicates", "self_loops")},
        "on_missing": words["missing_ends"],
    }
    said: dict[str, Any] = {"edges": {KIND: edges} if shop.is_hetero else edges}
    if shop.ids is not None:
        places = range(len(shop.ids))
        columns = {
            "id": shop.ids,
            "x": [at / 4 for at in places],
            "v": [[at, -at] for at in places],
            "l": [None if at % 3 == 0 else at for at in places],
        }
        nodes = {
            **put(rng, folder, "nodes", columns),
            "id": "id",
            "features": {"x": ["v", "x"]},
            "label": "l",
            "on_missing": words["missing_ids"],
        }
        said["nodes"] = {"a": nodes} if shop.is_hetero else nodes
    return said


def put(rng: random.Random, folder: Path, name: str, columns: dict[str, Any]) -> dict[str, Any]:
    """Columns in files, or in memory: each file with types of its own, and rows from any place."""
    count = len(next(iter(columns.values())))
    cuts = sorted(rng.randint(0, count) for _ in range(rng.randint(0, 3)))
    parts = []
    for begin, end in pairwise([0, *cuts, count]):
        table = pa.table(
            {each: typed(rng, each, all_[begin:end]) for each, all_ in columns.items()}
        )
        around = table.slice(0, 1)
        parts.append(pa.concat_tables([around, table, around]).slice(len(around), len(table)))
    form = rng.choice(["parquet", "feather", "arrows", "memory"])
    if form == "memory" and len({part.schema for part in parts}) == 1:
        return {"data": pa.concat_tables(parts)}
    form = "feather" if form == "memory" else form
    for number, table in enumerate(parts):
        path = folder / f"{name}-{number}.{form}"
        if form == "parquet":
            plain = [each.cast(pa.string()) if is_view(each) else each for each in table.columns]
            pq.write_table(pa.table(plain, table.column_names), path, row_group_size=2)
        elif form == "feather":
            feather.write_feather(table, path, chunksize=3, compression="uncompressed")
        else:
            with pa.ipc.new_stream(path, table.schema) as stream:
                stream.write_table(table, max_chunksize=2)
    return {"files": str(folder / f"{name}-*.{form}")}


def is_view(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_string_view(column.type))


def typed(rng: random.Random, name: str, values: list[Any]) -> pa.Array:
    """A column in one of the types that hold its values."""
    there = [value for value in values if value is not None]
    if not there and values:
        return pa.nulls(len(values), pa.int8() if name == "l" else pa.null())
    if any(isinstance(value, str) for value in there):
        kind = rng.choice([pa.string(), pa.large_string(), pa.string_view(), None])
        return pa.array(values, kind) if kind else pa.array(values).dictionary_encode()
    if any(isinstance(value, list) for value in there):
        return pa.array(values, rng.choice([pa.list_(pa.int64(), 2), pa.large_list(pa.int16())]))
    if not all(isinstance(value, int) for value in there):
        return pa.array(values)
    fitting = [kind for kind in INTEGERS if fits(there, kind)]
    if there and max(map(abs, there)) < 2**53:
        fitting.append(pa.float64())  # as pandas makes them
    kind = rng.choice(fitting)
    if pa.types.is_floating(kind):
        return pa.array([float("nan") if value is None else float(value) for value in values], kind)
    return pa.array(values, kind)


def fits(values: list[int], kind: pa.DataType) -> bool:
    info = np.iinfo(kind.to_pandas_dtype())
    return all(info.min <= value <= info.max for value in values)


# --- graphs --------------------------------------------------------------------------------------


def check_nodes(graph: ps.Graph, shop: Shop, expected: Expected) -> None:
    kind = "a" if shop.is_hetero else None
    check_ids(graph, kind, expected.sources)
    if shop.is_hetero:
        check_ids(graph, "b", expected.targets)
    if shop.ids is not None:
        rows = expected.rows
        assert graph.node_attribute("x", kind).tolist() == [[at, -at, at / 4] for at in rows]
        labels = [-1 if at % 3 == 0 else at for at in rows]
        found = graph.node_attribute("y", kind)  # floats have NaN
        assert np.nan_to_num(found, nan=-1).tolist() == labels


def check_ids(graph: ps.Graph, kind: str | None, numbers: dict[Id, int]) -> None:
    assert graph.num_nodes(kind) == len(numbers)
    if graph.id_kind(kind) is None:
        assert list(numbers) == list(range(len(numbers)))
        return
    assert graph.ids(kind).tolist() == list(numbers)
    assert graph.lookup(kind, list(numbers)).tolist() == list(numbers.values())


def check_edges(graph: ps.Graph, shop: Shop, expected: Expected, split: Any) -> None:
    """No edge, reverse edges among them, is a link that is held out; all others are there."""
    kind = KIND if shop.is_hetero else None
    links = links_of(graph, kind)
    apart = ["val", "test", *(["train"] if split and "disjoint" in split else [])]
    held_out = [link for name in apart for link in links.get(name, [])]
    assert len(set(held_out)) == len(held_out)
    assert set(held_out) <= set(expected.edges)
    edges = [edge for edge in expected.edges if edge not in set(held_out)]
    turned = [(target, source, row) for source, target, row in edges]
    if shop.words["reverse"] and not shop.is_hetero:
        edges += [edge for edge in turned if edge[0] != edge[1]]
    elif shop.words["reverse"]:
        assert edges_of(graph, BACK) == turned
    assert edges_of(graph, kind) == edges
    if split is not None and split["by"] == "random":
        assert len(links["val"]) == round(split["val"] * len(expected.edges))


def edges_of(graph: ps.Graph, kind: Any) -> list[tuple[int, int, int]]:
    times = graph.edge_attribute("edge_time", kind).tolist()
    return list(zip(*graph.edge_index(kind).tolist(), times, strict=True))


def links_of(graph: ps.Graph, kind: Any) -> dict[str, list[tuple[int, int, int]]]:
    whole = graph.graph_attributes(kind) if kind else graph.graph_attributes()
    return {
        name: list(
            zip(*whole[f"{name}_links"].tolist(), whole[f"{name}_links_time"].tolist(), strict=True)
        )
        for name in ("train", "val", "test")
        if f"{name}_links" in whole
    }
