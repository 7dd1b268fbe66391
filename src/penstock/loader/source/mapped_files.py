"""Arrays that lie in files already, and stay there: they may be larger than memory.

Users map such files themselves, by `np.memmap`, by `np.load` with a `mmap_mode`, or as tensors over
either, which do not tell: whose memory an array lies in, the system is asked. Where others can map
the same file, a graph has it from there, and writes to it are seen by all. Elsewhere than on Linux
nothing is found, and arrays are copied.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt

from penstock.graph.draft import Draft
from penstock.graph.schema import ArrayKey
from penstock.graph.segment import Segment
from penstock.graph.shared import SharedArray
from penstock.graph.tensors import PlainArray

_MAPPED: Final = Path("/proc/self/maps")
# Shared memory has names of files, too, but is memory.
_MEMORY: Final = ("/dev/", "/memfd:", "/SYSV")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an array begins: in which file, whatever has its name later, and at which byte."""

    path: str
    inode: int
    offset: int


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of this process's memory that shows a file, from a byte of it on.

    `is_own`: what is written here is not written to the file.
    """

    begin: int
    end: int
    path: str
    offset: int
    inode: int
    is_own: bool

    def place_of(self, array: npt.NDArray[Any]) -> Place | None:
        """Where others find the array; None if they cannot map it as it is here."""
        offset = self.offset + _address(array) - self.begin
        if self.is_own or not array.flags.c_contiguous or offset % array.itemsize:
            return None
        try:
            is_there = os.stat(self.path).st_ino == self.inode
        except OSError:  # it has no name any more, or not one for us
            return None
        return (
            Place(self.path, self.inode, offset)
            if is_there and os.access(self.path, os.R_OK)
            else None
        )


class MappedFiles:
    """The files that this process has mapped at the moment it is first asked."""

    def region_of(self, array: npt.NDArray[Any]) -> Region | None:
        """The region an array begins in; None: it lies in memory."""
        address = _address(array)
        at = bisect_right(self._regions, address, key=lambda region: region.begin)
        region = self._regions[at - 1] if at else None
        return region if region is not None and array.nbytes and address < region.end else None

    @cached_property
    def _regions(self) -> list[Region]:
        lines = _MAPPED.read_text("utf-8", "surrogateescape") if _MAPPED.exists() else ""
        return sorted(filter(None, map(_region, lines.split("\n"))), key=lambda found: found.begin)


class FiledDraft(Draft):
    """A draft whose columns stay in their files, where others can map these: they are `placed`."""

    def __init__(self, *, is_hetero: bool) -> None:
        super().__init__(is_hetero=is_hetero)
        self.files = MappedFiles()
        self.placed: dict[ArrayKey, tuple[PlainArray, Place]] = {}

    def add_column(self, key: ArrayKey, column: PlainArray) -> None:
        """An array that the graph will keep, or find where it is."""
        region = self.files.region_of(column.array)
        place = None if region is None else region.place_of(column.array)
        if place is None:
            super().add_column(key, column)
        else:
            self.placed[key] = column, place

    def opened(self) -> dict[ArrayKey, SharedArray]:
        """What is placed, mapped: each file once."""
        paths = {place.path for _, place in self.placed.values()}
        segments = {path: Segment.open(path) for path in paths}
        return {
            key: SharedArray(segments[place.path], column.dtype, column.shape, place.offset)
            for key, (column, place) in self.placed.items()
        }


def _address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _region(line: str) -> Region | None:
    """A line of proc(5)'s `maps`, if it speaks of a file."""
    words = line.split(maxsplit=5)
    if len(words) < 6 or not words[5].startswith("/") or words[5].startswith(_MEMORY):
        return None
    span, rights, offset, _, inode, path = words
    begin, end = (int(bound, 16) for bound in span.split("-"))
    is_own = rights[3] == "p" and rights[1] == "w"
    return Region(begin, end, path.replace("\\012", "\n"), int(offset, 16), int(inode), is_own)
