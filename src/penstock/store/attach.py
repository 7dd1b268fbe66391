"""Maps a graph that another process described, wherever its arrays are.

Workers start with this module: what asks servers is imported only for a graph in parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.graph import Graph
from penstock.graph.sharing import GraphHandle


def attach(handle: GraphHandle, fds: Sequence[int] = ()) -> Graph:
    """Return the graph that another process described: mapped, or in parts elsewhere.

    Args:
        handle: The other process's `graph.handle()`.
        fds: Its `descriptors`, as they arrived here; they are taken over and closed.
    """
    if handle.store is None:
        return Graph.attach(handle, fds)
    from penstock.store.handles import attach_parts

    return attach_parts(handle, fds)
