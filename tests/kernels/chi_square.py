"""Whether numbers are as likely as they should be. Seeds are fixed, so a test passes or fails for
good; the threshold is what a sound generator misses once in ten thousand tests."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from scipy import stats

from penstock import kernels
from penstock.kernels import Adjacency
from penstock.kernels.arrays import Array, Ids

LEAST_P_VALUE = 1e-4
EDGE = kernels.name_hash(("", "", ""))


def p_uniform(cells: Array, num_cells: int) -> float:
    """How likely it is that uniform draws scatter this much over the cells, or more."""
    assert len(cells) >= 10 * num_cells, "too few draws for the chi-square approximation"
    return float(stats.chisquare(np.bincount(cells, minlength=num_cells)).pvalue)


def assert_uniform(cells: Array, num_cells: int) -> None:
    assert p_uniform(cells, num_cells) > LEAST_P_VALUE


def assert_independent(first: Array, second: Array, num_cells: int) -> None:
    """Both uniform over `num_cells`, and every pair as likely as any other."""
    assert_uniform(first * num_cells + second, num_cells**2)


def assert_subsets_uniform(chosen: Array, degree: int) -> None:
    """Rows of `chosen` are subsets of range(degree): all of that size equally likely."""
    size = chosen.shape[1]
    assert_uniform(subset_numbers(chosen, degree), comb(degree, size))


def subset_numbers(chosen: Array, degree: int) -> Ids:
    """Each row's number among all subsets of its size; a row with a repetition is no subset."""
    # What is left out is the same information, and the smaller half of it is easier to number.
    mask = np.zeros((len(chosen), degree), bool)
    np.put_along_axis(mask, chosen, True, axis=1)
    assert np.all(mask.sum(axis=1) == chosen.shape[1]), "an edge was chosen twice"
    if 2 * chosen.shape[1] > degree:
        mask = ~mask
    members = np.nonzero(mask)[1].reshape(len(chosen), -1)
    weights = degree ** np.arange(members.shape[1])
    known = {
        int(np.dot(subset, weights)): number
        for number, subset in enumerate(combinations(range(degree), members.shape[1]))
    }
    codes, inverse = np.unique(members @ weights, return_inverse=True)
    return np.array([known[code] for code in codes.tolist()])[inverse]


def assert_marginals_uniform(chosen: Array, degree: int) -> None:
    """Every offset is in as many rows as any other.

    The offsets of a row exclude each other, so counts scatter less than independent ones would, by
    the factor in front: a sum of squares that is chi-square with degree - 1 degrees of freedom.
    """
    num_rows, size = chosen.shape
    share = size / degree
    counts = np.bincount(chosen.reshape(-1), minlength=degree)
    scatter = ((counts - num_rows * share) ** 2).sum() / (num_rows * share * (1 - share))
    assert stats.chi2.sf(scatter * (degree - 1) / degree, degree - 1) > LEAST_P_VALUE


def assert_pair_hypergeometric(chosen: Array, degree: int, one: int, other: int) -> None:
    """Two offsets are in a row together, alone or not at all as often as they should be."""
    num_rows, size = chosen.shape
    has_one, has_other = (chosen == one).any(axis=1), (chosen == other).any(axis=1)
    observed = np.bincount(2 * has_one + has_other, minlength=4)
    neither = comb(degree - 2, size) / comb(degree, size)
    both = comb(degree - 2, size - 2) / comb(degree, size)
    alone = comb(degree - 2, size - 1) / comb(degree, size)
    expected = num_rows * np.array([neither, alone, alone, both])
    assert stats.chisquare(observed, expected).pvalue > LEAST_P_VALUE


def choose(degree: int, fanout: int, key: int, num_nodes: int, *, replace: bool = False) -> Array:
    """The offsets that nodes of one degree give under one hop key: a row for each node."""
    indptr = np.arange(num_nodes + 1) * degree
    adjacency = Adjacency(indptr, np.zeros(num_nodes * degree, np.int32))
    _, _, edge_ids = kernels.draw_hop(adjacency, np.arange(num_nodes), fanout, key, replace=replace)
    return edge_ids.reshape(num_nodes, fanout) - indptr[:-1, None]


def hop_key(seed: int = 0, epoch: int = 0, index: int = 0, hop: int = 0, edge: int = EDGE) -> int:
    return kernels.hop_key(kernels.batch_key(seed, epoch, index), hop, edge)
