"""k-hop neighbourhoods of a graph: from types and fan-outs to relations of the kernel.

A batch is a pure function of (graph, fan-outs and options, seed, epoch, index, seeds). This module
knows types; it knows nothing of features, processes or torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from penstock.graph import EdgeType, Graph
from penstock.kernels import Adjacency, Buffers, KHop, Relation, Sample, batch_key
from penstock.kernels.arrays import Array, check_fanout

Direction: TypeAlias = Literal["in", "out"]
Fanouts: TypeAlias = Sequence[int] | Mapping[EdgeType, Sequence[int]]


class NeighborSampler:
    """Samples k hops along the in-edges (or out-edges) of a graph; one thread at a time.

    `num_neighbors` has one fan-out per hop (-1 all, 0 none), the same for all edge types or, as a
    mapping, one list per type. Row r of the result's edges belongs to `graph.edge_types[r]`.
    """

    def __init__(
        self,
        graph: Graph,
        num_neighbors: Fanouts,
        *,
        replace: bool = False,
        direction: Direction = "in",
        node_caps: Sequence[int] = (),
    ) -> None:
        if direction not in ("in", "out"):
            raise ValueError(f"direction is {direction!r}; expected 'in' or 'out'")
        self.graph = graph
        self.direction = direction
        self._types = {name: number for number, name in enumerate(graph.node_types)}
        fanouts = fanouts_by_type(num_neighbors, graph.edge_types)
        hops = (
            num_neighbors
            if not isinstance(num_neighbors, Mapping)
            else next(iter(fanouts.values()), ())
        )
        self.num_hops = len(hops)
        self._khop = KHop(
            [graph.num_nodes(name) for name in graph.node_types],
            [self._relation(name, fanouts[name]) for name in graph.edge_types],
            num_hops=self.num_hops,
            replace=replace,
            node_caps=node_caps,
        )

    def sample(
        self,
        seeds: Array | Mapping[str, Array],
        *,
        seed: int = 0,
        epoch: int = 0,
        index: int = 0,
        out: Buffers | None = None,
        with_edge_ids: bool = True,
    ) -> Sample:
        """Batch `index` of an epoch, with these seeds (heterogeneous: by node type)."""
        by_type = self._seeds_by_type(seeds)
        key = batch_key(seed, epoch, index)
        return self._khop.sample(key, by_type, out, with_edge_ids=with_edge_ids)

    def _seeds_by_type(self, seeds: Array | Mapping[str, Array]) -> list[Array]:
        if not isinstance(seeds, Mapping):
            if self.graph.is_hetero:
                raise ValueError("seeds of a heterogeneous graph must be a mapping by node type")
            return [np.asarray(seeds)]
        for name in seeds:
            if name not in self._types:
                raise ValueError(f"seeds name node type {name!r}; there are {list(self._types)}")
        nobody = np.empty(0, np.int64)
        return [np.asarray(seeds.get(name, nobody)) for name in self._types]

    def _relation(self, name: EdgeType, fanouts: tuple[int, ...]) -> Relation:
        source, _, destination = name
        if self.direction == "in":
            topology, expands, finds = self.graph.csc(name), destination, source
        else:
            topology, expands, finds = self.graph.csr(name), source, destination
        adjacency = Adjacency(topology.indptr, topology.adjacency)
        return Relation(adjacency, fanouts, self._types[expands], self._types[finds], name)


def fanouts_by_type(
    num_neighbors: Fanouts, edge_types: Sequence[EdgeType]
) -> dict[EdgeType, tuple[int, ...]]:
    """One tuple of fan-outs per edge type, all of one length."""
    if not isinstance(num_neighbors, Mapping):
        return dict.fromkeys(edge_types, _checked(num_neighbors, "num_neighbors"))
    unknown = [name for name in num_neighbors if name not in edge_types]
    if unknown:
        raise ValueError(f"num_neighbors names edge type {unknown[0]!r}, which the graph has not")
    missing = [name for name in edge_types if name not in num_neighbors]
    if missing:
        raise ValueError(f"Not all edge types specified: num_neighbors lacks {missing[0]!r}")
    if len({len(fanouts) for fanouts in num_neighbors.values()}) > 1:
        raise ValueError("Number of hops must be the same across all edge types")
    return {name: _checked(num_neighbors[name], f"num_neighbors[{name!r}]") for name in edge_types}


def _checked(fanouts: Any, name: str) -> tuple[int, ...]:
    if not isinstance(fanouts, (Sequence, np.ndarray)):
        raise ValueError(
            f"{name} is {fanouts!r}; expected one fan-out per hop, such as [15, 10, 5]"
        )
    return tuple(check_fanout(value, f"{name}[{hop}]") for hop, value in enumerate(fanouts))
