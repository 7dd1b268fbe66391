"""Graphs cut into parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import Graph
from penstock.errors import GraphFormatError
from penstock.graph.partition import Partition, is_partition

WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")
CUTS = [
    pytest.param(method, side, id=f"{method}-{side}")
    for method in ("range", "hash")
    for side in ("destination", "source")
]


def homogeneous() -> Graph:
    rng = np.random.default_rng(0)
    nodes, edges = 60, 400
    return Graph.from_coo(
        rng.integers(0, nodes, (2, edges)),
        nodes,
        x=rng.random((nodes, 3), dtype=np.float32),
        y=rng.integers(0, 5, nodes),
        train=rng.permutation(nodes)[:20],
        edge_attr=rng.random((edges, 2)),
        graph_attrs={"name": "small", "weights": np.arange(3)},
    )


def heterogeneous() -> Graph:
    rng = np.random.default_rng(1)
    return Graph.from_coo(
        {
            WRITES: np.stack((rng.integers(0, 30, 90), rng.integers(0, 20, 90))),
            CITES: rng.integers(0, 20, (2, 50)),
        },
        {"author": 30, "paper": 20},
        x={"paper": rng.random((20, 4))},
        edge_weight={CITES: rng.random(50)},
        val={"author": np.array([29, 3, 7])},
    )


@pytest.fixture(params=[homogeneous, heterogeneous], ids=["homogeneous", "heterogeneous"])
def graph(request: Any) -> Any:
    with request.param() as made:
        yield made


def opened(graph: Graph, path: Path, parts: int = 3, **options: Any) -> list[Partition]:
    return [Partition.open(each) for each in graph.partition(parts, path / "parts", **options)]


@pytest.mark.parametrize(("method", "side"), CUTS)
def test_every_node_is_in_one_part_with_its_attributes(
    graph: Graph, tmp_path: Path, method: str, side: str
) -> None:
    parts = opened(graph, tmp_path, method=method, edges=side)
    for name in graph.node_types:
        ids = np.concatenate([part.node_ids[name] for part in parts])
        assert sorted(ids.tolist()) == list(range(graph.num_nodes(name)))
        for label, column in graph.node_attributes(name).items():
            rows = np.concatenate([part.graph.node_attribute(label, name) for part in parts])
            assert np.array_equal(rows, column.array[ids])


@pytest.mark.parametrize(("method", "side"), CUTS)
def test_every_edge_is_with_the_end_that_was_asked_for(
    graph: Graph, tmp_path: Path, method: str, side: str
) -> None:
    parts = opened(graph, tmp_path, method=method, edges=side)
    for kind in graph.edge_types:
        end = graph.edge_index(kind)[1 if side == "destination" else 0]
        name = kind[2 if side == "destination" else 0]
        book, owners = parts[0].edge_books[kind], parts[0].node_books[name]
        assert np.array_equal(book.partition_of(np.arange(len(end))), owners.partition_of(end))


@pytest.mark.parametrize(("method", "side"), CUTS)
def test_rows_have_all_edges_of_their_nodes_in_the_order_of_the_whole(
    graph: Graph, tmp_path: Path, method: str, side: str
) -> None:
    for part in opened(graph, tmp_path, method=method, edges=side):
        for kind in graph.edge_types:
            whole = graph.csc(kind) if side == "destination" else graph.csr(kind)
            rows = part.rows(kind)
            ids = part.node_ids[kind[2 if side == "destination" else 0]]
            for place, node in enumerate(ids):
                here = slice(rows.indptr[place], rows.indptr[place + 1])
                there = slice(whole.indptr[node], whole.indptr[node + 1])
                assert rows.neighbors[here].tolist() == whole.indices[there].tolist()
                assert rows.edges[here].tolist() == whole.edge_ids[there].tolist()


@pytest.mark.parametrize(("method", "side"), CUTS)
def test_what_lies_within_a_part_are_the_edges_both_ends_of_which_do(
    graph: Graph, tmp_path: Path, method: str, side: str
) -> None:
    for part in opened(graph, tmp_path, method=method, edges=side):
        part.graph.validate()
        for kind in graph.edge_types:
            edges, ids = graph.edge_index(kind), part.edge_ids[kind]
            ends = part.node_ids[kind[0]], part.node_ids[kind[2]]
            both = np.isin(edges[0], ends[0]) & np.isin(edges[1], ends[1])
            assert ids.tolist() == np.flatnonzero(both).tolist()
            found = part.graph.edge_index(kind)
            assert np.array_equal([ends[0][found[0]], ends[1][found[1]]], edges[:, ids])
            for label, column in graph.edge_attributes(kind).items():
                assert np.array_equal(part.graph.edge_attribute(label, kind), column.array[ids])


@pytest.mark.parametrize("method", ["range", "hash"])
def test_splits_keep_their_order_in_every_part(graph: Graph, tmp_path: Path, method: str) -> None:
    for part in opened(graph, tmp_path, method=method):
        for name in graph.node_types:
            for label, split in graph.splits(name).items():
                ids = part.node_ids[name]
                expected = [node for node in split.array.tolist() if node in set(ids.tolist())]
                assert ids[part.graph.split(label, name)].tolist() == expected


def test_every_part_has_what_belongs_to_the_whole(tmp_path: Path) -> None:
    with homogeneous() as graph:
        for part in opened(graph, tmp_path):
            assert part.graph.graph_attributes()["name"] == "small"
            assert part.graph.graph_attributes()["weights"].tolist() == [0, 1, 2]


def test_a_graph_in_one_part_is_the_graph(graph: Graph, tmp_path: Path) -> None:
    (part,) = opened(graph, tmp_path, 1)
    assert part.graph.version == graph.version


def test_a_part_knows_its_number_and_how_it_was_cut(tmp_path: Path) -> None:
    with homogeneous() as graph:
        parts = opened(graph, tmp_path, method="hash")
    assert [(part.number, part.num_partitions, part.method) for part in parts] == [
        (0, 3, "hash"),
        (1, 3, "hash"),
        (2, 3, "hash"),
    ]


def test_more_parts_than_nodes_leave_some_empty(tmp_path: Path) -> None:
    with Graph.from_coo([[0], [1]], 2) as graph:
        parts = opened(graph, tmp_path, 4)
    assert [part.graph.num_nodes() for part in parts] == [1, 1, 0, 0]


def test_parts_take_the_place_of_those_before(tmp_path: Path) -> None:
    with homogeneous() as graph:
        opened(graph, tmp_path, 3)
        opened(graph, tmp_path, 2)
    assert sorted(each.name for each in (tmp_path / "parts").iterdir()) == ["part-0", "part-1"]
    assert [each.name for each in tmp_path.iterdir()] == ["parts"]


def test_a_folder_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with homogeneous() as graph, pytest.raises(GraphFormatError, match="no folder of parts"):
        graph.partition(2, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_parts_that_cannot_be_written_leave_nothing_behind(tmp_path: Path) -> None:
    def stop(done: int, _: int) -> None:
        raise KeyboardInterrupt

    with homogeneous() as graph, pytest.raises(KeyboardInterrupt):
        graph.partition(2, tmp_path / "parts", progress=stop)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 0}, "n is 0; expected 1 to"),
        ({"n": 2, "method": "metis"}, "method is 'metis'; expected one of range, hash"),
        ({"n": 2, "edges": "both"}, "edges is 'both'; expected one of destination, source"),
    ],
    ids=["n", "method", "edges"],
)
def test_bad_arguments_are_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with homogeneous() as graph, pytest.raises(ValueError, match=words):
        graph.partition(path=tmp_path / "parts", **options)


def test_a_saved_graph_is_no_part(tmp_path: Path) -> None:
    with homogeneous() as graph:
        graph.save(tmp_path / "whole")
    assert not is_partition(tmp_path / "whole")
