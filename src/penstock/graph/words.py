"""How a graph is spoken of: in a few lines, and in complaints about names it does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from penstock.graph.schema import EDGE, NODE, Arrays, EdgeType, Schema
from penstock.graph.shared import SharedArray

_Name = TypeVar("_Name", str, EdgeType)


def summary(schema: Schema, arrays: Arrays) -> str:
    """Types, sizes and attributes: a line, or one for each type."""
    if not schema.is_hetero:
        sizes = f"num_nodes={schema.nodes[0].num_nodes}, num_edges={schema.edges[0].num_edges}"
        return f"Graph({', '.join([sizes, *_words(arrays, NODE), *_words(arrays, EDGE)])})"
    types: dict[str | EdgeType, str] = {}
    types.update((node.name, f"{node.num_nodes} nodes") for node in schema.nodes)
    types.update((edge.name, f"{edge.num_edges} edges") for edge in schema.edges)
    lines = (
        ", ".join([f"  {name!r}: {size}", *_words(arrays, name)]) for name, size in types.items()
    )
    return "\n".join(["Graph(", *lines, ")"])


def known(argument: str, name: Any, there: Mapping[_Name, int]) -> _Name:
    """The type that is meant, or a complaint that lists those there are."""
    try:
        if name in there:
            return name  # type: ignore[no-any-return]
    except TypeError:  # not even hashable
        pass
    said = "missing" if name is None else repr(name)
    listed = ", ".join(map(repr, there)) if any(map(any, there)) else "no types"
    raise ValueError(f"{argument} is {said}; this graph has {listed}")


def pick(
    what: str, name: str, owner: str | EdgeType | None, there: Mapping[str, SharedArray]
) -> SharedArray:
    """The array of this name, or a complaint that lists those its owner has."""
    if name not in there:
        of = f" of {owner!r}" if owner and any(owner) else ""
        listed = ", ".join(map(repr, there)) or "none"
        raise ValueError(f"there is no {what}{of} called {name!r}; there are: {listed}")
    return there[name]


def _words(arrays: Arrays, owner: str | EdgeType) -> Iterator[str]:
    for key, array in arrays.items():
        if key.type == owner and key.group in ("node", "edge"):
            yield f"{key.name}={array.dtype}{list(array.shape)}"
        elif key.type == owner and key.group == "split":
            yield f"{key.name}={array.shape[0]}"
