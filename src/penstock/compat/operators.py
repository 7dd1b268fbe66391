"""The operators of `torch.ops.pyg` and `torch.ops.torch_sparse`, made of Penstock's kernels.

Arguments, their order, and results are as PyG passes and unpacks them. A call draws one number from
torch's default generator, and everything random in it derives from that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from penstock.compat.tensors import array_of, drawn_key, same_length, tensor_of
from penstock.compat.topology import Manner, TensorEdges, TensorTopology
from penstock.kernels import Sample
from penstock.kernels.arrays import Array, Ids

if TYPE_CHECKING:
    from torch import Tensor, dtype

EdgeType: TypeAlias = tuple[str, str, str]
Counts: TypeAlias = list[int]
HomogeneousSample: TypeAlias = "tuple[Tensor, Tensor, Tensor, Tensor | None, Counts, Counts]"
Tensors: TypeAlias = "dict[str, Tensor]"
HeterogeneousSample: TypeAlias = (
    "tuple[Tensors, Tensors, Tensors, Tensors | None, dict[str, Counts], dict[str, Counts]]"
)


def neighbor_sample(
    rowptr: Tensor,
    col: Tensor,
    seed: Tensor,
    num_neighbors: Sequence[int],
    node_time: Tensor | None = None,
    edge_time: Tensor | None = None,
    seed_time: Tensor | None = None,
    edge_weight: Tensor | None = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> HomogeneousSample:
    """Return rows, columns, nodes, edge ids, and how many nodes and edges each hop added.

    If disjoint, nodes are [n, 2]: the tree, then the node. With `directed=False` the edges are all
    those among the nodes, and belong to no hop.
    """
    fanouts = tuple(num_neighbors)
    edges = TensorEdges(rowptr, col, fanouts, 0, 0, ("", "", ""), edge_weight, node_time, edge_time)
    call = _Call(
        TensorTopology((edges,)),
        Manner(len(fanouts), replace, disjoint, _is_last(temporal_strategy)),
        _Chosen(node_time is not None, edge_time is not None, edge_weight is not None),
        directed,
        return_edge_id,
    )
    seeds = array_of(seed, "seed")
    times = None
    if call.chosen.by_time:
        times = [_seed_times(seeds, seed_time, node_time, "")]
    sample = call.sample([seeds], times)
    found = _Found(sample, csc, rowptr.dtype)
    rows, cols = found.ends(0)
    nodes, edge_ids = found.nodes(0), found.edge_ids(0)
    return rows, cols, nodes, edge_ids, sample.num_sampled_nodes[0], sample.num_sampled_edges[0]


def hetero_neighbor_sample(
    node_types: Sequence[str],
    edge_types: Sequence[EdgeType],
    rowptr_dict: Mapping[str, Tensor],
    col_dict: Mapping[str, Tensor],
    seed_dict: Mapping[str, Tensor],
    num_neighbors_dict: Mapping[str, Sequence[int]],
    node_time_dict: Mapping[str, Tensor] | None = None,
    edge_time_dict: Mapping[str, Tensor] | None = None,
    seed_time_dict: Mapping[str, Tensor] | None = None,
    edge_weight_dict: Mapping[str, Tensor] | None = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> HeterogeneousSample:
    """Sample by type: nodes under "type", edges under "source__relation__destination"."""
    numbers = {name: number for number, name in enumerate(node_types)}
    _check_known(seed_dict, numbers)
    by_edge_type = _ByEdgeType(
        rowptr_dict,
        col_dict,
        num_neighbors_dict,
        node_time_dict or {},
        edge_time_dict or {},
        edge_weight_dict or {},
    )
    edges = tuple(by_edge_type.edges(_triple(kind), numbers, csc) for kind in edge_types)
    hops = max((len(one.fanouts) for one in edges), default=0)
    call = _Call(
        TensorTopology(edges, len(numbers)),
        Manner(hops, replace, disjoint, _is_last(temporal_strategy)),
        _Chosen(
            node_time_dict is not None, edge_time_dict is not None, edge_weight_dict is not None
        ),
        directed,
        return_edge_id,
    )
    seeds = {name: array_of(tensor, f"seed of {name!r}") for name, tensor in seed_dict.items()}
    times = None
    if call.chosen.by_time:
        given, own = seed_time_dict or {}, node_time_dict or {}
        times = {
            name: _seed_times(ids, given.get(name), own.get(name), name)
            for name, ids in seeds.items()
        }
    sample = call.sample(
        _by_number(seeds, numbers), None if times is None else _by_number(times, numbers)
    )
    if sample.trees is not None:
        _number_trees(sample.trees, seeds, numbers)
    return _by_name(_Found(sample, csc, _dtype_of(rowptr_dict)), numbers, edges)


def sparse_neighbor_sample(
    colptr: Tensor,
    row: Tensor,
    seed: Tensor,
    num_neighbors: Sequence[int],
    replace: bool,
    directed: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Sample as torch_sparse does: return nodes, rows, columns and edge ids."""
    rows, cols, nodes, edge_ids, _, _ = neighbor_sample(
        colptr, row, seed, num_neighbors, csc=True, replace=replace, directed=directed
    )
    return nodes, rows, cols, edge_ids


