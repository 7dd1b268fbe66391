"""What forward push refuses: options that make no sense, nodes that are not there, broken rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.errors import GraphFormatError
from penstock.kernels import Adjacency, _native
from penstock.kernels.arrays import Array
from penstock.kernels.ppr import Push, PushChannel, PushOptions, PushRelation
from tests.kernels.ppr_jobs import out_edges

ROWS = out_edges([(0, 1), (1, 2), (2, 0)], 3)


def push(adjacency: Adjacency | None = None, **options: Any) -> Push:
    return Push([3], [PushRelation(adjacency or ROWS.adjacency)], PushOptions(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, "alpha is 0.0; expected a number, 0.001 <= alpha <= 1.0"),
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"alpha": True}, "alpha is True"),
        ({"alpha": "0.5"}, "alpha is '0.5'"),
        ({"eps": 0.0}, "eps is 0.0"),
        ({"eps": 1e-300}, "eps is 1e-300"),
        ({"eps": float("inf")}, "eps is inf"),
        ({"max_ppr_nodes": -1}, "max_ppr_nodes is -1"),
        ({"max_ppr_nodes": 1.5}, "max_ppr_nodes is 1.5"),
        ({"num_neighbors_per_hop": 0}, "num_neighbors_per_hop is 0"),
        ({"max_fetch_iterations": -1}, "max_fetch_iterations is -1"),
        ({"channels": (PushChannel((0,), 7),)}, "sum to 7; expected max_ppr_nodes, 50"),
        ({"channels": (PushChannel((1,), 50),)}, r"channels\[0\].relations is 1"),
        ({"channels": (PushChannel((0, 0), 50),)}, r"channels\[0\] names a relation twice"),
        ({"channels": (PushChannel((0,), -1),)}, r"channels\[0\].share is -1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        push(**options)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        (np.array([0, 3]), r"seeds\[1\] is 3; expected 0 <= id < 3"),
        (np.array([-1]), r"seeds\[0\] is -1"),
        (np.array([0.5]), "seeds must be integers"),
        (np.array([[0]]), "seeds must have one dimension"),
    ],
)
def test_seeds_that_are_no_nodes_are_refused(seeds: Array, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        push().sample(0, seeds)


def test_a_seed_type_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="seed_type is 1"):
        push().sample(0, np.array([0]), 1)


def test_relations_of_types_that_are_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="a node type that is not there"):
        Push([3], [PushRelation(ROWS.adjacency, 0, 1)], PushOptions())


def test_rows_of_another_number_of_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="another number of rows"):
        Push([4], [PushRelation(ROWS.adjacency)], PushOptions())


def test_a_batch_without_seeds_is_empty() -> None:
    sample = push().sample(0, np.empty(0, np.int64))
    assert sample.nodes[0].shape == (0,)
    assert sample.edge_index[0].shape == (2, 0)
    assert sample.edge_attr[0].shape == (0, 2)


def test_no_node_is_taken_where_none_is_wanted() -> None:
    sample = push(max_ppr_nodes=0).sample(0, np.array([1]))
    assert sample.nodes[0].tolist() == [1]
    assert sample.edge_index[0].shape == (2, 0)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("value", [-1, -(2**62), 4, 2**62])
@pytest.mark.parametrize("with_edges", [False, True])
def test_offsets_that_point_outside_are_found(place: int, value: int, with_edges: bool) -> None:
    indptr = ROWS.indptr.copy()
    indptr[place] = value
    adjacency = Adjacency(indptr, ROWS.entries)
    with pytest.raises(GraphFormatError, match="damaged topology"):
        push(adjacency, with_edges=with_edges).sample(0, np.array([0, 1, 2]))


@pytest.mark.parametrize("value", [-1, 3, 2**62, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("most", [1, 1000])
def test_neighbors_that_are_no_nodes_are_found(value: int, most: int) -> None:
    entries = ROWS.entries.copy()
    entries[:, 0] = value
    with pytest.raises(GraphFormatError, match="damaged topology"):
        push(Adjacency(ROWS.indptr, entries), num_neighbors_per_hop=most).sample(0, np.array([0]))


def test_a_sampler_works_again_after_a_damaged_batch() -> None:
    indptr = ROWS.indptr.copy()
    sampler = push(Adjacency(indptr, ROWS.entries))
    good = sampler.sample(0, np.array([0, 1]))
    indptr[3] = 99
    with pytest.raises(GraphFormatError):
        sampler.sample(0, np.array([0, 1]))
    indptr[3] = 3
    again = sampler.sample(0, np.array([0, 1]))
    np.testing.assert_array_equal(again.edge_attr[0], good.edge_attr[0])


def native(**changes: Any) -> _native.PPRSampler:
    arguments: dict[str, Any] = {
        "num_nodes": [3],
        "adjacencies": [ROWS.adjacency.native],
        "sizes": [np.array([1, 1, 1], np.uint8)],
        "expands": [0],
        "finds": [0],
        "name_hashes": [0],
        "channels": [[0]],
        "shares": [5],
        "alpha": 0.5,
        "eps": 1e-3,
        "limits": [5, 10, -1],
        "is_typed": False,
        "has_topup": True,
        "with_edges": True,
    }
    return _native.PPRSampler(**(arguments | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"sizes": []},
        {"sizes": [np.array([1, 1], np.uint8)]},
        {"expands": []},
        {"finds": [1]},
        {"expands": [-1]},
        {"channels": []},
        {"channels": [[0], [0]], "shares": [2, 3]},
        {"channels": [[1]]},
        {"channels": [[-1]]},
        {"shares": [-1]},
        {"shares": []},
        {"alpha": 0.0},
        {"alpha": float("nan")},
        {"eps": 0.0},
        {"eps": float("nan")},
        {"limits": [5, 0, -1]},
        {"limits": [-1, 1, -1]},
        {"limits": [5, 1]},
        {"num_nodes": []},
        {"num_nodes": [3, 2**62]},
    ],
)
def test_the_native_module_refuses_what_would_break_it(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        native(**changes)


def test_the_native_module_copies_only_what_is_there_to_where_it_fits() -> None:
    sampler = native()
    with pytest.raises(ValueError, match="there is no batch"):
        sampler.copy_nodes(0, np.empty(0, np.int64))
    _, (nodes,), (links,), (edges,) = sampler.sample(0, 0, np.array([0]))
    with pytest.raises(ValueError, match="no such type"):
        sampler.copy_nodes(1, np.empty(nodes, np.int64))
    with pytest.raises(ValueError, match="must hold the nodes"):
        sampler.copy_nodes(0, np.empty(nodes + 1, np.int64))
    index, attr = np.empty((2, links), np.int64), np.empty((links, 2), np.float32)
    with pytest.raises(ValueError, match="must hold the links"):
        sampler.copy_links(0, index, attr[:, :1].copy())
    with pytest.raises(ValueError, match="must hold the edges"):
        sampler.copy_edges(0, np.empty((2, edges), np.int64), np.empty(edges - 1, np.int64))
    shared = np.empty(3 * edges, np.int64)
    with pytest.raises(ValueError, match="must not share memory"):
        sampler.copy_edges(0, shared[: 2 * edges].reshape(2, edges), shared[:edges])
