"""The graph a hub hosts: the one mapping of it, and the descriptors to hand on.

The hub reads nothing of it but its shape. It keeps the descriptors it was given, because whoever
comes later (a worker, a rank that joins) needs them, and only their owner can give them. Derived
arrays that are made later (out-edges, sums of weights) come as a supplement, once; the hub makes
none itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from penstock.graph.checksum import counts
from penstock.graph.graph import Graph
from penstock.graph.handles import MemfdHandle
from penstock.graph.inventory import key_text
from penstock.graph.schema import ArrayKey
from penstock.graph.sharing import GraphHandle, attach, check_descriptors, part_of, segments_of


class SharedGraph:
    """A graph, its handle and its descriptors; takes those it is given over."""

    def __init__(self, handle: GraphHandle, fds: Sequence[int]) -> None:
        self._fds: dict[tuple[int, int], int] = {}
        try:
            self.graph = Graph.attach(handle, _duplicates(fds))
        except BaseException:
            _close_all(fds)
            raise
        self.founded = handle
        self.supplements: list[GraphHandle] = []
        self._keep(handle, fds)

    @property
    def handle(self) -> GraphHandle:
        """The whole graph, with what was supplemented."""
        return self.graph.handle()

    def descriptors(self, handle: GraphHandle) -> list[int]:
        """What must travel with `handle`, which speaks of this graph. They stay ours."""
        anonymous = (s for s in handle.segments if isinstance(s, MemfdHandle))
        return [self._fds[segment.device, segment.inode] for segment in anonymous]

    def supplement(self, handle: GraphHandle, fds: Sequence[int]) -> None:
        """Adds the derived arrays that the graph lacks. Takes `fds` over, whatever happens."""
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
        """Lets go of the graph. Idempotent."""
        self.graph.close()
        _close_all(list(self._fds.values()))
        self._fds.clear()

    def _news(self, handle: GraphHandle) -> set[ArrayKey]:
        """What is not here yet. What is here stays: nothing else can be put in its place."""
        if handle.schema != self.founded.schema:
            raise ValueError("supplement is of another graph: its types are not this graph's")
        news = {placed.key for placed in handle.arrays} - set(self.graph.arrays)
        for key in filter(counts, news):
            raise ValueError(
                f"supplement has {key_text(key)}, which this graph has not, and no derived array"
            )
        return news

    def _add(self, handle: GraphHandle, fds: Sequence[int]) -> None:
        arrays = attach(handle, _duplicates(fds))
        try:
            whole = {**self.graph.arrays, **arrays}
            self.graph = Graph(self.graph.schema, whole, self.founded.version)
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
