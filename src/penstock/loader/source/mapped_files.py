"""Arrays that lie in files already and stay there, since they may be larger than memory.

Users map such files themselves, with `np.memmap`, with `np.load` and a `mmap_mode`, or as tensors
over either. These objects do not tell, so the operating system is asked which file an address
belongs to. Where other processes can map the same file, a graph maps it, too, and all see writes to
it. On systems other than Linux nothing is found, and arrays are copied.
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
# Shared memory has file names, too, but is memory.
_MEMORY: Final = ("/dev/", "/memfd:", "/SYSV")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an array begins: in which file (by inode, since names change) and at which byte."""

    path: str
    inode: int
    offset: int


@dataclass(frozen=True, slots=True)
class Region:
    """A range of this process's memory that maps a file, from `offset` on.

    `is_own`: writes here do not go to the file.
    """

    begin: int
    end: int
    path: str
    offset: int
    inode: int
    is_own: bool

    def place_of(self, array: npt.NDArray[Any]) -> Place | None:
        """Return where other processes find the array; None if they cannot map it as it is here."""
        offset = self.offset + _address(array) - self.begin
        if self.is_own or not array.flags.c_contiguous or offset % array.itemsize:
            return None
        try:
            is_there = os.stat(self.path).st_ino == self.inode
        except OSError:  # the file has no name any more, or we may not see it
            return None
        return (
            Place(self.path, self.inode, offset)
            if is_there and os.access(self.path, os.R_OK)
            else None
        )


class MappedFiles:
    """The files that this process has mapped when it is first asked."""

    def region_of(self, array: npt.NDArray[Any]) -> Region | None:
        """Return the region in which an array begins; None: it is not in a file."""
        address = _address(array)
        at = bisect_right(self._regions, address, key=lambda region: region.begin)
        region = self._regions[at - 1] if at else None
        return region if region is not None and array.nbytes and address < region.end else None

    @cached_property
    def _regions(self) -> list[Region]:
        lines = _MAPPED.read_text("utf-8", "surrogateescape") if _MAPPED.exists() else ""
        return sorted(filter(None, map(_region, lines.split("\n"))), key=lambda found: found.begin)


class FiledDraft(Draft):
    """A draft whose columns stay in their files if others can map these: they are `placed`."""

    def __init__(self, *, is_hetero: bool) -> None:
        super().__init__(is_hetero=is_hetero)
        self.files = MappedFiles()
        self.placed: dict[ArrayKey, tuple[PlainArray, Place]] = {}

    def add_column(self, key: ArrayKey, column: PlainArray) -> None:
        """Add an array that the graph will copy, or map where it is."""
        region = self.files.region_of(column.array)
        place = None if region is None else region.place_of(column.array)
        if place is None:
            super().add_column(key, column)
        else:
            self.placed[key] = column, place

    def opened(self) -> dict[ArrayKey, SharedArray]:
        """Map the arrays that are `placed`, each file once."""
        paths = dict.fromkeys(place.path for _, place in self.placed.values())
        segments = {path: Segment.open(path) for path in paths}
        return {
            key: SharedArray(segments[place.path], column.dtype, column.shape, place.offset)
            for key, (column, place) in self.placed.items()
        }


def _address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _region(line: str) -> Region | None:
    """Parse a line of `/proc/self/maps`; None if it is not about a file."""
    words = line.split(maxsplit=5)
    if len(words) < 6 or not words[5].startswith("/") or words[5].startswith(_MEMORY):
        return None
    span, rights, offset, _, inode, path = words
    begin, end = (int(bound, 16) for bound in span.split("-"))
    is_own = rights[3] == "p" and rights[1] == "w"
    return Region(begin, end, path.replace("\\012", "\n"), int(offset, 16), int(inode), is_own)
