"""The inputs of a loader: which nodes or edges, and what is given with each of them.

Whatever users give (nothing, ids, masks, types, splits) becomes what a backend registers. What a
batch shows as `input_id` is looked up by position: for a mask the ids of the nodes, as in PyG, or
what the user gave; otherwise the position itself.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from penstock.client.channel.inputs import column_of, numbers_of_ends
from penstock.errors import suggestion
from penstock.graph import EdgeType, Graph, check
from penstock.graph.coo import are_dates
from penstock.graph.coo import times as dated
from penstock.graph.schema import (
    EDGE,
    NODE,
    SPLITS,
    ArrayKey,
    link_times_name,
    links_name,
)
from penstock.graph.user_ids import are_user_ids
from penstock.graph.view import GraphView
from penstock.kernels import Adjacency
from penstock.loader.pyg.specs import (
    check_link_times,
    check_node_times,
    check_weights,
    negatives_of,
)
from penstock.loader.pyg.tensors import array_of, integers_of
from penstock.loader.source.sources import DataSource
from penstock.sampling.links import label_shift

Array: TypeAlias = npt.NDArray[Any]
Ids: TypeAlias = npt.NDArray[np.int64]
Given: TypeAlias = Literal["all", "split", "mask", "ids"]


# How many links are looked at for times that are those of their edges.
_COMPARED: Final = 256
# About how many ids of the inputs their digest depends on.
_LOOKED_AT: Final = 4096


@dataclass(frozen=True, eq=False)
class NodeInputs:
    """`num` nodes of a type (None: the only one); `ids` None: all of them, in order.

    `input_id` has what a batch shows for each input; None: its position. The `graph` is asked for
    all ids, and for those of a `split`, if they are not here. `given` is how the user gave them.
    `groups` are sizes of consecutive groups of inputs, if no batch may have inputs of two.
    """

    num: int
    ids: Ids | None
    node_type: str | None
    graph: GraphView
    input_id: Tensor | None = None
    time: Ids | None = None
    time_dtype: torch.dtype = torch.int64
    split: str | None = None
    given: Given = "ids"
    more: Mapping[str, Array] = field(default_factory=dict)
    groups: tuple[int, ...] = ()

    @property
    def digest(self) -> str:
        """A digest that differs for other nodes, as ranks have them that split nodes by hand."""
        return _digest_of(self.node_type, self.num, self.ids)

    @property
    def sampler_input(self) -> Any:
        """What `register_input` takes."""
        given = self.ids if self.split is None else self.split
        return given if self.node_type is None else (self.node_type, given)

    def all_ids(self) -> Ids:
        """Return all ids; those of a split are fetched."""
        if self.ids is not None:
            return self.ids
        if self.split is None:
            return self.graph.node_ids(self.node_type)
        return integers_of(self.graph.split(self.split, self.node_type), self.split)

    @property
    def columns(self) -> dict[str, Array]:
        """One row for each input: `register_input`'s columns."""
        return {**({} if self.time is None else {"time": self.time}), **self.more}

    @property
    def tables(self) -> dict[str, Any]:
        """What belongs to all inputs together: `register_input`'s tables."""
        return {}

    def at(self, index: Any) -> NodeInputs:
        """Return the inputs at these positions, in this order; each keeps its `input_id`."""
        places = places_of(index, self.num)
        return replace(
            self,
            num=len(places),
            ids=self.all_ids()[places],
            split=None,
            input_id=_input_ids_at(self.input_id, places),
            time=None if self.time is None else self.time[places],
            more={name: column[places] for name, column in self.more.items()},
            groups=(),
        )


