"""Unsound graphs are found out: each complaint names the array, the position and the value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import GraphFormatError
from penstock.graph import Graph, SharedArray
from penstock.graph.check import PIECE
from penstock.graph.schema import EDGE, NODE, ArrayKey, EdgeTypeInfo, NodeTypeInfo, Schema

pytestmark = pytest.mark.usefixtures("no_leaks")

EDGES = np.array([[0, 1, 2, 0, 3], [1, 2, 0, 2, 2]])
INDPTR = ArrayKey("csc", EDGE, "indptr")
ADJACENCY = ArrayKey("csc", EDGE, "adjacency")

Change = Callable[[Any], None]


def put(*at: int, value: int) -> Change:
    """Sets one element."""
    return lambda array: array.__setitem__(at, value)


@contextmanager
def damaged(graph: Graph, key: ArrayKey, change: Change) -> Iterator[Graph]:
    """The graph with one array changed, as damage on a disk would."""
    with SharedArray.from_array(graph.arrays[key].array, writable=True) as copy:
        change(copy.array)
        yield Graph(graph.schema, {**graph.arrays, key: copy})


def unsound(message: str, key: ArrayKey, change: Change, edges: Any = EDGES) -> None:
    """`validate()` finds exactly this."""
    with Graph.from_coo(edges, train=[0, 2]) as graph:
        graph.csr()
        with damaged(graph, key, change) as changed:
            with pytest.raises(GraphFormatError, match=f"^{re.escape(message)}$"):
                changed.validate()


def test_indptr_that_falls() -> None:
    message = "csc/indptr[2] is 0; expected at least 1, as before it"
    unsound(message, INDPTR, put(2, value=0))


def test_indptr_that_falls_far_along() -> None:
    edges = np.zeros((2, 1), np.int64) + 2 * PIECE
    message = f"csc/indptr[{PIECE + 1}] is 0; expected at least 1, as before it"
    unsound(message, INDPTR, put(PIECE, value=1), edges)


def test_a_neighbor_that_is_none() -> None:
    message = "csc/adjacency[:, 0][3] is 4; expected 0 <= id < 4"
    unsound(message, ADJACENCY, put(3, 0, value=4))


def test_a_neighbor_that_is_none_where_edges_are_in_order() -> None:
    message = "csc/adjacency[1] is -1; expected 0 <= id < 3"
    unsound(message, ADJACENCY, put(1, value=-1), [[2, 0], [0, 1]])


def test_an_edge_id_that_is_none() -> None:
    message = "csc/adjacency[:, 1][0] is 5; expected 0 <= id < 5"
    unsound(message, ADJACENCY, put(0, 1, value=5))


def test_an_edge_id_that_stands_twice() -> None:
    message = "csc/adjacency[:, 1][3] is 0, an edge id that stood before; expected each once"
    unsound(message, ADJACENCY, put(3, 1, value=0))


def test_a_csr_is_looked_at_too() -> None:
    message = "csr/adjacency[:, 0][4] is 9; expected 0 <= id < 4"
    unsound(message, ArrayKey("csr", EDGE, "adjacency"), put(4, 0, value=9))


def test_a_csr_of_other_edges() -> None:
    message = "csr/adjacency has other edges than the csc"
    unsound(message, ArrayKey("csr", EDGE, "adjacency"), put(4, 0, value=3))


def test_a_split_with_an_id_that_is_none() -> None:
    message = "split/train[1] is 4; expected 0 <= id < 4"
    unsound(message, ArrayKey("split", NODE, "train"), put(1, value=4))


def test_the_file_is_named(tmp_path: Path) -> None:
    with Graph.from_coo(EDGES) as graph:
        graph.save(tmp_path / "graph")
    with Graph.open(tmp_path / "graph") as graph:
        file = Path(graph.arrays[ADJACENCY].segment.handle.path)  # type: ignore[union-attr]
    data = bytearray(file.read_bytes())
    data[:4] = b"\xff\xff\xff\x7f"
    file.write_bytes(data)
    with Graph.open(tmp_path / "graph") as graph:
        expected = f"{file}: csc/adjacency[:, 0][0] is {2**31 - 1}; expected 0 <= id < 4"
        with pytest.raises(GraphFormatError, match=f"^{re.escape(expected)}$"):
            graph.validate()


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [(0, 1, "csc/indptr[0] is 1; expected 0"), (4, 4, "csc/indptr[4] is 4; expected 5")],
)
def test_indptr_that_begins_or_ends_wrong_is_no_graph(at: int, value: int, message: str) -> None:
    with Graph.from_coo(EDGES) as graph:
        with pytest.raises(GraphFormatError, match=f"^{re.escape(message)}$"):
            with damaged(graph, INDPTR, put(at, value=value)):
                pass


def test_arrays_that_are_not_those_of_the_schema_are_no_graph() -> None:
    schema = Schema(False, (NodeTypeInfo(NODE, 9),), (EdgeTypeInfo(EDGE, 5),))
    with Graph.from_coo(EDGES) as graph:
        with pytest.raises(GraphFormatError, match=r"^csc/indptr is int64\[5\]: int64\[10\]"):
            Graph(schema, graph.arrays)
