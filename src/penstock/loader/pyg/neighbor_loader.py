"""`NeighborLoader`: neighbourhoods of nodes, with PyG's arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Unpack

import torch
from torch_geometric.loader.utils import infer_filter_per_worker
from torch_geometric.sampler import NodeSamplerInput
from torch_geometric.sampler.base import NumNeighbors, SubgraphType

from penstock.loader.pyg.base import Loader
from penstock.loader.pyg.help import shows_options
from penstock.loader.pyg.options import flag, options_of
from penstock.loader.pyg.specs import neighbor_spec
from penstock.loader.pyg.typed import (
    Batches,
    Column,
    DataT,
    FanOuts,
    InputNodes,
    MadeT,
    PyGNeighborLoader,
    Transform,
)
from penstock.loader.source.inputs import NodeInputs, node_inputs
from penstock.loader.source.sources import DataSource, source_of
from penstock.option_types import LoaderKeywords
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


@shows_options
class NeighborLoader(Batches[DataT, MadeT], Loader, PyGNeighborLoader):  # type: ignore[misc]
    """Sample neighbourhoods of nodes: PyG's loader of that name, with a pool of workers.

    Batches are `Data` or `HeteroData`, as `data` is.

    Beside these arguments it takes the options of every loader, such as `batch_size`, `num_workers`
    and `seed` (`penstock.option_types.LoaderKeywords`, docs/options.md).

    Args:
        data: What to sample: `Data`, `HeteroData`, `(FeatureStore, GraphStore)`, a `Graph`, a hub
            or a server (what `penstock.connect` returns), its address, or a saved graph's path.
        num_neighbors: How many neighbours to sample in each hop (-1: all), as a list; or such a
            list for each edge type, as a dict. Types of labels (`…_positive`, `…_negative`) are
            walked only if they are in that dict.
        input_nodes: The nodes to start from: numbers, a mask, or the name of a split; or ids that
            the graph was made with (`node_ids`): a list of strings, or `penstock.ids`. With a node
            type before it, as a tuple, if the graph has types. None: all nodes.
        input_time: The time of each input, if it is not that of its node. Dates are nanoseconds
            since 1970, as in `Graph.from_coo`.
        replace: Whether a neighbour may be taken more than once.
        subgraph_type: "directional": the sampled edges. "bidirectional": and their reverse.
            "induced": all edges among the sampled nodes.
        disjoint: Whether each input has a tree of its own, which shares no node with the others.
        temporal_strategy: With `time_attr`, take any edge that is not too late ("uniform"), or the
            latest ("last").
        time_attr: An attribute of nodes or edges with times: nothing later than the input is taken.
        weight_attr: An attribute of edges to draw by; an edge of weight 0 is never taken.
        transform: Called with each batch in this process; what it returns is given instead.
        transform_sampler_output: Called with PyG's `SamplerOutput` of each batch, before rows of
            attributes are joined to it.
        is_sorted: No effect: edges are sorted in any case. PyG's.
        filter_per_worker: What `collate_fn` gives: a batch (True), or what a sampler gives (False).
            None: as PyG decides.
        neighbor_sampler: The `node_sampler` of another loader, to sample in the same way.
        directed: PyG's old word: False means `subgraph_type="induced"`.
        custom_cls: Called without arguments to make a batch, where `data` is no `Data` and no
            `HeteroData`.
        input_id: A number for each input, which comes with its batch; by default its position.
        edge_dir: Follow in-edges ("in") or out-edges ("out"). None: in-edges, or those that a part
            of a graph was cut by. Batches have every edge as it is in the graph, sources above.

    Raises:
        ValueError: An argument is not valid; the error names it, the position and the value.
        TypeError: There is no such option.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> import penstock as ps
        >>> edges = torch.arange(100).repeat(2, 1)
        >>> data = Data(x=torch.rand(100, 8), edge_index=edges)
        >>> with ps.NeighborLoader(data, [10, 5], batch_size=32, seed=0) as loader:
        ...     sizes = [batch.batch_size for batch in loader]
        >>> sizes
        [32, 32, 32, 4]
    """

    def __init__(
        self,
        data: DataT,
        num_neighbors: FanOuts,
        input_nodes: InputNodes = None,
        input_time: Column = None,
        replace: bool = False,
        subgraph_type: str | SubgraphType = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Transform[MadeT] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: SharedSampler | None = None,
        directed: bool = True,
        custom_cls: Callable[[], Any] | None = None,
        input_id: Column = None,
        edge_dir: Literal["in", "out"] | None = None,
        **options: Unpack[LoaderKeywords],
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
        self.edge_dir = edge_dir
        flag("is_sorted", is_sorted)
        if filter_per_worker is None:
            filter_per_worker = infer_filter_per_worker(data)
        self.filter_per_worker = flag("filter_per_worker", filter_per_worker)
        source = source_of(
            data,
            custom_cls,
            time_attr=time_attr,
            part_only=options.get("part_only", False),
        )
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
            edge_dir=edge_dir,
            asked_by=type(self).__name__,
        )
        self.node_sampler = neighbor_sampler or SharedSampler.of(spec, num_neighbors)
        inputs = node_inputs(source, input_nodes, input_time, input_id, time_attr=time_attr)
        settled = options_of({**options}, type(self).__name__, source.hub)
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
