"""What samplers ask of a graph whose rows are elsewhere, in parts; `store` implements it.

Few questions suffice for every kind of sampling, and each is a pure function of the graph: which
edges of these nodes are drawn, which of their edges end in a set of nodes, and which rows they
have. Ids are those of the whole graph. This module knows neither networks nor how hops follow each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.graph.schema import EdgeType, Side
from penstock.kernels.arrays import Ids

if TYPE_CHECKING:
    from penstock.kernels.fetched import FetchedRows
    from penstock.kernels.hops import Drawn
    from penstock.kernels.khop import Exclusion

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One hop along one edge type: `fanout` edges of each of these nodes, keyed by `key`.

    Attributes:
        edge_type: The edge type.
        side: Whether in-edges or out-edges are drawn.
        nodes: Whose edges; a node may come twice, in two trees.
        fanout: How many of each node; -1: all, in the order of storage.
        key: The hop's key.
        replace: Whether an edge may be drawn more than once.
        weight_attr: The attribute of edges to draw by.
        time_attr: The attribute by which later edges are left out.
        of_nodes: Whether `time_attr` is an attribute of nodes, not of edges.
        last: Take the latest edges instead of any.
        trees: The tree of each node, if sampling is disjoint.
        node_times: The time of each node's tree.
        excluded: Edges that must not be drawn.
    """

    edge_type: EdgeType
    side: Side
    nodes: Ids
    fanout: int = -1
    key: int = 0
    replace: bool = False
    weight_attr: str | None = None
    time_attr: str | None = None
    of_nodes: bool = False
    last: bool = False
    trees: Ids | None = None
    node_times: Ids | None = None
    excluded: Exclusion | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Within:
    """The edges of `heads`, along one edge type, whose other end is among `tails`."""

    edge_type: EdgeType
    side: Side
    heads: Ids
    tails: Ids


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The edges of a `Within`: how many of each head, first positions in `tails`, and edge ids."""

    counts: Ids
    positions: Ids
    edge_ids: Ids


class Exchange(Protocol):
    """Asks those who have the rows; for one sampler, and one thread at a time."""

    def draw(self, draws: Sequence[Draw]) -> list[Drawn]:
        """Return the drawn edges, each answer in the order of its nodes; all are asked at once."""

    def within(self, asked: Sequence[Within]) -> list[Found]:
        """Return edges that end in a set of nodes; all are asked at once."""

    def rows(self, edge_type: EdgeType, side: Side) -> FetchedRows:
        """Return the rows of an edge type that have been fetched so far."""

    def complete(self, run: Callable[[], _Result]) -> _Result:
        """Call `run` until it has read no row that is not here; return its last result.

        `run` must be a pure function of the rows. Those that it misses are fetched between calls.
        """
