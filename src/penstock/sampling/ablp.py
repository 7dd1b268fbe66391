"""Anchor-based link prediction: anchors, their positive and negative labels, and neighbourhoods.

A batch begins with its anchors, in order, then the nodes of their labels, each once. `y_positive`
and `y_negative` are [2, labels]: the position of the anchor in the batch, and the position of the
label's node in the `n_id` of its type. They belong to the supervision edge type (source: the
anchors, destination: the labels); there may be several, whose anchors have the same type.

Labels come from edge types of the graph, or with the inputs: column "positive/0" has a row for each
anchor, padded with -1, for the first supervision edge type, and so on. Without either, edge types
are found by name: labels of (s, r, d) are edges (s, r + "_positive", d) and, if there are any, (s,
r + "_negative", d). Label edges are never sampled, because they are to be predicted; nor are their
reverses in a type named "rev_…", unless that is asked for.

Neighbourhoods are sampled by hops or by personalised PageRank: then anchors and labels have edges
to the nodes most relevant to them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np

from penstock.errors import suggestion
from penstock.graph import EdgeType, Graph
from penstock.graph.derived import DerivedArrays, OutEdges
from penstock.graph.dtypes import dtype_name
from penstock.graph.inventory import repeated
from penstock.graph.view import GraphView
from penstock.kernels import Exclusion, Relabeler
from penstock.kernels.arrays import Array, Ids, check_integer
from penstock.kernels.labels import first_neighbors
from penstock.sampling.batches import Batches
from penstock.sampling.columns import check_begins, check_time_form, form
from penstock.sampling.exclusion import Positives, check_exclude, exclusions
from penstock.sampling.kinds import kind_of
from penstock.sampling.labels import SIGNS, Sign, label_edge_types, label_type
from penstock.sampling.names import Owner, qualified
from penstock.sampling.neighbor import HopsKind, check_hops, check_said_once, draws_of_hops
from penstock.sampling.request import Request
from penstock.sampling.rows import Rows
from penstock.sampling.seeds import IDS, ArraySpec, SeedBuilder, Seeds
from penstock.sampling.shape import fanouts_of
from penstock.sampling.spec import ABLPSpec, Feed, NeighborSpec, PPRSpec, SamplingSpec

# Labels per anchor that room is reserved for, if their number is not limited.
_LIKELY: Final = 16


class ABLPKind(HopsKind[ABLPSpec]):
    """Anchors with their labels, and the neighbourhoods of both."""

    def hops(self, spec: ABLPSpec, graph: GraphView) -> NeighborSpec:
        """Return how neighbourhoods are sampled: not along labels."""
        return walked(spec, graph)

    def seed_builder(self, spec: ABLPSpec, graph: Graph) -> SeedBuilder:
        """Return what makes seeds of anchors and the nodes of their labels."""
        return AnchorSeedBuilder(graph, spec)

    def batches(self, spec: ABLPSpec, graph: Graph) -> Batches:
        """Return batches of hops, or of the nodes most relevant to anchors and labels."""
        if isinstance(spec.neighbors, NeighborSpec):
            return super().batches(spec, graph)
        from penstock.sampling.buffered import BufferedBatches
        from penstock.sampling.ppr import PPRSampler

        seeds = self.seed_builder(spec, graph), seed_types(spec)
        unwalked = labels_in(spec, graph) | reversed_labels(spec, graph)
        sampler = PPRSampler(graph, spec.neighbors, seeds, unwalked)
        return BufferedBatches(graph, spec.neighbors, sampler)

    def likely_bytes(self, spec: ABLPSpec, graph: Graph, inputs: int, of: Owner) -> int:
        """Return room for nearly any batch."""
        if isinstance(spec.neighbors, NeighborSpec):
            return super().likely_bytes(spec, graph, inputs, of)
        return self.batches(spec, graph).likely_bytes(inputs, of)

    def columns(self, spec: ABLPSpec) -> tuple[str, ...]:
        """Return the names of padded rows of labels, and of a time for each anchor."""
        return (*self.node_columns(spec), *(("time",) if is_temporal(spec) else ()))

    def node_columns(self, spec: ABLPSpec) -> Mapping[str, str]:
        """Return the columns of labels: these are nodes."""
        return {
            f"{sign}/{number}": kind[2]
            for number, kind in enumerate(spec.supervision)
            for sign in SIGNS
        }

    def is_disjoint(self, spec: ABLPSpec) -> bool:
        """Return whether the neighbourhoods are disjoint."""
        neighbors: SamplingSpec = spec.neighbors
        return kind_of(neighbors).is_disjoint(neighbors)

    def bare(self, spec: ABLPSpec, *, edges: bool = True) -> ABLPSpec:
        """Return the spec with neighbourhoods without attributes."""
        neighbors: SamplingSpec = spec.neighbors
        neighbors = kind_of(neighbors).bare(neighbors, edges=edges)
        return msgspec.structs.replace(spec, neighbors=neighbors)

    def check(self, spec: ABLPSpec, graph: GraphView) -> None:
        """Raise `ValueError` unless this graph can be sampled by the spec."""
        check_ablp(spec, graph)
        if isinstance(spec.neighbors, PPRSpec):
            _check_pushes(spec, spec.neighbors, graph)
        else:
            check_said_once(spec.neighbors)
            check_hops(walked(spec, graph), graph)

    def check_inputs(
        self,
        spec: ABLPSpec,
        graph: GraphView,
        feed: Feed,
        columns: Mapping[str, Array],
        tables: Mapping[str, Array],
    ) -> None:
        """Raise `ValueError` unless the inputs are anchors that have labels."""
        check_time_form(columns)
        check_anchor_times(spec, columns)
        for name, column in columns.items():
            if name == "time":
                continue
            if column.ndim != 2 or column.dtype.kind != "i":
                raise ValueError(
                    f"columns[{name!r}] is {form(column)}; expected integers, a row of labels for "
                    "each anchor, padded with -1"
                )
        check_begins(feed, spec.supervision[0][0], "anchors of this supervision are")
        check_labels(spec, graph, columns)

    def check_values(self, spec: ABLPSpec, graph: GraphView, columns: Mapping[str, Array]) -> None:
        """Raise `ValueError` for a label in padded rows that is no node."""
        for column, node_type in self.node_columns(spec).items():
            rows, size = columns.get(column), graph.end_of_ids(node_type)
            if rows is None or rows.size == 0:
                continue
            if rows.min() >= -1 and rows.max() < size:
                graph.check_nodes(node_type, rows[rows >= 0], f"columns[{column!r}]")
                continue
            row, place = np.argwhere((rows < -1) | (rows >= size))[0].tolist()
            raise ValueError(
                f"columns[{column!r}][{row}, {place}] is {rows[row, place]}; "
                f"expected 0 <= id < {size}, or -1 for none"
            )

    def needs(self, spec: ABLPSpec, graph: GraphView) -> Sequence[DerivedArrays]:
        """Return what sampling needs, and the out-edges of label types, from anchors to labels."""
        read = labels_in(spec, graph)
        labels = [OutEdges(kind) for kind in read]
        if isinstance(spec.neighbors, NeighborSpec):
            return [*super().needs(spec, graph), *labels]
        from penstock.sampling.ppr import needs_of

        return [*needs_of(spec.neighbors, [k for k in graph.edge_types if k not in read]), *labels]

    def left_out(self, spec: ABLPSpec, graph: GraphView) -> tuple[EdgeType, ...]:
        """Return nothing: who asks for labels knows that they are not walked."""
        return ()

    def draws(self, spec: ABLPSpec, graph: GraphView, inputs: int, of: Owner) -> float:
        """Return the work of the neighbourhoods of anchors and labels."""
        labels = _LIKELY if spec.max_labels is None else spec.max_labels
        seeds = inputs * (1 + min(labels, 4) * len(spec.supervision))
        if isinstance(spec.neighbors, PPRSpec):
            return kind_of(spec.neighbors).draws(spec.neighbors, graph, seeds, of)
        return draws_of_hops(walked(spec, graph), graph, seeds)


def label_types(spec: ABLPSpec, graph: GraphView, sign: Sign) -> tuple[EdgeType | None, ...]:
    """Return, for each supervision edge type, the edge type of its labels, if the graph has one."""
    given = spec.positive if sign == "positive" else spec.negative
    named = [label_type(kind, sign) for kind in spec.supervision]
    found = tuple(kind if kind in graph.edge_types else None for kind in named)
    if given is None:
        return found
    # `check_ablp` checks that there are as many.
    return tuple(kind or by_name for kind, by_name in zip(given, found, strict=False))


def labels_in(spec: ABLPSpec, graph: GraphView) -> dict[EdgeType, None]:
    """Return the edge types that labels are read from, each once, in order."""
    kinds = [kind for sign in SIGNS for kind in label_types(spec, graph, sign)]
    return dict.fromkeys(kind for kind in kinds if kind is not None)


def reversed_labels(spec: ABLPSpec, graph: GraphView) -> dict[EdgeType, None]:
    """Return the reverses, named "rev_…", of types that labels are read from: they tell the same.

    Not those that the spec asks to be walked, by name; nor those of supervision edge types, which
    `exclude` is for, or of types that are known as labels by their own names.
    """
    neighbors = spec.neighbors
    if isinstance(neighbors, NeighborSpec):
        asked = {kind for kind, _ in neighbors.by_type or ()}
    else:
        asked = {kind for _, kinds, _ in neighbors.channels for kind in kinds}
    known = {
        *labels_in(spec, graph),
        *label_edge_types(graph.edge_types),
        *spec.supervision,
        *asked,
    }
    reverses = [
        (destination, f"rev_{relation}", source)
        for source, relation, destination in labels_in(spec, graph)
        if (source, relation, destination) not in spec.supervision
    ]
    return dict.fromkeys(k for k in reverses if k in graph.edge_types and k not in known)


def seed_types(spec: ABLPSpec) -> list[str]:
    """Return the node types of anchors and labels, each once, anchors first."""
    ends = [spec.supervision[0][0], *(kind[2] for kind in spec.supervision)]
    return [*dict.fromkeys(ends)]


def walked(spec: ABLPSpec, graph: GraphView) -> NeighborSpec:
    """Return the hops of neighbourhoods: as the spec says, but not along labels."""
    assert isinstance(spec.neighbors, NeighborSpec)
    labels = labels_in(spec, graph)
    idle = labels | reversed_labels(spec, graph)
    fanouts = fanouts_of(spec.neighbors)
    if isinstance(fanouts, Mapping):
        hops = max(map(len, fanouts.values()), default=0)
        by_type = {kind: tuple(fanouts[kind]) for kind in fanouts if kind not in labels}
    else:
        hops = len(fanouts)
        left_out = {*idle, *label_edge_types(graph.edge_types)}
        by_type = {kind: tuple(fanouts) for kind in graph.edge_types if kind not in left_out}
    if not labels.keys() & set(graph.edge_types):
        return spec.neighbors
    by_type |= {kind: (0,) * hops for kind in graph.edge_types if kind in idle}
    return msgspec.structs.replace(spec.neighbors, num_neighbors=(), by_type=tuple(by_type.items()))


def check_ablp(spec: ABLPSpec, graph: GraphView) -> None:
    """Raise `ValueError` unless the graph can be sampled so; `check_labels` checks the labels."""
    if not spec.supervision:
        raise ValueError("supervision is empty; expected one edge type at least")
    for kind in repeated(spec.supervision):
        raise ValueError(f"supervision has {kind!r} twice")
    for number, kind in enumerate(spec.supervision):
        _check_ends(f"supervision[{number}]", kind, graph)
        if kind[0] != spec.supervision[0][0]:
            raise ValueError(
                f"supervision[{number}] is {kind!r}; its anchors must be "
                f"{spec.supervision[0][0]!r}, as those of the first"
            )
    for sign in SIGNS:
        _check_given(spec, graph, sign)
    check_exclude(graph, spec.exclude, spec.supervision, spec.rev_edge_types)
    if spec.max_labels is not None:
        check_integer(spec.max_labels, "max_labels", 0, 2**31)
    if isinstance(spec.neighbors, PPRSpec):
        return
    if spec.neighbors.subgraph_type != "directional":
        raise ValueError(
            f"neighbors.subgraph_type is {spec.neighbors.subgraph_type!r}; with labels it can only "
            "be 'directional': others would find the label edges"
        )


def is_temporal(spec: ABLPSpec) -> bool:
    """Return whether neighbourhoods are restricted by time."""
    return isinstance(spec.neighbors, NeighborSpec) and spec.neighbors.time_attr is not None


def check_anchor_times(spec: ABLPSpec, columns: Container[str]) -> None:
    """Raise `ValueError` if anchors need times and have none."""
    if is_temporal(spec) and "time" not in columns:
        raise ValueError(
            "neighbors.time_attr is given, and anchors have no times: expected columns['time'], "
            "one for each anchor, which counts for its labels as well"
        )


def _check_pushes(spec: ABLPSpec, neighbors: PPRSpec, graph: GraphView) -> None:
    """Raise `ValueError` unless the graph can be sampled so; no channel may follow labels."""
    kind_of(neighbors).check(neighbors, graph)
    labels = labels_in(spec, graph)
    for number, (name, kinds, _) in enumerate(neighbors.channels):
        for kind in kinds:
            if kind in labels:
                raise ValueError(
                    f"neighbors.channels[{number}] ({name!r}) follows {kind!r}, which labels are "
                    "read from: edges that are to be predicted are never sampled"
                )


def check_labels(spec: ABLPSpec, graph: GraphView, columns: Container[str]) -> None:
    """Raise `ValueError` if positive labels come neither from the graph nor with the inputs."""
    kinds = label_types(spec, graph, "positive")
    for number, (supervision, kind) in enumerate(zip(spec.supervision, kinds, strict=True)):
        if kind is None and (column := f"positive/{number}") not in columns:
            wanted = label_type(supervision, "positive")
            is_known = supervision in graph.edge_types
            close = "" if is_known else suggestion(supervision, graph.edge_types)
            raise ValueError(
                f"there are no positive labels of {supervision!r}: this graph has no edge type "
                f"{wanted!r}, none is given, and the inputs have no column {column!r}{close}"
            )


def _check_ends(label: str, kind: EdgeType, graph: GraphView) -> None:
    for end in (kind[0], kind[2]):
        if end not in graph.node_types:
            there = ", ".join(map(repr, graph.node_types)) if graph.is_hetero else "no types"
            raise ValueError(f"{label} is {kind!r}, and this graph has {there}")


def _check_given(spec: ABLPSpec, graph: GraphView, sign: Sign) -> None:
    given = spec.positive if sign == "positive" else spec.negative
    if given is None:
        return
    if len(given) != len(spec.supervision):
        raise ValueError(
            f"{sign} has {len(given)} edge types; expected one for each of "
            f"{len(spec.supervision)} supervision edge types"
        )
    for number, (kind, supervision) in enumerate(zip(given, spec.supervision, strict=True)):
        if kind is None:  # found by name
            continue
        if kind not in graph.edge_types:
            there = ", ".join(map(repr, graph.edge_types))
            close = suggestion(kind, graph.edge_types)
            raise ValueError(f"{sign}[{number}] is {kind!r}; this graph has {there}{close}")
        if (kind[0], kind[2]) != (supervision[0], supervision[2]):
            raise ValueError(
                f"{sign}[{number}] is {kind!r}; its ends are not those of {supervision!r}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Labels:
    """Labels of one sign of one supervision edge type: positions of anchors, ids of labels."""

    number: int  # of the supervision edge type
    sign: Sign
    node_type: int
    anchors: Ids
    nodes: Ids


class _Moments:
    """Nodes at the times of anchors, as one number each: equal only if both are.

    Without times, a node's number is its id.
    """

    def __init__(self, by_anchor: Ids | None) -> None:
        self.by_anchor = by_anchor
        times = np.zeros(1, np.int64) if by_anchor is None else by_anchor
        self._times, ranks = np.unique(times, return_inverse=True)
        self._ranks = ranks.reshape(-1).astype(np.int64, copy=False)
        self._count = max(len(self._times), 1)

    def join(self, nodes: Ids, anchors: Ids) -> Ids:
        """Return the numbers of nodes at the times of these anchors."""
        if self.by_anchor is None:
            return nodes
        return np.asarray(nodes * self._count + self._ranks[anchors], np.int64)

    def apart(self, numbers: list[Ids]) -> tuple[list[Ids], list[Ids] | None]:
        """Return nodes and times of lists of numbers."""
        if self.by_anchor is None:
            return numbers, None
        times = [self._times[each % self._count] if len(each) else each for each in numbers]
        return [each // self._count for each in numbers], times


class AnchorSeedBuilder:
    """Makes seeds of anchors, which are the inputs, and of the nodes of their labels.

    With times, a label is seen at the time of its anchor: its node is a seed for each of those.
    """

    def __init__(self, graph: Graph, spec: ABLPSpec) -> None:
        times = {"seed_time"} if is_temporal(spec) else set()
        self.own = frozenset({"y_positive", "y_negative", *times})
        self._graph = graph
        self._rows = Rows(graph)
        self._spec = spec
        self._kinds = {sign: label_types(spec, graph, sign) for sign in SIGNS}
        self._numbers = {name: number for number, name in enumerate(graph.node_types)}
        self._places = [Relabeler() for _ in graph.node_types]
        neighbors: SamplingSpec = spec.neighbors
        self._disjoint = kind_of(neighbors).is_disjoint(neighbors)

    def start(self, request: Request) -> Seeds:
        anchor_type = self._spec.supervision[0][0]
        if request.node_type != anchor_type:
            raise ValueError(
                f"the inputs are {request.node_type!r}; the anchors of "
                f"{self._spec.supervision[0]!r} are {anchor_type!r}"
            )
        moments = _Moments(self._times(request))
        for places in self._places:
            places.clear()
        anchors = np.arange(request.num_inputs)
        self._places[self._numbers[anchor_type]].add_seeds(moments.join(request.seeds, anchors))
        arrays: dict[str, Array] = {qualified(anchor_type, "input_id"): request.positions}
        if moments.by_anchor is not None:
            arrays[qualified(anchor_type, "seed_time")] = moments.by_anchor
        positives = []
        for labels in self._labels(request):
            at = moments.join(labels.nodes, labels.anchors)
            local = self._places[labels.node_type].relabel(at)
            name = qualified(self._spec.supervision[labels.number], f"y_{labels.sign}")
            arrays[name] = np.stack((labels.anchors, local))
            if labels.sign == "positive":
                positives.append((labels, local))
        facts: dict[str, Any] = {"batch_size": request.num_inputs}
        if self._graph.is_hetero:
            facts["input_type"] = anchor_type
        seeds, times = moments.apart([places.nodes() for places in self._places])
        return Seeds(
            seeds, times, arrays, facts, excluded=self._excluded(request, seeds, positives)
        )

    def _times(self, request: Request) -> Ids | None:
        """Return the time of each anchor, if sampling is restricted by time."""
        if not is_temporal(self._spec):
            return None
        check_anchor_times(self._spec, request.columns)
        return request.columns["time"].astype(np.int64, copy=False)

    def _excluded(
        self, request: Request, seeds: Sequence[Ids], positives: Sequence[tuple[_Labels, Ids]]
    ) -> list[Exclusion]:
        """Return what must not be sampled: of trees, the positives that the seed is an end of."""
        spec, found = self._spec, []
        anchor_type = self._numbers[spec.supervision[0][0]]
        firsts = np.cumsum([0, *map(len, seeds)])
        for labels, local in positives:
            ends, trees = (request.seeds[labels.anchors], labels.nodes), None
            if self._disjoint:
                ends = np.tile(ends[0], 2), np.tile(ends[1], 2)
                trees = np.concatenate(
                    [firsts[anchor_type] + labels.anchors, firsts[labels.node_type] + local]
                )
            kind = spec.supervision[labels.number]
            reverse = None if spec.rev_edge_types is None else spec.rev_edge_types[labels.number]
            found += exclusions(
                self._graph,
                spec.neighbors.direction,
                spec.exclude,
                Positives(kind, *ends, trees),
                reverse,
            )
        return found

    def most_seeds(self, inputs: int, of: Owner) -> Sequence[int]:
        most = [inputs if name == of else 0 for name in self._graph.node_types]
        for _, kind in self._signed():
            number = self._numbers[kind[2]]
            labels = inputs * self._per_anchor
            known = self._graph.num_nodes(kind[2])
            most[number] += labels if is_temporal(self._spec) else min(labels, known)
        return most

    def most_arrays(self, inputs: int, of: Owner) -> Sequence[ArraySpec]:
        labels = inputs * self._per_anchor
        anchors: list[ArraySpec] = [(IDS, (inputs,))] * (2 if is_temporal(self._spec) else 1)
        return [*anchors, *((IDS, (2, labels)) for _ in self._signed())]

    @property
    def _per_anchor(self) -> int:
        return _LIKELY if self._spec.max_labels is None else self._spec.max_labels

    def _signed(self) -> Iterator[tuple[Sign, EdgeType]]:
        for kind in self._spec.supervision:
            for sign in SIGNS:
                yield sign, kind

    def _labels(self, request: Request) -> Iterator[_Labels]:
        for number, supervision in enumerate(self._spec.supervision):
            for sign in SIGNS:
                found = self._found(request, number, supervision, sign)
                if found is not None:
                    yield _Labels(number, sign, self._numbers[supervision[2]], *found)

    def _found(
        self, request: Request, number: int, supervision: EdgeType, sign: Sign
    ) -> tuple[Ids, Ids] | None:
        column, kind = f"{sign}/{number}", self._kinds[sign][number]
        size = self._graph.num_nodes(supervision[2])
        if column in request.columns:
            return _unpadded(column, request.columns[column], size, self._spec.max_labels)
        return None if kind is None else self._read(kind, request.seeds, size)

    def _read(self, kind: EdgeType, anchors: Ids, size: int) -> tuple[Ids, Ids]:
        adjacency = self._rows.of(kind, "out")
        counts, labels = self._rows.complete(
            partial(first_neighbors, adjacency, anchors, size, self._spec.max_labels)
        )
        return np.repeat(np.arange(len(anchors)), counts), labels


def _unpadded(column: str, rows: Array, size: int, most: int | None) -> tuple[Ids, Ids]:
    """Return the labels in rows that are padded with -1: the first `most` of each."""
    if rows.ndim != 2 or rows.dtype.kind != "i":
        raise ValueError(
            f"column {column!r} is {dtype_name(rows.dtype)}{list(rows.shape)}; expected integers, "
            "a row of labels for each anchor, padded with -1"
        )
    there = rows >= 0
    if most is not None:
        there &= np.cumsum(there, axis=1) <= most
    anchors, labels = np.nonzero(there)[0], rows[there].astype(np.int64)
    if (rows < -1).any() or (labels >= size).any():
        wrong = rows[(rows < -1) | (rows >= size)].flat[0]
        raise ValueError(
            f"column {column!r} has the label {wrong}; expected 0 <= id < {size}, or -1 for none"
        )
    return anchors.astype(np.int64), labels
