"""Arrays in a payload, and read again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from penstock.errors import ProtocolError
from penstock.graph.layout import ALIGNMENT, align, array_nbytes
from penstock.wire.frames import Bytes, private_memory, read
from penstock.wire.messages import ArrayLayout
from penstock.wire.payload import MOST_ARRAYS, SMALL, Packed, pack, pack_batch, reserved

DTYPES = st.sampled_from(["int64", "float32", "uint8", "bool", "float64", "int16"])
SHAPES = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9)
SIZES = st.sampled_from([0, 1, 8, 63, 64, 65, 1000, SMALL - 1, SMALL, SMALL + 1, 2 * SMALL + 9])


def arrived(packed: Packed) -> Bytes:
    """The payload as it comes out at the other end."""
    memory = reserved(packed.arrays, packed.nbytes)
    sent = b"".join(packed.views)
    assert len(sent) == packed.nbytes
    memory[:] = np.frombuffer(sent, np.uint8)
    return memory


@given(st.lists(DTYPES.flatmap(lambda dtype: npst.arrays(dtype, SHAPES)), max_size=5))
def test_arrays_come_out_as_they_went_in(given: list[Any]) -> None:
    arrays = {f"array {number}": array for number, array in enumerate(given)}
    packed = pack(arrays)
    found = read(arrived(packed), packed.arrays)
    assert found.keys() == arrays.keys()
    for name, array in found.items():
        assert (array.dtype, array.shape) == (arrays[name].dtype, arrays[name].shape)
        assert array.tobytes() == arrays[name].tobytes()


def test_arrays_that_lie_apart_are_sent_in_order() -> None:
    matrix = np.arange(12).reshape(3, 4)
    packed = pack({"turned": matrix.T})
    assert np.array_equal(read(arrived(packed), packed.arrays)["turned"], matrix.T)


def test_a_large_array_is_sent_from_where_it_lies() -> None:
    array = np.zeros(SMALL)
    (view,) = pack({"x": array}).views
    array[0] = 1.0
    assert np.frombuffer(view, np.float64)[0] == 1.0


def test_many_small_arrays_are_few_buffers() -> None:
    packed = pack({str(number): np.arange(100) for number in range(1000)})
    assert len(packed.views) <= packed.nbytes // SMALL + 1


def test_sixteen_bits_may_be_said_to_be_bfloat16() -> None:
    packed = pack({"x": np.arange(3, dtype=np.uint16)}, {"x": "bfloat16"})
    assert packed.arrays[0].dtype == "bfloat16"


@pytest.mark.parametrize(
    ("arrays", "nbytes", "words"),
    [
        ((ArrayLayout("x", "int64", (2,), 0),), 8, "ends at 16"),
        ((ArrayLayout("x", "int64", (-2,), 0),), 8, "cannot be"),
        ((ArrayLayout("x", "object", (1,), 0),), 8, "cannot be"),
        ((ArrayLayout("x", "int64", (1,), 8),), 16, "multiple of 64"),
        ((ArrayLayout("x", "int64", (0,), 0),) * 2, 0, "two arrays"),
        ((ArrayLayout("x", "int8", (0,), 0),) * (MOST_ARRAYS + 1), 0, "at most"),
    ],
    ids=["too long", "negative", "no dtype of ours", "unaligned", "twice", "too many"],
)
def test_arrays_that_make_no_sense_are_refused_before_memory_is_taken(
    arrays: tuple[ArrayLayout, ...], nbytes: int, words: str
) -> None:
    with pytest.raises(ProtocolError, match=words):
        reserved(arrays, nbytes)


# --- batches -------------------------------------------------------------------------------------


def spread(sizes: list[int]) -> tuple[tuple[ArrayLayout, ...], Bytes]:
    """Arrays of bytes that lie apart, as in a slot, and their memory."""
    layouts, end = [], 0
    for number, size in enumerate(sizes):
        layouts.append(ArrayLayout(f"a{number}", "uint8", (size,), end))
        end = align(end + array_nbytes("uint8", size)) + 3 * ALIGNMENT
    memory = private_memory(end)
    for number, array in enumerate(read(memory, layouts).values()):
        array[...] = np.arange(number, number + len(array)) % 251
    return tuple(layouts), memory


@given(st.lists(SIZES, max_size=6))
def test_a_batch_comes_out_as_it_lay_in_its_slot(sizes: list[int]) -> None:
    layouts, memory = spread(sizes)
    packed = pack_batch(memory, layouts)
    there = arrived(packed)
    for name, array in read(memory, layouts).items():
        assert np.array_equal(read(there, packed.arrays)[name], array)


def test_a_batch_of_small_arrays_is_one_buffer() -> None:
    layouts, memory = spread([10, 0, 100, 3000])
    packed = pack_batch(memory, layouts)
    assert [view.nbytes for view in packed.views] == [packed.nbytes]


def test_large_arrays_of_a_batch_are_sent_from_the_slot() -> None:
    layouts, memory = spread([SMALL + 1])
    (view,) = pack_batch(memory, layouts).views
    memory[0] = 77
    assert view[0] == 77


def test_the_room_between_arrays_in_a_slot_does_not_travel() -> None:
    layouts = (
        ArrayLayout("a", "int64", (10,), 0),
        ArrayLayout("b", "int64", (10,), 1 << 20),
    )
    assert pack_batch(private_memory(2 << 20), layouts).nbytes == align(80) + 80
