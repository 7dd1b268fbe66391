"""Graphs from edge lists: what each argument becomes, and what a graph answers."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.testing as npt
import pytest

from penstock.graph import Graph, SharedArray
from penstock.graph.handles import MemfdHandle, NamedHandle
from penstock.graph.topology import specs
from tests.graph.shared_children import kinds

pytestmark = pytest.mark.usefixtures("no_leaks")

EDGES = np.array([[0, 1, 2, 0, 3], [1, 2, 0, 2, 2]])
WRITES = ("author", "writes", "paper")
CITES = ("paper", "cites", "paper")


def academic(**arguments: Any) -> Graph:
    edges = {WRITES: [[0, 1, 1], [0, 0, 2]], CITES: [[2], [0]]}
    return Graph.from_coo(edges, **{"num_nodes": {"author": 2, "paper": 3}, **arguments})


class TestSizes:
    def test_features_tell_the_number_of_nodes(self) -> None:
        with Graph.from_coo(EDGES, x=np.zeros((9, 2))) as graph:
            assert graph.num_nodes() == 9

    def test_any_node_attribute_tells_the_number_of_nodes(self) -> None:
        with Graph.from_coo(EDGES, node_attrs={"age": np.zeros(7)}) as graph:
            assert graph.num_nodes() == 7

    def test_a_mask_tells_the_number_of_nodes(self) -> None:
        with Graph.from_coo(EDGES, test=[True] * 6) as graph:
            assert graph.num_nodes() == 6

    def test_the_largest_id_tells_the_number_of_nodes_where_nothing_else_does(self) -> None:
        with Graph.from_coo(EDGES) as graph:
            assert graph.num_nodes() == 4

    def test_ids_of_all_edge_types_tell_the_number_of_nodes(self) -> None:
        with academic(num_nodes=None) as graph:
            assert (graph.num_nodes("author"), graph.num_nodes("paper")) == (2, 3)

    def test_there_may_be_nodes_without_edges(self) -> None:
        with Graph.from_coo([[], []], 3) as graph:
            assert (graph.num_nodes(), graph.num_edges()) == (3, 0)
            npt.assert_array_equal(graph.in_degrees(), [0, 0, 0])

    def test_there_may_be_nothing_at_all(self) -> None:
        with Graph.from_coo(np.empty((2, 0), np.int64)) as graph:
            assert (graph.num_nodes(), graph.num_edges()) == (0, 0)
            graph.validate()

    def test_a_heterogeneous_graph_may_have_no_edge_types(self) -> None:
        with Graph.from_coo({}, {"a": 2}) as graph:
            assert (graph.num_nodes(), graph.num_edges(), graph.edge_types) == (2, 0, ())

    def test_a_heterogeneous_graph_counts_all_types_together_unless_told_one(self) -> None:
        with academic() as graph:
            assert (graph.num_nodes(), graph.num_edges()) == (5, 4)
            assert (graph.num_nodes("paper"), graph.num_edges(WRITES)) == (3, 3)


class TestTypes:
    def test_a_homogeneous_graph_has_one_nameless_type_of_each_kind(self) -> None:
        with Graph.from_coo(EDGES) as graph:
            assert not graph.is_hetero
            assert (graph.node_types, graph.edge_types) == (("",), (("", "", ""),))

    def test_types_stand_in_the_order_of_first_mention(self) -> None:
        with academic(num_nodes=None, x={"paper": np.zeros((3, 1))}) as graph:
            assert graph.is_hetero
            assert graph.node_types == ("paper", "author")
            assert graph.edge_types == (WRITES, CITES)

    def test_a_node_type_may_have_no_edges(self) -> None:
        with academic(num_nodes=None, x={"venue": np.zeros((4, 1))}) as graph:
            assert graph.node_types == ("venue", "author", "paper")
            assert graph.num_nodes("venue") == 4

    def test_a_type_whose_number_is_not_given_may_be_named_by_edges(self) -> None:
        with academic(num_nodes={"paper": 3}, x={"author": np.zeros((6, 1))}) as graph:
            assert graph.node_types == ("paper", "author")
            assert graph.num_nodes("author") == 6

    def test_types_may_come_as_pairs(self) -> None:
        with Graph.from_coo([(CITES, EDGES)], [("paper", 5)], x=[("paper", [1.0] * 5)]) as graph:
            npt.assert_array_equal(graph.edge_index(CITES), EDGES)
            npt.assert_array_equal(graph.node_attribute("x", "paper"), [1.0] * 5)

    def test_a_type_must_be_named_in_a_heterogeneous_graph(self) -> None:
        with academic() as graph:
            with pytest.raises(ValueError, match=r"^edge_type is missing; this graph has \('aut"):
                graph.csc()
            with pytest.raises(ValueError, match=r"^node_type is missing; this graph has 'author'"):
                graph.split("train")

    def test_an_unknown_type_is_named_with_those_there_are(self) -> None:
        with academic() as graph:
            expected = (
                r"^node_type is 'papr'; this graph has 'author', 'paper'; did you mean 'paper'\?$"
            )
            with pytest.raises(ValueError, match=expected):
                graph.num_nodes("papr")
            with pytest.raises(ValueError, match=r"^edge_type is \['a'\]; this graph has "):
                graph.csr(["a"])  # type: ignore[arg-type]

    def test_a_homogeneous_graph_has_no_type_of_any_name(self) -> None:
        with Graph.from_coo(EDGES) as graph:
            with pytest.raises(
                ValueError, match=r"^node_type is 'paper'; this graph has no types$"
            ):
                graph.node_attributes("paper")


class TestTopology:
    def test_edges_in_no_order_are_paired_with_their_ids(self) -> None:
        with Graph.from_coo(EDGES) as graph:
            csc = graph.csc()
            assert csc.paired
            assert csc.adjacency.tolist() == [[2, 2], [0, 0], [1, 1], [0, 3], [3, 4]]
            assert csc.indptr.tolist() == [0, 1, 2, 5, 5]

    def test_edges_sorted_by_destination_need_no_ids(self) -> None:
        with Graph.from_coo([[3, 0, 1], [0, 2, 2]]) as graph:
            csc = graph.csc()
            assert not csc.paired
            assert csc.adjacency.tolist() == [3, 0, 1]
            assert csc.edge_ids.tolist() == [0, 1, 2]

    def test_indices_and_edge_ids_are_views(self) -> None:
        with Graph.from_coo(EDGES) as graph:
            csc = graph.csc()
            assert np.shares_memory(csc.indices, csc.adjacency)
            assert np.shares_memory(csc.edge_ids, csc.adjacency)

    @pytest.mark.parametrize(
        ("neighbors", "edges", "paired", "dtype"),
        [
            (2**31 - 1, 2**31 - 1, True, "int32"),
            (2**31, 5, True, "int64"),
            (5, 2**31, True, "int64"),
            (5, 2**31, False, "int32"),
            (2**31, 5, False, "int64"),
        ],
    )
    def test_ids_are_32_bits_wide_where_they_fit(
        self, neighbors: int, edges: int, paired: bool, dtype: str
    ) -> None:
        _, (found, _) = specs(3, neighbors, edges, paired=paired)
        assert found == dtype

    def test_ids_of_64_bits_are_used_where_there_are_so_many_nodes(self) -> None:
        edges = {("many", "to", "few"): [[2**31, 5, 7], [1, 0, 1]]}
        with Graph.from_coo(edges, {"many": 2**31 + 1, "few": 2}) as graph:
            csc = graph.csc(("many", "to", "few"))
            assert csc.adjacency.dtype == np.int64
            assert csc.indices.tolist() == [5, 2**31, 7]
            npt.assert_array_equal(graph.edge_index(("many", "to", "few"))[0], [2**31, 5, 7])

    def test_arrays_cannot_be_written_to(self) -> None:
        with Graph.from_coo(EDGES, x=np.zeros((4, 2))) as graph:
            for array in (graph.csc().adjacency, graph.csr().indptr, graph.node_attribute("x")):
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = 1

    def test_the_csr_is_made_once_whoever_asks(self) -> None:
        with Graph.from_coo(EDGES) as graph:
            found: list[int] = []
            start = threading.Barrier(8)

            def ask() -> None:
                start.wait()
                found.append(graph.csr().adjacency.ctypes.data)

            threads = [threading.Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(found) == 8
            assert len(set(found)) == 1

    def test_sources_and_destinations_may_come_apart_and_differ_in_type(self) -> None:
        with Graph.from_coo((EDGES[0].astype(np.int32), EDGES[1])) as graph:
            npt.assert_array_equal(graph.edge_index(), EDGES)

    def test_edges_may_lie_at_odd_addresses_in_foreign_byte_order(self) -> None:
        odd = np.frombuffer(b"!" + EDGES.astype(">i8").tobytes(), ">i8", offset=1).reshape(2, -1)
        with Graph.from_coo(odd) as graph:
            npt.assert_array_equal(graph.edge_index(), EDGES)
            graph.validate()


class TestAttributes:
    def test_attributes_have_the_names_pyg_gives_them(self) -> None:
        with Graph.from_coo(
            EDGES,
            x=np.zeros((4, 2)),
            y=[0, 1, 0, 1],
            node_time=[1, 2, 3, 4],
            edge_attr=np.zeros((5, 3)),
            edge_weight=np.ones(5),
            edge_time=np.arange(5),
            node_attrs={"age": [1, 2, 3, 4]},
            edge_attrs={"kind": np.zeros(5, np.int8)},
        ) as graph:
            assert list(graph.node_attributes()) == ["x", "y", "time", "age"]
            of_edges = ["edge_attr", "edge_weight", "edge_time", "kind"]
            assert list(graph.edge_attributes()) == of_edges
            npt.assert_array_equal(graph.node_attribute("time"), [1, 2, 3, 4])
            npt.assert_array_equal(graph.edge_attribute("edge_time"), np.arange(5))

    def test_attributes_of_types_are_kept_apart(self) -> None:
        with academic(
            x={"paper": np.ones((3, 2)), "author": np.zeros((2, 5))},
            node_attrs={"paper": {"year": [1, 2, 3]}},
            edge_attrs={WRITES: {"order": [0, 0, 1]}},
            edge_weight={CITES: [2.0]},
        ) as graph:
            assert graph.node_attribute("x", "author").shape == (2, 5)
            assert list(graph.node_attributes("paper")) == ["x", "year"]
            assert graph.edge_attribute("order", WRITES).tolist() == [0, 0, 1]
            assert list(graph.edge_attributes(CITES)) == ["edge_weight"]

    def test_an_attribute_that_is_missing_is_named_with_those_there_are(self) -> None:
        with academic(x={"paper": np.ones((3, 2))}) as graph:
            expected = "^there is no node attribute of 'paper' called 'y'; there are: 'x'$"
            with pytest.raises(ValueError, match=expected):
                graph.node_attribute("y", "paper")
            with pytest.raises(ValueError, match=r"^there is no split of 'author' called 'train'"):
                graph.split("train", "author")

    def test_dates_become_nanoseconds(self) -> None:
        dates = np.array(["1970-01-02", "2024-02-29", "1969-12-31", "1970-01-01"], "datetime64[D]")
        with Graph.from_coo(EDGES, node_time=dates) as graph:
            found = graph.node_attribute("time")
            npt.assert_array_equal(found.view("datetime64[ns]"), dates)

    def test_dates_may_come_in_whatever_numpy_makes_an_array_of(self) -> None:
        class Column:
            """A table's column, say, of a library that is not known here."""

            def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
                return np.array(dates, dtype)

        dates = [np.datetime64("2020-01-01"), np.datetime64("1999-12-31T23:59:59.5")] * 2
        for given in (dates, tuple(dates), Column()):
            with Graph.from_coo(EDGES[:, :4], node_time=given, edge_time=given) as graph:
                for found in (graph.node_attribute("time"), graph.edge_attribute("edge_time")):
                    assert (
                        found.view("datetime64[ns]").tolist()
                        == np.array(dates, "datetime64[ns]").tolist()
                    )

    def test_dates_may_come_with_further_attributes(self) -> None:
        dates = np.array(["1970-01-02"] * 4, "datetime64[D]")
        with Graph.from_coo(EDGES, node_attrs={"time": dates}) as graph:
            assert graph.node_attribute("time").tolist() == [86_400 * 10**9] * 4

    def test_bfloat16_is_kept_as_16_bits_and_known_by_name(self) -> None:
        bits = np.array([[0x3F80], [0x4000], [0x7FC0], [0]], np.uint16)
        with SharedArray.from_array(bits, "bfloat16") as given:
            with Graph.from_coo(EDGES, x=given) as graph:
                assert graph.node_attributes()["x"].dtype == "bfloat16"
                npt.assert_array_equal(graph.node_attribute("x"), bits)

    def test_splits_keep_the_order_of_ids(self) -> None:
        with Graph.from_coo(EDGES, train=[3, 0], val=np.array([1], np.int32), test=[]) as graph:
            assert graph.split("train").tolist() == [3, 0]
            assert list(graph.splits()) == ["train", "val", "test"]
            assert all(split.dtype == "int64" for split in graph.splits().values())

    def test_a_split_of_a_type_is_asked_for_by_it(self) -> None:
        with academic(train={"paper": [2, 1]}) as graph:
            assert graph.split("train", "paper").tolist() == [2, 1]
            assert graph.splits("author") == {}

    def test_what_belongs_to_the_whole_is_an_array_or_a_json_value(self) -> None:
        whole = {"classes": ["a", "b"], "scale": 2.5, "origin": None, "pair": (1, 2)}
        with Graph.from_coo(EDGES, graph_attrs={**whole, "prior": np.ones(3)}) as graph:
            found = graph.graph_attributes()
            npt.assert_array_equal(found.pop("prior"), np.ones(3))
            assert found == {**whole, "pair": [1, 2]}
            assert graph.schema.attributes == found


