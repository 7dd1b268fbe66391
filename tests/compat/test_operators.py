"""What PyG asks of `torch.ops.pyg`, called by itself."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from penstock.compat import operators, sampler
from penstock.compat.operators import hetero_neighbor_sample, neighbor_sample
from penstock.compat.topology import TensorEdges, TensorTopology
from penstock.errors import GraphFormatError
from penstock.kernels import reference

torch = pytest.importorskip("torch")

# In-edges: 0 has 1, 2, 3; 1 has 2; 2 has 0 twice; 3 has none.
ROWPTR = torch.tensor([0, 3, 4, 6, 6])
COL = torch.tensor([1, 2, 3, 2, 0, 0])
SEED = torch.tensor([0])
TO = ("a", "to", "b")
BACK = ("b", "back", "a")
TORCH_DOMAIN = 0x746F726368000001


def lists(tensors: Any) -> Any:
    return [None if part is None else part.tolist() for part in tensors]


def sampled(*args: Any, **options: Any) -> Any:
    """Rows, columns, nodes, edge ids; then the counts."""
    found = neighbor_sample(ROWPTR, COL, *args, **{"csc": True, **options})
    return lists(found[:4]), found[4:]


def test_all_neighbours_stand_in_storage_order() -> None:
    found, counts = sampled(SEED, [-1, -1])
    assert found == [[1, 2, 3, 2, 0, 0], [0, 0, 0, 1, 2, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]
    assert counts == ([1, 3, 0], [3, 3])


def test_of_a_csr_the_nodes_expanded_are_the_rows() -> None:
    (rows, cols, nodes, _), _ = sampled(SEED, [-1], csc=False)
    assert (rows, cols, nodes) == ([0, 0, 0], [1, 2, 3], [0, 1, 2, 3])


def test_a_seed_given_twice_keeps_a_row_and_edges_are_those_of_the_first() -> None:
    (rows, cols, nodes, _), counts = sampled(torch.tensor([2, 1, 2]), [-1])
    assert nodes == [2, 1, 2, 0]
    assert (rows, cols) == ([3, 3, 0], [0, 0, 1])
    assert counts == ([3, 1], [3])


def test_without_edge_ids_there_are_none() -> None:
    assert neighbor_sample(ROWPTR, COL, SEED, [2], return_edge_id=False)[3] is None


def test_disjoint_nodes_come_with_their_trees() -> None:
    (rows, cols, nodes, _), _ = sampled(torch.tensor([2, 2]), [-1], disjoint=True)
    assert nodes == [[0, 2], [1, 2], [0, 0], [1, 0]]
    assert (rows, cols) == ([2, 2, 3, 3], [0, 0, 1, 1])


def test_undirected_means_all_edges_among_the_nodes() -> None:
    found, (_, per_hop) = sampled(SEED, [-1], directed=False)
    assert found == [[1, 2, 3, 2, 0, 0], [0, 0, 0, 1, 2, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]
    assert per_hop == []


def test_integers_are_those_of_the_topology() -> None:
    found = neighbor_sample(ROWPTR.int(), COL.int(), SEED.int(), [-1], disjoint=True)
    assert {tensor.dtype for tensor in found[:4]} == {torch.int32}


def test_a_topology_is_read_where_it_lies() -> None:
    (relation,) = TensorTopology((TensorEdges(ROWPTR, COL, ()),)).relations()
    assert relation.adjacency.entries.ctypes.data == COL.data_ptr()
    assert relation.adjacency.indptr.ctypes.data == ROWPTR.data_ptr()


# --- draws ---------------------------------------------------------------------------------------


def key_after(seed: int) -> int:
    """As docs/random.md says."""
    torch.manual_seed(seed)
    return reference.fold(TORCH_DOMAIN, int(torch.randint(2**63 - 1, ())))


def test_draws_descend_from_one_number_of_torchs_generator() -> None:
    relation = reference.Relation(ROWPTR.numpy(), COL.numpy(), np.arange(6), (2, 1))
    for seed in range(20):
        expected = reference.khop(1, [relation], [np.array([0])], key_after(seed))
        torch.manual_seed(seed)
        (rows, cols, nodes, edges), _ = sampled(SEED, [2, 1])
        assert nodes == expected.nodes[0].tolist()
        assert rows == expected.rows[0].tolist()
        assert cols == expected.cols[0].tolist()
        assert edges == expected.edge_ids[0].tolist()


def test_the_same_seed_repeats_a_run_and_calls_of_a_run_differ() -> None:
    def run() -> list[Any]:
        torch.manual_seed(5)
        return [sampled(torch.tensor([0, 1, 2]), [1, 1])[0] for _ in range(12)]

    first = run()
    assert run() == first
    assert any(found != first[0] for found in first)


# --- weights and times ---------------------------------------------------------------------------


def test_an_edge_without_weight_is_not_taken() -> None:
    weight = torch.tensor([0.0, 2.0, 0.0, 0.0, 1.0, 0.0], dtype=torch.bfloat16)
    (_, _, nodes, edges), _ = sampled(SEED, [-1, -1], edge_weight=weight)
    assert (nodes, edges) == ([0, 2], [1, 4])


def test_nothing_later_than_its_seed_is_found() -> None:
    node_time = torch.tensor([5, 3, 9, 5])
    (_, _, nodes, edges), _ = sampled(SEED, [-1, -1], node_time=node_time, disjoint=True)
    assert (nodes, edges) == ([[0, 0], [0, 1], [0, 3]], [0, 2])


def test_seeds_have_the_times_that_they_are_given() -> None:
    node_time = torch.tensor([5, 3, 9, 5])
    options = {"node_time": node_time, "seed_time": torch.tensor([4]), "disjoint": True}
    assert sampled(SEED, [-1], **options)[0][2] == [[0, 0], [0, 1]]


def test_rows_need_not_be_in_the_order_of_time() -> None:
    edge_time = torch.tensor([7, 1, 4, 0, 0, 0], dtype=torch.int32)
    options = {"edge_time": edge_time, "seed_time": torch.tensor([5]), "disjoint": True}
    assert sampled(SEED, [2], temporal_strategy="last", **options)[0][3] == [1, 2]
    assert sampled(SEED, [1], temporal_strategy="last", **options)[0][3] == [2]


REFUSALS = [
    ({"node_time": COL}, "Node temporal sampling needs to create disjoint subgraphs"),
    ({"edge_time": COL}, "Edge temporal sampling needs to create disjoint subgraphs"),
    ({"edge_time": COL, "disjoint": True}, "Seed time needs to be specified"),
    (
        {"node_time": COL[:4], "edge_weight": COL, "disjoint": True},
        "Biased node temporal sampling not yet supported",
    ),
    ({"node_time": COL[:4], "edge_time": COL, "disjoint": True}, "Only one of node-level"),
    ({"disjoint": True, "directed": False}, "not supported for neighbor sampling with"),
    ({"temporal_strategy": "first"}, "No valid temporal strategy found"),
    ({"edge_weight": COL[:2]}, r"edge_weight has shape \[2\]; there are 6 edges"),
    ({"edge_weight": -COL.float()}, r"weights\[0\], of edge 0, is -1.0"),
    (
        {"node_time": COL[:4], "seed_time": COL, "disjoint": True},
        r"seed_time has shape \[6\]; there are 1 seeds",
    ),
    ({"node_time": COL[:4].float(), "disjoint": True}, "expected integers|must be int64 or int32"),
]


@pytest.mark.parametrize(("options", "message"), REFUSALS)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sampled(SEED, [1], **options)


def test_wrong_arguments_are_refused_by_name() -> None:
    for arguments, message in [
        ((ROWPTR, COL, torch.tensor([4]), [1]), r"seeds\[0\]\[0\] is 4; expected 0 <= id < 4"),
        ((ROWPTR, COL, SEED, [-2]), r"num_neighbors\[0\] is -2"),
        ((ROWPTR, COL, [0], [1]), "seed is a list; expected a tensor"),
        ((ROWPTR.float(), COL, SEED, [1]), r"rowptr is float32 \[5\]; expected the offsets"),
        ((ROWPTR, COL.to("meta"), SEED, [1]), "col is on meta"),
        ((ROWPTR, COL, SEED.to_sparse(), [1]), "seed is on cpu as torch.sparse_coo"),
    ]:
        with pytest.raises(ValueError, match=message):
            neighbor_sample(*arguments)


def test_offsets_that_lead_outside_are_an_error() -> None:
    with pytest.raises(GraphFormatError, match="damaged topology"):
        neighbor_sample(torch.tensor([0, 9]), torch.tensor([0]), SEED, [-1])


# --- by type -------------------------------------------------------------------------------------

# In-edges: b0 has a1, a0; b1 has a1. a0 has b1. a1 has none.
TYPED = {TO: ([0, 2, 3], [1, 0, 1]), BACK: ([0, 1, 1], [1])}


def typed(seed: dict[str, list[int]], hops: list[int], **options: Any) -> Any:
    """By pyg-lib's own function."""
    return sampler.hetero_neighbor_sample(
        {kind: torch.tensor(rowptr) for kind, (rowptr, _) in TYPED.items()},
        {kind: torch.tensor(col) for kind, (_, col) in TYPED.items()},
        {name: torch.tensor(ids) for name, ids in seed.items()},
        dict.fromkeys(TYPED, hops),
        **{"csc": True, **options},
    )


