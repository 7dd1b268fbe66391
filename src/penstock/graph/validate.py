"""Whether a graph is sound: what its arrays hold, not only how they look.

`check_structure` looks at shapes and at the ends of `indptr`, and costs nothing; `validate` reads
all topology and splits, in pieces, with one byte per edge beside them. Complaints are
`GraphFormatError`: the arguments of those who build graphs are checked elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from penstock import kernels
from penstock.errors import GraphFormatError
from penstock.graph.check import PIECE, first_true
from penstock.graph.handles import FileHandle
from penstock.graph.inventory import first_disagreement, key_text
from penstock.graph.schema import ArrayKey, Arrays, EdgeType, EdgeTypeInfo, Schema
from penstock.graph.shared import SharedArray
from penstock.graph.topology import Topology

Direction = Literal["csc", "csr"]

_ODD: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
_SHIFT: Final = np.uint64(31)


def check_structure(schema: Schema, arrays: Arrays) -> None:
    """Complains unless the arrays are those the schema calls for."""
    if (complaint := first_disagreement(schema, arrays)) is not None:
        raise GraphFormatError(complaint)
    for key, array in arrays.items():
        if key.group in ("csc", "csr") and key.name == "indptr":
            _check_ends(key, array, _num_edges(schema, key))


def validate(schema: Schema, arrays: Arrays) -> None:
    """Complains of the first thing by which the graph is not sound. Reads all topology."""
    check_structure(schema, arrays)
    sizes = {info.name: info.num_nodes for info in schema.nodes}
    for info in schema.edges:
        _check_topology(arrays, info, "csc", sizes[info.name[0]])
        if ArrayKey("csr", info.name, "indptr") in arrays:
            _check_topology(arrays, info, "csr", sizes[info.name[2]])
            _check_agreement(arrays, info.name)
    for key, array in arrays.items():
        if key.group == "split":
            _check_ids(key, array, array.array, sizes[str(key.type)], "")


def topology_of(arrays: Arrays, edge_type: EdgeType, direction: Direction) -> Topology:
    """The topology of one edge type, as views."""
    indptr, adjacency = (arrays[key] for key in topology_keys(edge_type, direction))
    return Topology(indptr.array, adjacency.array)


def topology_keys(edge_type: EdgeType, direction: Direction) -> tuple[ArrayKey, ArrayKey]:
    """The keys of the two arrays of a topology."""
    return ArrayKey(direction, edge_type, "indptr"), ArrayKey(direction, edge_type, "adjacency")


def _check_ends(key: ArrayKey, array: SharedArray, num_edges: int) -> None:
    indptr = array.array
    for at, expected in ((0, 0), (len(indptr) - 1, num_edges)):
        if indptr[at] != expected:
            raise _unsound(key, array, f"[{at}] is {indptr[at]}; expected {expected}")


def _check_topology(
    arrays: Arrays, info: EdgeTypeInfo, direction: Direction, num_neighbors: int
) -> None:
    indptr, adjacency = topology_keys(info.name, direction)
    topology = topology_of(arrays, info.name, direction)
    _check_rising(indptr, arrays[indptr])
    column = "[:, 0]" if topology.paired else ""
    _check_ids(adjacency, arrays[adjacency], topology.indices, num_neighbors, column)
    if topology.paired:
        _check_ids(adjacency, arrays[adjacency], topology.edge_ids, info.num_edges, "[:, 1]")
        _check_all_different(adjacency, arrays[adjacency], topology.edge_ids)


def _check_rising(key: ArrayKey, array: SharedArray) -> None:
    indptr = array.array
    pieces = (indptr[begin : begin + PIECE + 1] for begin in range(0, len(indptr) - 1, PIECE))
    at = first_true(piece[1:] < piece[:-1] for piece in pieces) + 1
    if at > 0:
        raise _unsound(
            key, array, f"[{at}] is {indptr[at]}; expected at least {indptr[at - 1]}, as before it"
        )


def _check_ids(
    key: ArrayKey, array: SharedArray, ids: npt.NDArray[Any], bound: int, column: str
) -> None:
    at = kernels.first_outside(ids, bound)
    if at >= 0:
        raise _unsound(key, array, f"{column}[{at}] is {ids[at]}; expected 0 <= id < {bound}")


def _check_all_different(key: ArrayKey, array: SharedArray, ids: npt.NDArray[Any]) -> None:
    """Each edge id stands once. They are all in range, so it is enough that none is missing."""
    seen = np.zeros(len(ids), np.bool_)
    for begin in range(0, len(ids), PIECE):
        seen[ids[begin : begin + PIECE]] = True
    if seen.all():
        return
    _, first = np.unique(ids, return_index=True)
    repeated = np.ones(len(ids), np.bool_)
    repeated[first] = False
    at = int(repeated.argmax())
    raise _unsound(
        key, array, f"[:, 1][{at}] is {ids[at]}, an edge id that stood before; expected each once"
    )


def _check_agreement(arrays: Arrays, edge_type: EdgeType) -> None:
    """The csr holds the edges of the csc: the same sum over all of them, in whatever order."""
    csc = topology_of(arrays, edge_type, "csc")
    csr = topology_of(arrays, edge_type, "csr")
    theirs = sum(_hash(neighbors, rows, ids) for rows, neighbors, ids in _edges(csc))
    ours = sum(_hash(rows, neighbors, ids) for rows, neighbors, ids in _edges(csr))
    if ours % 2**64 != theirs % 2**64:
        _, key = topology_keys(edge_type, "csr")
        raise _unsound(key, arrays[key], " has other edges than the csc")


def _edges(topology: Topology) -> Iterator[tuple[npt.NDArray[Any], ...]]:
    """Rows, neighbours and ids of the edges, piece by piece."""
    for begin in range(0, topology.num_edges, PIECE):
        positions = np.arange(begin, min(begin + PIECE, topology.num_edges))
        piece = topology.adjacency[begin : begin + PIECE]
        rows = np.searchsorted(topology.indptr, positions, side="right") - 1
        yield (rows, piece[:, 0], piece[:, 1]) if topology.paired else (rows, piece, positions)


def _hash(*columns: npt.NDArray[Any]) -> int:
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column, odd in zip(columns, _ODD, strict=True):
        mixed = (mixed ^ column.astype(np.uint64)) * odd
        mixed ^= mixed >> _SHIFT
    return int(mixed.sum())


def _num_edges(schema: Schema, key: ArrayKey) -> int:
    return next(info.num_edges for info in schema.edges if info.name == key.type)


def _unsound(key: ArrayKey, array: SharedArray, what: str) -> GraphFormatError:
    handle = array.segment.handle
    where = f"{handle.path}: " if isinstance(handle, FileHandle) else ""
    return GraphFormatError(f"{where}{key_text(key)}{what}")
