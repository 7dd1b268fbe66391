"""What a way of sampling needs of a graph beyond its arrays: made once, natively, then shared.

Out-edges, running sums of weights, rows in the order of time, rows in the order of ids. Each follows
from the graph's own arrays, so it is no part of its content, and a graph that is saved or shared
keeps those that were made by then. This module knows nothing of sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy.typing as npt

from penstock.graph.layout import layout
from penstock.graph.schema import ArrayKey, EdgeType
from penstock.graph.segment import Segment, check_room
from penstock.graph.shared import SharedArray
from penstock.graph.topology import Topology, specs, transposed
from penstock.graph.topology import coo as edges_of
from penstock.kernels import Adjacency

Side: TypeAlias = Literal["in", "out"]
Spec = tuple[str, tuple[int, ...]]


class Source(Protocol):
    """What an aid is made from."""

    def num_nodes(self, node_type: str | None = None) -> int: ...
    def csc(self, edge_type: EdgeType | None = None) -> Topology: ...
    def csr(self, edge_type: EdgeType | None = None) -> Topology: ...
    def node_attribute(self, name: str, node_type: str | None = None) -> npt.NDArray[Any]: ...
    def edge_attribute(self, name: str, edge_type: EdgeType | None = None) -> npt.NDArray[Any]: ...
    def edge_attributes(self, edge_type: EdgeType | None = None) -> Mapping[str, SharedArray]: ...


class Aid(Protocol):
    """One thing to be made: under which keys it is kept, and how."""

    @property
    def keys(self) -> tuple[ArrayKey, ...]: ...
    def make(self, graph: Source, kind: str | None) -> Sequence[SharedArray]: ...


@dataclass(frozen=True, slots=True)
class OutEdges:
    """The csr of an edge type."""

    edge_type: EdgeType

    @property
    def keys(self) -> tuple[ArrayKey, ...]:
        return tuple(ArrayKey("csr", self.edge_type, name) for name in ("indptr", "adjacency"))

    def make(self, graph: Source, kind: str | None) -> Sequence[SharedArray]:
        return transposed(
            graph.csc(self.edge_type), graph.num_nodes(self.edge_type[0]), kind=kind
        )


@dataclass(frozen=True, slots=True)
class WeightSums:
    """Running sums of the weights within each row, as integers: see `kernels.prepare`."""

    edge_type: EdgeType
    attribute: str
    side: Side = "in"

    @property
    def keys(self) -> tuple[ArrayKey, ...]:
        return (ArrayKey("aid", self.edge_type, f"{self.side}.weights.{self.attribute}"),)

    def make(self, graph: Source, kind: str | None) -> Sequence[SharedArray]:
        from penstock.kernels import prepare

        rows = _rows(graph, self.edge_type, self.side)
        # Its dtype is told: NumPy sees integers where there is bfloat16.
        weights = graph.edge_attributes(self.edge_type)[self.attribute]
        return _made(
            [("int64", (rows.num_edges,))],
            kind,
            lambda out: prepare.weight_sums(
                _adjacency(rows), weights.array, out, dtype=weights.dtype
            ),
        )


@dataclass(frozen=True, slots=True)
class ByTime:
    """The rows in the order of time, and the times in that order; ties stay as they stand.

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

    def make(self, graph: Source, kind: str | None) -> Sequence[SharedArray]:
        from penstock.kernels import prepare

        rows = _rows(graph, self.edge_type, self.side)
        found = self.edge_type[0 if self.side == "in" else 2]
        if self.of_nodes:
            times = graph.node_attribute(self.attribute, found)
        else:
            times = graph.edge_attribute(self.attribute, self.edge_type)
        _, entries = specs(
            rows.num_rows, graph.num_nodes(found), rows.num_edges, paired=True
        )
        return _made(
            [entries, ("int64", (rows.num_edges,))],
            kind,
            lambda *out: prepare.order_by_time(
                _adjacency(rows),
                times,
                of_nodes=self.of_nodes,
                out_entries=out[0],
                out_times=out[1],
            ),
        )


@dataclass(frozen=True, slots=True)
class SortedRows:
    """The neighbours of each row in rising order, by which an edge is looked up."""

    edge_type: EdgeType
    side: Side = "in"

    @property
    def keys(self) -> tuple[ArrayKey, ...]:
        return (ArrayKey("aid", self.edge_type, f"{self.side}.sorted"),)

    def make(self, graph: Source, kind: str | None) -> Sequence[SharedArray]:
        from penstock.kernels.negatives import sort_rows

        rows = _rows(graph, self.edge_type, self.side)
        wanted = [(str(rows.adjacency.dtype), (rows.num_edges,))]
        return _made(wanted, kind, lambda out: sort_rows(_adjacency(rows), out))


@dataclass(frozen=True, slots=True)
class Coo:
    """The edges in the order of their ids, [2, edges], sources above destinations."""

    edge_type: EdgeType

    @property
    def keys(self) -> tuple[ArrayKey, ...]:
        return (ArrayKey("aid", self.edge_type, "coo"),)

    def make(self, graph: Source, kind: str | None) -> Sequence[SharedArray]:
        csc = graph.csc(self.edge_type)

        def fill(out: npt.NDArray[Any]) -> None:
            edges_of(csc, out)

        return _made([(str(csc.adjacency.dtype), (2, csc.num_edges))], kind, fill)


def keys_of(aids: Iterable[Aid]) -> tuple[ArrayKey, ...]:
    """The keys of all of them, each once."""
    return tuple(dict.fromkeys(key for aid in aids for key in aid.keys))


def _rows(graph: Source, edge_type: EdgeType, side: Side) -> Topology:
    return graph.csc(edge_type) if side == "in" else graph.csr(edge_type)


def _adjacency(rows: Topology) -> Adjacency:
    return Adjacency(rows.indptr, rows.adjacency)


def _made(
    wanted: Sequence[Spec], kind: str | None, fill: Callable[..., None]
) -> Sequence[SharedArray]:
    """Arrays in one segment of their own, filled and frozen; nothing is left if that fails."""
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
