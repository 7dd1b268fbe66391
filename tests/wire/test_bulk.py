"""Arrays in parts, and put together again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from penstock.errors import ProtocolError
from penstock.wire.bulk import MOST_ARRAYS, Assembly, pack
from penstock.wire.remote import ArrayInfo, Bulk

DTYPES = st.sampled_from(["int64", "float32", "uint8", "bool", "float64", "int16"])
SHAPES = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9)


@given(
    st.lists(DTYPES.flatmap(lambda dtype: npst.arrays(dtype, SHAPES)), max_size=5),
    st.integers(1, 200),
)
def test_arrays_come_out_as_they_went_in(given: list[Any], piece: int) -> None:
    arrays = {f"array {number}": array for number, array in enumerate(given)}
    packed = pack(arrays)
    assembly = Assembly(packed.bulk)
    for offset, data in packed.parts(piece):
        assert not assembly.complete
        assert data.nbytes <= piece
        assembly.add(offset, data)
    assert assembly.complete
    for name, array in assembly.arrays().items():
        assert (array.dtype, array.shape) == (arrays[name].dtype, arrays[name].shape)
        assert array.tobytes() == arrays[name].tobytes()


def test_arrays_that_lie_apart_are_sent_in_order() -> None:
    matrix = np.arange(12).reshape(3, 4)
    packed = pack({"turned": matrix.T})
    assembly = Assembly(packed.bulk)
    for offset, data in packed.parts():
        assembly.add(offset, data)
    assert np.array_equal(assembly.arrays()["turned"], matrix.T)


def test_nothing_is_copied_when_arrays_are_packed() -> None:
    array = np.zeros(10)
    ((_, data),) = pack({"x": array}).parts()
    array[0] = 1.0
    assert np.frombuffer(data, np.float64)[0] == 1.0


def test_sixteen_bits_may_be_said_to_be_bfloat16() -> None:
    packed = pack({"x": np.arange(3, dtype=np.uint16)}, {"x": "bfloat16"})
    assert packed.bulk.arrays[0].dtype == "bfloat16"


@pytest.mark.parametrize(
    ("bulk", "words"),
    [
        (Bulk(arrays=(ArrayInfo("x", "int64", (2,), 0),), nbytes=8), "ends at 16"),
        (Bulk(arrays=(ArrayInfo("x", "int64", (-2,), 0),), nbytes=8), "cannot be"),
        (Bulk(arrays=(ArrayInfo("x", "object", (1,), 0),), nbytes=8), "cannot be"),
        (Bulk(arrays=(ArrayInfo("x", "int64", (1,), 8),), nbytes=16), "multiple of 64"),
        (Bulk(arrays=(ArrayInfo("x", "int64", (0,), 0),) * 2, nbytes=0), "two arrays"),
        (Bulk(arrays=(ArrayInfo("x", "int8", (0,), 0),) * (MOST_ARRAYS + 1)), "at most"),
        (Bulk(nbytes=-1), "-1 bytes"),
    ],
    ids=[
        "too long",
        "negative",
        "no dtype of ours",
        "unaligned",
        "twice",
        "too many",
        "less than none",
    ],
)
def test_a_bulk_that_makes_no_sense_is_refused(bulk: Bulk, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        Assembly(bulk)


@pytest.mark.parametrize(
    ("offset", "count"), [(8, 4), (-8, 8), (64, 8), (0, 80), (0, 0), (2**63, 8)], ids=str
)
def test_a_part_that_does_not_follow_is_refused(offset: int, count: int) -> None:
    assembly = Assembly(pack({"x": np.arange(9)}).bulk)
    if offset == 8:
        assembly.add(0, bytes(16))  # the next one goes back
    with pytest.raises(ProtocolError, match=f"a part of {count} bytes"):
        assembly.add(offset, bytes(count))


def test_arrays_are_not_shown_before_all_of_them_are_here() -> None:
    assembly = Assembly(pack({"x": np.arange(9)}).bulk)
    assembly.add(0, bytes(16))
    with pytest.raises(ProtocolError, match="16 of 72 bytes"):
        assembly.arrays()
