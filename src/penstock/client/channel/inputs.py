"""Where an epoch's inputs come from: given ids, a split by its name, or all nodes or edges.

Given arrays are copied into one segment of shared memory, so that workers can map it. A split of
the graph or the list of its edges is in shared memory already, and is not copied if this process
can pass that memory on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.graph import check
from penstock.graph.coo import times
from penstock.graph.dtypes import dtype_name
from penstock.graph.layout import layout
from penstock.graph.schema import EDGE, EdgeType
from penstock.graph.segment import Segment
from penstock.graph.shared import SharedArray
from penstock.graph.sharing import can_be_handed_on
from penstock.graph.tensors import floats, plain
from penstock.graph.user_ids import are_user_ids
from penstock.graph.view import GraphView, OwnIds
from penstock.sampling.inputs import ChannelInputs
from penstock.sampling.kinds import InputKind, kind_of
from penstock.sampling.spec import Spec

Arrays = Mapping[str, SharedArray]
_EDGES: Final = (
    "the inputs of this spec are edges, and splits are of nodes: expected the ends of edges, "
    "[2, n], or None for all"
)


@dataclass(frozen=True)
class Inputs:
    """The inputs of a channel: `num` nodes or edges of a type.

    Attributes:
        ids: The ids; None for all nodes of the type, in order.
        columns: As in `Feed`.
        tables: As in `Feed`.
        copied: The segment was made for these inputs; otherwise the ids are the graph's own.
        is_away: The graph is at a server, which looks up the ids: of a `split`, or all.
        groups: As in `Feed`.
    """

    num: int
    node_type: str | None
    ids: SharedArray | None
    edge_type: EdgeType | None = None
    columns: Arrays = field(default_factory=dict)
    tables: Arrays = field(default_factory=dict)
    copied: bool = False
    is_away: bool = False
    split: str | None = None
    groups: tuple[int, ...] = ()

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that must be sent with the handles."""
        return () if (segment := self._segment) is None else segment.descriptors

    def handles(self) -> dict[str, Any]:
        """Return the fields that these inputs contribute to the `Feed`."""
        return {
            "num_inputs": self.num,
            "node_type": self.node_type,
            "edge_type": self.edge_type,
            "ids": None if self.ids is None else self.ids.handle,
            "columns": {name: column.handle for name, column in self.columns.items()},
            "tables": {name: table.handle for name, table in self.tables.items()},
            "groups": self.groups,
        }

    def given(self) -> ChannelInputs:
        """Return the arrays themselves."""
        return ChannelInputs(
            None if self.ids is None else self.ids.array,
            {name: column.array for name, column in self.columns.items()},
            {name: table.array for name, table in self.tables.items()},
        )

    def close(self) -> None:
        """Release the segment, if it was made for these inputs."""
        if self.copied and (segment := self._segment) is not None:
            segment.close()

    @property
    def _segment(self) -> Segment | None:
        arrays = [self.ids, *self.columns.values(), *self.tables.values()]
        return next((array.segment for array in arrays if array is not None), None)


def inputs_of(
    graph: GraphView,
    given: Any,
    kind: InputKind = InputKind.NODE,
    columns: Mapping[str, Any] | None = None,
    tables: Mapping[str, Any] | None = None,
) -> Inputs:
    """Return the inputs that a user gave.

    Args:
        graph: The graph that they refer to.
        given: Nodes: ids, a mask, the name of a split, None for all, or (node type, any of these).
            Ids are numbers, or users' ids: a list of strings, and what `penstock.ids` marks. Edges:
            their ends [2, n], None for all, (edge type, either of these), or the type alone.
        kind: Whether the inputs are nodes or edges.
        columns: Arrays with a row for each input.
        tables: Arrays that belong to all inputs.
    """
    wanted = _edges(graph, given) if kind is InputKind.LINK else _nodes(graph, given)
    more = {
        **{("columns", name): column_of(name, value) for name, value in (columns or {}).items()},
        **{
            ("tables", name): plain(f"tables[{name!r}]", value).array
            for name, value in (tables or {}).items()
        },
    }
    ids = wanted.ids
    if ids is None and not more:
        return wanted.inputs(None)
    if isinstance(ids, SharedArray) and not more and can_be_handed_on(ids.segment):
        return wanted.inputs(ids)
    arrays: dict[Any, npt.NDArray[Any]] = dict(more)
    if ids is not None:
        arrays["ids"] = ids.array if isinstance(ids, SharedArray) else ids
    shared = together(arrays)
    return replace(
        wanted.inputs(shared.get("ids")),
        columns={name: shared["columns", name] for name in columns or {}},
        tables={name: shared["tables", name] for name in tables or {}},
        copied=True,
    )


