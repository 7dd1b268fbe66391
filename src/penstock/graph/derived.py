"""Derived arrays: computed once from a graph for some kinds of sampling, and shared.

Out-edges, running sums of weights, rows ordered by time, rows ordered by id, bit lengths of
degrees, the edges as COO. Each follows from the graph's own arrays, so it is not part of the
content; a saved or shared graph keeps those that exist by then. A `DerivedArrays` object identifies
what is wanted; the names of its arrays are part of the format (docs/format.md), where the group is
called `aid`. Those of a part belong to the rows of its own nodes, and have the same values there as
in the whole graph. This module knows nothing about sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock import kernels
from penstock.graph.layout import layout
from penstock.graph.schema import (
    ArrayKey,
    EdgeType,
    PartNote,
    Side,
    found_by,
    owner_of,
)
from penstock.graph.segment import Segment, check_room
from penstock.graph.shared import SharedArray
from penstock.graph.tensors import floats
from penstock.graph.topology import Spec, Topology, coo, id_dtype, specs
from penstock.kernels.cutting import copy_rows, row_offsets
from penstock.kernels.members import Members
from penstock.kernels.negatives import sort_rows
from penstock.kernels.ppr import degree_sizes
from penstock.kernels.prepare import order_by_time, weight_sums

Array: TypeAlias = npt.NDArray[Any]
# The dtypes an array may have, and its shape.
Form: TypeAlias = tuple[tuple[str, ...], tuple[int, ...]]

IDS: Final = ("int32", "int64")
INTEGERS: Final = ("int64",)
BYTES: Final = ("uint8",)


class DerivedFrom(Protocol):
    """The graph that derived arrays are computed from."""

    @property
    def part(self) -> PartNote | None: ...
    def members(self, node_type: str | None = None) -> Members | None: ...
    def edge_members(self, edge_type: EdgeType | None = None) -> Members | None: ...
    def num_nodes(self, node_type: str | None = None) -> int: ...
    def num_edges(self, edge_type: EdgeType | None = None) -> int: ...
    def topology(self, edge_type: EdgeType | None = None, side: Side = "in") -> Topology: ...
    def derived(self, derived: DerivedArrays) -> tuple[SharedArray, ...]: ...
    def node_attribute(self, name: str, node_type: str | None = None) -> Array: ...
    def edge_attribute(self, name: str, edge_type: EdgeType | None = None) -> Array: ...
    def edge_attributes(self, edge_type: EdgeType | None = None) -> Mapping[str, SharedArray]: ...


class DerivedArrays(Protocol):
    """A set of arrays to compute: the keys they are kept under, and how they are computed.

    `make` puts the arrays into shared memory of the given kind; if it fails, nothing is left
    behind.
    """

    @property
    def keys(self) -> tuple[ArrayKey, ...]: ...
    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]: ...


class NamedDerived(DerivedArrays, Protocol):
    """Derived arrays identified by their array names: all but the csr, which is a topology.

    They belong to the rows of one side. `sources` are the arrays they are computed from besides the
    csc. `forms` gives dtypes and shapes for a number of edges, or of rows, depending on what the
    array has one entry for. Those `of_own_rows` need attributes of edges: a part can make them of
    the rows of its own nodes only, even where it has all rows.
    """

    @property
    def edge_type(self) -> EdgeType: ...
    @property
    def side(self) -> Side: ...
    @property
    def sources(self) -> tuple[ArrayKey, ...]: ...
    @property
    def of_own_rows(self) -> bool: ...
    def forms(self, count: int, /) -> tuple[Form, ...]: ...


@dataclass(frozen=True, slots=True)
class OutEdges:
    """The csr of an edge type."""

    edge_type: EdgeType

    @property
    def keys(self) -> tuple[ArrayKey, ...]:
        return tuple(ArrayKey("csr", self.edge_type, name) for name in ("indptr", "adjacency"))

    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]:
        csc, num_rows = graph.topology(self.edge_type, "in"), graph.num_nodes(self.edge_type[0])
        if graph.part is not None and graph.part.alone:
            return self._make_alone(graph, csc, kind)
        wanted = specs(num_rows, csc.num_rows, csc.num_edges, paired=True)
        return made_arrays(
            wanted, kind, lambda *out: kernels.transpose(csc.indptr, csc.adjacency, *out)
        )

    def _make_alone(
        self, graph: DerivedFrom, csc: Topology, kind: str | None
    ) -> Sequence[SharedArray]:
        """Transpose rows that have some of the edges only, under the ids of the whole graph."""
        num_rows, num_neighbors = graph.num_nodes(self.edge_type[0]), csc.num_rows
        dtype = id_dtype(max(num_neighbors, graph.num_edges(self.edge_type)))
        wanted = [("int64", (num_rows + 1,)), (dtype, (csc.num_edges, 2))]
        return made_arrays(wanted, kind, lambda *out: transpose_some(csc, *out))


@dataclass(frozen=True, slots=True)
class WeightSums:
    """Running sums of the weights within each row, as integers; see `kernels.prepare`."""

    edge_type: EdgeType
    attribute: str
    side: Side = "in"

    @property
    def keys(self) -> tuple[ArrayKey, ...]:
        return (ArrayKey("aid", self.edge_type, f"{self.side}.weights.{self.attribute}"),)

    @property
    def sources(self) -> tuple[ArrayKey, ...]:
        return ArrayKey("edge", self.edge_type, self.attribute), *_rows_of(self)

    @property
    def of_own_rows(self) -> bool:
        return True

    def forms(self, num_edges: int) -> tuple[Form, ...]:
        return ((INTEGERS, (num_edges,)),)

    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]:
        weights = graph.edge_attribute(self.attribute, self.edge_type)
        # NumPy has no bfloat16: only the shared array knows that its elements have this type.
        dtype = graph.edge_attributes(self.edge_type)[self.attribute].dtype
        rows = rows_of(graph, self.edge_type, self.side) if graph.part is None else None
        with _naming(self.sources[0]):
            if rows is None:
                rows, weights = _with_values(graph, self.edge_type, self.side, weights, "weights")
                _check_weights(weights, dtype, rows)
                rows = rows.bare
            wanted, adjacency = [("int64", (rows.num_edges,))], rows.rows
            return made_arrays(
                wanted, kind, lambda out: weight_sums(adjacency, weights, out, dtype=dtype)
            )


@dataclass(frozen=True, slots=True)
class ByTime:
    """The rows in order of time, and the times in that order; equal times keep their order.

    The time is an attribute of the edges, or of the nodes that a row leads to.
    """

    edge_type: EdgeType
    attribute: str
    of_nodes: bool
    side: Side = "in"

    @property
    def keys(self) -> tuple[ArrayKey, ...]:
        name = f"{'node' if self.of_nodes else 'edge'}.{self.attribute}"
        return tuple(
            ArrayKey("aid", self.edge_type, f"{self.side}.{part}.{name}")
            for part in ("by_time", "times")
        )

    @property
    def found(self) -> str:
        """The type of the nodes that a row leads to."""
        return found_by(self.edge_type, self.side)

    @property
    def of_own_rows(self) -> bool:
        return not self.of_nodes

    @property
    def sources(self) -> tuple[ArrayKey, ...]:
        if self.of_nodes:
            return ArrayKey("node", self.found, self.attribute), *_rows_of(self)
        return ArrayKey("edge", self.edge_type, self.attribute), *_rows_of(self)

    def forms(self, num_edges: int) -> tuple[Form, ...]:
        return (IDS, (num_edges, 2)), (INTEGERS, (num_edges,))

    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]:
        if self.of_nodes:
            times = graph.node_attribute(self.attribute, self.found)
        else:
            times = graph.edge_attribute(self.attribute, self.edge_type)
        if graph.part is not None:
            return self._make_of_part(graph, graph.part, times, kind)
        rows = rows_of(graph, self.edge_type, self.side)
        _, entries = specs(rows.num_rows, graph.num_nodes(self.found), rows.num_edges, paired=True)

        def fill(out_entries: Array, out_times: Array) -> None:
            order_by_time(
                rows.rows,
                times,
                of_nodes=self.of_nodes,
                out_entries=out_entries,
                out_times=out_times,
            )

        with _naming(self.sources[0]):
            return made_arrays([entries, ("int64", (rows.num_edges,))], kind, fill)

    def _make_of_part(
        self, graph: DerivedFrom, part: PartNote, times: Array, kind: str | None
    ) -> Sequence[SharedArray]:
        """Order the rows by the times of their entries, whose edge ids are no positions here."""
        with _naming(self.sources[0]):
            rows, told = self._with_times(graph, part, times)
            bare, ids = rows.bare, rows.edge_ids

            def fill(out_entries: Array, out_times: Array) -> None:
                order_by_time(bare.rows, told, out_entries=out_entries, out_times=out_times)
                out_entries[:, 1] = ids[out_entries[:, 1]]

            dtype = np.promote_types(rows.adjacency.dtype, ids.dtype)
            entries = (str(dtype), (rows.num_edges, 2))
            return made_arrays([entries, ("int64", (rows.num_edges,))], kind, fill)

    def _with_times(
        self, graph: DerivedFrom, part: PartNote, times: Array
    ) -> tuple[Topology, Array]:
        """Return the rows to order, and the time of each of their entries."""
        if not self.of_nodes:
            return _with_values(graph, self.edge_type, self.side, times, "times")
        if not part.alone:
            raise ValueError(
                f"this is {part}, and its nodes have neighbours in other parts, whose times are "
                "there; sample from the store (penstock.connect), which has all times"
            )
        rows, members = rows_of(graph, self.edge_type, self.side), graph.members(self.found)
        assert members is not None
        return rows, times[members.rows(rows.indices)]


@dataclass(frozen=True, slots=True)
class SortedNeighbors:
    """The neighbours of each row in rising order, for looking up edges."""

    edge_type: EdgeType
    side: Side = "in"

    @property
    def keys(self) -> tuple[ArrayKey, ...]:
        return (ArrayKey("aid", self.edge_type, f"{self.side}.sorted"),)

    @property
    def sources(self) -> tuple[ArrayKey, ...]:
        return _rows_of(self)

    @property
    def of_own_rows(self) -> bool:
        return False

    def forms(self, num_edges: int) -> tuple[Form, ...]:
        return ((IDS, (num_edges,)),)

    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]:
        rows = rows_of(graph, self.edge_type, self.side)
        wanted = [(str(rows.adjacency.dtype), (rows.num_edges,))]
        return made_arrays(wanted, kind, lambda out: sort_rows(rows.without_ids, out))


@dataclass(frozen=True, slots=True)
class DegreeSizes:
    """The bit length of each row's degree, one byte each; see `kernels.ppr`."""

    edge_type: EdgeType
    side: Side = "in"

    @property
    def keys(self) -> tuple[ArrayKey, ...]:
        return (ArrayKey("aid", self.edge_type, f"{self.side}.degree_sizes"),)

    @property
    def owner(self) -> str:
        """The node type that has these rows."""
        return owner_of(self.edge_type, self.side)

    @property
    def sources(self) -> tuple[ArrayKey, ...]:
        return _rows_of(self)

    @property
    def of_own_rows(self) -> bool:
        return False

    def forms(self, num_rows: int) -> tuple[Form, ...]:
        return ((BYTES, (num_rows,)),)

    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]:
        rows = rows_of(graph, self.edge_type, self.side)
        wanted = [("uint8", (rows.num_rows,))]
        return made_arrays(wanted, kind, lambda out: degree_sizes(rows.without_ids, out))


