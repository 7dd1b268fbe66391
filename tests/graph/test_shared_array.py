"""Arrays in shared memory, seen from the process that makes them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis.extra import numpy as numbers

from penstock.graph.dtypes import SUPPORTED, storage_dtype
from penstock.graph.shared import Segment, SharedArray, layout
from tests.graph.shared_children import attached, kinds, open_descriptors

pytestmark = [kinds, pytest.mark.usefixtures("no_leaks")]

storable = numbers.scalar_dtypes().filter(lambda dtype: dtype.name in SUPPORTED and dtype.isnative)
shapes = numbers.array_shapes(min_dims=0, max_dims=4, min_side=0)


def test_new_memory_is_zero(kind: str) -> None:
    with SharedArray.create((3, 5), "float32", kind=kind) as shared:
        assert np.array_equal(shared.array, np.zeros((3, 5), np.float32))


def test_what_is_written_is_there_in_the_next_view(kind: str) -> None:
    with SharedArray.create(4, "int64", kind=kind) as shared:
        shared.array[:] = [1, 2, 3, 4]
        assert shared.array.tolist() == [1, 2, 3, 4]


def test_a_copy_of_an_array_is_read_only(kind: str) -> None:
    with SharedArray.from_array(np.arange(4), kind=kind) as shared:
        view = shared.array
        with pytest.raises(ValueError, match="assignment destination is read-only"):
            view[0] = 9


def test_a_copy_of_an_array_can_be_asked_for_writable(kind: str) -> None:
    with SharedArray.from_array(np.arange(4), writable=True, kind=kind) as shared:
        shared.array[0] = 9
        assert shared.array.tolist() == [9, 1, 2, 3]


def test_an_array_that_is_not_contiguous_is_copied_as_it_looks(kind: str) -> None:
    source = np.arange(24).reshape(4, 6).T[::2]
    with SharedArray.from_array(source, kind=kind) as shared:
        assert np.array_equal(shared.array, source)


def test_bfloat16_keeps_its_name_and_its_bits(kind: str) -> None:
    bits = np.array([0x3F80, 0x7FC0], np.uint16)
    with SharedArray.from_array(bits, "bfloat16", kind=kind) as shared:
        assert (shared.dtype, shared.array.tolist()) == ("bfloat16", bits.tolist())


def test_elements_that_are_not_what_dtype_is_stored_as_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="array has dtype float32: bfloat16 is uint16"):
        SharedArray.from_array(np.zeros(3, np.float32), "bfloat16", kind=kind)


@pytest.mark.parametrize("name", SUPPORTED)
def test_views_have_the_storage_dtype(kind: str, name: str) -> None:
    with SharedArray.create(3, name, kind=kind) as shared:
        assert shared.array.dtype == storage_dtype(name)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0, 2), ()])
def test_empty_arrays_and_scalars_keep_their_shape(kind: str, shape: tuple[int, ...]) -> None:
    with SharedArray.from_array(np.zeros(shape, np.int32), kind=kind) as shared:
        assert shared.array.shape == shape


@given(array=numbers.arrays(storable, shapes))
def test_any_array_is_seen_by_others_as_it_was(kind: str, array: npt.NDArray[np.generic]) -> None:
    with SharedArray.from_array(array, kind=kind) as shared, attached(shared.segment) as other:
        seen = SharedArray(other, shared.dtype, shared.shape).array
        assert (seen.dtype, seen.shape) == (array.dtype, array.shape)
        assert seen.tobytes() == array.tobytes()


def test_a_negative_size_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="nbytes is -1"):
        Segment.create(-1, kind=kind)


def test_more_than_any_machine_has_is_refused_and_nothing_is_left(kind: str) -> None:
    with pytest.raises(OSError):  # noqa: PT011, the kernel words it, not we
        Segment.create(1 << 62, kind=kind)


def test_many_arrays_lie_in_one_segment_without_touching_each_other(kind: str) -> None:
    specs = [("int64", (10,)), ("float16", (3, 7)), ("bool", (0,)), ("bfloat16", (5,))]
    offsets, nbytes = layout(specs)
    with Segment.create(nbytes, kind=kind) as segment:
        arrays = [SharedArray(segment, *spec, at) for spec, at in zip(specs, offsets, strict=True)]
        for value, shared in enumerate(arrays, start=1):
            shared.array[...] = value
        assert [np.unique(shared.array).tolist() for shared in arrays] == [[1], [2], [], [4]]


def test_a_segment_costs_its_creator_one_descriptor(kind: str) -> None:
    before = len(open_descriptors())
    with Segment.create(64, kind=kind):
        assert len(open_descriptors()) == before + 1


def test_an_array_beyond_the_end_is_refused_with_both_sizes(kind: str) -> None:
    with (
        Segment.create(100, kind=kind) as segment,
        pytest.raises(ValueError, match=r"int32\[10\] at offset 64 needs 104 bytes, there are 100"),
    ):
        SharedArray(segment, "int32", 10, 64)


@pytest.mark.parametrize("offset", [-8, 4])
def test_an_offset_that_does_not_suit_the_elements_is_refused(kind: str, offset: int) -> None:
    with (
        Segment.create(64, kind=kind) as segment,
        pytest.raises(ValueError, match=f"offset is {offset}: it must be a multiple of 8"),
    ):
        SharedArray(segment, "int64", 1, offset)