@dataclass(frozen=True, eq=False)
class LinkInputs:
    """`num` edges of a type (None: the only one); `ends` None: all, in the order of their ids.

    `label` is a column whose dtype was `label_dtype`. `tables` has weights for negatives, and the
    shift of labels, which depends on all of them. The `graph` is asked for the ends of all edges.
    `groups` are as in `NodeInputs`.
    """

    num: int
    ends: Ids | None
    edge_type: EdgeType | None
    graph: GraphView
    input_id: Tensor | None = None
    label: Array | None = None
    label_dtype: torch.dtype | None = None
    time: Ids | None = None
    time_dtype: torch.dtype = torch.int64
    tables: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Array] = field(default_factory=dict)
    groups: tuple[int, ...] = ()

    @property
    def given(self) -> Given:
        """How the user gave them."""
        return "all" if self.ends is None else "ids"

    @property
    def digest(self) -> str:
        """A digest that differs for other edges, as ranks have them that split edges by hand."""
        return _digest_of(self.edge_type, self.num, self.ends)

    @property
    def sampler_input(self) -> Any:
        """What `register_input` takes."""
        return self.ends if self.edge_type is None else (self.edge_type, self.ends)

    @property
    def columns(self) -> dict[str, Array]:
        """One row for each input: `register_input`'s columns."""
        given = {"label": self.label, "time": self.time}
        there = {name: column for name, column in given.items() if column is not None}
        return {**there, **self.more}

    def all_ends(self) -> Array:
        """Return the ends of all edges, [2, num]; those of all edges of the graph are fetched."""
        return self.graph.coo(self.edge_type) if self.ends is None else self.ends

    def at(self, index: Any) -> LinkInputs:
        """Return the inputs at these positions, in this order; each keeps its `input_id`."""
        places = places_of(index, self.num)
        return replace(
            self,
            num=len(places),
            ends=self.all_ends()[:, places].astype(np.int64, copy=False),
            input_id=_input_ids_at(self.input_id, places),
            label=None if self.label is None else self.label[places],
            time=None if self.time is None else self.time[places],
            more={name: column[places] for name, column in self.more.items()},
            groups=(),
        )


Inputs: TypeAlias = NodeInputs | LinkInputs


def with_columns(inputs: Inputs, columns: Mapping[str, Any]) -> Inputs:
    """Return inputs with columns that a user's sampler reads, a row for each input."""
    more = {name: column_of(name, array_of(column)) for name, column in columns.items()}
    for name, column in more.items():
        if column.ndim < 1 or len(column) != inputs.num:
            raise ValueError(
                f"columns[{name!r}] has shape {list(column.shape)}; expected a row for each of "
                f"{inputs.num} inputs"
            )
    return replace(inputs, more=more)


def node_inputs(
    source: DataSource,
    input_nodes: Any = None,
    input_time: Any = None,
    input_id: Any = None,
    *,
    time_attr: str | None = None,
    name: str = "input_nodes",
) -> NodeInputs:
    """Read which nodes are the inputs.

    With a mask, `input_id` are the nodes' ids. With all nodes they are the positions, whatever is
    given, as in PyG.

    Args:
        source: where the nodes are.
        input_nodes: None for all nodes, ids, a bool mask, the name of a split; or (node type, any
            of these). A node type alone stands for all of its nodes. Ids are numbers, or users'
            ids: strings, and what `penstock.ids` marks.
        input_time: the time of each input.
        input_id: what batches show as `input_id`.
        time_attr: the attribute with times, if sampling uses them.
        name: the argument's name in errors.
    """
    graph = source.graph
    check_node_times(graph, input_time, time_attr)
    node_type, nodes = _node_type_apart(graph, input_nodes, name)
    found = _nodes_of(graph, node_type, nodes, name)
    if nodes is None:
        input_id = None
    elif input_id is None and found.given == "mask":
        input_id = torch.from_numpy(found.ids)
    return NodeInputs(
        found.num,
        found.ids,
        node_type,
        graph,
        _checked_input_id(input_id, found.num),
        _times("input_time", input_time, found.num),
        _dtype_of(input_time),
        found.split,
        found.given,
    )


