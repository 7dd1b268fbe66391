"""Checks that the csr and the derived arrays agree with the arrays they were computed from.

Arrays are read in pieces. Where only the order of edges may differ, a sum of hashes over all edges
is compared, which does not depend on the order. The topology itself has been checked before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.graph.derived import (
    ByTime,
    Coo,
    DegreeSizes,
    NamedDerived,
    OwnRows,
    SortedNeighbors,
    WeightSums,
)
from penstock.graph.schema import ArrayKey, Arrays, Side
from penstock.graph.shared import SharedArray
from penstock.graph.tensors import floats
from penstock.graph.topology import Edges, Topology, edges
from penstock.graph.unsound import check_ids, unsound
from penstock.kernels.members import Members

Array: TypeAlias = npt.NDArray[Any]

_ODD: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
_SHIFT: Final = np.uint64(31)
_PIECE: Final = 2**20


def check_csr(key: ArrayKey, array: SharedArray, csr: Topology, csc: Topology) -> None:
    """Raise `GraphFormatError` unless the csr holds the same edges as the csc."""
    ours = _sum_of(edges(csr))
    theirs = sum(_hash(neighbors, rows, ids) for _, rows, neighbors, ids in edges(csc))
    if ours % 2**64 != theirs % 2**64:
        raise unsound(key, array, " has other edges than the csc")


@dataclass(frozen=True, eq=False)
class Basis:
    """What derived arrays were made of, as far as their keys do not say it.

    Attributes:
        rows: The rows they belong to.
        num_neighbors: How many nodes there are that rows may lead to.
        num_edges: How many edges the whole graph has.
        owners: The nodes that the rows belong to; None for all nodes.
        side: Whether the rows are in-edges or out-edges.
        nodes: Which of the neighbours have attributes here, of a part; None for all.
        edges: Which edges have attributes here, of a part; None for all.
    """

    rows: Topology
    num_neighbors: int
    num_edges: int
    owners: Array | None = None
    side: Side = "in"
    nodes: Members | None = None
    edges: Members | None = None

    def of_edges(self, values: Array, ids: Array) -> Array:
        """Return the values of these edges."""
        return values[ids if self.edges is None else self.edges.rows(ids)]

    def of_nodes(self, values: Array, ids: Array) -> Array:
        """Return the values of these neighbours."""
        return values[ids if self.nodes is None else self.nodes.rows(ids)]


def check_derived(derived: NamedDerived, arrays: Arrays, basis: Basis) -> None:
    """Check derived arrays against their rows, as far as possible without recomputing them."""
    match derived:
        case WeightSums():
            _check_sums(derived, arrays, basis)
        case ByTime():
            _check_by_time(derived, arrays, basis)
        case SortedNeighbors():
            _check_sorted(derived, arrays, basis.rows, basis.num_neighbors)
        case DegreeSizes():
            _check_sizes(derived, arrays, basis.rows)
        case OwnRows():
            _check_own_rows(derived, arrays, basis.rows)
        case Coo():
            _check_coo(derived, arrays, basis)


def _check_sums(derived: WeightSums, arrays: Arrays, basis: Basis) -> None:
    """Check that sums restart in each row, rise where an edge has a weight, and else stay equal."""
    (key,), weights, rows = derived.keys, arrays[derived.sources[0]], basis.rows
    sums = arrays[key].array
    for begin, row, _, ids in edges(rows):
        weighed = floats(basis.of_edges(weights.array, ids), weights.dtype)
        here, before = sums[begin : begin + len(row)], _before(sums, rows, begin, row)
        for at in np.flatnonzero(np.where(weighed > 0, here <= before, here != before))[:1]:
            more = "more than " if weighed[at] > 0 else ""
            what = f"expected {more}{before[at]}: edge {ids[at]} weighs {weighed[at]}"
            raise unsound(key, arrays[key], f"[{begin + at}] is {here[at]}; {what}")


def _check_by_time(derived: ByTime, arrays: Arrays, basis: Basis) -> None:
    """Check that each row has the unordered row's entries, with their times, in rising order."""
    (entry_key, key), rows = derived.keys, basis.rows
    ordered, told = Topology(rows.indptr, arrays[entry_key].array), arrays[derived.sources[0]].array
    check_ids(entry_key, arrays[entry_key], ordered.indices, basis.num_neighbors, "[:, 0]")
    check_ids(entry_key, arrays[entry_key], ordered.edge_ids, basis.num_edges, "[:, 1]")
    _check_same(entry_key, arrays[entry_key], _sum_of(edges(ordered)), _sum_of(edges(rows)))
    times = arrays[key].array
    for begin, row, neighbors, ids in edges(ordered):
        expected = (
            basis.of_nodes(told, neighbors) if derived.of_nodes else basis.of_edges(told, ids)
        )
        here = times[begin : begin + len(row)]
        for at in np.flatnonzero(here != expected)[:1]:
            raise unsound(
                key, arrays[key], f"[{begin + at}] is {here[at]}; expected {expected[at]}"
            )
    _check_rising(key, arrays[key], rows)