class TestLifetime:
    @kinds
    def test_a_graph_lies_in_one_segment_of_the_kind_asked_for(self, kind: str) -> None:
        with Graph.from_coo(EDGES, x=np.zeros((4, 2)), train=[1], kind=kind) as graph:
            segments = {id(array.segment) for array in graph.arrays.values()}
            assert len(segments) == 1
            handle = graph.arrays[next(iter(graph.arrays))].segment.handle
            assert isinstance(handle, MemfdHandle if kind == "memfd" else NamedHandle)

    @kinds
    def test_the_csr_lies_in_memory_of_the_same_kind(self, kind: str) -> None:
        with Graph.from_coo(EDGES, kind=kind) as graph:
            graph.csr()
            assert len({type(array.segment.handle) for array in graph.arrays.values()}) == 1

    def test_views_outlive_the_graph_and_new_ones_are_refused(self) -> None:
        with Graph.from_coo(EDGES) as graph:
            csc = graph.csc()
        assert csc.indices.tolist() == [2, 0, 1, 0, 3]
        with pytest.raises(ValueError, match="has been closed"):
            graph.csc()

    def test_the_arrays_cannot_be_replaced(self) -> None:
        with Graph.from_coo(EDGES) as graph:
            with pytest.raises(TypeError):
                graph.arrays[next(iter(graph.arrays))] = None  # type: ignore[index]

    def test_the_graph_shows_what_it_holds(self) -> None:
        with Graph.from_coo(EDGES, x=np.zeros((4, 2), np.float32), train=[0, 1]) as graph:
            assert repr(graph) == "Graph(num_nodes=4, num_edges=5, x=float32[4, 2], train=2)"

    def test_a_heterogeneous_graph_shows_its_types(self) -> None:
        with academic(y={"paper": [1, 2, 3]}) as graph:
            assert repr(graph).splitlines() == [
                "Graph(",
                "  'author': 2 nodes",
                "  'paper': 3 nodes, y=int64[3]",
                "  ('author', 'writes', 'paper'): 3 edges",
                "  ('paper', 'cites', 'paper'): 1 edges",
                ")",
            ]
