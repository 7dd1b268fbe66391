"""A part alone: its nodes, and the edges with both ends among them, by the ids of the whole."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import Graph
from penstock.graph.derived import ByTime, DegreeSizes, SortedNeighbors, WeightSums
from penstock.graph.schema import EDGE
from tests.graph.partition.graphs import CUTS, cut, heterogeneous, homogeneous

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(params=[homogeneous, heterogeneous], ids=["homogeneous", "heterogeneous"])
def graph(request: Any) -> Iterator[Graph]:
    with request.param() as made:
        yield made


def inner(graph: Graph, part: Graph, kind: Any) -> Any:
    """The ids of the edges with both ends in a part."""
    sources, destinations = graph.edge_index(kind)
    here = np.isin(sources, part.node_ids(kind[0])) & np.isin(destinations, part.node_ids(kind[2]))
    return np.flatnonzero(here)


@pytest.mark.parametrize("how", CUTS)
def test_a_part_alone_has_the_edges_both_ends_of_which_it_has(
    graph: Graph, tmp_path: Path, how: dict[str, Any]
) -> None:
    with cut(graph, tmp_path, **how) as parts:
        for part in parts:
            alone = part.within()
            alone.validate()
            for kind in graph.edge_types:
                ids = inner(graph, part, kind)
                assert alone.num_own_edges(kind) == len(ids)
                assert np.array_equal(alone.edge_index(kind), graph.edge_index(kind)[:, ids])
                assert np.array_equal(np.sort(alone.csc(kind).edge_ids), ids)


@pytest.mark.parametrize("how", CUTS)
def test_its_rows_are_those_of_the_whole_graph_without_the_cut_edges(
    graph: Graph, tmp_path: Path, how: dict[str, Any]
) -> None:
    with cut(graph, tmp_path, **how) as parts:
        for part in parts:
            alone = part.within()
            for kind in graph.edge_types:
                kept = set(inner(graph, part, kind).tolist())
                for whole, rows in (
                    (graph.csc(kind), alone.csc(kind)),
                    (graph.csr(kind), alone.csr(kind)),
                ):
                    for node in range(whole.num_rows):
                        here = slice(*rows.indptr[node : node + 2])
                        there = slice(*whole.indptr[node : node + 2])
                        pairs = zip(
                            whole.indices[there].tolist(),
                            whole.edge_ids[there].tolist(),
                            strict=True,
                        )
                        assert [each for each in pairs if each[1] in kept] == list(
                            zip(
                                rows.indices[here].tolist(),
                                rows.edge_ids[here].tolist(),
                                strict=True,
                            )
                        )


@pytest.mark.parametrize("side", ["in", "out"])
@pytest.mark.parametrize("how", CUTS)
def test_derived_arrays_of_a_part_alone_are_sound(
    tmp_path: Path, how: dict[str, Any], side: Any
) -> None:
    needed = [
        WeightSums(EDGE, "edge_weight", side),
        ByTime(EDGE, "edge_time", False, side),
        ByTime(EDGE, "time", True, side),
        SortedNeighbors(EDGE, side),
        DegreeSizes(EDGE, side),
    ]
    with homogeneous() as graph, cut(graph, tmp_path, **how) as parts:
        for part in parts:
            part.within().prepare(needed)
            part.within().validate()


def test_attributes_splits_and_books_are_those_of_the_part(graph: Graph, tmp_path: Path) -> None:
    with cut(graph, tmp_path, method="hash") as (part, *_):
        alone = part.within()
        assert alone.part is not None
        assert alone.part.alone
        for name in graph.node_types:
            assert np.array_equal(alone.node_ids(name), part.node_ids(name))
            assert alone.node_book(name) == part.node_book(name)
            for label in graph.node_attributes(name):
                ids = part.node_ids(name)
                expected = graph.node_attribute(label, name)[ids]
                assert np.array_equal(alone.node_features(label, name).gather(ids), expected)
            for label in graph.splits(name):
                assert np.array_equal(alone.split(label, name), part.split(label, name))


def test_it_is_made_once_and_closed_with_the_part(tmp_path: Path) -> None:
    with homogeneous() as graph, cut(graph, tmp_path) as (part, *_):
        alone = part.within()
        assert part.within() is alone
        assert alone.within() is alone
        alone.close()
        part.node_attribute("x")  # the part is still there
        assert alone.version != part.version


def test_it_can_be_handed_to_other_processes(tmp_path: Path) -> None:
    with homogeneous() as graph, cut(graph, tmp_path) as (part, *_):
        alone = part.within()
        with Graph.attach(alone.handle(), list(map(os.dup, alone.descriptors))) as there:
            assert there.part == alone.part
            assert np.array_equal(there.edge_index(), alone.edge_index())
        with pickle.loads(pickle.dumps(alone)) as there:
            assert np.array_equal(there.edge_index(), alone.edge_index())


def test_a_whole_graph_is_not_within_a_part() -> None:
    with homogeneous() as graph, pytest.raises(ValueError, match="this is a whole graph"):
        graph.within()
