"""`NeighborLoader`: neighbourhoods of nodes, with PyG's arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch_geometric.loader
from torch_geometric.loader.utils import infer_filter_per_worker
from torch_geometric.sampler import NodeSamplerInput
from torch_geometric.sampler.base import NumNeighbors

from penstock.loader.pyg.base import Loader
from penstock.loader.pyg.options import options_of
from penstock.loader.pyg.specs import neighbor_spec
from penstock.loader.source.inputs import NodeInputs, node_inputs
from penstock.loader.source.sources import DataSource, source_of
from penstock.sampling.spec import NeighborSpec


@dataclass(frozen=True, eq=False)
class SharedSampler:
    """Says how a loader samples, where PyG's loaders have their sampler.

    This object does not sample. Another loader can be given it, to sample in the same way.
    """

    spec: NeighborSpec
    num_neighbors: Any
    disjoint: bool
    edge_permutation: None = None  # edge ids are those that were given

    @classmethod
    def of(cls, spec: NeighborSpec, num_neighbors: Any) -> SharedSampler:
        if not isinstance(num_neighbors, NumNeighbors):
            num_neighbors = NumNeighbors(num_neighbors)
        return cls(spec, num_neighbors, spec.disjoint or spec.time_attr is not None)


def spec_by(sampler: Any, source: DataSource, num_neighbors: Any, **options: Any) -> NeighborSpec:
    """Return the spec of a given sampler, or else of the arguments."""
    if sampler is None:
        return neighbor_spec(source, num_neighbors, **options)
    if isinstance(sampler, SharedSampler):
        return sampler.spec
    raise ValueError(
        f"neighbor_sampler is a {type(sampler).__name__}, which samples with PyG's own code: "
        "leave it out, and give num_neighbors and the other arguments here; or take the "
        "node_sampler (link_sampler) of another of Penstock's loaders"
    )


class NeighborLoader(Loader, torch_geometric.loader.NeighborLoader):  # type: ignore[misc]
    """Sample neighbourhoods of nodes: PyG's loader of that name, with a pool of workers.

    Batches are `Data` or `HeteroData`. The arguments up to `directed` mean what they mean in PyG.

    Args:
        data: `Data`, `HeteroData`, `(FeatureStore, GraphStore)`, a `Graph`, a hub or a server (what
            `penstock.connect` returns), or the address of one.
        options: torch's options and ours, see `penstock.loader.pyg.options.LoaderOptions`.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        custom_cls: Any = None,
        input_id: Any = None,
        **options: Any,
    ) -> None:
        if input_time is not None and time_attr is None:
            raise ValueError(
                "Received conflicting 'input_time' and 'time_attr' arguments: 'input_time' is set "
                "while 'time_attr' is not set."
            )
        self.data, self.num_neighbors, self.input_nodes = data, num_neighbors, input_nodes
        self.input_time, self.replace, self.subgraph_type = input_time, replace, subgraph_type
        self.disjoint, self.temporal_strategy = disjoint, temporal_strategy
        self.time_attr, self.weight_attr = time_attr, weight_attr
        self.transform, self.transform_sampler_output = transform, transform_sampler_output
        self.is_sorted, self.neighbor_sampler = is_sorted, neighbor_sampler
        self.directed, self.custom_cls, self.input_id = directed, custom_cls, input_id
        if filter_per_worker is None:
            filter_per_worker = infer_filter_per_worker(data)
        self.filter_per_worker = filter_per_worker
        source = source_of(data, custom_cls, time_attr=time_attr)
        spec = spec_by(
            neighbor_sampler,
            source,
            num_neighbors,
            replace=replace,
            subgraph_type=subgraph_type,
            disjoint=disjoint,
            temporal_strategy=temporal_strategy,
            time_attr=time_attr,
            weight_attr=weight_attr,
            directed=directed,
            asked_by=type(self).__name__,
        )
        self.node_sampler = SharedSampler.of(spec, num_neighbors)
        inputs = node_inputs(source, input_nodes, input_time, input_id, time_attr=time_attr)
        settled = options_of(options, type(self).__name__, source.hub)
        Loader.__init__(self, source, spec, inputs, settled)

    @property
    def input_data(self) -> NodeSamplerInput:
        """Return the inputs as PyG represents them."""
        inputs = self._inputs
        assert isinstance(inputs, NodeInputs)
        return NodeSamplerInput(
            input_id=inputs.input_id,
            node=torch.from_numpy(inputs.all_ids()),
            time=None if inputs.time is None else torch.from_numpy(inputs.time),
            input_type=inputs.node_type,
        )