def warn_of_a_mask(graph: GraphView, given: Any) -> None:
    """Warn if a user gave a mask of integers for nodes, which is read as ids."""
    node_type, wanted = _apart(given)
    if isinstance(wanted, list | np.ndarray) and np.ndim(wanted) == 1:
        ids = np.asarray(wanted)
        check.warn_of_a_mask("sampler_input", ids, graph.end_of_ids(_named(graph, node_type)))


@dataclass(frozen=True)
class _Wanted:
    """Inputs before it is decided where they are stored."""

    num: int
    ids: SharedArray | npt.NDArray[Any] | None
    node_type: str | None = None
    edge_type: EdgeType | None = None
    is_away: bool = False
    split: str | None = None

    @classmethod
    def own(cls, ids: OwnIds, **types: Any) -> _Wanted:
        """Return inputs that the graph knows by itself."""
        return cls(ids.num, ids.array, is_away=ids.is_away, split=ids.split, **types)

    def inputs(self, ids: SharedArray | None) -> Inputs:
        """Return these inputs with their ids in shared memory."""
        return Inputs(
            self.num,
            self.node_type,
            ids,
            self.edge_type,
            is_away=self.is_away,
            split=self.split,
        )


def _nodes(graph: GraphView, given: Any) -> _Wanted:
    node_type, wanted = _apart(given)
    name = _named(graph, node_type)
    if wanted is None:
        return _Wanted.own(graph.own_nodes(name), node_type=node_type)
    if isinstance(wanted, str):
        return _Wanted.own(graph.own_split(wanted, node_type), node_type=node_type)
    if are_user_ids(wanted):
        wanted = graph.numbers(name, wanted, "sampler_input")
    ids = _checked(wanted, graph.end_of_ids(name))
    graph.check_nodes(name, ids, "sampler_input")
    return _Wanted(len(ids), ids, node_type)


def _edges(graph: GraphView, given: Any) -> _Wanted:
    if isinstance(given, str):
        raise ValueError(f"sampler_input is {given!r}; {_EDGES}")
    edge_type, wanted = _type_apart(graph, given)
    if isinstance(wanted, str):
        raise ValueError(f"sampler_input[1] is {wanted!r}; {_EDGES}")
    if wanted is None:
        return _Wanted.own(graph.own_edges(edge_type), edge_type=edge_type)
    named = numbers_of_ends(graph, (edge_type[0], edge_type[2]), wanted, "sampler_input")
    ends = np.asarray(wanted) if named is None else named
    if ends.ndim != 2 or len(ends) != 2:
        raise ValueError(f"sampler_input has shape {list(ends.shape)}; expected edges, [2, n]")
    if ends.dtype == np.bool_:
        raise ValueError("sampler_input has dtype bool; expected the ends of edges, integers")
    sizes = graph.end_of_ids(edge_type[0]), graph.end_of_ids(edge_type[2])
    rows = [_checked(ends[row], size, f"sampler_input[{row}]") for row, size in enumerate(sizes)]
    for row, node_type in enumerate((edge_type[0], edge_type[2])):
        graph.check_nodes(node_type, rows[row], f"sampler_input[{row}]")
    return _Wanted(ends.shape[1], np.stack(rows), edge_type=edge_type)


