"""Links: edges as inputs, their negatives, and the ends of both as seeds.

Amounts, order and names are those of PyG's link loaders: binary negatives are pairs appended to the
edges, with a label of 0; triplets are edges with destinations that are no neighbours. Negative k
belongs to edge k modulo their number P: it has that edge's time, and with disjoint trees that
edge's number. Invalid requests are refused in PyG's words.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from penstock.graph import EdgeType, Graph
from penstock.graph import check as values
from penstock.graph.derived import DerivedArrays, SortedNeighbors
from penstock.graph.schema import EDGE
from penstock.graph.tensors import floats, plain
from penstock.graph.view import GraphView
from penstock.kernels import Adjacency, Exclusion, Relabeler
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.negatives import Candidates, Negatives, SortedRows, draw_negatives
from penstock.kernels.prepare import weight_sums
from penstock.sampling.columns import check_time_form, form
from penstock.sampling.exclusion import Positives, check_exclude, check_given, exclusions
from penstock.sampling.kinds import InputKind, kind_of
from penstock.sampling.names import Owner, qualified, type_name
from penstock.sampling.neighbor import HopsKind, check_hops, draws_of_hops
from penstock.sampling.request import Request
from penstock.sampling.rows import Rows
from penstock.sampling.seeds import IDS, ArraySpec, SeedBuilder, Seeds
from penstock.sampling.spec import Feed, LinkSpec, NeighborSpec

_MODES: Final = ("none", "binary", "triplet")
# The most negatives per edge; no use comes near it.
_MOST: Final = 2**16
# Tables of node weights, and the position of their node type in an edge type.
_WEIGHTS: Final = {"src_weight": 0, "dst_weight": 2}


class LinkKind(HopsKind[LinkSpec]):
    """Edges as inputs, and the neighbourhoods of their ends."""

    made_tables = frozenset({"label_shift"})

    def input_kind(self, spec: LinkSpec) -> InputKind:
        """Return that the inputs are edges."""
        return InputKind.LINK

    def hops(self, spec: LinkSpec, graph: GraphView) -> NeighborSpec:
        """Return how the neighbourhoods of both ends are sampled."""
        return spec.neighbors

    def seed_builder(self, spec: LinkSpec, graph: Graph) -> SeedBuilder:
        """Return what makes seeds of the ends of edges and of their negatives."""
        return LinkSeedBuilder(graph, spec)

    def columns(self, spec: LinkSpec) -> tuple[str, ...]:
        """Return the names of a time and a label for each edge."""
        return "time", "label"

    def tables(self, spec: LinkSpec) -> tuple[str, ...]:
        """Return the weights negatives are drawn by; triplets keep the sources of the edges."""
        if spec.negatives == "none":
            return ()
        return tuple(_WEIGHTS) if spec.negatives == "binary" else ("dst_weight",)

    def is_disjoint(self, spec: LinkSpec) -> bool:
        """Return whether the neighbourhoods are disjoint."""
        return kind_of(spec.neighbors).is_disjoint(spec.neighbors)

    def bare(self, spec: LinkSpec, *, edges: bool = True) -> LinkSpec:
        """Return the spec with neighbourhoods without attributes."""
        neighbors = kind_of(spec.neighbors).bare(spec.neighbors, edges=edges)
        return msgspec.structs.replace(spec, neighbors=neighbors)

    def make_tables(
        self, spec: LinkSpec, columns: Mapping[str, Any], tables: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return running sums of weights, and the shift of labels that frees 0 for negatives."""
        made = {
            name: _sums(name, table) if name in _WEIGHTS else table
            for name, table in tables.items()
        }
        labels = columns.get("label")
        if spec.negatives == "binary" and labels is not None and "label_shift" not in made:
            found = plain("columns['label']", labels)
            shift = label_shift(floats(found.array, found.dtype))
            made["label_shift"] = np.array([shift], np.int64)
        return made

    def check(self, spec: LinkSpec, graph: GraphView) -> None:
        """Raise `ValueError` unless links of this graph can be sampled by the spec."""
        check_hops(spec.neighbors, graph)
        check_link(spec, graph)

    def check_inputs(
        self,
        spec: LinkSpec,
        graph: GraphView,
        feed: Feed,
        columns: Mapping[str, Array],
        tables: Mapping[str, Array],
    ) -> None:
        """Raise `ValueError` unless times, labels and weights fit the spec and the edges."""
        check_time_form(columns)
        shift = tables.get("label_shift")
        if shift is not None and (shift.shape != (1,) or shift.dtype.kind != "i"):
            raise ValueError(f"tables['label_shift'] is {form(shift)}; expected one integer")
        check_columns(spec, columns)
        check_exclude(graph, spec.exclude, [feed.edge_type or EDGE], spec.rev_edge_types)
        if spec.negatives != "none" and feed.edge_type is not None:
            _check_weights(tables, feed.edge_type, graph)

    def needs(self, spec: LinkSpec, graph: GraphView) -> Sequence[DerivedArrays]:
        """Return what hops need, and sorted rows of all edge types: the feed decides which."""
        needed = super().needs(spec, graph)
        if not spec.strict or spec.negatives == "none":
            return needed
        return [*needed, *(SortedNeighbors(kind) for kind in graph.edge_types)]

    def draws(self, spec: LinkSpec, graph: GraphView, inputs: int, of: Owner) -> float:
        """Return the work of the neighbourhoods of all ends."""
        return draws_of_hops(spec.neighbors, graph, sum(_num_ends(spec, inputs)))


