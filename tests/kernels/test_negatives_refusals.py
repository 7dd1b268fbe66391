"""What the kernels of negatives refuse, by name, and damage that they notice."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.kernels import Adjacency, _native
from penstock.kernels.arrays import Array
from penstock.kernels.negatives import Candidates, Negatives, SortedRows, draw_negatives, sort_rows

MOST, LEAST = 2**63 - 1, -(2**63)
OFFSETS = st.integers(-2, 9) | st.sampled_from([LEAST, LEAST + 1, MOST - 1, MOST])


def strict(indptr: Array, neighbors: Array, *, count: int = 200) -> Negatives:
    size = len(indptr) - 1
    ends = np.zeros(1, np.int64)
    return draw_negatives(
        1,
        ends,
        ends,
        count,
        source=Candidates(size),
        destination=Candidates(size),
        edges=SortedRows(indptr, neighbors),
    )


@pytest.mark.parametrize("indptr", [[0, 1, 9, 5], [0, -1, 3, 5], [0, 4, 2, 5], [LEAST, 1, 2, MOST]])
def test_offsets_that_point_outside_are_noticed(indptr: list[int]) -> None:
    with pytest.raises(GraphFormatError, match="damaged topology"):
        strict(np.array(indptr), np.array([0, 1, 2, 0, 1], np.int32))
    with pytest.raises(GraphFormatError, match="damaged topology"):
        sort_rows(Adjacency(np.array(indptr), np.zeros(5, np.int32)), np.empty(5, np.int32))


@given(st.lists(OFFSETS, min_size=2, max_size=6), st.lists(st.integers(-9, 9), max_size=8))
def test_any_offsets_and_neighbours_give_nodes_or_are_refused(
    offsets: list[int], neighbors: list[int]
) -> None:
    indptr, entries = np.array(offsets, np.int64), np.array(neighbors, np.int64)
    try:
        result = strict(indptr, entries)
    except GraphFormatError:
        return
    assert result.sources is not None
    for ids in (result.sources, result.destinations):
        assert np.all((ids >= 0) & (ids < len(indptr) - 1))


@given(st.lists(OFFSETS, min_size=1, max_size=6), st.lists(st.integers(-9, 9), max_size=8))
def test_any_offsets_are_sorted_within_their_rows_or_refused(
    offsets: list[int], neighbors: list[int]
) -> None:
    adjacency = Adjacency(np.array(offsets, np.int64), np.array(neighbors, np.int64))
    out = np.full(len(neighbors), 99)
    try:
        sort_rows(adjacency, out)
    except GraphFormatError:
        return
    assert sorted(out.tolist()) == sorted(neighbors)
    for begin, end in pairwise(offsets):
        assert out[begin:end].tolist() == sorted(neighbors[begin:end])


def draw(**changes: object) -> Negatives:
    ends = np.zeros(1, np.int64)
    options: dict[str, object] = {
        "key": 1,
        "sources": ends,
        "destinations": ends,
        "count": 3,
        "source": Candidates(4),
        "destination": Candidates(4),
    }
    return draw_negatives(**(options | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": -1}, r"key is -1; expected an integer"),
        ({"count": -1}, r"count is -1; expected an integer"),
        ({"count": 1.5}, r"count is 1.5; expected an integer"),
        ({"sources": np.array([4])}, r"sources\[0\] is 4; expected 0 <= id < 4"),
        ({"destinations": np.array([-1])}, r"destinations\[0\] is -1; expected 0 <= id < 4"),
        ({"sources": np.array([0.5])}, r"sources must be integers, not float64"),
        ({"sources": np.array([0, 1])}, r"must be of one length"),
        ({"times": np.array([0, 1])}, r"must be of one length"),
        ({"sources": np.empty(0, int), "destinations": np.empty(0, int)}, r"none is given"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw(**changes)


def test_nodes_with_times_need_edges_with_times() -> None:
    for end in ("source", "destination"):
        with pytest.raises(ValueError, match="need edges with times"):
            draw(**{end: Candidates(4, times=np.arange(4))})


def test_edges_of_other_destinations_are_refused() -> None:
    with pytest.raises(ValueError, match="one row per destination"):
        draw(edges=SortedRows(np.zeros(4, np.int64), np.empty(0, np.int32)))


@pytest.mark.parametrize(
    ("sums", "times", "message"),
    [
        ([1, 2, 3], None, r"sums must be int64 of shape \[4\], not int64 \[3\]"),
        ([1.0, 2.0, 3.0, 4.0], None, r"sums must be int64 of shape \[4\], not float64"),
        ([1, 3, 2, 4], None, r"weights that are not negative"),
        ([-1, 3, 3, 4], None, r"weights that are not negative"),
        ([0, 0, 0, 0], None, r"no node has a weight"),
        (None, [1, 2], r"times must be int64 of shape \[4\], not int64 \[2\]"),
        (None, [1.5, 2, 3, 4], r"times must be int64 of shape \[4\], not float64"),
    ],
)
def test_candidates_that_cannot_be_drawn_from_are_refused(
    sums: list[int] | None, times: list[int] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Candidates(
            4,
            None if sums is None else np.array(sums),
            None if times is None else np.array(times),
        )


def test_nothing_is_drawn_from_nobody() -> None:
    ends = np.zeros(1, np.int64)
    nobody, somebody = Candidates(0).native, Candidates(4).native
    for source, destination in ((somebody, nobody), (nobody, somebody)):
        with pytest.raises(ValueError, match="there is no node to draw"):
            _native.draw_negatives(
                1, ends, ends, source, destination, None, None, np.empty(3, int), np.empty(3, int)
            )


def test_rows_are_not_sorted_into_memory_too_narrow_or_too_short() -> None:
    adjacency = Adjacency(np.array([0, 2]), np.array([2**40, 1]))
    with pytest.raises(ValueError, match="out is int32; the neighbours are int64"):
        sort_rows(adjacency, np.empty(2, np.int32))
    with pytest.raises(ValueError, match="one entry per edge"):
        sort_rows(adjacency, np.empty(3, np.int64))


def test_rows_are_not_sorted_in_place() -> None:
    entries = np.array([2, 1])
    with pytest.raises(ValueError, match="must not share memory"):
        sort_rows(Adjacency(np.array([0, 2]), entries), entries)


def test_rows_of_another_type_are_refused() -> None:
    with pytest.raises(ValueError, match="expected int64, and int32 or int64"):
        SortedRows(np.zeros(2, np.int64), np.empty(0, np.int16))
