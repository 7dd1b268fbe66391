"""What one process tells another so that it can map the same memory.

Plain data, small whatever the size of the arrays, safe to put on a wire. A handle holds nothing
open and keeps nothing alive. Handles are not trusted either: bounds are checked when one is used.
"""

from __future__ import annotations

import msgspec


class FileHandle(msgspec.Struct, frozen=True, tag="file"):
    """A file, mapped whole. The path is absolute: the reader may stand elsewhere."""

    path: str


class MemfdHandle(msgspec.Struct, frozen=True, tag="memfd"):
    """Memory without a name. Useless alone: it travels with its descriptor.

    `device` and `inode` tell, of a descriptor that comes with it, whether it is the right one.
    """

    nbytes: int
    device: int
    inode: int
    frozen: bool = False


class NamedHandle(msgspec.Struct, frozen=True, tag="named"):
    """Memory with a name in the file system, which its creator takes away again."""

    path: str
    nbytes: int
    frozen: bool = False


SegmentHandle = FileHandle | MemfdHandle | NamedHandle


class ArrayHandle(msgspec.Struct, frozen=True):
    """One array, and the segment it lies in."""

    segment: SegmentHandle
    dtype: str
    shape: tuple[int, ...]
    offset: int = 0
