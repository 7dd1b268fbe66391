"""Whether arrays are those a schema calls for."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from penstock.graph.inventory import first_disagreement, key_text
from penstock.graph.schema import (
    EDGE,
    NODE,
    ArrayKey,
    EdgeTypeInfo,
    NodeTypeInfo,
    Schema,
)
from penstock.graph.shared import SharedArray
from tests.graph.format_graphs import CITES, WRITES, library, shared, tiny


def test_a_graph_that_agrees_has_nothing_to_say() -> None:
    assert [first_disagreement(*tiny()), first_disagreement(*library())] == [None, None]


def test_a_bare_adjacency_agrees_too() -> None:
    schema, arrays = tiny()
    bare = shared({ArrayKey("csc", EDGE, "adjacency"): np.zeros(12, np.int64)})
    assert first_disagreement(schema, {**arrays, **bare}) is None


Arrays = dict[ArrayKey, SharedArray]


@pytest.mark.parametrize(
    ("key", "array", "complaint"),
    [
        (ArrayKey("csc", WRITES, "indptr"), np.zeros(9, "i8"), "int64[9]: int64[10] is needed"),
        (ArrayKey("csc", WRITES, "indptr"), np.zeros(10, "i4"), "int32[10]: int64[10] is needed"),
        (ArrayKey("csc", WRITES, "adjacency"), np.zeros((20, 3), "i4"), "[20] or [20, 2]"),
        (ArrayKey("csc", WRITES, "adjacency"), np.zeros((20, 2), "f4"), "int32 or int64"),
        (ArrayKey("csc", WRITES, "adjacency"), np.zeros(19, "i4"), "[20] or [20, 2]"),
        (ArrayKey("csc", WRITES, "weights"), np.zeros(20), "indptr and adjacency only"),
        (ArrayKey("csr", WRITES, "indptr"), np.zeros(10, "i8"), "int64[8] is needed"),
        (ArrayKey("csr", CITES, "indptr"), np.zeros(10, "i8"), "is alone"),
        (ArrayKey("node", "paper", "x"), np.zeros((8, 2)), "one row per node, 9 in all"),
        (ArrayKey("node", "paper", "x"), np.array(1.0), "one row per node, 9 in all"),
        (ArrayKey("edge", WRITES, "weight"), np.zeros(9), "one row per edge, 20 in all"),
        (ArrayKey("split", "paper", "train"), np.zeros(9, "?"), "list of ids"),
        (ArrayKey("split", "paper", "train"), np.zeros((3, 1), "i8"), "list of ids"),
        (ArrayKey("node", "journal", "x"), np.zeros(9), "no type 'journal'"),
        (ArrayKey("split", "journal", "train"), np.zeros(9, "i8"), "no type 'journal'"),
        (ArrayKey("edge", ("a", "b", "c"), "x"), np.zeros(9), "no type ('a', 'b', 'c')"),
        (ArrayKey("csc", "paper", "indptr"), np.zeros(9, "i8"), "no type 'paper'"),
        (ArrayKey("node", WRITES, "x"), np.zeros(9), "no type ('author'"),
        (ArrayKey("graph", "journal", "x"), np.zeros(9), "no type 'journal'"),
    ],
)
def test_an_array_out_of_place_is_named_with_what_is_needed(
    key: ArrayKey, array: np.ndarray, complaint: str
) -> None:
    schema, arrays = library()
    said = first_disagreement(schema, {**arrays, **shared({key: array})})
    assert said is not None
    assert said.startswith(key_text(key))
    assert complaint in said


@pytest.mark.parametrize("name", ["indptr", "adjacency"])
def test_a_missing_csc_is_named(name: str) -> None:
    schema, arrays = library()
    del arrays[ArrayKey("csc", CITES, name)]
    assert first_disagreement(schema, arrays) == f"csc/paper-cites-paper/{name} is missing"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda s: {"nodes": (*s.nodes, NodeTypeInfo("paper", 9))}, "'paper' occurs twice"),
        (lambda s: {"edges": (*s.edges, s.edges[0])}, f"edge type {WRITES!r} occurs twice"),
        (lambda s: {"nodes": s.nodes[:1]}, "needs node type 'author', which there is not"),
        (lambda s: {"nodes": (NodeTypeInfo("n", -1), *s.nodes)}, "'n' has -1 nodes"),
        (lambda s: {"edges": (EdgeTypeInfo(CITES, -1),)}, "has -1 edges"),
        (lambda s: {"is_hetero": False}, "a homogeneous graph has one nameless type"),
    ],
)
def test_types_that_make_no_sense_are_named(
    change: Callable[[Schema], dict[str, object]], complaint: str
) -> None:
    schema, arrays = library()
    said = first_disagreement(msgspec.structs.replace(schema, **change(schema)), arrays)
    assert said is not None
    assert complaint in said


def test_keys_read_as_paths() -> None:
    keys = [
        ArrayKey("node", NODE, "x"),
        ArrayKey("node", "paper", "x"),
        ArrayKey("csc", EDGE, "indptr"),
        ArrayKey("csr", WRITES, "indptr"),
    ]
    assert list(map(key_text, keys)) == [
        "node/x",
        "node/paper/x",
        "csc/indptr",
        "csr/author-writes-paper/indptr",
    ]
