"""The schema of a graph as plain data: its types and the keys of its arrays.

Code that moves a graph as a whole (saving, opening, sharing, digesting) works on a `Schema` and a
mapping from `ArrayKey` to `SharedArray`, and knows nothing else about graphs. `Graph` gives these
arrays their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from penstock.graph.shared import SharedArray

EdgeType: TypeAlias = tuple[str, str, str]

# A homogeneous graph has one node type and one edge type, both with empty names.
NODE = ""
EDGE: EdgeType = ("", "", "")

Group: TypeAlias = Literal["csc", "csr", "node", "edge", "split", "graph", "aid"]


class ArrayKey(msgspec.Struct, frozen=True, order=True):
    """Identifies an array of a graph by `group`, `type` and `name`:

    - csc, csr: `type` is an edge type; `name` is "indptr" or "adjacency".
    - node: `type` is a node type, `name` an attribute with one row per node.
    - edge: `type` is an edge type, `name` an attribute with one row per original edge id.
    - split: `type` is a node type, `name` is "train", "val" or "test"; the ids in given order.
    - aid: a derived array. `type` is an edge type, `name` says what was computed; see `derived`.
    - graph: `type` is empty for an attribute of the whole graph, or the type (node or edge) that it
      belongs to as a whole, such as a list of held-out edges.
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


class Schema(msgspec.Struct, frozen=True):
    """The types of a graph in order. The order is part of its identity, because hops follow it."""

    is_hetero: bool
    nodes: tuple[NodeTypeInfo, ...]
    edges: tuple[EdgeTypeInfo, ...]
    # Attributes of the whole graph that are not arrays: JSON values.
    attributes: dict[str, Any] = {}


Arrays: TypeAlias = Mapping[ArrayKey, SharedArray]
