"""`ABLPLoader`: anchors with the nodes that are positive or negative labels for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Unpack

import torch
from msgspec.structs import replace as changed
from torch import Tensor
from torch_geometric.data import Data

from penstock.errors import suggestion
from penstock.graph import EdgeType
from penstock.graph.view import GraphView
from penstock.loader.pyg.base import Loader
from penstock.loader.pyg.collate import Collate, CollatedParts, Place
from penstock.loader.pyg.help import shows_options
from penstock.loader.pyg.options import options_of
from penstock.loader.pyg.ppr_loader import PPRCollate
from penstock.loader.pyg.specs import direction, neighbor_spec, rev_types_of
from penstock.loader.pyg.template import store_of
from penstock.loader.pyg.typed import (
    AnchorBatches,
    Column,
    DataT,
    FanOuts,
    InputNodes,
    MadeT,
    Transform,
)
from penstock.loader.source.anchors import (
    AnchorInputs,
    Labels,
    anchor_inputs,
    labels_of,
    supervision_of,
)
from penstock.loader.source.sources import DataSource, source_of
from penstock.option_types import LoaderKeywords
from penstock.sampling.ablp import check_labels, labels_in
from penstock.sampling.kinds import check
from penstock.sampling.labels import SIGNS, label_edge_types
from penstock.sampling.normalize import settled
from penstock.sampling.spec import ABLPSpec, NeighborSpec, PPRSpec


@shows_options
class ABLPLoader(AnchorBatches[DataT, MadeT], Loader):  # type: ignore[misc]
    """Anchor-based link prediction: anchors, their labels, and the neighbourhoods of all of them.

    Batches are `Data` or `HeteroData` with `y_positive` and `y_negative` [2, labels] on the store
    of the supervision edge type: the first row has the anchors' positions, the second their labels'
    positions in `n_id`. They are `Data` if the graph has no types, and also if it has one node type
    and one edge type besides the label edges.

    Beside these arguments it takes the options of every loader, such as `batch_size`, `num_workers`
    and `seed` (`penstock.option_types.LoaderKeywords`, docs/options.md).

    Args:
        data: What to sample: `Data`, `HeteroData`, `(FeatureStore, GraphStore)`, a `Graph`, a hub
            or a server (what `penstock.connect` returns), its address, or a saved graph's path.
        num_neighbors: How many neighbours to sample in each hop (-1: all), as a list; or such a
            list for each edge type, as a dict. None if `sampler_options` are given.
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
        labels: How labels come: as a tensor [2, labels] ("index"), or as `batch.y_positive` and
            `batch.y_negative`, from each anchor's position to its labels' positions ("dict"); with
            several supervision edge types, such a dict for each of them.
        sampler_options: A `PPRSpec`, instead of `num_neighbors`: anchors and labels have edges to
            the nodes that matter most to them, as from `PPRLoader`.
        edge_dir: Follow in-edges ("in") or out-edges ("out"). None: in-edges, or those that a part
            of a graph was cut by; with `sampler_options`, their `direction`. Batches have every
            edge as it is in the graph, sources above.
        replace: Whether a neighbour may be taken more than once.
        disjoint: Whether each input has a tree of its own, which shares no node with the others.
        weight_attr: An attribute of edges to draw by; an edge of weight 0 is never taken.
        transform: Called with each batch in this process; what it returns is given instead.
        custom_cls: Called without arguments to make a batch, where `data` is no `Data` and no
            `HeteroData`.
        input_id: A number for each input, which comes with its batch; by default its position.
        exclude: Which edges are not sampled, because they are to be predicted: supervision edges
            from anchors to their positive labels ("self"), and their reverses as well ("reverse").
            None: all edges but those of label types may be sampled.
        rev_edge_types: For each supervision edge type, the one with its reverses, for
            `exclude="reverse"`. None: the one that PyG's `ToUndirected` makes, named "rev_…".
        anchor_time: The time of each anchor, at which its labels are seen, too; needs `time_attr`.
        time_attr: An attribute of nodes or edges with times: nothing later than the anchor is
            taken. Implies `disjoint`; a label's node is a seed for each time of its anchors.
        temporal_strategy: With `time_attr`, take any edge that is not too late ("uniform"), or the
            latest ("last").

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
        num_neighbors: FanOuts | None = None,
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
        labels: Literal["index", "dict"] = "index",
        sampler_options: PPRSpec | None = None,
        exclude: Literal["self", "reverse"] | None = "self",
        rev_edge_types: Any = None,
        anchor_time: Column = None,
        time_attr: str | None = None,
        temporal_strategy: str = "uniform",
        edge_dir: Literal["in", "out"] | None = None,
        **options: Unpack[LoaderKeywords],
    ) -> None:
        self.data, self.num_neighbors, self.anchors = data, num_neighbors, anchors
        self.supervision, self.max_labels = supervision, max_labels
        self.positive, self.negative = positive, negative
        self.replace, self.disjoint, self.weight_attr = replace, disjoint, weight_attr
        self.transform, self.custom_cls, self.input_id = transform, custom_cls, input_id
        self.labels, self.sampler_options, self.edge_dir = labels, sampler_options, edge_dir
        if labels not in ("index", "dict"):
            close = suggestion(labels, ("index", "dict"))
            raise ValueError(f"labels is {labels!r}; expected 'index' or 'dict'{close}")
        self.exclude, self.rev_edge_types, self.anchor_time = exclude, rev_edge_types, anchor_time
        self.time_attr, self.temporal_strategy = time_attr, temporal_strategy
        _check_times(anchor_time, time_attr)
        source = source_of(
            data,
            custom_cls,
            time_attr=time_attr,
            part_only=options.get("part_only", False),
        )
        kinds = supervision_of(source.graph, supervision)
        given = [labels_of("positive", positive, kinds), labels_of("negative", negative, kinds)]
        wanted = {"exclude": exclude, "rev_edge_types": rev_types_of(rev_edge_types)}
        spec = _spec(source.graph, kinds, given, max_labels=max_labels, **wanted)
        hops: dict[str, Any] = {
            "replace": replace,
            "disjoint": disjoint,
            "weight_attr": weight_attr,
            "time_attr": time_attr,
        }
        neighbors: NeighborSpec | PPRSpec
        if sampler_options is None:
            by_hop = _with_labels(num_neighbors, spec, source.graph)
            strategy = temporal_strategy
            neighbors = neighbor_spec(
                source,
                by_hop,
                **hops,
                edge_dir=edge_dir,
                temporal_strategy=strategy,
                asked_by=type(self).__name__,
            )
        else:
            neighbors = _pushes(sampler_options, {"num_neighbors": num_neighbors} | hops)
            if edge_dir is not None:
                neighbors = changed(neighbors, direction=direction(source.graph, edge_dir))
        spec = settled(changed(spec, neighbors=neighbors))
        check(spec, source.graph)
        inputs = anchor_inputs(
            source, anchors, kinds, given, input_id, anchor_time, time_attr=time_attr
        )
        check_labels(spec, source.graph, inputs.columns)
        flat = _flat_class(source, spec, custom_cls)
        if flat is custom_cls is not None:
            # A batch has types before it is made one without.
            source = source_of(data, time_attr=time_attr, part_only=options.get("part_only", False))
        kind = PPRAnchorCollate if isinstance(spec.neighbors, PPRSpec) else AnchorCollate
        collate = kind(source, spec, inputs, flat, as_dict=labels == "dict")
        loading = options_of({**options}, type(self).__name__, source.hub)
        Loader.__init__(self, source, spec, inputs, loading, collate)


