"""Saved and opened again: the same graph. How the files look is tested with the format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.testing as npt
import pytest

from penstock.graph import Graph

pytestmark = pytest.mark.usefixtures("no_leaks")

EDGES = np.array([[0, 1, 2, 0, 3], [1, 2, 0, 2, 2]])
WRITES = ("author", "writes", "paper")


def test_a_saved_graph_opens_as_it_was(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((4, 3), np.float32)
    whole = {"title": "small", "prior": np.ones(2)}
    with Graph.from_coo(EDGES, x=x, train=[3, 1], graph_attrs=whole) as graph:
        graph.save(tmp_path / "graph")
    with Graph.open(tmp_path / "graph") as opened:
        opened.validate()
        npt.assert_array_equal(opened.edge_index(), EDGES)
        npt.assert_array_equal(opened.node_attribute("x"), x)
        npt.assert_array_equal(opened.split("train"), [3, 1])
        npt.assert_array_equal(opened.graph_attributes()["prior"], np.ones(2))
        assert opened.schema == graph.schema


def test_a_saved_heterogeneous_graph_opens_as_it_was(tmp_path: Path) -> None:
    edges = {WRITES: np.array([[0, 1], [3, 0]])}
    with Graph.from_coo(edges, edge_weight={WRITES: [0.5, 0.0]}) as graph:
        graph.save(tmp_path / "graph")
    with Graph.open(tmp_path / "graph") as opened:
        opened.validate()
        assert (opened.node_types, opened.edge_types) == (graph.node_types, graph.edge_types)
        npt.assert_array_equal(opened.edge_index(WRITES), edges[WRITES])
        npt.assert_array_equal(opened.edge_attribute("edge_weight", WRITES), [0.5, 0.0])


def test_a_saved_csr_need_not_be_made_again(tmp_path: Path) -> None:
    with Graph.from_coo(EDGES) as graph:
        graph.csr()
        graph.save(tmp_path / "graph")
    with Graph.open(tmp_path / "graph") as opened:
        assert opened.describe().edges[0].has_csr
        opened.validate()


def test_a_csr_of_an_opened_graph_is_made_in_memory(tmp_path: Path) -> None:
    with Graph.from_coo(EDGES) as graph:
        graph.save(tmp_path / "graph")
    with Graph.open(tmp_path / "graph") as opened:
        assert opened.csr().degrees.tolist() == [2, 1, 1, 1]
        assert opened.describe().backing == "mixed"


def test_saving_tells_its_progress_in_bytes_up_to_the_whole(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with Graph.from_coo(EDGES, x=np.ones((4, 2)), train=[1]) as graph:
        graph.save(tmp_path / "graph", progress=lambda *now: told.append(now))
        total = sum(array.nbytes for array in graph.arrays.values())
    assert told == sorted(told)
    assert len(told) >= len(graph.arrays)
    assert told[0][0] < told[-1][0]
    assert {whole for _, whole in told} == {total} == {told[-1][0]}


@pytest.mark.parametrize(
    "names",
    [
        ("a" * 300, "b" * 300),
        ("a" * 300, "a" * 299 + "b"),
        ("../up", "/etc/passwd"),
        ("a/b", "a-b"),
        ("Café 🎬", "論文\\"),
        ("paper", "Paper"),
    ],
)
def test_types_and_attributes_of_any_name_are_saved(names: tuple[str, str], tmp_path: Path) -> None:
    first, second = names
    to, back = (first, second, second), (second, first, first)
    edges = {to: [[0, 1], [3, 0]], back: [[2], [1]]}
    columns = {name: {first: [1, 2, 3, 4], second: [5, 6, 7, 8]} for name in names}
    with Graph.from_coo(edges, dict.fromkeys(names, 4), node_attrs=columns) as graph:
        graph.save(tmp_path / "graph")
    assert [entry.name for entry in tmp_path.iterdir()] == ["graph"]
    with Graph.open(tmp_path / "graph") as opened:
        opened.validate()
        assert (opened.node_types, opened.edge_types) == (names, (to, back))
        for edge_type, given in edges.items():
            assert opened.edge_index(edge_type).tolist() == given
        for name in names:
            assert opened.node_attribute(first, name).tolist() == [1, 2, 3, 4]
            assert opened.node_attribute(second, name).tolist() == [5, 6, 7, 8]


class TestVersion:
    def test_equal_content_has_one_version_wherever_it_lies(self, tmp_path: Path) -> None:
        with Graph.from_coo(EDGES, x=np.ones((4, 2))) as graph:
            before = graph.version
            graph.save(tmp_path / "graph")
            assert graph.version == before
        with Graph.open(tmp_path / "graph") as opened:
            assert opened.version == before
        with Graph.from_coo(EDGES.tolist(), x=np.ones((4, 2)), kind="named") as again:
            assert again.version == before

    def test_other_content_has_another_version(self) -> None:
        with Graph.from_coo(EDGES, x=np.ones((4, 2))) as graph:
            for edges, x in ((EDGES[::-1], np.ones((4, 2))), (EDGES, np.eye(4)[:, :2])):
                with Graph.from_coo(edges, x=x) as other:
                    assert other.version != graph.version

    def test_a_csr_changes_nothing(self) -> None:
        with Graph.from_coo(EDGES) as graph, Graph.from_coo(EDGES) as other:
            other.csr()
            assert graph.version == other.version

    def test_the_version_is_computed_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from penstock import kernels

        with Graph.from_coo(EDGES) as graph:
            version = graph.version

            def fail(_: object) -> bytes:
                raise AssertionError("summed again")

            monkeypatch.setattr(kernels, "digest", fail)
            assert graph.version == version
