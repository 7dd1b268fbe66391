"""Checks which arrays a schema requires, and of what shape.

Only dtypes and shapes are compared, never the contents of arrays: this runs whenever a graph is
opened, which must take milliseconds whatever its size.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final, Protocol, TypeVar

import numpy as np

from penstock.graph.derived import (
    DegreeSizes,
    Form,
    NamedDerived,
    OwnRows,
    derived_among,
    derived_of,
)
from penstock.graph.dtypes import dtype_name
from penstock.graph.partition.book import part_dtype
from penstock.graph.schema import (
    BOOK,
    EDGE,
    FIRST_IDS,
    KEYS,
    MEMBERS,
    NODE,
    OFFSETS,
    SLOTS,
    TEXT,
    TOPOLOGIES,
    ArrayKey,
    EdgeType,
    Group,
    Schema,
    Side,
    owner_of,
    positions_name,
)
from penstock.kernels.id_table import slot_dtype, slots_needed
from penstock.kernels.members import WORD_BITS

_Name = TypeVar("_Name", bound=Hashable)

INDEX_DTYPES: Final = ("int32", "int64")
IDS: Final = (KEYS, OFFSETS, TEXT, SLOTS)
# Which arrays of ids a node type has, if it has any. The table may have to be made.
_KINDS_OF_IDS: Final = ([KEYS], [KEYS, SLOTS], [OFFSETS, TEXT], [OFFSETS, TEXT, SLOTS])


class Shaped(Protocol):
    """Anything that has the dtype and shape of an array."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


def key_text(key: ArrayKey) -> str:
    """Return the key in readable form: `node/paper/x`, `csc/author-writes-paper/indptr`."""
    return "/".join(part for part in (key.group, type_text(key.type), key.name) if part)


def type_text(name: str | tuple[str, ...]) -> str:
    """Return a type's name in readable form; "" for the unnamed type of a homogeneous graph."""
    return name if isinstance(name, str) else "-".join(name) if any(name) else ""


def repeated(names: Iterable[_Name]) -> Iterator[_Name]:
    """Yield the names that have occurred before."""
    seen: set[_Name] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)


def first_disagreement(schema: Schema, arrays: Mapping[ArrayKey, Shaped]) -> str | None:
    """Return a text on the first difference between the arrays and the schema, or None."""
    return next(_disagreements(schema, arrays), None)


def _disagreements(schema: Schema, arrays: Mapping[ArrayKey, Shaped]) -> Iterator[str]:
    types = [*_disagreements_of_types(schema), *_disagreements_of_part(schema)]
    if types:  # the other checks rely on sound types
        yield from types
        return
    yield from _missing(schema, arrays)
    yield from _disagreements_of_codecs(schema, arrays)
    sizes = _Sizes(schema, arrays)
    for key, array in arrays.items():
        if (wrong := sizes.disagreement(key, array)) is not None:
            found = f"{array.dtype}{list(array.shape)}"
            yield f"{key_text(key)} is {found}: {wrong}"


def _disagreements_of_types(schema: Schema) -> Iterator[str]:
    nodes = [info.name for info in schema.nodes]
    edges = [info.name for info in schema.edges]
    if not schema.is_hetero and (nodes != [NODE] or edges != [EDGE]):
        yield f"a homogeneous graph has one nameless type of each kind, not {nodes} and {edges}"
    yield from (f"node type {name!r} occurs twice" for name in repeated(nodes))
    yield from (f"edge type {name!r} occurs twice" for name in repeated(edges))
    for node in schema.nodes:
        if node.num_nodes < 0:
            yield f"node type {node.name!r} has {node.num_nodes} nodes"
    for edge in schema.edges:
        if edge.num_edges < 0:
            yield f"edge type {edge.name!r} has {edge.num_edges} edges"
        for end in (edge.name[0], edge.name[2]):
            if end not in nodes:
                yield f"edge type {edge.name!r} needs node type {end!r}, which there is not"


