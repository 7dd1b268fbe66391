"""The graph of a hub: its mapping, and the descriptors for workers and ranks.

The hub reads only the graph's shape. It keeps the descriptors that it got, because new workers and
ranks that join need them, and only an owner can pass them on. Derived arrays that a rank computes
later (out-edges, sums of weights) come as a supplement, once; the hub computes none itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from penstock.graph.checksum import counts
from penstock.graph.handles import MemfdHandle
from penstock.graph.inventory import key_text
from penstock.graph.schema import ArrayKey
from penstock.graph.sharing import GraphHandle, attach, check_descriptors, part_of, segments_of
from penstock.store.attach import attach as attach_graph


class SharedGraph:
    """A graph, its handle and its descriptors. It owns the descriptors that it gets."""

    def __init__(self, handle: GraphHandle, fds: Sequence[int]) -> None:
        self._fds: dict[tuple[int, int], int] = {}
        try:
            self.graph = attach_graph(handle, _duplicates(fds))
        except BaseException:
            _close_all(fds)
            raise
        self.founded = handle
        self.supplements: list[GraphHandle] = []
        self._keep(handle, fds)

    @property
    def handle(self) -> GraphHandle:
        """The handle of the whole graph, including supplements."""
        return self.graph.handle()

    def descriptors(self, handle: GraphHandle) -> list[int]:
        """Return the descriptors to send with a handle of this graph, which keeps owning them."""
        anonymous = (s for s in handle.segments if isinstance(s, MemfdHandle))
        return [self._fds[segment.device, segment.inode] for segment in anonymous]

    def supplement(self, handle: GraphHandle, fds: Sequence[int]) -> None:
        """Add the derived arrays that the graph lacks. Takes ownership of `fds` in any case."""
        left = list(fds)
        try:
            check_descriptors(handle.segments, fds)
            if news := self._news(handle):
                part, used = part_of(handle, fds, news)
                self._add(part, used)
                self._keep(part, used)
                self.supplements.append(part)
                left = [fd for fd in fds if fd not in used]
        finally:
            _close_all(left)

    def close(self) -> None:
        """Close the graph and its descriptors. Idempotent."""
        self.graph.close()
        _close_all(list(self._fds.values()))
        self._fds.clear()

    def _news(self, handle: GraphHandle) -> list[ArrayKey]:
        """Return the keys of arrays that the graph lacks. Existing ones are never replaced."""
        if handle.schema != self.founded.schema:
            raise ValueError("supplement is of another graph: its types are not this graph's")
        there = self.graph.arrays
        news = [placed.key for placed in handle.arrays if placed.key not in there]
        for key in filter(counts, news):
            raise ValueError(
                f"supplement has {key_text(key)}, which this graph has not, and no derived array"
            )
        return news

    def _add(self, handle: GraphHandle, fds: Sequence[int]) -> None:
        arrays = attach(handle, _duplicates(fds))
        try:
            whole = {**self.graph.arrays, **arrays}
            self.graph = self.graph.with_arrays(whole)
        except BaseException:
            for segment in segments_of(arrays):
                segment.close()
            raise

    def _keep(self, handle: GraphHandle, fds: Sequence[int]) -> None:
        anonymous = [s for s in handle.segments if isinstance(s, MemfdHandle)]
        for segment, fd in zip(anonymous, fds, strict=True):
            key = segment.device, segment.inode
            if key in self._fds:
                os.close(fd)
            else:
                self._fds[key] = fd


def _duplicates(fds: Sequence[int]) -> list[int]:
    made: list[int] = []
    try:
        for fd in fds:
            made.append(os.dup(fd))
    except BaseException:
        _close_all(made)
        raise
    return made


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