def _check_sorted(
    derived: SortedNeighbors, arrays: Arrays, rows: Topology, num_neighbors: int
) -> None:
    """Check that each row has the neighbours of the unordered row, in rising order."""
    (key,) = derived.keys
    ordered = Topology(rows.indptr, arrays[key].array)
    check_ids(key, arrays[key], ordered.indices, num_neighbors, "")
    _check_rising(key, arrays[key], rows)
    ours = sum(_hash(row, neighbors) for _, row, neighbors, _ in edges(ordered))
    theirs = sum(_hash(row, neighbors) for _, row, neighbors, _ in edges(rows))
    _check_same(key, arrays[key], ours, theirs)


def _check_sizes(derived: DegreeSizes, arrays: Arrays, rows: Topology) -> None:
    """Check that each is the bit length of a degree: the exponent of that degree as a float."""
    (key,) = derived.keys
    sizes = arrays[key].array
    for begin in range(0, rows.num_rows, _PIECE):
        here = sizes[begin : begin + _PIECE]
        degrees = np.diff(rows.indptr[begin : begin + _PIECE + 1])
        for at in np.flatnonzero(here != np.frexp(degrees.astype(np.float64))[1])[:1]:
            expected = f"expected {int(degrees[at]).bit_length()}, the row has {degrees[at]} edges"
            raise unsound(key, arrays[key], f"[{begin + at}] is {here[at]}; {expected}")


def _check_own_rows(derived: OwnRows, arrays: Arrays, rows: Topology) -> None:
    for key, expected in zip(derived.keys, (rows.indptr, rows.adjacency), strict=True):
        if not np.array_equal(arrays[key].array, expected):
            raise unsound(key, arrays[key], " has other entries than the rows it was made from")


def _check_coo(derived: Coo, arrays: Arrays, basis: Basis) -> None:
    (key,) = derived.keys
    ends, order = arrays[key].array, None
    sides = (0, 1) if basis.side == "in" else (1, 0)
    if basis.num_edges != basis.rows.num_edges:
        order = np.sort(basis.rows.edge_ids)
    for _, row, neighbors, ids in edges(basis.rows):
        at_ids = ids if order is None else np.searchsorted(order, ids)
        owners = row if basis.owners is None else basis.owners[row]
        for side, expected in zip(sides, (neighbors, owners), strict=True):
            for at in np.flatnonzero(ends[side, at_ids] != expected)[:1]:
                found = f"[{side}, {at_ids[at]}] is {ends[side, at_ids[at]]}"
                raise unsound(key, arrays[key], f"{found}; expected {expected[at]}, as in the csc")


def _check_rising(key: ArrayKey, array: SharedArray, rows: Topology) -> None:
    values = array.array
    for begin, row, _, _ in edges(rows):
        here, before = values[begin : begin + len(row)], _before(values, rows, begin, row, None)
        for at in np.flatnonzero(here < before)[:1]:
            raise unsound(
                key,
                array,
                f"[{begin + at}] is {here[at]}; expected at least {before[at]}, as before it "
                f"in row {row[at]}",
            )


def _check_same(key: ArrayKey, array: SharedArray, ours: int, theirs: int) -> None:
    if ours % 2**64 != theirs % 2**64:
        raise unsound(key, array, " has other entries than the rows it was made from")


def _before(values: Array, rows: Topology, begin: int, row: Array, first: int | None = 0) -> Array:
    """Return the value before each element of a piece; at the start of a row `first`, or itself."""
    here = values[begin : begin + len(row)]
    before = np.empty_like(here)
    before[1:] = here[:-1]
    before[:1] = values[begin - 1] if begin else 0
    starts = rows.indptr[row] == np.arange(begin, begin + len(row))
    before[starts] = here[starts] if first is None else first
    return before


def _sum_of(all_edges: Iterator[Edges]) -> int:
    return sum(_hash(rows, neighbors, ids) for _, rows, neighbors, ids in all_edges)


def _hash(*columns: Array) -> int:
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column, odd in zip(columns, _ODD, strict=False):
        mixed = (mixed ^ column.astype(np.uint64)) * odd
        mixed ^= mixed >> _SHIFT
    return int(mixed.sum())
