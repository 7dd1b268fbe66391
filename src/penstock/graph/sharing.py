"""Shares a whole graph with another process: a small message, and descriptors.

    handle, fds = graph.handle(), graph.descriptors
    Popen([...], pass_fds=fds)                    # and the handle by any message
    graph = Graph.attach(handle, fds)             # in the other process; closes them

A segment is mapped once, however many arrays it contains. A graph in files needs no descriptors.
"""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from contextlib import suppress

import msgspec

from penstock.graph.checksum import counts
from penstock.graph.handles import FileHandle, MemfdHandle, SegmentHandle
from penstock.graph.schema import ArrayKey, Arrays, Schema
from penstock.graph.segment import Segment
from penstock.graph.shared import SharedArray


class PlacedArray(msgspec.Struct, frozen=True):
    """An array, with the graph's segment that contains it and its offset there."""

    key: ArrayKey
    segment: int
    dtype: str
    shape: tuple[int, ...]
    offset: int


class GraphHandle(msgspec.Struct, frozen=True):
    """What another process needs to map a graph; with descriptors if it is in memfds.

    `store` says where the parts of a graph are that is not in one place (`store.handles`).
    """

    schema: Schema
    segments: tuple[SegmentHandle, ...]
    arrays: tuple[PlacedArray, ...]
    version: str | None = None
    store: bytes | None = None


def segments_of(arrays: Arrays) -> list[Segment]:
    """Return the segments of the arrays, each once, in the order of first use."""
    return list({id(array.segment): array.segment for array in arrays.values()}.values())


def handle_of(schema: Schema, arrays: Arrays, version: str | None) -> GraphHandle:
    """Return the handle of a graph."""
    segments = segments_of(arrays)
    position = {id(segment): at for at, segment in enumerate(segments)}
    placed = (
        PlacedArray(key, position[id(array.segment)], array.dtype, array.shape, array.offset)
        for key, array in arrays.items()
    )
    return GraphHandle(
        schema, tuple(segment.handle for segment in segments), tuple(placed), version
    )


def path_handle_of(handle: GraphHandle, arrays: Arrays) -> GraphHandle:
    """Return the handle as one that needs no descriptors: see `Segment.path_handle`.

    That of a graph in files has no derived arrays in memory: the receiver can compute them again,
    also when this process has ended.
    """
    in_files = without_made(handle)
    if all(isinstance(segment, FileHandle) for segment in in_files.segments):
        return in_files
    segments = tuple(segment.path_handle() for segment in segments_of(arrays))
    return msgspec.structs.replace(handle, segments=segments)


def descriptors_of(arrays: Arrays) -> tuple[int, ...]:
    """Return the descriptors to send with the handle: those of memfds, in the order of segments."""
    anonymous = (s for s in segments_of(arrays) if isinstance(s.handle, MemfdHandle))
    return tuple(segment.fileno() for segment in anonymous)


def can_be_handed_on(segment: Segment) -> bool:
    """Return whether other processes can map it: not if it is a memfd that was attached here."""
    return not isinstance(segment.handle, MemfdHandle) or bool(segment.descriptors)


def part_of(
    handle: GraphHandle, fds: Sequence[int], wanted: Container[ArrayKey]
) -> tuple[GraphHandle, list[int]]:
    """Return the handle of some of the arrays, and those descriptors that belong to it."""
    arrays = [placed for placed in handle.arrays if placed.key in wanted]
    for placed in arrays:
        _check_segment(placed, len(handle.segments))
    used = sorted({placed.segment for placed in arrays})
    position = {segment: at for at, segment in enumerate(used)}
    moved = (msgspec.structs.replace(placed, segment=position[placed.segment]) for placed in arrays)
    segments = tuple(handle.segments[segment] for segment in used)
    part = msgspec.structs.replace(handle, segments=segments, arrays=tuple(moved))
    given = dict(zip(_anonymous(handle), fds, strict=True)) if fds else {}
    return part, [given[segment] for segment in used if segment in given]


def without_made(handle: GraphHandle) -> GraphHandle:
    """Return the handle without derived arrays in memory, which the receiver can compute again."""
    kept = {
        placed.key
        for placed in handle.arrays
        if counts(placed.key, handle.schema.part)
        or isinstance(handle.segments[placed.segment], FileHandle)
    }
    return part_of(handle, (), kept)[0]


def attach(handle: GraphHandle, fds: Sequence[int] = ()) -> dict[ArrayKey, SharedArray]:
    """Map the arrays of a graph that another process described. Closes `fds`, also on failure."""
    segments = _attach_segments(handle.segments, list(fds))
    try:
        return {placed.key: _placed_in(segments, placed) for placed in handle.arrays}
    except BaseException:
        for segment in segments:
            segment.close()
        raise


def _attach_segments(handles: Sequence[SegmentHandle], fds: list[int]) -> list[Segment]:
    segments: list[Segment] = []
    try:
        check_descriptors(handles, fds)
        for handle in handles:
            fd = fds.pop(0) if isinstance(handle, MemfdHandle) else None
            segments.append(Segment.attach(handle, fd))
    except BaseException:
        for fd in fds:
            with suppress(OSError):  # an invalid one must not keep the others open
                os.close(fd)
        for segment in segments:
            segment.close()
        raise
    return segments


def check_descriptors(handles: Sequence[SegmentHandle], fds: Sequence[int]) -> None:
    """Raise `ValueError` unless there are as many descriptors as the segments need."""
    needed = sum(isinstance(handle, MemfdHandle) for handle in handles)
    if len(fds) != needed:
        raise ValueError(f"fds has {len(fds)} descriptors; this graph needs {needed}")


def _anonymous(handle: GraphHandle) -> list[int]:
    """Return the positions of the segments that need a descriptor."""
    return [at for at, one in enumerate(handle.segments) if isinstance(one, MemfdHandle)]


def _check_segment(placed: PlacedArray, there: int) -> None:
    if not 0 <= placed.segment < there:
        raise ValueError(f"the handle speaks of segment {placed.segment}, there are {there}")


def _placed_in(segments: Sequence[Segment], placed: PlacedArray) -> SharedArray:
    _check_segment(placed, len(segments))
    return SharedArray(segments[placed.segment], placed.dtype, placed.shape, placed.offset)
