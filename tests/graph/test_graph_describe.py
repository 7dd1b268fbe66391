"""A graph in numbers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given

from penstock.graph import Graph
from penstock.graph.describe import ArrayDescription, Degrees, Description
from tests.graph.shapes import Array, homogeneous

EDGES = np.array([[0, 1, 2, 0, 3], [1, 2, 0, 2, 2]])
WRITES = ("author", "writes", "paper")


def small() -> Graph:
    return Graph.from_coo(
        EDGES,
        x=np.zeros((4, 3), np.float32),
        edge_weight=np.ones(5, np.float16),
        train=[0, 1],
        val=[2],
        graph_attrs={"title": "small", "prior": np.ones(2)},
    )


def test_types_sizes_and_attributes_are_told() -> None:
    with small() as graph:
        found = graph.describe()
    assert (found.is_hetero, found.num_nodes, found.num_edges) == (False, 4, 5)
    assert found.nodes[0].attributes == (ArrayDescription("x", "float32", (4, 3), 48),)
    assert found.nodes[0].splits == {"train": 2, "val": 1}
    assert found.edges[0].attributes == (ArrayDescription("edge_weight", "float16", (5,), 10),)
    assert found.values == {"title": "small"}
    assert found.arrays == (ArrayDescription("prior", "float64", (2,), 16),)


def test_each_type_is_told_of() -> None:
    with Graph.from_coo({WRITES: [[0, 1], [3, 0]]}, y={"paper": [0] * 4}) as graph:
        found = graph.describe()
    assert found.is_hetero
    assert [(node.name, node.num_nodes) for node in found.nodes] == [("paper", 4), ("author", 2)]
    assert [(edge.name, edge.num_edges) for edge in found.edges] == [(WRITES, 2)]


@given(homogeneous())
def test_degrees_are_those_of_in_edges(drawn: tuple[int, Array]) -> None:
    num_nodes, edges = drawn
    counts = np.bincount(edges[1], minlength=num_nodes)
    with Graph.from_coo(edges, num_nodes) as graph:
        found = graph.describe().edges[0].degrees
    if num_nodes == 0:
        assert found is None
    else:
        median = float(np.median(counts))
        none = int((counts == 0).sum())
        assert found == Degrees(counts.min(), counts.mean(), median, counts.max(), none)


def test_memory_is_told_by_what_it_is_for() -> None:
    with small() as graph:
        memory = graph.describe().memory
        assert memory.topology == 5 * 8 + 5 * 8  # of pointers, and of pairs of 32 bits
        assert (memory.nodes, memory.edges, memory.splits, memory.graph) == (48, 10, 24, 16)
        assert memory.total == sum(array.nbytes for array in graph.arrays.values())


def test_how_the_topology_is_kept_is_told() -> None:
    with small() as graph:
        edges = graph.describe().edges[0]
        assert (edges.index_dtype, edges.sorted_by_destination) == ("int32", False)
        assert not edges.has_csr
        graph.csr()
        assert graph.describe().edges[0].has_csr


def test_where_the_graph_lies_is_told(tmp_path: Path) -> None:
    with small() as graph:
        assert graph.describe().backing == "memory"
        graph.save(tmp_path / "graph")
    with Graph.open(tmp_path / "graph") as opened:
        assert opened.describe().backing == "file"


def test_the_version_is_told_once_it_is_known() -> None:
    with small() as graph:
        assert graph.describe().version is None
        assert graph.version == graph.describe().version


def test_a_description_travels_as_json() -> None:
    with small() as graph:
        found = graph.describe()
    encoded = msgspec.json.encode(found)
    assert msgspec.json.decode(encoded, type=Description) == found


def test_a_description_cannot_be_changed() -> None:
    with small() as graph, pytest.raises(AttributeError):
        graph.describe().num_nodes = 3  # type: ignore[misc]
