"""Bad arguments: each complaint names the argument, the first offending position and its value."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.graph.check import PIECE

EDGES = np.array([[0, 1, 2, 0, 3], [1, 2, 0, 2, 2]])
CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")
PLAIN_WORDS = "without control characters and lone surrogates"


def refused(message: str, edge_index: Any = EDGES, num_nodes: Any = 4, **arguments: Any) -> None:
    """The arguments are refused with exactly this message."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Graph.from_coo(edge_index, num_nodes, **arguments)


def refused_for_types(message: str, edge_index: Any = None, **arguments: Any) -> None:
    """As `refused`, for a heterogeneous graph of three papers."""
    edges = {CITES: [[0, 1], [1, 2]]} if edge_index is None else edge_index
    refused(message, edges, **{"num_nodes": {"paper": 3}, **arguments})


def changed(at: int, value: Any, of: Any = EDGES[0]) -> Any:
    """A copy with one element changed."""
    array = np.array(of)
    array[at] = value
    return array


class TestEdgeIndex:
    def test_a_negative_source(self) -> None:
        edges = np.stack([changed(3, -3), EDGES[1]])
        refused("edge_index[0][3] is -3; expected 0 <= id < 4", edges)

    def test_a_destination_that_is_too_large(self) -> None:
        edges = np.stack([EDGES[0], changed(2, 4, EDGES[1])])
        refused("edge_index[1][2] is 4; expected 0 <= id < 4", edges)

    def test_the_first_of_several_bad_ids(self) -> None:
        edges = np.tile(EDGES, PIECE // 5 + 2)
        edges[0, PIECE + 1] = -7
        edges[0, PIECE + 2] = -8
        refused(f"edge_index[0][{PIECE + 1}] is -7; expected 0 <= id < 4", edges)

    def test_a_negative_id_where_the_number_of_nodes_is_not_given(self) -> None:
        edges = np.stack([changed(0, -1), EDGES[1]])
        refused("edge_index[0][0] is -1; expected 0 <= id < 4", edges, None)

    def test_an_id_beyond_any_memory(self) -> None:
        edges = np.stack([changed(4, 2**62), EDGES[1]])
        message = f"edge_index[0][4] is {2**62}; expected 0 <= id < {2**40}"
        refused(message, edges, None)

    def test_an_id_beyond_the_features(self) -> None:
        message = "edge_index[0][2] is 2; expected 0 <= id < 2"
        refused(message, num_nodes=None, x=np.zeros((2, 1)))

    def test_an_id_of_a_type(self) -> None:
        message = "edge_index[('author', 'writes', 'paper')][0][1] is 5; expected 0 <= id < 2"
        refused_for_types(message, {WRITES: [[0, 5], [0, 0]]}, num_nodes={"author": 2, "paper": 9})

    @pytest.mark.parametrize(
        ("edges", "shape"),
        [
            (np.zeros((3, 5), np.int64), "[3, 5]"),
            (np.zeros(4, np.int64), "[4]"),
            (np.zeros((2, 2, 2), np.int64), "[2, 2, 2]"),
            (np.zeros((5, 2), np.int64), "[5, 2]"),
            ([], "[0]"),
        ],
    )
    def test_a_wrong_shape(self, edges: Any, shape: str) -> None:
        refused(f"edge_index has shape {shape}; expected [2, number of edges]", edges)

    @pytest.mark.parametrize("dtype", ["float64", "int16", "bool", "uint8"])
    def test_a_wrong_dtype(self, dtype: str) -> None:
        edges = np.zeros((2, 3), dtype)
        refused(f"edge_index has dtype {dtype}; expected int32 or int64", edges)

    def test_an_unsupported_dtype(self) -> None:
        with pytest.raises(ValueError, match=r"^edge_index has an unsupported dtype uint32: use"):
            Graph.from_coo(np.zeros((2, 3), np.uint32))

    def test_rows_of_different_lengths(self) -> None:
        with pytest.raises(ValueError, match=r"^edge_index is no array \(list\): "):
            Graph.from_coo([[0, 1], [0]])

    def test_rows_that_come_apart_and_differ_in_length(self) -> None:
        refused(
            "edge_index[1] has 3 rows; expected 5, one per entry of edge_index[0]",
            (EDGES[0], EDGES[1][:3]),
        )

    def test_rows_that_come_apart_of_a_wrong_kind(self) -> None:
        refused(
            "edge_index[1] has dtype float64; expected int32 or int64",
            (EDGES[0], EDGES[1].astype(float)),
        )
        refused("edge_index[0] has shape [2, 5]; expected one dimension", (EDGES, EDGES[1]))

    def test_nothing_at_all(self) -> None:
        refused("edge_index is missing; a graph without edges has an empty one, [2, 0]", None)

    def test_a_sparse_vector(self) -> None:
        sparse = pytest.importorskip("scipy.sparse")
        with pytest.raises(ValueError, match=r"^edge_index is a coo_array of shape \[3\]"):
            Graph.from_coo(sparse.coo_array(np.ones(3)))


class TestNumNodes:
    @pytest.mark.parametrize("count", [-1, 2.5, "4", True, np.array([1, 2])])
    def test_no_number_of_nodes(self, count: Any) -> None:
        refused(f"num_nodes is {count!r}; expected a non-negative integer", num_nodes=count)

    def test_more_nodes_than_any_memory_holds(self) -> None:
        refused(f"num_nodes is {2**41}; expected at most {2**40}", num_nodes=2**41)

    def test_a_negative_number_of_nodes_of_a_type(self) -> None:
        message = "num_nodes['paper'] is -5; expected a non-negative integer"
        refused_for_types(message, num_nodes={"paper": -5})


class TestAttributes:
    def test_too_few_rows_for_the_nodes(self) -> None:
        refused("x has 3 rows; expected 4, one per node", x=np.zeros((3, 2)))

    def test_attributes_that_disagree(self) -> None:
        message = "y has 5 rows; expected 6, one per node"
        refused(message, num_nodes=None, x=np.zeros((6, 1)), y=np.zeros(5))

    def test_too_many_rows_for_the_edges(self) -> None:
        refused("edge_attr has 6 rows; expected 5, one per edge", edge_attr=np.zeros((6, 2)))

    def test_rows_of_a_type(self) -> None:
        message = "x['paper'] has 2 rows; expected 3, one per node"
        refused_for_types(message, x={"paper": np.zeros((2, 2))})
        message = "edge_attr[('paper', 'cites', 'paper')] has 3 rows; expected 2, one per edge"
        refused_for_types(message, edge_attr={CITES: np.zeros(3)})

    def test_rows_of_a_named_attribute(self) -> None:
        message = "node_attrs['age'] has 1 rows; expected 4, one per node"
        refused(message, node_attrs={"age": [1]})
        message = "edge_attrs[('paper', 'cites', 'paper')]['kind'] has 1 rows; expected 2, one"
        refused_for_types(f"{message} per edge", edge_attrs={CITES: {"kind": [1]}})

    def test_a_single_number(self) -> None:
        refused("x is a single number; expected one row per node", x=3.0)

    @pytest.mark.parametrize("dtype", ["complex64", "uint16", "<U3", "datetime64[s]"])
    def test_an_unsupported_dtype(self, dtype: str) -> None:
        with pytest.raises(ValueError, match=r"^x has an unsupported dtype .*: use one of float32"):
            Graph.from_coo(EDGES, x=np.zeros(4, dtype))

    def test_objects(self) -> None:
        refused("y is an array of objects (list); expected numbers", y=[1, None, 2, 3])

    def test_a_masked_array(self) -> None:
        refused("x is a masked array; fill its gaps first", x=np.ma.masked_equal([1, 2, 3, 4], 2))

    def test_a_name_that_is_taken(self) -> None:
        message = "node_attrs['x'] is given twice: x has that name too"
        refused(message, x=np.zeros(4), node_attrs={"x": np.zeros(4)})
        message = "node_attrs['time'] is given twice: node_time has that name too"
        refused(message, node_time=np.zeros(4), node_attrs={"time": np.zeros(4)})

    @pytest.mark.parametrize("name", ["", "a\nb", "a\ud800", 3, None])
    def test_no_name(self, name: Any) -> None:
        refused(
            f"node_attrs has the name {name!r}; expected a non-empty string {PLAIN_WORDS}",
            node_attrs={name: np.zeros(4)},
        )

    @pytest.mark.parametrize("argument", ["node_attrs", "edge_attrs", "graph_attrs"])
    def test_attributes_without_names(self, argument: str) -> None:
        refused(f"{argument} is list; expected a mapping by name", **{argument: [1, 2, 3, 4]})

    @pytest.mark.parametrize(
        ("value", "said"),
        [
            (object, "<class 'object'> (type)"),
            (float("nan"), "nan (float)"),
            (2**70, f"{2**70} (int)"),
            ({1: 2}, "{1: 2} (dict)"),
            ({1, 2}, "{1, 2} (set)"),
            ("\ud800", "'\\ud800' (str)"),
            ({"\ud800": 1}, "{'\\ud800': 1} (dict)"),
        ],
    )
    def test_a_value_that_json_cannot_tell(self, value: Any, said: str) -> None:
        advice = "make it an array, or a value that JSON can tell, or leave it out"
        message = f"graph_attrs['a'] is {said}, which a graph cannot keep; {advice}"
        refused(message, graph_attrs={"a": value})

    def test_a_value_deep_inside_that_json_cannot_tell(self) -> None:
        with pytest.raises(ValueError, match=r"^graph_attrs\['a'\]\[1\]\['b'\] is inf \(float\)"):
            Graph.from_coo(EDGES, graph_attrs={"a": [0, {"b": float("inf")}]})


class TestWeightsAndTimes:
    @pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.5])
    def test_a_weight_to_which_no_chance_belongs(self, dtype: str, value: float) -> None:
        weights = changed(2, value, np.ones(5, dtype))
        message = f"edge_weight[2] is {value}; expected a finite weight >= 0"
        refused(message, edge_weight=weights)

    def test_a_negative_whole_weight(self) -> None:
        weights = changed(4, -2, np.ones(5, np.int64))
        refused("edge_weight[4] is -2; expected a finite weight >= 0", edge_weight=weights)

    def test_a_weight_far_along(self) -> None:
        edges = np.zeros((2, PIECE + 9), np.int64)
        weights = changed(PIECE + 4, np.nan, np.ones(PIECE + 9))
        message = f"edge_weight[{PIECE + 4}] is nan; expected a finite weight >= 0"
        refused(message, edges, edge_weight=weights)

    def test_a_weight_of_a_type(self) -> None:
        label = "edge_weight[('paper', 'cites', 'paper')]"
        message = f"{label}[1] is -1.0; expected a finite weight >= 0"
        refused_for_types(message, edge_weight={CITES: [1.0, -1.0]})

    @pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
    def test_a_weight_that_comes_with_further_attributes(self, value: float) -> None:
        weights = changed(2, value, np.ones(5))
        message = f"edge_attrs['edge_weight'][2] is {value}; expected a finite weight >= 0"
        refused(message, edge_attrs={"edge_weight": weights})

    def test_a_time_that_comes_with_further_attributes(self) -> None:
        times = changed(1, np.nan, np.zeros(4))
        refused("node_attrs['time'][1] is nan; expected a time", node_attrs={"time": times})
        label = "edge_attrs[('paper', 'cites', 'paper')]['edge_time']"
        refused_for_types(
            f"{label}[0] is nan; expected a time", edge_attrs={CITES: {"edge_time": [np.nan, 1]}}
        )
        dates = changed(3, "NaT", np.zeros(5, "datetime64[s]"))
        message = "edge_attrs['edge_time'][3] is NaT; expected a time"
        refused(message, edge_attrs={"edge_time": dates})

    def test_weights_in_columns(self) -> None:
        message = "edge_weight has shape [5, 1]; expected one dimension"
        refused(message, edge_weight=np.ones((5, 1)))

    def test_weights_that_are_no_numbers(self) -> None:
        refused("edge_weight has dtype bool; expected numbers", edge_weight=[True] * 5)

    def test_a_time_that_is_none(self) -> None:
        times = changed(1, np.nan, np.zeros(4))
        refused("node_time[1] is nan; expected a time", node_time=times)
        times = changed(3, "NaT", np.zeros(5, "datetime64[s]"))
        refused("edge_time[3] is NaT; expected a time", edge_time=times)

    def test_a_date_too_far_away(self) -> None:
        times = changed(2, "2500-01-01", np.zeros(4, "datetime64[D]"))
        message = "node_time[2] is 2500-01-01; expected a time that nanoseconds can tell"
        refused(message, node_time=times)

    def test_times_in_columns(self) -> None:
        refused("node_time has shape [4, 2]; expected one dimension", node_time=np.zeros((4, 2)))
        refused(
            "node_time has shape [4, 2]; expected one dimension",
            node_time=np.zeros((4, 2), "datetime64[s]"),
        )

    def test_a_single_date(self) -> None:
        message = "node_time has shape []; expected one dimension"
        refused(message, node_time=np.datetime64("2020-01-01"))

    def test_a_date_missing_from_a_list(self) -> None:
        dates = [np.datetime64("2020-01-01"), np.datetime64("NaT")] * 2
        refused("node_time[1] is NaT; expected a time", node_time=dates)

    def test_times_that_are_no_numbers(self) -> None:
        message = "edge_time has dtype bool; expected numbers or datetime64"
        refused(message, edge_time=[True] * 5)

    def test_times_of_the_wrong_length(self) -> None:
        refused("node_time has 3 rows; expected 4, one per node", node_time=[1, 2, 3])


