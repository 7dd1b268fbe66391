"""What sorting out of core works with, and which buckets are too large to be sorted in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.graph.external.buckets import Bucket, Buckets
from penstock.graph.external.scratch import Scratch
from penstock.graph.topology import id_dtype
from penstock.kernels.arrays import Ids
from penstock.kernels.buckets import unpack_records

_MOST_THREADS: Final = 4


@dataclass(frozen=True)
class Work:
    """The edges of one type that are being sorted.

    Of the memory, the pool of buckets has three eighths, and offsets have one. Rows that are made
    while others are written have two; so have the buckets that threads are reading.

    Attributes:
        scratch: Where files go.
        num_sources: How many nodes edges may come from.
        num_given: How many edges there are, with those that are dropped.
        memory: How many bytes to use, about.
    """

    scratch: Scratch
    num_sources: int
    num_given: int
    memory: int

    @property
    def dtype(self) -> str:
        """The type that holds sources and the ids of all edges that were given."""
        return id_dtype(max(self.num_sources, self.num_given))

    def threads(self) -> ThreadPoolExecutor:
        """Return threads that sort buckets."""
        return ThreadPoolExecutor(min(_cores(), _MOST_THREADS), "penstock-sort")

    def is_large(self, bucket: Bucket) -> bool:
        """Return whether a bucket is not to be sorted in memory."""
        pairs = 2 * np.dtype(self.dtype).itemsize * bucket.num_edges
        return max(bucket.nbytes, pairs) > self.memory // 16

    def buckets(self, name: str, first: int, size: int) -> Buckets:
        """Return new buckets for `size` keys, to share out a large bucket again."""
        return Buckets(self.scratch, name, first, size, self.num_sources, self.memory // 8)

    def expanded(
        self, buckets: Sequence[Bucket], is_large: Callable[[Bucket], bool], name: str
    ) -> Iterator[Bucket]:
        """Yield buckets, sharing out large ones again; those of one row cannot be.

        Args:
            buckets: The buckets, in order.
            is_large: Says which.
            name: That of the buckets' files.
        """
        for number, bucket in enumerate(buckets):
            if bucket.num_rows == 1 or not is_large(bucket):
                yield bucket
                continue
            finer = self.buckets(f"{name}-{number}", bucket.first_row, bucket.num_rows)
            for sources, rows, ids in self.edges_of(bucket):
                finer.add(sources, rows + bucket.first_row, ids)
            bucket.remove()
            yield from self.expanded(finer.finish(in_memory=False), is_large, f"{name}-{number}")

    def edges_of(self, bucket: Bucket) -> Iterator[tuple[Ids, Ids, Ids]]:
        """Yield sources, rows and ids of a bucket, some at a time, in order of ids."""
        upper = 0
        for part in bucket.parts(self.memory // 64):
            sources, rows, ids, upper = unpack_records(part, bucket.record, upper)
            yield sources, rows, ids


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
