"""Buckets of edges: in memory as long as they fit, the largest ones in files when they do not.

The memory is a pool of blocks. A bucket fills one block after the other; when no block is free, the
blocks of the largest bucket are appended to its file. Records are those of `kernels.buckets`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from penstock.graph.checksum import Bytes
from penstock.graph.external.scratch import Scratch, append
from penstock.graph.folder import naming
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.buckets import (
    AT,
    EDGES,
    END,
    MARK,
    NARROW,
    WIDE,
    Keys,
    most_rows,
    most_sources,
    spread_edges,
)

Record = np.dtype[np.void]

# Where a kernel writes to so many buckets, the ends of all of them still stay in a core's cache.
_MOST_BUCKETS: Final = 2048
# More of them are better than records of twice the size.
_MOST_NARROW_BUCKETS: Final = 8192
_FEWEST_BUCKETS: Final = 256
_MOST_BLOCK_NBYTES: Final = 1 << 18
_LEAST_BLOCK_NBYTES: Final = 256
_BLOCKS_PER_BUCKET: Final = 4
_GOOD_BLOCK_NBYTES: Final = 4096

# Of more keys than that, a bucket could not number its rows.
MOST_KEYS: Final = 2**40


@dataclass(frozen=True, eq=False)
class Bucket:
    """The edges of some rows: the beginning of the stream is in a file, the end in memory."""

    record: Record
    first_row: int
    num_rows: int
    num_edges: int
    path: Path
    file_nbytes: int = 0
    tail: list[Bytes] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return self.file_nbytes + sum(map(len, self.tail))

    def load(self) -> Bytes:
        """Return all records."""
        (records,) = self.parts(max(self.nbytes, 1))
        return records

    def parts(self, nbytes: int) -> Iterator[Bytes]:
        """Yield the records in order, about so many bytes at a time; one empty part if none."""
        step = max(nbytes // self.record.itemsize, 1) * self.record.itemsize
        reader = _Stream(self)
        try:
            for begin in range(0, max(self.nbytes, 1), step):
                out = np.empty(min(step, self.nbytes - begin), np.uint8)
                reader.read(out)
                yield out
        finally:
            reader.close()

    def remove(self) -> None:
        """Remove the file. The bucket cannot be read any more."""
        if self.file_nbytes:
            os.unlink(self.path)


class _Stream:
    """Reads a bucket from its file, then from memory."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._left = bucket.file_nbytes
        self._file = FileIO(bucket.path) if bucket.file_nbytes else None
        self._tail = list(bucket.tail)

    def read(self, out: Bytes) -> None:
        if self._file is not None and self._left:
            count = min(self._left, len(out))
            with naming(self._bucket.path):
                self._fill(self._file, out[:count])
            self._left, out = self._left - count, out[count:]
        while len(out):
            block = self._tail.pop(0)
            count = min(len(block), len(out))
            out[:count] = block[:count]
            out = out[count:]
            if count < len(block):
                self._tail.insert(0, block[count:])

    def _fill(self, file: FileIO, out: Bytes) -> None:
        while len(out):
            count = file.readinto(out.data)
            if not count:
                raise OSError(errno.EIO, "a temporary file was cut short", str(self._bucket.path))
            out = out[count:]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _Block(NamedTuple):
    """A full block: its number, and where its records begin and end in the pool."""

    number: int
    begin: int
    end: int