def sparse_hetero_neighbor_sample(
    node_types: Sequence[str],
    edge_types: Sequence[EdgeType],
    colptr_dict: Mapping[str, Tensor],
    row_dict: Mapping[str, Tensor],
    seed_dict: Mapping[str, Tensor],
    num_neighbors_dict: Mapping[str, Sequence[int]],
    num_hops: int,
    replace: bool,
    directed: bool,
) -> tuple[Tensors, Tensors, Tensors, Tensors | None]:
    """Sample by type as torch_sparse does."""
    rows, cols, nodes, edge_ids, _, _ = hetero_neighbor_sample(
        node_types,
        edge_types,
        colptr_dict,
        row_dict,
        seed_dict,
        {name: list(fanouts)[:num_hops] for name, fanouts in num_neighbors_dict.items()},
        csc=True,
        replace=replace,
        directed=directed,
    )
    return nodes, rows, cols, edge_ids


# --- one call --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Chosen:
    """By what edges are chosen."""

    by_node_time: bool
    by_edge_time: bool
    by_weight: bool

    @property
    def by_time(self) -> bool:
        return self.by_node_time or self.by_edge_time


@dataclass(frozen=True, slots=True)
class _ByEdgeType:
    """The arguments by type; edge types by their joined names."""

    rowptr: Mapping[str, Tensor]
    col: Mapping[str, Tensor]
    num_neighbors: Mapping[str, Sequence[int]]
    node_time: Mapping[str, Tensor]
    edge_time: Mapping[str, Tensor]
    weight: Mapping[str, Tensor]

    def edges(self, kind: EdgeType, numbers: Mapping[str, int], csc: bool) -> TensorEdges:
        """Return one edge type; in a CSC, destinations are expanded."""
        name, (source, _, destination) = "__".join(kind), kind
        expanded, found = (destination, source) if csc else (source, destination)
        return TensorEdges(
            self.rowptr[name],
            self.col[name],
            tuple(self.num_neighbors[name]),
            numbers[expanded],
            numbers[found],
            kind,
            self.weight.get(name),
            self.node_time.get(found),
            self.edge_time.get(name),
        )


