"""What weighted and temporal choices need once per graph: the twin's bytes, and what they mean."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels import Adjacency
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.prepare import order_by_time, weight_sums
from penstock.kernels.twins import times as time_twin
from penstock.kernels.twins import weights as weight_twin
from tests.kernels.large import degrees_around, rows_with_degrees
from tests.kernels.strategies import Rows, any_rows, same_array

WEIGHT_TYPES = [f"i{size}" for size in (1, 2, 4, 8)] + ["u1", "u4", "u8", "f2", "f4", "f8"]
GREATEST, LEAST = 1.7976931348623157e308, 5e-324


def one_row(weights: Array) -> Ids:
    """The sums of one row that has all the weights, in order."""
    return weight_sums(
        Adjacency(np.array([0, len(weights)]), np.zeros(len(weights), "i4")), weights
    )


def units(weights: Array) -> list[int]:
    return np.diff(one_row(weights), prepend=0).tolist()


@st.composite
def any_weights(draw: st.DrawFn, count: int) -> Array:
    dtype = np.dtype(draw(st.sampled_from(WEIGHT_TYPES)))
    if dtype.kind == "f":
        width = 8 * dtype.itemsize
        number = st.floats(0, width=width, allow_infinity=False, allow_nan=False)
        likely = st.sampled_from([0.0, 1.0, 0.5, 3.0])
        return np.array(draw(st.lists(likely | number, min_size=count, max_size=count)), dtype)
    numbers = st.integers(0, 3) | st.integers(0, int(np.iinfo(dtype).max))
    return np.array(draw(st.lists(numbers, min_size=count, max_size=count)), dtype)


@st.composite
def weighted_rows(draw: st.DrawFn) -> tuple[Rows, Array]:
    rows = draw(any_rows(draw(st.integers(0, 9)), draw(st.integers(0, 9))))
    return rows, draw(any_weights(len(rows.entries)))


# --- running sums of weights --------------------------------------------------------------------


@given(weighted_rows())
def test_sums_are_the_twins(case: tuple[Rows, Array]) -> None:
    rows, weights = case
    same_array(
        weight_sums(rows.adjacency, weights),
        weight_twin.weight_sums(rows.indptr, rows.edge_ids, weights),
    )


@given(weighted_rows())
def test_a_sum_grows_exactly_where_there_is_weight(case: tuple[Rows, Array]) -> None:
    rows, weights = case
    sums = weight_sums(rows.adjacency, weights)
    by_position = weights[rows.edge_ids]
    for begin, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        grown = np.diff(sums[begin:end], prepend=0)
        assert ((grown > 0) == (by_position[begin:end] > 0)).all()
        assert (grown >= 0).all()
        assert not grown.any() or 2**58 < sums[end - 1] < 2**61


@given(st.lists(st.integers(0, 2**53 - 1), min_size=1, max_size=20))
def test_integers_keep_their_ratios_exactly(weights: list[int]) -> None:
    sums = one_row(np.array(weights)).tolist()
    exact = np.cumsum(weights).tolist()
    assert [sum_ * exact[-1] for sum_ in sums] == [sum_ * sums[-1] for sum_ in exact]


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=20).filter(any))
def test_ratios_of_floats_are_off_by_no_more_than_a_unit(weights: list[float]) -> None:
    total = sum(map(Fraction, weights))
    scale = Fraction(one_row(np.array(weights)).tolist()[-1]) / total
    for weight, unit in zip(weights, units(np.array(weights)), strict=True):
        assert abs(unit - Fraction(weight) * scale) <= 1 + Fraction(weight) / total * len(weights)


@pytest.mark.parametrize(
    "weights",
    [
        [GREATEST] * 40,
        [LEAST],
        [LEAST, LEAST * 2, 0.0, LEAST * 3],
        [GREATEST, LEAST],
        [1e-300] * 3 + [1e300],
        [0.0, 0.0],
        [-0.0, 1.0],
        [2.0**-1074, 2.0**-1022],
        [2.0**1023, 2.0**963, 2.0**900],
    ],
)
def test_weights_at_the_ends_of_what_floats_can_say(weights: list[float]) -> None:
    array = np.array(weights)
    twin = weight_twin.weight_sums(np.array([0, len(array)]), np.arange(len(array)), array)
    same_array(one_row(array), twin)
    assert [unit > 0 for unit in units(array)] == [weight > 0 for weight in weights]


def test_a_weight_too_small_to_count_is_one_unit() -> None:
    heavy, light, none = units(np.array([1e30, 1e-30, 0.0]))
    assert heavy >= 2**59
    assert (light, none) == (1, 0)


def test_equal_weights_give_equal_steps() -> None:
    for weight in (0.1, 1, 1e-40, 7):
        steps = units(np.full(1000, weight))
        assert len(set(steps)) == 1
        assert 2**58 < sum(steps) < 2**61


def test_rows_are_scaled_each_by_itself() -> None:
    indptr, entries = np.array([0, 2, 2, 4]), np.zeros(4, np.int32)
    sums = weight_sums(
        Adjacency(indptr, entries), np.array([2**-30, 3 * 2**-30, 2.0**30, 3 * 2.0**30])
    )
    assert (4 * sums[[0, 2]] == sums[[1, 3]]).all()
    assert (sums[[1, 3]] > 2**58).all()


def test_weights_are_looked_up_by_edge_id() -> None:
    entries = np.array([[9, 2], [9, 0], [9, 1]], np.int32)
    sums = weight_sums(Adjacency(np.array([0, 2, 3]), entries), np.array([0, 5, 1]))
    assert sums[0] == sums[1] == 2**59
    assert sums[2] > 2**58


def test_sums_of_many_edges() -> None:
    rows = rows_with_degrees(degrees_around(20, 300), 1000, seed=2)
    weights = np.random.default_rng(0).random(len(rows.entries)) ** 9
    twin = weight_twin.weight_sums(rows.indptr, rows.edge_ids, weights)
    same_array(weight_sums(rows.adjacency, weights), twin)


def test_sums_go_where_they_are_wanted() -> None:
    adjacency, out = Adjacency(np.array([0, 2]), np.zeros(2, "i4")), np.empty(2, np.int64)
    assert weight_sums(adjacency, np.array([1, 1]), out) is out
    assert out[1] == 2 * out[0] > 0


@pytest.mark.parametrize("change", [lambda w: np.repeat(w, 3)[::3], lambda w: w.astype(">f8")])
def test_weights_laid_out_in_any_way(change: Any) -> None:
    weights = np.array([0.25, 3.0, 0.0, 7.5])
    same_array(one_row(change(weights)), one_row(weights))


def test_bfloat16_is_read_as_such_where_it_is_said_to_be() -> None:
    weights = np.array([0.25, 3.0, 0.0, 7.5], np.float32)
    halves = (weights.view(np.uint32) >> 16).astype(np.uint16)
    adjacency = Adjacency(np.array([0, 4]), np.zeros(4, "i4"))
    same_array(weight_sums(adjacency, halves, dtype="bfloat16"), one_row(weights))
    integers = weight_sums(adjacency, halves, dtype="uint16")
    same_array(integers, one_row(halves.astype(np.int64)))
    with pytest.raises(ValueError, match="16-bit integers: dtype must say"):
        weight_sums(adjacency, halves)


# --- rows in the order of time --------------------------------------------------------------------


@st.composite
def timed_rows(draw: st.DrawFn) -> tuple[Rows, Array, bool]:
    num_found = draw(st.integers(0, 9))
    rows, of_nodes = draw(any_rows(num_found, draw(st.integers(0, 9)))), draw(st.booleans())
    count = num_found if of_nodes else len(rows.entries)
    dtype = draw(st.sampled_from(["i4", "i8"]))
    info = np.iinfo(dtype)
    number = st.integers(-2, 3) | st.integers(int(info.min), int(info.max))
    return rows, np.array(draw(st.lists(number, min_size=count, max_size=count)), dtype), of_nodes


@given(timed_rows())
def test_rows_by_time_are_the_twins(case: tuple[Rows, Array, bool]) -> None:
    rows, times, of_nodes = case
    entries, sorted_times = order_by_time(rows.adjacency, times, of_nodes=of_nodes)
    twin = time_twin.order_by_time(
        rows.indptr, rows.neighbors, rows.edge_ids, times, of_nodes=of_nodes
    )
    np.testing.assert_array_equal(entries, twin[0])
    same_array(sorted_times, twin[1])


@given(timed_rows())
def test_rows_keep_their_edges_and_lose_their_disorder(case: tuple[Rows, Array, bool]) -> None:
    rows, times, of_nodes = case
    entries, sorted_times = order_by_time(rows.adjacency, times, of_nodes=of_nodes)
    before = np.stack([rows.neighbors, rows.edge_ids], axis=1)
    for begin, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        assert sorted(before[begin:end].tolist()) == sorted(entries[begin:end].tolist())
        assert (np.diff(sorted_times[begin:end].astype(object)) >= 0).all()
        owners = entries[begin:end, 0 if of_nodes else 1]
        assert sorted_times[begin:end].tolist() == times[owners].tolist()


def test_equal_times_stay_in_storage_order() -> None:
    adjacency = Adjacency(np.array([0, 5, 6]), np.arange(6, dtype=np.int32)[::-1].copy())
    entries, times = order_by_time(adjacency, np.array([4, 1, 4, 1, 0, 9]))
    assert entries.tolist() == [[1, 4], [4, 1], [2, 3], [5, 0], [3, 2], [0, 5]]
    assert times.tolist() == [0, 1, 1, 4, 4, 9]


def test_many_rows_by_time() -> None:
    rows = rows_with_degrees(degrees_around(20, 300), 1000, seed=2)
    for of_nodes, count in ((False, len(rows.entries)), (True, 1000)):
        times = np.random.default_rng(0).integers(0, 50, count)
        entries, sorted_times = order_by_time(rows.adjacency, times, of_nodes=of_nodes)
        twin = time_twin.order_by_time(
            rows.indptr, rows.neighbors, rows.edge_ids, times, of_nodes=of_nodes
        )
        same_array(entries, twin[0])
        same_array(sorted_times, twin[1])


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_rows_by_time_go_where_they_are_wanted(dtype: str) -> None:
    adjacency = Adjacency(np.array([0, 2]), np.array([[7, 1], [8, 0]]))
    entries, times = np.empty((2, 2), dtype), np.empty(2, np.int64)
    given_back = order_by_time(adjacency, np.array([1, 2]), out_entries=entries, out_times=times)
    assert given_back[0] is entries
    assert given_back[1] is times
    assert (entries.tolist(), times.tolist()) == ([[8, 0], [7, 1]], [1, 2])