def _num_negatives(spec: LinkSpec, inputs: int) -> int:
    """Return the number of negatives of so many edges."""
    return 0 if spec.negatives == "none" else math.ceil(inputs * spec.amount)


def _num_ends(spec: LinkSpec, inputs: int) -> tuple[int, int]:
    """Return the numbers of sources and destinations of so many edges and their negatives."""
    negatives = _num_negatives(spec, inputs)
    return inputs + (negatives if spec.negatives == "binary" else 0), inputs + negatives


def _sums(name: str, weights: Any) -> Any:
    """Return running sums over all nodes, computed as those of a row that has each node once."""
    found = plain(f"tables[{name!r}]", weights)
    values.weights(found)
    count = found.shape[0]
    row = Adjacency(np.array([0, count]), np.zeros(count, np.int32))
    sums = weight_sums(row, found.array, dtype=found.dtype)
    if count and sums[-1] == 0:
        raise ValueError(f"{found.label} is 0 for every node; expected a weight above 0")
    return sums


def _check_weights(tables: Mapping[str, Array], kind: EdgeType, graph: GraphView) -> None:
    """Raise `ValueError` unless there is a running sum for each node of each end's type."""
    for name, end in _WEIGHTS.items():
        sums = tables.get(name)
        if sums is None:
            continue
        if sums.shape != (graph.num_nodes(kind[end]),):
            raise ValueError(
                f"tables[{name!r}] has shape {list(sums.shape)}; expected a weight for each of "
                f"{graph.num_nodes(kind[end])} nodes"
            )
        if sums.dtype != "int64":  # the sums are made from a user's weights
            raise ValueError(f"tables[{name!r}] is {form(sums)}; expected running sums, int64")


def check_link(spec: LinkSpec, graph: GraphView) -> None:
    """Raise `ValueError` unless links of this graph can be sampled by the spec."""
    check_given(spec.exclude, spec.rev_edge_types, 1)
    if spec.negatives not in _MODES:
        raise ValueError(f"negatives is {spec.negatives!r}; expected one of {', '.join(_MODES)}")
    if spec.negatives == "none":
        if spec.strict:
            raise ValueError(
                "strict is set, and there are no negatives to check: negatives is 'none'"
            )
        if spec.amount != 1.0:
            raise ValueError(
                f"amount is {spec.amount}, and there are no negatives to draw: negatives is 'none'"
            )
        return
    _check_amount(spec)
    attribute = spec.neighbors.time_attr
    for name in graph.node_types if attribute is not None else ():
        times = graph.node_attributes(name).get(attribute or "")
        if times is not None and (
            not times.dtype.startswith(("int", "uint")) or len(times.shape) != 1
        ):
            raise ValueError(
                f"time_attr {attribute!r} of {name!r} is {times.dtype}{list(times.shape)}; "
                "expected one integer for each node"
            )


