"""Looks up types and arrays of a graph by name; an unknown name is a `ValueError`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from penstock.errors import suggestion
from penstock.graph.schema import EdgeType

_Name = TypeVar("_Name", str, EdgeType)
_T = TypeVar("_T")


def known(argument: str, name: Any, there: Mapping[_Name, int]) -> _Name:
    """Return the type of this name, or raise an error that lists those that exist."""
    try:
        if name in there:
            return name  # type: ignore[no-any-return]
    except TypeError:  # not even hashable
        pass
    said = "missing" if name is None else repr(name)
    listed = ", ".join(map(repr, there)) if any(map(any, there)) else "no types"
    raise ValueError(f"{argument} is {said}; this graph has {listed}{suggestion(name, there)}")


def pick(what: str, name: str, owner: str | EdgeType | None, there: Mapping[str, _T]) -> _T:
    """Return the array of this name, or raise an error that lists those that its owner has."""
    if name not in there:
        of = f" of {owner!r}" if owner and any(owner) else ""
        listed = ", ".join(map(repr, there)) or "none"
        near = suggestion(name, there)
        raise ValueError(f"there is no {what}{of} called {name!r}; there are: {listed}{near}")
    return there[name]