def numbers_of_ends(
    graph: GraphView, ends: tuple[str, str], given: Any, label: str
) -> npt.NDArray[np.int64] | None:
    """Return the ends of edges, [2, n], that were given in users' ids; None if they were not.

    Args:
        graph: The graph.
        ends: The node types of the ends.
        given: What was given: two rows.
        label: The argument's name.
    """
    if not isinstance(given, list | tuple | np.ndarray) or len(given) != 2:
        return None
    if not any(map(are_user_ids, given)):
        return None
    rows = [
        graph.numbers(end or None, row, f"{label}[{number}]") if are_user_ids(row) else row
        for number, (end, row) in enumerate(zip(ends, given, strict=True))
    ]
    if len(rows[0]) != len(rows[1]):
        raise ValueError(f"{label} has {len(rows[0])} sources and {len(rows[1])} destinations")
    return np.stack([np.asarray(row, np.int64) for row in rows])


def _type_apart(graph: GraphView, given: Any) -> tuple[EdgeType, Any]:
    edge_type, wanted = EDGE, given
    if _is_type(given):
        edge_type, wanted = given, None
    elif isinstance(given, tuple) and len(given) == 2 and _is_type(given[0]):
        edge_type, wanted = given
    if edge_type not in graph.edge_types and (wanted is None or not _has_ends(graph, edge_type)):
        there = ", ".join(map(repr, graph.edge_types)) if graph.is_hetero else "no types"
        said = "lacks an edge type" if edge_type == EDGE else f"names edge type {edge_type!r}"
        raise ValueError(f"sampler_input {said}; this graph has {there}")
    return edge_type, wanted


def _is_type(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 3 and all(type(part) is str for part in given)


def _has_ends(graph: GraphView, edge_type: EdgeType) -> bool:
    """Return whether such edges could exist; links to predict may have a type the graph lacks."""
    return {edge_type[0], edge_type[2]} <= set(graph.node_types)


def _apart(given: Any) -> tuple[str | None, Any]:
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return given
    return None, given


def _named(graph: GraphView, node_type: str | None) -> str | None:
    if node_type is None and graph.is_hetero:
        there = ", ".join(map(repr, graph.node_types))
        raise ValueError(f"sampler_input lacks a node type, as in (type, ids); there are {there}")
    return node_type


def together(arrays: Mapping[Any, npt.NDArray[Any]]) -> dict[Any, SharedArray]:
    """Copy arrays into one segment of shared memory, which needs one descriptor to be passed on."""
    wanted = [(dtype_name(array.dtype), array.shape) for array in arrays.values()]
    offsets, nbytes = layout(wanted)
    segment = Segment.create(nbytes)
    try:
        shared = {
            name: SharedArray(segment, dtype, shape, offset)
            for name, (dtype, shape), offset in zip(arrays, wanted, offsets, strict=True)
        }
        for name, array in arrays.items():
            shared[name].array[...] = array
        segment.freeze()
    except BaseException:
        segment.close()
        raise
    return shared


def column_of(name: str, given: Any) -> npt.NDArray[Any]:
    """Return a column, which has a row for each input; dates become nanoseconds, as in a graph."""
    label = f"columns[{name!r}]"
    found = times(label, given) if name == "time" else plain(label, given)
    return floats(found.array, found.dtype)


def _checked(given: Any, size: int, label: str = "sampler_input") -> npt.NDArray[np.int64]:
    """Return ids as they are stored; a boolean mask becomes the ids that it marks."""
    ids = np.asarray(given)
    if ids.ndim != 1:
        raise ValueError(f"{label} has shape {ids.shape}; expected a list of ids")
    if ids.dtype == np.bool_:
        if len(ids) != size:
            raise ValueError(f"{label} is a mask of {len(ids)}; there are {size} nodes")
        return np.flatnonzero(ids)
    if len(ids) and not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"{label} has dtype {ids.dtype}; expected integers")
    if len(ids) and not 0 <= ids.min() <= ids.max() < size:
        at = int(np.argmax((ids < 0) | (ids >= size)))
        raise ValueError(f"{label}[{at}] is {ids[at]}; expected 0 <= id < {size}")
    return np.ascontiguousarray(ids, np.int64)


def tables_of(
    spec: Spec, columns: Mapping[str, Any] | None, tables: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the tables of the feed, made from what a user gave for a spec."""
    for name, arrays in (("columns", columns), ("tables", tables)):
        if arrays is not None and not isinstance(arrays, Mapping):
            raise ValueError(f"{name} is {arrays!r}; expected a mapping from names to arrays")
    return kind_of(spec).make_tables(spec, columns or {}, tables or {})