def check_columns(spec: LinkSpec, columns: Collection[str]) -> None:
    """Raise `ValueError` unless the given columns, by name, fit the spec."""
    if ("time" in columns) != (spec.neighbors.time_attr is not None):
        given, named = "time" in columns, spec.neighbors.time_attr is not None
        raise ValueError(
            "Received conflicting 'edge_label_time' and 'time_attr' arguments: "
            f"'edge_label_time' is {'set' if given else 'not set'} "
            f"while 'time_attr' is {'set' if named else 'not set'}. "
            "Both arguments must be provided for temporal sampling. "
            "('edge_label_time' is columns['time'] here.)"
        )
    if spec.negatives == "triplet" and "label" in columns:
        raise ValueError(
            "'edge_label' needs to be undefined for 'triplet'-based negative sampling: "
            "'src_index', 'dst_pos_index' and 'dst_neg_index' tell edges and negatives apart "
            "('edge_label' is columns['label'] here)"
        )


def check_ends(graph: GraphView, kind: EdgeType) -> None:
    """Raise `ValueError` unless the graph has the node types of this edge type's ends.

    The graph need not have the edge type itself.
    """
    for end in (kind[0], kind[2]):
        if end not in graph.node_types:
            there = ", ".join(map(repr, graph.node_types))
            raise ValueError(f"edge_type is {kind!r}; this graph has the node types {there}")


def _check_amount(spec: LinkSpec) -> None:
    amount = spec.amount
    if not 0 < amount < math.inf:
        raise ValueError(f"The attribute 'amount' needs to be positive (got {amount})")
    if amount > _MOST:
        raise ValueError(f"amount is {amount}; an edge can have up to {_MOST} negatives")
    if spec.negatives == "triplet" and amount != math.ceil(amount):
        raise ValueError(
            "The attribute 'amount' needs to be an integer with 'triplet' negative sampling "
            f"(got {amount})."
        )


_OWN: Final = frozenset(
    {
        "edge_label_index",
        "edge_label",
        "edge_label_time",
        "src_index",
        "dst_pos_index",
        "dst_neg_index",
        "seed_time",
    }
)


def label_shift(labels: Array) -> int:
    """Return what is added to labels so that 0 is free for negatives: 1 if the least label is 0.

    It depends on all labels, not those of a batch: the maker of a feed calls this once, and stores
    the result in the table "label_shift", or shifts the labels itself. `ValueError` if 0 cannot be
    freed.
    """
    if labels.size == 0:
        return 0
    if labels.min() != 0:
        if (labels == 0).any():
            raise ValueError(
                f"label has {labels.min()} and 0: negatives have a label of 0, which is "
                "made free where it is the least; expected labels >= 0, or none that is 0"
            )
        return 0
    if labels.dtype.kind in "iu" and labels.max() == np.iinfo(labels.dtype).max:
        raise ValueError(
            f"label has {labels.max()}, the most that {labels.dtype} can hold, and is "
            "to be shifted by one, since negatives have a label of 0; expected a wider dtype"
        )
    return 1


@dataclass(frozen=True, slots=True, eq=False)
class _Links:
    """The links of a batch: those given, then negatives. Triplets add destinations only."""

    kind: EdgeType
    sources: Ids
    destinations: Ids
    num_given: int

    @property
    def num_negatives(self) -> int:
        return len(self.destinations) - self.num_given

    @property
    def is_one_type(self) -> bool:
        return self.kind[0] == self.kind[2]


def _repeated(values: Array, count: int) -> Array:
    """Return values for `count` links: negatives have those of the edge they belong to."""
    return np.resize(values, (count, *values.shape[1:]))


@dataclass(frozen=True, slots=True, eq=False)
class _Seeds:
    """The ends of links as seeds, by node type, and the position of each end there."""

    by_type: dict[str, Ids]
    sources: Ids
    destinations: Ids


