"""`ABLPLoader`: anchors with the nodes that are positive or negative labels for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace as changed

from penstock.graph import EdgeType
from penstock.graph.view import GraphView
from penstock.loader.pyg.base import Loader
from penstock.loader.pyg.options import options_of
from penstock.loader.pyg.specs import neighbor_spec
from penstock.loader.source.anchors import Labels, anchor_inputs, labels_of, supervision_of
from penstock.loader.source.sources import source_of
from penstock.sampling.ablp import SIGNS, check_labels, label_types
from penstock.sampling.kinds import check
from penstock.sampling.normalize import settled
from penstock.sampling.spec import ABLPSpec, NeighborSpec


class ABLPLoader(Loader):
    """Anchor-based link prediction: anchors, their labels, and the neighbourhoods of all of them.

    Batches are `Data` or `HeteroData` with `y_positive` and `y_negative` [2, labels] on the store
    of the supervision edge type: the first row has the anchors' positions, the second their labels'
    positions in `n_id`.

    Args:
        data, num_neighbors, replace, disjoint, weight_attr and others: as for `NeighborLoader`.
        anchors: nodes, given like `NeighborLoader`'s `input_nodes`. Where a node type is needed, it
            is that of `supervision`.
        supervision: the edge types to predict, from anchors to labels: one, or a list whose anchors
            have one type. May be None for a homogeneous graph.
        positive: where labels come from: an edge type, or a tensor [anchors, labels] of node ids,
            one row per anchor, padded with -1; with several supervision edge types, a list or a
            dict of these. None: the edge type named like the supervision edge type, with
            "_positive" after its relation. Edges that are labels are not sampled.
        negative: likewise, with "_negative"; optional.
        max_labels: keep at most this many labels of each sign per anchor, the first ones.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        anchors: Any = None,
        supervision: Any = None,
        positive: Any = None,
        negative: Any = None,
        max_labels: int | None = None,
        replace: bool = False,
        disjoint: bool = False,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        custom_cls: Any = None,
        input_id: Any = None,
        **options: Any,
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
        settled = options_of(options, type(self).__name__, source.hub)
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
