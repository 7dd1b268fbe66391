"""Nodes are drawn by the squares of their budgets, one after another."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from tests.kernels.chi_square import LEAST_P_VALUE, assert_subsets_uniform
from tests.kernels.hgt_jobs import Layering, one_type

pytestmark = pytest.mark.statistics

KEYS = range(8000)
# Seeds 0 and 1 have two neighbours each, of which they share one: 2 gets twice what 3 and 4 get.
SHARED = [(2, 0), (3, 0), (2, 1), (4, 1)]
BUDGETS = {2: 1.0, 3: 0.5, 4: 0.5}


def drawn(layering: Layering) -> list[tuple[int, ...]]:
    """What is drawn after the seeds, for many keys."""
    sampler, count = layering.sampler, len(layering.seeds[0])
    return [tuple(sampler.sample(key, layering.seeds).nodes[0][count:].tolist()) for key in KEYS]


def assert_likely(found: list[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> None:
    counts = Counter(found)
    assert counts.keys() <= expected.keys()
    observed = [counts[draws] for draws in expected]
    wanted = np.array(list(expected.values())) * len(found)
    assert wanted.min() >= 5, "too few draws for the chi-square approximation"
    assert stats.chisquare(observed, wanted).pvalue > LEAST_P_VALUE


def successive(weights: dict[int, float], count: int) -> dict[tuple[int, ...], float]:
    """The probabilities of so many draws, one after another, from what is left."""
    expected = {}
    for order in permutations(weights, count):
        left, chance = sum(weights.values()), 1.0
        for node in order:
            chance *= weights[node] / left
            left -= weights[node]
        expected[order] = chance
    return expected


def test_one_node_is_drawn_by_the_square_of_its_budget() -> None:
    squares = {node: budget**2 for node, budget in BUDGETS.items()}
    assert_likely(drawn(one_type(SHARED, 5, (1,), [0, 1])), successive(squares, 1))


def test_two_nodes_are_drawn_one_after_the_other() -> None:
    squares = {node: budget**2 for node, budget in BUDGETS.items()}
    assert_likely(drawn(one_type(SHARED, 5, (2,), [0, 1])), successive(squares, 2))


def test_the_next_layer_draws_by_what_was_given_in_all_before() -> None:
    """Seed 0 has three neighbours; the one drawn first gives all of its own to another of them.

    Whichever comes first, the next has 4/3 and the third 1/3: sixteen to one.
    """
    edges = [(1, 0), (2, 0), (3, 0), (2, 1), (3, 2), (1, 3)]
    after = {1: 2, 2: 3, 3: 1}
    expected = {}
    for first, likely in after.items():
        (other,) = {1, 2, 3} - {first, likely}
        expected[first, likely] = 16 / 17 / 3
        expected[first, other] = 1 / 17 / 3
    assert_likely(drawn(one_type(edges, 4, (1, 1), [0])), expected)


def test_of_a_long_row_any_edges_may_be_those_that_count() -> None:
    hub = one_type([(node, 0) for node in range(1, 7)], 7, (6,), [0])
    hub = Layering(hub.num_nodes, hub.edges, hub.num_samples, hub.seeds, max_neighbors=2)
    chosen = np.array(drawn(hub)) - 1
    assert_subsets_uniform(chosen, 6)


def test_two_layers_do_not_draw_alike() -> None:
    """A first draw says nothing of the second, from another row just like its own."""
    edges = [(node, 0) for node in range(1, 4)]
    edges += [(3 * first + node, first) for first in (1, 2, 3) for node in (1, 2, 3)]
    found = drawn(one_type(edges, 13, (1, 1), [0]))
    from_second = [pair for pair in found if pair[1] > 3]
    # What the first one drawn gave is 1/3 each, as much as is left of the first row.
    expected = {}
    for first in (1, 2, 3):
        others = [node for node in (1, 2, 3) if node != first]
        for second in (*others, *(3 * first + node for node in (1, 2, 3))):
            expected[first, second] = 1 / 15
    assert len(from_second) > len(found) / 2
    assert_likely(found, expected)
