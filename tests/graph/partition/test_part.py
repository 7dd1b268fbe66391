"""An opened part of a graph: it has what is its own, and speaks the ids of the whole."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Graph
from penstock.graph.partition.book import ArrayBook, HashBook, RangeBook
from tests.graph.partition.graphs import (
    CITES,
    CUTS,
    METHODS,
    WRITES,
    cut,
    end_of,
    graphs,
    heterogeneous,
    homogeneous,
    owner_row,
    sides_of,
)


@pytest.fixture(params=[homogeneous, heterogeneous], ids=["homogeneous", "heterogeneous"])
def graph(request: Any) -> Iterator[Graph]:
    with request.param() as made:
        yield made


@pytest.mark.parametrize("how", CUTS)
def test_every_node_is_in_one_part_with_its_attributes(
    graph: Graph, tmp_path: Path, how: dict[str, Any]
) -> None:
    with cut(graph, tmp_path, **how) as parts:
        for name in graph.node_types:
            ids = np.concatenate([part.node_ids(name) for part in parts])
            assert sorted(ids.tolist()) == list(range(graph.num_nodes(name)))
            for part in parts:
                mine = part.node_ids(name)
                assert part.num_own_nodes(name) == len(mine)
                assert part.num_nodes(name) == graph.num_nodes(name)
                for label, column in graph.node_attributes(name).items():
                    assert part.node_attributes(name)[label].dtype == column.dtype
                    assert np.array_equal(part.node_attribute(label, name), column.array[mine])


@pytest.mark.parametrize("how", CUTS)
def test_rows_have_all_edges_of_their_nodes_in_the_order_of_the_whole(
    graph: Graph, tmp_path: Path, how: dict[str, Any]
) -> None:
    """CONTRACT 65: kernels draw by positions in rows."""
    with cut(graph, tmp_path, **how) as parts:
        for part in parts:
            for kind in graph.edge_types:
                for side in sides_of(part):
                    assert_rows(graph, part, kind, side)


def assert_rows(graph: Graph, part: Graph, kind: Any, side: Any) -> None:
    whole, rows = graph.topology(kind, side), part.rows(kind, side)
    assert rows.num_nodes == graph.num_nodes(end_of(kind, side))
    assert rows.entries.dtype == np.int32
    for node in part.node_ids(end_of(kind, side)).tolist():
        row = node if rows.members is None else int(rows.members.rows(np.array([node]))[0])
        here = slice(*rows.indptr[row : row + 2])
        there = slice(*whole.indptr[node : node + 2])
        assert rows.neighbors[here].tolist() == whole.indices[there].tolist()
        assert rows.edge_ids[here].tolist() == whole.edge_ids[there].tolist()


@pytest.mark.parametrize("how", CUTS)
def test_every_edge_belongs_to_the_part_of_its_end(
    graph: Graph, tmp_path: Path, how: dict[str, Any]
) -> None:
    with cut(graph, tmp_path, **how) as parts:
        for kind in graph.edge_types:
            side = "out" if how["edges"] == "source" else "in"
            ends = graph.edge_index(kind)
            owners = parts[0].node_book(end_of(kind, side)).partition_of(ends[owner_row(side)])
            for number, part in enumerate(parts):
                mine = np.flatnonzero(owners == number)
                assert part.num_own_edges(kind) == len(mine)
                assert part.num_edges(kind) == graph.num_edges(kind)
                assert np.array_equal(part.edge_index(kind), ends[:, mine])
                assert np.array_equal(part.coo(kind), ends[:, mine])


@pytest.mark.parametrize("how", CUTS)
def test_attributes_of_an_edge_are_in_its_part(
    graph: Graph, tmp_path: Path, how: dict[str, Any]
) -> None:
    """CONTRACT 38: also of an edge whose other end is elsewhere."""
    with cut(graph, tmp_path, **how) as parts:
        for kind in graph.edge_types:
            side = "out" if how["edges"] == "source" else "in"
            ends = graph.edge_index(kind)[owner_row(side)]
            owners = parts[0].node_book(end_of(kind, side)).partition_of(ends)
            for number, part in enumerate(parts):
                mine = np.flatnonzero(owners == number)
                assert list(part.edge_attributes(kind)) == list(graph.edge_attributes(kind))
                for label, column in graph.edge_attributes(kind).items():
                    assert part.edge_attributes(kind)[label].dtype == column.dtype
                    found = part.edge_features(label, kind).gather(mine[::-1])
                    assert np.array_equal(found, column.array[mine[::-1]])
                    assert np.array_equal(part.edge_attribute(label, kind), column.array[mine])


@pytest.mark.parametrize("how", CUTS)
def test_cut_edges_are_those_with_ends_in_two_parts(
    graph: Graph, tmp_path: Path, how: dict[str, Any]
) -> None:
    with cut(graph, tmp_path, **how) as parts:
        for place, kind in enumerate(graph.edge_types):
            sources, destinations = graph.edge_index(kind)
            one = parts[0].node_book(kind[0]).partition_of(sources)
            other = parts[0].node_book(kind[2]).partition_of(destinations)
            owners = one if how["edges"] == "source" else other
            for number, part in enumerate(parts):
                assert part.part is not None
                away = np.count_nonzero((one != other) & (owners == number))
                assert part.part.edges_cut[place] == away


def test_cutting_says_how_many_edges_it_cut(tmp_path: Path) -> None:
    ring = Graph.from_coo([[0, 1, 2, 3], [1, 2, 3, 0]], 4)
    parts = ring.partition(2, tmp_path / "parts")
    assert (parts.num_edges, parts.edges_cut) == ({("", "", ""): 4}, {("", "", ""): 2})
    assert [each.name for each in parts] == ["part-0", "part-1"]


@pytest.mark.parametrize("method", METHODS)
def test_splits_keep_their_order_and_know_their_positions(
    graph: Graph, tmp_path: Path, method: str
) -> None:
    with cut(graph, tmp_path, method=method) as parts:
        for name in graph.node_types:
            for label, split in graph.splits(name).items():
                again = np.full(split.shape, -1)
                for part in parts:
                    assert part.part is not None
                    positions = part.split_positions(label, name)
                    again[positions] = part.split(label, name)
                    assert sorted(positions.tolist()) == positions.tolist()
                    assert part.part.splits[name][label] == len(again)
                assert again.tolist() == split.array.tolist()


def test_positions_of_a_whole_split_are_all_of_them() -> None:
    with homogeneous() as graph:
        assert graph.split_positions("train").tolist() == list(range(20))


def test_every_part_has_what_belongs_to_the_whole(tmp_path: Path) -> None:
    with homogeneous() as graph, cut(graph, tmp_path) as parts:
        for part in parts:
            assert part.graph_attributes()["name"] == "small"
            assert part.graph_attributes()["weights"].tolist() == [0, 1, 2]
            assert part.arrays.keys() >= {k for k in graph.arrays if k.group == "graph"}


@pytest.mark.parametrize(
    ("method", "book"), [("range", RangeBook), ("hash", HashBook), ("given", ArrayBook)]
)
def test_every_part_has_the_book(graph: Graph, tmp_path: Path, method: str, book: type) -> None:
    with cut(graph, tmp_path, method=method) as parts:
        for name in graph.node_types:
            books = [part.node_book(name) for part in parts]
            assert all(isinstance(each, book) for each in books)
            assert all(each == books[0] for each in books)
            for number, part in enumerate(parts):
                assert books[0].ids_of(number).tolist() == part.node_ids(name).tolist()


def test_the_book_of_a_whole_graph_is_of_one_part(graph: Graph) -> None:
    for name in graph.node_types:
        assert graph.node_book(name) == RangeBook((0, graph.num_nodes(name)))
        assert graph.members(name) is None
    assert all(graph.edge_members(kind) is None for kind in graph.edge_types)


def test_rows_of_a_whole_graph_are_those_of_every_node(graph: Graph) -> None:
    for kind in graph.edge_types:
        rows = graph.rows(kind, "in")
        assert rows.members is None
        assert np.array_equal(rows.indptr, graph.csc(kind).indptr)


@pytest.mark.parametrize("method", METHODS)
def test_a_foreign_node_is_named_with_its_part(tmp_path: Path, method: str) -> None:
    """CONTRACT 38: never a wrong row."""
    with homogeneous() as graph, cut(graph, tmp_path, method=method) as parts:
        foreign = int(parts[2].node_ids()[0])
        ids = np.array([parts[0].node_ids()[0], foreign])
        words = rf"ids\[1\] is {foreign}, which is in part 2; this is part 0 of 3"
        with pytest.raises(ValueError, match=words):
            parts[0].node_features("x").gather(ids)
        with pytest.raises(ValueError, match=r"ids\[0\] is 60; expected 0 <= id < 60"):
            parts[0].node_features("x").gather(np.array([60]))


def test_a_foreign_edge_is_named(tmp_path: Path) -> None:
    """CONTRACT 38."""
    with homogeneous() as graph, cut(graph, tmp_path) as parts:
        (foreign, *_) = np.flatnonzero(graph.edge_index()[1] >= 20).tolist()
        words = rf"ids\[0\] is {foreign}, an edge that belongs to another part; this is part 0"
        with pytest.raises(ValueError, match=words):
            parts[0].edge_features("edge_weight").gather(np.array([foreign]))


@pytest.mark.parametrize(
    ("edges", "side", "there"), [("destination", "out", "in"), ("source", "in", "out")]
)
def test_the_side_that_a_part_was_not_cut_by_is_refused(
    tmp_path: Path, edges: str, side: Any, there: str
) -> None:
    with homogeneous() as graph, cut(graph, tmp_path, edges=edges) as (part, *_):
        words = rf"part 0 of 3, which was cut by {edges}: .* expected '{there}'"
        with pytest.raises(ValueError, match=words):
            part.rows(None, side)


def test_what_reads_rows_of_all_nodes_is_refused(tmp_path: Path) -> None:
    with homogeneous() as graph, cut(graph, tmp_path) as (part, *_):
        for ask in (part.csc, part.csr):
            with pytest.raises(ValueError, match="rows of its own nodes only"):
                ask()
        assert len(part.in_degrees()) == 20


def test_a_part_says_which_it_is_and_how_it_was_cut(tmp_path: Path) -> None:
    with homogeneous() as graph, cut(graph, tmp_path, method="hash", topology="whole") as parts:
        for number, opened in enumerate(parts):
            part = opened.part
            assert part is not None
            assert (part.number, part.of, str(part)) == (number, 3, f"part {number} of 3")
            assert (part.method, part.edges, part.topology) == ("hash", "destination", "whole")
            assert part.version == graph.version
            assert part.cut == parts[0].part.cut  # type: ignore[union-attr]
            assert repr(opened).startswith(f"Graph(<part {number} of 3>, num_nodes=60")


def test_parts_of_different_cuts_are_told_apart(tmp_path: Path) -> None:
    ways: list[dict[str, Any]] = [
        {},
        {"method": "hash"},
        {"method": "given"},
        {"method": np.arange(60) % 3},
        {"edges": "both"},
        {"topology": "whole"},
        {"parts": 4},
    ]
    cuts = []
    for way in ways:
        if isinstance(way.get("method"), np.ndarray):
            with homogeneous() as graph:
                (path, *_) = graph.partition(3, tmp_path / "parts", method=way["method"])
            with Graph.open(path) as part:
                cuts.append(part.part.cut)  # type: ignore[union-attr]
            continue
        with homogeneous() as graph, cut(graph, tmp_path, **way) as (part, *_):
            cuts.append(part.part.cut)  # type: ignore[union-attr]
    assert len(set(cuts)) == len(ways)


def test_parts_have_versions_of_their_own(tmp_path: Path) -> None:
    with homogeneous() as graph, cut(graph, tmp_path) as parts:
        assert len({graph.version, *(part.version for part in parts)}) == 4
    with homogeneous() as graph, cut(graph, tmp_path / "again") as again:
        assert [part.version for part in again] == [part.version for part in parts]


@pytest.mark.parametrize("how", CUTS)
def test_a_part_that_is_saved_and_handed_on_stays_a_part(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    with homogeneous() as graph, cut(graph, tmp_path, **how) as (part, *_):
        part.save(tmp_path / "copy")
        with Graph.open(tmp_path / "copy") as copy:
            assert (copy.part, copy.version) == (part.part, part.version)
            copy.validate()
        with Graph.attach(part.handle(), part.descriptors) as attached:
            assert attached.part == part.part
            assert np.array_equal(attached.node_ids(), part.node_ids())
        with pickle.loads(pickle.dumps(part)) as unpickled:
            assert unpickled.part == part.part


def test_a_part_is_not_cut_again(tmp_path: Path) -> None:
    with homogeneous() as graph, cut(graph, tmp_path) as (part, *_):
        with pytest.raises(ValueError, match="this is part 0 of 3: cut the whole graph"):
            part.partition(2, tmp_path / "again")


def test_more_parts_than_nodes_leave_some_empty(tmp_path: Path) -> None:
    with Graph.from_coo([[0], [1]], 2, x=[[1.0], [2.0]], edge_weight=[3.0], train=[1]) as graph:
        with cut(graph, tmp_path, 4) as parts:
            assert [part.num_own_nodes() for part in parts] == [1, 1, 0, 0]
            for part in parts:
                part.validate()
                assert part.within().num_own_edges() == 0


def test_nodes_of_other_parts_are_named_where_inputs_are_checked(tmp_path: Path) -> None:
    with homogeneous() as graph, cut(graph, tmp_path) as (part, *_):
        part.check_nodes(None, np.array([0, 19]))
        with pytest.raises(ValueError, match=r"seeds\[1\] is 20, which is in part 1"):
            part.check_nodes(None, np.array([0, 20]), "seeds")
        graph.check_nodes(None, np.array([0, 20]))


def test_types_without_attributes_of_edges_have_no_members(tmp_path: Path) -> None:
    with heterogeneous() as graph, cut(graph, tmp_path) as (part, *_):
        assert part.edge_members(WRITES) is None
        members = part.edge_members(CITES)
        assert members is not None
        assert (members.size, members.count) == (50, part.num_own_edges(CITES))


@given(graphs(), st.integers(1, 5), st.sampled_from(METHODS), st.data())
def test_rows_of_all_parts_are_the_rows_of_the_graph(
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[Any, int],
    parts: int,
    method: str,
    data: st.DataObject,
) -> None:
    edges = data.draw(st.sampled_from(("destination", "source", "both")))
    topology = data.draw(st.sampled_from(("parts", "whole")))
    ends, nodes = shape
    with Graph.from_coo(ends, nodes, edge_weight=np.arange(ends.shape[1])) as graph:
        folder = tmp_path_factory.mktemp("cut")
        with cut(graph, folder, parts, method=method, edges=edges, topology=topology) as found:
            for part in found:
                part.validate()
                for side in sides_of(part):
                    assert_rows(graph, part, ("", "", ""), side)
                mine = part.edge_members()
                assert mine is not None
                assert np.array_equal(part.edge_attribute("edge_weight"), mine.ids())
            assert sum(part.num_own_edges() for part in found) == ends.shape[1]