class AnchorCollate(Collate):
    """Makes `Data` of labelled homogeneous graphs, and dicts of labels where these are wanted."""

    def __init__(
        self, source: DataSource, spec: ABLPSpec, inputs: AnchorInputs, flat: Any, as_dict: bool
    ) -> None:
        super().__init__(source, spec, inputs)
        self._supervision, self._flat, self._as_dict = spec.supervision, flat, as_dict
        self._labels = _unwalked(spec, source.graph)

    def _filled(self, parts: CollatedParts, others: dict[Place, Tensor]) -> Any:
        data = super()._filled(parts, others)
        if self._as_dict:
            self._tell_by_anchor(data, len(parts.said[self._wording.of, "input_id"]))
        return data if self._flat is None else self._flattened(data)

    def _tell_by_anchor(self, data: Any, anchors: int) -> None:
        """Replace the labels on the stores by dicts on the batch itself."""
        stores = {kind: store_of(data, kind) for kind in self._supervision}
        for name in (f"y_{sign}" for sign in SIGNS):
            labels = {kind: store.pop(name) for kind, store in stores.items() if name in store}
            told = {kind: by_anchor(found, anchors) for kind, found in labels.items()}
            if told:
                data.stores[0][name] = told if len(stores) > 1 else told[self._supervision[0]]
        for kind, store in stores.items() if self._graph.is_hetero else ():
            if not store:  # with PageRank, whose edges have other types
                del data[kind]

    def _flattened(self, data: Any) -> Any:
        """Return the same batch without types: its nodes, and the edges that are no labels."""
        flat = self._flat()
        for store in data.stores:
            if store._key not in self._labels:
                for name, value in store.items():
                    flat[name] = value
        return flat


