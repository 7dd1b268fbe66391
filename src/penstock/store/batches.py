"""Batches of a store whose servers have the whole topology: sampled there, completed here.

Such a server samples a batch without attributes in one go; their rows come from the parts that have
them. Where the topology is in parts, samplers ask for each hop themselves, and nothing is done
here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.graph import Graph
from penstock.kernels.arrays import Array, Ids
from penstock.sampling.batches import Batches, Reached
from penstock.sampling.buffer import BatchMemory
from penstock.sampling.buffered import BufferedBatches, Sampled
from penstock.sampling.collate import NeighborBatches
from penstock.sampling.kinds import kind_of
from penstock.sampling.names import Owner, qualified
from penstock.sampling.request import Request
from penstock.sampling.spec import HGTSpec, PPRSpec, SamplingSpec, Spec, WithAttributes
from penstock.store.calls import SampledBatch, WantedBatch
from penstock.store.graph import StoreGraph

_numbers = itertools.count()


def batches_of_store(graph: Graph, spec: Spec, here: Batches) -> Batches:
    """Return what makes the batches of a spec; `here` would sample hop by hop."""
    assert isinstance(graph, StoreGraph)
    hops: Any = getattr(spec, "neighbors", spec)
    # Weights and times are attributes: whoever has them draws.
    chosen = getattr(hops, "weight_attr", None) or getattr(hops, "time_attr", None)
    if not graph.has_whole_topology or chosen or kind_of(spec).users_code(spec) is not None:
        return here
    there = BufferedBatches(graph, _columns_from(spec), _Sampler(graph, spec, here))
    return _EitherWay(here, there)


class _EitherWay(Batches):
    """Batches that a server samples, but for those with tables of all nodes: these stay here."""

    def __init__(self, here: Batches, there: Batches) -> None:
        self._here = here
        self._there = there

    def make(self, request: Request, memory: BatchMemory, reached: Reached) -> dict[str, Any]:
        """Write a batch into `memory`; see `Batches`."""
        return (self._here if request.tables else self._there).make(request, memory, reached)

    def likely_bytes(self, inputs: int, of: Owner) -> int:
        """Return room in which nearly any batch fits."""
        return self._here.likely_bytes(inputs, of)

    def drop(self) -> None:
        """Forget what was kept of a batch that did not fit."""
        self._here.drop()
        self._there.drop()


def _columns_from(spec: Spec) -> WithAttributes:
    """Return the spec that names the attributes of a batch."""
    neighbors: Any = getattr(spec, "neighbors", spec)
    return neighbors  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The spec that a server is asked for, and whether edge ids are only for attributes."""

    spec: Spec
    drops_edge_ids: bool


class _Sampler:
    """Asks a server for the batch; a `BufferedSampler`."""

    def __init__(self, graph: StoreGraph, spec: Spec, here: Batches) -> None:
        self._graph = graph
        self._here = here
        self.own = _own(here)
        self._wanted = _bare(spec, with_edges=_has_edge_columns(here))
        # Samplers begin at different servers, and go round.
        self._turn = next(_numbers)

    own: Set[str]

    def cut(self, request: Request) -> Sampled:
        """Have a batch sampled, without attributes."""
        self._turn += 1
        found: SampledBatch = self._graph.ask(
            self._turn % self._graph.num_parts,
            "get_batch",
            spec=self._wanted.spec,
            batch=WantedBatch(
                seed=request.seed,
                epoch=request.epoch,
                index=request.index,
                seeds=request.seeds,
                positions=request.positions,
                node_type=request.node_type,
                edge_type=request.edge_type,
                columns=dict(request.columns),
                tables=dict(request.tables),
            ),
        ).result()
        arrays: dict[str, Array] = dict(found.arrays)
        self._graph.meter.add(
            bytes_out=request.seeds.nbytes + request.positions.nbytes,
            bytes_in=sum(array.nbytes for array in arrays.values()),
        )
        nodes: list[Ids | None] = [
            arrays.get(qualified(owner, "n_id")) for owner in self._graph.node_types
        ]
        edge_ids: list[Ids | None] = [
            arrays.get(qualified(kind, "e_id")) for kind in self._graph.edge_types
        ]
        if self._wanted.drops_edge_ids:
            for kind in self._graph.edge_types:
                arrays.pop(qualified(kind, "e_id"), None)
        return Sampled(arrays, nodes, edge_ids, found.facts)

    def likely_bytes(self, inputs: int, of: Owner) -> int:
        """Return room for nearly any batch: as if it were sampled here."""
        return self._here.likely_bytes(inputs, of)

    def likely_nodes(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return zeros: `likely_bytes` counts attributes already."""
        return [0] * len(self._graph.node_types)

    def likely_edges(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return zeros: `likely_bytes` counts attributes already."""
        return [0] * len(self._graph.edge_types)


def _own(here: Batches) -> Set[str]:
    if isinstance(here, NeighborBatches):
        trees = {"batch"} if here.shape.disjoint else set()
        return here.shape.seed_builder.own | trees
    assert isinstance(here, BufferedBatches)
    return here.own


def _has_edge_columns(here: Batches) -> bool:
    if isinstance(here, NeighborBatches):
        return bool(here.shape.edge_columns)
    assert isinstance(here, BufferedBatches)
    return bool(here.edge_columns)


def _bare(spec: Spec, *, with_edges: bool) -> _Wanted:
    """Return the spec without attributes, but with the edge ids that attributes need."""
    bare: Any = kind_of(spec).bare(spec)
    hops: SamplingSpec = getattr(bare, "neighbors", bare)
    if not with_edges or getattr(hops, "with_edge_ids", True):
        return _Wanted(bare, drops_edge_ids=False)
    hops = msgspec.structs.replace(hops, with_edge_ids=True)
    whole: Any = (
        msgspec.structs.replace(bare, neighbors=hops) if hasattr(bare, "neighbors") else hops
    )
    return _Wanted(whole, drops_edge_ids=isinstance(hops, HGTSpec | PPRSpec))
