"""A description of a graph: types, sizes, attributes and memory, as plain data fit for JSON.

Degrees are in-degrees, computed from `indptr` alone, so that describing a graph on disk does not
read its edges. Sizes are those of the whole graph; what a part has of it is told apart. This module
does not know how a description is displayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.graph.codec import Codec
from penstock.graph.handles import FileHandle
from penstock.graph.inventory import Shaped
from penstock.graph.schema import (
    EDGE,
    NODE,
    ArrayKey,
    Arrays,
    AttributeCodec,
    EdgeType,
    EdgeTypeInfo,
    NodeTypeInfo,
    PartNote,
    Schema,
)
from penstock.graph.shared import SharedArray
from penstock.graph.sharing import segments_of
from penstock.graph.topology import topology_of
from penstock.graph.user_ids import IdKind, kind_among

Backing = Literal["memory", "file", "mixed"]


class ArrayDescription(msgspec.Struct, frozen=True):
    """An attribute. `shape` includes the dimension of nodes or edges.

    One that is stored in a smaller type than it is read as has the latter as `read_as`, and `saved`
    are the bytes that it takes less so.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    read_as: str | None = None
    saved: int = 0


class Degrees(msgspec.Struct, frozen=True):
    """In-degrees of the destinations of an edge type; `zero` of them have no in-edge."""

    min: int
    mean: float
    median: float
    max: int
    zero: int


class NodeDescription(msgspec.Struct, frozen=True):
    """A node type; in a homogeneous graph its name is empty.

    `ids` says of which kind the users' ids of its nodes are, "int64" or "text"; None: it has none.
    """

    name: str
    num_nodes: int
    attributes: tuple[ArrayDescription, ...]
    splits: dict[str, int]
    values: dict[str, Any]
    arrays: tuple[ArrayDescription, ...]
    ids: IdKind | None = None


class EdgeDescription(msgspec.Struct, frozen=True):
    """An edge type. `degrees` is None where there are no destinations, or no in-edges of them.

    `derived` are the derived arrays that were computed for samplers, without the csr.
    """

    name: EdgeType
    num_edges: int
    index_dtype: str
    sorted_by_destination: bool
    has_csr: bool
    degrees: Degrees | None
    attributes: tuple[ArrayDescription, ...]
    values: dict[str, Any]
    arrays: tuple[ArrayDescription, ...]
    derived: tuple[ArrayDescription, ...] = ()


class Memory(msgspec.Struct, frozen=True):
    """Bytes of the arrays, by purpose."""

    topology: int
    nodes: int
    edges: int
    splits: int
    graph: int
    derived: int
    total: int
    part: int = 0
    ids: int = 0


class PartDescription(msgspec.Struct, frozen=True):
    """A part: which one of how many, how it was cut, and how much of the whole it has.

    Attributes:
        number: The number of the part, from 0.
        of: How many parts there are.
        method: How nodes were assigned to parts.
        edges: The end that an edge goes with.
        topology: Whether the part has the edges of its own nodes ("parts") or all ("whole").
        version: The version of the whole graph.
        cut: A digest; parts with equal ones fit together.
        nodes: Of each node type, how many the part has and how many there are in all.
        edges_within: Of each edge type, how many of the part's edges have both ends in it.
        edges_cut: Of each edge type, how many of them have the other end in another part.
        edges_in_all: Of each edge type, how many there are in all parts.
    """

    number: int
    of: int
    method: str
    edges: str
    topology: str
    version: str
    cut: str
    nodes: tuple[tuple[str, int, int], ...]
    edges_within: tuple[tuple[EdgeType, int], ...]
    edges_cut: tuple[tuple[EdgeType, int], ...]
    edges_in_all: tuple[tuple[EdgeType, int], ...]


class Description(msgspec.Struct, frozen=True):
    """A graph. `values` and `arrays` belong to it as a whole; `version` is None if not known.

    `part` is None for a whole graph.
    """

    is_hetero: bool
    num_nodes: int
    num_edges: int
    nodes: tuple[NodeDescription, ...]
    edges: tuple[EdgeDescription, ...]
    values: dict[str, Any]
    arrays: tuple[ArrayDescription, ...]
    memory: Memory
    backing: Backing
    version: str | None
    part: PartDescription | None = None


def describe(schema: Schema, arrays: Arrays, version: str | None) -> Description:
    """Return the description of a graph."""
    return Description(
        is_hetero=schema.is_hetero,
        num_nodes=sum(info.num_nodes for info in schema.nodes),
        num_edges=sum(info.num_edges for info in schema.edges),
        nodes=tuple(_node_type(info, schema, arrays) for info in schema.nodes),
        edges=tuple(_edge_type(info, schema, arrays) for info in schema.edges),
        values=schema.attributes,
        arrays=_described(arrays, "graph", ""),
        memory=_memory(arrays),
        backing=_backing(arrays),
        version=version,
        part=None if schema.part is None else _part(schema, schema.part),
    )


