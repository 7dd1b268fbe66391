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

from penstock.errors import suggestion
from penstock.graph import check
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
from penstock.graph.tensors import integers
from penstock.graph.user_ids import (
    ON_MISSING,
    IdKind,
    OnMissing,
    UserIdArray,
    as_array,
    keys_of,
    kind_among,
    kind_of,
    taken,
)
from penstock.kernels.id_table import Keys

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

    # --- users' ids --------------------------------------------------------------------------

    def id_kind(self, node_type: str | None = None) -> IdKind | None:
        """Return whether the users' ids of a type are "int64" or "text"; None if it has none.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """
        return kind_among(self.arrays, self._node_type(node_type))

    def ids(self, node_type: str | None = None, index: Any = None) -> UserIdArray:
        """Return the ids by which users know nodes: int64, or strings in an array of objects.

        Args:
            node_type: The node type; None for a homogeneous graph.
            index: The numbers of the nodes. None: all nodes, or those of a part, in the order of
                `node_ids`.

        Raises:
            ValueError: The graph was made without ids, or a number is out of range.

        Examples:
            >>> import penstock as ps
            >>> edges = {("user", "buys", "item"): [[0, 1], [1, 0]]}
            >>> ids = {"user": ["ann", "bob"], "item": [900, 17]}
            >>> shop = ps.Graph.from_coo(edges, node_ids=ids)
            >>> shop.ids("user").tolist(), shop.ids("item", [1, 1]).tolist()
            (['ann', 'bob'], [17, 17])
        """
        name = self.named_type(node_type)
        if index is None:
            return as_array(self.id_keys(name))
        nodes = integers("index", index)
        check.id_dtype(nodes)
        flat = nodes.array.astype(np.int64, copy=False).reshape(-1)
        check.ids("index", flat, self._num_nodes[name])
        return as_array(self.id_keys(name, flat))

    def lookup(
        self,
        node_type: str | None = None,
        ids: Any = None,
        *,
        on_missing: OnMissing = "raise",
    ) -> npt.NDArray[np.int64]:
        """Return the numbers of the nodes with these ids.

        Args:
            node_type: The node type; None for a homogeneous graph.
            ids: The ids: strings, or integers, as the type has them.
            on_missing: What becomes of ids that no node has: "raise" an error that names the first,
                or "skip" them: then a warning says how many are left out of the answer.

        Raises:
            ValueError: There is no such id, or the graph was made without ids.

        Examples:
            >>> import penstock as ps
            >>> edges = {("user", "buys", "item"): [[0, 1], [1, 0]]}
            >>> ids = {"user": ["ann", "bob"], "item": [900, 17]}
            >>> shop = ps.Graph.from_coo(edges, node_ids=ids)
            >>> shop.lookup("user", ["bob"]).tolist(), shop.lookup("item", [17, 900]).tolist()
            ([1], [1, 0])
        """
        if on_missing not in ON_MISSING:
            near = suggestion(on_missing, ON_MISSING)
            raise ValueError(f"on_missing is {on_missing!r}; expected 'raise' or 'skip'{near}")
        return self.numbers(node_type, ids, "ids", on_missing)

    def numbers(
        self, node_type: str | None, ids: Any, label: str, on_missing: OnMissing = "raise"
    ) -> npt.NDArray[np.int64]:
        """Return what `lookup` does; errors call the ids `label`.

        Args:
            node_type: The node type; None for a homogeneous graph.
            ids: The ids.
            label: The argument's name.
            on_missing: As for `lookup`.
        """
        name = self.named_type(node_type)
        wanted = keys_of(label, ids)
        if len(wanted) == 0:
            return np.empty(0, np.int64)
        self.check_keys(name, wanted, label)
        found = self.nodes_of_keys(name, wanted)
        missing = np.flatnonzero(found < 0)
        if len(missing) == 0:
            return found
        first = as_array(taken(wanted, missing[:1])).tolist()[0]
        told = f"{label}[{missing[0]}] is {first!r}, an id that no {_node(name)} has"
        some = f"{len(missing)} of {len(found)} ids are missing"
        if on_missing == "raise":
            where = "" if self.part is None else f" in {self.part}"
            raise ValueError(f"{told}{where} ({some}){self._near(name, first)}")
        check.warn(f"{some}, and left out, the first of them {first!r}, {label}[{missing[0]}]")
        return found[found >= 0]

    def names(self, batch: Any) -> Any:
        """Return the ids by which users know the nodes of a batch, in the order of `n_id`.

        Args:
            batch: What a loader gave, or anything else that has `n_id`.

        Returns:
            An array, as `ids` returns it. For a heterogeneous graph a dictionary of them, by node
                type, of the types that have ids.

        Raises:
            ValueError: The graph was made without ids, or the batch has no `n_id`.

        Examples:
            >>> import penstock as ps
            >>> graph = ps.Graph.from_coo([[0, 1], [1, 2]], node_ids=["ann", "bob", "cho"])
            >>> with ps.NeighborLoader(graph, [1, 1], [2], num_workers=0) as loader:
            ...     print([graph.names(batch).tolist() for batch in loader])
            [['cho', 'bob', 'ann']]
        """
        if not self.is_hetero:
            return self.ids(None, _n_id(batch, "batch"))
        there = [name for name in self.node_types if self.id_kind(name) is not None]
        if not there:
            self.named_type(self.node_types[0])
        held = getattr(batch, "node_types", None)
        if held is None:
            raise ValueError("batch has no node types, and the graph has: expected a HeteroData")
        return {
            name: self.ids(name, _n_id(batch[name], f"batch[{name!r}]"))
            for name in there
            if name in held
        }

    @abstractmethod
    def id_keys(self, node_type: str, nodes: npt.NDArray[np.int64] | None = None) -> Keys:
        """Return the users' ids of nodes, of a type that has some; see `ids`.

        Args:
            node_type: The node type.
            nodes: Which nodes; None for all, or those of a part.
        """

    @abstractmethod
    def nodes_of_keys(self, node_type: str, keys: Keys) -> npt.NDArray[np.int64]:
        """Return the nodes with these ids, of a type that has some; -1 where there is none.

        Args:
            node_type: The node type.
            keys: The ids.
        """

    def named_type(self, node_type: str | None) -> str:
        """Return the name of a node type whose nodes have ids of users; else raise an error.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """
        name = self._node_type(node_type)
        if self.id_kind(name or None) is not None:
            return name
        raise ValueError(
            f"the {_node(name)}s of this graph have no ids but their numbers, 0 to "
            f"{max(0, self._num_nodes[name] - 1)}: make it with node_ids (Graph.from_coo), and "
            "save it again"
        )

    def check_keys(self, name: str, wanted: Keys, label: str = "ids") -> None:
        """Raise `ValueError` for text where the ids of a type are numbers, and the reverse.

        Args:
            name: The node type, whose nodes have ids.
            wanted: What will be looked up.
            label: The argument's name.
        """
        kind = self.id_kind(name or None)
        if kind_of(wanted) != kind and len(wanted):
            first = as_array(taken(wanted, np.zeros(1, np.int64))).tolist()[0]
            words = {"text": "strings", "int64": "integers", None: ""}
            raise ValueError(
                f"{label}[0] is {first!r}, and the ids of {_node(name)}s are {words[kind]}"
            )

    def _near(self, name: str, wanted: Any) -> str:
        """Return which id may have been meant, if it is cheap to say, and what else to do."""
        return "; on_missing='skip' of lookup() leaves such ids out"

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


def _n_id(store: Any, label: str) -> Array:
    found = getattr(store, "n_id", None)
    if found is None:
        raise ValueError(f"{label} has no n_id: expected a batch of a loader")
    return integers(f"{label}.n_id", found).array


def _node(name: str) -> str:
    return f"{name!r} node" if name else "node"


def named(arrays: Mapping[ArrayKey, _T], group: Group, owner: str | EdgeType) -> dict[str, _T]:
    """Return the arrays of a group that belong to a type, by name."""
    return {
        key.name: array for key, array in arrays.items() if (key.group, key.type) == (group, owner)
    }
