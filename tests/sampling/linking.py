"""Batches of links for tests: requests, and batches in plain memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from penstock.graph import EdgeType, Graph
from penstock.graph.dtypes import storage_dtype
from penstock.kernels.arrays import Array
from penstock.sampling.collate import NeighborBatches
from penstock.sampling.links import LinkSeedBuilder
from penstock.sampling.request import Request
from penstock.sampling.seeds import Seeds
from penstock.sampling.spec import LinkSpec, NeighborSpec

EDGE: EdgeType = ("", "", "")


def spec_of(*fanouts: int, **options: Any) -> LinkSpec:
    """Options of links and, under their own names, of the neighbourhoods."""
    own = {name: options.pop(name) for name in ("negatives", "amount", "strict") if name in options}
    return LinkSpec(neighbors=NeighborSpec(num_neighbors=fanouts, **options), **own)


def request_of(
    edges: Any,
    kind: EdgeType = EDGE,
    *,
    index: int = 0,
    columns: Mapping[str, Array] | None = None,
    tables: Mapping[str, Array] | None = None,
) -> Request:
    """A batch of these edges [2, b]."""
    seeds = np.asarray(edges, np.int64).reshape(2, -1)
    return Request(
        seed=3,
        epoch=1,
        index=index,
        seeds=seeds,
        positions=np.arange(seeds.shape[1]) + 100,
        edge_type=kind,
        columns=columns or {},
        tables=tables or {},
    )


def started(graph: Graph, spec: LinkSpec, request: Request) -> Seeds:
    return LinkSeedBuilder(graph, spec).start(request)


@dataclass
class Pages:
    """Memory for one batch, an array at a time."""

    arrays: dict[str, Array] = field(default_factory=dict)

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
        assert name not in self.arrays
        self.arrays[name] = np.empty(shape, storage_dtype(dtype))
        return self.arrays[name]

    def reshape(self, name: str, shape: tuple[int, ...]) -> Array:
        self.arrays[name] = self.arrays[name].reshape(-1)[: prod(shape)].reshape(shape)
        return self.arrays[name]


def batch_of_links(
    graph: Graph, spec: LinkSpec, request: Request
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Facts and arrays of a whole batch."""
    batches = NeighborBatches(graph, spec.neighbors, LinkSeedBuilder(graph, spec))
    start, pages = batches.start(request), Pages()
    facts = batches.write(request, start, batches.sizes_for(2**30, start), pages)
    return facts, pages.arrays


def edge_set(graph: Graph, kind: EdgeType = EDGE) -> set[tuple[int, int]]:
    return set(map(tuple, graph.edge_index(kind).T.tolist()))
