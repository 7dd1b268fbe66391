"""Graphs made of what users have in memory: one for each content, however many loaders read it.

Loaders of the same data find each other by a digest of all that goes into the graph, read at memory
speed. What was changed in between, by whatever means, is another content, and another graph. What
stays in a file is told by its place: it may be larger than memory, and is not read. A graph lives
as long as a loader holds it.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Iterator
from dataclasses import astuple
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock import kernels
from penstock.graph import Graph
from penstock.graph.build import build
from penstock.graph.draft import Draft
from penstock.graph.sharing import segments_of
from penstock.loader.source.mapped_files import FiledDraft

_PIECE: Final = 16 << 20  # bytes

_LOCK: Final = threading.RLock()  # so that two threads do not make the same one
_graphs: weakref.WeakValueDictionary[str, Graph] = weakref.WeakValueDictionary()


def graph_of(draft: Draft) -> Graph:
    """The graph of a draft: one that is there, or a new one."""
    with _LOCK:
        key = digest_of(draft)
        graph = _graphs.get(key)
        if graph is None or any(segment.closed for segment in segments_of(graph.arrays)):
            graph = _graphs[key] = _made(draft)
        return graph


def _made(draft: Draft) -> Graph:
    placed = draft.opened() if isinstance(draft, FiledDraft) else {}
    schema, arrays = build(draft, kind=None)
    return Graph(schema, arrays | placed)


def digest_of(draft: Draft) -> str:
    """Tells contents apart: all that a graph made of this draft would have."""
    digests = [_digest(_told(draft).encode())]
    for edges in draft.edges.values():
        digests += map(_sum, (edges.sources, edges.destinations))
    digests += [_sum(column.array) for column in draft.columns.values()]
    return kernels.digest(np.frombuffer(b"".join(digests), np.uint8)).hex()


def _told(draft: Draft) -> str:
    """All but the numbers. A fork has its parent's graphs, but not the right to hand them on."""
    columns = [
        (key.group, key.type, key.name, column.dtype, column.shape)
        for key, column in draft.columns.items()
    ]
    edges = [
        (kind, str(found.sources.dtype), len(found.sources)) for kind, found in draft.edges.items()
    ]
    placed = [
        (key.group, key.type, key.name, column.dtype, column.shape, *astuple(place))
        for key, (column, place) in (draft.placed if isinstance(draft, FiledDraft) else {}).items()
    ]
    return json.dumps([os.getpid(), draft.is_hetero, draft.num_nodes, edges, columns, placed])


def _sum(array: npt.NDArray[Any]) -> bytes:
    return _digest(b"".join(kernels.digest(piece) for piece in _pieces(array)))


def _digest(data: bytes) -> bytes:
    return kernels.digest(np.frombuffer(data, np.uint8))


def _pieces(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.uint8]]:
    """Its bytes in C order, a few rows at a time; no more than these are ever copied."""
    if array.ndim == 0 or not len(array):
        return
    rows = max(1, _PIECE * len(array) // max(array.nbytes, 1))
    for begin in range(0, len(array), rows):
        yield np.ascontiguousarray(array[begin : begin + rows]).reshape(-1).view(np.uint8)