class Buckets:
    """Shares edges out to buckets by their keys, in order of their ids."""

    def __init__(
        self, scratch: Scratch, name: str, first: int, size: int, num_sources: int, nbytes: int
    ) -> None:
        """Prepare buckets for the keys from `first` on, in about `nbytes` of memory."""
        self._scratch = scratch
        self._name = name
        self._keys = Keys(first, size, _shift(size, nbytes))
        narrow = self._keys.shift <= 16 and num_sources <= most_sources(NARROW)
        self.record: Record = NARROW if narrow else WIDE
        assert 1 << self._keys.shift <= most_rows(self.record)
        count = self._keys.num_buckets
        self._table = np.zeros((count, 4), np.int64)
        self._table[:, MARK] = -1
        block_nbytes = min(
            max(nbytes // max(_BLOCKS_PER_BUCKET * count, 1), _LEAST_BLOCK_NBYTES),
            _MOST_BLOCK_NBYTES,
        )
        self._block = block_nbytes // self.record.itemsize
        num_blocks = max(nbytes // block_nbytes, _BLOCKS_PER_BUCKET * count)
        self._pool: Bytes = np.empty(num_blocks * self._block * self.record.itemsize, np.uint8)
        self._unused = iter(range(num_blocks))  # in order: memory is touched when it is needed
        self._free: list[int] = []
        self._current = np.full(count, -1, np.int64)
        self._full: list[list[_Block]] = [[] for _ in range(count)]
        self._num_full = np.zeros(count, np.int64)
        self._file_nbytes = [0] * count

    def add(self, sources: Array, keys: Array, ids: Ids | int) -> None:
        """Append edges, whose ids rise: `ids`, or those from that one on."""
        wide = np.result_type(sources, keys)
        sources, keys = sources.astype(wide, copy=False), keys.astype(wide, copy=False)
        done = 0
        while done < len(keys):
            left = ids + done if isinstance(ids, int) else ids[done:]
            done += spread_edges(
                sources[done:], keys[done:], left, self._keys, self.record, self._pool, self._table
            )
            if done < len(keys):
                self._give_block((int(keys[done]) - self._keys.first) >> self._keys.shift)

    def finish(self, *, in_memory: bool) -> list[Bucket]:
        """Return the buckets, in order of their keys.

        Args:
            in_memory: Whether what is not in files may stay in the pool.
        """
        for number in range(len(self._table)):
            self._end_block(number)
            if not in_memory:
                self._spill(number)
        found = [self._bucket(number) for number in range(len(self._table))]
        self._pool = np.empty(0, np.uint8)
        return found

    def _bucket(self, number: int) -> Bucket:
        first, size, shift = self._keys
        begin = number << shift
        return Bucket(
            self.record,
            first + begin,
            min(1 << shift, size - begin),
            int(self._table[number, EDGES]),
            self._path(number),
            self._file_nbytes[number],
            [self._bytes(block) for block in self._full[number]],
        )

    def _path(self, number: int) -> Path:
        return self._scratch.path(f"{self._name}-{number}")

    def _bytes(self, block: _Block) -> Bytes:
        width = self.record.itemsize
        return self._pool[block.begin * width : block.end * width]

    def _give_block(self, number: int) -> None:
        """Let a bucket go on in a new block."""
        self._end_block(number)
        block = self._free.pop() if self._free else next(self._unused, -1)
        if block < 0:
            self._spill(int(self._num_full.argmax()))
            block = self._free.pop()
        self._current[number] = block
        self._table[number, AT] = block * self._block
        self._table[number, END] = (block + 1) * self._block

    def _end_block(self, number: int) -> None:
        block = int(self._current[number])
        if block >= 0:
            begin, end = block * self._block, int(self._table[number, AT])
            self._full[number].append(_Block(block, begin, end))
            self._num_full[number] += 1
            self._current[number] = -1

    def _spill(self, number: int) -> None:
        """Append the full blocks of a bucket to its file."""
        blocks = self._full[number]
        if not blocks:
            return
        contents = [self._bytes(block) for block in blocks]
        append(self._path(number), contents)
        self._file_nbytes[number] += sum(map(len, contents))
        self._free += [block.number for block in reversed(blocks)]
        self._full[number] = []
        self._num_full[number] = 0


def _shift(num_keys: int, nbytes: int) -> int:
    """Return how many low bits of a key do not say which bucket it goes to."""
    bits = (nbytes // (_BLOCKS_PER_BUCKET * _GOOD_BLOCK_NBYTES)).bit_length()
    room = 1 << max(bits - 1, 0)
    most = max(_FEWEST_BUCKETS, min(_MOST_BUCKETS, room))
    shift = max((-(-num_keys // most) - 1).bit_length(), 0) if num_keys > most else 0
    narrow = most_rows(NARROW).bit_length() - 1
    return (
        narrow
        if shift > narrow and num_keys >> narrow <= min(_MOST_NARROW_BUCKETS, room)
        else shift
    )
