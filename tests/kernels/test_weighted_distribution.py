"""Every sequence of edges is as likely as successive draws by weight make it, exactly."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from penstock import kernels
from penstock.kernels import Adjacency
from penstock.kernels.arrays import Array
from penstock.kernels.prepare import weight_sums
from tests.kernels.chi_square import LEAST_P_VALUE
from tests.kernels.one_hop import one_hop

Chances = dict[tuple[int, ...], Fraction]
FEWEST = 10  # cells that are to be expected less often are counted together


def successive(weights: list[float], fanout: int) -> Chances:
    """Each sequence without repetition: every draw by weight among what was not drawn before."""
    exact = [Fraction(weight) for weight in weights]
    chances: Chances = {}
    for sequence in permutations([i for i, weight in enumerate(exact) if weight], fanout):
        chance, left = Fraction(1), sum(exact)
        for i in sequence:
            chance *= exact[i] / left
            left -= exact[i]
        chances[sequence] = chance
    return chances


def independent(weights: list[float], fanout: int) -> Chances:
    """Each sequence with repetition."""
    exact = [Fraction(weight) for weight in weights]
    total, chances = sum(exact), {}
    for sequence in product([i for i, weight in enumerate(exact) if weight], repeat=fanout):
        chances[sequence] = Fraction(1)
        for i in sequence:
            chances[sequence] *= exact[i] / total
    return chances


def sets_of(chances: Chances) -> Chances:
    """The same without their order: how likely each set is to be included."""
    sets: Chances = {}
    for sequence, chance in chances.items():
        members = tuple(sorted(sequence))
        sets[members] = sets.get(members, Fraction(0)) + chance
    return sets


def draw_often(
    weights: list[float], fanout: int, *, replace: bool = False, times: int = 40_000
) -> Array:
    """A row of offsets for each of many nodes with these weights, over several batches."""
    degree, batches = len(weights), 8
    count = times // batches
    adjacency = Adjacency(np.arange(count + 1) * degree, np.zeros(count * degree, np.int32))
    sums = weight_sums(adjacency, np.tile(np.array(weights, float), count))
    parts = []
    for index in range(batches):
        nodes, key = np.arange(count), kernels.batch_key(0, 0, index)
        _, positions = one_hop(adjacency, nodes, fanout, key, sums=sums, replace=replace)
        parts.append(positions.reshape(count, fanout) - adjacency.indptr[:-1, None])
    return np.concatenate(parts)


def p_value(rows: Array, chances: Chances) -> float:
    """How likely it is that rows of these chances scatter this much, or more."""
    assert sum(chances.values()) == 1
    sequences, counts = np.unique(rows, axis=0, return_counts=True)
    seen = {tuple(row): int(n) for row, n in zip(sequences.tolist(), counts, strict=True)}
    assert set(seen) <= set(chances), "what cannot be was drawn"
    observed, expected = [0.0], [0.0]
    for sequence, chance in chances.items():
        mean = float(chance * len(rows))
        if mean >= FEWEST:
            observed.append(seen.get(sequence, 0))
            expected.append(mean)
        else:
            observed[0] += seen.get(sequence, 0)
            expected[0] += mean
    if expected[0] < FEWEST:  # too rare to tell: with the rarest of the others
        rare, few = observed.pop(0), expected.pop(0)
        rarest = int(np.argmin(expected))
        observed[rarest] += rare
        expected[rarest] += few
    if len(expected) == 1:
        return 1.0
    scale = sum(observed) / sum(expected)  # the sums agree but for rounding
    return float(stats.chisquare(observed, np.array(expected) * scale).pvalue)


def assert_drawn_as(rows: Array, chances: Chances) -> None:
    """In their order, and as sets."""
    assert p_value(rows, chances) > LEAST_P_VALUE
    assert p_value(np.sort(rows, axis=1), sets_of(chances)) > LEAST_P_VALUE


CASES = {
    "three": ([1, 2, 3], 1),
    "two of three": ([1, 2, 3], 2),
    "two of four, alike": ([1, 1, 1, 1], 2),
    "two of four, floats": ([0.1, 0.7, 0.05, 0.15], 2),
    "three of five, some without weight": ([0, 4, 1, 0, 2, 1], 3),
    "three of six": ([5, 1, 1, 2, 8, 3], 3),
    "five of six": ([5, 1, 1, 2, 8, 3], 5),
    "four of five, one large": ([30, 1, 1, 2, 3], 4),
    "all with weight, in the order drawn": ([0, 4, 0, 1, 2], 3),
}


@pytest.mark.parametrize(("weights", "fanout"), CASES.values(), ids=CASES)
def test_sequences_are_as_likely_as_successive_draws(weights: list[float], fanout: int) -> None:
    assert_drawn_as(draw_often(weights, fanout), successive(weights, fanout))


# A round ends after 2 * fan-out + 8 words: with these, many nodes need a second one or a third.
HEAVY = {
    "nearly all on one": ([1e12, 1, 2, 3], 3),
    "a second round now and then": ([60, 1, 2, 3], 3),
    "a second round often": ([400, 1, 2, 3], 3),
    "two heavy ones": ([1e9, 3e9, 1, 2, 3], 4),
    "one heavier than the other": ([1e12, 1e6, 1, 2, 3], 4),
    "each beyond the one before": ([1, 1e4, 1e8, 1e12, 2, 1], 5),
    "heavy in the middle": ([2, 3, 1e12, 1, 4], 3),
    "heavy at the end": ([2, 3, 1, 4, 1e12], 3),
    "heavy, and some without weight": ([0, 2, 1e12, 0, 3, 1, 0], 3),
}


@pytest.mark.parametrize(("weights", "fanout"), HEAVY.values(), ids=HEAVY)
def test_sequences_are_exact_also_after_a_round_was_given_up(
    weights: list[float], fanout: int
) -> None:
    assert_drawn_as(draw_often(weights, fanout), successive(weights, fanout))


REPEATED = {
    "three times of three": ([1, 2, 3], 3),
    "four times of two": ([1, 9], 4),
    "twice of six": ([5, 1, 0, 2, 8, 3], 2),
    "once, floats": ([0.1, 0.7, 0.05, 0.15], 1),
}


@pytest.mark.parametrize(("weights", "fanout"), REPEATED.values(), ids=REPEATED)
def test_with_replacement_draws_are_independent(weights: list[float], fanout: int) -> None:
    rows = draw_often(weights, fanout, replace=True)
    assert p_value(rows, independent(weights, fanout)) > LEAST_P_VALUE


def test_large_fanouts_draw_by_weight_too() -> None:
    # Fan-outs over 32 remember what was chosen in another way. Which one is left out tells.
    weights = [1.0] * 30 + [9.0] * 4
    rows = draw_often(weights, 33, times=16_000)
    left_out = sum(range(34)) - rows.sum(axis=1)
    # The one left out would have been the last: one of the light ones, nearly always.
    light = np.count_nonzero(left_out < 30)
    expected = chance_that_a_light_one_is_last(30, 4, 9)
    assert stats.binomtest(light, len(rows), expected).pvalue > LEAST_P_VALUE
    assert stats.chisquare(np.bincount(left_out, minlength=34)[:30]).pvalue > LEAST_P_VALUE


def chance_that_a_light_one_is_last(light: int, heavy: int, weight: int) -> float:
    """By all ways in which light and heavy ones can follow each other."""
    chances = {(light, heavy): Fraction(1)}
    for _ in range(light + heavy - 1):
        after: dict[tuple[int, int], Fraction] = {}
        for (few, many), chance in chances.items():
            total = few + weight * many
            for left, share in (((few - 1, many), few), ((few, many - 1), weight * many)):
                after[left] = after.get(left, Fraction(0)) + chance * Fraction(share, total)
        chances = {left: chance for left, chance in after.items() if chance}
    return float(chances[1, 0])


# --- the checks can fail --------------------------------------------------------------------------


def test_chances_that_are_slightly_wrong_are_found_out() -> None:
    rows = draw_often([1, 2, 3, 4], 2)
    assert p_value(rows, successive([1, 2, 3, 4.4], 2)) < LEAST_P_VALUE
    assert p_value(np.sort(rows, axis=1), sets_of(successive([1, 2, 3, 4.4], 2))) < LEAST_P_VALUE


def test_discarding_after_a_limit_would_be_found_out() -> None:
    """What is left drawn alike, whatever its weight, once a round is given up: not the same."""
    rows = draw_often([1e12, 1, 1, 1], 3)
    assert p_value(rows, successive([1e12, 1, 2, 3], 3)) < LEAST_P_VALUE


def test_what_cannot_be_drawn_is_found_out() -> None:
    with pytest.raises(AssertionError, match="what cannot be was drawn"):
        p_value(np.array([[0, 1]]), successive([0, 1, 1], 2))
