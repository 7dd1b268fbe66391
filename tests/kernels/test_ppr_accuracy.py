"""Forward push against the exact scores: a dense solution, and NetworkX."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.arrays import Array
from tests.kernels.ppr_jobs import (
    Edges,
    Job,
    both_ways,
    degrees,
    dense_scores,
    found,
    out_edges,
    pushed,
    scores_of,
)
from tests.kernels.strategies import Rows

ROUNDING = 1e-7  # scores are told in float32


@st.composite
def undirected(draw: st.DrawFn) -> Rows:
    """With self-loops, parallel edges and isolated nodes."""
    num_nodes = draw(st.integers(1, 25))
    node = st.integers(0, num_nodes - 1)
    return both_ways(draw(st.lists(st.tuples(node, node), max_size=60)), num_nodes)


@given(
    undirected(),
    st.sampled_from([0.05, 0.2, 0.5, 0.85]),
    st.sampled_from([0.1, 1e-2, 1e-3, 1e-4]),
    st.booleans(),
)
def test_scores_are_within_eps_times_the_degree(
    rows: Rows, alpha: float, eps: float, topup: bool
) -> None:
    """CONTRACT 48: |score - exact| <= eps * degree on undirected graphs, never above it."""
    num_nodes = len(rows.indptr) - 1
    sample = pushed(rows, [0], alpha=alpha, eps=eps, max_ppr_nodes=num_nodes, residual_topup=topup)
    missing = dense_scores(rows, 0, alpha) - scores_of(sample, num_nodes)
    assert np.all(missing >= -ROUNDING)
    assert np.all(missing <= eps * degrees(rows) + ROUNDING)


@given(undirected(), st.sampled_from([0.2, 0.5]))
def test_topup_comes_nearer_to_the_exact_scores(rows: Rows, alpha: float) -> None:
    num_nodes = len(rows.indptr) - 1
    options = {"alpha": alpha, "eps": 0.05, "max_ppr_nodes": num_nodes}
    plain, topped = (
        scores_of(pushed(rows, [0], residual_topup=topup, **options), num_nodes)
        for topup in (False, True)
    )
    assert np.all(plain <= topped)
    assert np.all(topped <= dense_scores(rows, 0, alpha) + ROUNDING)


def networkx_scores(rows: Rows, seed: int, alpha: float) -> Array:
    graph = nx.MultiDiGraph()
    num_nodes = len(rows.indptr) - 1
    graph.add_nodes_from(range(num_nodes))
    owners = np.repeat(np.arange(num_nodes), degrees(rows))
    graph.add_edges_from(zip(owners.tolist(), rows.neighbors.tolist(), strict=True))
    scores = nx.pagerank(
        graph, alpha=1 - alpha, personalization={seed: 1}, tol=1e-13, max_iter=10_000
    )
    return np.array([scores[node] for node in range(num_nodes)])


def random_pairs(num_nodes: int, num_edges: int, seed: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(seed)
    return [(int(a), int(b)) for a, b in rng.integers(0, num_nodes, (num_edges, 2))]


@pytest.mark.parametrize("alpha", [0.15, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_networkx(alpha: float, seed: int) -> None:
    """CONTRACT 48: within 2e-6 of NetworkX (tolerance 1e-13) at eps 1e-9, top-up off."""
    cycle = [(node, (node + 1) % 80) for node in range(80)]  # so that no walk ends
    for rows in (
        both_ways([*cycle, *random_pairs(80, 300, seed)], 80),
        out_edges([*cycle, *random_pairs(80, 300, seed)], 80),
    ):
        sample = pushed(rows, [seed], alpha=alpha, eps=1e-9, max_ppr_nodes=80, residual_topup=False)
        expected = networkx_scores(rows, seed, alpha)
        np.testing.assert_allclose(scores_of(sample, 80), expected, rtol=0, atol=2e-6)


def test_where_walks_end_scores_are_those_of_networkx_in_proportion() -> None:
    """NetworkX goes back to the seed where nothing leads on; here such a walk is over."""
    rows = out_edges(random_pairs(60, 90, 5), 60)
    assert np.any(degrees(rows) == 0)
    sample = pushed(rows, [0], alpha=0.3, eps=1e-9, max_ppr_nodes=60, residual_topup=False)
    scores = scores_of(sample, 60)
    assert scores.sum() < 0.99
    expected = networkx_scores(rows, 0, 0.3)
    np.testing.assert_allclose(scores / scores.sum(), expected, rtol=0, atol=2e-6)


def test_scores_over_several_types_are_those_of_the_graph_as_one() -> None:
    sizes, rng = [30, 40], np.random.default_rng(6)
    pairs = [(int(a), int(b)) for a, b in rng.integers(0, [30, 40], (200, 2))]
    friends = random_pairs(30, 50, 7)
    edges = [
        Edges(out_edges(pairs, 30), 0, 1),
        Edges(out_edges([(b, a) for a, b in pairs], 40), 1, 0),
        Edges(both_ways(friends, 30), 0, 0),
    ]
    options = {"eps": 1e-9, "max_ppr_nodes": 40, "residual_topup": False}
    sample = Job(sizes, edges, np.array([3]), options=options).native()
    whole = both_ways([*((a, 30 + b) for a, b in pairs), *friends], 70)
    expected = dense_scores(whole, 3, 0.5)
    for type_, begin in ((0, 0), (1, 30)):
        for node, (score, _) in found(sample, type_=type_).items():
            assert score == pytest.approx(expected[begin + node], abs=2e-6)
