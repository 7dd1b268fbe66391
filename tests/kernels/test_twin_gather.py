"""Gathering rows and copying bytes: as NumPy does it, byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import kernels
from penstock.kernels import reference
from penstock.kernels.arrays import Array
from penstock.kernels.gather import Rows, move_rows
from tests.kernels.strategies import same_array

DTYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "int64", "uint64",
    "float16", "float32", "float64", "complex128", ">f4", "S3", "M8[s]",
]  # fmt: skip


def table(num_rows: int, row_bytes: int) -> Array:
    rng = np.random.default_rng(row_bytes)
    return rng.integers(0, 256, (num_rows, row_bytes), np.uint8)


@given(
    num_rows=st.integers(1, 40),
    row_bytes=st.integers(0, 600),
    picks=st.lists(st.integers(0, 39), max_size=60),
    step=st.sampled_from([1, 2, -1, -3]),
)
def test_rows_of_any_width_by_strided_ids(
    num_rows: int, row_bytes: int, picks: list[int], step: int
) -> None:
    rows = table(num_rows, row_bytes)
    ids = (np.array(picks, np.int64) % num_rows)[::step]
    same_array(kernels.gather_rows(rows, ids), reference.gather_rows(rows, ids))


@pytest.mark.parametrize("row_bytes", [*range(70), 127, 128, 129, 400, 600, 1023, 1024, 1025, 5000])
def test_every_width_around_cache_lines_and_machine_words(row_bytes: int) -> None:
    rows = table(50, row_bytes)
    ids = np.random.default_rng(0).integers(0, 50, 40)
    same_array(kernels.gather_rows(rows, ids), rows[ids])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(9,), (9, 3), (9, 2, 5), (9, 0), (9, 1, 1)])
def test_every_type_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    rows = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    ids = np.array([8, 0, 0, 5])
    same_array(kernels.gather_rows(rows, ids), rows[ids])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int32", "int64", ">i8"])
def test_ids_of_every_integer_type(dtype: str) -> None:
    rows = table(9, 12)
    ids = np.array([8, 0, 3], dtype)
    same_array(kernels.gather_rows(rows, ids), rows[[8, 0, 3]])


def test_rows_are_written_where_the_caller_says() -> None:
    rows, memory = table(9, 12), np.full((6, 12), 77, np.uint8)
    out = memory[1:4]
    assert kernels.gather_rows(rows, np.array([8, 0, 3]), out) is out
    same_array(memory[1:4], rows[[8, 0, 3]])
    assert np.all(memory[0] == 77)
    assert np.all(memory[4:] == 77)


def test_nothing_is_written_when_an_id_is_out_of_range() -> None:
    out = np.full((3, 12), 77, np.uint8)
    with pytest.raises(ValueError, match=r"ids\[1\] is 9; expected 0 <= id < 9"):
        kernels.gather_rows(table(9, 12), np.array([0, 9, -1]), out)
    assert np.all(out == 77)


def test_ids_are_checked_also_when_rows_have_no_bytes() -> None:
    with pytest.raises(ValueError, match=r"ids\[2\] is -1"):
        kernels.gather_rows(np.empty((9, 0)), np.array([0, 8, -1]))


def test_read_only_and_mapped_rows_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", table(9, 12))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    same_array(kernels.gather_rows(rows, np.array([8, 0])), np.asarray(rows)[[8, 0]])


def test_rows_beyond_four_gigabytes_are_found(tmp_path: Path) -> None:
    # A sparse file: only the rows written take room.
    rows = np.memmap(tmp_path / "rows", np.uint8, "w+", shape=(2**23, 600))
    ids = np.array([2**23 - 1, 2**32 // 600 + 1, 0, 5])
    rows[ids] = table(4, 600)
    same_array(kernels.gather_rows(rows, ids), table(4, 600))


# --- bytes ----------------------------------------------------------------------------------------

LARGE = 512 << 10  # copied past the caches, from here on


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 4096, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE])
@pytest.mark.parametrize("to", [0, 1, 16, 63])
@pytest.mark.parametrize("at", [0, 7])
def test_bytes_are_copied_from_anywhere_to_anywhere(nbytes: int, to: int, at: int) -> None:
    source = np.random.default_rng(nbytes).integers(0, 256, at + nbytes, np.uint8)[at:]
    source.flags.writeable = False
    ours, theirs = np.full((2, nbytes + 128), 77, np.uint8)
    kernels.copy_bytes(source, ours[to : to + nbytes])
    reference.copy_bytes(source, theirs[to : to + nbytes])
    same_array(ours, theirs)


@pytest.mark.parametrize("nbytes", [100, 2 * LARGE])
def test_bytes_are_not_copied_onto_themselves_nor_to_where_they_do_not_fit(nbytes: int) -> None:
    memory = np.arange(2 * nbytes).astype(np.uint8)
    before = memory.copy()
    with pytest.raises(ValueError, match="memory"):
        kernels.copy_bytes(memory[:nbytes], memory[10 : nbytes + 10])
    with pytest.raises(ValueError, match="length"):
        kernels.copy_bytes(memory[:nbytes], memory[nbytes:-1])
    same_array(memory, before)


@given(
    num_rows=st.integers(1, 40),
    row_bytes=st.integers(0, 600),
    picks=st.lists(st.integers(0, 39), max_size=60),
    step=st.sampled_from([1, 2, -1, -3]),
)
def test_rows_of_any_width_to_strided_positions(
    num_rows: int, row_bytes: int, picks: list[int], step: int
) -> None:
    positions = (np.array(picks, np.int64) % num_rows)[::step]
    rows, out = table(len(positions), row_bytes), table(num_rows, row_bytes) ^ 255
    expected = out.copy()
    reference.scatter_rows(rows, positions, expected)
    kernels.scatter_rows(rows, positions, out)
    same_array(out, expected)


@pytest.mark.parametrize("row_bytes", [*range(70), 127, 128, 129, 400, 1024, 5000])
def test_scattering_is_the_inverse_of_gathering(row_bytes: int) -> None:
    rows = table(50, row_bytes)
    order = np.random.default_rng(0).permutation(50)
    out = np.zeros_like(rows)
    kernels.scatter_rows(kernels.gather_rows(rows, order), order, out)
    same_array(out, rows)


@pytest.mark.parametrize("row_bytes", [255, 256, 257, 319, 320, 321, 400, 1000, 1024, 4099])
@pytest.mark.parametrize("askew", [0, 1, 16, 63])
def test_many_long_rows_go_where_they_belong_and_nowhere_else(row_bytes: int, askew: int) -> None:
    count = 2 * LARGE // row_bytes
    memory = np.full(3 * count * row_bytes + 64, 77, np.uint8)
    out = memory[askew : askew + 3 * count * row_bytes].reshape(-1, row_bytes)
    expected = out.copy()
    # Some stand twice, and the later row counts.
    positions = np.random.default_rng(1).integers(0, 3 * count, count)
    rows = table(count, row_bytes)
    reference.scatter_rows(rows, positions, expected)
    kernels.scatter_rows(rows, positions, out)
    same_array(out, expected)
    assert np.all(memory[:askew] == 77)
    assert np.all(memory[askew + out.nbytes :] == 77)


@given(
    num_rows=st.integers(1, 40),
    row_bytes=st.sampled_from([0, 1, 4, 100, 5000]),
    picks=st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=200),
)
def test_rows_are_moved_as_numpy_moves_them(
    num_rows: int, row_bytes: int, picks: list[tuple[int, int]]
) -> None:
    ids, positions = np.array(picks, np.int64).reshape(-1, 2).T % num_rows
    rows, out = table(num_rows, row_bytes), table(num_rows, row_bytes) ^ 255
    expected = out.copy()
    reference.scatter_rows(rows[ids], positions, expected)
    move_rows(Rows(rows), ids, positions, out)
    same_array(out, expected)


def test_rows_are_moved_within_an_array() -> None:
    count = 1000
    out = table(2 * count, 700)  # more than are moved at once
    expected = out.copy()
    expected[count:] = expected[:count][::-1]
    move_rows(Rows(out), np.arange(count)[::-1], np.arange(count, 2 * count), out)
    same_array(out, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3,), (3, 3), (3, 2, 5), (3, 0)])
def test_every_type_and_shape_is_scattered(dtype: str, shape: tuple[int, ...]) -> None:
    rows = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    out = np.zeros((9, *shape[1:]), dtype)
    kernels.scatter_rows(rows, np.array([8, 0, 5]), out)
    same_array(out[[8, 0, 5]], rows)
    same_array(np.delete(out, [8, 0, 5], axis=0), np.zeros((6, *shape[1:]), dtype))


@pytest.mark.parametrize("bad", [-1, 9, 2**62])
def test_a_position_outside_is_named_and_nothing_is_written(bad: int) -> None:
    out = np.zeros((9, 2))
    with pytest.raises(ValueError, match=rf"positions\[1\] is {bad}; expected 0 <= position < 9"):
        kernels.scatter_rows(np.ones((2, 2)), np.array([3, bad]), out)
    assert not out.any()


@pytest.mark.parametrize(
    "rows", [np.ones((3, 2)), np.ones((2, 3)), np.ones((2, 2), np.float32), np.ones(2)]
)
def test_rows_that_do_not_fit_the_output_are_refused(rows: Array) -> None:
    with pytest.raises(ValueError, match=r"rows must be float64 of shape \[2, 2\]"):
        kernels.scatter_rows(rows, np.array([3, 1]), np.zeros((9, 2)))


def test_rows_are_not_scattered_over_themselves() -> None:
    memory = np.zeros((9, 2))
    with pytest.raises(ValueError, match="must not share memory"):
        kernels.scatter_rows(memory[:2], np.array([3, 1]), memory)
