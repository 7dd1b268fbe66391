"""k-hop neighbourhoods of a graph: from types and fan-outs to relations of the kernel.

A batch is a pure function of (graph, fan-outs and options, seed, epoch, index, seeds). This module
knows types, and nothing about features, processes or torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from penstock.errors import suggestion
from penstock.graph import EdgeType, Graph
from penstock.graph.features import FeatureSource
from penstock.kernels import Buffers, Exclusion, KHop, Relation, Sample, batch_key
from penstock.kernels.arrays import Array, Ids, check_fanout
from penstock.sampling.criteria import Criteria
from penstock.sampling.labels import label_edge_types
from penstock.sampling.spec import Direction

if TYPE_CHECKING:
    from penstock.sampling.parted import PartedKHop

Fanouts: TypeAlias = Sequence[int] | Mapping[EdgeType, Sequence[int]]
ByType: TypeAlias = Array | Mapping[str, Array]


class NeighborSampler:
    """Samples k hops along the in-edges (or out-edges) of a graph; for one thread at a time.

    Entry r of the result's edges belongs to `graph.edge_types[r]`. Types without the attribute of
    `weight_attr` or `time_attr` are drawn from uniformly, and not restricted.

    Args:
        graph: The graph.
        num_neighbors: One fan-out per hop (-1 all, 0 none), for all edge types that hold no
            labels; or a mapping with one list per type.
        replace: Whether a neighbour may be taken more than once.
        direction: Follow in-edges ("in") or out-edges ("out").
        node_caps: How many nodes of a type each hop may add, at most. Empty: no limit.
        disjoint: Every seed has its own tree, and trees share nothing.
        weight_attr: An edge attribute to draw by: an edge of weight 0 is never taken.
        time_attr: An attribute of nodes or of edges: nothing later than the seed is taken. Implies
            `disjoint`.
        temporal_strategy: Take any edge that is not too late ("uniform"), or the latest ("last").

    Raises:
        ValueError: An argument is not valid; the error names it.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> from penstock.sampling import NeighborSampler
        >>> batch = NeighborSampler(graph, [2]).sample(graph.split("train"), seed=0)
        >>> batch.nodes[0].tolist(), batch.rows[0].tolist(), batch.cols[0].tolist()
        ([0, 2, 1], [1, 2], [0, 1])
    """

    def __init__(
        self,
        graph: Graph,
        num_neighbors: Fanouts,
        *,
        replace: bool = False,
        direction: Direction = "in",
        node_caps: Sequence[int] = (),
        disjoint: bool = False,
        weight_attr: str | None = None,
        time_attr: str | None = None,
        temporal_strategy: str = "uniform",
    ) -> None:
        self._criteria = Criteria.of(graph, direction, weight_attr, time_attr, temporal_strategy)
        self.graph = graph
        self.direction = direction
        self.disjoint = disjoint or self._criteria.is_temporal
        self._times: dict[str, FeatureSource] = {}
        self._types = {name: number for number, name in enumerate(graph.node_types)}
        fanouts = fanouts_by_type(num_neighbors, graph.edge_types)
        hops = (
            num_neighbors
            if not isinstance(num_neighbors, Mapping)
            else next(iter(fanouts.values()), ())
        )
        self.num_hops = len(hops)
        self._khop = self._made_khop(fanouts, replace=replace, node_caps=node_caps)

    def _made_khop(
        self,
        fanouts: Mapping[EdgeType, tuple[int, ...]],
        *,
        replace: bool,
        node_caps: Sequence[int],
    ) -> KHop | PartedKHop:
        """Return the kernel, or what does the same for a graph whose rows are elsewhere."""
        graph, exchange = self.graph, self.graph.open_exchange()
        num_nodes = [graph.num_nodes(name) for name in graph.node_types]
        if exchange is None:
            return KHop(
                num_nodes,
                [self._relation(name, fanouts[name]) for name in graph.edge_types],
                num_hops=self.num_hops,
                replace=replace,
                node_caps=node_caps,
                disjoint=self.disjoint,
                last=self._criteria.last,
            )
        from penstock.sampling.parted import PartedKHop, PartedRelation

        return PartedKHop(
            exchange,
            num_nodes,
            [PartedRelation(name, fanouts[name], *self._ends(name)) for name in graph.edge_types],
            num_hops=self.num_hops,
            replace=replace,
            node_caps=node_caps,
            disjoint=self.disjoint,
            criteria=self._criteria,
        )

    def sample(
        self,
        seeds: ByType,
        *,
        seed: int = 0,
        epoch: int = 0,
        index: int = 0,
        out: Buffers | None = None,
        with_edge_ids: bool = True,
        times: ByType | None = None,
    ) -> Sample:
        """Sample batch `index` of an epoch.

        Args:
            seeds: The seeds; for a heterogeneous graph by node type.
            seed: All that is random follows from this number.
            epoch: The epoch.
            index: The batch's position in the epoch's list.
            out: Memory for the result. None: new memory.
            with_edge_ids: Whether the result has the ids of edges.
            times: The seeds' times, in the same form. If None, nodes' own times are used.
        """
        return self.sample_by_type(
            self._by_type(seeds, "seeds"),
            seed=seed,
            epoch=epoch,
            index=index,
            out=out,
            with_edge_ids=with_edge_ids,
            times=None if times is None else self._by_type(times, "times"),
        )

    def sample_by_type(
        self,
        seeds: Sequence[Array],
        *,
        seed: int = 0,
        epoch: int = 0,
        index: int = 0,
        out: Buffers | None = None,
        with_edge_ids: bool = True,
        times: Sequence[Array] | None = None,
        excluded: Sequence[Exclusion] = (),
    ) -> Sample:
        """Sample as `sample` does, for seeds by number of their node type.

        `excluded` edges, by number of their type, are not sampled.
        """
        key = batch_key(seed, epoch, index)
        if self._criteria.is_temporal:
            times = self._own_times(seeds) if times is None else times
        elif times is not None:
            raise ValueError(
                "Received conflicting 'times' and 'time_attr' arguments: 'times' is set while "
                "'time_attr' is not set."
            )
        return self._khop.sample(
            key, seeds, out, with_edge_ids=with_edge_ids, times=times, excluded=excluded
        )

    def _own_times(self, seeds: Sequence[Array]) -> list[Array]:
        checked = [self._khop.check_seeds(ids, type_) for type_, ids in enumerate(seeds)]
        return [self._times_of(name, ids) for name, ids in zip(self._types, checked, strict=True)]

    def _times_of(self, node_type: str, nodes: Ids) -> Ids:
        if len(nodes) == 0:
            return nodes
        if node_type not in self._times:
            self._times[node_type] = self._criteria.own_times(self.graph, node_type)
        return self._times[node_type].gather(nodes).astype(np.int64, copy=False)

    def _by_type(self, given: ByType, argument: str) -> list[Array]:
        if not isinstance(given, Mapping):
            if self.graph.is_hetero:
                raise ValueError(
                    f"{argument} of a heterogeneous graph must be a mapping by node type"
                )
            return [np.asarray(given)]
        for name in given:
            if name not in self._types:
                raise ValueError(
                    f"{argument} name node type {name!r}; there are {list(self._types)}"
                )
        nobody = np.empty(0, np.int64)
        return [np.asarray(given.get(name, nobody)) for name in self._types]

    def _relation(self, name: EdgeType, fanouts: tuple[int, ...]) -> Relation:
        rows, weights, times = self._criteria.rows(self.graph, name)
        return Relation(rows, fanouts, *self._ends(name), name, weights, times)

    def _ends(self, name: EdgeType) -> tuple[int, int]:
        """Return the numbers of the node types that are expanded and found."""
        expands, finds = (name[2], name[0]) if self.direction == "in" else (name[0], name[2])
        return self._types[expands], self._types[finds]


def fanouts_by_type(
    num_neighbors: Fanouts, edge_types: Sequence[EdgeType]
) -> dict[EdgeType, tuple[int, ...]]:
    """Return one tuple of fan-outs per edge type, all of the same length.

    Label types that are not named have fan-outs of 0: they are not walked unless asked for.
    """
    labels = label_edge_types(edge_types)
    if not isinstance(num_neighbors, Mapping):
        fanouts = _checked(num_neighbors, "num_neighbors")
        return dict.fromkeys(edge_types, fanouts) | dict.fromkeys(labels, (0,) * len(fanouts))
    unknown = [name for name in num_neighbors if name not in edge_types]
    if unknown:
        raise ValueError(
            f"num_neighbors (by_type) names edge type {unknown[0]!r}, which the graph has not; it "
            f"has: {', '.join(map(repr, edge_types))}{suggestion(unknown[0], edge_types)}"
        )
    missing = [name for name in edge_types if name not in num_neighbors and name not in labels]
    if missing:
        raise ValueError(
            f"Not all edge types specified: num_neighbors (by_type) lacks {missing[0]!r}"
        )
    if len({len(fanouts) for fanouts in num_neighbors.values()}) > 1:
        raise ValueError("Number of hops must be the same across all edge types")
    given = {
        name: _checked(fanouts, f"num_neighbors[{name!r}]")
        for name, fanouts in num_neighbors.items()
    }
    idle = (0,) * max(map(len, given.values()), default=0)
    return {name: given.get(name, idle) for name in edge_types}


def _checked(fanouts: Any, name: str) -> tuple[int, ...]:
    if not isinstance(fanouts, (Sequence, np.ndarray)):
        raise ValueError(
            f"{name} is {fanouts!r}; expected one fan-out per hop, such as [15, 10, 5]"
        )
    return tuple(check_fanout(value, f"{name}[{hop}]") for hop, value in enumerate(fanouts))
