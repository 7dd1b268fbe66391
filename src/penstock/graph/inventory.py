"""Checks which arrays a schema requires, and of what shape.

Only dtypes and shapes are compared, never the contents of arrays: this runs whenever a graph is
opened, which must take milliseconds whatever its size.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final, Protocol, TypeVar

from penstock.graph.derived import DegreeSizes, derived_among, derived_of
from penstock.graph.schema import EDGE, NODE, ArrayKey, Schema

_Name = TypeVar("_Name", bound=Hashable)

INDEX_DTYPES: Final = ("int32", "int64")


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
    types = list(_disagreements_of_types(schema))
    if types:  # the other checks rely on sound types
        yield from types
        return
    yield from _missing(schema, arrays)
    sizes = _Sizes(schema)
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


def _missing(schema: Schema, arrays: Mapping[ArrayKey, Shaped]) -> Iterator[str]:
    for edge in schema.edges:
        for name in ("indptr", "adjacency"):
            csc = ArrayKey("csc", edge.name, name)
            if csc not in arrays:
                yield f"{key_text(csc)} is missing"
        csr = [ArrayKey("csr", edge.name, name) for name in ("indptr", "adjacency")]
        have = [key for key in csr if key in arrays]
        if len(have) == 1:
            yield f"{key_text(have[0])} is alone: a csr has both indptr and adjacency"
    for derived in derived_among(arrays):
        here = next(key for key in derived.keys if key in arrays)
        for key in (*derived.keys, *derived.sources):
            if key not in arrays:
                yield f"{key_text(here)} is alone: it needs {key_text(key)}, which there is not"


class _Sizes:
    """The counts of a schema by type, and the arrays they require."""

    def __init__(self, schema: Schema) -> None:
        self.nodes = {info.name: info.num_nodes for info in schema.nodes}
        self.edges = {info.name: info.num_edges for info in schema.edges}

    def disagreement(self, key: ArrayKey, array: Shaped) -> str | None:
        """Return what is wrong with `array` under `key`, or None."""
        match key.group, key.type:
            case "csc" | "csr", (str(src), str(_), str(dst)) if key.type in self.edges:
                owners = self.nodes[dst if key.group == "csc" else src]
                return _topology(key.name, array, owners, self.edges[src, key.type[1], dst])
            case "aid", tuple(name) if name in self.edges:
                return self._derived(key, array, self.edges[name])
            case "edge", tuple(name) if name in self.edges:
                return _rows(array, self.edges[name], "edge")
            case "node", str(name) if name in self.nodes:
                return _rows(array, self.nodes[name], "node")
            case "split", str(name) if name in self.nodes:
                return _ids(array)
            case "graph", name if name == NODE or name in self.nodes or name in self.edges:
                return None
        return f"there is no type {key.type!r} that could have it"

    def _derived(self, key: ArrayKey, array: Shaped, edges: int) -> str | None:
        if (derived := derived_of(key)) is None:
            return "no derived array is called so"
        count = self.nodes[derived.owner] if isinstance(derived, DegreeSizes) else edges
        dtypes, shape = derived.forms(count)[derived.keys.index(key)]
        fits = array.dtype in dtypes and array.shape == shape
        return None if fits else f"{' or '.join(dtypes)}, {list(shape)}, is needed"


def _topology(name: str, array: Shaped, owners: int, edges: int) -> str | None:
    if name == "indptr":
        fits = (array.dtype, array.shape) == ("int64", (owners + 1,))
        return None if fits else f"int64[{owners + 1}] is needed"
    if name == "adjacency":
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
