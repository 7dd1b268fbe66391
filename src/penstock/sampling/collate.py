"""Neighbour batches, written straight to where they will be read.

The kernel writes ids into regions that are large enough for the largest batch there can be
(memory that nobody touches costs nothing), and rows of attributes are gathered behind them. Where
the memory is too small for that, the batches so far tell how to divide it.

Where an array lies is no part of a batch: names, types, shapes and contents are, and those are a
pure function of (graph, spec, seed, epoch, index, seeds). This module knows no processes, and of
memory only that somebody hands out arrays (`Sheet`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from penstock.errors import BatchTooLarge, PenstockError
from penstock.graph import Graph
from penstock.kernels import Buffers, Sample, gather_rows
from penstock.kernels.arrays import Array, Ids
from penstock.sampling.bounds import Sizes
from penstock.sampling.names import qualified, type_name
from penstock.sampling.neighbor import NeighborSampler
from penstock.sampling.shape import IDS, BatchShape, fanouts_of
from penstock.sampling.spec import NeighborSpec

# Kinds of room that are remembered: a channel has one, and its last batch may be short.
_ROOMS: Final = 1024


class Sheet(Protocol):
    """Memory for one batch, handed out array by array."""

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
        """The next array, in its storage dtype."""

    def reshape(self, name: str, shape: tuple[int, ...]) -> Array:
        """An array has turned out smaller: the first elements of its room, in C order."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Which batch: its name among all, its seeds, and their places among the inputs."""

    seed: int
    epoch: int
    index: int
    seeds: Ids
    positions: Ids
    node_type: str = ""

    def is_same(self, other: Request) -> bool:
        """Whether this is another request for the same batch."""
        return (self.seed, self.epoch, self.index, self.node_type) == (
            other.seed,
            other.epoch,
            other.index,
            other.node_type,
        ) and all(map(np.array_equal, (self.seeds, self.positions), (other.seeds, other.positions)))