@dataclass(frozen=True, slots=True)
class _Call:
    """The checked arguments of one call."""

    topology: TensorTopology
    manner: Manner
    chosen: _Chosen
    directed: bool
    with_edge_ids: bool

    def __post_init__(self) -> None:
        """Refuse what pyg-lib refuses, in its words, which users search for."""
        chosen = self.chosen
        if chosen.by_node_time and chosen.by_edge_time:
            raise ValueError("Only one of node-level or edge-level sampling is supported")
        if chosen.by_time:
            level = "node" if chosen.by_node_time else "edge"
            if chosen.by_weight:
                raise ValueError(f"Biased {level} temporal sampling not yet supported")
            if not self.manner.disjoint:
                raise ValueError(
                    f"{level.capitalize()} temporal sampling needs to create disjoint subgraphs"
                )
        if self.manner.disjoint and not self.directed:
            raise ValueError(
                "'disjoint' sampling not supported for neighbor sampling with "
                "`subgraph_type='induced'`"
            )

    def sample(self, seeds: list[Array], times: list[Ids] | None) -> Sample:
        sample = self.topology.sampler(self.manner).sample(
            drawn_key(), seeds, with_edge_ids=self.with_edge_ids, times=times
        )
        return sample if self.directed else self._with_all_edges(sample)

    def _with_all_edges(self, sample: Sample) -> Sample:
        edges = self.topology.induced().cut(sample.nodes, with_edge_ids=self.with_edge_ids)
        return Sample(
            sample.nodes,
            [found.rows for found in edges],
            [found.cols for found in edges],
            [found.edge_ids for found in edges if found.edge_ids is not None] or None,
            sample.num_sampled_nodes,
            [[] for _ in edges],
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """A sample as tensors with the integer type of the arguments."""

    sample: Sample
    csc: bool
    kind: dtype

    def ends(self, number: int) -> tuple[Tensor, Tensor]:
        """Return sources and destinations of edges; in a CSC, the expanded nodes come second."""
        found, expanded = (
            tensor_of(places[number], self.kind) for places in (self.sample.rows, self.sample.cols)
        )
        return (found, expanded) if self.csc else (expanded, found)

    def nodes(self, number: int) -> Tensor:
        nodes = self.sample.nodes[number]
        if self.sample.trees is not None:
            nodes = np.stack([self.sample.trees[number], nodes], axis=1)
        return tensor_of(nodes, self.kind)

    def edge_ids(self, number: int) -> Tensor | None:
        ids = self.sample.edge_ids
        return None if ids is None else tensor_of(ids[number], self.kind)


def _by_name(
    found: _Found, numbers: Mapping[str, int], edges: Sequence[TensorEdges]
) -> HeterogeneousSample:
    names = ["__".join(one.name) for one in edges]
    ends = [found.ends(number) for number in range(len(names))]
    edge_ids = None
    if found.sample.edge_ids is not None:
        edge_ids = {
            name: tensor_of(ids, found.kind)
            for name, ids in zip(names, found.sample.edge_ids, strict=True)
        }
    return (
        {name: rows for name, (rows, _) in zip(names, ends, strict=True)},
        {name: cols for name, (_, cols) in zip(names, ends, strict=True)},
        {name: found.nodes(number) for name, number in numbers.items()},
        edge_ids,
        dict(zip(numbers, found.sample.num_sampled_nodes, strict=True)),
        dict(zip(names, found.sample.num_sampled_edges, strict=True)),
    )


def _number_trees(trees: list[Ids], seeds: Mapping[str, Array], numbers: Mapping[str, int]) -> None:
    """Renumber trees: the kernels count them by node type, PyG in the order of `seed_dict`."""
    begins, count = {}, 0
    for name, ids in seeds.items():
        begins[name], count = count, count + len(ids)
    told = [
        np.arange(begins[name], begins[name] + len(seeds[name]))
        for name in numbers
        if name in seeds
    ]
    by_tree = np.concatenate(told) if told else np.empty(0, np.int64)
    for of_type in trees:
        of_type[...] = by_tree[of_type]


def _by_number(given: Mapping[str, Array], numbers: Mapping[str, int]) -> list[Array]:
    nobody = np.empty(0, np.int64)
    return [given.get(name, nobody) for name in numbers]


def _seed_times(
    seeds: Array, given: Tensor | None, node_time: Tensor | None, node_type: str
) -> Ids:
    """Return the times of seeds: as given, or the nodes' own."""
    of = f" of {node_type!r}" if node_type else ""
    if given is not None:
        times = same_length(
            array_of(given, f"seed_time{of}"), len(seeds), f"seed_time{of}", "seeds"
        )
    elif node_time is not None:
        times = array_of(node_time, f"node_time{of}")
        outside = (seeds < 0) | (seeds >= len(times))
        if outside.any():
            raise ValueError(f"seed{of} is {seeds[outside][0]}; there are {len(times)} times")
        times = times[seeds]
    else:
        raise ValueError(f"Seed time needs to be specified{of and f' for seeds{of}'}")
    if times.dtype.kind != "i":
        raise ValueError(f"the times of seeds{of} are {times.dtype}; expected integers")
    return times.astype(np.int64, copy=False)


def _is_last(temporal_strategy: str) -> bool:
    if temporal_strategy not in ("uniform", "last"):
        raise ValueError(
            f"No valid temporal strategy found: it is {temporal_strategy!r}; "
            "expected 'uniform' or 'last'"
        )
    return temporal_strategy == "last"


def _check_known(names: Iterable[str], numbers: Mapping[str, int]) -> None:
    for name in names:
        if name not in numbers:
            raise ValueError(f"seeds name node type {name!r}; there are {list(numbers)}")


def _triple(kind: Sequence[str]) -> EdgeType:
    source, relation, destination = kind
    return source, relation, destination


def _dtype_of(rowptr_dict: Mapping[str, Tensor]) -> dtype:
    import torch

    return next((rowptr.dtype for rowptr in rowptr_dict.values()), torch.int64)
