"""Weights and times that are none, memory that cannot take the result, damaged topologies."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.kernels import Adjacency
from penstock.kernels.arrays import Array
from penstock.kernels.prepare import order_by_time, weight_sums
from tests.kernels.strategies import Job
from tests.kernels.test_damage import BAD_OFFSETS, damaged_jobs
from tests.kernels.test_refusals import read_only

OFFSETS = np.array([0, 2, 3, 3])
THREE = Adjacency(OFFSETS, np.array([[1, 2], [2, 0], [0, 1]], np.int32))


@pytest.mark.parametrize("bad", [-1.0, -5e-324, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_a_weight_that_is_none_is_named_by_its_edge(bad: float, dtype: str) -> None:
    weights = np.array([1.0, 0.0, bad]).astype(dtype)
    if weights[2] == 0:
        weights[2] = -1
    with pytest.raises(ValueError, match=r"weights\[2\], of edge 2, is .*expected a finite number"):
        weight_sums(THREE, weights)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8"])
def test_a_negative_integer_is_no_weight(dtype: str) -> None:
    weights = np.array([1, -7, -8], dtype)
    with pytest.raises(ValueError, match=r"weights\[1\], of edge 1, is -7"):
        weight_sums(THREE, weights)


BAD_WEIGHTS = {
    "too few": (np.ones(2), r"one number for each of 3 edges, not shape \[2\]"),
    "too many": (np.ones(4), r"not shape \[4\]"),
    "a table": (np.ones((3, 1)), r"not shape \[3, 1\]"),
    "booleans": (np.ones(3, bool), "must be integers or floats, not bool"),
    "complex numbers": (np.ones(3, complex), "not complex128"),
    "objects": (np.ones(3, object), "not object"),
    "long floats": (np.ones(3, np.longdouble), "not "),
    "times": (np.zeros(3, "M8[s]"), "not datetime64"),
}


@pytest.mark.parametrize(("weights", "message"), BAD_WEIGHTS.values(), ids=BAD_WEIGHTS)
def test_weights_of_another_kind(weights: Array, message: str) -> None:
    with pytest.raises(ValueError, match="^weights.*" + message):
        weight_sums(THREE, weights)


BAD_SUMS = {
    "too short": np.empty(2, np.int64),
    "narrow": np.empty(3, np.int32),
    "a table": np.empty((3, 1), np.int64),
    "read-only": read_only(np.empty(3, np.int64)),
    "with gaps": np.empty(6, np.int64)[::2],
    "a list": [0, 0, 0],
}


@pytest.mark.parametrize("out", BAD_SUMS.values(), ids=BAD_SUMS)
def test_memory_that_cannot_hold_sums(out: Any) -> None:
    with pytest.raises(ValueError, match=r"^out"):
        weight_sums(THREE, np.ones(3), out)


def test_sums_are_not_written_over_the_weights() -> None:
    both = np.ones(3, np.int64)
    with pytest.raises(ValueError, match="share memory"):
        weight_sums(THREE, both, both)
    with pytest.raises(ValueError, match="share memory"):
        order_by_time(THREE, both, out_times=both)


@pytest.mark.parametrize("dtype", ["f4", "f8", "u4", "u8", "i2", "bool", "M8[s]", "object"])
def test_times_of_another_kind_are_refused_by_name(dtype: str) -> None:
    times = np.zeros(3, dtype)
    with pytest.raises(
        ValueError, match=f"^times must be int64 or int32, not {re.escape(str(times.dtype))}"
    ):
        order_by_time(THREE, times)


@pytest.mark.parametrize("times", [np.zeros(2, int), np.zeros(4, int), np.zeros((3, 1), int)])
def test_times_of_another_shape(times: Array) -> None:
    with pytest.raises(ValueError, match=r"^times must have one number for each of 3 edges"):
        order_by_time(THREE, times)


BAD_ENTRIES = {
    "too short": np.empty((2, 2), np.int32),
    "bare": np.empty(3, np.int32),
    "of three": np.empty((3, 3), np.int32),
    "of floats": np.empty((3, 2)),
    "read-only": read_only(np.empty((3, 2), np.int32)),
    "with gaps": np.empty((3, 4), np.int32)[:, ::2],
}


@pytest.mark.parametrize("entries", BAD_ENTRIES.values(), ids=BAD_ENTRIES)
def test_memory_that_cannot_hold_rows_by_time(entries: Array) -> None:
    with pytest.raises((ValueError, TypeError)):
        order_by_time(THREE, np.zeros(3, int), out_entries=entries)


@pytest.mark.parametrize("times", [BAD_SUMS[name] for name in BAD_SUMS], ids=BAD_SUMS)
def test_memory_that_cannot_hold_times(times: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        order_by_time(THREE, np.zeros(3, int), out_times=times)


@pytest.mark.parametrize("entry", [[2**31, 1], [0, 2**31]])
def test_entries_too_narrow_for_an_id(entry: list[int]) -> None:
    adjacency = Adjacency(np.array([0, 2]), np.array([[0, 0], entry]))
    if entry[1] == 1:
        with pytest.raises(ValueError, match="out_entries is int32, which cannot hold all ids"):
            order_by_time(adjacency, np.zeros(2, int), out_entries=np.empty((2, 2), np.int32))
    else:
        with pytest.raises(GraphFormatError, match="damaged topology"):
            order_by_time(adjacency, np.zeros(2, int), out_entries=np.empty((2, 2), np.int32))


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("indptr", [*BAD_OFFSETS.values(), [1, 2, 3, 4, 5], [0, 1, 2, 3, 4]])
def test_bad_offsets(indptr: list[int]) -> None:
    for entries in (np.zeros(5, np.int64), np.zeros((5, 2), np.int32)):
        adjacency = Adjacency(np.array(indptr), entries)
        with pytest.raises(GraphFormatError, match="damaged topology"):
            weight_sums(adjacency, np.ones(5))
        with pytest.raises(GraphFormatError, match="damaged topology"):
            order_by_time(adjacency, np.ones(5, int))


@pytest.mark.parametrize("bad", [-1, 5, 2**31 - 1, -(2**31)])
def test_ids_outside_the_graph(bad: int) -> None:
    indptr = np.array([0, 1, 3, 4, 5])
    ids = np.array([0, 1, bad, 3, 4], np.int32)
    good = np.zeros(5, np.int32)
    by_edge = Adjacency(indptr, np.stack([good, ids], axis=1))
    by_node = Adjacency(indptr, np.stack([ids, good], axis=1))
    with pytest.raises(GraphFormatError, match="damaged topology"):
        weight_sums(by_edge, np.ones(5))
    with pytest.raises(GraphFormatError, match="damaged topology"):
        order_by_time(by_edge, np.ones(5, int))
    with pytest.raises(GraphFormatError, match="damaged topology"):
        order_by_time(by_node, np.ones(5, int), of_nodes=True)


@given(damaged_jobs(), st.booleans())
def test_any_offsets_and_ids_are_prepared_or_refused(job: Job, of_nodes: bool) -> None:
    adjacency = job.edges[0].rows.adjacency
    with suppress(GraphFormatError):
        weight_sums(adjacency, np.ones(adjacency.num_edges))
    times = np.arange(3 if of_nodes else adjacency.num_edges)
    try:
        entries, _ = order_by_time(adjacency, times, of_nodes=of_nodes)
    except GraphFormatError:
        return
    before = np.stack([adjacency.neighbors, adjacency.edge_ids], axis=1)
    assert sorted(entries.tolist()) == sorted(before.tolist())
