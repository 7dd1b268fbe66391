"""How another process finds the parts of a graph: part of the graph's handle, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from penstock.core.known_types import known
from penstock.errors import GraphFormatError
from penstock.graph import Graph, sharing
from penstock.graph.sharing import GraphHandle
from penstock.store.graph import StoreGraph
from penstock.store.outline import StoreOutline, outline_of_parts
from penstock.store.parts import LocalParts, Parts
from penstock.store.remote_parts import RemoteParts
from penstock.store.servers import StoreHandle
from penstock.wire.messages import AbsentArray, Outline


class Folders(msgspec.Struct, frozen=True, tag=True):
    """Parts in folders of this host, in order."""

    paths: tuple[str, ...]


class Servers(msgspec.Struct, frozen=True, tag=True):
    """Parts at servers."""

    handle: StoreHandle


class _Place(msgspec.Struct, frozen=True):
    """Where the parts are, and what they are together."""

    outline: StoreOutline
    at: Folders | Servers


def encoded(outline: StoreOutline, at: Folders | Servers) -> bytes:
    """Return what a `GraphHandle` has of a graph in parts."""
    return msgspec.msgpack.encode(_Place(outline, at))


def attach_parts(handle: GraphHandle, fds: Sequence[int] = ()) -> StoreGraph:
    """Return the graph in parts that another process described; see `attach.attach`."""
    assert handle.store is not None
    arrays = sharing.attach(handle, fds)
    place = msgspec.msgpack.decode(handle.store, type=known(_Place))
    return StoreGraph(place.outline, partial(_opened, place.at), arrays, handle.store)


def _opened(at: Folders | Servers) -> Parts:
    if isinstance(at, Folders):
        return LocalParts([Graph.open(path) for path in at.paths])
    return RemoteParts.of(at.handle)


def open_parts(paths: Sequence[str]) -> StoreGraph:
    """Return the whole of which these folders have all parts.

    Args:
        paths: The folders of the parts, in any order.

    Raises:
        GraphFormatError: They are not all the parts of one cut.
    """
    if not paths:
        raise GraphFormatError("paths is empty; expected the folders of all parts of a graph")
    graphs: list[Graph] = []
    try:
        graphs.extend(map(Graph.open, paths))
        outline = outline_of_parts([outline_of(graph) for graph in graphs])
        order = sorted(range(len(graphs)), key=lambda at: _number(graphs[at]))
        parts = LocalParts([graphs[at] for at in order])
        kept = {
            key: array
            for key, array in parts.graphs[0].arrays.items()
            if key.group == "graph" or (key.group == "part" and key.name == "book")
        }
        place = encoded(outline, Folders(tuple(str(paths[at]) for at in order)))
        return StoreGraph(outline, lambda: parts, kept, place)
    except BaseException:
        for graph in graphs:
            graph.close()
        raise


def outline_of(graph: Graph) -> Outline:
    """Return a graph's types and the form of its arrays."""
    arrays = tuple(
        AbsentArray(key, array.dtype, array.shape) for key, array in graph.arrays.items()
    )
    return Outline(schema=graph.schema, arrays=arrays, version=graph.handle().version)


def _number(graph: Graph) -> int:
    return 0 if graph.part is None else graph.part.number
