"""Turns the arguments of `Graph.from_coo` (edge lists) into a draft.

Each argument is a single value (a homogeneous graph) or one value per type (a heterogeneous one: a
mapping, or pairs of type and value). Both become a list of `TypedArgument`, each with the label
that names it in an error: `x`, `x['paper']`, `edge_attrs[('user', 'rates', 'film')]['stars']`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.graph import check
from penstock.graph.draft import Draft
from penstock.graph.schema import EDGE, NODE, ArrayKey, EdgeType
from penstock.graph.shared import SharedArray
from penstock.graph.tensors import PlainArray, as_numpy, is_sparse, is_tensor, plain

# The attribute name (PyG's) under which an argument is stored, where the two differ.
_STORED_AS: Final = {"node_time": "time"}

# Keyed by attribute, so that it does not matter which argument gave it.
_CHECKS: Final[dict[tuple[str, str], Callable[[PlainArray], None]]] = {
    ("edge", "edge_weight"): check.weights,
    ("node", "time"): check.times,
    ("edge", "edge_time"): check.times,
}


class TypedArgument(NamedTuple):
    """A value for one type, and the label that names it in errors."""

    type: Any
    label: str
    value: Any


class CooArguments(NamedTuple):
    """The arguments of `Graph.from_coo`, grouped by what they mean."""

    edge_index: Any
    num_nodes: Any
    node_ids: Any
    node_columns: Mapping[str, Any]
    splits: Mapping[str, Any]
    edge_columns: Mapping[str, Any]
    node_attrs: Any
    edge_attrs: Any
    graph_attrs: Mapping[str, Any] | None


def draft_from_coo(given: CooArguments) -> Draft:
    """Return the draft of the graph that the arguments describe."""
    if given.edge_index is None:
        raise ValueError("edge_index is missing; a graph without edges has an empty one, [2, 0]")
    draft = Draft(is_hetero=_is_typed(given.edge_index))
    _add_nodes(draft, given)
    _add_edges(draft, given)
    for name, value in _items("graph_attrs", given.graph_attrs):
        draft.add_attribute("", name, f"graph_attrs[{name!r}]", value)
    return draft


def _add_nodes(draft: Draft, given: CooArguments) -> None:
    if not draft.is_hetero:
        draft.mention(NODE)
    for node_type, label, count in _per_node_type(draft, "num_nodes", given.num_nodes):
        draft.add_count(node_type, label, count)
    for node_type, label, ids in _per_node_type(draft, "node_ids", given.node_ids):
        if given.num_nodes is None:
            draft.mention(node_type)
        draft.add_ids(node_type, label, ids)
    for key, label, column in _node_columns(draft, given):
        # Where `num_nodes` is given it lists all node types, so any other name is a mistake.
        if given.num_nodes is None:
            draft.mention(str(key.type))
        _add_column(draft, key, label, column)
    for split, value in given.splits.items():
        for node_type, label, nodes in _per_node_type(draft, split, value):
            draft.add_split(node_type, split, label, nodes)


def _node_columns(draft: Draft, given: CooArguments) -> Iterator[tuple[ArrayKey, str, Any]]:
    for argument, value in given.node_columns.items():
        for node_type, label, column in _per_node_type(draft, argument, value):
            name = _STORED_AS.get(argument, argument)
            yield ArrayKey("node", node_type, name), label, column
    for node_type, label, columns in _per_node_type(draft, "node_attrs", given.node_attrs):
        for name, column in _items(label, columns):
            yield ArrayKey("node", node_type, name), f"{label}[{name!r}]", column


def _add_edges(draft: Draft, given: CooArguments) -> None:
    for edge_type, label, edges in _per_edge_type(draft, "edge_index", given.edge_index):
        draft.mention(edge_type[0])
        draft.mention(edge_type[2])
        draft.add_edges(edge_type, label, edges)
    weighted = given.edge_columns["edge_weight"]
    for edge_type, values in draft.matrix_weights.items() if weighted is None else ():
        _add_column(draft, ArrayKey("edge", edge_type, "edge_weight"), values.label, values.array)
    for argument, value in given.edge_columns.items():
        for edge_type, label, column in _per_edge_type(draft, argument, value):
            _add_column(draft, ArrayKey("edge", edge_type, argument), label, column)
    for edge_type, label, columns in _per_edge_type(draft, "edge_attrs", given.edge_attrs):
        for name, column in _items(label, columns):
            key = ArrayKey("edge", edge_type, name)
            _add_column(draft, key, f"{label}[{name!r}]", column)


def _add_column(draft: Draft, key: ArrayKey, label: str, value: Any) -> None:
    if value is None:
        return
    complain = _CHECKS.get((key.group, key.name))
    column = times(label, value) if complain is check.times else plain(label, value)
    draft.add_column(key, column)
    if complain is not None:
        complain(column)


def times(label: str, value: Any) -> PlainArray:
    """Return `value` as `plain` does, with dates as nanoseconds since 1970, in UTC.

    Dates are NumPy's, Python's with or without a time zone, or of a library (pandas) whose arrays
    NumPy turns into either.
    """
    if not (is_tensor(value) or is_sparse(value) or isinstance(value, SharedArray)):
        dates = _dates(value)
        if dates is None:
            value = as_numpy(label, value)
        else:
            value = (check.moments if dates.dtype == object else check.nanoseconds)(label, dates)
    return plain(label, value)


def are_dates(value: Any) -> bool:
    """Return whether a value is an array or a list of dates."""
    if is_tensor(value) or is_sparse(value) or isinstance(value, SharedArray | str):
        return False
    return _dates(value) is not None


def _dates(value: Any) -> npt.NDArray[Any] | None:
    """Return dates as NumPy's, or Python's as objects; None if the value is anything else."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return None
    if array.dtype.kind == "M":
        return array
    is_dated = array.dtype == object and array.ndim == 1 and len(array) > 0
    return array if is_dated and all(isinstance(each, date) for each in array) else None


