"""`LinkNeighborLoader`: links with the neighbourhoods of their ends, with PyG's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.loader
from torch_geometric.loader.utils import infer_filter_per_worker
from torch_geometric.sampler import EdgeSamplerInput

from penstock.loader.pyg.base import Loader
from penstock.loader.pyg.neighbor_loader import SharedSampler, spec_by
from penstock.loader.pyg.options import options_of
from penstock.loader.pyg.specs import link_spec, negatives_of
from penstock.loader.source.inputs import LinkInputs, link_inputs
from penstock.loader.source.sources import source_of


class LinkNeighborLoader(Loader, torch_geometric.loader.LinkNeighborLoader):  # type: ignore[misc]
    """Sample links and the neighbourhoods of their ends: PyG's loader of that name, by a pool.

    `data` and `options` are as for `NeighborLoader`. The arguments up to `directed` mean what they
    mean in PyG. Batches are `Data` or `HeteroData`.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Any = None,
        edge_label_time: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
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
        if (edge_label_time is not None) != (time_attr is not None):
            is_set = {True: "set", False: "not set"}
            raise ValueError(
                "Received conflicting 'edge_label_time' and 'time_attr' arguments: "
                f"'edge_label_time' is {is_set[edge_label_time is not None]} while 'time_attr' is "
                f"{is_set[time_attr is not None]}. Both arguments must be provided for temporal "
                "sampling."
            )
        self.data, self.num_neighbors = data, num_neighbors
        self.edge_label_index, self.edge_label = edge_label_index, edge_label
        self.edge_label_time, self.replace = edge_label_time, replace
        self.subgraph_type, self.disjoint = subgraph_type, disjoint
        self.temporal_strategy = temporal_strategy
        self.neg_sampling = negatives_of(neg_sampling, neg_sampling_ratio)
        self.neg_sampling_ratio = neg_sampling_ratio
        self.time_attr, self.weight_attr = time_attr, weight_attr
        self.transform, self.transform_sampler_output = transform, transform_sampler_output
        self.is_sorted, self.neighbor_sampler = is_sorted, neighbor_sampler
        self.directed, self.custom_cls, self.input_id = directed, custom_cls, input_id
        if filter_per_worker is None:
            filter_per_worker = infer_filter_per_worker(data)
        self.filter_per_worker = filter_per_worker
        source = source_of(data, custom_cls, time_attr=time_attr)
        neighbors = spec_by(
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
        self.link_sampler = SharedSampler.of(neighbors, num_neighbors)
        wanted = {"neg_sampling": neg_sampling, "neg_sampling_ratio": neg_sampling_ratio}
        spec = link_spec(source, neighbors, **wanted)
        inputs = link_inputs(
            source,
            edge_label_index,
            edge_label,
            edge_label_time,
            input_id,
            time_attr=time_attr,
            **wanted,
        )
        settled = options_of(options, type(self).__name__, source.hub)
        Loader.__init__(self, source, spec, inputs, settled)

    @property
    def input_data(self) -> EdgeSamplerInput:
        """Return the inputs as PyG represents them."""
        inputs = self._inputs
        assert isinstance(inputs, LinkInputs)
        ends = self._source.graph.coo(inputs.edge_type) if inputs.ends is None else inputs.ends
        row, col = torch.as_tensor(ends, dtype=torch.long)
        return EdgeSamplerInput(
            input_id=inputs.input_id,
            row=row,
            col=col,
            label=None if inputs.label is None else torch.as_tensor(inputs.label),
            time=None if inputs.time is None else torch.from_numpy(inputs.time),
            input_type=inputs.edge_type,
        )
