"""A graph without its numbers, for ranks that will never have it."""

from __future__ import annotations

from penstock.graph import Graph
from penstock.wire.messages import AbsentArray, Outline


def outline_of(graph: Graph) -> Outline:
    """Types, sizes and attributes; nothing that was made of them since.

    With the version, by which ranks know a graph again. Of a saved one it is known; of one in
    memory it is computed now, which takes as long as reading it.
    """
    return Outline(
        schema=graph.schema,
        arrays=tuple(
            AbsentArray(key, array.dtype, array.shape)
            for key, array in graph.arrays.items()
            if key.group not in ("aid", "csr")
        ),
        version=graph.version,
    )
