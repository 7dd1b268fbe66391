"""Building rows of neighbours, checking ids, digesting: the native code gives the twin's bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock import kernels
from penstock.kernels import reference
from penstock.kernels.arrays import Array
from tests.kernels.strategies import edge_lists, rows_of, same_array

ID_DTYPES = st.sampled_from(["int32", "int64"])
STEPS = st.sampled_from([1, 2, -1, -3])


@st.composite
def strided_ids(draw: st.DrawFn, dtype: str | None = None) -> Array:
    """Ids of any sign, often with a stride, over the blocks in which they are checked."""
    kind = dtype or draw(ID_DTYPES)
    size = draw(st.one_of(st.integers(0, 20), st.sampled_from([4095, 4096, 4097, 9000])))
    info = np.iinfo(kind)
    elements = st.one_of(st.integers(-3, 30), st.integers(int(info.min), int(info.max)))
    ids = draw(hnp.arrays(kind, size, elements=elements, fill=st.integers(0, 5)))
    return ids[:: draw(STEPS)]


@given(strided_ids(), st.one_of(st.integers(0, 40), st.integers(0, 2**63 - 1)))
def test_first_outside_is_the_twins(ids: Array, bound: int) -> None:
    assert kernels.first_outside(ids, bound) == reference.first_outside(ids, bound)


@given(strided_ids(), st.integers(-(2**63), -1))
def test_no_id_is_below_a_negative_bound(ids: Array, bound: int) -> None:
    assert kernels.first_outside(ids, bound) == reference.first_outside(ids, bound)


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 10_000])
def test_first_outside_finds_the_first_of_several(size: int) -> None:
    ids = np.zeros(size, np.int64)
    for position in {0, size // 2, size - 1}:
        ids[position:] = -1
        assert kernels.first_outside(ids, 1) == position
        ids[:] = 0
    assert kernels.first_outside(ids, 1) == -1


@given(strided_ids(), st.booleans())
def test_is_sorted_is_the_twins(ids: Array, sort: bool) -> None:
    ids = np.sort(ids) if sort else ids
    assert kernels.is_sorted(ids) == reference.is_sorted(ids)


@given(st.integers(0, 9), st.integers(0, 9), ID_DTYPES, ID_DTYPES, STEPS, st.data())
def test_filling_paired_rows_is_the_twins(
    num_keys: int, num_values: int, dtype: str, out_dtype: str, step: int, data: st.DataObject
) -> None:
    values, keys = data.draw(edge_lists(num_values, num_keys))
    keys, values = keys.astype(dtype)[::step], values.astype(dtype)[::step]
    assert_fills_alike(keys, values, num_keys, (len(keys), 2), out_dtype)


@given(st.integers(0, 9), st.integers(0, 9), ID_DTYPES, ID_DTYPES, st.data())
def test_filling_bare_rows_is_the_twins(
    num_keys: int, num_values: int, dtype: str, out_dtype: str, data: st.DataObject
) -> None:
    values, keys = data.draw(edge_lists(num_values, num_keys))
    keys, values = np.sort(keys).astype(dtype), values.astype(dtype)
    assert_fills_alike(keys, values, num_keys, (len(keys),), out_dtype)


@pytest.mark.parametrize("size", [31, 32, 33, 63, 64, 65, 66, 1000, 20_000])
def test_filling_across_the_prefetch_distances_is_the_twins(size: int) -> None:
    rng = np.random.default_rng(size)
    keys, values = rng.integers(0, 50, size), rng.integers(0, 2**40, size)
    assert_fills_alike(keys, values, 50, (size, 2), "int64")


def test_filling_takes_the_rows_of_an_edge_index_of_two_types() -> None:
    edge_index = np.array([[5, 6, 7], [1, 0, 1]])
    assert_fills_alike(edge_index[1].astype(np.int32), edge_index[0], 2, (3, 2), "int32")


def assert_fills_alike(
    keys: Array, values: Array, num_keys: int, shape: tuple[int, ...], dtype: str
) -> None:
    results = []
    for fill in (kernels.fill_adjacency, reference.fill_adjacency):
        indptr, adjacency = np.full(num_keys + 1, -7, np.int64), np.full(shape, -7, dtype)
        fill(keys, values, indptr, adjacency)
        results.append((indptr, adjacency))
    same_array(results[0][0], results[1][0])
    same_array(results[0][1], results[1][1])


@given(st.integers(0, 9), st.integers(0, 9), st.booleans(), ID_DTYPES, ID_DTYPES, st.data())
def test_the_transpose_is_the_twins(
    num_sources: int,
    num_destinations: int,
    paired: bool,
    dtype: str,
    out_dtype: str,
    data: st.DataObject,
) -> None:
    edges = data.draw(edge_lists(num_sources, num_destinations))
    rows = rows_of(*edges, num_destinations, paired=paired, dtype=dtype)
    results = []
    for transpose in (kernels.transpose, reference.transpose):
        indptr = np.full(num_sources + 1, -7, np.int64)
        entries = np.full((len(rows.entries), 2), -7, out_dtype)
        transpose(rows.indptr, rows.entries, indptr, entries)
        results.append((indptr, entries))
    same_array(results[0][0], results[1][0])
    same_array(results[0][1], results[1][1])


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_transposing_twice_gives_the_graph_back(
    num_sources: int, num_destinations: int, data: st.DataObject
) -> None:
    edges = data.draw(edge_lists(num_sources, num_destinations))
    rows = rows_of(*edges, num_destinations, paired=True, dtype="int32")
    indptr, entries = np.empty(num_sources + 1, np.int64), np.empty_like(rows.entries)
    kernels.transpose(rows.indptr, rows.entries, indptr, entries)
    back_indptr, back_entries = np.empty_like(rows.indptr), np.empty_like(rows.entries)
    kernels.transpose(indptr, entries, back_indptr, back_entries)
    same_array(back_indptr, rows.indptr)
    same_array(back_entries, rows.entries)


@given(st.binary(max_size=300), st.integers(0, 7))
def test_digests_are_the_twins(data: bytes, skip: int) -> None:
    array = np.frombuffer(data, np.uint8)[skip:]  # also where the bytes begin at an odd address
    assert kernels.digest(array) == reference.digest(array)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float32", "complex128"])
def test_digests_see_bytes_whatever_the_type(dtype: str) -> None:
    array = np.arange(30).reshape(2, 3, 5).astype(dtype)
    assert kernels.digest(array) == reference.digest(array)
    assert kernels.digest(array) == kernels.digest(array.reshape(-1).view(np.uint8))


def test_a_digest_changes_with_every_bit() -> None:
    data = np.arange(200, dtype=np.uint8)
    digests = {kernels.digest(data)}
    for position in range(8 * len(data)):
        flipped = data.copy()
        flipped[position // 8] ^= 1 << position % 8
        digests.add(kernels.digest(flipped))
    assert len(digests) == 8 * len(data) + 1


def test_a_digest_changes_when_stripes_or_words_change_places() -> None:
    data = np.arange(4 * 64, dtype=np.uint8)
    words = data.view(np.uint64)
    variants = [data, data[::-1].copy(), np.roll(data, 64), np.roll(words, 1), np.roll(data, 1)]
    assert len({kernels.digest(variant) for variant in variants}) == len(variants)


def test_zeros_of_different_lengths_have_different_digests() -> None:
    assert len({kernels.digest(np.zeros(size, np.uint8)) for size in range(300)}) == 300
