"""Shares edges out to buckets, and sorts a bucket: the interface of kernels for edges out of core.

A bucket is a stream of records, in the order of edge ids: of bytes, `NARROW` or `WIDE` for each. A
record has the source, the low bits of the key, and the low bits of the id. A mark, whose source has
all bits set, stands before records whose ids have other upper bits than those before; its row and
its id are these bits. So an edge takes 8 bytes, whatever its id.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.members import WORD_BITS, Members

NARROW: Final = np.dtype([("source", "<u4"), ("row", "<u2"), ("id", "<u2")])
WIDE: Final = np.dtype([("source", "<u8"), ("row", "<u4"), ("id", "<u4")])

# The columns of the table of buckets: where the next record goes in the pool, where there is no
# more room, the upper bits of the last mark, and the number of edges.
AT, END, MARK, EDGES = range(4)


class Keys(NamedTuple):
    """The keys that are shared out: `size` of them from `first` on, 2**shift to each bucket."""

    first: int
    size: int
    shift: int

    @property
    def num_buckets(self) -> int:
        return -(-self.size >> self.shift)


class Repeats(NamedTuple):
    """How many edges repeat earlier ones of their rows, and which has the lowest id, or -1."""

    total: int
    id: int
    source: int
    row: int


NO_REPEATS: Final = Repeats(0, -1, -1, -1)


def most_sources(record: np.dtype[np.void]) -> int:
    """Return how many sources records of this type can tell apart."""
    return int(np.iinfo(record["source"]).max)


def most_rows(record: np.dtype[np.void]) -> int:
    """Return how many rows a bucket of such records may have."""
    return int(np.iinfo(record["row"]).max) + 1


def spread_edges(
    sources: Array,
    keys: Array,
    ids: Ids | int,
    range_: Keys,
    record: np.dtype[np.void],
    pool: Array,
    buckets: Ids,
) -> int:
    """Append edges to their buckets until one is full; return how many were appended.

    Args:
        sources: Where edges begin.
        keys: What says to which bucket they go.
        ids: Their ids, or the id of the first if they follow each other.
        range_: Which keys there are.
        record: `NARROW` or `WIDE`.
        pool: The memory of all buckets, in bytes.
        buckets: The table of buckets, [num_buckets, 4]; brought up to date.

    Raises:
        ValueError: A source or key is out of range; the table may have changed.
    """
    wide = np.result_type(sources, keys)
    explicit = None if isinstance(ids, int) else ids
    taken = _native.spread_edges(
        sources.astype(wide, copy=False),
        keys.astype(wide, copy=False),
        explicit,
        ids if isinstance(ids, int) else 0,
        *range_,
        record.itemsize,
        pool,
        buckets,
    )
    if taken < 0:
        bad = -1 - taken
        raise ValueError(f"edge {bad} is ({sources[bad]}, {keys[bad]}), which is out of range")
    return taken


def unpack_records(
    records: Array, record: np.dtype[np.void], upper: int = 0
) -> tuple[Ids, Ids, Ids, int]:
    """Return sources, rows and ids of edges, and the upper bits of ids that come after them.

    Args:
        records: Some records of a bucket.
        record: Their type.
        upper: What this function returned of the records before them.
    """
    room = len(records) // record.itemsize
    sources, rows, ids = (np.empty(room, np.int64) for _ in range(3))
    count, upper = _native.unpack_records(records, record.itemsize, upper, sources, rows, ids)
    return sources[:count], rows[:count], ids[:count], upper


def count_records(
    records: Array, record: np.dtype[np.void], begin: int, ends: Ids, kept: Members | None = None
) -> None:
    """Write where the rows of a bucket end, if the first begins at `begin`."""
    words, size = _words(kept)
    if not _native.count_records(records, record.itemsize, begin, ends, words, size):
        raise _damaged()


def sort_records(
    records: Array,
    record: np.dtype[np.void],
    begin: int,
    num_sources: int,
    ends: Ids,
    entries: Array,
    kept: Members | None = None,
) -> None:
    """Sort the edges of a bucket by row, stably, and write where rows end.

    Args:
        records: The bucket.
        record: The type of its records.
        begin: Where the first row begins, among the rows of all buckets.
        num_sources: How many sources there are.
        ends: One for each row.
        entries: [edges, 2], for pairs of source and id, or [edges], for sources alone.
        kept: The edges that count, whose ranks are then their ids.
    """
    words, size = _words(kept)
    sound = _native.sort_records(
        records, record.itemsize, begin, num_sources, ends, entries, words, size
    )
    if not sound:
        raise _damaged()


def find_repeats(ends: Ids, entries: Array, begin: int, kept: Members | None = None) -> Repeats:
    """Find the edges of sorted rows whose source stands in the row before.

    Args:
        ends: Where rows end.
        entries: Their pairs of source and id. Afterwards each row is sorted by them.
        begin: Where the first row begins.
        kept: Loses such edges. Its ranks are wrong until `rank` is called.
    """
    words, size = _words(kept)
    return Repeats(*_native.find_repeats(ends, entries, begin, words, size))


def all_members(size: int, words: Array) -> Members:
    """Return members with all ids; `words` is written to."""
    words[:, 0] = np.uint64(2**64 - 1)
    if used := size % WORD_BITS:
        words[-1, 0] = np.uint64((1 << used) - 1)
    return ranked(words, size)


def drop(kept: Members, ids: Ids) -> None:
    """Remove ids, each of them once. Ranks are wrong until `ranked` is called."""
    bits = np.left_shift(np.uint64(1), (ids % WORD_BITS).astype(np.uint64))
    np.bitwise_and.at(kept.words[:, 0], ids // WORD_BITS, ~bits)


def ranked(words: Array, size: int) -> Members:
    """Return members by their bits; ranks are written."""
    _native.rank_members(words)
    return Members(words, size)


def _words(kept: Members | None) -> tuple[Array | None, int]:
    return (None, 0) if kept is None else (kept.words, kept.size)


def _damaged() -> GraphFormatError:
    return GraphFormatError("damaged records of edges: something else has written to them")
