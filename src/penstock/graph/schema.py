"""The schema of a graph as plain data: its types and the keys of its arrays.

Code that moves a graph as a whole (saving, opening, sharing, digesting) works on a `Schema` and a
mapping from `ArrayKey` to `SharedArray`, and knows nothing else about graphs. `Graph` gives these
arrays their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from penstock.graph.codec import Codec
from penstock.graph.shared import SharedArray

EdgeType: TypeAlias = tuple[str, str, str]

# A homogeneous graph has one node type and one edge type, both with empty names.
NODE = ""
EDGE: EdgeType = ("", "", "")

Group: TypeAlias = Literal["csc", "csr", "node", "edge", "split", "graph", "part", "aid", "ids"]
Side: TypeAlias = Literal["in", "out"]

# The group of the rows of each side: in-edges are a csc, out-edges a csr.
TOPOLOGIES: Final[Mapping[Side, Literal["csc", "csr"]]] = {"in": "csc", "out": "csr"}
# The first edge id of each row, in a part whose rows have consecutive ones: a third array of a csc.
FIRST_IDS: Final = "first_ids"
# Names of arrays of the group "part".
MEMBERS: Final = "members"
BOOK: Final = "book"
# The splits that a graph may have, of nodes and of links.
SPLITS: Final = ("train", "val", "test")
# Names of arrays of the group "ids": numbers, or text as offsets and bytes; and the table of them.
KEYS: Final = "keys"
OFFSETS: Final = "offsets"
TEXT: Final = "text"
SLOTS: Final = "slots"


class ArrayKey(msgspec.Struct, frozen=True, order=True):
    """Identifies an array of a graph by `group`, `type` and `name`:

    - csc, csr: `type` is an edge type; `name` is "indptr" or "adjacency", or "first_ids" in a part.
    - node: `type` is a node type, `name` an attribute with one row per node.
    - edge: `type` is an edge type, `name` an attribute with one row per original edge id.
    - split: `type` is a node type, `name` is "train", "val" or "test"; the ids in given order.
    - aid: a derived array. `type` is an edge type, `name` says what was computed; see `derived`.
    - graph: `type` is empty for an attribute of the whole graph, or the type (node or edge) that it
      belongs to as a whole, such as a list of held-out edges.
    - part: what a part of a graph needs beside its rows. `members` of a node or edge type says
      which ids are here, `book` of a node type which part has each node, and `positions.train` at
      which positions of the whole split "train" the nodes of this part stand.
    - ids: the ids that users gave the nodes of a node type, "keys" or "offsets" and "text", and
      "slots", the table that finds a node by its id; see `user_ids`.
    """

    group: Group
    type: str | EdgeType
    name: str


class NodeTypeInfo(msgspec.Struct, frozen=True):
    name: str
    num_nodes: int
    # Attributes of the type as a whole that are not arrays: JSON values.
    attributes: dict[str, Any] = {}


class EdgeTypeInfo(msgspec.Struct, frozen=True):
    name: EdgeType
    num_edges: int
    attributes: dict[str, Any] = {}


class PartNote(msgspec.Struct, frozen=True):
    """Which part of a graph this is, and how the graph was cut.

    A part speaks the whole graph's ids. Its schema has the types and sizes of the whole graph; the
    counts here are those of the part, in the order of the schema's types.

    Attributes:
        number: The number of the part, from 0.
        of: How many parts there are.
        method: How nodes were assigned: by "range" of ids, by "hash", or as "given".
        edges: The end that an edge goes with; "both" ends have it, and its attributes go with the
            destination.
        topology: "parts": a part has the rows of its own nodes. "whole": every part has all rows.
        version: The version of the whole graph.
        cut: A digest of the whole graph's version and of how it was cut. Parts with equal ones fit
            together.
        num_nodes: How many nodes of each node type the part has.
        num_edges: How many edges of each edge type belong to the part.
        edges_cut: How many of these edges have their other end in another part.
        bounds: For "range", by node type: the first id of each part, and the number of nodes.
        splits: The sizes of the whole graph's splits, by node type and name.
        alone: Only the edges with both ends in the part are here: see `Graph.within`.
    """

    number: int
    of: int
    method: Literal["range", "hash", "given"]
    edges: Literal["destination", "source", "both"]
    topology: Literal["parts", "whole"]
    version: str
    cut: str
    num_nodes: tuple[int, ...]
    num_edges: tuple[int, ...]
    edges_cut: tuple[int, ...]
    bounds: dict[str, tuple[int, ...]] = {}
    splits: dict[str, dict[str, int]] = {}
    alone: bool = False

    @property
    def sides(self) -> tuple[Side, ...]:
        """Which rows of its nodes the part has: in-edges, out-edges, or both."""
        if self.edges == "both" or (self.topology == "whole" and not self.alone):
            return ("in", "out")
        return ("in",) if self.edges == "destination" else ("out",)

    @property
    def owning_side(self) -> Side:
        """The side by whose rows edges, with their attributes, belong to parts."""
        return "out" if self.edges == "source" else "in"

    @property
    def is_compact(self) -> bool:
        """Whether its topology has rows of the part's own nodes only."""
        return self.topology == "parts" and not self.alone

    def __str__(self) -> str:
        return f"part {self.number} of {self.of}"


class AttributeCodec(msgspec.Struct, frozen=True):
    """An attribute of nodes or edges that is stored in a smaller type, and how it is read."""

    key: ArrayKey
    codec: Codec


class Schema(msgspec.Struct, frozen=True):
    """The types of a graph in order. The order is part of its identity, because hops follow it."""

    is_hetero: bool
    nodes: tuple[NodeTypeInfo, ...]
    edges: tuple[EdgeTypeInfo, ...]
    # Attributes of the whole graph that are not arrays: JSON values.
    attributes: dict[str, Any] = {}
    # What a part says of itself; None for a whole graph, whose manifest does not mention it.
    part: PartNote | None = None
    # How attributes are read that are stored in a smaller type. The manifest of a graph without any
    # does not mention them.
    codecs: tuple[AttributeCodec, ...] = ()


Arrays: TypeAlias = Mapping[ArrayKey, SharedArray]


def owner_of(edge_type: EdgeType, side: Side) -> str:
    """Return the node type that has the rows of one side: destinations have in-edges."""
    return edge_type[2 if side == "in" else 0]


def found_by(edge_type: EdgeType, side: Side) -> str:
    """Return the node type that the rows of one side lead to."""
    return edge_type[0 if side == "in" else 2]


def links_name(split: str) -> str:
    """Return the name of the array with the links of a split: both ends, [2, links].

    It belongs to the edge type as a whole, or to a homogeneous graph.
    """
    return f"{split}_links"


def link_times_name(split: str) -> str:
    """Return the name of the array with the times of the links of a split."""
    return f"{split}_links_time"


def positions_name(split: str) -> str:
    """Return the name of the array that says at which positions of a split a part's nodes stand."""
    return f"positions.{split}"
