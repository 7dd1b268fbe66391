"""Every neighbour, and every set of neighbours, is as likely as any other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from penstock import kernels
from penstock.kernels import Adjacency, KHop, Relation, reference
from penstock.kernels.arrays import Array
from tests.kernels.chi_square import (
    LEAST_P_VALUE,
    assert_marginals_uniform,
    assert_pair_hypergeometric,
    assert_subsets_uniform,
    assert_uniform,
    choose,
    hop_key,
    p_uniform,
    subset_numbers,
)

pytestmark = pytest.mark.statistics


def choose_often(
    degree: int, fanout: int, times: int, *, replace: bool = False, batches: int = 8
) -> Array:
    """Over several batches, and many nodes in each."""
    parts = [
        choose(degree, fanout, hop_key(index=index), times // batches, replace=replace)
        for index in range(batches)
    ]
    return np.concatenate(parts)


# Up to a fan-out of 32 draws are made by blocks; beyond it, one by one.
@pytest.mark.parametrize(
    ("degree", "fanout"),
    [(2, 1), (7, 1), (5, 2), (6, 3), (8, 4), (7, 6), (10, 9), (12, 3), (33, 32), (34, 32)],
)
def test_all_sets_of_neighbours_are_equally_likely(degree: int, fanout: int) -> None:
    assert_subsets_uniform(choose_often(degree, fanout, 80_000), degree)


@pytest.mark.parametrize(("degree", "fanout"), [(34, 33), (35, 33), (41, 40), (101, 99)])
def test_all_sets_of_neighbours_are_equally_likely_also_large_ones(
    degree: int, fanout: int
) -> None:
    assert_subsets_uniform(choose_often(degree, fanout, 80_000), degree)


@pytest.mark.parametrize(("degree", "fanout"), [(2, 5), (3, 2), (5, 3), (16, 2), (1000, 1)])
def test_with_replacement_all_sequences_are_equally_likely(degree: int, fanout: int) -> None:
    drawn = choose_often(degree, fanout, 80_000, replace=True)
    assert_uniform(drawn @ degree ** np.arange(fanout), degree**fanout)


@pytest.mark.parametrize(
    ("degree", "fanout"), [(20, 10), (1000, 5), (1000, 32), (50, 40), (100, 33), (1000, 300)]
)
def test_every_neighbour_is_taken_equally_often(degree: int, fanout: int) -> None:
    assert_marginals_uniform(choose_often(degree, fanout, 20_000), degree)


@pytest.mark.parametrize(("degree", "fanout"), [(15, 10), (64, 32), (50, 40), (100, 33)])
def test_two_neighbours_are_taken_together_as_often_as_they_should(
    degree: int, fanout: int
) -> None:
    chosen = choose_often(degree, fanout, 40_000)
    for one, other in [(0, 1), (0, degree - 1), (degree - 2, degree - 1), (3, degree // 2)]:
        assert_pair_hypergeometric(chosen, degree, one, other)


@pytest.mark.parametrize("fanout", [1, 40])
def test_with_replacement_every_place_in_the_sequence_is_uniform(fanout: int) -> None:
    drawn = choose_often(60, fanout, 8000, replace=True)
    for j in {0, fanout // 2, fanout - 1}:
        assert_uniform(drawn[:, j], 60)


@pytest.mark.parametrize("what", ["seed", "epoch", "index"])
def test_one_node_chooses_uniformly_over_all_that_makes_a_batch(what: str) -> None:
    adjacency = Adjacency(np.array([0, 6]), np.zeros(6, np.int32))
    sampler, seeds = KHop([1], [Relation(adjacency, (3,))]), [np.array([0])]
    rows = []
    for number in range(8000):
        key = kernels.batch_key(**{"seed": 0, "epoch": 0, "index": 0, what: number})
        rows.append((sampler.sample(key, seeds).edge_ids or [])[0])
    assert_subsets_uniform(np.array(rows), 6)


def test_the_fused_sampler_chooses_uniformly_in_its_second_hop() -> None:
    # Seed i finds node 10000 + i alone, which has six neighbours to choose from.
    count, degree = 10_000, 6
    degrees = np.concatenate([np.ones(count, np.int64), np.full(count, degree)])
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    entries = np.concatenate([np.arange(count) + count, np.zeros(count * degree, np.int64)])
    sampler = KHop([2 * count], [Relation(Adjacency(indptr, entries), (1, 3))])
    sample = sampler.sample(1, [np.arange(count)])
    assert sample.num_sampled_edges == [[count, 3 * count]]
    edge_ids = (sample.edge_ids or [])[0][count:].reshape(count, 3)
    assert_subsets_uniform(edge_ids - indptr[count:-1, None], degree)


# --- the checks can fail --------------------------------------------------------------------------


def words(times: int, fanout: int) -> Array:
    """Good words to make bad choices of."""
    keys = [kernels.batch_key(0, 0, node) for node in range(times)]
    return np.array([reference.draws(key, fanout) for key in keys])


def by_modulo_of_a_small_word(times: int, degree: int, fanout: int) -> Array:
    first = (words(times, 1) % np.uint64(16) % np.uint64(degree)).astype(np.int64)
    return (first + np.arange(fanout)) % degree


def by_rejecting_to_the_next(times: int, degree: int, fanout: int) -> Array:
    """Draws over all offsets, each moved on to the next one free: long runs are too likely."""
    drawn = reference.bounded(words(times, fanout), degree)
    for row in drawn:
        for j in range(1, fanout):
            while row[j] in row[:j]:
                row[j] = (row[j] + 1) % degree
    return drawn


def by_floyd_over_one_too_few(times: int, degree: int, fanout: int) -> Array:
    """Floyd's method that never draws `last` itself."""
    lasts = np.arange(degree - fanout, degree)
    drawn = reference.bounded(words(times, fanout), lasts.astype(np.uint64))
    for row in drawn:
        for j in range(fanout):
            if row[j] in row[:j]:
                row[j] = lasts[j]
    return drawn


@pytest.mark.parametrize(
    "chooser", [by_modulo_of_a_small_word, by_rejecting_to_the_next, by_floyd_over_one_too_few]
)
def test_a_biased_chooser_is_found_out(chooser: Callable[[int, int, int], Array]) -> None:
    chosen = chooser(5000, 7, 3)
    assert p_uniform(subset_numbers(chosen, 7), 35) < LEAST_P_VALUE
    with pytest.raises(AssertionError):
        assert_subsets_uniform(chosen, 7)


def test_biased_marginals_are_found_out() -> None:
    with pytest.raises(AssertionError):
        assert_marginals_uniform(by_modulo_of_a_small_word(5000, 7, 3), 7)
    with pytest.raises(AssertionError):
        assert_pair_hypergeometric(by_rejecting_to_the_next(5000, 7, 3), 7, 0, 1)
