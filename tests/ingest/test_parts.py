"""Parts straight from tables: every file is that of building the whole graph, and cutting it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import GraphFormatError
from penstock.graph.format import verify
from tests.ingest.folders import contents, same_parts

BUYS, NEAR, KNOWS = ("user", "buys", "item"), ("item", "near", "item"), ("user", "knows", "person")
LAYOUTS = [
    pytest.param({"edges": edges, "topology": topology}, id=f"{edges}-{topology}")
    for edges in ("destination", "source", "both")
    for topology in ("parts", "whole")
]


def shop(parts: int, *, rows: int = 400) -> dict[str, Any]:
    """Tables of several types: text and numbers for ids, reverse edges, splits, quantized arrays.

    Edges of "near" come sorted by destination, persons are whoever edges name.
    """
    rng = np.random.default_rng(3)
    users = np.array([f"user {n}" for n in rng.permutation(60).tolist()])
    items, ends = rng.permutation(50) * 7 - 3, rng.integers(0, 50, (4, rows))
    nodes = {
        "user": {
            "data": {
                "id": users,
                "x": rng.random((60, 3), dtype=np.float32),
                "y": rng.integers(0, 4, 60),
                "shard": rng.integers(0, parts, 60),
            },
            "features": {"x": "x", "shard": "shard"},
            "label": "y",
            "split": {"by": "hash", "val": 0.3, "test": 0.2},
        },
        "item": {
            "data": {"id": items, "v": rng.random(50), "shard": rng.integers(0, parts, 50)},
            "features": {
                "small": {"columns": ["v"], "store": "int8"},
                "half": {"columns": "v", "store": "bfloat16"},
                "shard": "shard",
            },
        },
    }
    for table in nodes.values():
        table.update(id="id", part="shard")
    edges: dict[Any, Any] = {
        BUYS: {
            "data": {
                "s": users[ends[0]],
                "t": items[ends[1]],
                "w": rng.random(rows),
                "at": rng.integers(0, 99, rows),
                "f": rng.random((rows, 3), dtype=np.float32),
            },
            "weight": "w",
            "time": "at",
            "features": {"f": "f", "tiny": {"columns": ["w"], "store": "int8"}},
            "reverse": True,
            "duplicates": "drop",
            "split": {"by": "time", "val": 0.1, "test": 0.1},
        },
        NEAR: {"data": {"s": items[ends[2]], "t": items[np.sort(ends[3])]}},
    }
    for each in edges.values():
        each.update(source="s", target="t")
    return {"nodes": nodes, "edges": edges}


# --- the same files ------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("method", ["range", "hash", "column"])
def test_parts_are_those_of_the_whole_graph(
    method: str, layout: dict[str, Any], tmp_path: Path
) -> None:
    """CONTRACT 65, 77"""
    tables = shop(3)
    if method != "column":  # which needs a table of each type
        ends = {"s": tables["edges"][BUYS]["data"]["s"], "t": np.arange(400) % 9}
        tables["edges"][KNOWS] = {"data": ends, "source": "s", "target": "t"}
    built = same_parts(tmp_path, {"n": 3, "method": method, **layout}, **tables)
    for path in built:
        verify(path)


@pytest.mark.parametrize("method", ["streaming", "locality"])
@pytest.mark.parametrize("layout", [LAYOUTS[0], LAYOUTS[4], LAYOUTS[5]])
def test_methods_that_go_by_neighbours_find_the_same_parts(
    method: str, layout: dict[str, Any], tmp_path: Path
) -> None:
    """CONTRACT 77"""
    if method == "locality":
        pytest.importorskip("kaminpar")
    built = same_parts(tmp_path, {"n": 3, "method": method, **layout}, **shop(3))
    assert sum(built.edges_cut.values()) > 0


def test_parts_that_are_given_as_arrays_are_taken(tmp_path: Path) -> None:
    """CONTRACT 77"""
    given = {"user": np.arange(60) % 2, "item": np.arange(50) // 30}
    same_parts(tmp_path, {"n": 2, "method": given}, **shop(2))


@pytest.mark.parametrize("parts", [1, 2, 50, 300])
def test_a_graph_with_one_type_may_have_more_parts_than_nodes(parts: int, tmp_path: Path) -> None:
    """CONTRACT 77: reverse edges are of the same type, and loops are their own."""
    rng = np.random.default_rng(1)
    ends = rng.integers(0, 40, (2, 150))
    edges = {"s": ends[0], "t": ends[1], "w": rng.random(150)}
    said = {"data": edges, "source": "s", "target": "t", "weight": "w", "reverse": True}
    tables = {"edges": {**said, "split": {"by": "random", "val": 0.2, "disjoint": 0.3}}}
    same_parts(tmp_path, {"n": parts, "method": "hash"}, **tables)
    if parts < 300:
        same_parts(tmp_path, {"n": parts, "method": "streaming", "edges": "both"}, **tables)


def test_types_without_nodes_and_without_edges_have_empty_parts(tmp_path: Path) -> None:
    """CONTRACT 77"""
    nothing = np.empty(0, np.int64)
    nodes = {
        "a": {"data": {"id": nothing, "x": nothing}, "id": "id", "features": {"x": "x"}},
        "b": {"data": {"id": np.array(["one", "two", ""])}, "id": "id"},
    }
    edges = {
        ("a", "to", "b"): {"data": {"s": nothing, "t": np.empty(0, "U1"), "w": nothing}},
        ("b", "to", "b"): {"data": {"s": ["two", ""], "t": ["one", "one"], "w": [0.5, 1]}},
    }
    for said in edges.values():
        said.update(source="s", target="t", weight="w", reverse=True)  # type: ignore[call-overload]
    for method in ("range", "hash", "streaming"):
        for layout in ("parts", "whole"):
            words = {"n": 2, "method": method, "topology": layout, "edges": "both"}
            same_parts(tmp_path, words, nodes=nodes, edges=edges)


def test_rows_longer_than_what_is_sorted_in_memory_are_given_out(tmp_path: Path) -> None:
    """CONTRACT 77: most edges lead to one node, others to few: such rows come in pieces."""
    rng = np.random.default_rng(0)
    targets = np.where(rng.random(700_000) < 0.9, 5, rng.integers(0, 9, 700_000))
    edges = {"data": {"s": rng.integers(0, 1000, 700_000), "t": targets}}
    edges.update(source="s", target="t")  # type: ignore[call-overload]
    nodes = {"data": {"id": np.arange(1000)}}
    words = {"n": 3, "method": "hash", "edges": "both"}
    same_parts(tmp_path, words, nodes=nodes, edges=edges, memory="64MB")
    same_parts(tmp_path, {**words, "method": "streaming"}, nodes=nodes, edges=edges, memory="64MB")


@st.composite
def small_tables(draw: st.DrawFn) -> dict[str, Any]:
    """Small tables of one type or of two; ids are missing, unknown, and there twice."""
    name = draw(st.sampled_from([str, lambda n: n * 7 - 3]))
    ids = st.lists(st.integers(0, 9), min_size=1, max_size=9)
    ends = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30))
    edges: dict[str, Any] = {
        "data": {
            "s": np.array([name(s) for s, _ in ends]),
            "t": np.array([name(t) for _, t in ends]),
            "at": np.array(draw(st.lists(st.integers(0, 5), min_size=30)))[: len(ends)],
        },
        "source": "s",
        "target": "t",
        "on_missing": "skip",
        "reverse": draw(st.booleans()),
        "duplicates": draw(st.sampled_from(["keep", "drop"])),
    }
    if draw(st.booleans()):
        edges["time"] = "at"
    if draw(st.booleans()):
        edges["split"] = {"by": "random", "val": 0.3, "disjoint": 0.2}
    kinds = [BUYS] if draw(st.booleans()) else []
    types = ["user", "item"] if kinds else [""]
    if not kinds:
        edges["self_loops"] = draw(st.sampled_from(["keep", "drop"]))
    nodes: dict[str, Any] = {}
    for each in types:
        if draw(st.booleans()):
            own = draw(ids)
            nodes[each] = {
                "data": {"id": np.array([name(n) for n in own]), "x": np.arange(len(own))},
                "id": "id",
                "features": {"x": "x"},
                "on_missing": "skip",
                "split": {"by": "hash", "val": 0.5},
            }
    if kinds:
        return {"nodes": nodes, "edges": {BUYS: edges}}
    return {"nodes": nodes.get(""), "edges": edges}


@given(
    small_tables(),
    st.fixed_dictionaries(
        {
            "n": st.integers(1, 5),
            "method": st.sampled_from(["range", "hash", "streaming"]),
            "edges": st.sampled_from(["destination", "source", "both"]),
            "topology": st.sampled_from(["parts", "whole"]),
        }
    ),
)
@settings(max_examples=25)
def test_whatever_the_tables_parts_are_those_of_the_whole(
    tables: dict[str, Any], words: dict[str, Any]
) -> None:
    """CONTRACT 77"""
    with tempfile.TemporaryDirectory() as folder:
        same_parts(Path(folder), words, **tables)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (0, "parts.n is 0; expected 1 to"),
        ({"method": "hash"}, "parts lacks 'n'"),
        ({"n": 2, "methods": "hash"}, "the word 'methods', .*did you mean 'method'"),
        ({"n": 2, "method": "hahs"}, "parts.method is 'hahs'; .*did you mean 'hash'"),
        ({"n": 2, "edges": "sources"}, "parts.edges is 'sources'; expected one of destination"),
        ({"n": 2, "topology": "half"}, "parts.topology is 'half'; expected one of parts, whole"),
        ({"n": 2, "passes": 3}, "parts.passes is 3; only method='streaming'"),
        ({"n": 2, "method": "column"}, "method is 'column', and nodes.person has no table"),
        ({"n": 1, "method": {"user": [0]}}, "method has no parts of the nodes of 'item'"),
    ],
)
def test_words_of_parts_that_make_no_sense_are_named(
    parts: Any, words: str, tmp_path: Path
) -> None:
    tables = shop(2)
    tables["edges"][KNOWS] = {"data": {"s": ["user 1"], "t": [1]}, "source": "s", "target": "t"}
    with pytest.raises(ValueError, match=words):
        ps.build(tmp_path / "built", **tables, parts=parts)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("shards", "words"),
    [
        ([0, 2, 1], r"row 1: column 'shard' of nodes is 2; expected 0 <= part < 2"),
        ([0, 1, -1], r"row 2: column 'shard' of nodes is -1; expected 0 <= part < 2"),
        ([0.0, 1.0, 0.0], r"nodes.part: column 'shard' of .* is double; expected whole numbers"),
    ],
)
def test_a_column_that_names_no_part_is_refused_with_its_row(
    shards: Any, words: str, tmp_path: Path
) -> None:
    """CONTRACT 77"""
    nodes = {"data": {"id": [1, 2, 3], "shard": shards}, "id": "id", "part": "shard"}
    edges = {"data": {"s": [1], "t": [2]}, "source": "s", "target": "t"}
    with pytest.raises(ValueError, match=words):
        ps.build(tmp_path / "built", nodes=nodes, edges=edges, parts=2)


def test_locality_needs_memory_for_the_graph_and_names_what_does_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 1000, (2, 1_200_000)).astype(np.int32)
    edges = {"data": {"s": ends[0], "t": ends[1]}, "source": "s", "target": "t"}
    parts = {"n": 2, "method": "locality"}
    with pytest.raises(ValueError, match=r"1,200,000 edges take about 68 MiB, .*'streaming'"):
        ps.build(tmp_path / "built", edges=edges, parts=parts, memory="64MB")
    assert not any(tmp_path.iterdir())


def test_only_parts_are_replaced_by_parts(tmp_path: Path) -> None:
    edges = {"data": {"s": [0, 1], "t": [1, 0]}, "source": "s", "target": "t"}
    ps.build(tmp_path / "graph", edges=edges).close()
    with pytest.raises(GraphFormatError, match="no folder of parts"):
        ps.build(tmp_path / "graph", edges=edges, parts=2)
    ps.build(tmp_path / "parts", edges=edges, parts=3)
    assert len(ps.build(tmp_path / "parts", edges=edges, parts=2)) == 2
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["part-0", "part-1"]
    with pytest.raises(FileExistsError, match="and no graph"):
        ps.build(tmp_path / "parts", edges=edges)


def test_an_error_on_the_way_leaves_the_parts_that_were_there(tmp_path: Path) -> None:
    edges = {"data": {"s": [0, 1], "t": [1, 0]}, "source": "s", "target": "t"}
    ps.build(tmp_path / "parts", edges=edges, parts=2)
    before = contents(tmp_path / "parts")

    def stop(done: int, total: int) -> None:
        if any(tmp_path.glob(".parts.build/*-parts/part-1/data-*/*")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ps.build(tmp_path / "parts", edges=edges, parts=3, progress=stop)
    assert contents(tmp_path / "parts") == before
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]
