"""However rows are spread over files, and whatever is left out: the graph is that of the data."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from tests.ingest.tables import plain_arrays, spread, table_of

KIND = ("user", "buys", "item")


@st.composite
def shops(draw: st.DrawFn) -> dict[str, Any]:
    """Small tables: ids of numbers or text, in any order, and edges of which some make no sense."""
    is_text = draw(st.booleans())
    name = (lambda n: f"id {n}") if is_text else (lambda n: n * 7 - 3)
    users = draw(st.lists(st.integers(0, 9), unique=True, max_size=8))
    items = draw(st.lists(st.integers(0, 9), unique=True, max_size=8))
    ends = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 5))
    edges = draw(st.lists(ends, max_size=25))
    return {
        "users": [name(n) for n in users],
        "items": [name(n) for n in items],
        "sources": [name(s) for s, _, _ in edges],
        "targets": [name(t) for _, t, _ in edges],
        "times": [time for _, _, time in edges],
        "duplicates": draw(st.sampled_from(["keep", "drop"])),
        "cuts": draw(st.lists(st.integers(0, 25), max_size=3)),
        "split": draw(
            st.sampled_from(
                [
                    None,
                    {"by": "hash", "val": 0.3, "test": 0.2, "seed": 5},
                    {"by": "random", "val": 0.3, "test": 0.2},
                    {"by": "random", "val": 0.3, "disjoint": 0.5},
                    {"by": "time", "val": 0.3, "test": 0.2},
                    {"by": "time", "val_from": 2, "test_from": 4},
                ]
            )
        ),
    }


def build(folder: Path, shop: dict[str, Any], cuts: list[int]) -> dict[Any, Any]:
    columns = {"s": shop["sources"], "t": shop["targets"], "at": shop["times"]}
    dtype: Any = None if shop["sources"] else np.int64
    table = table_of({name: np.array(column, dtype) for name, column in columns.items()})
    cuts = sorted(min(cut, table.num_rows) for cut in cuts)
    node_columns = {"user": shop["users"], "item": shop["items"]}
    with ps.build(
        folder / "g",
        nodes={
            name: {
                "data": {"id": np.array(ids, None if ids else np.int64), "x": np.arange(len(ids))},
                "id": "id",
                "features": {"x": "x"},
                "split": {"by": "hash", "val": 0.5},
            }
            for name, ids in node_columns.items()
        },
        edges={
            KIND: {
                "files": spread(folder, table, cuts, "parquet", "edges"),
                "source": "s",
                "target": "t",
                "time": "at",
                "on_missing": "skip",
                "reverse": True,
                "duplicates": shop["duplicates"],
                "split": shop["split"],
            }
        },
    ) as graph:
        return {"arrays": plain_arrays(graph), "version": graph.version, **parts(graph)}


def parts(graph: ps.Graph) -> dict[str, Any]:
    """The edges of a graph, and its links, as the users' ids and times."""
    users, items = graph.ids("user"), graph.ids("item")
    whole = graph.graph_attributes(KIND)
    sources, targets = graph.edge_index(KIND)
    times = graph.edge_attribute("edge_time", KIND).tolist()
    edges = list(zip(users[sources].tolist(), items[targets].tolist(), times, strict=True))
    backward = graph.edge_index(("item", "rev_buys", "user"))
    assert backward.tolist() == [targets.tolist(), sources.tolist()]
    links = {
        name: list(
            zip(
                users[whole[f"{name}_links"][0]].tolist(),
                items[whole[f"{name}_links"][1]].tolist(),
                whole[f"{name}_links_time"].tolist(),
                strict=True,
            )
        )
        for name in ("train", "val", "test")
        if f"{name}_links" in whole
    }
    return {"edges": edges, "links": links}


@given(shops())
def test_a_graph_is_that_of_its_rows_however_they_are_spread(shop: dict[str, Any]) -> None:
    """CONTRACT 77"""
    if not (shop["users"] and shop["items"] and shop["sources"]):
        return
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        whole = build(Path(one), shop, [])
        assert build(Path(other), shop, shop["cuts"]) == whole
    rows = [
        row
        for row in zip(shop["sources"], shop["targets"], shop["times"], strict=True)
        if row[0] in shop["users"] and row[1] in shop["items"]
    ]
    if shop["duplicates"] == "drop":
        first = {}
        for row in rows:
            first.setdefault(row[:2], row)
        rows = list(first.values())
    links = whole["links"]
    held_out = links.get("val", []) + links.get("test", [])
    if shop["split"] is not None and shop["split"].get("disjoint"):
        held_out += links.get("train", [])
    assert sorted(whole["edges"] + held_out) == sorted(rows)
    check_split(shop["split"], links, len(rows))


def check_split(said: Any, links: dict[str, Any], count: int) -> None:
    if said is None:
        assert links == {}
    elif said["by"] == "random":
        assert len(links["val"]) == round(0.3 * count)
        assert len(links["test"]) == round(said.get("test", 0) * count)
    elif said["by"] == "time" and "val_from" in said:
        assert all(2 <= time < 4 for _, _, time in links["val"])
        assert all(time >= 4 for _, _, time in links["test"])
    elif said["by"] == "time":
        assert len(links["test"]) >= round(0.2 * count)
        later = [time for _, _, time in links["test"]]
        assert all(time < min(later) for _, _, time in links["val"] if later)