def by_name(found: Any) -> dict[Any, list[int]]:
    return {name: tensor.tolist() for name, tensor in found.items()}


def test_types_are_told_apart() -> None:
    rows, cols, nodes, edges, num_nodes, num_edges = typed({"b": [0]}, [-1, -1])
    assert by_name(nodes) == {"a": [1, 0], "b": [0, 1]}
    assert by_name(rows) == {TO: [0, 1], BACK: [1]}
    assert by_name(cols) == {TO: [0, 0], BACK: [1]}
    assert by_name(edges) == {TO: [0, 1], BACK: [0]}
    assert num_nodes == {"a": [0, 2, 0], "b": [1, 0, 1]}
    assert num_edges == {TO: [2, 0], BACK: [0, 1]}


def test_a_type_that_nothing_expands_has_any_number_of_nodes() -> None:
    options: dict[str, Any] = {"csc": True}
    found = hetero_neighbor_sample(
        ["a", "b"],
        [TO],
        {"a__to__b": torch.tensor([0, 2])},
        {"a__to__b": torch.tensor([10**9, 7])},
        {"a": torch.tensor([10**10]), "b": torch.tensor([0])},
        {"a__to__b": [-1]},
        **options,
    )
    assert by_name(found[2]) == {"a": [10**10, 10**9, 7], "b": [0]}


