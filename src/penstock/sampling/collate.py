"""Neighbour batches, written straight to where they will be read.

The kernel writes ids into regions that are large enough for the largest possible batch (memory that
is not touched costs nothing), and rows of attributes are gathered behind them. If the memory is too
small for that, it is divided in proportion to earlier batches.

The offset of an array is not part of a batch: names, types, shapes and contents are, and these are
a pure function of (graph, spec, seed, epoch, index, seeds). This module knows no processes, and
about memory only that something allocates arrays (`BatchBuffer`).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.errors import BatchTooLarge, PenstockError
from penstock.graph import Graph
from penstock.graph.dtypes import dtype_name
from penstock.kernels import Buffers, Sample
from penstock.kernels.arrays import Ids
from penstock.sampling.attributes import Chosen, EdgeEnds, gather
from penstock.sampling.batches import Awaited, Batches, Reached
from penstock.sampling.bounds import Sizes
from penstock.sampling.buffer import BatchBuffer, BatchMemory, SlotTooSmall
from penstock.sampling.khop import NeighborSampler
from penstock.sampling.names import Owner, qualified, type_name
from penstock.sampling.request import Request
from penstock.sampling.seeds import IDS, ArraySpec, SeedBuilder, Seeds
from penstock.sampling.shape import BatchShape, fanouts_of
from penstock.sampling.spec import NeighborSpec

_Room = tuple[int, tuple[int, ...], tuple[ArraySpec, ...]]
# How many entries are remembered: a channel has one, and one if its last batch is short.
_ROOMS: Final = 1024


class Outgrown(PenstockError):
    """A batch is larger than the regions it was given; it fits into `sizes`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(f"the batch needs room for {sizes}")
        self.sizes = sizes


class _Regions(msgspec.Struct, eq=False):
    """Where the kernel writes. `ends` are [2, edges], neighbours above the nodes they led from."""

    nodes: list[Ids] = msgspec.field(default_factory=list)
    trees: list[Ids] = msgspec.field(default_factory=list)
    ends: list[Ids] = msgspec.field(default_factory=list)
    edge_ids: list[Ids] = msgspec.field(default_factory=list)

    def buffers(self, *, with_edge_ids: bool) -> Buffers:
        rows, cols = [ends[0] for ends in self.ends], [ends[1] for ends in self.ends]
        edge_ids = self.edge_ids if with_edge_ids else None
        return Buffers(self.nodes, rows, cols, edge_ids, self.trees or None)


