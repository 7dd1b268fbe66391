"""How long memory lives: as long as a view of it, and no longer."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from penstock.graph.mapping import map_bytes_by_mmap
from penstock.graph.shared import Segment, SharedArray
from tests.graph.shared_children import (
    attached,
    kinds,
    named_segments,
    open_descriptors,
    run_child,
    segments_made_by,
)

pytestmark = pytest.mark.usefixtures("no_leaks")


@kinds
def test_views_outlive_close(kind: str) -> None:
    shared = SharedArray.from_array(np.arange(1000), kind=kind)
    view = shared.array[10:20]
    shared.close()
    assert view.tolist() == list(range(10, 20))


@kinds
def test_writable_views_outlive_close(kind: str) -> None:
    shared = SharedArray.create(1000, "int64", kind=kind)
    view = shared.array
    shared.close()
    view[:] = 3
    assert view.sum() == 3000


@kinds
def test_views_outlive_an_array_that_was_never_closed(kind: str) -> None:
    view = SharedArray.from_array(np.arange(1000), kind=kind).array
    assert view.sum() == 499500


@kinds
def test_views_of_an_attached_segment_outlive_both_segments(kind: str) -> None:
    with SharedArray.from_array(np.arange(5), kind=kind) as shared:
        other = attached(shared.segment)
    view = other.view("int64", 5)
    other.close()
    assert view.tolist() == [0, 1, 2, 3, 4]


@kinds
def test_the_mapping_goes_with_the_last_view(kind: str) -> None:
    before = mappings()
    shared = SharedArray.from_array(np.arange(1000), kind=kind)
    view = shared.array[1:]
    shared.close()
    assert len(mappings()) == len(before) + 1
    del view
    assert mappings() == before


@kinds
def test_close_gives_the_descriptor_back_at_once(kind: str) -> None:
    before = open_descriptors()
    shared = SharedArray.create(3, "int8", kind=kind)
    view = shared.array
    shared.close()
    assert open_descriptors() == before
    assert view.size == 3


@kinds
def test_a_segment_that_is_forgotten_gives_its_descriptor_back(kind: str) -> None:
    before = open_descriptors()
    Segment.create(64, kind=kind)
    assert open_descriptors() == before


@kinds
def test_close_may_be_called_again(kind: str) -> None:
    shared = SharedArray.create(3, "int8", kind=kind)
    shared.close()
    shared.close()
    assert shared.segment.closed


@kinds
def test_a_closed_array_says_so(kind: str) -> None:
    shared = SharedArray.create(3, "int8", kind=kind)
    shared.close()
    with pytest.raises(ValueError, match="has been closed"):
        _ = shared.array


@kinds
def test_a_closed_array_can_still_be_printed(kind: str) -> None:
    shared = SharedArray.create(3, "int8", kind=kind)
    shared.close()
    assert "int8[3]" in repr(shared)


@kinds
def test_closing_one_of_many_arrays_leaves_the_segment_open(kind: str) -> None:
    with Segment.create(64, kind=kind) as segment:
        SharedArray(segment, "int8", 3).close()
        assert not segment.closed


def test_a_named_segment_loses_its_name_at_close() -> None:
    before = segments_made_by(os.getpid())
    shared = SharedArray.create(3, "int8", kind="named")
    view = shared.array
    shared.close()
    assert segments_made_by(os.getpid()) == before
    assert view.size == 3


@kinds
def test_an_interpreter_that_ends_without_close_leaves_nothing_and_warns_of_nothing(
    kind: str, tmp_path: Path
) -> None:
    program = f"""
shared = SharedArray.from_array(np.arange(3), kind="{kind}")
view = shared.array
say(view.tolist())
"""
    assert run_child(program, PENSTOCK_SHARED_MEMORY_DIR=str(tmp_path)) == [0, 1, 2]
    assert named_segments(tmp_path) == []


def test_a_forked_child_does_not_take_the_name_away(tmp_path: Path) -> None:
    # We never fork, but the programs that use us do.
    program = """
shared = SharedArray.create(3, "int8", kind="named")
child = os.fork()
if child == 0:
    shared.close()
    os._exit(0)
os.waitpid(child, 0)
say(os.path.exists(shared.segment.handle.path))
"""
    assert run_child(program, PENSTOCK_SHARED_MEMORY_DIR=str(tmp_path)) is True


def test_mapping_by_pythons_own_means_keeps_the_memory_alive_too(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(10)))
    with path.open("rb") as file:
        view = map_bytes_by_mmap(file.fileno(), 10, writable=False)[5:]
    os.unlink(path)
    assert view.tolist() == [5, 6, 7, 8, 9]


def mappings() -> set[str]:
    """The spans of this process's address space that map shared memory of ours."""
    with open("/proc/self/maps") as maps:
        return {line.split()[0] for line in maps if "penstock" in line}
