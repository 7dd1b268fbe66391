"""`ABLPLoader`: anchors with the nodes that are positive or negative labels for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from msgspec.structs import replace as changed

from penstock.graph import EdgeType
from penstock.graph.view import GraphView
from penstock.loader.pyg.base import Loader
from penstock.loader.pyg.help import shows_options
from penstock.loader.pyg.options import options_of
from penstock.loader.pyg.specs import neighbor_spec
from penstock.loader.pyg.typed import Batches, Column, DataT, FanOuts, InputNodes, MadeT, Transform
from penstock.loader.source.anchors import Labels, anchor_inputs, labels_of, supervision_of
from penstock.loader.source.sources import source_of
from penstock.option_types import LoaderKeywords
from penstock.sampling.ablp import check_labels, label_types
from penstock.sampling.kinds import check
from penstock.sampling.labels import SIGNS
from penstock.sampling.normalize import settled
from penstock.sampling.spec import ABLPSpec, NeighborSpec


@shows_options
class ABLPLoader(Batches[DataT, MadeT], Loader):  # type: ignore[misc]
    """Anchor-based link prediction: anchors, their labels, and the neighbourhoods of all of them.

    Batches are `Data` or `HeteroData` with `y_positive` and `y_negative` [2, labels] on the store
    of the supervision edge type: the first row has the anchors' positions, the second their labels'
    positions in `n_id`.

    Beside these arguments it takes the options of every loader, such as `batch_size`, `num_workers`
    and `seed` (`penstock.option_types.LoaderKeywords`, docs/options.md).

    Args:
        data: What to sample: `Data`, `HeteroData`, `(FeatureStore, GraphStore)`, a `Graph`, a hub
            or a server (what `penstock.connect` returns), its address, or a saved graph's path.
        num_neighbors: How many neighbours to sample in each hop (-1: all), as a list; or such a
            list for each edge type, as a dict.
        anchors: The nodes to start from, given like `NeighborLoader`'s `input_nodes`. Where a node
            type is needed, it is that of `supervision`.
        supervision: The edge types to predict, from anchors to labels: one, or a list whose anchors
            have one type. May be None for a homogeneous graph.
        positive: Where labels come from: an edge type, or a tensor [anchors, labels] of node ids,
            one row per anchor, padded with -1; with several supervision edge types, a list or a
            dict of these. None: the edge type named like the supervision edge type, with
            "_positive" after its relation. Edges that are labels are not sampled.
        negative: Likewise, with "_negative"; optional.
        max_labels: Keep at most this many labels of each sign per anchor, the first ones.
        replace: Whether a neighbour may be taken more than once.
        disjoint: Whether each input has a tree of its own, which shares no node with the others.
        weight_attr: An attribute of edges to draw by; an edge of weight 0 is never taken.
        transform: Called with each batch in this process; what it returns is given instead.
        custom_cls: Called without arguments to make a batch, where `data` is no `Data` and no
            `HeteroData`.
        input_id: A number for each input, which comes with its batch; by default its position.

    Raises:
        ValueError: An argument is not valid; the error names it, the position and the value.
        TypeError: There is no such option.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> import penstock as ps
        >>> data = Data(x=torch.rand(100, 8), edge_index=torch.randint(100, (2, 500)))
        >>> labels = torch.randint(100, (100, 3))  # three nodes that each node is close to
        >>> with ps.ABLPLoader(data, [5], positive=labels, batch_size=25, seed=0) as loader:
        ...     batch = next(iter(loader))
        >>> batch.y_positive.shape
        torch.Size([2, 75])
    """

    def __init__(
        self,
        data: DataT,
        num_neighbors: FanOuts,
        anchors: InputNodes = None,
        supervision: EdgeType | Sequence[EdgeType] | None = None,
        positive: Any = None,
        negative: Any = None,
        max_labels: int | None = None,
        replace: bool = False,
        disjoint: bool = False,
        weight_attr: str | None = None,
        transform: Transform[MadeT] | None = None,
        custom_cls: Callable[[], Any] | None = None,
        input_id: Column = None,
        **options: Unpack[LoaderKeywords],
    ) -> None:
        self.data, self.num_neighbors, self.anchors = data, num_neighbors, anchors
        self.supervision, self.max_labels = supervision, max_labels
        self.positive, self.negative = positive, negative
        self.replace, self.disjoint, self.weight_attr = replace, disjoint, weight_attr
        self.transform, self.custom_cls, self.input_id = transform, custom_cls, input_id
        source = source_of(data, custom_cls)
        kinds = supervision_of(source.graph, supervision)
        labels = [labels_of("positive", positive, kinds), labels_of("negative", negative, kinds)]
        spec = _spec(source.graph, kinds, labels, max_labels)
        neighbors = neighbor_spec(
            source,
            _with_labels(num_neighbors, spec, source.graph),
            replace=replace,
            disjoint=disjoint,
            weight_attr=weight_attr,
            asked_by=type(self).__name__,
        )
        spec = changed(spec, neighbors=neighbors)
        inputs = anchor_inputs(source, anchors, kinds, labels, input_id)
        check_labels(spec, source.graph, inputs.columns)
        settled = options_of({**options}, type(self).__name__, source.hub)
        Loader.__init__(self, source, spec, inputs, settled)


def _spec(
    graph: GraphView, supervision: tuple[EdgeType, ...], labels: Sequence[Labels], most: int | None
) -> ABLPSpec:
    """Make the part of the spec that concerns labels; neighbourhoods are added later."""
    positive, negative = (each.kinds for each in labels)
    spec = settled(
        ABLPSpec(
            neighbors=NeighborSpec(),
            supervision=supervision,
            positive=positive,
            negative=negative,
            max_labels=most,
        )
    )
    check(spec, graph)
    return spec


def _with_labels(num_neighbors: Any, spec: ABLPSpec, graph: GraphView) -> Any:
    """Add fan-outs of 0 for label edge types, which are not sampled and may be left out."""
    if not isinstance(num_neighbors, dict):
        return num_neighbors
    hops = max(map(len, num_neighbors.values()), default=0)
    labels = {kind: [0] * hops for kind in _read(spec, graph)}
    return labels | num_neighbors


def _read(spec: ABLPSpec, graph: GraphView) -> list[EdgeType]:
    """Return the edge types that labels are read from."""
    kinds = [kind for sign in SIGNS for kind in label_types(spec, graph, sign)]
    return [kind for kind in kinds if kind is not None]
