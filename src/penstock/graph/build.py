"""Builds a graph from a draft: one segment of shared memory, every array written once, in place.

Beyond the result, no memory is needed: the kernels sort in place. If anything fails, the segment is
closed, and everything written to it is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from penstock import kernels
from penstock.graph.codec import Codec
from penstock.graph.draft import Draft, EdgeList, NamedNodes
from penstock.graph.layout import layout
from penstock.graph.progress import Report
from penstock.graph.quantization import encode
from penstock.graph.schema import SLOTS, ArrayKey, EdgeType, Schema
from penstock.graph.segment import Segment, check_room
from penstock.graph.shared import SharedArray
from penstock.graph.topology import Spec, specs
from penstock.graph.user_ids import arrays_of, as_array, taken
from penstock.kernels.id_table import fill_slots, look_up, slot_dtype, slots_needed

# Bytes of an array that are copied at a time, so that progress can be reported.
PIECE_BYTES: Final = 1 << 26


def build(
    draft: Draft, *, kind: str | None, report: Report | None = None
) -> tuple[Schema, dict[ArrayKey, SharedArray]]:
    """Build the graph that `draft` describes, and freeze it."""
    schema = draft.settle()
    codecs = {each.key: each.codec for each in schema.codecs}
    wanted = _wanted(draft, schema)
    offsets, nbytes = layout(wanted.values())
    check_room(nbytes, kind=kind)
    segment = Segment.create(nbytes, kind=kind)
    try:
        arrays = {
            key: SharedArray(segment, dtype, shape, offset)
            for (key, (dtype, shape)), offset in zip(wanted.items(), offsets, strict=True)
        }
        _fill(draft, arrays, codecs, report or (lambda done, total: None))
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
        how = draft.quantized.get(key)
        wanted[key] = column.dtype if how is None else how.dtype, column.shape
    for node_type, named in draft.ids.items():
        for key, array in arrays_of(node_type, named.keys).items():
            wanted[key] = str(array.dtype), array.shape
        count = len(named.keys)
        wanted[_slots_key(node_type)] = str(slot_dtype(count)), (slots_needed(count),)
    return wanted


def _fill(
    draft: Draft,
    arrays: dict[ArrayKey, SharedArray],
    codecs: Mapping[ArrayKey, Codec],
    report: Report,
) -> None:
    done, total = 0, sum(array.nbytes for array in arrays.values())
    report(done, total)
    for edge_type, edges in draft.edges.items():
        topology = [arrays[key] for key in _csc_keys(edge_type)]
        _fill_csc(edges, *topology)
        done += sum(array.nbytes for array in topology)
        report(done, total)
    for node_type, named in draft.ids.items():
        _fill_ids(node_type, named, arrays)
        done += sum(array.nbytes for key, array in arrays.items() if _is_of(key, node_type))
        report(done, total)
    for key, column in draft.columns.items():
        target = arrays[key].array
        if not target.ndim:
            target[...] = column.array
            done += target.nbytes
            continue
        rows = max(1, PIECE_BYTES * max(1, len(target)) // max(1, target.nbytes))
        for first in range(0, len(target), rows):
            piece = target[first : first + rows]
            if key in codecs:
                encode(column, codecs[key], piece, first)
            else:
                piece[...] = column.array[first : first + rows]
            done += piece.nbytes
            report(done, total)


def _fill_csc(edges: EdgeList, indptr: SharedArray, adjacency: SharedArray) -> None:
    kernels.fill_adjacency(edges.destinations, edges.sources, indptr.array, adjacency.array)


def _fill_ids(node_type: str, named: NamedNodes, arrays: Mapping[ArrayKey, SharedArray]) -> None:
    slots = arrays[_slots_key(node_type)].array
    repeated = fill_slots(named.keys, slots)
    if repeated >= 0:
        again = taken(named.keys, np.array([repeated]))
        (first,) = look_up(named.keys, slots, again)
        raise ValueError(
            f"{named.label}[{repeated}] is {as_array(again).tolist()[0]!r}, and so is "
            f"{named.label}[{first}]; expected a different id for each node"
        )
    for key, array in arrays_of(node_type, named.keys).items():
        arrays[key].array[...] = array


def _slots_key(node_type: str) -> ArrayKey:
    return ArrayKey("ids", node_type, SLOTS)


def _is_of(key: ArrayKey, node_type: str) -> bool:
    return (key.group, key.type) == ("ids", node_type)


def _csc_keys(edge_type: EdgeType) -> tuple[ArrayKey, ArrayKey]:
    return ArrayKey("csc", edge_type, "indptr"), ArrayKey("csc", edge_type, "adjacency")