class LinkSeedBuilder:
    """Turns edges into seeds: their ends, and those of their negatives.

    If not disjoint, each node is added once: sources, destinations, then the negatives' sources and
    destinations, in order of first appearance. If disjoint, every end is a seed with its own tree:
    all sources, given and negative, then all destinations.
    """

    own = _OWN

    def __init__(self, graph: Graph, spec: LinkSpec) -> None:
        check_link(spec, graph)
        self._graph = graph
        self._rows = Rows(graph)
        self._spec = spec
        self._disjoint = spec.neighbors.disjoint or spec.neighbors.time_attr is not None
        draws = spec.negatives != "none"
        self._times = _NodeTimes(graph, spec.neighbors.time_attr if draws else None)
        self._lists = Relabeler(), Relabeler()
        self._edges: dict[EdgeType, SortedRows] = {}
        self._candidates: dict[tuple[str, str, int], Candidates] = {}

    def num_negatives(self, inputs: int) -> int:
        """Return the number of negatives of so many edges."""
        return _num_negatives(self._spec, inputs)

    def start(self, request: Request) -> Seeds:
        check_columns(self._spec, request.columns)
        check_ends(self._graph, request.edge_type)
        negatives = self._negatives(request)
        links = self._links(request, negatives)
        seeds = self._apart(links) if self._disjoint else self._together(links)
        facts = self._facts(request) | self._honesty(request.edge_type, negatives)
        return Seeds(
            self._by_number(seeds.by_type),
            self._seed_times(request, links),
            self._arrays(request, links, seeds),
            facts,
            trees=(trees := self._trees(links) if self._disjoint else None),
            excluded=self._excluded(request, trees),
        )

    def _excluded(self, request: Request, trees: Ids | None) -> list[Exclusion]:
        """Return what must not be sampled: of trees, the edge that each of them belongs to."""
        ends, spec = request.seeds, self._spec
        positives = (
            Positives(request.edge_type, ends[0], ends[1])
            if trees is None
            else Positives(request.edge_type, ends[0][trees], ends[1][trees], np.arange(len(trees)))
        )
        (reverse,) = spec.rev_edge_types or (None,)
        return exclusions(self._graph, spec.neighbors.direction, spec.exclude, positives, reverse)

    def most_seeds(self, inputs: int, of: Owner) -> Sequence[int]:
        pairs, most = _num_ends(self._spec, inputs), []
        for name in self._graph.node_types:
            ends = sum(
                size for size, end in zip(pairs, (of[0], of[-1]), strict=True) if end == name
            )
            most.append(ends if self._disjoint else min(ends, self._graph.num_nodes(name)))
        return most

    def most_arrays(self, inputs: int, of: Owner) -> Sequence[ArraySpec]:
        """Return array specs; room for labels is for one number each."""
        sources, destinations = _num_ends(self._spec, inputs)
        ids: list[ArraySpec] = [(IDS, (inputs,)), (IDS, (sources,)), (IDS, (destinations,))]
        labels: list[ArraySpec] = [(IDS, (sources,)), (IDS, (destinations,))]
        return ids + labels

    # --- negatives ---------------------------------------------------------------------------

    def _negatives(self, request: Request) -> Negatives | None:
        count = self.num_negatives(request.num_inputs)
        if count == 0:
            return None
        kind, pairs = request.edge_type, self._spec.negatives == "binary"
        source = self._end("src", kind[0], request) if pairs else None
        destination = self._end("dst", kind[2], request)
        edges = self._sorted_rows(kind) if self._spec.strict else None
        return self._rows.complete(
            lambda: draw_negatives(
                request.key,
                request.seeds[0],
                request.seeds[1],
                count,
                source=source,
                destination=destination,
                times=request.columns.get("time") if self._times.of_nodes else None,
                edges=edges,
            )
        )

    def _end(self, end: str, node_type: str, request: Request) -> Candidates:
        """Return what one end is drawn from; a table that comes with every batch is checked once.

        It is kept only as long as its channel has the table, which is in a rank's memory.
        """
        table = request.tables.get(f"{end}_weight")
        key = end, node_type, id(table)
        if key not in self._candidates:
            self._candidates[key] = self._candidates_of(end, node_type, table)
            if table is not None:
                weakref.finalize(table, self._candidates.pop, key, None).atexit = False
        return self._candidates[key]

    def _candidates_of(self, end: str, node_type: str, table: Array | None) -> Candidates:
        num_nodes, times = self._graph.num_nodes(node_type), self._times.of(node_type)
        # A view keeps the memory alive, but not the table object, whose end triggers the removal.
        sums = _within(self._graph, node_type, None if table is None else table.view())
        try:
            return Candidates(num_nodes, sums, times)
        except ValueError as error:
            raise ValueError(f"{end}_weight of {node_type!r}: {error}") from None

    def _sorted_rows(self, kind: EdgeType) -> SortedRows:
        if kind not in self._edges:
            self._edges[kind] = SortedRows.over(self._rows.sorted(kind))
        return self._edges[kind]

    def _links(self, request: Request, negatives: Negatives | None) -> _Links:
        sources, destinations = request.seeds[0], request.seeds[1]
        if negatives is not None:
            if negatives.sources is not None:
                sources = np.concatenate([sources, negatives.sources])
            destinations = np.concatenate([destinations, negatives.destinations])
        return _Links(request.edge_type, sources, destinations, request.num_inputs)

    # --- seeds -------------------------------------------------------------------------------

    def _together(self, links: _Links) -> _Seeds:
        """Return seeds with every node once."""
        sources = self._lists[0]
        destinations = self._lists[0 if links.is_one_type else 1]
        sources.clear()
        destinations.clear()
        given = slice(0, links.num_given), slice(links.num_given, None)
        # In this order, so that given links come before negatives.
        places = [
            (sources.relabel(links.sources[part]), destinations.relabel(links.destinations[part]))
            for part in given
        ]
        by_type = {links.kind[2]: destinations.nodes(), links.kind[0]: sources.nodes()}
        source_places, destination_places = map(np.concatenate, zip(*places, strict=True))
        return _Seeds(by_type, source_places, destination_places)

    def _apart(self, links: _Links) -> _Seeds:
        """Return seeds with a tree for every end."""
        sources = np.arange(len(links.sources))
        destinations = np.arange(len(links.destinations))
        if links.is_one_type:
            both = np.concatenate([links.sources, links.destinations])
            return _Seeds({links.kind[0]: both}, sources, len(sources) + destinations)
        by_type = {links.kind[0]: links.sources, links.kind[2]: links.destinations}
        return _Seeds(by_type, sources, destinations)

    def _seed_times(self, request: Request, links: _Links) -> list[Ids] | None:
        """Return the seeds' times: both ends of a link have its time."""
        if "time" not in request.columns:
            return None
        return self._by_end(links, request.columns["time"].astype(np.int64, copy=False))

    def _by_end(self, links: _Links, values: Ids) -> list[Ids]:
        """Return, for each seed, the value of the edge it belongs to, if all ends are seeds."""
        ends = [_repeated(values, len(ids)) for ids in (links.sources, links.destinations)]
        if links.is_one_type:
            return self._by_number({links.kind[0]: np.concatenate(ends)})
        return self._by_number({links.kind[0]: ends[0], links.kind[2]: ends[1]})

    def _trees(self, links: _Links) -> Ids:
        """Return which given edge each tree belongs to. Trees are numbered across node types.

        PyG takes the tree modulo P, which is the same if the number of negatives is a multiple of
        P.
        """
        given = np.arange(links.num_given)
        return np.concatenate(self._by_end(links, given))

    def _by_number(self, by_type: dict[str, Ids]) -> list[Ids]:
        nobody = np.empty(0, np.int64)
        return [by_type.get(name, nobody) for name in self._graph.node_types]

    # --- arrays and values ---------------------------------------------------------------------

    def _arrays(self, request: Request, links: _Links, seeds: _Seeds) -> dict[str, Array]:
        arrays = {qualified(links.kind, "input_id"): request.positions}
        if self._spec.negatives == "triplet":
            return arrays | self._triplets(request, links, seeds)
        named: dict[str, Array] = {
            "edge_label_index": np.stack([seeds.sources, seeds.destinations])
        }
        label = self._label(request, links)
        if label is not None:
            named["edge_label"] = label
        if "time" in request.columns:
            named["edge_label_time"] = _repeated(request.columns["time"], len(links.sources))
        return arrays | {qualified(links.kind, name): array for name, array in named.items()}

    def _label(self, request: Request, links: _Links) -> Array | None:
        label = request.columns.get("label")
        if self._spec.negatives == "none":
            return label
        if label is None:
            label = np.ones(links.num_given, np.float32)
        shift = request.tables.get("label_shift")
        if shift is not None and shift[0]:
            # A bool cannot hold a third value.
            label = label.astype(np.int64) if label.dtype == bool else label
            label = label + label.dtype.type(shift[0])
        nothing = np.zeros((links.num_negatives, *label.shape[1:]), label.dtype)
        return np.concatenate([label, nothing])

    def _triplets(self, request: Request, links: _Links, seeds: _Seeds) -> dict[str, Array]:
        """Return triplets: row p of the negatives has those of edge p, which are P apart."""
        source, _, destination = links.kind
        amount, count = math.ceil(self._spec.amount), links.num_given
        negatives = seeds.destinations[count:].reshape(amount, count).T
        arrays: dict[str, Array] = {
            qualified(source, "src_index"): seeds.sources,
            qualified(destination, "dst_pos_index"): seeds.destinations[:count],
            qualified(destination, "dst_neg_index"): negatives[:, 0] if amount == 1 else negatives,
        }
        if "time" in request.columns:
            for owner in (source, destination):
                arrays[qualified(owner, "seed_time")] = request.columns["time"]
        return arrays

    def _facts(self, request: Request) -> dict[str, Any]:
        facts: dict[str, Any] = {"batch_size": request.num_inputs}
        if self._graph.is_hetero:
            facts["input_type"] = type_name(request.edge_type)
        return facts

    def _honesty(self, kind: EdgeType, negatives: Negatives | None) -> dict[str, int]:
        """Return how many negatives are edges or too late, because no better ones were found."""
        facts = {}
        if self._spec.strict and self._spec.negatives != "none":
            facts["num_false_negatives"] = 0 if negatives is None else negatives.num_false
        if self._spec.negatives != "none" and self._times.restricts(kind):
            facts["num_late_negatives"] = 0 if negatives is None else negatives.num_late
        return facts