@dataclass(frozen=True, slots=True)
class Coo:
    """The edges in order of their ids, [2, edges], sources above destinations.

    Of a part these are the edges that belong to it.
    """

    edge_type: EdgeType

    @property
    def keys(self) -> tuple[ArrayKey, ...]:
        return (ArrayKey("aid", self.edge_type, "coo"),)

    @property
    def side(self) -> Side:
        return "in"

    @property
    def sources(self) -> tuple[ArrayKey, ...]:
        return ()

    @property
    def of_own_rows(self) -> bool:
        return True

    def forms(self, num_edges: int) -> tuple[Form, ...]:
        return ((IDS, (2, num_edges)),)

    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]:
        part = graph.part
        side: Side = "in" if part is None or part.alone else part.owning_side
        rows = own_rows_of(graph, self.edge_type, side)
        source, _, destination = self.edge_type
        dtype = id_dtype(max(graph.num_nodes(source), graph.num_nodes(destination)))
        if part is None:
            return made_arrays([(dtype, (2, rows.num_edges))], kind, lambda out: coo(rows, out))
        members = None if part.alone else graph.members(owner_of(self.edge_type, side))
        owners = None if members is None else members.ids()

        def fill(out: Array) -> None:
            order = np.argsort(rows.edge_ids, kind="stable")
            row = np.repeat(np.arange(rows.num_rows), rows.degrees)[order]
            out[0 if side == "in" else 1] = rows.indices[order]
            out[1 if side == "in" else 0] = row if owners is None else owners[row]

        return made_arrays([(dtype, (2, rows.num_edges))], kind, fill)


