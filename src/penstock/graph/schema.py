"""What a graph consists of, as plain data: its types and the keys of its arrays.

Everything that moves a graph as a whole (saving, opening, sharing, digesting) works on a `Schema`
and a mapping from `ArrayKey` to `SharedArray`, and knows nothing else about graphs. `Graph` is the
view that gives those arrays their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from penstock.graph.shared import SharedArray

EdgeType: TypeAlias = tuple[str, str, str]

# A homogeneous graph has one node type and one edge type, both nameless.
NODE = ""
EDGE: EdgeType = ("", "", "")

Group: TypeAlias = Literal["csc", "csr", "node", "edge", "split", "graph", "aid"]


class ArrayKey(msgspec.Struct, frozen=True, order=True):
    """Which array this is.

    csc, csr   `type` is an edge type; `name` is "indptr" or "adjacency" node       `type` is a node
    type, `name` an attribute with one row per node edge       `type` is an edge type, `name` an
    attribute with one row per original edge id split      `type` is a node type, `name` is "train",
    "val" or "test"; the ids in given order derived array        `type` is an edge type, `name` says
    what follows from the other arrays: see `derived` graph      `type` is empty for an attribute of
    the whole graph, or the type (node or edge) it
               belongs to as a whole, as a list of held-out edges does
    """

    group: Group
    type: str | EdgeType
    name: str


class NodeTypeInfo(msgspec.Struct, frozen=True):
    name: str
    num_nodes: int
    # What belongs to the type as a whole and is no array: JSON values, as below.
    attributes: dict[str, Any] = {}


class EdgeTypeInfo(msgspec.Struct, frozen=True):
    name: EdgeType
    num_edges: int
    attributes: dict[str, Any] = {}


class Schema(msgspec.Struct, frozen=True):
    """The types of a graph in their order, which is part of its identity: hops follow it."""

    is_hetero: bool
    nodes: tuple[NodeTypeInfo, ...]
    edges: tuple[EdgeTypeInfo, ...]
    # Attributes of the whole graph that are not arrays: JSON values.
    attributes: dict[str, Any] = {}


Arrays: TypeAlias = Mapping[ArrayKey, SharedArray]