class NeighborBatches(Batches):
    """Makes the batches of one spec; for one thread at a time."""

    def __init__(
        self, graph: Graph, spec: NeighborSpec, seed_builder: SeedBuilder | None = None
    ) -> None:
        self.shape = BatchShape(graph, spec, seed_builder)
        self._ends = EdgeEnds(graph, spec.direction)
        self._is_hetero = graph.is_hetero
        self._sampler = sampler_of(graph, spec)
        self._most: Sizes | None = None  # the largest sizes of the batches so far
        self._enough: dict[_Room, Sizes] = {}  # sizes for rooms in which any batch fits
        self._awaited: Awaited[Sizes] = Awaited()

    def make(self, request: Request, memory: BatchMemory, reached: Reached) -> dict[str, Any]:
        """Write a batch; if it outgrows its regions but fits the memory, write it again."""
        start = self.start(request)
        sizes = self._sizes(request, start, memory.room)
        try:
            return self.write(request, start, sizes, memory, reached)
        except Outgrown as outgrown:
            sizes = outgrown.sizes
        needed = self.nbytes(sizes, start)
        if needed > memory.room:
            self._awaited.keep(request, sizes)
            raise SlotTooSmall(needed, memory.room)
        memory.clear()
        return self.write(request, start, sizes, memory, reached)

    def likely_bytes(self, inputs: int, of: Owner) -> int:
        """Return room for any batch of so many inputs of a type, or for nearly any."""
        return self.shape.likely_bytes(inputs, of)

    def drop(self) -> None:
        """Forget the size of a batch that did not fit."""
        self._awaited.drop()

    def start(self, request: Request) -> Seeds:
        """Return the seeds of a batch."""
        return self.shape.seed_builder.start(request)

    def nbytes(self, sizes: Sizes, start: Seeds) -> int:
        """Return the bytes of a batch whose lists have these sizes."""
        return self.shape.nbytes(sizes, start.array_specs)

    def sizes_for(self, room: int, start: Seeds) -> Sizes:
        """Divide `room` bytes: enough for any batch, or in proportion to the batches so far."""
        key = (room, start.num_seeds, start.array_specs)
        enough = self._enough.get(key)
        if enough is not None:
            return enough
        bound = self.shape.bound(start.num_seeds)
        if self.nbytes(bound, start) <= room:
            if len(self._enough) < _ROOMS:
                self._enough[key] = bound
            return bound
        likely = bound if self._most is None else self._most.with_spare()
        return self.shape.divided(room, likely, start.array_specs)

    def write(
        self,
        request: Request,
        start: Seeds,
        sizes: Sizes,
        buffer: BatchBuffer,
        reached: Reached = lambda stage: None,
    ) -> dict[str, Any]:
        """Write the batch, and return what is no array. `Outgrown` says what room it needs."""
        regions = self._regions(sizes, buffer)
        sample = self._sample(request, start, regions)
        reached("writing")
        self._settle(sample, regions, buffer)
        start.tell_trees(sample.trees or ())
        for name, array in start.arrays.items():
            buffer.array(name, dtype_name(array.dtype), array.shape)[...] = array
        self._gather(sample, regions, buffer)
        return start.facts | self._hop_counts(sample)

    def _sizes(self, request: Request, start: Seeds, room: int) -> Sizes:
        awaited = self._awaited.take(request)
        if awaited is not None and self.nbytes(awaited, start) <= room:
            return awaited
        return self.sizes_for(room, start)

    def _regions(self, sizes: Sizes, buffer: BatchBuffer) -> _Regions:
        regions = _Regions()
        for owner, count in zip(self.shape.node_types, sizes.nodes, strict=True):
            regions.nodes.append(buffer.array(qualified(owner, "n_id"), IDS, (count,)))
            if self.shape.disjoint:
                regions.trees.append(buffer.array(qualified(owner, "batch"), IDS, (count,)))
        for kind, count in zip(self.shape.edge_types, sizes.edges, strict=True):
            regions.ends.append(buffer.array(qualified(kind, "edge_index"), IDS, (2, count)))
            if self.shape.with_edge_ids:
                regions.edge_ids.append(buffer.array(qualified(kind, "e_id"), IDS, (count,)))
        return regions

    def _sample(self, request: Request, start: Seeds, regions: _Regions) -> Sample:
        try:
            sample = self._sampler.sample_by_type(
                start.seeds,
                seed=request.seed,
                epoch=request.epoch,
                index=request.index,
                out=regions.buffers(with_edge_ids=self.shape.with_edge_ids),
                times=start.times,
                excluded=start.excluded,
            )
        except BatchTooLarge as error:
            sizes = Sizes(tuple(error.nodes), tuple(error.edges))
            self._remember(sizes)
            raise Outgrown(sizes.with_spare()) from None
        self._remember(Sizes(tuple(map(len, sample.nodes)), tuple(map(len, sample.rows))))
        return sample

    def _remember(self, sizes: Sizes) -> None:
        self._most = sizes if self._most is None else self._most.at_least(sizes)

    def _settle(self, sample: Sample, regions: _Regions, buffer: BatchBuffer) -> None:
        for owner, nodes in zip(self.shape.node_types, sample.nodes, strict=True):
            buffer.reshape(qualified(owner, "n_id"), nodes.shape)
            if self.shape.disjoint:
                buffer.reshape(qualified(owner, "batch"), nodes.shape)
        for number, kind in enumerate(self.shape.edge_types):
            count = len(sample.rows[number])
            # Move the second row right behind the first, so that [2, edges] has no gap. NumPy moves
            # a vector within an array in place, whichever way the two overlap.
            regions.ends[number].reshape(-1)[count : 2 * count] = sample.cols[number]
            buffer.reshape(qualified(kind, "edge_index"), (2, count))
            if self.shape.with_edge_ids:
                buffer.reshape(qualified(kind, "e_id"), (count,))

    def _gather(self, sample: Sample, regions: _Regions, buffer: BatchBuffer) -> None:
        chosen = [Chosen(column, sample.nodes[column.owner]) for column in self.shape.node_columns]
        if sample.edge_ids is not None:  # always, if edge attributes are wanted
            for column in self.shape.edge_columns:
                ids = sample.edge_ids[column.owner]
                # They were moved: see `_settle`.
                index = regions.ends[column.owner].reshape(-1)[: 2 * len(ids)].reshape(2, -1)
                chosen.append(Chosen(column, ids, self._ends.of(column.owner, index, sample.nodes)))
        gather(chosen, buffer)

    def _hop_counts(self, sample: Sample) -> dict[str, Any]:
        nodes = dict(zip(self.shape.node_types, sample.num_sampled_nodes, strict=True))
        edges = dict(zip(self.shape.edge_types, sample.num_sampled_edges, strict=True))
        if not self._is_hetero:
            (hop_nodes,), (hop_edges,) = nodes.values(), edges.values()
            return {"num_sampled_nodes": hop_nodes, "num_sampled_edges": hop_edges}
        return {
            "num_sampled_nodes": {type_name(owner): hops for owner, hops in nodes.items()},
            "num_sampled_edges": {type_name(kind): hops for kind, hops in edges.items()},
        }


def sampler_of(graph: Graph, spec: NeighborSpec) -> NeighborSampler:
    """Return the sampler of a spec."""
    return NeighborSampler(
        graph,
        fanouts_of(spec),
        replace=spec.replace,
        direction=spec.direction,
        node_caps=spec.node_caps,
        disjoint=spec.disjoint,
        weight_attr=spec.weight_attr,
        time_attr=spec.time_attr,
        temporal_strategy=spec.temporal_strategy,
    )