@dataclass(frozen=True, slots=True)
class OwnRows:
    """The rows of a part's own nodes, of a part that has the whole topology.

    Weights and times of edges belong to them: those of other edges are in other parts.
    """

    edge_type: EdgeType
    side: Side = "in"

    @property
    def keys(self) -> tuple[ArrayKey, ...]:
        return tuple(
            ArrayKey("aid", self.edge_type, f"{self.side}.{name}")
            for name in ("own_indptr", "own_rows")
        )

    @property
    def sources(self) -> tuple[ArrayKey, ...]:
        return _rows_of(self)

    @property
    def of_own_rows(self) -> bool:
        return True

    def forms(self, num_edges: int, num_rows: int = 0) -> tuple[Form, ...]:
        return (INTEGERS, (num_rows + 1,)), (IDS, (num_edges, 2))

    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]:
        rows = graph.topology(self.edge_type, self.side).rows
        members = graph.members(owner_of(self.edge_type, self.side))
        assert members is not None
        nodes = members.ids()
        offsets = row_offsets(rows, nodes)
        num_found = graph.num_nodes(found_by(self.edge_type, self.side))
        dtype = id_dtype(max(num_found, graph.num_edges(self.edge_type)))
        wanted = [("int64", (len(offsets),)), (dtype, (int(offsets[-1]), 2))]

        def fill(indptr: Array, entries: Array) -> None:
            indptr[...] = offsets
            copy_rows(rows, nodes, offsets, 0, entries)

        return made_arrays(wanted, kind, fill)