class TestSplits:
    @pytest.mark.parametrize("split", ["train", "val", "test"])
    def test_an_id_that_is_none(self, split: str) -> None:
        refused(f"{split}[1] is 4; expected 0 <= id < 4", **{split: [0, 4]})

    def test_a_mask_of_the_wrong_length(self) -> None:
        refused("val has 3 rows; expected 4, one per node", val=[True, False, True])

    def test_a_mask_that_is_none(self) -> None:
        message = "train has dtype uint8; expected int32 or int64 for ids, bool for a mask"
        refused(message, train=np.ones(4, np.uint8))

    def test_several_masks_at_once(self) -> None:
        refused("train has shape [4, 10]; expected one dimension", train=np.ones((4, 10), bool))

    def test_an_id_of_a_type(self) -> None:
        message = "train['paper'][0] is -1; expected 0 <= id < 3"
        refused_for_types(message, train={"paper": [-1]})


class TestTypes:
    def test_an_edge_type_given_twice(self) -> None:
        edges = [(CITES, EDGES), (WRITES, EDGES), (CITES, EDGES)]
        message = "edge_index has the type ('paper', 'cites', 'paper') twice"
        refused(message, edges, None)

    def test_a_node_type_given_twice(self) -> None:
        message = "x has the type 'paper' twice"
        refused_for_types(message, x=[("paper", np.zeros(3)), ("paper", np.zeros(3))])

    @pytest.mark.parametrize(
        "name",
        [
            "cites",
            ("a", "b"),
            ("a", "b", 3),
            ("a", "", "b"),
            ("a", "b\x00", "c"),
            ("a", "b\x7f", "c"),
            ("a", "b", "c\udfff"),
        ],
    )
    def test_no_edge_type(self, name: Any) -> None:
        message = f"edge_index has the edge type {name!r}; expected (source, relation, destination)"
        rest = f": three non-empty strings {PLAIN_WORDS}"
        refused(message + rest, {name: EDGES}, None)

    @pytest.mark.parametrize("name", ["", "a\tb", "\ud83d", 3, ("a", "b", "c")])
    def test_no_node_type(self, name: Any) -> None:
        message = f"x has the node type {name!r}; expected a non-empty string"
        refused_for_types(f"{message} {PLAIN_WORDS}", x={name: np.zeros(3)})

    def test_a_mistyped_type_of_nodes_whose_numbers_are_given(self) -> None:
        expected = "is given, but there is no node type 'papr'; there are: 'paper'"
        refused_for_types(f"x['papr'] {expected}", x={"papr": np.zeros((3, 2))})
        message = f"node_attrs['papr']['age'] {expected}"
        refused_for_types(message, node_attrs={"papr": {"age": np.zeros(3)}})

    def test_types_that_only_edges_name_are_among_those_there_are(self) -> None:
        message = "x['b'] is given, but there is no node type 'b'; there are: 'author', 'paper'"
        edges = {WRITES: [[0, 1], [0, 0]]}
        refused_for_types(message, edges, num_nodes={"author": 2}, x={"b": np.zeros(3)})

    @pytest.mark.parametrize("split", ["train", "val", "test"])
    def test_a_mistyped_type_of_a_split(self, split: str) -> None:
        message = f"{split}['Paper'] is given, but there is no node type 'Paper'"
        for nodes in ([], [0], [True, False]):
            refused_for_types(
                f"{message}; there are: 'paper'", num_nodes=None, **{split: {"Paper": nodes}}
            )

    def test_an_attribute_of_edges_there_are_not(self) -> None:
        message = (
            "edge_attr[('author', 'writes', 'paper')] is given, but edge_index has no such type"
        )
        refused_for_types(message, edge_attr={WRITES: [1.0]})

    def test_features_without_types_for_edges_with_types(self) -> None:
        expected = "expected a mapping by type, or pairs of type and value, because edge_index"
        refused_for_types(f"x is ndarray; {expected} is given by type", x=np.zeros((3, 2)))
        refused_for_types(f"num_nodes is int; {expected} is given by type", num_nodes=3)

    def test_features_with_types_for_edges_without(self) -> None:
        expected = "has types, but the graph is homogeneous: edge_index is one array"
        advice = "give edge_index by edge type too"
        refused(f"x {expected}; {advice}", x={"paper": np.zeros((4, 2))})
        refused(f"num_nodes {expected}; {advice}", num_nodes={"paper": 4})
        refused(f"node_attrs {expected}; {advice}", node_attrs={"paper": {"x": np.zeros(4)}})


@pytest.mark.usefixtures("no_leaks")
class TestMemory:
    def test_an_unknown_kind_of_memory(self) -> None:
        refused("kind is 'magic': use one of auto, memfd, named", kind="magic")

    def test_more_memory_than_the_machine_has(self) -> None:
        expected = r"^8796093\d{6} bytes of shared memory are needed, \d+ are available: is a num"
        with pytest.raises(MemoryError, match=expected):
            Graph.from_coo(EDGES, 2**40, kind="memfd")
        with Graph.from_coo({WRITES: EDGES}, {"author": 2**40, "paper": 4}, kind="memfd") as graph:
            with pytest.raises(MemoryError, match=expected):
                graph.csr(WRITES)
            graph.validate()

    def test_nothing_is_left_when_building_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The room runs out half-way: the fixture sees whether a file or descriptor stays."""
        from penstock import kernels

        def fail(*_: object) -> None:
            raise MemoryError("no room to sort")

        monkeypatch.setattr(kernels, "fill_adjacency", fail)
        for kind in ("memfd", "named"):
            with pytest.raises(MemoryError, match="no room to sort"):
                Graph.from_coo(EDGES, kind=kind)
