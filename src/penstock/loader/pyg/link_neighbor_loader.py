"""`LinkNeighborLoader`: links with the neighbourhoods of their ends, with PyG's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Unpack

import torch
from torch_geometric.loader.utils import infer_filter_per_worker
from torch_geometric.sampler import EdgeSamplerInput
from torch_geometric.sampler.base import SubgraphType

from penstock.graph.schema import EDGE
from penstock.loader.pyg.base import Loader
from penstock.loader.pyg.help import shows_options
from penstock.loader.pyg.neighbor_loader import SharedSampler, spec_by
from penstock.loader.pyg.options import flag, options_of
from penstock.loader.pyg.specs import link_spec, negatives_of
from penstock.loader.pyg.typed import (
    Batches,
    Column,
    DataT,
    FanOuts,
    InputEdges,
    MadeT,
    PyGLinkNeighborLoader,
    Transform,
)
from penstock.loader.source.inputs import (
    LinkInputs,
    link_inputs,
    names_a_split,
    warn_of_own_times,
)
from penstock.loader.source.sources import source_of
from penstock.option_types import LoaderKeywords
from penstock.sampling.exclusion import check_exclude


@shows_options
class LinkNeighborLoader(Batches[DataT, MadeT], Loader, PyGLinkNeighborLoader):  # type: ignore[misc]
    """Sample links and the neighbourhoods of their ends: PyG's loader of that name, by a pool.

    Batches are `Data` or `HeteroData`, as `data` is, with `edge_label_index` and `edge_label`, or
    with `src_index`, `dst_pos_index` and `dst_neg_index` for triplets.

    Beside these arguments it takes the options of every loader, such as `batch_size`, `num_workers`
    and `seed` (`penstock.option_types.LoaderKeywords`, docs/options.md).

    Args:
        data: What to sample: `Data`, `HeteroData`, `(FeatureStore, GraphStore)`, a `Graph`, a hub
            or a server (what `penstock.connect` returns), its address, or a saved graph's path.
        num_neighbors: How many neighbours to sample in each hop (-1: all), as a list; or such a
            list for each edge type, as a dict. Types of labels (`…_positive`, `…_negative`) are
            walked only if they are in that dict.
        edge_label_index: The links to start from: their ends [2, links], as `input_nodes` of
            `NeighborLoader` in either row; with an edge type before it, as a tuple, if the graph
            has types. None: all edges. Or the name of a split of links that the graph has ("train",
            "val", "test"), as `penstock.build` makes them.
        edge_label: The label of each link.
        edge_label_time: The time of each link; needs `time_attr`. Dates are nanoseconds since 1970,
            as in `Graph.from_coo`. Links of a split have their own.
        replace: Whether a neighbour may be taken more than once.
        subgraph_type: "directional": the sampled edges. "bidirectional": and their reverse.
            "induced": all edges among the sampled nodes.
        disjoint: Whether each input has a tree of its own, which shares no node with the others.
        temporal_strategy: With `time_attr`, take any edge that is not too late ("uniform"), or the
            latest ("last").
        neg_sampling: Pairs that are no links, as PyG's `NegativeSampling`, or what it is made of:
            "binary" or "triplet", a ratio, a dict.
        neg_sampling_ratio: PyG's old word for a binary `neg_sampling` of that ratio.
        time_attr: An attribute of nodes or edges with times: nothing later than the input is taken.
        weight_attr: An attribute of edges to draw by; an edge of weight 0 is never taken.
        transform: Called with each batch in this process; what it returns is given instead.
        transform_sampler_output: Called with PyG's `SamplerOutput` of each batch, before rows of
            attributes are joined to it.
        is_sorted: No effect: edges are sorted in any case. PyG's.
        filter_per_worker: What `collate_fn` gives: a batch (True), or what a sampler gives (False).
            None: as PyG decides.
        neighbor_sampler: The `link_sampler` of another loader, to sample in the same way.
        directed: PyG's old word: False means `subgraph_type="induced"`.
        custom_cls: Called without arguments to make a batch, where `data` is no `Data` and no
            `HeteroData`.
        input_id: A number for each input, which comes with its batch; by default its position.
        strict: Whether negatives are checked against the whole graph, so that none is an edge.
        exclude: Which edges are not sampled, because they are to be predicted: all between the ends
            of a batch's links ("self"), and their reverses as well ("reverse"); of disjoint trees,
            those of the tree's own link. None: as in PyG, which samples them.
        rev_edge_types: The edge type with the reverses, for `exclude="reverse"` in a graph with
            types. None: the one that PyG's `ToUndirected` makes, named "rev_…".
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
        >>> loader = ps.LinkNeighborLoader(
        ...     data, [5], neg_sampling="binary", batch_size=50, shuffle=True, seed=0
        ... )
        >>> with loader:
        ...     batch = next(iter(loader))
        >>> batch.edge_label.tolist() == [1.0] * 50 + [0.0] * 50
        True
    """

    def __init__(
        self,
        data: DataT,
        num_neighbors: FanOuts,
        edge_label_index: InputEdges = None,
        edge_label: Column = None,
        edge_label_time: Column = None,
        replace: bool = False,
        subgraph_type: str | SubgraphType = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
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
        strict: bool = False,
        exclude: Literal["self", "reverse"] | None = None,
        rev_edge_types: Any = None,
        edge_dir: Literal["in", "out"] | None = None,
        **options: Unpack[LoaderKeywords],
    ) -> None:
        are_named = names_a_split(edge_label_index)  # which may have times
        if (edge_label_time is not None) != (time_attr is not None) and not are_named:
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
            edge_dir=edge_dir,
            asked_by=type(self).__name__,
        )
        self.link_sampler = neighbor_sampler or SharedSampler.of(neighbors, num_neighbors)
        wanted = {"neg_sampling": neg_sampling, "neg_sampling_ratio": neg_sampling_ratio}
        self.strict, self.exclude, self.rev_edge_types = strict, exclude, rev_edge_types
        spec = link_spec(
            source,
            neighbors,
            **wanted,
            strict=strict,
            exclude=exclude,
            rev_edge_types=rev_edge_types,
        )
        inputs = link_inputs(
            source,
            edge_label_index,
            edge_label,
            edge_label_time,
            input_id,
            time_attr=time_attr,
            **wanted,
        )
        kind = inputs.edge_type or EDGE
        check_exclude(source.graph, spec.exclude, [kind], spec.rev_edge_types)
        if spec.exclude is None:
            warn_of_own_times(inputs, time_attr)
        settled = options_of({**options}, type(self).__name__, source.hub)
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
