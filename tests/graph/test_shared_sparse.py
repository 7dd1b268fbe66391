"""Sparse memory: large, paid for page by page, found by its descriptor whatever its kind."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from penstock.graph.shared import Segment, SharedArray
from tests.graph.shared_children import (
    attached,
    kinds,
    named_segments,
    open_descriptors,
    run_child,
    start_child,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

# More than any machine these tests run on has.
HUGE = 1 << 44


@kinds
def test_sparse_memory_may_be_larger_than_there_is(kind: str) -> None:
    with Segment.create(HUGE, kind=kind, sparse=True) as segment:
        assert segment.nbytes == HUGE
        assert os.fstat(segment.fileno()).st_blocks == 0


@kinds
def test_sparse_memory_costs_what_is_written(kind: str) -> None:
    with Segment.create(HUGE, kind=kind, sparse=True) as segment:
        segment.view("uint8", 1, HUGE - 1)[:] = 1
        assert os.fstat(segment.fileno()).st_blocks * 512 == os.sysconf("SC_PAGESIZE")


@kinds
def test_sparse_memory_is_zeroed_writable_and_shared(kind: str) -> None:
    with Segment.create(1000, kind=kind, sparse=True) as segment:
        with attached(segment, writable=True) as other:
            assert not other.view("uint8", 1000).any()
            other.view("uint8", 1000)[:] = 7
        assert np.all(segment.view("uint8", 1000) == 7)


@kinds
def test_sparse_memory_travels_by_descriptor(kind: str) -> None:
    with Segment.create(100, kind=kind, sparse=True) as segment:
        array = SharedArray(segment, "int64", 3)
        array.array[:] = [1, 2, 3]
        program = "say(SharedArray.attach(given_handle(), given_fd()).array.tolist())"
        fds = segment.descriptors
        assert run_child(program, array.handle, *fds, pass_fds=fds) == [1, 2, 3]


@kinds
def test_sparse_memory_outlives_its_creators_hold(kind: str) -> None:
    with Segment.create(100, kind=kind, sparse=True) as segment:
        segment.view("uint8", 100)[:] = 5
        handle, fd = segment.handle, os.dup(segment.fileno())
    with Segment.attach(handle, fd) as other:
        assert np.all(other.view("uint8", 100) == 5)


@kinds
def test_sparse_memory_can_be_frozen(kind: str) -> None:
    with Segment.create(100, kind=kind, sparse=True) as segment:
        segment.freeze()
        assert not segment.writable
        with pytest.raises(PermissionError, match="frozen"):
            attached(segment, writable=True)


@kinds
def test_sparse_memory_gives_its_descriptor_back(kind: str) -> None:
    before = open_descriptors()
    Segment.create(100, kind=kind, sparse=True).close()
    Segment.create(100, kind=kind, sparse=True)
    assert open_descriptors() == before


def test_sparse_memory_has_no_name_to_leave_behind(tmp_path: Path) -> None:
    program = 'segment = Segment.create(100, kind="named", sparse=True); say(0); wait_for_the_end()'
    child = start_child(program, PENSTOCK_SHARED_MEMORY_DIR=str(tmp_path))
    assert child.stdout is not None
    assert child.stdout.readline() == "0\n"
    assert named_segments(tmp_path) == []
    child.kill()
    child.communicate()
    assert named_segments(tmp_path) == []