def _per_node_type(draft: Draft, argument: str, value: Any) -> Iterator[TypedArgument]:
    """Yield what was given for each node type."""
    yield from _per_type(draft, argument, value, NODE, check.node_type)


def _per_edge_type(draft: Draft, argument: str, value: Any) -> Iterator[TypedArgument]:
    """Yield what was given for each edge type; every such type must have edges."""
    for given in _per_type(draft, argument, value, EDGE, check.edge_type):
        if argument != "edge_index" and given.type not in draft.edges:
            raise ValueError(f"{given.label} is given, but edge_index has no such type")
        yield given


def _per_type(
    draft: Draft,
    argument: str,
    value: Any,
    nameless: str | EdgeType,
    checked: Callable[[str, object], str | EdgeType],
) -> Iterator[TypedArgument]:
    if value is None:
        return
    if not draft.is_hetero:
        yield TypedArgument(nameless, argument, _untyped(argument, value))
        return
    seen = set()
    for given_type, part in _pairs(argument, value):
        name = checked(argument, given_type)
        if name in seen:
            raise ValueError(f"{argument} has the type {name!r} twice")
        seen.add(name)
        yield TypedArgument(name, f"{argument}[{name!r}]", part)


def _untyped(argument: str, value: Any) -> Any:
    by_name = argument in ("node_attrs", "edge_attrs")
    if isinstance(value, Mapping) and (not by_name or _has_types(value)):
        raise ValueError(
            f"{argument} has types, but the graph is homogeneous: edge_index is one array; "
            "give edge_index by edge type too"
        )
    return value


def _has_types(value: Mapping[Any, Any]) -> bool:
    return any(isinstance(key, tuple) or isinstance(part, Mapping) for key, part in value.items())


def _is_typed(edge_index: Any) -> bool:
    """Return whether edges are given by type: as a mapping, or as pairs of type and edges."""
    if isinstance(edge_index, Mapping):
        return True
    if not isinstance(edge_index, list | tuple) or not edge_index:
        return False
    return all(_is_pair(item) and isinstance(item[0], tuple | str) for item in edge_index)


def _is_pair(item: Any) -> bool:
    return isinstance(item, list | tuple) and len(item) == 2


def _pairs(argument: str, value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple) and all(map(_is_pair, value)):
        return [(name, part) for name, part in value]
    raise ValueError(
        f"{argument} is {type(value).__qualname__}; expected a mapping by type, or pairs of type "
        "and value, because edge_index is given by type"
    )


def _items(label: str, value: Any) -> list[tuple[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise ValueError(f"{label} is {type(value).__qualname__}; expected a mapping by name")
    return [(check.attribute_name(label, name), part) for name, part in value.items()]
