"""Graphs of data in memory, and saved ones: one for each content, shared by all loaders of it.

Loaders of the same data find each other by a digest of everything that goes into the graph, read at
memory speed. Data that were changed in between, by whatever means, are another content and another
graph. Arrays that stay in a file are identified by their place and not read, since they may be
larger than memory. A saved graph is found by its folder and what was last saved there. A graph
lives as long as a loader holds it.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock import kernels
from penstock.errors import GraphFormatError
from penstock.graph import Graph
from penstock.graph.build import build
from penstock.graph.draft import Draft
from penstock.graph.folder import load_manifest
from penstock.graph.partition.partition import parts_in
from penstock.graph.sharing import segments_of
from penstock.loader.source.mapped_files import FiledDraft
from penstock.store.handles import open_parts

_PIECE: Final = 16 << 20  # bytes

_LOCK: Final = threading.RLock()  # so that two threads do not make the same graph
_graphs: weakref.WeakValueDictionary[str, Graph] = weakref.WeakValueDictionary()


def graph_of(draft: Draft) -> Graph:
    """Return the graph of a draft: an existing one, or a new one."""
    with _LOCK:
        return _kept(digest_of(draft), lambda: _made(draft))


def graph_at(path: str | os.PathLike[str]) -> Graph:
    """Return the graph that is saved in a folder, opened once for all loaders of it.

    A folder of all parts of a graph is that graph.

    Raises:
        ValueError: There is no saved graph; the error says what is there.
    """
    folder = Path(path)
    try:
        if parts := parts_in(folder):
            generations = " ".join(load_manifest(part).generation for part in parts)
            with _LOCK:
                return _kept(
                    f"{os.getpid()} {generations} {folder.resolve()}",
                    lambda: open_parts([str(part.resolve()) for part in parts]),
                )
        key = f"{os.getpid()} {load_manifest(folder).generation} {folder.resolve()}"
        with _LOCK:
            return _kept(key, lambda: Graph.open(folder))
    except (FileNotFoundError, GraphFormatError) as error:
        raise ValueError(
            f"data is {str(path)!r}, and no graph can be opened there ({error}); expected the "
            "folder of a saved graph, or an address such as 'tcp://host:port' or 'unix://…'"
        ) from error


def _kept(key: str, make: Callable[[], Graph]) -> Graph:
    """Return the graph of this key if it is still open, or else a new one."""
    graph = _graphs.get(key)
    if graph is None or any(segment.closed for segment in segments_of(graph.arrays)):
        graph = _graphs[key] = make()
    return graph


def _made(draft: Draft) -> Graph:
    placed = draft.opened() if isinstance(draft, FiledDraft) else {}
    schema, arrays = build(draft, kind=None)
    return Graph(schema, arrays | placed)


def digest_of(draft: Draft) -> str:
    """Return a digest of everything that a graph made of this draft would have."""
    digests = [_digest(_told(draft).encode())]
    for edges in draft.edges.values():
        digests += map(_sum, (edges.sources, edges.destinations))
    digests += [_sum(column.array) for column in draft.columns.values()]
    return kernels.digest(np.frombuffer(b"".join(digests), np.uint8)).hex()


def _told(draft: Draft) -> str:
    """Return everything but the values of arrays, as text.

    The process id is in it, since a forked process has its parent's graphs but must not share them.
    """
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
    """Yield the bytes in C order, a few rows at a time; never more than these are copied."""
    if array.ndim == 0 or not len(array):
        return
    rows = max(1, _PIECE * len(array) // max(array.nbytes, 1))
    for begin in range(0, len(array), rows):
        yield np.ascontiguousarray(array[begin : begin + rows]).reshape(-1).view(np.uint8)
