"""Derived arrays of a part: those of the whole graph, for its own rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import Graph
from penstock.graph.derived import ByTime, DegreeSizes, SortedNeighbors, WeightSums
from penstock.graph.schema import EDGE
from tests.graph.partition.graphs import CUTS, cut, homogeneous, sides_of


def owning(how: dict[str, Any]) -> Any:
    return "out" if how["edges"] == "source" else "in"


def assert_same_rows(whole: Any, indptr: Any, values: Any, wanted: Any, part: Graph) -> None:
    """Compare what belongs to the rows of a part's nodes with what the whole graph has there."""
    for row, node in enumerate(part.node_ids().tolist()):
        here, there = slice(*indptr[row : row + 2]), slice(*whole.indptr[node : node + 2])
        assert values[here].tolist() == wanted[there].tolist()


@pytest.mark.parametrize("how", CUTS)
def test_sums_of_weights_are_those_of_the_whole_graph(tmp_path: Path, how: dict[str, Any]) -> None:
    """CONTRACT 65: weighted draws."""
    side = owning(how)
    with homogeneous() as graph, cut(graph, tmp_path, **how) as parts:
        wanted = graph.weight_sums(None, "edge_weight", side)
        for part in parts:
            rows, sums = part.own_rows(None, side), part.weight_sums(None, "edge_weight", side)
            assert len(sums) == rows.num_edges == part.num_own_edges()
            assert_same_rows(graph.topology(None, side), rows.indptr, sums, wanted, part)


@pytest.mark.parametrize("how", CUTS)
def test_rows_by_time_are_those_of_the_whole_graph(tmp_path: Path, how: dict[str, Any]) -> None:
    """CONTRACT 65: temporal draws."""
    side = owning(how)
    with homogeneous() as graph, cut(graph, tmp_path, **how) as parts:
        whole, times = graph.by_time(None, "edge_time", of_nodes=False, side=side)
        for part in parts:
            rows, told = part.by_time(None, "edge_time", of_nodes=False, side=side)
            assert np.array_equal(rows.indptr, part.own_rows(None, side).indptr)
            assert_same_rows(whole, rows.indptr, told, times, part)
            assert_same_rows(whole, rows.indptr, rows.adjacency, whole.adjacency, part)


@pytest.mark.parametrize("how", CUTS)
def test_sorted_rows_and_sizes_are_those_of_the_whole_graph(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    with homogeneous() as graph, cut(graph, tmp_path, **how) as parts:
        for part in parts:
            for side in sides_of(part):
                rows, whole = part.topology(None, side), graph.topology(None, side)
                found, wanted = part.sorted_rows(None, side), graph.sorted_rows(None, side)
                (sizes,) = part.derived(DegreeSizes(EDGE, side))
                (wanted_sizes,) = graph.derived(DegreeSizes(EDGE, side))
                if part.part.topology == "whole":  # type: ignore[union-attr]
                    assert np.array_equal(found, wanted)
                    assert np.array_equal(sizes.array, wanted_sizes.array)
                else:
                    assert_same_rows(whole, rows.indptr, found, wanted, part)
                    assert np.array_equal(sizes.array, wanted_sizes.array[part.node_ids()])


@pytest.mark.parametrize("how", CUTS)
def test_saved_derived_arrays_are_sound(tmp_path: Path, how: dict[str, Any]) -> None:
    side = owning(how)
    needed = [
        WeightSums(EDGE, "edge_weight", side),
        ByTime(EDGE, "edge_time", False, side),
        SortedNeighbors(EDGE, side),
        DegreeSizes(EDGE, side),
    ]
    with homogeneous() as graph, cut(graph, tmp_path, **how) as parts:
        for part in parts:
            part.prepare(needed)
            part.coo()
            part.save(tmp_path / "saved")
            with Graph.open(tmp_path / "saved") as again:
                assert again.arrays.keys() == part.arrays.keys()
                assert again.version == part.version
                again.validate()


@pytest.mark.parametrize("topology", ["parts", "whole"])
def test_rows_by_times_of_nodes_need_the_store(tmp_path: Path, topology: str) -> None:
    with homogeneous() as graph, cut(graph, tmp_path, topology=topology) as (part, *_):
        words = "^node attribute 'time': this is part 0 of 3, .* from the store"
        with pytest.raises(ValueError, match=words):
            part.by_time(None, "time", of_nodes=True)


@pytest.mark.parametrize("topology", ["parts", "whole"])
def test_weights_of_edges_that_went_elsewhere_are_refused(tmp_path: Path, topology: str) -> None:
    with (
        homogeneous() as graph,
        cut(graph, tmp_path, edges="both", topology=topology) as (part, *_),
    ):
        words = "attributes of edges went with their destination: those of the out-edges"
        with pytest.raises(ValueError, match=words):
            part.weight_sums(None, "edge_weight", "out")


def test_a_weight_that_is_none_is_named_by_its_edge(tmp_path: Path) -> None:
    weights = np.array([1.0, 2.0, 3.0, -4.0])
    with Graph.from_coo([[0, 1, 2, 3], [1, 2, 3, 0]], 4, edge_attrs={"w": weights}) as graph:
        (first, second) = graph.partition(2, tmp_path / "parts", method=[0, 0, 1, 1])
    with Graph.open(second) as part:
        part.weight_sums(None, "w")
    with Graph.open(first) as part:
        words = r"^edge attribute 'w': weights\[3\], of edge 3, is -4.0; expected a finite number"
        with pytest.raises(ValueError, match=words):
            part.weight_sums(None, "w")