def keys_of(derived_arrays: Iterable[DerivedArrays]) -> tuple[ArrayKey, ...]:
    """Return the keys of all of these arrays, each once."""
    return tuple(dict.fromkeys(key for derived in derived_arrays for key in derived.keys))


def derived_of(key: ArrayKey) -> NamedDerived | None:
    """Return the derived arrays that a key of the group "aid" belongs to, or None."""
    if isinstance(key.type, str):
        return None
    match key.name.split("."):
        case ["coo"]:
            return Coo(key.type)
        case [("in" | "out") as side, "sorted"]:
            return SortedNeighbors(key.type, side)
        case [("in" | "out") as side, "degree_sizes"]:
            return DegreeSizes(key.type, side)
        case [("in" | "out") as side, "own_indptr" | "own_rows"]:
            return OwnRows(key.type, side)
        case [("in" | "out") as side, "weights", *words] if words:
            return WeightSums(key.type, ".".join(words), side)
        case [("in" | "out") as side, "by_time" | "times", ("node" | "edge") as of, *words] if (
            words
        ):
            return ByTime(key.type, ".".join(words), of == "node", side)
    return None


def derived_among(keys: Iterable[ArrayKey]) -> list[NamedDerived]:
    """Return the derived arrays that these keys belong to, each once; not the csr."""
    found = (derived_of(key) for key in keys if key.group == "aid")
    return list(dict.fromkeys(derived for derived in found if derived is not None))