class PPRAnchorCollate(AnchorCollate, PPRCollate):
    """Likewise, of batches whose edges are from seeds to the nodes relevant to them."""


def _flat_class(source: DataSource, spec: ABLPSpec, custom_cls: Any) -> Any:
    """Return what makes batches without types; None if batches have types, or need none made."""
    if not is_labelled_homogeneous(source, spec):
        return None
    return (custom_cls or Data) if custom_cls is None or isinstance(custom_cls(), Data) else None


def is_labelled_homogeneous(source: DataSource, spec: ABLPSpec) -> bool:
    """Return whether a graph has types only because it has label edges.

    In one `Data` there is no room for a node attribute and an edge attribute of one name, for the
    labels of several supervision edge types, or for the graph's edges beside those of PageRank.
    """
    graph, labels, rows = source.graph, _unwalked(spec, source.graph), source.template.rows
    relations = [kind for kind in graph.edge_types if kind not in labels]
    if not labels or {len(graph.node_types), len(relations), len(spec.supervision)} != {1}:
        return False
    of_nodes = {row.name for row in rows if not row.of_edges}
    if isinstance(spec.neighbors, PPRSpec):
        return not spec.neighbors.include_sampled_edges and "edge_attr" not in of_nodes
    return not of_nodes & {row.name for row in rows if row.owner in relations}


def _unwalked(spec: ABLPSpec, graph: GraphView) -> set[EdgeType]:
    """Return the edge types that labels are read from, and those that have a label's name."""
    return {*labels_in(spec, graph), *label_edge_types(graph.edge_types)}


def by_anchor(labels: Tensor, anchors: int) -> dict[int, Tensor]:
    """Return labels [2, n], in order of their anchors, as a dict; an anchor may have none."""
    counts = torch.bincount(labels[0], minlength=anchors).tolist()
    return dict(enumerate(torch.split(labels[1], counts)))


def _pushes(given: Any, hops: Mapping[str, Any]) -> PPRSpec:
    """Return the spec that was given instead of hops; ValueError if hops are given as well."""
    if not isinstance(given, PPRSpec):
        raise ValueError(f"sampler_options is {given!r}; expected a PPRSpec, or None")
    for name, value in hops.items():
        if value is not None and value is not False:
            raise ValueError(
                f"{name} is {value!r}, which is for sampling by hops; sampler_options is a "
                f"PPRSpec: leave {name} out, or sampler_options"
            )
    return given


def _check_times(anchor_time: Any, time_attr: str | None) -> None:
    if (anchor_time is None) != (time_attr is None):
        given, missing = (
            ("time_attr", "anchor_time") if anchor_time is None else ("anchor_time", "time_attr")
        )
        raise ValueError(
            f"{given} is given and {missing} is not: sampling by time needs the attribute with "
            "times, and a time for each anchor"
        )


def _spec(
    graph: GraphView,
    supervision: tuple[EdgeType, ...],
    labels: Sequence[Labels],
    **options: Any,
) -> ABLPSpec:
    """Make the part of the spec that concerns labels; neighbourhoods are added later."""
    positive, negative = (each.kinds for each in labels)
    spec = settled(
        ABLPSpec(
            neighbors=NeighborSpec(),
            supervision=supervision,
            positive=positive,
            negative=negative,
            **options,
        )
    )
    check(spec, graph)
    return spec


def _with_labels(num_neighbors: Any, spec: ABLPSpec, graph: GraphView) -> Any:
    """Add fan-outs of 0 for label edge types, which are not sampled and may be left out."""
    if num_neighbors is None:
        raise ValueError(
            "num_neighbors is missing: give one number per hop, or sampler_options=ps.PPRSpec(…)"
        )
    if not isinstance(num_neighbors, dict):
        return num_neighbors
    hops = max(map(len, num_neighbors.values()), default=0)
    labels = {kind: [0] * hops for kind in labels_in(spec, graph)}
    return labels | num_neighbors
