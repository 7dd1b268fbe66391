"""Turns a graph of networkx into the arguments of `Graph.from_coo`.

Nodes are numbered in the order in which the graph has them. Attributes of nodes and edges become
arrays. Networkx is not imported here: only a program that has imported it can pass a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.graph import check
from penstock.graph.coo import CooArguments, times

Array: TypeAlias = npt.NDArray[Any]

_MASKS: Final = {f"{split}_mask": split for split in ("train", "val", "test")}


@dataclass(frozen=True, eq=False)
class _Rows:
    """The attributes of nodes or of edges, in order; `name_of` says which one stands where."""

    what: str
    rows: Sequence[Mapping[str, Any]]
    name_of: Callable[[int], str]

    def column(self, name: str) -> Array:
        """Return an attribute, a row for each; `ValueError` names the first that has no number."""
        lacking = next((place for place, row in enumerate(self.rows) if name not in row), None)
        if lacking is not None:
            raise ValueError(f"{self.what} {self.name_of(lacking)} has no attribute {name!r}")
        values = [row[name] for row in self.rows]
        array = _numbers(values)
        if array is not None:
            return array
        odd = next((place for place, each in enumerate(values) if _numbers(each) is None), None)
        if odd is None:
            raise ValueError(f"{self.what}s have {name!r} of different lengths")
        raise ValueError(
            f"{self.what} {self.name_of(odd)} has {values[odd]!r} as {name!r}, which is no number"
        )


def coo_arguments(graph: Any, node_attrs: Any, edge_attrs: Any, weight: str | None) -> CooArguments:
    """Return what a graph of networkx is for `Graph.from_coo`.

    Args:
        graph: The graph.
        node_attrs: Which attributes of nodes are wanted. None: all that are numbers.
        edge_attrs: Likewise of edges.
        weight: The attribute of edges that becomes `edge_weight`.
    """
    names = node_names(graph)
    ends, rows = _edges_of(graph, names)
    renamed = {} if weight is None else {weight: "edge_weight"}
    nodes = _Rows("node", [row for _, row in graph.nodes(data=True)], lambda at: repr(names[at]))
    edges = _Rows("edge", rows, lambda at: " -> ".join(repr(names[end]) for end in ends[:, at]))
    of_nodes = _columns(nodes, node_attrs, {})
    return CooArguments(
        edge_index=ends,
        num_nodes=len(names),
        node_ids=_ids(names),
        node_columns={},
        splits={
            split: of_nodes[mask]
            for mask, split in _MASKS.items()
            if mask in of_nodes and of_nodes[mask].dtype == bool
        },
        edge_columns={"edge_weight": None},
        node_attrs=of_nodes,
        edge_attrs=_columns(edges, edge_attrs, renamed),
        graph_attrs=None,
    )


def node_names(graph: Any) -> list[Hashable]:
    """Return what the user calls the nodes, in order; `ValueError` if it is no networkx graph."""
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed", "adjacency")):
        raise ValueError(
            f"graph is {type(graph).__module__}.{type(graph).__qualname__}; expected a graph of "
            "networkx: Graph, DiGraph, MultiGraph or MultiDiGraph"
        )
    return list(graph.nodes)


def _ids(names: list[Hashable]) -> Any:
    """Return names as ids of users; None if they are numbers already, or cannot be ids."""
    if names and all(isinstance(name, str) for name in names):
        return names
    if not all(_is_number(name) for name in names):
        return None
    numbers = np.array(names, np.int64)
    return None if np.array_equal(numbers, np.arange(len(names))) else numbers


def _is_number(name: Any) -> bool:
    """Return whether a name is an integer of 64 bits, of Python or of NumPy."""
    is_integer = isinstance(name, int | np.integer) and not isinstance(name, bool)
    return is_integer and -(1 << 63) <= name < 1 << 63


def _edges_of(graph: Any, names: list[Hashable]) -> tuple[Array, list[Mapping[str, Any]]]:
    """Return the ends of edges as positions, [2, edges], and their attributes."""
    number = {name: position for position, name in enumerate(names)}
    edges = list(graph.edges(data=True))
    pairs = np.array([(number[tail], number[head]) for tail, head, _ in edges], np.int64)
    ends, rows = pairs.reshape(-1, 2).T, [row for *_, row in edges]
    if graph.is_directed():
        return ends, rows
    # An edge leads both ways; a loop is one edge.
    two_way = np.flatnonzero(ends[0] != ends[1])
    back = [rows[position] for position in two_way]
    return np.concatenate([ends, ends[::-1, two_way]], axis=1), rows + back


def _columns(rows: _Rows, wanted: Any, renamed: Mapping[str, str]) -> dict[str, Array]:
    """Return arrays by name: those that are wanted, or all attributes that are numbers."""
    if wanted is None:
        return _all_columns(rows, renamed)
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise ValueError(
            f"{rows.what}_attrs is {wanted!r}; expected names of attributes as a list, or a "
            "mapping such as {'x': ['age', 'height']}"
        )
    if not isinstance(wanted, Mapping):
        wanted = {renamed.get(name, name): name for name in wanted}
    return {name: _beside(rows, given) for name, given in wanted.items()}


def _all_columns(rows: _Rows, renamed: Mapping[str, str]) -> dict[str, Array]:
    """Return the attributes that each one has as a number; warn of the others."""
    found: dict[str, Array] = {}
    left_out = []
    for name in dict.fromkeys(name for row in rows.rows for name in row):
        try:
            found[renamed.get(name, str(name))] = rows.column(name)
        except ValueError as error:
            left_out.append(f"{error}, so {name!r} is left out")
    if left_out:
        check.warn(f"{'; '.join(left_out)}. Say which are wanted: {rows.what}_attrs=[…]")
    return found


def _beside(rows: _Rows, given: str | Iterable[str]) -> Array:
    """Return one attribute as it is, and several side by side."""
    if isinstance(given, str):
        return rows.column(given)
    columns = [rows.column(name) for name in given]
    if not columns:
        raise ValueError(f"{rows.what}_attrs has an empty list of attributes")
    return np.concatenate([each.reshape(len(each), -1) for each in columns], axis=1)


def _numbers(value: Any) -> Array | None:
    """Return a value as an array of numbers, with dates as nanoseconds; None if it is no such."""
    try:
        array = np.asarray(value)
        return times("date", value).array if array.dtype.kind in "MO" else _plain(array)
    except (TypeError, ValueError):
        return None


def _plain(array: Array) -> Array | None:
    return array if array.dtype.kind in "biuf" else None