def test_a_type_without_seeds_and_edges_is_there_and_empty() -> None:
    found = typed({"a": [1]}, [-1])
    assert by_name(found[2]) == {"a": [1], "b": []}
    assert by_name(found[0]) == {TO: [], BACK: []}


def test_trees_are_counted_in_the_order_in_which_seeds_are_given() -> None:
    first_b = typed({"b": [0, 1], "a": [1]}, [], disjoint=True)[2]
    assert by_name(first_b) == {"a": [[2, 1]], "b": [[0, 0], [1, 1]]}
    first_a = typed({"a": [1], "b": [0, 1]}, [], disjoint=True)[2]
    assert by_name(first_a) == {"a": [[0, 1]], "b": [[1, 0], [2, 1]]}


def test_types_without_times_or_weights_are_not_restricted() -> None:
    timed = typed(
        {"b": [0]},
        [-1],
        disjoint=True,
        node_time_dict={"a": torch.tensor([3, 8])},
        seed_time_dict={"b": torch.tensor([5])},
    )
    assert by_name(timed[3]) == {TO: [1], BACK: []}
    weighted = typed({"b": [0]}, [-1, -1], edge_weight_dict={TO: torch.tensor([1.0, 0.0, 1.0])})
    assert by_name(weighted[3]) == {TO: [0], BACK: []}


def test_seeds_without_a_time_of_their_own_are_refused_by_type() -> None:
    with pytest.raises(ValueError, match="Seed time needs to be specified for seeds of 'b'"):
        typed({"b": [0]}, [-1], disjoint=True, node_time_dict={"a": torch.tensor([3, 8])})


def test_seeds_of_no_type_are_refused() -> None:
    with pytest.raises(ValueError, match="seeds name node type 'c'; there are"):
        hetero_neighbor_sample([], [], {}, {}, {"c": SEED}, {})


def test_rows_of_one_type_that_are_not_as_many_are_refused() -> None:
    kinds = [TO, ("a", "also", "b")]
    with pytest.raises(ValueError, match="has 1 rows; another of its type 2"):
        hetero_neighbor_sample(
            ["a", "b"],
            kinds,
            {"a__to__b": torch.tensor([0, 0, 0]), "a__also__b": torch.tensor([0, 0])},
            {"a__to__b": COL[:0], "a__also__b": COL[:0]},
            {"b": SEED},
            {"a__to__b": [1], "a__also__b": [1]},
            csc=True,
        )


# --- as torch_sparse has them --------------------------------------------------------------------


def test_torch_sparses_operators_give_nodes_first() -> None:
    nodes, rows, cols, edges = lists(
        operators.sparse_neighbor_sample(ROWPTR, COL, SEED, [-1], False, False)
    )
    assert nodes == [0, 1, 2, 3]
    assert (rows, cols, edges) == ([1, 2, 3, 2, 0, 0], [0, 0, 0, 1, 2, 2], [0, 1, 2, 3, 4, 5])


def test_torch_sparses_operators_have_as_many_hops_as_they_are_told() -> None:
    found = operators.sparse_hetero_neighbor_sample(
        ["a", "b"],
        [TO, BACK],
        {"__".join(kind): torch.tensor(rowptr) for kind, (rowptr, _) in TYPED.items()},
        {"__".join(kind): torch.tensor(col) for kind, (_, col) in TYPED.items()},
        {"b": SEED},
        {"__".join(kind): [-1, -1] for kind in TYPED},
        1,
        False,
        True,
    )
    assert by_name(found[0]) == {"a": [1, 0], "b": [0]}


# --- walks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.5, 2.0)])
def test_walks_follow_edges_and_stay_where_there_are_none(p: float, q: float) -> None:
    starts = torch.tensor([0, 1, 2, 3] * 20)
    walks = sampler.random_walk(ROWPTR, COL, starts, 5, p, q)
    assert walks.shape == (80, 6)
    assert walks[:, 0].tolist() == starts.tolist()
    there = {0: {1, 2, 3}, 1: {2}, 2: {0}, 3: {3}}
    for walk in walks.tolist():
        assert all(to in there[at] for at, to in pairwise(walk))


def test_walks_repeat_with_torchs_seed() -> None:
    def walks() -> Any:
        return sampler.random_walk(ROWPTR, COL, torch.tensor([0] * 50), 4).tolist()

    torch.manual_seed(1)
    first, second = walks(), walks()
    torch.manual_seed(1)
    assert walks() == first != second