class Outgrown(PenstockError):
    """A batch is larger than the regions it was given; `sizes` will do."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(f"the batch needs room for {sizes}")
        self.sizes = sizes


@dataclass(slots=True)
class _Regions:
    """Where the kernel writes. `ends` are [2, edges], the neighbours above those they led from."""

    nodes: list[Ids] = field(default_factory=list)
    ends: list[Ids] = field(default_factory=list)
    edge_ids: list[Ids] = field(default_factory=list)

    def buffers(self, *, with_edge_ids: bool) -> Buffers:
        rows, cols = [ends[0] for ends in self.ends], [ends[1] for ends in self.ends]
        return Buffers(self.nodes, rows, cols, self.edge_ids if with_edge_ids else None)


class NeighborBatches:
    """Makes the batches of one spec; one thread at a time."""

    def __init__(self, graph: Graph, spec: NeighborSpec) -> None:
        self.shape = BatchShape(graph, spec)
        self._is_hetero = graph.is_hetero
        self._sampler = NeighborSampler(
            graph,
            fanouts_of(spec),
            replace=spec.replace,
            direction=spec.direction,
            node_caps=spec.node_caps,
        )
        self._most: Sizes | None = None  # the largest numbers among the batches so far
        self._enough: dict[tuple[int, int, str], Sizes] = {}  # where there is room for any batch

    def sizes_for(self, room: int, seeds: int, node_type: str = "") -> Sizes:
        """How to divide `room` bytes: enough for any batch, or in proportion to those so far."""
        enough = self._enough.get((room, seeds, node_type))
        if enough is not None:
            return enough
        bound = self.shape.bound(seeds, node_type)
        if self.shape.nbytes(bound, seeds) <= room:
            if len(self._enough) < _ROOMS:
                self._enough[room, seeds, node_type] = bound
            return bound
        return self.shape.divided(room, self._most or bound, seeds)

    def write(
        self,
        request: Request,
        sizes: Sizes,
        sheet: Sheet,
        reached: Callable[[str], object] = lambda stage: None,
    ) -> dict[str, Any]:
        """Writes the batch, and returns what is no array. `Outgrown` says what room it needs."""
        regions = self._regions(sizes, sheet)
        sample = self._sample(request, regions)
        reached("writing")
        self._settle(sample, regions, sheet)
        self._gather(request, sample, sheet)
        return self._facts(request, sample)

    def _regions(self, sizes: Sizes, sheet: Sheet) -> _Regions:
        regions = _Regions()
        for owner, count in zip(self.shape.node_types, sizes.nodes, strict=True):
            regions.nodes.append(sheet.array(qualified(owner, "n_id"), IDS, (count,)))
        for kind, count in zip(self.shape.edge_types, sizes.edges, strict=True):
            regions.ends.append(sheet.array(qualified(kind, "edge_index"), IDS, (2, count)))
            if self.shape.with_edge_ids:
                regions.edge_ids.append(sheet.array(qualified(kind, "e_id"), IDS, (count,)))
        return regions

    def _sample(self, request: Request, regions: _Regions) -> Sample:
        try:
            sample = self._sampler.sample(
                {request.node_type: request.seeds} if self._is_hetero else request.seeds,
                seed=request.seed,
                epoch=request.epoch,
                index=request.index,
                out=regions.buffers(with_edge_ids=self.shape.with_edge_ids),
            )
        except BatchTooLarge as error:
            raise Outgrown(self._remembered(error.nodes, error.edges)) from None
        self._remembered(map(len, sample.nodes), map(len, sample.rows))
        return sample

    def _remembered(self, nodes: Iterable[int], edges: Iterable[int]) -> Sizes:
        sizes = Sizes(tuple(nodes), tuple(edges)).with_spare()
        self._most = sizes if self._most is None else self._most.at_least(sizes)
        return sizes

    def _settle(self, sample: Sample, regions: _Regions, sheet: Sheet) -> None:
        for owner, nodes in zip(self.shape.node_types, sample.nodes, strict=True):
            sheet.reshape(qualified(owner, "n_id"), nodes.shape)
        for number, kind in enumerate(self.shape.edge_types):
            count = len(sample.rows[number])
            # The second row moves to right behind the first: [2, edges] without a gap. NumPy
            # moves a vector within an array in place, whichever way the two overlap.
            regions.ends[number].reshape(-1)[count : 2 * count] = sample.cols[number]
            sheet.reshape(qualified(kind, "edge_index"), (2, count))
            if self.shape.with_edge_ids:
                sheet.reshape(qualified(kind, "e_id"), (count,))

    def _gather(self, request: Request, sample: Sample, sheet: Sheet) -> None:
        name = qualified(request.node_type, "input_id")
        sheet.array(name, IDS, request.positions.shape)[...] = request.positions
        for columns, ids in (
            (self.shape.node_columns, sample.nodes),
            (self.shape.edge_columns, sample.edge_ids or []),
        ):
            for column in columns:
                chosen = ids[column.owner]
                out = sheet.array(column.name, column.dtype, column.shape(len(chosen)))
                gather_rows(column.rows, chosen, out)

    def _facts(self, request: Request, sample: Sample) -> dict[str, Any]:
        nodes = dict(zip(self.shape.node_types, sample.num_sampled_nodes, strict=True))
        edges = dict(zip(self.shape.edge_types, sample.num_sampled_edges, strict=True))
        facts = {"batch_size": len(request.seeds)}
        if not self._is_hetero:
            (hop_nodes,), (hop_edges,) = nodes.values(), edges.values()
            return facts | {"num_sampled_nodes": hop_nodes, "num_sampled_edges": hop_edges}
        return facts | {
            "input_type": request.node_type,
            "num_sampled_nodes": {type_name(owner): hops for owner, hops in nodes.items()},
            "num_sampled_edges": {type_name(kind): hops for kind, hops in edges.items()},
        }
