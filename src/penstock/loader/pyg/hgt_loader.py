"""`HGTLoader`: layers with a budget for each node type, with PyG's arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch_geometric.loader
from torch_geometric.loader.utils import infer_filter_per_worker

from penstock.graph.view import GraphView
from penstock.loader.pyg.base import Loader
from penstock.loader.pyg.neighbor_loader import NeighborLoader
from penstock.loader.pyg.options import options_of
from penstock.loader.source.inputs import node_inputs
from penstock.loader.source.sources import source_of
from penstock.sampling.kinds import check
from penstock.sampling.spec import HGTSpec


@dataclass(frozen=True, eq=False)
class LayerSampler:
    """Says how a loader samples, where PyG's loader has its sampler. It does not sample itself."""

    spec: HGTSpec
    num_samples: Any
    edge_permutation: None = None  # edge ids are those that were given


class HGTLoader(Loader, torch_geometric.loader.HGTLoader):  # type: ignore[misc]
    """Sample a fixed number of nodes of each type per layer: PyG's loader of that name, by a pool.

    `data` and `options` are as for `NeighborLoader`, so `data` may be more than a `HeteroData`. The
    arguments up to `filter_per_worker` mean what they mean in PyG. Batches are `HeteroData`, or
    `Data` for a homogeneous graph.
    """

    def __init__(
        self,
        data: Any,
        num_samples: Any,
        input_nodes: Any,
        is_sorted: bool = False,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        filter_per_worker: bool | None = None,
        custom_cls: Any = None,
        input_id: Any = None,
        **options: Any,
    ) -> None:
        self.data, self.num_samples, self.input_nodes = data, num_samples, input_nodes
        self.is_sorted, self.custom_cls, self.input_id = is_sorted, custom_cls, input_id
        self.transform, self.transform_sampler_output = transform, transform_sampler_output
        if filter_per_worker is None:
            filter_per_worker = infer_filter_per_worker(data)
        self.filter_per_worker = filter_per_worker
        source = source_of(data, custom_cls)
        spec = _spec(source.graph, num_samples)
        self.node_sampler = LayerSampler(spec, num_samples)
        inputs = node_inputs(source, input_nodes, input_id=input_id)
        settled = options_of(options, type(self).__name__, source.hub)
        Loader.__init__(self, source, spec, inputs, settled)

    input_data = NeighborLoader.input_data


def _spec(graph: GraphView, num_samples: Any) -> HGTSpec:
    if isinstance(num_samples, Mapping):
        spec = HGTSpec(by_type=_by_type(graph, num_samples))
    else:
        spec = HGTSpec(num_samples=_layers("num_samples", num_samples))
    check(spec, graph)
    return spec


def _by_type(graph: GraphView, given: Mapping[Any, Any]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if not graph.is_hetero:
        raise ValueError(
            "num_samples has a list for each node type, but this graph has only one: give a list"
        )
    for name in given:
        if name not in graph.node_types:
            raise ValueError(f"num_samples names node type {name!r}, which the graph has not")
    for name in graph.node_types:
        if name not in given:
            raise ValueError(f"Not all node types specified: num_samples lacks {name!r}")
    return tuple((name, _layers(f"num_samples[{name!r}]", given[name])) for name in given)


def _layers(name: str, given: Any) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, given))
    except TypeError:
        raise ValueError(f"{name} is {given!r}; expected an integer for each layer") from None
