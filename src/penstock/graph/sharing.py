"""A whole graph on its way into another process: a small message, and a descriptor.

    handle, fds = graph.handle(), graph.descriptors
    Popen([...], pass_fds=fds)                    # and the handle by any message
    graph = Graph.attach(handle, fds)             # over there; closes them

A segment is mapped once, however many arrays lie in it. A graph of files needs no descriptors.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from penstock.graph.handles import MemfdHandle, SegmentHandle
from penstock.graph.schema import ArrayKey, Arrays, Schema
from penstock.graph.segment import Segment
from penstock.graph.shared import SharedArray


class PlacedArray(msgspec.Struct, frozen=True):
    """An array, and where in which of the graph's segments it lies."""

    key: ArrayKey
    segment: int
    dtype: str
    shape: tuple[int, ...]
    offset: int


class GraphHandle(msgspec.Struct, frozen=True):
    """What another process needs to map a graph; with descriptors where it lies in memfds."""

    schema: Schema
    segments: tuple[SegmentHandle, ...]
    arrays: tuple[PlacedArray, ...]
    version: str | None = None


def segments_of(arrays: Arrays) -> list[Segment]:
    """The segments the arrays lie in, each once, in the order of first use."""
    return list({id(array.segment): array.segment for array in arrays.values()}.values())


def handle_of(schema: Schema, arrays: Arrays, version: str | None) -> GraphHandle:
    """The handle of a graph."""
    segments = segments_of(arrays)
    position = {id(segment): at for at, segment in enumerate(segments)}
    placed = (
        PlacedArray(key, position[id(array.segment)], array.dtype, array.shape, array.offset)
        for key, array in arrays.items()
    )
    return GraphHandle(
        schema, tuple(segment.handle for segment in segments), tuple(placed), version
    )


def descriptors_of(arrays: Arrays) -> tuple[int, ...]:
    """What must travel with the handle: the descriptors of memfds, in the order of segments."""
    anonymous = (s for s in segments_of(arrays) if isinstance(s.handle, MemfdHandle))
    return tuple(segment.fileno() for segment in anonymous)


def attach(handle: GraphHandle, fds: Sequence[int] = ()) -> dict[ArrayKey, SharedArray]:
    """The arrays of a graph that another process described. Closes `fds`, also when it fails."""
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
        needed = sum(isinstance(handle, MemfdHandle) for handle in handles)
        if len(fds) != needed:
            raise ValueError(f"fds has {len(fds)} descriptors; this graph needs {needed}")
        for handle in handles:
            fd = fds.pop(0) if isinstance(handle, MemfdHandle) else None
            segments.append(Segment.attach(handle, fd))
    except BaseException:
        for fd in fds:
            with suppress(OSError):  # one that is none must not keep the others open
                os.close(fd)
        for segment in segments:
            segment.close()
        raise
    return segments


def _placed_in(segments: Sequence[Segment], placed: PlacedArray) -> SharedArray:
    if not 0 <= placed.segment < len(segments):
        raise ValueError(
            f"the handle speaks of segment {placed.segment}, there are {len(segments)}"
        )
    return SharedArray(segments[placed.segment], placed.dtype, placed.shape, placed.offset)
