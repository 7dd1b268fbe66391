"""Arrays that share a segment lie apart, in order, and aligned."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.dtypes import SUPPORTED, itemsize
from penstock.graph.layout import ALIGNMENT, array_nbytes, layout, normal_shape

Spec = tuple[str, tuple[int, ...]]

shapes = st.lists(st.integers(0, 1 << 34), max_size=4).map(tuple)
specs = st.lists(st.tuples(st.sampled_from(SUPPORTED), shapes), max_size=8)


@given(specs)
def test_every_array_begins_at_an_aligned_offset(given_specs: list[Spec]) -> None:
    assert all(offset % ALIGNMENT == 0 for offset in layout(given_specs).offsets)


@given(specs)
def test_arrays_lie_in_order_and_do_not_overlap(given_specs: list[Spec]) -> None:
    offsets, total = layout(given_specs)
    ends = [at + array_nbytes(*spec) for at, spec in zip(offsets, given_specs, strict=True)]
    assert all(end <= begin for end, begin in zip(ends, [*offsets[1:], total], strict=False))


@given(specs)
def test_no_gap_is_wider_than_alignment_needs(given_specs: list[Spec]) -> None:
    offsets, total = layout(given_specs)
    sizes = [after - at for at, after in itertools.pairwise([*offsets, total])]
    needed = [array_nbytes(*spec) for spec in given_specs]
    assert all(size - need < ALIGNMENT for size, need in zip(sizes, needed, strict=True))


def test_nothing_takes_no_room() -> None:
    assert layout([]) == ((), 0)


@given(st.sampled_from(SUPPORTED), shapes)
def test_an_array_takes_its_elements_times_their_width(name: str, shape: tuple[int, ...]) -> None:
    assert array_nbytes(name, shape) == math.prod(shape) * itemsize(name)


def test_a_lone_integer_is_the_length_of_a_vector() -> None:
    assert normal_shape(7) == (7,)


def test_sizes_may_be_numpy_integers_and_come_out_plain() -> None:
    normal = normal_shape((np.int64(3), np.int32(4)))
    assert [type(size) for size in normal] == [int, int]


def test_a_negative_size_is_named_with_its_position() -> None:
    with pytest.raises(ValueError, match=r"shape\[1\] is -5"):
        normal_shape((3, -5))


def test_a_size_that_is_no_integer_is_refused() -> None:
    with pytest.raises(TypeError):
        normal_shape((2.5,))  # type: ignore[arg-type]
