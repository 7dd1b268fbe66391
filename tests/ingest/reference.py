"""A build in plain Python, of lists and dictionaries: what builds of tables are held to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

Id: TypeAlias = int | str | None


class RefusedError(Exception):
    """A build that must end in an error."""


@dataclass
class Shop:
    """Tables as lists, and what is said of them.

    Attributes:
        is_hetero: Whether targets are nodes of another type than sources, without a table.
        ids: Of the table of sources; None if there is none.
        edges: Sources and targets.
        words: What is said: on_missing of nodes and of edges, reverse, duplicates, self_loops.
    """

    is_hetero: bool
    ids: list[Id] | None
    edges: list[tuple[Id, Id]]
    words: dict[str, Any] = field(default_factory=dict)


@dataclass
class Expected:
    """What becomes of a shop.

    Attributes:
        sources: The numbers of sources by their ids, in order.
        targets: Likewise; the same if there is one type.
        rows: Which rows of the table are nodes.
        edges: Source, target and row of all that are edges or links.
    """

    sources: dict[Id, int] = field(default_factory=dict)
    targets: dict[Id, int] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)
    edges: list[tuple[int, int, int]] = field(default_factory=list)


def expected_of(shop: Shop) -> Expected:
    """Return what becomes of a shop.

    Raises:
        RefusedError: There is something that was to be refused.
    """
    found = Expected()
    if not shop.is_hetero:
        found.targets = found.sources
    _number(shop, found)
    for row, (source, target) in enumerate(shop.edges):
        if source not in found.sources or target not in found.targets:
            _refuse_if(shop.words["missing_ends"] == "raise")
        elif not shop.is_hetero and source == target and shop.words["self_loops"] != "keep":
            _refuse_if(shop.words["self_loops"] == "refuse")
        else:
            found.edges.append((found.sources[source], found.targets[target], row))
    if shop.words["duplicates"] != "keep":
        _leave_out_duplicates(shop, found)
    return found


def _number(shop: Shop, found: Expected) -> None:
    for row, each in enumerate(shop.ids or ()):
        if each is None or each in found.sources:
            _refuse_if(shop.words["missing_ids"] == "raise")
        else:
            found.sources[each] = len(found.sources)
            found.rows.append(row)
    for source, target in shop.edges:
        is_named = shop.ids is None and source is not None
        if is_named and (shop.is_hetero or target is not None):
            found.sources.setdefault(source, len(found.sources))
        if target is not None and (shop.is_hetero or (is_named and source is not None)):
            found.targets.setdefault(target, len(found.targets))


def _leave_out_duplicates(shop: Shop, found: Expected) -> None:
    first: dict[Any, tuple[int, int, int]] = {}
    for edge in found.edges:
        ends = edge[:2]
        both_ways = shop.words["reverse"] and not shop.is_hetero
        first.setdefault(tuple(sorted(ends)) if both_ways else ends, edge)
    _refuse_if(shop.words["duplicates"] == "refuse" and len(first) < len(found.edges))
    found.edges = list(first.values())


def _refuse_if(wrong: bool) -> None:
    if wrong:
        raise RefusedError
