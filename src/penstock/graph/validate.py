"""Checks that a graph is sound: the contents of its arrays, not only their shapes.

`check_structure` looks at shapes and at the ends of `indptr`, and costs nothing; `validate` reads
all topology, splits, ids and derived arrays, in pieces, with one additional byte per edge. Errors
are `GraphFormatError`: arguments for building a graph are checked elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import GraphFormatError
from penstock.graph.agreement import check_csr, check_derived
from penstock.graph.check import PIECE, first_true
from penstock.graph.derived import derived_among
from penstock.graph.id_soundness import check_ids_of_type
from penstock.graph.inventory import first_disagreement
from penstock.graph.partition.soundness import basis_of, check_part
from penstock.graph.schema import (
    FIRST_IDS,
    OFFSETS,
    TEXT,
    TOPOLOGIES,
    ArrayKey,
    Arrays,
    EdgeType,
    EdgeTypeInfo,
    PartNote,
    Schema,
    found_by,
)
from penstock.graph.shared import SharedArray
from penstock.graph.topology import Direction, Topology, topology_keys, topology_of
from penstock.graph.unsound import check_ids, unsound

__all__ = ["check_structure", "topology_of", "validate"]


def check_structure(schema: Schema, arrays: Arrays) -> None:
    """Raise unless the arrays are those that the schema requires."""
    if (complaint := first_disagreement(schema, arrays)) is not None:
        raise GraphFormatError(complaint)
    for key, array in arrays.items():
        if key.group in ("csc", "csr") and key.name == "indptr":
            _check_ends(key, array, arrays[ArrayKey(key.group, key.type, "adjacency")].shape[0])
        if key.group == "ids" and key.name == OFFSETS:
            _check_ends(key, array, arrays[ArrayKey("ids", key.type, TEXT)].shape[0])


def validate(schema: Schema, arrays: Arrays) -> None:
    """Raise for the first unsound thing. Reads all topology and derived arrays."""
    check_structure(schema, arrays)
    if schema.part is not None:
        check_part(schema, schema.part, arrays)
    sizes = {info.name: info.num_nodes for info in schema.nodes}
    for info in schema.edges:
        for side, direction in TOPOLOGIES.items():
            if ArrayKey(direction, info.name, "indptr") in arrays:
                _check_topology(arrays, info, direction, sizes[found_by(info.name, side)])
        _check_both(arrays, info.name, schema.part)
    for key, array in arrays.items():
        if key.group == "split":
            check_ids(key, array, array.array, sizes[str(key.type)], "")
    for node in schema.nodes:
        check_ids_of_type(node.name, arrays)
    for derived in derived_among(arrays):
        check_derived(derived, arrays, basis_of(derived, schema, arrays))


def _check_ends(key: ArrayKey, array: SharedArray, num_edges: int) -> None:
    indptr = array.array
    for at, expected in ((0, 0), (len(indptr) - 1, num_edges)):
        if indptr[at] != expected:
            raise unsound(key, array, f"[{at}] is {indptr[at]}; expected {expected}")


def _check_topology(
    arrays: Arrays, info: EdgeTypeInfo, direction: Direction, num_neighbors: int
) -> None:
    indptr, adjacency = topology_keys(info.name, direction)
    topology = topology_of(arrays, info.name, direction)
    _check_rising(indptr, arrays[indptr])
    column = "[:, 0]" if topology.paired else ""
    check_ids(adjacency, arrays[adjacency], topology.indices, num_neighbors, column)
    if topology.first_ids is not None:
        key = ArrayKey(direction, info.name, FIRST_IDS)
        _check_first_ids(key, arrays[key], topology, info.num_edges)
    if topology.paired:
        check_ids(adjacency, arrays[adjacency], topology.edge_ids, info.num_edges, "[:, 1]")
        _check_all_different(adjacency, arrays[adjacency], topology.edge_ids, info.num_edges)


def _check_first_ids(key: ArrayKey, array: SharedArray, topology: Topology, num_edges: int) -> None:
    """Check that the ids of each row follow those of the row before, and that all exist."""
    first = array.array.astype(np.int64)
    ends = first + topology.degrees
    least = np.concatenate(([0], ends[:-1]))
    for at in np.flatnonzero((first < least) | (ends > num_edges))[:1]:
        raise unsound(
            key,
            array,
            f"[{at}] is {first[at]}; expected at least {least[at]}, where the row before ends, "
            f"and at most {num_edges - topology.degrees[at]}",
        )


def _check_rising(key: ArrayKey, array: SharedArray) -> None:
    indptr = array.array
    pieces = (indptr[begin : begin + PIECE + 1] for begin in range(0, len(indptr) - 1, PIECE))
    at = first_true(piece[1:] < piece[:-1] for piece in pieces) + 1
    if at > 0:
        raise unsound(
            key, array, f"[{at}] is {indptr[at]}; expected at least {indptr[at - 1]}, as before it"
        )


def _check_all_different(
    key: ArrayKey, array: SharedArray, ids: npt.NDArray[Any], size: int
) -> None:
    """Check that each edge id occurs once; all are in range."""
    seen = np.zeros(size, np.bool_)
    for begin in range(0, len(ids), PIECE):
        seen[ids[begin : begin + PIECE]] = True
    if int(np.count_nonzero(seen)) == len(ids):
        return
    _, first = np.unique(ids, return_index=True)
    repeated = np.ones(len(ids), np.bool_)
    repeated[first] = False
    at = int(repeated.argmax())
    raise unsound(
        key, array, f"[:, 1][{at}] is {ids[at]}, an edge id that stood before; expected each once"
    )


def _check_both(arrays: Arrays, edge_type: EdgeType, part: PartNote | None) -> None:
    """Check that a csr has the edges of the csc, where both have all edges of the graph."""
    _, key = topology_keys(edge_type, "csr")
    if key in arrays and (part is None or not part.is_compact):
        csr = topology_of(arrays, edge_type, "csr")
        check_csr(key, arrays[key], csr, topology_of(arrays, edge_type, "csc"))