class _NodeTimes:
    """The times of nodes, if a spec restricts by these; times of edges do not restrict negatives.

    Times are read at first use, so that a caller that needs only sizes does not read them.
    """

    def __init__(self, graph: Graph, attribute: str | None) -> None:
        self._there = {
            name: graph.node_attributes(name)[attribute]
            for name in graph.node_types
            if attribute is not None and attribute in graph.node_attributes(name)
        }
        self._read: dict[str, Array] = {}

    @property
    def of_nodes(self) -> bool:
        return bool(self._there)

    def of(self, node_type: str) -> Array | None:
        """Return the times of a node type; None if its nodes are not restricted."""
        if node_type not in self._there:
            return None
        if node_type not in self._read:
            times = self._there[node_type].array
            self._read[node_type] = times.astype(np.int64, copy=False)
        return self._read[node_type]

    def restricts(self, kind: EdgeType) -> bool:
        return kind[0] in self._there or kind[2] in self._there


def _within(graph: Graph, node_type: str, sums: Array | None) -> Array | None:
    """Return running sums of weights by which nodes of other parts are never drawn."""
    is_alone = graph.part is not None and graph.part.alone
    members = graph.members(node_type) if is_alone else None
    if members is None:
        return sums
    here = members.ids()
    weights = np.zeros(members.size, np.int64)
    weights[here] = 1 if sums is None else np.diff(sums, prepend=0)[here]
    return np.cumsum(weights)
