"""Buckets of edges, in plain NumPy."""

from __future__ import annotations

import itertools

import numpy as np

from penstock.kernels.arrays import Array, Ids
from penstock.kernels.buckets import AT, EDGES, END, MARK, Keys, Repeats, most_sources
from penstock.kernels.members import Members


def spread_edges(
    sources: Array,
    keys: Array,
    ids: Ids | int,
    range_: Keys,
    record: np.dtype[np.void],
    pool: Array,
    buckets: Ids,
) -> int:
    records = pool.view(record)
    bits = 8 * record["id"].itemsize
    given = np.arange(ids, ids + len(keys)) if isinstance(ids, int) else ids
    triples = zip(sources.tolist(), keys.tolist(), given.tolist(), strict=True)
    for i, (source, key, id_) in enumerate(triples):
        bucket = buckets[(key - range_.first) >> range_.shift]
        if bucket[END] - bucket[AT] < 2:
            return i
        if id_ >> bits != bucket[MARK]:
            bucket[MARK] = mark = id_ >> bits
            low = mark & ((1 << bits) - 1)
            records[bucket[AT]] = (most_sources(record), mark >> bits, low)
            bucket[AT] += 1
        row = (key - range_.first) & ((1 << range_.shift) - 1)
        records[bucket[AT]] = (source, row, id_ & ((1 << bits) - 1))
        bucket[AT] += 1
        bucket[EDGES] += 1
    return len(keys)


def unpack_records(
    records: Array, record: np.dtype[np.void], upper: int = 0
) -> tuple[Ids, Ids, Ids, int]:
    bits = 8 * record["id"].itemsize
    edges: list[tuple[int, int, int]] = []
    for source, row, id_ in records.view(record).tolist():
        if source == most_sources(record):
            upper = (row << bits | id_) << bits
        else:
            edges.append((source, row, upper | id_))
    table = np.array(edges, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2], upper


def count_records(
    records: Array, record: np.dtype[np.void], begin: int, ends: Ids, kept: Members | None = None
) -> None:
    _, rows, _ = _numbered(records, record, kept)
    ends[:] = begin + np.cumsum(np.bincount(rows, minlength=len(ends)))


def sort_records(
    records: Array,
    record: np.dtype[np.void],
    begin: int,
    num_sources: int,
    ends: Ids,
    entries: Array,
    kept: Members | None = None,
) -> None:
    count_records(records, record, begin, ends, kept)
    sources, rows, ids = _numbered(records, record, kept)
    order = np.argsort(rows, kind="stable")
    if entries.ndim == 1:
        entries[:] = sources[order]
    else:
        entries[:, 0], entries[:, 1] = sources[order], ids[order]


def find_repeats(ends: Ids, entries: Array, begin: int, kept: Members | None = None) -> Repeats:
    found = []
    for row, end in enumerate(ends.tolist()):
        edges = sorted(map(tuple, entries[begin_of(ends, row, begin) : end - begin].tolist()))
        entries[begin_of(ends, row, begin) : end - begin] = np.array(edges).reshape(-1, 2)
        for before, edge in itertools.pairwise(edges):
            if edge[0] == before[0]:
                found.append((edge[1], edge[0], row))
    for id_, _, _ in found if kept is not None else ():
        assert kept is not None
        kept.words[id_ // 64, 0] &= np.uint64(~(1 << id_ % 64) & (2**64 - 1))
    return Repeats(len(found), *min(found)) if found else Repeats(0, -1, -1, -1)


def begin_of(ends: Ids, row: int, begin: int) -> int:
    return int(ends[row - 1]) - begin if row else 0


def _numbered(
    records: Array, record: np.dtype[np.void], kept: Members | None
) -> tuple[Ids, Ids, Ids]:
    sources, rows, ids, _ = unpack_records(records, record)
    if kept is None:
        return sources, rows, ids
    ranks = kept.rows(ids)
    here = ranks >= 0
    return sources[here], rows[here], ranks[here]
