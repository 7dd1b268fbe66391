"""The graph of a store whose parts are at servers."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.graph.schema import ArrayKey
from penstock.graph.shared import SharedArray
from penstock.store.graph import BOOK, StoreGraph
from penstock.store.handles import Servers, encoded
from penstock.store.outline import StoreOutline, outline_of_parts
from penstock.store.remote_parts import RemoteParts
from penstock.store.servers import StoreServers
from penstock.wire.values import unpack


def graph_at(servers: StoreServers) -> StoreGraph:
    """Return the graph that these servers have together.

    What is small and belongs to the whole is fetched now: attributes of the whole graph, and the
    book of nodes that were assigned to parts one by one.

    Args:
        servers: All servers of the store; they are closed with the graph.
    """
    outline = outline_of_parts(servers.outlines())
    arrays: dict[ArrayKey, SharedArray] = {}
    try:
        for key, (array, dtype) in _small(servers, outline).items():
            arrays[key] = SharedArray.from_array(array, dtype)
    except BaseException:
        for shared in arrays.values():
            shared.close()
        raise
    place = encoded(outline, Servers(servers.handle()))
    return StoreGraph(outline, lambda: RemoteParts(servers), arrays, place)


def _small(servers: StoreServers, outline: StoreOutline) -> dict[ArrayKey, tuple[Any, str]]:
    found: dict[ArrayKey, tuple[Any, str]] = {}
    for key, form in outline.forms.items():
        if key.group == "graph":
            owner = key.type if any(key.type) else None
            value = _asked(servers, "get_graph_attribute", name=key.name, owner=owner)
            found[key] = np.asarray(value), form.dtype
    if outline.note.method == "given":
        for info in outline.schema.nodes:
            book = _asked(servers, "get_node_partition_book", node_type=info.name or None)
            found[ArrayKey("part", info.name, BOOK)] = book["parts"], str(book["parts"].dtype)
    return found


def _asked(servers: StoreServers, verb: str, **arguments: Any) -> Any:
    """Ask any server: all parts have what belongs to the whole."""
    value, arrays = servers.call(0, verb, arguments)
    return unpack(value, arrays, Any)
