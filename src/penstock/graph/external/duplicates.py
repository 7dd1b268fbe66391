"""Finds edges that have the ends of earlier ones, bucket by bucket.

A row that is too long to be held is shared out by the sources of its edges.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.graph.external.buckets import Bucket
from penstock.graph.external.work import Work
from penstock.kernels.buckets import NO_REPEATS, Repeats, drop, find_repeats, sort_records
from penstock.kernels.members import Members


def find_duplicates(work: Work, buckets: Sequence[Bucket], kept: Members | None) -> list[Repeats]:
    """Return what repeats earlier edges in each bucket.

    Args:
        work: What the buckets are of.
        buckets: All buckets, of which large ones have one row.
        kept: Loses such edges. Its ranks are wrong afterwards.
    """
    with work.threads() as threads:
        small = [
            None if work.is_large(bucket) else threads.submit(_in_bucket, work, bucket, kept)
            for bucket in buckets
        ]
        found = [None if task is None else task.result() for task in small]
    return [
        _in_row(work, bucket, kept) if one is None else one
        for bucket, one in zip(buckets, found, strict=True)
    ]


def refuse_duplicates(buckets: Sequence[Bucket], found: Sequence[Repeats]) -> None:
    """Raise an error that names the first edge that repeats an earlier one, if there is any."""
    some = [
        (each.id, each.source, bucket.first_row + each.row)
        for bucket, each in zip(buckets, found, strict=True)
        if each.total
    ]
    if some:
        position, source, destination = min(some)
        raise ValueError(
            f"edge {position} leads from {source} to {destination}, as an earlier one does; "
            f"{sum(each.total for each in found)} edges are such duplicates"
        )


def _in_bucket(work: Work, bucket: Bucket, kept: Members | None) -> Repeats:
    ends = np.empty(bucket.num_rows, np.int64)
    entries = np.empty((bucket.num_edges, 2), work.dtype)
    sort_records(bucket.load(), bucket.record, 0, work.num_sources, ends, entries)
    return find_repeats(ends, entries, 0, kept)


def _in_row(work: Work, bucket: Bucket, kept: Members | None) -> Repeats:
    def is_large(part: Bucket) -> bool:
        # The ends of its rows take memory, too.
        many = 8 * part.num_rows > work.memory // 16
        return part.num_edges > 0 and (many or work.is_large(part))

    name = f"row-{bucket.first_row}"
    by_source = work.buckets(name, 0, work.num_sources)
    for sources, _, ids in work.edges_of(bucket):
        by_source.add(sources, sources, ids)
    found = NO_REPEATS
    for part in work.expanded(by_source.finish(in_memory=False), is_large, name):
        if part.num_edges:
            find = _in_one_edge if is_large(part) else _in_bucket
            found = _both(found, find(work, part, kept))
        part.remove()
    return found._replace(row=0)


def _both(one: Repeats, other: Repeats) -> Repeats:
    first = min((each for each in (one, other) if each.total), key=_position, default=one)
    return first._replace(total=one.total + other.total)


def _position(found: Repeats) -> int:
    return found.id


def _in_one_edge(work: Work, bucket: Bucket, kept: Members | None) -> Repeats:
    """Return what there is among edges with the same ends: all but the first."""
    found = NO_REPEATS
    is_first = True
    for _, _, ids in work.edges_of(bucket):
        later = ids[1:] if is_first and len(ids) else ids
        is_first = is_first and not len(ids)
        if kept is not None:
            drop(kept, later)
        if len(later):
            found = _both(found, Repeats(len(later), int(later[0]), bucket.first_row, 0))
    return found