def _disagreements_of_part(schema: Schema) -> Iterator[str]:
    part = schema.part
    if part is None:
        return
    if not 0 <= part.number < part.of:
        yield f"part {part.number} of {part.of} is none there can be"
    for name, counts, infos in (
        ("num_nodes", part.num_nodes, schema.nodes),
        ("num_edges", part.num_edges, schema.edges),
        ("edges_cut", part.edges_cut, schema.edges),
    ):
        if len(counts) != len(infos) or min(counts, default=0) < 0:
            yield f"the part's {name} are {list(counts)}: one count per type is needed"
    for node in schema.nodes if part.method == "range" else ():
        bounds = part.bounds.get(node.name, ())
        rising = list(bounds) == sorted(bounds) and bounds[:1] == (0,)
        if not rising or len(bounds) != part.of + 1 or bounds[-1] != node.num_nodes:
            yield f"the part's bounds of {node.name!r} are {list(bounds)}: not those of its parts"


def _disagreements_of_codecs(schema: Schema, arrays: Mapping[ArrayKey, Shaped]) -> Iterator[str]:
    for key in repeated(each.key for each in schema.codecs):
        yield f"{key_text(key)} has two codecs"
    for each in schema.codecs:
        array = arrays.get(each.key)
        if each.key.group not in ("node", "edge"):
            yield f"{key_text(each.key)} has a codec, and is no attribute of nodes or edges"
        elif array is not None and (wrong := each.codec.disagreement(array.dtype, array.shape)):
            yield f"{key_text(each.key)} is {array.dtype}{list(array.shape)}: {wrong}"


def _missing(schema: Schema, arrays: Mapping[ArrayKey, Shaped]) -> Iterator[str]:
    for needed in _needed(schema, arrays):
        if needed not in arrays:
            yield f"{key_text(needed)} is missing"
    yield from _unnumbered(schema, arrays)
    yield from _unnamed(schema, arrays)
    for edge in schema.edges:
        csr = [ArrayKey("csr", edge.name, name) for name in ("indptr", "adjacency")]
        have = [key for key in csr if key in arrays]
        if len(have) == 1:
            yield f"{key_text(have[0])} is alone: a csr has both indptr and adjacency"
    for derived in derived_among(arrays):
        here = next(key for key in derived.keys if key in arrays)
        for key in (*derived.keys, *derived.sources):
            if key not in arrays:
                yield f"{key_text(here)} is alone: it needs {key_text(key)}, which there is not"


def _unnumbered(schema: Schema, arrays: Mapping[ArrayKey, Shaped]) -> Iterator[str]:
    """Check that the entries of a part have edge ids: beside them, or as `first_ids`, not both.

    In the only part of a graph, ids may be positions, as in the graph itself.
    """
    if schema.part is None or not schema.part.is_compact:
        return
    for edge in schema.edges:
        for side in schema.part.sides:
            key = ArrayKey(TOPOLOGIES[side], edge.name, "adjacency")
            first_ids = ArrayKey(TOPOLOGIES[side], edge.name, FIRST_IDS)
            is_bare = key in arrays and len(arrays[key].shape) == 1
            may_lack = schema.part.of == 1 and first_ids not in arrays
            if key in arrays and is_bare != (first_ids in arrays) and not may_lack:
                here = "is there" if first_ids in arrays else "is missing"
                form = list(arrays[key].shape)
                yield f"{key_text(first_ids)} {here}, and {key_text(key)} has the shape {form}"


def _unnamed(schema: Schema, arrays: Mapping[ArrayKey, Shaped]) -> Iterator[str]:
    """Check that ids are numbers or text, all of it, where there are some."""
    for node in schema.nodes:
        here = [name for name in IDS if ArrayKey("ids", node.name, name) in arrays]
        if here and here not in _KINDS_OF_IDS:
            first = key_text(ArrayKey("ids", node.name, here[0]))
            others = " and ".join(here[1:]) or "nothing else"
            yield (
                f"{first} is there with {others}: ids are {KEYS}, or {OFFSETS} and {TEXT}, and may "
                f"have {SLOTS}"
            )


