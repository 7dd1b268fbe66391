"""Checks that a graph is sound: the contents of its arrays, not only their shapes.

`check_structure` looks at shapes and at the ends of `indptr`, and costs nothing; `validate` reads
all topology, splits and derived arrays, in pieces, with one additional byte per edge. Errors are
`GraphFormatError`: arguments for building a graph are checked elsewhere.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.errors import GraphFormatError
from penstock.graph.agreement import check_csr, check_derived
from penstock.graph.check import PIECE, first_true
from penstock.graph.derived import derived_among
from penstock.graph.inventory import first_disagreement
from penstock.graph.schema import ArrayKey, Arrays, EdgeType, EdgeTypeInfo, Schema
from penstock.graph.shared import SharedArray
from penstock.graph.topology import Topology
from penstock.graph.unsound import check_ids, unsound

Direction = Literal["csc", "csr"]


def check_structure(schema: Schema, arrays: Arrays) -> None:
    """Raise unless the arrays are those that the schema requires."""
    if (complaint := first_disagreement(schema, arrays)) is not None:
        raise GraphFormatError(complaint)
    for key, array in arrays.items():
        if key.group in ("csc", "csr") and key.name == "indptr":
            _check_ends(key, array, _num_edges(schema, key))


def validate(schema: Schema, arrays: Arrays) -> None:
    """Raise for the first unsound thing. Reads all topology and derived arrays."""
    check_structure(schema, arrays)
    sizes = {info.name: info.num_nodes for info in schema.nodes}
    for info in schema.edges:
        _check_topology(arrays, info, "csc", sizes[info.name[0]])
        if ArrayKey("csr", info.name, "indptr") in arrays:
            _check_topology(arrays, info, "csr", sizes[info.name[2]])
            _check_csr(arrays, info.name)
    for key, array in arrays.items():
        if key.group == "split":
            check_ids(key, array, array.array, sizes[str(key.type)], "")
    for derived in derived_among(arrays):
        rows = topology_of(arrays, derived.edge_type, "csc" if derived.side == "in" else "csr")
        check_derived(
            derived, arrays, rows, sizes[derived.edge_type[0 if derived.side == "in" else 2]]
        )


def topology_of(arrays: Arrays, edge_type: EdgeType, direction: Direction) -> Topology:
    """Return the topology of one edge type, as views."""
    indptr, adjacency = (arrays[key] for key in topology_keys(edge_type, direction))
    return Topology(indptr.array, adjacency.array)


def topology_keys(edge_type: EdgeType, direction: Direction) -> tuple[ArrayKey, ArrayKey]:
    """Return the keys of the two arrays of a topology."""
    return ArrayKey(direction, edge_type, "indptr"), ArrayKey(direction, edge_type, "adjacency")


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
    if topology.paired:
        check_ids(adjacency, arrays[adjacency], topology.edge_ids, info.num_edges, "[:, 1]")
        _check_all_different(adjacency, arrays[adjacency], topology.edge_ids)


def _check_rising(key: ArrayKey, array: SharedArray) -> None:
    indptr = array.array
    pieces = (indptr[begin : begin + PIECE + 1] for begin in range(0, len(indptr) - 1, PIECE))
    at = first_true(piece[1:] < piece[:-1] for piece in pieces) + 1
    if at > 0:
        raise unsound(
            key, array, f"[{at}] is {indptr[at]}; expected at least {indptr[at - 1]}, as before it"
        )


def _check_all_different(key: ArrayKey, array: SharedArray, ids: npt.NDArray[Any]) -> None:
    """Check that each edge id occurs once: all are in range, so none may be missing."""
    seen = np.zeros(len(ids), np.bool_)
    for begin in range(0, len(ids), PIECE):
        seen[ids[begin : begin + PIECE]] = True
    if seen.all():
        return
    _, first = np.unique(ids, return_index=True)
    repeated = np.ones(len(ids), np.bool_)
    repeated[first] = False
    at = int(repeated.argmax())
    raise unsound(
        key, array, f"[:, 1][{at}] is {ids[at]}, an edge id that stood before; expected each once"
    )


def _check_csr(arrays: Arrays, edge_type: EdgeType) -> None:
    _, key = topology_keys(edge_type, "csr")
    csr = topology_of(arrays, edge_type, "csr")
    check_csr(key, arrays[key], csr, topology_of(arrays, edge_type, "csc"))


def _num_edges(schema: Schema, key: ArrayKey) -> int:
    return next(info.num_edges for info in schema.edges if info.name == key.type)
