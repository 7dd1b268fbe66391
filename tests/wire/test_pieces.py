"""Batches packed into pieces."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.layout import ALIGNMENT, align, array_nbytes
from penstock.wire.frames import private_memory, read
from penstock.wire.messages import ArrayLayout
from penstock.wire.pieces import PIECE, SMALL, follows, packed, pieces_of

SIZES = st.sampled_from([0, 1, 8, 63, 64, 65, 1000, SMALL - 1, SMALL, SMALL + 1, PIECE, PIECE + 9])


def spread(sizes: list[int]) -> tuple[tuple[ArrayLayout, ...], np.ndarray]:
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
def test_what_is_put_together_is_what_was_sent(sizes: list[int]) -> None:
    layouts, memory = spread(sizes)
    moved, nbytes = packed(layouts)
    there, end = private_memory(nbytes), 0
    for offset, data in pieces_of(memory, layouts, moved):
        assert follows(offset, end)
        assert 0 < len(data) <= PIECE
        there[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
        end = offset + len(data)
    assert end == nbytes
    for name, array in read(memory, layouts).items():
        assert np.array_equal(read(there, moved)[name], array)


def test_a_batch_of_small_arrays_is_one_piece_that_is_all_of_it() -> None:
    layouts, memory = spread([10, 0, 100, 3000])
    moved, nbytes = packed(layouts)
    ((offset, data),) = pieces_of(memory, layouts, moved)
    assert (offset, len(data)) == (0, nbytes)


def test_a_large_array_is_sent_from_where_it_lies() -> None:
    layouts, memory = spread([SMALL + 1])
    ((_, data),) = pieces_of(memory, layouts, packed(layouts)[0])
    memory[0] = 77
    assert data[0] == 77


def test_what_lies_between_arrays_does_not_travel() -> None:
    layouts = (
        ArrayLayout("a", "int64", (10,), 0),
        ArrayLayout("b", "int64", (10,), 1 << 20),
    )
    assert packed(layouts)[1] == align(80) + 80