def link_inputs(
    source: DataSource,
    edge_label_index: Any = None,
    edge_label: Any = None,
    edge_label_time: Any = None,
    input_id: Any = None,
    *,
    neg_sampling: Any = None,
    neg_sampling_ratio: float | None = None,
    time_attr: str | None = None,
) -> LinkInputs:
    """Read which edges are the inputs.

    They are None for all edges, their ends [2, n], or the name of a split; or (edge type, any of
    these), or an edge type. Links of a split bring their times along, if `time_attr` is given.
    """
    graph = source.graph
    edge_type, given = _edge_type_apart(graph, edge_label_index)
    kind = edge_type or EDGE
    if isinstance(given, str):
        split, given = given, _links_of_split(graph, kind, given)
        if time_attr is not None and edge_label_time is None:
            edge_label_time = _times_of_split(graph, kind, split, given, time_attr)
    check_link_times(edge_label_time, time_attr)
    ends = None if given is None else _checked_ends(graph, kind, given)
    num = graph.num_own_edges(kind) if ends is None else ends.shape[1]
    label, label_dtype = _label(edge_label, num)
    tables = _tables(graph, kind, label, negatives_of(neg_sampling, neg_sampling_ratio))
    return LinkInputs(
        num,
        ends,
        edge_type,
        graph,
        _checked_input_id(input_id, num),
        label,
        label_dtype,
        _times("edge_label_time", edge_label_time, num),
        _dtype_of(edge_label_time),
        tables,
    )


def places_of(index: Any, num: int) -> Ids:
    """Return positions among `num` inputs from a user's index, of any shape, negative or not."""
    places = integers_of(index, "index").reshape(-1)
    places = np.where(places < 0, places + num, places)
    if len(places) and not 0 <= places.min() <= places.max() < num:
        at = np.flatnonzero((places < 0) | (places >= num))[0]
        given = integers_of(index, "index").reshape(-1)[at]
        raise IndexError(
            f"index[{at}] is {given}, a place that is not there; expected {-num} <= place < {num}"
        )
    return places


# --- nodes ---------------------------------------------------------------------------------------


