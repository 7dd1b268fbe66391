"""A frozen segment is read-only for everybody, and the kernel sees to it."""

from __future__ import annotations

import mmap
import os

import numpy as np
import pytest

from penstock.graph.shared import MemfdHandle, NamedHandle, Segment, SharedArray
from tests.graph.shared_children import attached, duplicate, kinds

pytestmark = pytest.mark.usefixtures("no_leaks")


@kinds
def test_the_content_survives_freezing(kind: str) -> None:
    with SharedArray.create(3, "int32", kind=kind) as shared:
        shared.array[:] = [1, 2, 3]
        shared.freeze()
        assert shared.array.tolist() == [1, 2, 3]


@kinds
def test_writes_are_refused_after_freezing_also_to_the_creator(kind: str) -> None:
    with SharedArray.create(3, "int32", kind=kind) as shared:
        shared.freeze()
        view = shared.array
        with pytest.raises(ValueError, match="assignment destination is read-only"):
            view[0] = 1


@kinds
def test_the_creators_pages_are_mapped_read_only_after_freezing(kind: str) -> None:
    with SharedArray.from_array(np.arange(10), kind=kind) as shared:
        assert permissions_at(shared.array.ctypes.data) == "r--s"


@kinds
def test_a_frozen_view_cannot_be_made_writable(kind: str) -> None:
    with SharedArray.from_array(np.arange(3), kind=kind) as shared:
        view = shared.array
        with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
            view.flags.writeable = True


@kinds
def test_freezing_is_refused_while_somebody_could_still_write(kind: str) -> None:
    with SharedArray.create(3, "int32", kind=kind) as shared:
        part = shared.array[1:]
        with pytest.raises(BufferError, match="writable views of it are still in use"):
            shared.freeze()
        part[0] = 5
        assert shared.array.tolist() == [0, 5, 0]


@kinds
def test_freezing_works_once_the_writable_views_are_gone(kind: str) -> None:
    with SharedArray.create(3, "int32", kind=kind) as shared:
        part = shared.array[1:]
        with pytest.raises(BufferError):
            shared.freeze()
        del part
        shared.freeze()
        assert not shared.writable


@kinds
def test_freezing_twice_is_freezing_once(kind: str) -> None:
    with SharedArray.from_array(np.arange(3), kind=kind) as shared:
        shared.freeze()
        assert shared.array.tolist() == [0, 1, 2]


@kinds
@pytest.mark.parametrize("shape", [(0,), ()])
def test_empty_arrays_and_scalars_freeze(kind: str, shape: tuple[int, ...]) -> None:
    with SharedArray.create(shape, "int32", kind=kind) as shared:
        shared.freeze()
        assert not shared.array.flags.writeable


@kinds
def test_only_the_creator_freezes(kind: str) -> None:
    with (
        Segment.create(64, kind=kind) as segment,
        attached(segment, writable=True) as other,
        pytest.raises(ValueError, match="only its creator can freeze"),
    ):
        other.freeze()


@kinds
def test_a_writable_attachment_to_a_frozen_segment_is_refused(kind: str) -> None:
    with Segment.create(64, kind=kind) as segment:
        segment.freeze()
        with pytest.raises(PermissionError):
            attached(segment, writable=True)


@kinds
def test_a_handle_from_before_the_freezing_gives_no_writable_attachment(kind: str) -> None:
    with Segment.create(64, kind=kind) as segment:
        early = segment.handle
        segment.freeze()
        assert isinstance(early, MemfdHandle | NamedHandle)
        assert not early.frozen
        with pytest.raises(PermissionError):
            Segment.attach(early, duplicate(segment), writable=True)


def test_the_kernel_refuses_to_map_a_frozen_memfd_writable() -> None:
    with Segment.create(4096, kind="memfd") as segment:
        segment.freeze()
        with pytest.raises(PermissionError):
            mmap.mmap(segment.fileno(), 4096)


def test_the_kernel_refuses_to_write_into_a_frozen_memfd() -> None:
    with Segment.create(4096, kind="memfd") as segment:
        segment.freeze()
        with pytest.raises(PermissionError):
            os.pwrite(segment.fileno(), b"x", 0)


@pytest.mark.parametrize("length", [0, 4095, 4097])
def test_the_kernel_refuses_to_resize_a_memfd_under_its_mappings(length: int) -> None:
    with Segment.create(4096, kind="memfd") as segment, pytest.raises(PermissionError):
        os.ftruncate(segment.fileno(), length)


def permissions_at(address: int) -> str:
    """How the kernel has mapped the page at `address`."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, permissions, *_ = line.split()
            begin, end = (int(bound, 16) for bound in span.split("-"))
            if begin <= address < end:
                return permissions
    raise LookupError(f"nothing is mapped at {address:#x}")
