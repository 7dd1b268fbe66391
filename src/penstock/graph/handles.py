"""Handles: what one process sends to another so that it can map the same memory.

Plain data, small whatever the size of the arrays, safe to send. A handle holds nothing open and
keeps nothing alive. Handles are not trusted: bounds are checked when one is used.
"""

from __future__ import annotations

import msgspec


class FileHandle(msgspec.Struct, frozen=True, tag="file"):
    """A file, mapped whole. The path is absolute: the reader may have another current folder."""

    path: str


class MemfdHandle(msgspec.Struct, frozen=True, tag="memfd"):
    """Memory without a name. It can only be used together with its descriptor.

    `device` and `inode` show whether a descriptor that comes with it is the right one.
    """

    nbytes: int
    device: int
    inode: int
    frozen: bool = False


class NamedHandle(msgspec.Struct, frozen=True, tag="named"):
    """Memory with a name in the file system, which its creator removes again."""

    path: str
    nbytes: int
    frozen: bool = False


class DescriptorHandle(msgspec.Struct, frozen=True, tag="descriptor"):
    """Memory without a name, by the path of its creator's descriptor: /proc/4711/fd/8.

    Processes of the same user on this host can map it as long as the creator keeps it. `device` and
    `inode` show whether the path still leads to the same memory.
    """

    path: str
    nbytes: int
    device: int
    inode: int
    frozen: bool = False


SegmentHandle = FileHandle | MemfdHandle | NamedHandle | DescriptorHandle


class ArrayHandle(msgspec.Struct, frozen=True, weakref=True):
    """One array, and the segment that contains it."""

    segment: SegmentHandle
    dtype: str
    shape: tuple[int, ...]
    offset: int = 0