def _needed(schema: Schema, arrays: Iterable[ArrayKey]) -> Iterator[ArrayKey]:
    """Yield the keys of the arrays that every graph of this schema has."""
    part = schema.part
    groups: list[Group] = ["csc"]
    if part is not None and part.is_compact:
        groups = [TOPOLOGIES[side] for side in part.sides]
    for edge in schema.edges:
        for group in groups:
            yield from (ArrayKey(group, edge.name, name) for name in ("indptr", "adjacency"))
    if part is None:
        return
    for node in schema.nodes:
        yield ArrayKey("part", node.name, MEMBERS)
        if part.method == "given":
            yield ArrayKey("part", node.name, BOOK)
    for key in arrays:
        if key.group == "edge":
            yield ArrayKey("part", key.type, MEMBERS)
        if key.group == "split":
            yield ArrayKey("part", key.type, positions_name(key.name))


class _Sizes:
    """The counts of a schema by type, and the arrays they require."""

    def __init__(self, schema: Schema, arrays: Mapping[ArrayKey, Shaped]) -> None:
        self.nodes = {info.name: info.num_nodes for info in schema.nodes}
        self.edges = {info.name: info.num_edges for info in schema.edges}
        self.part = schema.part
        self.arrays = arrays
        # The nodes and edges whose attributes are here.
        self.own_nodes, self.own_edges = self.nodes, self.edges
        if self.part is not None:
            self.own_nodes = dict(zip(self.nodes, self.part.num_nodes, strict=True))
            self.own_edges = dict(zip(self.edges, self.part.num_edges, strict=True))

    def disagreement(self, key: ArrayKey, array: Shaped) -> str | None:
        """Return what is wrong with `array` under `key`, or None."""
        match key.group, key.type:
            case "csc", tuple(name) if name in self.edges and key.name == FIRST_IDS:
                return self._first_ids(name, array)
            case "csc" | "csr", tuple(name) if name in self.edges:
                side: Side = "in" if key.group == "csc" else "out"
                return _topology(key.name, array, self._rows(name, side), self._size(name, side))
            case "aid", tuple(name) if name in self.edges:
                return self._derived(key, array)
            case "edge", tuple(name) if name in self.edges:
                return _rows(array, self.own_edges[name], "edge")
            case "node", str(name) if name in self.nodes:
                return _rows(array, self.own_nodes[name], "node")
            case "split", str(name) if name in self.nodes:
                return _ids(array)
            case "ids", str(name) if name in self.nodes and key.name in IDS:
                return _of_ids(key.name, array, self.own_nodes[name])
            case "part", name if self.part is not None and self._total(name) is not None:
                return self._of_part(key, array)
            case "graph", name if name == NODE or name in self.nodes or name in self.edges:
                return None
        return f"there is no type {key.type!r} that could have it"

    def _total(self, name: str | EdgeType) -> int | None:
        return self.nodes.get(name) if isinstance(name, str) else self.edges.get(name)

    def _rows(self, name: EdgeType, side: Side) -> int:
        """Return how many rows the topology of one side has."""
        counts = self.own_nodes if self.part is not None and self.part.is_compact else self.nodes
        return counts[owner_of(name, side)]

    def _size(self, name: EdgeType, side: Side) -> int | None:
        """Return how many edges the rows of one side have in all; None if the schema cannot say."""
        if self.part is None or (self.part.topology == "whole" and not self.part.alone):
            return self.edges[name]
        within = self.part.alone and self.part.edges_cut[list(self.edges).index(name)]
        if self.part.alone or side == self.part.owning_side:
            return self.own_edges[name] - within
        return None

    def _first_ids(self, name: EdgeType, array: Shaped) -> str | None:
        if self.part is None or not self.part.is_compact:
            return "only rows of a part have first_ids"
        rows = self._rows(name, "in")
        fits = array.dtype in INDEX_DTYPES and array.shape == (rows,)
        return None if fits else f"int32 or int64, [{rows}], is needed"

    def _derived(self, key: ArrayKey, array: Shaped) -> str | None:
        if (derived := derived_of(key)) is None:
            return "no derived array is called so"
        dtypes, shape = self._forms(derived)[derived.keys.index(key)]
        fits = array.dtype in dtypes and array.shape == shape
        return None if fits else f"{' or '.join(dtypes)}, {list(shape)}, is needed"

    def _forms(self, derived: NamedDerived) -> tuple[Form, ...]:
        name, side = derived.edge_type, derived.side
        if isinstance(derived, DegreeSizes):
            return derived.forms(self._rows(name, side))
        if isinstance(derived, OwnRows):
            return derived.forms(self.own_edges[name], self.own_nodes[owner_of(name, side)])
        counted = self._size(name, side)
        if derived.of_own_rows and self.part is not None and not self.part.alone:
            counted = self.own_edges[name]
        if counted is None:  # as many as the rows have that it belongs to
            adjacency = self.arrays.get(ArrayKey(TOPOLOGIES[side], name, "adjacency"))
            counted = 0 if adjacency is None else adjacency.shape[0]
        return derived.forms(counted)

    def _of_part(self, key: ArrayKey, array: Shaped) -> str | None:
        assert self.part is not None
        found = (array.dtype, array.shape)
        total = self._total(key.type) or 0
        if key.name == MEMBERS:
            words = -(-total // WORD_BITS)
            return None if found == ("int64", (words, 2)) else f"int64[{words}, 2] is needed"
        if key.name == BOOK and key.type in self.nodes:
            dtype = dtype_name(np.dtype(part_dtype(self.part.of)))
            return None if found == (dtype, (total,)) else f"{dtype}[{total}] is needed"
        for split, owned in self.arrays.items():
            is_of_split = split.group == "split" and key.type == split.type
            if is_of_split and key.name == positions_name(split.name):
                return _positions(array, owned)
        return "a part has no array that is called so"


def _of_ids(name: str, array: Shaped, count: int) -> str | None:
    if name == TEXT:
        fits = array.dtype == "uint8" and len(array.shape) == 1
        return None if fits else "uint8, [bytes], is needed"
    dtype, size = "int64", count + (name == OFFSETS)
    if name == SLOTS:
        dtype, size = dtype_name(slot_dtype(count)), slots_needed(count)
    fits = (array.dtype, array.shape) == (dtype, (size,))
    return None if fits else f"{dtype}[{size}] is needed"


def _positions(array: Shaped, split: Shaped) -> str | None:
    if array.dtype in INDEX_DTYPES and array.shape == split.shape:
        return None
    return f"int32 or int64, {list(split.shape)}, is needed, one for each node of the split"


def _topology(name: str, array: Shaped, owners: int, edges: int | None) -> str | None:
    if name == "indptr":
        fits = (array.dtype, array.shape) == ("int64", (owners + 1,))
        return None if fits else f"int64[{owners + 1}] is needed"
    if name == "adjacency":
        if edges is None:  # its indptr says how many there are
            fits = array.dtype in INDEX_DTYPES and array.shape[1:] == (2,)
            return None if fits else "int32 or int64, [edges, 2], is needed"
        fits = array.dtype in INDEX_DTYPES and array.shape in ((edges,), (edges, 2))
        return None if fits else f"int32 or int64, [{edges}] or [{edges}, 2], is needed"
    return "a topology has indptr and adjacency only"


def _rows(array: Shaped, count: int, owner: str) -> str | None:
    if array.shape[:1] == (count,):
        return None
    return f"it needs one row per {owner}, {count} in all"


def _ids(array: Shaped) -> str | None:
    if array.dtype in INDEX_DTYPES and len(array.shape) == 1:
        return None
    return "a split is a list of ids, int32 or int64"
