"""What the holder of a part answers: the few questions that every kind of sampling is made of.

Each is a pure function of the part, so any replica answers, and any question may be repeated. Ids
are those of the whole graph; a node or an edge of another part is an error that names it. Like
`client.dist_calls`, this is the one list of them: `store.answers` implements it.
"""

# The methods have no bodies here; see `client.dist_calls`.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from abc import ABC
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.graph.schema import EDGE, EdgeType, Side
from penstock.sampling.spec import Spec
from penstock.wire.requests import ExternalIds
from penstock.wire.rpc_schema import Form, IdsLike, Verbs, call, verbs_of

Array = npt.NDArray[Any]


class DrawRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A `graph.exchange.Draw` for the nodes of one part.

    With `share`, the rows are those of the side that the part was not cut by: each part has a share
    of such a row, in order of edge ids. Only whole rows can be asked for so. `skip` entries of the
    first node's row have come before.
    """

    edge_type: EdgeType
    side: Side
    nodes: Any
    fanout: int = -1
    key: int = 0
    replace: bool = False
    weight_attr: str | None = None
    time_attr: str | None = None
    last: bool = False
    trees: Any = None
    node_times: Any = None
    excluded: tuple[Any, Any, Any] | None = None  # nodes, neighbours, trees or None
    share: bool = False
    skip: int = 0


class DrawAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Drawn edges, node by node: `counts` of the nodes answered, neighbours and edge ids.

    `counts` may be of the first nodes only, where all would make too large an answer; with `more`,
    the last of them has further entries. Whoever asked asks for the rest.
    """

    counts: Any
    neighbors: Any
    edge_ids: Any
    more: bool = False


class WithinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The edges of `heads`, nodes of one part, whose other end is among `tails`."""

    edge_type: EdgeType
    side: Side
    heads: Any
    tails: Any


class WithinAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Edges that were found: how many of each head, positions in `tails`, and edge ids."""

    counts: Any
    positions: Any
    edge_ids: Any


class ColumnName(msgspec.Struct, frozen=True):
    """An attribute: of nodes, with their type, or of edges."""

    group: Literal["node", "edge"]
    type: str | EdgeType
    name: str


class RowsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of several attributes. `here` says which of the ids asked for are of this part.

    None: all of them. Rows are those of the ids that are here, in order.
    """

    rows: list[Any]
    here: Any = None


class SplitShare(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a split that a part has, and their positions in the whole split."""

    ids: Any
    positions: Any


class NeighborCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How often some nodes are neighbours: rising ids, and the count of each."""

    ids: Any
    counts: Any


class WantedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A `sampling.request.Request`: a batch by its identity, its inputs and what goes with them."""

    seed: int
    epoch: int
    index: int
    seeds: Any
    positions: Any
    node_type: str = ""
    edge_type: EdgeType = EDGE
    columns: dict[str, Any] = {}
    tables: dict[str, Any] = {}


class SampledBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch without attributes: its arrays by name, in order, and what is no array."""

    arrays: dict[str, Any]
    facts: dict[str, Any]


class StoreCalls(ABC):
    """The questions. Names begin with `get_`: they wait for nothing."""

    @call(reads=True)
    def get_draws(self, draws: list[DrawRequest]) -> list[DrawAnswer]:
        """Draw edges of nodes of this part, or give their rows.

        Args:
            draws: What to draw.
        """

    @call(reads=True)
    def get_edges_within(self, asked: list[WithinRequest]) -> list[WithinAnswer]:
        """Return the edges of nodes of this part that end in a set of nodes.

        Args:
            asked: Which nodes, and which set.
        """

    @call(reads=True)
    def get_rows(
        self, columns: list[ColumnName], ids: IdsLike, *, some: bool = False
    ) -> RowsAnswer:
        """Return rows of attributes that belong to one type.

        Args:
            columns: The attributes.
            ids: Whose rows.
            some: Leave out ids of other parts, instead of raising an error for one.
        """

    @call(reads=True)
    def get_degree_sizes(self, edge_type: EdgeType, side: Side) -> np.ndarray[Any, Any]:
        """Return the bit length of the degree of each node of this part, by rising id.

        Args:
            edge_type: The edge type.
            side: In-edges or out-edges.
        """

    @call(reads=True)
    def get_degrees(self, edge_type: EdgeType, side: Side, ids: IdsLike) -> np.ndarray[Any, Any]:
        """Return the number of edges of nodes of this part.

        Args:
            edge_type: The edge type.
            side: In-edges or out-edges.
            ids: Whose edges.
        """

    @call(reads=True)
    def get_split_share(self, split: str, node_type: str) -> SplitShare:
        """Return this part's nodes of a split, with their positions in the whole.

        Args:
            split: The name of the split.
            node_type: The node type, "" in a homogeneous graph.
        """

    @call(reads=True)
    def get_ids_share(self, node_type: str, nodes: IdsLike) -> ExternalIds:
        """Return the users' ids of nodes of this part: of the first nodes, as many as fit.

        Args:
            node_type: The node type, "" in a homogeneous graph.
            nodes: Whose ids.
        """

    @call(reads=True)
    def get_nodes_share(self, node_type: str, ids: ExternalIds) -> np.ndarray[Any, Any]:
        """Return the nodes of this part that have these ids of users; -1 for ids it has not.

        Args:
            node_type: The node type, "" in a homogeneous graph.
            ids: The ids.
        """

    @call(reads=True)
    def get_edge_share(self, edge_type: EdgeType, first: int, count: int) -> list[Any]:
        """Return edges of this part, row by row: sources, destinations and edge ids.

        Args:
            edge_type: The edge type.
            first: The first of them.
            count: How many.
        """

    @call(reads=True)
    def get_neighbor_counts(self, node_type: str, most: int) -> NeighborCounts:
        """Return how often nodes of a type are neighbours in the rows of this part.

        Args:
            node_type: The node type, "" in a homogeneous graph.
            most: Of how many nodes at most: of those that are neighbours most often.
        """

    @call(reads=True)
    def get_batch(self, spec: Spec, batch: WantedBatch) -> SampledBatch:
        """Sample a batch without attributes; for a server that has the whole topology.

        Args:
            spec: How to sample.
            batch: Which batch.
        """


_FORMS: Final = {np.ndarray[Any, Any]: Form(np.ndarray)}
STORE_VERBS: Final[Verbs] = verbs_of(StoreCalls, _FORMS)
