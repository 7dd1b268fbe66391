"""Checks that a part is sound: that its members, book, splits and rows agree with each other.

Errors are `GraphFormatError` and name the array. Only what a part has beside other graphs is
checked here.
"""

from __future__ import annotations

import numpy as np

from penstock.errors import GraphFormatError
from penstock.graph.agreement import Basis
from penstock.graph.derived import Coo, NamedDerived
from penstock.graph.partition.book import HashBook
from penstock.graph.schema import (
    BOOK,
    MEMBERS,
    TOPOLOGIES,
    ArrayKey,
    Arrays,
    EdgeType,
    PartNote,
    Schema,
    found_by,
    owner_of,
    positions_name,
)
from penstock.graph.shared import SharedArray
from penstock.graph.topology import rows_of_some, topology_of
from penstock.graph.unsound import check_ids, unsound
from penstock.kernels.members import Members


def check_part(schema: Schema, part: PartNote, arrays: Arrays) -> None:
    """Raise for the first array that does not agree with what else the part says."""
    for node, count in zip(schema.nodes, part.num_nodes, strict=True):
        key = ArrayKey("part", node.name, MEMBERS)
        members = _checked_members(key, arrays, node.num_nodes, count)
        _check_assigned(node.name, part, arrays, members)
        for split, array in arrays.items():
            if (split.group, split.type) == ("split", node.name):
                _check_split(split, array, part, arrays, members)
    for edge, count in zip(schema.edges, part.num_edges, strict=True):
        key = ArrayKey("part", edge.name, MEMBERS)
        if key in arrays:
            members = _checked_members(key, arrays, edge.num_edges, count)
            _check_edges(key, schema, part, arrays, members)


def basis_of(derived: NamedDerived, schema: Schema, arrays: Arrays) -> Basis:
    """Return what derived arrays were made of: of a part, the rows of its own nodes."""
    part, name, side = schema.part, derived.edge_type, derived.side
    nodes = {info.name: info.num_nodes for info in schema.nodes}
    num_edges = next(info.num_edges for info in schema.edges if info.name == name)
    if part is None:
        rows = topology_of(arrays, name, TOPOLOGIES[side])
        return Basis(rows, nodes[found_by(name, side)], num_edges)
    if isinstance(derived, Coo) and not part.alone:
        side = part.owning_side
    owners = None if part.alone else _members(arrays, owner_of(name, side), schema).ids()
    rows = topology_of(arrays, name, TOPOLOGIES[side])
    if part.topology == "whole" and owners is not None:
        rows, owners = (
            (rows_of_some(rows, owners, "int64"), owners) if derived.of_own_rows else (rows, None)
        )
    has_attributes = ArrayKey("part", name, MEMBERS) in arrays
    return Basis(
        rows,
        nodes[found_by(name, side)],
        num_edges,
        owners=owners,
        side=side,
        nodes=_members(arrays, found_by(name, side), schema),
        edges=_members(arrays, name, schema) if has_attributes else None,
    )


def _members(arrays: Arrays, name: str | EdgeType, schema: Schema) -> Members:
    sizes: dict[str | EdgeType, int] = {info.name: info.num_nodes for info in schema.nodes}
    sizes.update((info.name, info.num_edges) for info in schema.edges)
    words = arrays[ArrayKey("part", name, MEMBERS)]
    return Members(words.array.view(np.uint64), sizes[name])


def _checked_members(key: ArrayKey, arrays: Arrays, size: int, count: int) -> Members:
    array = arrays[key]
    try:
        members = Members(array.array.view(np.uint64), size)
        members.check()
    except GraphFormatError as error:
        raise unsound(key, array, f": {error}") from None
    if members.count != count:
        raise unsound(key, array, f" has {members.count} ids; the part is said to have {count}")
    return members


def _check_assigned(name: str, part: PartNote, arrays: Arrays, members: Members) -> None:
    """Check that a part has the nodes that its book gives to it."""
    key = ArrayKey("part", name, BOOK if part.method == "given" else MEMBERS)
    array = arrays[key]
    if part.method == "given":
        expected = np.flatnonzero(array.array == part.number)
    elif part.method == "range":
        expected = np.arange(*part.bounds[name][part.number : part.number + 2])
    else:
        expected = HashBook(members.size, part.of).ids_of(part.number)
    if not np.array_equal(members.ids(), expected):
        raise unsound(key, array, f" does not agree with the nodes that {part} has")


def _check_split(
    key: ArrayKey, array: SharedArray, part: PartNote, arrays: Arrays, members: Members
) -> None:
    check_ids(key, array, array.array, members.size, "")
    foreign = np.flatnonzero(members.rows(array.array) < 0)
    if len(foreign):
        at = int(foreign[0])
        raise unsound(key, array, f"[{at}] is {array.array[at]}, which is not in {part}")
    key = ArrayKey("part", key.type, positions_name(key.name))
    positions = arrays[key]
    size = part.splits.get(str(key.type), {}).get(key.name.removeprefix(positions_name("")), 0)
    check_ids(key, positions, positions.array, size, "")
    if (np.diff(positions.array) <= 0).any():
        raise unsound(key, positions, " does not rise")


def _check_edges(
    key: ArrayKey, schema: Schema, part: PartNote, arrays: Arrays, members: Members
) -> None:
    """Check that a part has attributes of the edges of its nodes, and of no others."""
    name, side = key.type, part.owning_side
    assert isinstance(name, tuple)
    group = TOPOLOGIES[side]
    if part.alone or ArrayKey(group, name, "indptr") not in arrays:
        return  # it has fewer edges than attributes, or rows of the other side only
    rows = topology_of(arrays, name, group)
    if part.topology == "whole":
        rows = rows_of_some(rows, _members(arrays, owner_of(name, side), schema).ids(), "int64")
    if not np.array_equal(np.sort(rows.edge_ids), members.ids()):
        raise unsound(key, arrays[key], f" does not agree with the edges that {part} has")
