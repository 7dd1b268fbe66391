"""Rows of several lists as those of one: against the twin, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.hops import Drawn
from penstock.kernels.merge import merge_rows
from penstock.kernels.twins import merge as twin


@st.composite
def lists(draw: st.DrawFn) -> tuple[int, list[tuple[np.ndarray, Drawn]]]:
    """Nodes shared out among lists, with rows of any length, in 32 or 64 bits."""
    owners = np.array(draw(st.lists(st.integers(0, 4), max_size=30)), np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    found = []
    for owner in np.unique(owners).tolist():
        positions = np.flatnonzero(owners == owner)
        counts = rng.integers(0, 5, len(positions)).astype(np.int32)
        kind = draw(st.sampled_from([np.int32, np.int64]))
        entries = rng.integers(0, 2**31 - 1, (2, int(counts.sum()))).astype(kind)
        found.append((positions, Drawn(counts, entries[0], entries[1])))
    return len(owners), found


@given(lists())
def test_rows_stand_in_the_order_of_all_nodes(
    shared: tuple[int, list[tuple[np.ndarray, Drawn]]],
) -> None:
    count, some = shared
    ours, theirs = merge_rows(count, some), twin.merge_rows(count, some)
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(one, other)


def one(positions: list[int], counts: list[int], entries: int) -> tuple[np.ndarray, Drawn]:
    ids = np.arange(entries, dtype=np.int32)
    return np.array(positions), Drawn(np.array(counts, np.int32), ids, ids)


@pytest.mark.parametrize(
    "some",
    [
        [one([0, 2], [1, 1], 2)],  # a position outside
        [one([-1], [1], 1)],
        [one([0], [1], 1), one([0], [1], 1)],  # a node twice
        [one([0], [2], 1), one([1], [1], 2)],  # entries of another
        [one([0], [-1], 0), one([1], [1], 1)],
    ],
)
def test_lists_that_do_not_fit_are_refused(some: list[tuple[np.ndarray, Drawn]]) -> None:
    with pytest.raises(ValueError, match="a node twice, or other entries"):
        merge_rows(2, some)
