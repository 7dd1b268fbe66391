"""`HGTLoader`: layers with a budget for each node type, with PyG's arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from torch_geometric.loader.utils import infer_filter_per_worker

from penstock.errors import suggestion
from penstock.graph.view import GraphView
from penstock.loader.pyg.base import Loader
from penstock.loader.pyg.help import shows_options
from penstock.loader.pyg.neighbor_loader import NeighborLoader
from penstock.loader.pyg.options import flag, options_of
from penstock.loader.pyg.specs import direction
from penstock.loader.pyg.typed import (
    Batches,
    Column,
    DataT,
    InputNodes,
    MadeT,
    PyGHGTLoader,
    Transform,
)
from penstock.loader.source.inputs import node_inputs
from penstock.loader.source.sources import source_of
from penstock.option_types import LoaderKeywords
from penstock.sampling.kinds import check
from penstock.sampling.spec import HGTSpec


@dataclass(frozen=True, eq=False)
class LayerSampler:
    """Says how a loader samples, where PyG's loader has its sampler. It does not sample itself."""

    spec: HGTSpec
    num_samples: Any
    edge_permutation: None = None  # edge ids are those that were given


@shows_options
class HGTLoader(Batches[DataT, MadeT], Loader, PyGHGTLoader):  # type: ignore[misc]
    """Sample a fixed number of nodes of each type per layer: PyG's loader of that name, by a pool.

    Batches are `HeteroData`, or `Data` for a homogeneous graph.

    Beside these arguments it takes the options of every loader, such as `batch_size`, `num_workers`
    and `seed` (`penstock.option_types.LoaderKeywords`, docs/options.md).

    Args:
        data: What to sample: `Data`, `HeteroData`, `(FeatureStore, GraphStore)`, a `Graph`, a hub
            or a server (what `penstock.connect` returns), its address, or a saved graph's path.
        num_samples: How many nodes of every type to sample in each layer, as a list; or such a
            list for each node type, as a dict.
        input_nodes: The nodes to start from, as for `NeighborLoader`.
        walk_labels: Whether edge types that hold labels of others (`…_positive`, `…_negative`) are
            walked, too.
        is_sorted: No effect: edges are sorted in any case. PyG's.
        transform: Called with each batch in this process; what it returns is given instead.
        transform_sampler_output: Called with PyG's `SamplerOutput` of each batch, before rows of
            attributes are joined to it.
        filter_per_worker: What `collate_fn` gives: a batch (True), or what a sampler gives (False).
            None: as PyG decides.
        custom_cls: Called without arguments to make a batch, where `data` is no `Data` and no
            `HeteroData`.
        input_id: A number for each input, which comes with its batch; by default its position.
        edge_dir: Follow in-edges ("in"); out-edges are refused.

    Raises:
        ValueError: An argument is not valid; the error names it, the position and the value.
        TypeError: There is no such option.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import HeteroData
        >>> import penstock as ps
        >>> data = HeteroData()
        >>> data["user"].x, data["item"].x = torch.rand(40, 8), torch.rand(60, 4)
        >>> data["user", "buys", "item"].edge_index = torch.randint(40, (2, 500))
        >>> data["item", "bought_by", "user"].edge_index = torch.randint(40, (2, 500))
        >>> with ps.HGTLoader(data, [16, 16], "user", batch_size=20, seed=0) as loader:
        ...     sizes = [batch["user"].batch_size for batch in loader]
        >>> sizes
        [20, 20]
    """

    def __init__(
        self,
        data: DataT,
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        input_nodes: InputNodes,
        is_sorted: bool = False,
        transform: Transform[MadeT] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        filter_per_worker: bool | None = None,
        custom_cls: Callable[[], Any] | None = None,
        input_id: Column = None,
        walk_labels: bool = False,
        edge_dir: Literal["in"] | None = None,
        **options: Unpack[LoaderKeywords],
    ) -> None:
        self.data, self.num_samples, self.input_nodes = data, num_samples, input_nodes
        self.is_sorted, self.custom_cls, self.input_id = is_sorted, custom_cls, input_id
        self.edge_dir = edge_dir
        self.transform, self.transform_sampler_output = transform, transform_sampler_output
        flag("is_sorted", is_sorted)
        if filter_per_worker is None:
            filter_per_worker = infer_filter_per_worker(data)
        self.filter_per_worker = flag("filter_per_worker", filter_per_worker)
        source = source_of(data, custom_cls, part_only=options.get("part_only", False))
        self.walk_labels = flag("walk_labels", walk_labels)
        if (along := direction(source.graph, edge_dir)) != "in":
            raise ValueError(
                f"edge_dir is {along!r}; layers are sampled "
                "along in-edges only, as by PyG: expected 'in'. NeighborLoader follows out-edges"
            )
        spec = _spec(source.graph, num_samples, self.walk_labels)
        self.node_sampler = LayerSampler(spec, num_samples)
        inputs = node_inputs(source, input_nodes, input_id=input_id)
        settled = options_of({**options}, type(self).__name__, source.hub)
        Loader.__init__(self, source, spec, inputs, settled)

    input_data = NeighborLoader.input_data


def _spec(graph: GraphView, num_samples: Any, walk_labels: bool) -> HGTSpec:
    if isinstance(num_samples, Mapping):
        spec = HGTSpec(by_type=_by_type(graph, num_samples), walk_labels=walk_labels)
    else:
        layers = _layers("num_samples", num_samples)
        spec = HGTSpec(num_samples=layers, walk_labels=walk_labels)
    check(spec, graph)
    return spec


def _by_type(graph: GraphView, given: Mapping[Any, Any]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if not graph.is_hetero:
        raise ValueError(
            "num_samples has a list for each node type, but this graph has only one: give a list"
        )
    for name in given:
        if name not in graph.node_types:
            raise ValueError(
                f"num_samples names node type {name!r}; this graph has "
                f"{', '.join(map(repr, graph.node_types))}{suggestion(name, graph.node_types)}"
            )
    for name in graph.node_types:
        if name not in given:
            raise ValueError(f"Not all node types specified: num_samples lacks {name!r}")
    return tuple((name, _layers(f"num_samples[{name!r}]", given[name])) for name in given)


def _layers(name: str, given: Any) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, given))
    except TypeError:
        raise ValueError(f"{name} is {given!r}; expected an integer for each layer") from None
