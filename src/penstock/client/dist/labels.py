"""Anchors and their labels, read from the graph: the input of anchor-based link prediction.

Labels of a supervision edge type (s, r, d) are edges of the types (s, r + "_positive", d) and (s, r
+ "_negative", d), or of types that the request gives. The positive type must exist; without a
negative type there are no negative labels. Row k belongs to anchor k and has its labels in the
order of the edges, padded with -1; with a cap, the first of them. In a partition, only labels with
both ends in it count: it could not sample with others, and would refuse them as inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from penstock.client.dist.dataset import Ids, ServedDataset
from penstock.graph.schema import EDGE, EdgeType
from penstock.kernels.arrays import check_integer
from penstock.kernels.labels import first_neighbors
from penstock.sampling.labels import Sign, label_type
from penstock.sampling.rows import Rows
from penstock.wire.requests import ABLPInput, FetchABLPInputRequest


def ablp_input(
    dataset: ServedDataset,
    anchors: Ids,
    request: FetchABLPInputRequest,
    cap: int | None,
    check_size: Callable[[int], None],
) -> ABLPInput[Ids]:
    """Return anchors and their labels; `check_size` is called before memory is taken."""
    supervision = _supervision(dataset, request)
    if cap is not None:
        check_integer(cap, "max_labels", 0, 2**31)
    positive = _positive(dataset, supervision, request.positive)
    negative = label_edges(dataset, supervision, "negative", request.negative)
    rows = dataset.check_nodes(supervision[0], anchors)
    return ABLPInput(
        anchors,
        _padded(dataset, positive, rows, cap, check_size),
        None if negative is None else _padded(dataset, negative, rows, cap, check_size),
    )


def label_edges(
    dataset: ServedDataset, supervision: EdgeType, sign: Sign, given: Any = None
) -> EdgeType | None:
    """Return the edge type that has the labels, or None if there is none.

    Raises:
        ValueError: A given type does not exist, or does not join the same node types.
    """
    there = dataset.graph.edge_types
    if given is None:
        named = label_type(supervision, sign)
        return named if named in there else None
    kind: EdgeType = tuple(given)
    if kind not in there:
        raise ValueError(f"{sign} is {kind!r}; this graph has {', '.join(map(repr, there))}")
    if (kind[0], kind[2]) != (supervision[0], supervision[2]):
        raise ValueError(f"{sign} is {kind!r}; its ends are not those of {supervision!r}")
    return kind


def _supervision(dataset: ServedDataset, request: FetchABLPInputRequest) -> EdgeType:
    graph, given = dataset.graph, request.supervision_edge_type
    if given is None:
        if graph.is_hetero:
            there = ", ".join(map(repr, graph.edge_types))
            raise ValueError(f"supervision_edge_type is missing; this graph has {there}")
        return EDGE
    kind = tuple(given)
    if len(kind) != 3 or not {kind[0], kind[2]} <= set(graph.node_types):
        there = ", ".join(map(repr, graph.node_types)) if graph.is_hetero else "no types"
        raise ValueError(f"supervision_edge_type is {kind!r}, and this graph has {there}")
    if dataset.node_type(request.node_type) != kind[0]:
        raise ValueError(
            f"node_type is {request.node_type!r}; the anchors of {kind!r} are {kind[0]!r}"
        )
    return kind


def _positive(dataset: ServedDataset, supervision: EdgeType, given: Any) -> EdgeType:
    kind = label_edges(dataset, supervision, "positive", given)
    if kind is None:
        wanted, there = label_type(supervision, "positive"), dataset.graph.edge_types
        raise ValueError(
            f"there are no positive labels of {supervision!r}: this graph has no edge type "
            f"{wanted!r}, and none is given as `positive`; it has {', '.join(map(repr, there))}"
        )
    return kind


def _padded(
    dataset: ServedDataset,
    kind: EdgeType,
    rows: Ids,
    cap: int | None,
    check_size: Callable[[int], None],
) -> Ids:
    graph = dataset.within
    found_rows = Rows(graph)
    adjacency, size = found_rows.of(kind, "out"), graph.num_nodes(kind[2])
    counts, found = found_rows.complete(partial(first_neighbors, adjacency, rows, size, cap))
    width = int(counts.max(initial=0))
    check_size(len(rows) * width * 8)
    padded = np.full((len(rows), width), -1, np.int64)
    padded[np.arange(width) < counts[:, None]] = found
    return padded
