"""Attaching by handle, and who closes which descriptor, within one process."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import msgspec
import numpy as np
import pytest

from penstock.graph.shared import ArrayHandle, MemfdHandle, NamedHandle, Segment, SharedArray
from tests.graph.shared_children import attached, duplicate, kinds, open_descriptors

pytestmark = pytest.mark.usefixtures("no_leaks")


@kinds
def test_an_attached_segment_shows_the_same_memory(kind: str) -> None:
    with SharedArray.create(3, "int32", kind=kind) as shared, attached(shared.segment) as other:
        view = other.view("int32", 3)
        shared.array[:] = [7, 8, 9]
        assert view.tolist() == [7, 8, 9]


@kinds
def test_writes_through_an_attached_view_are_refused(kind: str) -> None:
    with Segment.create(64, kind=kind) as segment, attached(segment) as other:
        view = other.view("int32", 3)
        with pytest.raises(ValueError, match="assignment destination is read-only"):
            view[0] = 1


@kinds
def test_an_attached_view_cannot_be_made_writable(kind: str) -> None:
    with Segment.create(64, kind=kind) as segment, attached(segment) as other:
        view = other.view("int32", 3)
        with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
            view.flags.writeable = True


@kinds
def test_a_writable_attachment_writes_what_the_creator_reads(kind: str) -> None:
    with (
        SharedArray.create(3, "int32", kind=kind) as shared,
        attached(shared.segment, writable=True) as other,
    ):
        other.view("int32", 3)[:] = [1, 2, 3]
        assert shared.array.tolist() == [1, 2, 3]


@kinds
@pytest.mark.parametrize("shape", [(0,), (0, 3), ()])
def test_empty_arrays_and_scalars_can_be_attached(kind: str, shape: tuple[int, ...]) -> None:
    with SharedArray.create(shape, "int32", kind=kind) as shared:
        shared.array[...] = 5
        with SharedArray.attach(shared.handle, duplicate(shared.segment)) as other:
            assert np.array_equal(other.array, np.full(shape, 5))


@kinds
def test_an_attached_segment_holds_no_descriptor(kind: str) -> None:
    with Segment.create(64, kind=kind) as segment:
        before = open_descriptors()
        with attached(segment):
            assert open_descriptors() == before


@kinds
def test_an_attached_segment_has_no_descriptor_to_hand_on(kind: str) -> None:
    with (
        Segment.create(64, kind=kind) as segment,
        attached(segment) as other,
        pytest.raises(ValueError, match="only the creator keeps one"),
    ):
        other.fileno()


@kinds
@pytest.mark.parametrize("nbytes", [65, 63, -1])
def test_a_handle_of_another_size_is_refused_and_its_descriptor_closed(
    kind: str, nbytes: int
) -> None:
    with Segment.create(64, kind=kind) as segment:
        before = open_descriptors()
        handle = msgspec.structs.replace(segment.handle, nbytes=nbytes)
        with pytest.raises(ValueError, match=f"the handle speaks of {nbytes} bytes"):
            Segment.attach(handle, duplicate(segment))
        assert open_descriptors() == before


@kinds
def test_an_array_that_does_not_lie_inside_is_refused_and_nothing_stays_open(kind: str) -> None:
    with SharedArray.create(3, "int8", kind=kind) as shared:
        before = open_descriptors()
        handle = msgspec.structs.replace(shared.handle, shape=(4,))
        with pytest.raises(ValueError, match="needs 4 bytes, there are 3"):
            SharedArray.attach(handle, duplicate(shared.segment))
        assert open_descriptors() == before


def test_a_descriptor_that_is_not_needed_is_refused_and_closed(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(ValueError, match="is found by its path"):
        Segment.attach(NamedHandle(str(tmp_path / "any"), 3), fd)
    assert fd not in open_descriptors()


def test_a_memfd_without_its_descriptor_is_refused() -> None:
    with pytest.raises(ValueError, match="fd is missing"):
        Segment.attach(MemfdHandle(64, 0, 0))


def test_a_descriptor_of_other_memory_is_refused_and_closed() -> None:
    with Segment.create(64, kind="memfd") as segment, Segment.create(64, kind="memfd") as other:
        before = open_descriptors()
        with pytest.raises(ValueError, match="not that of the shared memory the handle speaks of"):
            Segment.attach(segment.handle, duplicate(other))
        assert open_descriptors() == before


def test_a_named_segment_whose_creator_closed_it_is_not_found() -> None:
    with Segment.create(64, kind="named") as segment:
        handle = segment.handle
    with pytest.raises(FileNotFoundError):
        Segment.attach(handle)


@kinds
def test_a_handle_crosses_a_wire_unchanged(kind: str) -> None:
    with SharedArray.create((2, 3), "bfloat16", kind=kind) as shared:
        message = msgspec.msgpack.encode(shared.handle)
        assert msgspec.msgpack.decode(message, type=ArrayHandle) == shared.handle


@kinds
def test_a_handle_of_a_large_array_pickles_small(kind: str) -> None:
    with SharedArray.create((1 << 10, 1 << 10), "float32", kind=kind) as shared:
        assert len(pickle.dumps(shared.handle)) < 300


@kinds
def test_a_pickled_array_shows_the_same_memory(kind: str) -> None:
    with SharedArray.from_array(np.arange(3), kind=kind) as shared:
        pickled = pickle.dumps(shared)
        with pickle.loads(pickled) as other:
            assert other.array.tolist() == [0, 1, 2]
            assert not other.writable
    assert len(pickled) < 400


@kinds
def test_a_pickled_segment_shows_what_is_written_later(kind: str) -> None:
    with Segment.create(64, kind=kind) as segment, pickle.loads(pickle.dumps(segment)) as other:
        segment.view("int64", 8)[3] = 7
        assert other.view("int64", 8).tolist() == [0, 0, 0, 7, 0, 0, 0, 0]


def test_pickling_what_was_attached_by_a_descriptor_is_refused_with_what_to_do_instead() -> None:
    with SharedArray.create(3, "int8", kind="memfd") as shared, attached(shared.segment) as other:
        with pytest.raises(TypeError, match=r"belongs to another process.*send its \.handle"):
            pickle.dumps(other)
