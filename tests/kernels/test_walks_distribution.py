"""Steps are as likely as they should be: uniform ones, and node2vec's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from penstock.kernels.arrays import Array
from tests.kernels.chi_square import LEAST_P_VALUE, assert_independent, assert_uniform
from tests.kernels.walk_jobs import along

# The walk comes from 0 to 1, whose edges lead back, to a common neighbour (2), and further (3, 4),
# to 3 by two edges. It is the edge from 2 to 0 that counts: the one from 0 to 4 does not.
FORK = [(0, 1), (1, 0), (1, 2), (1, 3), (1, 4), (1, 3), (2, 0), (0, 4)]
WEIGHTS = {0: "back", 2: "common", 3: "far", 4: "far"}
# Edges that lead neither back nor to a common neighbour, beside one that does the latter.
NO_WAY_BACK = [(0, 1), *[(1, node) for node in range(2, 9)], (2, 0)]


def second_steps(edges: list[tuple[int, int]], num_nodes: int, **options: float | bool) -> Array:
    """The edges that many walks from node 0 take in their second step, the first being edge 0."""
    walking = along(edges, num_nodes, [0] * 30_000)
    _, taken = replace(walking, length=2, key=5, **options).native()  # type: ignore[arg-type]
    return taken[taken[:, 0] == 0, 1]


def assert_likely(taken: Array, weights: dict[int, float]) -> None:
    """Edges are taken in proportion to their weights, and no others."""
    counts = np.bincount(taken, minlength=max(weights) + 1)
    observed = counts[list(weights)]
    assert observed.sum() == len(taken)
    expected = np.array(list(weights.values())) * len(taken) / sum(weights.values())
    assert expected.min() >= 5, "too few draws for the chi-square approximation"
    assert stats.chisquare(observed, expected).pvalue > LEAST_P_VALUE


def test_uniform_steps_are_uniform() -> None:
    edges = [(0, node) for node in range(1, 8)]
    nodes, _ = replace(along(edges, 8, [0] * 20_000), length=1, key=9).native()
    assert_uniform(nodes[:, 1] - 1, 7)


def test_one_step_says_nothing_of_the_next() -> None:
    everywhere = [(a, b) for a in range(5) for b in range(5)]
    nodes, _ = replace(along(everywhere, 5, [2] * 10_000), length=3, key=10).native()
    assert_independent(nodes[:, 1], nodes[:, 2], 5)
    assert_independent(nodes[:, 1], nodes[:, 3], 5)


def test_one_round_says_nothing_of_the_next() -> None:
    everywhere = [(a, b) for a in range(5) for b in range(5)]
    nodes, _ = replace(along(everywhere, 5, [2] * 5_000), length=1, rounds=2, key=11).native()
    assert_independent(nodes[:5_000, 1], nodes[5_000:, 1], 5)


@pytest.mark.parametrize("reversed_lookup", [False, True])
@pytest.mark.parametrize(
    ("p", "q"), [(4.0, 0.25), (0.25, 4.0), (1.0, 2.0), (3.0, 1.0), (20.0, 20.0), (0.1, 0.1)]
)
def test_second_steps_have_the_probabilities_of_node2vec(
    p: float, q: float, reversed_lookup: bool
) -> None:
    weights = {"back": 1 / p, "common": 1.0, "far": 1 / q}
    expected = {edge: weights[WEIGHTS[to]] for edge, (source, to) in enumerate(FORK) if source == 1}
    taken = second_steps(FORK, 5, p=p, q=q, reversed_lookup=reversed_lookup)
    assert_likely(taken, expected)


@pytest.mark.parametrize("q", [1.0, 0.2, 5.0])
def test_where_hardly_any_draw_is_accepted_the_row_is_read(q: float) -> None:
    """The greatest weight is that of going back, where there is no way back."""
    taken = second_steps(NO_WAY_BACK, 9, p=1e-6, q=q)
    assert_likely(taken, {1: 1.0, **dict.fromkeys(range(2, 8), 1 / q)})
