"""The inputs of anchor-based link prediction: anchors, and the labels that come with them.

Labels may be edges of the graph, which are named here and read by the workers, or rows of node ids
beside the anchors, padded with -1. The type of the argument tells which of the two it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeAlias

import numpy as np
from torch import Tensor

from penstock.graph import EdgeType
from penstock.graph.schema import EDGE
from penstock.graph.view import GraphView
from penstock.loader.pyg.tensors import integers_of
from penstock.loader.source.inputs import Array, Ids, NodeInputs, node_inputs, places_of
from penstock.loader.source.sources import DataSource
from penstock.sampling.labels import Sign

# For each supervision edge type, the edge type its labels are read from; None: by its name.
LabelTypes: TypeAlias = tuple[EdgeType | None, ...]

_EXPECTED: Final = "an edge type, or a tensor [anchors, labels] padded with -1"


@dataclass(frozen=True, eq=False)
class AnchorInputs(NodeInputs):
    """Anchors, and padded rows of labels for each, by the column names that a sampler reads."""

    labels: Mapping[str, Ids] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, Array]:
        """One row for each anchor: `register_input`'s columns."""
        return {**super().columns, **self.labels}

    def at(self, index: Any) -> AnchorInputs:
        """Return the anchors at these positions, in this order, each with its labels."""
        places = places_of(index, self.num)
        chosen = super().at(places)
        assert isinstance(chosen, AnchorInputs)
        labels = {name: rows[places] for name, rows in self.labels.items()}
        return replace(chosen, labels=labels)


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of one sign, as given.

    For each supervision edge type: an edge type, padded rows of any kind, or None.
    """

    sign: Sign
    given: Sequence[Any]

    @property
    def kinds(self) -> LabelTypes | None:
        """The edge types to read labels from; None if none is named."""
        kinds = tuple(tuple(each) if _is_edge_type(each) else None for each in self.given)
        return kinds if any(kinds) else None

    def rows(self, supervision: Sequence[EdgeType], graph: GraphView, num: int) -> dict[str, Ids]:
        """Return the padded rows of `num` anchors, by column; ValueError for invalid labels."""
        found = {}
        for number, (given, kind) in enumerate(zip(self.given, supervision, strict=True)):
            if _is_rows(given):
                name = self.sign if len(supervision) == 1 else f"{self.sign}[{number}]"
                rows = _padded(name, given, num, graph.end_of_ids(kind[2]))
                found[f"{self.sign}/{number}"] = rows
        return found


def supervision_of(graph: GraphView, given: Any) -> tuple[EdgeType, ...]:
    """Return the supervision edge types. In a homogeneous graph the only one need not be named."""
    if given is None and not graph.is_hetero:
        return (EDGE,)
    if given is None:
        there = ", ".join(map(repr, graph.edge_types))
        raise ValueError(
            "supervision is missing: of a heterogeneous graph it says which edge types are to be "
            f"predicted, as in [('user', 'buys', 'item')]; there are {there}"
        )
    if _is_edge_type(given):
        given = [given]
    if not isinstance(given, list | tuple) or not all(map(_is_edge_type, given)):
        raise ValueError(f"supervision is {given!r}; expected an edge type, or a list of them")
    return tuple((kind[0], kind[1], kind[2]) for kind in given)


def labels_of(sign: Sign, given: Any, supervision: Sequence[EdgeType]) -> Labels:
    """Return the labels of each supervision edge type: given in that order, by type, or alone."""
    if given is None:
        return Labels(sign, [None] * len(supervision))
    if isinstance(given, Mapping):
        given = _in_order(sign, given, supervision)
    elif _is_edge_type(given) or _is_rows(given):
        given = [given]
    if not isinstance(given, list | tuple):
        raise ValueError(f"{sign} is {given!r}; expected {_EXPECTED}")
    if len(given) != len(supervision):
        raise ValueError(
            f"{sign} has labels of {len(given)} supervision edge types; there are "
            f"{len(supervision)}: expected {_EXPECTED}, for each of them"
        )
    for each in given:
        if not (each is None or _is_edge_type(each) or _is_rows(each)):
            raise ValueError(f"{sign} has {each!r}; expected {_EXPECTED}")
    return Labels(sign, given)


def anchor_inputs(
    source: DataSource,
    anchors: Any,
    supervision: Sequence[EdgeType],
    labels: Sequence[Labels],
    input_id: Any = None,
    anchor_time: Any = None,
    *,
    time_attr: str | None = None,
) -> AnchorInputs:
    """Return the anchors, given like `input_nodes`; `supervision` gives a missing node type."""
    node_type = supervision[0][0]
    nodes = node_inputs(
        source,
        _typed(source.graph, anchors, node_type),
        anchor_time,
        input_id,
        time_attr=time_attr,
        name="anchors",
    )
    if (nodes.node_type or "") != node_type:
        raise ValueError(
            f"anchors are {nodes.node_type!r}; those of {supervision[0]!r} are {node_type!r}"
        )
    rows: dict[str, Ids] = {}
    for each in labels:
        rows |= each.rows(supervision, source.graph, nodes.num)
    shared = {entry.name: getattr(nodes, entry.name) for entry in fields(NodeInputs)}
    return AnchorInputs(**shared, labels=rows)


def _is_edge_type(given: Any) -> bool:
    is_triple = isinstance(given, list | tuple) and len(given) == 3
    return is_triple and all(isinstance(name, str) for name in given)


def _is_rows(given: Any) -> bool:
    return isinstance(given, Tensor | np.ndarray)


def _in_order(sign: str, given: Mapping[Any, Any], supervision: Sequence[EdgeType]) -> list[Any]:
    for kind in given:
        if kind not in supervision:
            raise ValueError(f"{sign} has labels of {kind!r}, which is not in supervision")
    return [given.get(kind) for kind in supervision]


def _typed(graph: GraphView, anchors: Any, node_type: str) -> Any:
    """Add the node type to anchors without one. A single string is a type, or else a split."""
    if not graph.is_hetero or (isinstance(anchors, str) and anchors in graph.node_types):
        return anchors
    is_pair = isinstance(anchors, list | tuple) and len(anchors) == 2
    if not is_pair or not isinstance(anchors[0], str):
        return node_type, anchors
    # Two strings are a type with a split, unless no type is called so: then they are ids of users.
    is_named = isinstance(anchors[1], str) and anchors[0] not in graph.node_types
    are_ids = is_named and graph.id_kind(node_type) == "text"
    return (node_type, anchors) if are_ids else anchors


def _padded(name: str, given: Any, num: int, size: int) -> Ids:
    rows = integers_of(given, name)
    if rows.ndim != 2 or len(rows) != num:
        raise ValueError(
            f"{name} has shape {list(rows.shape)}; expected a row of labels for each of {num} "
            "anchors, padded with -1"
        )
    if rows.size and not -1 <= rows.min() <= rows.max() < size:
        at, label = np.argwhere((rows < -1) | (rows >= size))[0].tolist()
        raise ValueError(
            f"{name}[{at}, {label}] is {rows[at, label]}; expected 0 <= id < {size}, or -1 for none"
        )
    return rows
