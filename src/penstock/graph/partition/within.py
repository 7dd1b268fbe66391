"""A part alone: its nodes, and the edges with both ends among them.

Ids stay those of the whole graph, and every id has a row, so that whatever samples a whole graph
samples this one; rows of nodes that are in other parts are empty. Attributes, splits and what
belongs to the whole graph are the part's own arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.graph.derived import own_rows_of, transpose_some
from penstock.graph.layout import layout
from penstock.graph.schema import ArrayKey, EdgeType, Schema, found_by, owner_of
from penstock.graph.segment import Segment, check_room
from penstock.graph.shared import SharedArray
from penstock.graph.topology import Spec, Topology

if TYPE_CHECKING:
    from penstock.graph.graph import Graph

Array = npt.NDArray[Any]


def arrays_within(graph: Graph, kind: str | None) -> tuple[Schema, dict[ArrayKey, SharedArray]]:
    """Return the schema and the arrays of a part alone; its topology is in new shared memory."""
    part = graph.part
    assert part is not None
    found = {name: _rows_within(graph, name) for name in graph.edge_types}
    wanted: dict[ArrayKey, Spec] = {}
    for name, rows in found.items():
        wanted[ArrayKey("csc", name, "indptr")] = "int64", (graph.num_nodes(name[2]) + 1,)
        adjacency = str(rows.adjacency.dtype), rows.adjacency.shape
        wanted[ArrayKey("csc", name, "adjacency")] = adjacency
    made = _placed(wanted, kind, found, transposed=part.owning_side == "out")
    kept = {
        key: array
        for key, array in graph.arrays.items()
        if key.group in ("node", "edge", "split", "graph", "part", "ids")
    }
    alone = msgspec.structs.replace(part, alone=True)
    return msgspec.structs.replace(graph.schema, part=alone), {**made, **kept}


def _rows_within(graph: Graph, name: EdgeType) -> Topology:
    """Return rows, of all nodes, with those edges of the part that have both ends in it."""
    part = graph.part
    assert part is not None
    side = part.owning_side
    rows = own_rows_of(graph, name, side)
    owners, others = graph.members(owner_of(name, side)), graph.members(found_by(name, side))
    assert owners is not None
    assert others is not None
    here = others.rows(rows.indices) >= 0
    kept = np.concatenate(([0], np.cumsum(here, dtype=np.int64)))
    degrees = np.zeros(owners.size + 1, np.int64)
    degrees[owners.ids() + 1] = np.diff(kept[rows.indptr])
    return Topology(np.cumsum(degrees), rows.pairs[here])


def _placed(
    wanted: dict[ArrayKey, Spec],
    kind: str | None,
    found: dict[EdgeType, Topology],
    *,
    transposed: bool,
) -> dict[ArrayKey, SharedArray]:
    """Write the rows to a new segment and freeze it; out-edges are turned to in-edges."""
    offsets, nbytes = layout(wanted.values())
    check_room(nbytes, kind=kind)
    segment = Segment.create(nbytes, kind=kind)
    try:
        arrays = {
            key: SharedArray(segment, dtype, shape, offset)
            for (key, (dtype, shape)), offset in zip(wanted.items(), offsets, strict=True)
        }
        for name, rows in found.items():
            keys = (ArrayKey("csc", name, "indptr"), ArrayKey("csc", name, "adjacency"))
            _fill(rows, *(arrays[key].array for key in keys), transposed=transposed)
        segment.freeze()
    except BaseException:
        segment.close()
        raise
    return arrays


def _fill(rows: Topology, indptr: Array, adjacency: Array, *, transposed: bool) -> None:
    if transposed:
        transpose_some(rows, indptr, adjacency)
        return
    indptr[...] = rows.indptr
    adjacency[...] = rows.adjacency
