"""A graph's description without its arrays, for ranks that never hold the graph."""

from __future__ import annotations

from penstock.graph import Graph
from penstock.graph.checksum import counts
from penstock.wire.messages import AbsentArray, Outline


def outline_of(graph: Graph) -> Outline:
    """Return types, sizes and attributes, without derived arrays.

    It includes the version, by which ranks recognise a graph. A saved graph has one; for a graph in
    memory it is computed now, which takes as long as reading the graph.
    """
    return Outline(
        schema=graph.schema,
        arrays=tuple(
            AbsentArray(key, array.dtype, array.shape)
            for key, array in graph.arrays.items()
            if counts(key, graph.part)
        ),
        version=graph.version,
    )
