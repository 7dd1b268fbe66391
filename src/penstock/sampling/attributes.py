"""Which attributes go with a batch: names in a spec become rows to gather, each with a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from penstock.graph import Graph
from penstock.graph.shared import SharedArray
from penstock.kernels.arrays import Array
from penstock.sampling.names import Owner, qualified
from penstock.sampling.spec import Taking

# What a batch itself consists of. An attribute of such a name would be taken for it.
OWN_NAMES: Final = frozenset({"n_id", "e_id", "edge_index", "input_id"})


@dataclass(frozen=True)
class Column:
    """An attribute and its owner's number; gathered by the ids of that owner.

    Whoever only checks a spec does not look at the rows, which may be elsewhere.
    """

    name: str
    owner: int
    kept: SharedArray

    @property
    def dtype(self) -> str:
        """What the elements are."""
        return self.kept.dtype

    @cached_property
    def rows(self) -> Array:
        """The attribute itself."""
        return self.kept.array

    def shape(self, count: int) -> tuple[int, ...]:
        """The shape of `count` rows."""
        return (count, *self.kept.shape[1:])


def columns_of(
    graph: Graph, spec: Taking, own: Set[str] = frozenset()
) -> tuple[list[Column], list[Column]]:
    """The attributes of nodes and of edges that a spec asks for, wherever the graph has them.

    Where it asks for all, those are left out whose names mean something else in a batch: in every
    one, or in those of a kind (`own`).
    """
    own = OWN_NAMES | own
    nodes = _chosen(
        "node_attributes",
        spec.node_attributes,
        own,
        [(owner, graph.node_attributes(owner)) for owner in graph.node_types],
    )
    edges = _chosen(
        "edge_attributes",
        spec.edge_attributes,
        own,
        [(kind, graph.edge_attributes(kind)) for kind in graph.edge_types],
    )
    _check_apart(nodes, edges)
    return nodes, edges


def _chosen(
    argument: str,
    names: Sequence[str] | None,
    own: Set[str],
    found: Sequence[tuple[Owner, Mapping[str, SharedArray]]],
) -> list[Column]:
    _check_known(argument, names or (), own, {name for _, there in found for name in there})
    return [
        Column(qualified(owner, name), number, array)
        for number, (owner, there) in enumerate(found)
        for name, array in there.items()
        if (name not in own if names is None else name in names)
    ]


def _check_known(argument: str, names: Iterable[str], own: Set[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            there = ", ".join(map(repr, sorted(known))) or "none"
            raise ValueError(f"{argument} names {name!r}, which the graph has not; it has: {there}")
        if name in own:
            raise ValueError(f"{argument} names {name!r}, which means something else in a batch")


def _check_apart(nodes: Iterable[Column], edges: Iterable[Column]) -> None:
    """A homogeneous batch has one name for each thing, be it of nodes or of edges."""
    names = {column.name for column in nodes}
    for column in edges:
        if column.name in names:
            raise ValueError(
                f"nodes and edges both have an attribute {column.name!r}, and a batch can have "
                "only one of that name: choose with node_attributes and edge_attributes"
            )
