"""Derived arrays: computed once from a graph for some kinds of sampling, and shared.

Out-edges, running sums of weights, rows ordered by time, rows ordered by id, bit lengths of
degrees, the edges as COO. Each follows from the graph's own arrays, so it is not part of the
content; a saved or shared graph keeps those that exist by then. A `DerivedArrays` object identifies
what is wanted; the names of its arrays are part of the format (docs/format.md), where the group is
called `aid`. This module knows nothing about sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy.typing as npt

from penstock import kernels
from penstock.graph.layout import layout
from penstock.graph.schema import ArrayKey, EdgeType
from penstock.graph.segment import Segment, check_room
from penstock.graph.shared import SharedArray
from penstock.graph.topology import Spec, Topology, coo, id_dtype, specs
from penstock.kernels.negatives import sort_rows
from penstock.kernels.ppr import degree_sizes
from penstock.kernels.prepare import order_by_time, weight_sums

Side: TypeAlias = Literal["in", "out"]
# The dtypes an array may have, and its shape.
Form: TypeAlias = tuple[tuple[str, ...], tuple[int, ...]]

IDS: Final = ("int32", "int64")
INTEGERS: Final = ("int64",)
BYTES: Final = ("uint8",)


class DerivedFrom(Protocol):
    """The graph that derived arrays are computed from."""

    def num_nodes(self, node_type: str | None = None) -> int: ...
    def csc(self, edge_type: EdgeType | None = None) -> Topology: ...
    def csr(self, edge_type: EdgeType | None = None) -> Topology: ...
    def node_attribute(self, name: str, node_type: str | None = None) -> npt.NDArray[Any]: ...
    def edge_attribute(self, name: str, edge_type: EdgeType | None = None) -> npt.NDArray[Any]: ...
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
    array has one entry for.
    """

    @property
    def edge_type(self) -> EdgeType: ...
    @property
    def side(self) -> Side: ...
    @property
    def sources(self) -> tuple[ArrayKey, ...]: ...
    def forms(self, count: int, /) -> tuple[Form, ...]: ...


@dataclass(frozen=True, slots=True)
class OutEdges:
    """The csr of an edge type."""

    edge_type: EdgeType

    @property
    def keys(self) -> tuple[ArrayKey, ...]:
        return tuple(ArrayKey("csr", self.edge_type, name) for name in ("indptr", "adjacency"))

    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]:
        csc, num_rows = graph.csc(self.edge_type), graph.num_nodes(self.edge_type[0])
        wanted = specs(num_rows, csc.num_rows, csc.num_edges, paired=True)
        return _made(wanted, kind, lambda *out: kernels.transpose(csc.indptr, csc.adjacency, *out))


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

    def forms(self, num_edges: int) -> tuple[Form, ...]:
        return ((INTEGERS, (num_edges,)),)

    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]:
        rows = rows_of(graph, self.edge_type, self.side)
        weights = graph.edge_attribute(self.attribute, self.edge_type)
        # NumPy has no bfloat16: only the shared array knows that its elements have this type.
        dtype = graph.edge_attributes(self.edge_type)[self.attribute].dtype
        with _naming(self.sources[0]):
            return _made(
                [("int64", (rows.num_edges,))],
                kind,
                lambda out: weight_sums(_adjacency(rows), weights, out, dtype=dtype),
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
        return self.edge_type[0 if self.side == "in" else 2]

    @property
    def sources(self) -> tuple[ArrayKey, ...]:
        if self.of_nodes:
            return ArrayKey("node", self.found, self.attribute), *_rows_of(self)
        return ArrayKey("edge", self.edge_type, self.attribute), *_rows_of(self)

    def forms(self, num_edges: int) -> tuple[Form, ...]:
        return (IDS, (num_edges, 2)), (INTEGERS, (num_edges,))

    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]:
        rows = rows_of(graph, self.edge_type, self.side)
        if self.of_nodes:
            times = graph.node_attribute(self.attribute, self.found)
        else:
            times = graph.edge_attribute(self.attribute, self.edge_type)
        size = graph.num_nodes(self.found)
        _, entries = specs(rows.num_rows, size, rows.num_edges, paired=True)

        def fill(out_entries: npt.NDArray[Any], out_times: npt.NDArray[Any]) -> None:
            order_by_time(
                _adjacency(rows),
                times,
                of_nodes=self.of_nodes,
                out_entries=out_entries,
                out_times=out_times,
            )

        with _naming(self.sources[0]):
            return _made([entries, ("int64", (rows.num_edges,))], kind, fill)


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

    def forms(self, num_edges: int) -> tuple[Form, ...]:
        return ((IDS, (num_edges,)),)

    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]:
        rows = rows_of(graph, self.edge_type, self.side)
        wanted = [(str(rows.adjacency.dtype), (rows.num_edges,))]
        return _made(wanted, kind, lambda out: sort_rows(_adjacency(rows), out))


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
        return self.edge_type[2 if self.side == "in" else 0]

    @property
    def sources(self) -> tuple[ArrayKey, ...]:
        return _rows_of(self)

    def forms(self, num_rows: int) -> tuple[Form, ...]:
        return ((BYTES, (num_rows,)),)

    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]:
        rows = rows_of(graph, self.edge_type, self.side)
        wanted = [("uint8", (rows.num_rows,))]
        return _made(wanted, kind, lambda out: degree_sizes(_adjacency(rows), out))


@dataclass(frozen=True, slots=True)
class Coo:
    """The edges in order of their ids, [2, edges], sources above destinations."""

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

    def forms(self, num_edges: int) -> tuple[Form, ...]:
        return ((IDS, (2, num_edges)),)

    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]:
        csc = graph.csc(self.edge_type)
        dtype = id_dtype(max(graph.num_nodes(self.edge_type[0]), csc.num_rows))
        return _made([(dtype, (2, csc.num_edges))], kind, lambda out: coo(csc, out))


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
    return graph.csc(edge_type) if side == "in" else graph.csr(edge_type)


def _rows_of(derived: WeightSums | ByTime | SortedNeighbors | DegreeSizes) -> tuple[ArrayKey, ...]:
    return OutEdges(derived.edge_type).keys if derived.side == "out" else ()


def _adjacency(rows: Topology) -> kernels.Adjacency:
    return kernels.Adjacency(rows.indptr, rows.adjacency)


@contextmanager
def _naming(attribute: ArrayKey) -> Iterator[None]:
    """Name the attribute in a kernel's `ValueError`: the kernel knows only an array."""
    try:
        yield
    except ValueError as error:
        of = f" of {attribute.type!r}" if any(attribute.type) else ""
        named = f"{attribute.group} attribute {attribute.name!r}{of}"
        raise ValueError(f"{named}: {error}") from None


def _made(
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
