"""Permutations: every one as likely as any other where they can be counted, and every number in
every place where they cannot."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import factorial

import numpy as np
import pytest
from scipy import stats

from penstock.kernels import permutation
from penstock.kernels.arrays import Array, Ids
from tests.kernels.chi_square import LEAST_P_VALUE, assert_independent, assert_uniform

pytestmark = pytest.mark.statistics

SOURCES: dict[str, Callable[[int], tuple[int, int]]] = {
    "seeds": lambda number: (number, 0),
    "epochs": lambda number: (0, number),
    "far seeds": lambda number: (number << 40, 7),
}


def many(size: int, times: int, source: str = "seeds", start: int = 0, stop: int = 0) -> Array:
    """A permutation, or places `start` to `stop` of it, in each row."""
    window = (start, stop) if stop else ()
    return np.array([permutation(*SOURCES[source](i), size, *window) for i in range(times)])


def numbers_of(rows: Array) -> Ids:
    """Each row's number among all permutations of its length."""
    size = rows.shape[1]
    weights = size ** np.arange(size)
    known = {
        int(np.dot(order, weights)): number
        for number, order in enumerate(permutations(range(size)))
    }
    return np.array([known[code] for code in (rows @ weights).tolist()])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7])
def test_all_permutations_of_a_few_are_equally_likely(size: int, source: str) -> None:
    rows = many(size, max(24_000, 10 * factorial(size)), source)
    assert_uniform(numbers_of(rows), factorial(size))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("source", ["seeds", "epochs"])
def test_successive_permutations_are_independent(size: int, source: str) -> None:
    """CONTRACT 4."""
    numbers = numbers_of(many(size, 24_000, source))
    assert_independent(numbers[0::2], numbers[1::2], factorial(size))


def test_equal_sums_of_seed_and_epoch_share_nothing() -> None:
    pairs = [(a, 100 - a) for a in range(101)] + [(a, a) for a in range(100)]
    rows = {tuple(permutation(seed, epoch, 50).tolist()) for seed, epoch in pairs}
    assert len(rows) == len(set(pairs))


@pytest.mark.parametrize("size", [5, 6, 7, 8, 9, 12, 16, 17, 31, 100])
def test_every_number_is_as_likely_in_every_place(size: int) -> None:
    rows = many(size, 12_000)
    for place in {0, 1, size // 2, size - 1}:
        assert_uniform(rows[:, place], size)


@pytest.mark.parametrize("place", [0, 1, 499, 999])
def test_every_number_of_a_thousand_is_as_likely_in(place: int) -> None:
    assert_uniform(many(1000, 20_000, start=place, stop=place + 1)[:, 0], 1000)


@pytest.mark.parametrize("size", [8, 16, 60, 1000])
@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 7), (4, 5)])
def test_two_places_are_independent_but_for_excluding_each_other(
    size: int, one: int, other: int
) -> None:
    rows = many(size, 20_000, start=0, stop=8)
    bins = rows * 4 // size
    observed = np.bincount(bins[:, one] * 4 + bins[:, other], minlength=16)
    sizes = np.bincount(np.arange(size) * 4 // size)
    pairs = np.outer(sizes, sizes) - np.diag(sizes)
    expected = 20_000 * pairs.reshape(-1) / pairs.sum()
    assert stats.chisquare(observed, expected).pvalue > LEAST_P_VALUE


@pytest.mark.parametrize("lag", [1, 2])
def test_epochs_of_a_thousand_are_independent_of_each_other(lag: int) -> None:
    bins = many(1000, 400, "epochs") * 5 // 1000
    joint = np.bincount((bins[:-lag] * 5 + bins[lag:]).reshape(-1), minlength=25)
    # Each epoch has 200 of each bin: the margins are given, and 4 · 4 cells are free.
    scatter = ((joint - joint.sum() / 25) ** 2).sum() / (joint.sum() / 25)
    assert LEAST_P_VALUE < stats.chi2.sf(scatter, 16) < 1 - LEAST_P_VALUE


@pytest.mark.parametrize("size", [10, 1000, 4096])
def test_fixed_points_are_as_many_as_in_random_permutations(size: int) -> None:
    # One on average, whatever the size, and as good as Poisson.
    rows = many(size, 1500)
    counts = np.minimum((rows == np.arange(size)).sum(axis=1), 4)
    likely = stats.poisson.pmf(np.arange(4), 1)
    expected = 1500 * np.append(likely, 1 - likely.sum())
    observed = np.bincount(counts, minlength=5)
    assert stats.chisquare(observed, expected).pvalue > LEAST_P_VALUE


def test_neighbouring_places_go_up_as_often_as_down() -> None:
    rows = many(1000, 300)
    ascents = (np.diff(rows, axis=1) > 0).sum(axis=1)
    # The number of ascents of a random permutation: mean (n - 1) / 2, variance (n + 1) / 12.
    scatter = ((ascents - 499.5) ** 2).sum() / (1001 / 12)
    assert LEAST_P_VALUE < stats.chi2.sf(scatter, 300) < 1 - LEAST_P_VALUE


# --- the check can fail ---------------------------------------------------------------------------


def test_sorting_by_small_random_numbers_is_found_out() -> None:
    # Ties keep their order, so the identity is too likely.
    rng = np.random.default_rng(0)
    rows = np.argsort(rng.integers(0, 64, (24_000, 4)), axis=1, kind="stable")
    with pytest.raises(AssertionError):
        assert_uniform(numbers_of(rows), 24)


def test_an_exact_shuffle_passes() -> None:
    rng = np.random.default_rng(0)
    rows = rng.permuted(np.tile(np.arange(5), (24_000, 1)), axis=1)
    assert_uniform(numbers_of(rows), 120)
