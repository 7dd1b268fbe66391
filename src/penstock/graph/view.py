"""`GraphView`: what loaders, inputs and checks know about a graph, wherever its arrays are.

Every graph knows its types, sizes, the form of every attribute, splits and what belongs to it as a
whole. `Graph` has all arrays in this process; a graph at a server has none of them, and requests
rows. Users of a view need not know which it is. This module does not know how a graph is sampled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.graph.codec import Codec
from penstock.graph.derived import DerivedArrays
from penstock.graph.features import DecodedFeatures, FeatureSource
from penstock.graph.inventory import Shaped
from penstock.graph.lookup import known, pick
from penstock.graph.schema import (
    EDGE,
    NODE,
    ArrayKey,
    Arrays,
    EdgeType,
    Group,
    PartNote,
    Schema,
    Side,
)
from penstock.graph.shared import SharedArray

if TYPE_CHECKING:
    from penstock.graph.exchange import Exchange
    from penstock.graph.graph import Graph

Array = npt.NDArray[Any]
_T = TypeVar("_T")


class ArrayView(Shaped, Protocol):
    """An array of a graph: its form, and its contents where they can be had."""

    @property
    def nbytes(self) -> int: ...
    @property
    def array(self) -> Array: ...


@dataclass(frozen=True, slots=True)
class OwnIds:
    """Ids that a graph knows by itself: of a split, of all nodes, or the ends of all edges.

    Attributes:
        num: How many there are.
        array: The array of them, to be passed on. None for all nodes, which need no list, and if
            the graph is elsewhere.
        is_away: The graph is elsewhere and will look them up there.
        split: The name to look them up by; None means all.
    """

    num: int
    array: SharedArray | None = None
    is_away: bool = False
    split: str | None = None


class GraphView(ABC):
    """A graph by its types and sizes.

    Methods that take a type need it only for a heterogeneous graph.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._num_nodes = {info.name: info.num_nodes for info in schema.nodes}
        self._num_edges = {info.name: info.num_edges for info in schema.edges}
        self._codecs = {each.key: each.codec for each in schema.codecs}

    # --- location ----------------------------------------------------------------------------

    @property
    @abstractmethod
    def address(self) -> str | None:
        """The server that has the graph; None if this process has it."""

    @abstractmethod
    def here(self, complaint: str) -> Graph:
        """Return the graph itself, for sampling in this process.

        Raises:
            ValueError: With `complaint`, if the graph is elsewhere.
        """

    @property
    @abstractmethod
    def version(self) -> str:
        """A digest of the content."""

    @abstractmethod
    def close(self) -> None:
        """Release what this process has of the graph."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- types and sizes ---------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """The types, and their attributes that are not arrays."""
        return self._schema

    @property
    @abstractmethod
    def arrays(self) -> Mapping[ArrayKey, ArrayView]:
        """All arrays that exist now."""

    @property
    def is_hetero(self) -> bool:
        return self._schema.is_hetero

    @property
    def node_types(self) -> tuple[str, ...]:
        """The node types in order; a homogeneous graph has one, with an empty name."""
        return tuple(self._num_nodes)

    @property
    def edge_types(self) -> tuple[EdgeType, ...]:
        """The edge types in the order that hops follow; a homogeneous graph has one, unnamed."""
        return tuple(self._num_edges)

    def metadata(self) -> tuple[list[str], list[EdgeType]]:
        """Return the node types and the edge types as PyG's models want them: two lists, in order.

        Every process gives the same lists, and so does `batch.metadata()` of every loader.

        Raises:
            ValueError: The graph is homogeneous, and its types have no names.

        Examples:
            >>> import penstock as ps
            >>> edges = {("user", "buys", "item"): [[0, 1], [2, 0]]}
            >>> ps.Graph.from_coo(edges, num_nodes={"user": 2, "item": 3}).metadata()
            (['user', 'item'], [('user', 'buys', 'item')])
        """
        if not self.is_hetero:
            raise ValueError("the graph is homogeneous: its types have no names to list")
        return list(self.node_types), list(self.edge_types)

    def num_nodes(self, node_type: str | None = None) -> int:
        """Return the number of nodes of a type, or of all types.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """
        if node_type is None:
            return sum(self._num_nodes.values())
        return self._num_nodes[self._node_type(node_type)]

    def num_edges(self, edge_type: EdgeType | None = None) -> int:
        """Return the number of edges of a type, or of all types.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
        """
        if edge_type is None:
            return sum(self._num_edges.values())
        return self._num_edges[self._edge_type(edge_type)]

    # --- parts -------------------------------------------------------------------------------

    @property
    def part(self) -> PartNote | None:
        """Which part of a graph this is, and how it was cut; None for a whole graph.

        A part has the rows of its own nodes. Types, sizes and ids are those of the whole graph.
        """
        return self._schema.part

    def num_own_nodes(self, node_type: str | None = None) -> int:
        """Return how many nodes of a type, or of all types, are here: all, or those of a part.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """
        if self.part is None:
            return self.num_nodes(node_type)
        counts = dict(zip(self._num_nodes, self.part.num_nodes, strict=True))
        return sum(counts.values()) if node_type is None else counts[self._node_type(node_type)]

    def num_own_edges(self, edge_type: EdgeType | None = None) -> int:
        """Return how many edges of a type, or of all types, belong here: all, or those of a part.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
        """
        part = self.part
        if part is None:
            return self.num_edges(edge_type)
        cut = part.edges_cut if part.alone else (0,) * len(part.num_edges)
        within = (count - away for count, away in zip(part.num_edges, cut, strict=True))
        counts = dict(zip(self._num_edges, within, strict=True))
        return sum(counts.values()) if edge_type is None else counts[self._edge_type(edge_type)]

    def check_nodes(self, node_type: str | None, ids: Array, label: str = "ids") -> None:
        """Raise `ValueError` for the first node that is in another part than this one.

        A graph at a server checks nothing: the server does.

        Args:
            node_type: The node type; None for a homogeneous graph.
            ids: The nodes, which are in range.
            label: The argument's name.
        """
        return

    # --- ids ---------------------------------------------------------------------------------

    def end_of_ids(self, node_type: str | None = None) -> int:
        """Return a number above all node ids of a type.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """
        return self.num_nodes(node_type)

    def node_ids(self, node_type: str | None = None) -> Array:
        """Return the ids of all nodes of a type; of a part, those of its own nodes.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """
        return np.arange(self.num_nodes(node_type))

    @abstractmethod
    def own_nodes(self, node_type: str | None = None) -> OwnIds:
        """Return all nodes of a type, as inputs of an epoch."""

    @abstractmethod
    def own_split(self, name: str, node_type: str | None = None) -> OwnIds:
        """Return the nodes of a split, as inputs of an epoch."""

    @abstractmethod
    def own_edges(self, edge_type: EdgeType | None = None) -> OwnIds:
        """Return all edges of a type, as inputs of an epoch."""

    @property
    def is_in_parts(self) -> bool:
        """Whether the graph is in parts, whose rows samplers ask for."""
        return False

    @property
    def moved(self) -> Any:
        """What this process has moved to sample a graph in parts; None for any other graph."""
        return None

    # --- rows --------------------------------------------------------------------------------

    def check_side(self, side: Side) -> None:  # noqa: B027 - most graphs have both sides
        """Raise ValueError if nobody has all edges of a node on this side.

        Args:
            side: In-edges ("in"), or out-edges ("out").
        """

    def open_exchange(self) -> Exchange | None:
        """Return what a sampler asks for rows that are elsewhere; None if they are all here."""
        return None

    # --- edges -------------------------------------------------------------------------------

    @abstractmethod
    def coo(self, edge_type: EdgeType | None = None) -> Array:
        """Return the edges in order of their ids, [2, edges]."""

    @abstractmethod
    def edge_index(self, edge_type: EdgeType | None = None) -> npt.NDArray[np.int64]:
        """Return the edges as given, [2, edges], sources above destinations. Not cached."""

    @abstractmethod
    def prepare(self, needs: Sequence[DerivedArrays]) -> Arrays:
        """Return needed derived arrays, computing missing ones; nothing if the graph is remote."""

    @abstractmethod
    def lacking(self, needs: Sequence[DerivedArrays]) -> list[ArrayKey]:
        """Return the keys of derived arrays that do not exist and that nobody will compute."""

    # --- attributes --------------------------------------------------------------------------

    def node_attributes(self, node_type: str | None = None) -> Mapping[str, ArrayView]:
        """Return the attributes with a row per node, by name: `x`, `y`, `time` and any other.

        One that is stored in a smaller type is here as it is stored; `node_codec` says how to read
        it, and `node_attribute` and `node_features` give it as it is read.
        """
        return named(self.arrays, "node", self._node_type(node_type))

    def node_attribute(self, name: str, node_type: str | None = None) -> Array:
        """Return an attribute with a row per node: `node_attribute("x")`.

        One that is stored in a smaller type is a new array of float32.

        Args:
            name: The name of the attribute.
            node_type: The node type; None for a homogeneous graph.
        """
        found = pick("node attribute", name, node_type, self.node_attributes(node_type))
        return _read(found, self.node_codec(name, node_type))

    def edge_attributes(self, edge_type: EdgeType | None = None) -> Mapping[str, ArrayView]:
        """Return the attributes with a row per edge, in the order of `edge_index`, by name.

        As `node_attributes`, with `edge_codec`.
        """
        return named(self.arrays, "edge", self._edge_type(edge_type))

    def edge_attribute(self, name: str, edge_type: EdgeType | None = None) -> Array:
        """Return an attribute with a row per edge, in the order of `edge_index`.

        One that is stored in a smaller type is a new array of float32.

        Args:
            name: The name of the attribute.
            edge_type: The edge type; None for a homogeneous graph.
        """
        found = pick("edge attribute", name, edge_type, self.edge_attributes(edge_type))
        return _read(found, self.edge_codec(name, edge_type))

    def node_features(
        self, name: str, node_type: str | None = None, *, stored: bool = False
    ) -> FeatureSource:
        """Return the source of a node attribute's rows: `node_features("x").gather(ids)`.

        Args:
            name: The name of the attribute.
            node_type: The node type; None for a homogeneous graph.
            stored: Give rows as they are stored, also if they are read as another type
                (`node_codec`): what is decoded later is moved in fewer bytes.
        """
        pick("node attribute", name, node_type, self.node_attributes(node_type))
        return self._source(ArrayKey("node", self._node_type(node_type), name), stored=stored)

    def edge_features(
        self, name: str, edge_type: EdgeType | None = None, *, stored: bool = False
    ) -> FeatureSource:
        """Return the source of an edge attribute's rows; see `node_features`.

        Args:
            name: The name of the attribute.
            edge_type: The edge type; None for a homogeneous graph.
            stored: Give rows as they are stored.
        """
        pick("edge attribute", name, edge_type, self.edge_attributes(edge_type))
        return self._source(ArrayKey("edge", self._edge_type(edge_type), name), stored=stored)

    def node_codec(self, name: str, node_type: str | None = None) -> Codec | None:
        """Return how a node attribute is read that is stored in a smaller type; else None.

        Args:
            name: The name of the attribute.
            node_type: The node type; None for a homogeneous graph.
        """
        return self._codecs.get(ArrayKey("node", self._node_type(node_type), name))

    def edge_codec(self, name: str, edge_type: EdgeType | None = None) -> Codec | None:
        """Return how an edge attribute is read that is stored in a smaller type; else None.

        Args:
            name: The name of the attribute.
            edge_type: The edge type; None for a homogeneous graph.
        """
        return self._codecs.get(ArrayKey("edge", self._edge_type(edge_type), name))

    def splits(self, node_type: str | None = None) -> Mapping[str, ArrayView]:
        """Return the splits, by name."""
        return named(self.arrays, "split", self._node_type(node_type))

    def split(self, name: str, node_type: str | None = None) -> npt.NDArray[np.int64]:
        """Return the ids of a split in the order given (from a mask: rising): `split("train")`.

        Args:
            name: The name of the split, such as "train".
            node_type: The node type; None for a homogeneous graph.
        """
        return pick("split", name, node_type, self.splits(node_type)).array

    def graph_attributes(self, owner: str | EdgeType | None = None) -> dict[str, Any]:
        """Return JSON values and arrays that belong to the whole graph, or to a type as a whole.

        Args:
            owner: The type that it belongs to; None for the whole graph.
        """
        values: dict[str | EdgeType, dict[str, Any]] = {}
        values.update((info.name, info.attributes) for info in self._schema.nodes)
        values.update((info.name, info.attributes) for info in self._schema.edges)
        values[NODE] = self._schema.attributes
        key = NODE if owner is None else owner
        if key not in values:
            raise ValueError(f"owner is {owner!r}; expected a node or edge type of the graph")
        arrays = named(self.arrays, "graph", key)
        return {**values[key], **{name: found.array for name, found in arrays.items()}}

    # --- internals ---------------------------------------------------------------------------

    @abstractmethod
    def _features(self, key: ArrayKey) -> FeatureSource:
        """Return the source of rows of an existing attribute as stored: mapped, or fetched."""

    def _source(self, key: ArrayKey, *, stored: bool) -> FeatureSource:
        found, codec = self._features(key), self._codecs.get(key)
        return found if stored or codec is None else DecodedFeatures(found, codec)

    def _node_type(self, name: str | None) -> str:
        if name is None and not self.is_hetero:
            return NODE
        return known("node_type", name, self._num_nodes)

    def _edge_type(self, name: EdgeType | None) -> EdgeType:
        if name is None and not self.is_hetero:
            return EDGE
        return known("edge_type", name, self._num_edges)


def _read(found: ArrayView, codec: Codec | None) -> Array:
    return found.array if codec is None else codec.decode(found.array)


def named(arrays: Mapping[ArrayKey, _T], group: Group, owner: str | EdgeType) -> dict[str, _T]:
    """Return the arrays of a group that belong to a type, by name."""
    return {
        key.name: array for key, array in arrays.items() if (key.group, key.type) == (group, owner)
    }
