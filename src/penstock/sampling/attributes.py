"""Attributes of a batch: turns the names in a spec into rows to gather, each with a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from penstock.errors import suggestion
from penstock.graph import EdgeType
from penstock.graph.features import FeatureSource
from penstock.graph.schema import Side
from penstock.graph.view import GraphView
from penstock.kernels.arrays import Array, Ids
from penstock.sampling.buffer import BatchBuffer
from penstock.sampling.names import qualified
from penstock.sampling.spec import WithAttributes

# Names of a batch's own arrays. An attribute with such a name would be taken for one of them.
OWN_NAMES: Final = frozenset({"n_id", "e_id", "edge_index", "input_id"})


_Owner = TypeVar("_Owner", str, EdgeType)

# Returns the nodes at one end of edges, sources (0) or destinations (1); None if nobody knows them.
Ends: TypeAlias = Callable[[int], Ids | None]


class RowsOnTheirWay(Protocol):
    """Rows that were asked for. One of the two must be called before the memory is reused."""

    def finish(self) -> None:
        """Wait until all rows are written."""

    def abandon(self) -> None:
        """Give the rows up: nothing is written any more. Idempotent, and allowed at the end."""


@runtime_checkable
class FetchedFeatures(Protocol):
    """A `FeatureSource` whose rows are elsewhere."""

    def begin_gather(self, ids: Ids, out: Array, ends: Ends | None = None) -> RowsOnTheirWay:
        """Ask for rows, which are written into `out`.

        Args:
            ids: Whose rows.
            out: Where to write them.
            ends: The ends of these edges, which may say where the rows are.
        """


@dataclass(frozen=True, slots=True)
class Column:
    """An attribute and the number of its type; rows are gathered by ids of that type.

    Checking a spec does not read the rows, which may be elsewhere.
    """

    name: str
    owner: int
    source: FeatureSource
    dtype: str
    row_shape: tuple[int, ...]

    def shape(self, count: int) -> tuple[int, ...]:
        """Return the shape of `count` rows."""
        return (count, *self.row_shape)

    def begin(
        self, ids: Ids, buffer: BatchBuffer, ends: Ends | None = None
    ) -> RowsOnTheirWay | None:
        """Begin to write the rows of these ids; return None if they are written.

        Rows that are here are written at once. Others are asked for: whoever wants several
        attributes begins them all before waiting for the first.
        """
        out = buffer.array(self.name, self.dtype, (len(ids), *self.row_shape))
        if isinstance(self.source, FetchedFeatures):
            return self.source.begin_gather(ids, out, ends)
        self.source.gather(ids, out)
        return None


class Chosen(NamedTuple):
    """An attribute, whose rows of it, and the ends of these if they are edges."""

    column: Column
    ids: Ids
    ends: Ends | None = None


def gather(chosen: Iterable[Chosen], buffer: BatchBuffer) -> None:
    """Write the rows of several attributes, each of its ids."""
    begun: list[RowsOnTheirWay] = []
    try:
        for each in chosen:
            if (rows := each.column.begin(each.ids, buffer, each.ends)) is not None:
                begun.append(rows)
        for rows in begun:
            rows.finish()
    except BaseException:
        # The memory is for another batch next, which late rows must not be written into.
        for rows in begun:
            rows.abandon()
        raise


class EdgeEnds:
    """Finds the ends of the edges of batches, in ids of the graph.

    Args:
        graph: The graph.
        direction: Whether neighbours are found along in-edges, so that they are sources, or not.
    """

    def __init__(self, graph: GraphView, direction: Side) -> None:
        numbers = {name: number for number, name in enumerate(graph.node_types)}
        self._types = [(numbers[kind[0]], numbers[kind[2]]) for kind in graph.edge_types]
        self._along_in = direction == "in"

    def of(self, kind: int, index: Ids, nodes: Sequence[Ids | None]) -> Ends:
        """Return the ends of the edges of one type.

        Args:
            kind: The number of the edge type.
            index: Local ids, [2, edges]: neighbours above the nodes that led to them.
            nodes: The nodes of the batch, by the number of their type.
        """

        def find(end: int) -> Ids | None:
            there = nodes[self._types[kind][end]]
            if there is None:
                return None
            try:
                found: Ids = there[index[end if self._along_in else 1 - end]]
            except IndexError:  # a user's sampler may have made anything
                return None
            return found if found.shape == index.shape[1:] else None

        return find


def columns_of(
    graph: GraphView, spec: WithAttributes, own: Set[str] = frozenset()
) -> tuple[list[Column], list[Column]]:
    """Return the node and edge attributes that a spec asks for, wherever the graph has them.

    Batches have them as they are stored; whoever gives a batch to its user decodes them.

    If it asks for all, attributes are left out whose names mean something else in a batch: in every
    batch, or in those of a kind (`own`).
    """
    own = OWN_NAMES | own
    nodes = _chosen(
        "node_attributes",
        spec.node_attributes,
        own,
        {owner: list(graph.node_attributes(owner)) for owner in graph.node_types},
        partial(graph.node_features, stored=True),
    )
    edges = _chosen(
        "edge_attributes",
        spec.edge_attributes,
        own,
        {kind: list(graph.edge_attributes(kind)) for kind in graph.edge_types},
        partial(graph.edge_features, stored=True),
    )
    _check_apart(nodes, edges)
    return nodes, edges


def _chosen(
    argument: str,
    names: Sequence[str] | None,
    own: Set[str],
    found: Mapping[_Owner, Sequence[str]],
    features: Callable[[str, _Owner], FeatureSource],
) -> list[Column]:
    _check_known(argument, names or (), own, {name for there in found.values() for name in there})
    return [
        _column(qualified(owner, name), number, features(name, owner))
        for number, (owner, there) in enumerate(found.items())
        for name in there
        if (name not in own if names is None else name in names)
    ]


def _column(name: str, owner: int, source: FeatureSource) -> Column:
    return Column(name, owner, source, source.dtype, source.row_shape)


def _check_known(argument: str, names: Iterable[str], own: Set[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            there = ", ".join(map(repr, sorted(known))) or "none"
            raise ValueError(
                f"{argument} names {name!r}, which the graph has not; it has: {there}"
                f"{suggestion(name, known)}"
            )
        if name in own:
            raise ValueError(f"{argument} names {name!r}, which means something else in a batch")


def _check_apart(nodes: Iterable[Column], edges: Iterable[Column]) -> None:
    """Check that names differ: a homogeneous batch has one namespace for nodes and edges."""
    names = {column.name for column in nodes}
    for column in edges:
        if column.name in names:
            raise ValueError(
                f"nodes and edges both have an attribute {column.name!r}, and a batch can have "
                "only one of that name: choose with node_attributes and edge_attributes"
            )
