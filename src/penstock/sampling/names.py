"""The names of a batch's arrays.

An array of a homogeneous batch has its attribute's name: "n_id", "x". An array of a type has the
type in front: "paper/x", "author,writes,paper/edge_index". Types and attributes may have any name,
so slashes, commas and per cent signs in them are escaped as in a URL ("%2F").
"""

from __future__ import annotations

import functools
from typing import Final, TypeAlias

from penstock.graph.schema import EdgeType

Owner: TypeAlias = str | EdgeType

_PLAIN: Final = {"%25": "%", "%2F": "/", "%2C": ","}
_ESCAPED: Final = str.maketrans({plain: escaped for escaped, plain in _PLAIN.items()})


# Cached because every array of every batch has such a name, and a graph has few of them.
@functools.lru_cache(maxsize=4096)
def qualified(owner: Owner, name: str) -> str:
    """Return the name in a batch of attribute `name` of a type; unnamed types add no prefix."""
    attribute = name.translate(_ESCAPED)
    return f"{type_name(owner)}/{attribute}" if any(owner) else attribute


def type_name(owner: Owner) -> str:
    """Return a type as text: "paper", "author,writes,paper"."""
    parts = (owner,) if isinstance(owner, str) else owner
    return ",".join(part.translate(_ESCAPED) for part in parts)


def parsed(name: str) -> tuple[Owner, str]:
    """Return the type ("" if none is named) and the attribute that `qualified` was given."""
    owner, _, attribute = name.rpartition("/")
    return parsed_type(owner), _unescaped(attribute)


def parsed_type(text: str) -> Owner:
    """Return the type that `type_name` was given."""
    parts = [_unescaped(part) for part in text.split(",")]
    if len(parts) == 3:
        return parts[0], parts[1], parts[2]
    if len(parts) == 1:
        return parts[0]
    raise ValueError(f"{text!r} names no type: a node type is one name, an edge type three")


def _unescaped(text: str) -> str:
    for escaped, plain in reversed(_PLAIN.items()):
        text = text.replace(escaped, plain)
    return text