def _part(schema: Schema, part: PartNote) -> PartDescription:
    names = [info.name for info in schema.edges]
    within = (total - cut for total, cut in zip(part.num_edges, part.edges_cut, strict=True))
    return PartDescription(
        number=part.number,
        of=part.of,
        method=part.method,
        edges=part.edges,
        topology=part.topology,
        version=part.version,
        cut=part.cut,
        nodes=tuple(
            (info.name, count, info.num_nodes)
            for info, count in zip(schema.nodes, part.num_nodes, strict=True)
        ),
        edges_within=tuple(zip(names, within, strict=True)),
        edges_cut=tuple(zip(names, part.edges_cut, strict=True)),
        edges_in_all=tuple((info.name, info.num_edges) for info in schema.edges),
    )


def degrees(counts: npt.NDArray[np.int64]) -> Degrees | None:
    """Return a summary of the degrees of nodes; None if there are no nodes."""
    if not len(counts):
        return None
    return Degrees(
        min=int(counts.min()),
        mean=float(counts.mean()),
        median=float(np.median(counts)),
        max=int(counts.max()),
        zero=len(counts) - int(np.count_nonzero(counts)),
    )


def _node_type(info: NodeTypeInfo, schema: Schema, arrays: Arrays) -> NodeDescription:
    return NodeDescription(
        name=info.name,
        num_nodes=info.num_nodes,
        attributes=_described(arrays, "node", info.name, schema.codecs),
        splits={split.name: split.shape[0] for split in _described(arrays, "split", info.name)},
        values=info.attributes,
        # In a homogeneous graph the empty type means the graph as a whole.
        arrays=_described(arrays, "graph", info.name) if schema.is_hetero else (),
        ids=kind_among(arrays, info.name),
    )


def _edge_type(info: EdgeTypeInfo, schema: Schema, arrays: Arrays) -> EdgeDescription:
    has_csc = ArrayKey("csc", info.name, "indptr") in arrays
    rows = topology_of(arrays, info.name, "csc" if has_csc else "csr")
    return EdgeDescription(
        name=info.name,
        num_edges=info.num_edges,
        index_dtype=str(rows.adjacency.dtype),
        sorted_by_destination=not rows.paired,
        has_csr=ArrayKey("csr", info.name, "indptr") in arrays,
        degrees=degrees(rows.degrees) if has_csc else None,
        attributes=_described(arrays, "edge", info.name, schema.codecs),
        values=info.attributes,
        arrays=_described(arrays, "graph", info.name),
        derived=_described(arrays, "aid", info.name),
    )


def _described(
    arrays: Arrays, group: str, owner: str | EdgeType, codecs: Sequence[AttributeCodec] = ()
) -> tuple[ArrayDescription, ...]:
    by_key = {each.key: each.codec for each in codecs}
    return tuple(
        _array(key.name, array, by_key.get(key))
        for key, array in arrays.items()
        if (key.group, key.type) == (group, owner)
    )


def _array(name: str, array: SharedArray, codec: Codec | None) -> ArrayDescription:
    found = ArrayDescription(name, array.dtype, array.shape, array.nbytes)
    if codec is None:
        return found
    saved = codec.saved(array.shape)
    return msgspec.structs.replace(found, read_as=codec.dtype, saved=saved)


def _memory(arrays: Arrays) -> Memory:
    def of(groups: Iterable[str]) -> int:
        return sum(array.nbytes for key, array in arrays.items() if key.group in groups)

    return Memory(
        topology=of(("csc", "csr")),
        nodes=of(("node",)),
        edges=of(("edge",)),
        splits=of(("split",)),
        graph=of(("graph",)),
        derived=of(("aid",)),
        total=sum(array.nbytes for array in arrays.values()),
        part=of(("part",)),
        ids=of(("ids",)),
    )


def _backing(arrays: Arrays) -> Backing:
    kinds = {isinstance(segment.handle, FileHandle) for segment in segments_of(arrays)}
    if len(kinds) == 2:
        return "mixed"
    return "file" if kinds == {True} else "memory"


def summary(schema: Schema, arrays: Mapping[ArrayKey, Shaped]) -> str:
    """Return types, sizes and attributes as text: one line, or one for each type."""
    part = [] if schema.part is None else [f"<{schema.part}>"]
    codecs = {each.key: each.codec for each in schema.codecs}
    if not schema.is_hetero:
        sizes = f"num_nodes={schema.nodes[0].num_nodes}, num_edges={schema.edges[0].num_edges}"
        words = [*part, sizes, *_words(arrays, codecs, NODE), *_words(arrays, codecs, EDGE)]
        return f"Graph({', '.join(words)})"
    types: dict[str | EdgeType, str] = {}
    types.update((node.name, f"{node.num_nodes} nodes") for node in schema.nodes)
    types.update((edge.name, f"{edge.num_edges} edges") for edge in schema.edges)
    lines = (
        ", ".join([f"  {name!r}: {size}", *_words(arrays, codecs, name)])
        for name, size in types.items()
    )
    return "\n".join(["Graph(", *(f"  {each}" for each in part), *lines, ")"])


def _words(
    arrays: Mapping[ArrayKey, Shaped], codecs: Mapping[ArrayKey, Codec], owner: str | EdgeType
) -> Iterator[str]:
    for key, array in arrays.items():
        if key.type == owner and key.group in ("node", "edge"):
            yield f"{key.name}={codecs.get(key, array.dtype)}{list(array.shape)}"
        elif key.type == owner and key.group == "split":
            yield f"{key.name}={array.shape[0]}"
    if isinstance(owner, str) and (kind := kind_among(arrays, owner)) is not None:
        yield f"ids={kind}"
