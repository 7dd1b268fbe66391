"""Builds a graph from a draft: one segment of shared memory, every array written once, in place.

Beyond the result, no memory is needed: the kernels sort in place. If anything fails, the segment is
closed, and everything written to it is gone.
"""

from __future__ import annotations

from penstock import kernels
from penstock.graph.draft import Draft, EdgeList
from penstock.graph.layout import layout
from penstock.graph.schema import ArrayKey, EdgeType, Schema
from penstock.graph.segment import Segment, check_room
from penstock.graph.shared import SharedArray
from penstock.graph.topology import Spec, specs


def build(draft: Draft, *, kind: str | None) -> tuple[Schema, dict[ArrayKey, SharedArray]]:
    """Build the graph that `draft` describes, and freeze it."""
    schema = draft.settle()
    wanted = _wanted(draft, schema)
    offsets, nbytes = layout(wanted.values())
    check_room(nbytes, kind=kind)
    segment = Segment.create(nbytes, kind=kind)
    try:
        arrays = {
            key: SharedArray(segment, dtype, shape, offset)
            for (key, (dtype, shape)), offset in zip(wanted.items(), offsets, strict=True)
        }
        _fill(draft, arrays)
        segment.freeze()
    except BaseException:
        segment.close()
        raise
    return schema, arrays


def _wanted(draft: Draft, schema: Schema) -> dict[ArrayKey, Spec]:
    """Return dtype and shape of all arrays; topology comes first, so that it is contiguous."""
    sizes = {info.name: info.num_nodes for info in schema.nodes}
    wanted: dict[ArrayKey, Spec] = {}
    for edge_type, edges in draft.edges.items():
        indptr, adjacency = _csc_keys(edge_type)
        source, _, destination = edge_type
        # Edges that were given sorted by destination keep their order: the position is the edge id.
        paired = not kernels.is_sorted(edges.destinations)
        wanted[indptr], wanted[adjacency] = specs(
            sizes[destination], sizes[source], len(edges.sources), paired=paired
        )
    for key, column in draft.columns.items():
        wanted[key] = column.dtype, column.shape
    return wanted


def _fill(draft: Draft, arrays: dict[ArrayKey, SharedArray]) -> None:
    for edge_type, edges in draft.edges.items():
        _fill_csc(edges, *(arrays[key] for key in _csc_keys(edge_type)))
    for key, column in draft.columns.items():
        arrays[key].array[...] = column.array


def _fill_csc(edges: EdgeList, indptr: SharedArray, adjacency: SharedArray) -> None:
    kernels.fill_adjacency(edges.destinations, edges.sources, indptr.array, adjacency.array)


def _csc_keys(edge_type: EdgeType) -> tuple[ArrayKey, ArrayKey]:
    return ArrayKey("csc", edge_type, "indptr"), ArrayKey("csc", edge_type, "adjacency")
