"""Graphs cut into parts."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import Graph
from penstock.errors import GraphFormatError
from penstock.graph.format import verify
from penstock.graph.partition.format import NOTE
from penstock.graph.partition.partition import Partition, is_partition
from penstock.graph.shared import SharedArray

ROOT = Path(__file__).parents[3]
WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")
CUTS = [
    pytest.param(method, side, id=f"{method}-{side}")
    for method in ("range", "hash")
    for side in ("destination", "source")
]


# Cuts a graph in place of the parts that are there, and is killed when the first one is written.
KILLED = """
import os, signal, sys
from tests.graph.partition.test_partition import heterogeneous

def die(done, total):
    os.kill(os.getpid(), signal.SIGKILL)

heterogeneous().partition(2, sys.argv[1], progress=die)
"""


def halves(numbers: Any) -> SharedArray:
    """As bfloat16, which NumPy does not know."""
    return SharedArray.from_array(numbers.astype(np.uint16), "bfloat16")


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
        edge_weight=rng.random(edges),
        edge_time=rng.integers(0, 99, edges),
        edge_attrs={"half": halves(rng.integers(0, 1 << 16, (edges, 3)))},
        graph_attrs={"name": "small", "weights": np.arange(3), "half": halves(np.arange(2))},
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
        # Names that numbers of types could be mistaken for.
        edge_attrs={WRITES: {"1_x": np.arange(90), "x": np.arange(90) * 2}},
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


@pytest.mark.parametrize(("method", "side"), CUTS)
def test_every_edge_has_its_attributes_in_the_part_that_the_book_says(
    graph: Graph, tmp_path: Path, method: str, side: str
) -> None:
    """CONTRACT 38: also an edge whose other end is elsewhere."""
    for part in opened(graph, tmp_path, method=method, edges=side):
        for kind in graph.edge_types:
            ids, rows = part.edge_books[kind].ids_of(part.number), part.rows(kind)
            assert sorted(rows.edges.tolist()) == ids.tolist()
            found = part.edge_attributes(kind)
            assert list(found) == list(graph.edge_attributes(kind))
            for label, column in graph.edge_attributes(kind).items():
                assert found[label].dtype == column.dtype
                kept = found[label].array
                assert np.array_equal(kept, column.array[rows.edges])
                assert np.array_equal(kept[rows.places(ids)], column.array[ids])


@pytest.mark.parametrize(("method", "side"), CUTS)
def test_edges_of_a_part_are_told_in_pieces_in_the_order_of_ids(
    graph: Graph, tmp_path: Path, method: str, side: str
) -> None:
    """CONTRACT 38."""
    for part in opened(graph, tmp_path, method=method, edges=side):
        for kind in graph.edge_types:
            ids = part.edge_books[kind].ids_of(part.number)
            whole = graph.edge_index(kind)[:, ids]
            assert part.num_edges(kind) == len(ids)
            assert np.array_equal(part.edge_index(kind), whole)
            assert np.array_equal(part.edge_index(kind, 3, 8), whole[:, 3:8])
            assert part.edge_index(kind, len(ids) + 1).shape == (2, 0)


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
            assert part.graph.graph_attributes()["half"].tolist() == [0, 1]


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


def test_a_cutter_that_is_killed_leaves_the_parts_that_were_there(tmp_path: Path) -> None:
    with homogeneous() as graph:
        opened(graph, tmp_path, 3)
        command = [sys.executable, "-c", KILLED, str(tmp_path / "parts")]
        assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
        for place in range(3):
            for half in ("graph", "cut"):
                verify(tmp_path / "parts" / f"part-{place}" / half)
        assert [each.num_partitions for each in opened(graph, tmp_path, 2)] == [2, 2]


def test_damage_to_the_attributes_of_cut_edges_is_found(tmp_path: Path) -> None:
    with homogeneous() as graph:
        (path,) = graph.partition(1, tmp_path / "parts")
    (file, *_) = (path / "cut").glob("data-*/*row_attribute*")
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
    with pytest.raises(GraphFormatError, match=r"damaged: .*row_attribute_0_"):
        verify(path / "cut")


@pytest.mark.parametrize(
    ("note", "words"),
    [
        ({"format": 1}, "format 1, and this version reads format 2: cut the graph again"),
        (7, "not a part"),
    ],
    ids=["older", "other"],
)
def test_a_part_of_another_format_is_refused(tmp_path: Path, note: Any, words: str) -> None:
    with homogeneous() as graph:
        (path,) = graph.partition(1, tmp_path / "parts")
    with Graph.from_coo({}, {}, graph_attrs={NOTE: note}) as cut:
        cut.save(path / "cut")
    with pytest.raises(GraphFormatError, match=words):
        Partition.open(path)


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


def test_a_part_whose_folders_are_of_different_parts_is_not_sound(tmp_path: Path) -> None:
    with Graph.from_coo([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]], 5) as ring:
        first, second = ring.partition(2, tmp_path / "parts")
    with Partition.open(first) as part:
        part.validate()
    shutil.rmtree(first / "graph")
    shutil.copytree(second / "graph", first / "graph")
    with Partition.open(first) as part:
        with pytest.raises(GraphFormatError, match="gives this part 3 nodes of '', and its graph"):
            part.validate()
