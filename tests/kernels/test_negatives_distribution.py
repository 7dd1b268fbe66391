"""Every negative is as likely as it should be. CONTRACT 46 lives on that as much as on shapes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from penstock import kernels
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.negatives import Candidates, SortedRows, draw_negatives
from tests.kernels.chi_square import LEAST_P_VALUE, assert_independent, assert_uniform
from tests.kernels.strategies import rows_of

pytestmark = pytest.mark.statistics


def drawn_often(
    count: int,
    source: Candidates | None,
    destination: Candidates,
    *,
    batches: int = 8,
    positives: Array | None = None,
    times: Array | None = None,
    edges: SortedRows | None = None,
) -> tuple[Ids, Ids]:
    """Sources (of the edges given, for triplets) and destinations, over several batches."""
    given = np.zeros((2, 1), np.int64) if positives is None else positives
    parts = [
        draw_negatives(
            kernels.batch_key(3, 1, index),
            given[0],
            given[1],
            count // batches,
            source=source,
            destination=destination,
            times=times,
            edges=edges,
        )
        for index in range(batches)
    ]
    sources = [
        np.resize(given[0], count // batches) if p.sources is None else p.sources for p in parts
    ]
    return np.concatenate(sources), np.concatenate([part.destinations for part in parts])


def assert_shares(cells: Ids, shares: Array) -> None:
    """Cell i is hit in proportion to share i, and one of no share never."""
    counts = np.bincount(cells, minlength=len(shares))
    assert counts[shares == 0].sum() == 0
    there = shares > 0
    expected = len(cells) * shares[there] / shares.sum()
    assert expected.min() > 10
    assert stats.chisquare(counts[there], expected).pvalue > LEAST_P_VALUE


@pytest.mark.parametrize("size", [2, 7, 1000])
def test_destinations_are_uniform(size: int) -> None:
    _, destinations = drawn_often(40_000, None, Candidates(size))
    assert_uniform(destinations, size)


def test_both_ends_of_a_pair_are_uniform_and_independent() -> None:
    sources, destinations = drawn_often(40_000, Candidates(20), Candidates(20))
    assert_independent(sources, destinations, 20)


def test_negatives_that_follow_each_other_are_independent() -> None:
    _, destinations = drawn_often(40_000, None, Candidates(20))
    assert_independent(destinations[:-1:2], destinations[1::2], 20)


def test_ends_are_drawn_in_proportion_to_their_weights() -> None:
    weights = np.array([3, 0, 1, 0, 0, 10, 5, 1, 0])
    nodes = Candidates(9, np.cumsum(weights))
    sources, destinations = drawn_often(40_000, nodes, nodes)
    assert_shares(sources, weights)
    assert_shares(destinations, weights)
    assert_shares(sources * 9 + destinations, np.outer(weights, weights).reshape(-1))


def test_weights_of_many_nodes() -> None:
    weights = np.random.default_rng(2).integers(0, 6, 500)
    _, destinations = drawn_often(100_000, None, Candidates(500, np.cumsum(weights)))
    assert_shares(destinations, weights)


def test_strict_pairs_are_uniform_over_all_that_are_no_edges() -> None:
    size = 12
    is_edge = np.random.default_rng(4).random((size, size)) < 0.6
    sources, destinations = drawn_often(
        60_000, Candidates(size), Candidates(size), edges=sorted_rows(is_edge)
    )
    free = ~is_edge
    free[0, 0] = False  # the edge they stand against
    assert_shares(sources * size + destinations, free.reshape(-1).astype(int))


def test_strict_destinations_are_in_proportion_to_their_weights_among_those_left() -> None:
    size = 12
    rng = np.random.default_rng(6)
    is_edge, weights = rng.random((size, size)) < 0.5, rng.integers(0, 5, size)
    positives = np.array([[3, 8], [0, 0]])
    sources, destinations = drawn_often(
        60_000,
        None,
        Candidates(size, np.cumsum(weights)),
        positives=positives,
        edges=sorted_rows(is_edge),
    )
    is_edge[3, 0] = is_edge[8, 0] = True
    for source in (3, 8):
        assert_shares(destinations[sources == source], weights * ~is_edge[source])


def test_temporal_ends_are_uniform_over_those_in_time() -> None:
    size = 10
    nodes = Candidates(size, times=np.arange(size))
    sources, destinations = drawn_often(
        40_000, nodes, nodes, positives=np.zeros((2, 2), np.int64), times=np.array([3, 7])
    )
    for k, limit in enumerate((3, 7)):
        in_time = (np.arange(size) <= limit).astype(int)
        assert_shares(sources[k::2], in_time)
        assert_shares(destinations[k::2], in_time)


def sorted_rows(is_edge: Array) -> SortedRows:
    sources, destinations = np.nonzero(is_edge)
    rows = rows_of(sources, destinations, is_edge.shape[1], paired=False, dtype="int32")
    return SortedRows(rows.indptr, rows.entries)