def rows_of(graph: DerivedFrom, edge_type: EdgeType, side: Side) -> Topology:
    """Return the rows of one side: the in-edges of every node, or its out-edges."""
    if side not in ("in", "out"):
        raise ValueError(f"side is {side!r}; expected 'in' or 'out'")
    return graph.topology(edge_type, side)


def own_rows_of(graph: DerivedFrom, edge_type: EdgeType, side: Side) -> Topology:
    """Return the rows whose edges have their attributes here: those of a part's own nodes."""
    part = graph.part
    if part is None or part.topology == "parts" or part.alone:
        return rows_of(graph, edge_type, side)
    indptr, entries = graph.derived(OwnRows(edge_type, side))
    return Topology(indptr.array, entries.array)


def transpose_some(rows: Topology, out_indptr: Array, out_adjacency: Array) -> None:
    """Write the rows of the other side, in order of edge ids, of rows with some edges only."""
    ids = rows.edge_ids
    order = np.argsort(ids, kind="stable")
    owners = np.repeat(np.arange(rows.num_rows), rows.degrees)[order]
    neighbors = np.ascontiguousarray(rows.indices[order])
    kernels.fill_adjacency(neighbors, owners, out_indptr, out_adjacency)
    out_adjacency[:, 1] = ids[order][out_adjacency[:, 1]]


def _rows_of(
    derived: WeightSums | ByTime | SortedNeighbors | DegreeSizes | OwnRows,
) -> tuple[ArrayKey, ...]:
    return OutEdges(derived.edge_type).keys if derived.side == "out" else ()


def _with_values(
    graph: DerivedFrom, edge_type: EdgeType, side: Side, values: Array, name: str
) -> tuple[Topology, Array]:
    """Return the rows of a part that have attributes of edges here, and the value of each entry."""
    part, members = graph.part, graph.edge_members(edge_type)
    assert part is not None
    assert members is not None
    if values.ndim != 1:
        raise ValueError(
            f"{name} must have one number for each of {len(values)} edges, "
            f"not shape {list(values.shape)}"
        )
    if side != part.owning_side and not part.alone:
        ends = ("destination", "source") if side == "out" else ("source", "destination")
        raise ValueError(
            f"this is {part}, and attributes of edges went with their {ends[0]}: those of the "
            f"{side}-edges of its nodes are in other parts; cut the graph by {ends[1]} "
            f"(edges={ends[1]!r})"
        )
    rows = own_rows_of(graph, edge_type, side)
    return rows, values[members.rows(rows.edge_ids)]


def _check_weights(weights: Array, dtype: str, rows: Topology) -> None:
    """Name the edge of the first weight that is none by its id, which a kernel does not know."""
    if dtype == "bool":
        return  # an error of the kernel
    values = floats(weights, dtype)
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        edge = int(rows.edge_ids[bad].min())
        at = int(bad[np.argmin(rows.edge_ids[bad])])
        raise ValueError(
            f"weights[{edge}], of edge {edge}, is {values[at]}; expected a finite number >= 0"
        )


@contextmanager
def _naming(attribute: ArrayKey) -> Iterator[None]:
    """Name the attribute in a kernel's `ValueError`: the kernel knows only an array."""
    try:
        yield
    except ValueError as error:
        of = f" of {attribute.type!r}" if any(attribute.type) else ""
        named = f"{attribute.group} attribute {attribute.name!r}{of}"
        raise ValueError(f"{named}: {error}") from None


def made_arrays(
    wanted: Sequence[Spec], kind: str | None, fill: Callable[..., object]
) -> Sequence[SharedArray]:
    """Fill arrays in a new segment and freeze it; if that fails, nothing is left behind."""
    offsets, nbytes = layout(wanted)
    check_room(nbytes, kind=kind)
    segment = Segment.create(nbytes, kind=kind)
    try:
        arrays = [
            SharedArray(segment, dtype, shape, offset)
            for (dtype, shape), offset in zip(wanted, offsets, strict=True)
        ]
        fill(*(array.array for array in arrays))
        segment.freeze()
    except BaseException:
        segment.close()
        raise
    return arrays