def _node_type_apart(graph: GraphView, given: Any, name: str) -> tuple[str | None, Any]:
    if not graph.is_hetero:
        return None, given
    node_type, nodes = given, None
    if isinstance(given, list | tuple) and len(given) == 2 and isinstance(given[0], str):
        node_type, nodes = given
    if not isinstance(node_type, str):
        there = ", ".join(map(repr, graph.node_types))
        raise ValueError(
            f"{name} lacks a node type, as in 'type' or ('type', nodes): of a heterogeneous "
            f"graph it is needed; there are {there}"
        )
    _check_node_type(graph, name, node_type)
    return node_type, nodes


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Which nodes are meant, as they were `given`: `ids`, or those of a `split`, or all."""

    given: Given
    num: int
    ids: Any
    split: str | None = None


def _nodes_of(graph: GraphView, node_type: str | None, nodes: Any, name: str) -> _Nodes:
    if nodes is None or isinstance(nodes, str):
        own = graph.own_nodes(node_type) if nodes is None else _split(graph, node_type, nodes, name)
        ids = None if own.array is None else integers_of(own.array.array, name)
        return _Nodes("all" if nodes is None else "split", own.num, ids, own.split)
    if are_user_ids(nodes):
        numbers = graph.numbers(node_type, nodes, name)
        return _Nodes("ids", len(numbers), numbers)
    size, array = graph.end_of_ids(node_type or NODE), array_of(nodes)
    if array.dtype != np.bool_:
        ids = _checked_ids(name, array.reshape(-1), size)
        check.warn_of_a_mask(name, ids, size)
        return _Nodes("ids", len(ids), ids)
    if array.size != size:
        raise ValueError(f"{name} is a mask of {array.size}; there are {size} nodes")
    marked = np.flatnonzero(array)
    return _Nodes("mask", len(marked), marked)


def _split(graph: GraphView, node_type: str | None, split: str, name: str) -> Any:
    try:
        return graph.own_split(split, node_type)
    except ValueError as error:
        kind = graph.id_kind(node_type)
        alone = "; for the node with this id, give a list of it" if kind == "text" else ""
        raise ValueError(f"{name} is {split!r}: {error}{alone}") from None


def _checked_ids(name: str, given: Any, size: int) -> Ids:
    ids = integers_of(given, name)
    if len(ids) and not 0 <= ids.min() <= ids.max() < size:
        at = np.flatnonzero((ids < 0) | (ids >= size))[0]
        raise ValueError(f"{name}[{at}] is {ids[at]}; expected 0 <= id < {size}")
    return ids


# --- edges ---------------------------------------------------------------------------------------


def _edge_type_apart(graph: GraphView, given: Any) -> tuple[EdgeType | None, Any]:
    if not graph.is_hetero:
        return None, given
    if isinstance(given, list | tuple) and len(given) and isinstance(given[0], str):
        return canonical(graph, given), None
    if isinstance(given, list | tuple) and len(given) == 2 and isinstance(given[0], list | tuple):
        return canonical(graph, given[0]), given[1]
    there = ", ".join(map(repr, graph.edge_types))
    raise ValueError(
        "edge_label_index lacks an edge type, as in ('a', 'to', 'b') or (('a', 'to', 'b'), edges): "
        f"of a heterogeneous graph it is needed; there are {there}"
    )


def names_a_split(edge_label_index: Any) -> bool:
    """Return whether links are given as the name of a split, with an edge type or without."""
    if isinstance(edge_label_index, list | tuple) and len(edge_label_index) == 2:
        kind, edge_label_index = edge_label_index
        return isinstance(edge_label_index, str) and isinstance(kind, list | tuple)
    return isinstance(edge_label_index, str)


def _links_of_split(graph: GraphView, kind: EdgeType, split: str) -> Array | None:
    """Return the ends of the links of a split; None: they are all edges of the type."""
    owner = kind if any(kind) else NODE
    keys = {name: ArrayKey("graph", owner, links_name(name)) for name in SPLITS}
    there = [name for name, key in keys.items() if key in graph.arrays]
    if split in there:
        return graph.arrays[keys[split]].array
    if split == "train" and there:
        return None
    known = there if not there or "train" in there else ["train", *there]
    names = ", ".join(map(repr, known)) or "none"
    raise ValueError(
        f"edge_label_index is {split!r}, and there are no such links of {kind!r}; there are: "
        f"{names}{suggestion(split, known)}"
    )


def _times_of_split(
    graph: GraphView, kind: EdgeType, split: str, links: Array | None, time_attr: str
) -> Array | None:
    """Return the times of the links of a split, if they have some."""
    if links is None:
        has_times = time_attr in graph.edge_attributes(kind)
        return graph.edge_attribute(time_attr, kind) if has_times else None
    owner = kind if any(kind) else NODE
    found = graph.arrays.get(ArrayKey("graph", owner, link_times_name(split)))
    return None if found is None else found.array


def canonical(graph: GraphView, given: Any) -> EdgeType:
    """Return an edge type by its three names, or by its ends if only one (or 'to') fits."""
    names = tuple(given)
    if len(names) == 2:
        fitting = [kind for kind in graph.edge_types if (kind[0], kind[2]) == names]
        names = fitting[0] if len(fitting) == 1 else (names[0], "to", names[1])
    if len(names) != 3 or not all(isinstance(name, str) for name in names):
        raise ValueError(f"edge_label_index names {given!r}; expected an edge type")
    for end in (names[0], names[2]):
        _check_node_type(graph, "edge_label_index", end)
    return names


def _check_node_type(graph: GraphView, name: str, node_type: str) -> None:
    there = graph.node_types
    if node_type not in there:
        listed = ", ".join(map(repr, there))
        raise ValueError(
            f"{name} has node type {node_type!r}; this graph has {listed}"
            f"{suggestion(node_type, there)}"
        )


def _checked_ends(graph: GraphView, kind: EdgeType, given: Any) -> Ids:
    named = numbers_of_ends(graph, (kind[0], kind[2]), given, "edge_label_index")
    ends = integers_of(given, "edge_label_index") if named is None else named
    if ends.ndim != 2 or len(ends) != 2:
        raise ValueError(f"edge_label_index has shape {list(ends.shape)}; expected [2, edges]")
    for row, end in ((0, kind[0]), (1, kind[2])):
        _checked_ids(f"edge_label_index[{row}]", ends[row], graph.end_of_ids(end))
    return ends


def _label(given: Any, num: int) -> tuple[Array | None, torch.dtype | None]:
    if given is None:
        return None, None
    label = given if isinstance(given, Tensor) else torch.as_tensor(given)
    if label.ndim == 0 or len(label) != num:
        raise ValueError(
            f"edge_label has shape {list(label.shape)}; expected one for each of {num} edges"
        )
    dtype, label = label.dtype, label.detach().cpu()
    return (label.float() if dtype == torch.bfloat16 else label).numpy(), dtype


def _tables(
    graph: GraphView, kind: EdgeType, label: Array | None, negatives: Any
) -> dict[str, Any]:
    if negatives is None:
        return {}
    tables = check_weights(graph, kind, negatives)
    if negatives.is_triplet() and label is not None:
        raise ValueError(
            "'edge_label' needs to be undefined for 'triplet'-based negative sampling. Please use "
            "`src_index`, `dst_pos_index` and `neg_pos_index` of the returned mini-batch instead "
            "to differentiate between positive and negative samples."
        )
    if negatives.is_binary() and label is not None:
        # If 0 is among the labels and is not the smallest, PyG gives negatives the same label.
        shift = label_shift(label) if label.size and label.min() == 0 else 0
        tables["label_shift"] = np.array([shift], np.int64)
    return tables


# --- both ----------------------------------------------------------------------------------------


def _times(name: str, given: Any, num: int) -> Ids | None:
    if given is None:
        return None
    is_dated = are_dates(given)
    if not is_dated and array_of(given).dtype.kind in "OUS":
        raise ValueError(
            f"{name} is {given!r:.80}; expected integers, or dates (datetime, numpy.datetime64, "
            "pandas' Timestamp), one for each input"
        )
    times = integers_of(dated(name, given).array if is_dated else given, name).reshape(-1)
    if len(times) != num:
        raise ValueError(f"{name} has {len(times)} times; expected one for each of {num} inputs")
    return times


def _dtype_of(given: Any) -> torch.dtype:
    return given.dtype if isinstance(given, Tensor) else torch.int64


def _checked_input_id(given: Any, num: int) -> Tensor | None:
    if given is None:
        return None
    found = torch.as_tensor(given).cpu()
    if found.numel() != num:
        raise ValueError(f"input_id has {found.numel()} ids; expected one for each of {num} inputs")
    return found


def warn_of_own_times(inputs: LinkInputs, time_attr: str | None) -> None:
    """Warn if links have the times of their own edges, which are then not too late to be sampled.

    Looks at some links only, and only where the graph is in this process.
    """
    graph, kind = inputs.graph, inputs.edge_type or EDGE
    if inputs.time is None or time_attr is None or not isinstance(graph, Graph):
        return
    if kind not in graph.edge_types or time_attr not in graph.edge_attributes(kind):
        return
    times, some = graph.edge_features(time_attr, kind), inputs.time[:_COMPARED]
    rows = graph.csc(kind)
    # Of a part, the edges with both ends in it, in the order of their ids.
    ids = np.arange(len(some)) if graph.part is None else np.sort(rows.edge_ids)
    for number, time in enumerate(some.tolist()):
        if inputs.ends is None:
            own = ids[number : number + 1]
        else:
            source, destination = inputs.ends[:, number]
            begin, end = rows.indptr[destination : destination + 2].tolist()
            row = Adjacency(rows.indptr, rows.adjacency)
            own = row.edge_ids[begin:end][row.neighbors[begin:end] == source]
        if (times.gather(own.astype(np.int64)) == time).any():
            warnings.warn(
                f"edge_label_time[{number}] is {time}, which is the time ({time_attr!r}) of the "
                "link's own edge: an edge that is not later than its link may be sampled, so that "
                "a model sees what it is to predict. Give exclude='self', or 'reverse', or "
                "earlier times",
                stacklevel=4,
            )
            return


def _digest_of(kind: str | EdgeType | None, num: int, ids: Ids | None) -> str:
    """Return a digest of a type, a number, and ids spread over all: not of all, which may be many.

    It tells inputs apart that were split among ranks, not inputs that differ in few places.
    """
    found = hashlib.blake2b(repr((kind, num)).encode(), digest_size=8)
    if ids is not None:
        every = max(1, num // _LOOKED_AT)
        found.update(np.ascontiguousarray(ids[..., ::every], "<i8").tobytes())
    return found.hexdigest()


def _input_ids_at(input_id: Tensor | None, places: Ids) -> Tensor:
    chosen = torch.from_numpy(places)
    return chosen if input_id is None else input_id[chosen]
