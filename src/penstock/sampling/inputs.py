"""The inputs of one batch: a range of the epoch's order, and the inputs in that range.

A feed says how an epoch is divided into batches; this module does it. The order is computed where
it is needed, and stored nowhere. What was given with the inputs, such as a time or a label for
each, is divided with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.core.plan import EpochPlan, group_at, input_range, length_of
from penstock.graph.handles import ArrayHandle, SegmentHandle
from penstock.graph.schema import EDGE
from penstock.graph.segment import Segment
from penstock.graph.shared import SharedArray
from penstock.graph.view import GraphView
from penstock.kernels import permutation
from penstock.kernels.arrays import Array, Ids, check_word
from penstock.kernels.random import grouped_seed
from penstock.sampling.columns import check_names
from penstock.sampling.kinds import InputKind, kind_of
from penstock.sampling.names import Owner
from penstock.sampling.request import Request
from penstock.sampling.spec import Feed, SamplingSpec


@dataclass(frozen=True, slots=True, eq=False)
class ChannelInputs:
    """The arrays of a feed's handles. If `ids` is None: all nodes, in order."""

    ids: Array | None = None
    columns: Mapping[str, Array] = field(default_factory=dict)
    tables: Mapping[str, Array] = field(default_factory=dict)


def stretch_of(feed: Feed, epoch: int, index: int) -> tuple[int, int]:
    """Return the range of batch `index` in the epoch's order of inputs.

    Groups are cut one after the other, and their batches are shuffled.
    """
    cut, groups = (feed.num_inputs, feed.batch_size, feed.drop_last), feed.groups
    stretch = input_range(*cut, index, groups)  # checks the index
    if not (groups and feed.shuffle):
        return stretch
    total = length_of(*cut, groups)
    (place,) = permutation(grouped_seed(feed.seed), epoch, total, index, index + 1)
    return input_range(*cut, int(place), groups)


def positions_of(feed: Feed, epoch: int, index: int, most: int | None = None) -> Ids:
    """Return the positions among the inputs that a batch of an epoch takes: its `input_id`.

    With `most`, only the first of them.
    """
    start, stop = stretch_of(feed, epoch, index)
    stop = stop if most is None else min(stop, start + most)
    if not feed.shuffle:
        return np.arange(start, stop, dtype=np.int64)
    if not feed.groups:
        return permutation(feed.seed, epoch, feed.num_inputs, start, stop)
    group, first = group_at(feed.groups, start)
    seed, size = grouped_seed(feed.seed, group), feed.groups[group]
    return first + permutation(seed, epoch, size, start - first, stop - first)


def seeds_at(positions: Ids, ids: Array | None) -> Ids:
    """Return the nodes (or edges) at these positions; without `ids` these are the nodes."""
    return positions if ids is None else ids[..., positions].astype(np.int64, copy=False)


def request_of(feed: Feed, given: ChannelInputs, epoch: int, index: int) -> Request:
    """Return a batch with its inputs, and what was given with them."""
    positions = positions_of(feed, epoch, index)
    return Request(
        feed.seed,
        epoch,
        index,
        seeds_at(positions, given.ids),
        positions,
        feed.node_type or "",
        feed.edge_type or EDGE,
        {name: column[positions] for name, column in given.columns.items()},
        given.tables,
    )


def type_of(feed: Feed) -> Owner:
    """Return the type of the inputs: of nodes, or of edges."""
    return feed.edge_type if feed.edge_type is not None else feed.node_type or ""


# --- their memory --------------------------------------------------------------------------------


def segment_of(feed: Feed) -> SegmentHandle | None:
    """Return the segment that contains all arrays; `ValueError` if there are several."""
    segments = {handle.segment for handle in _handles(feed)}
    if len(segments) > 1:
        raise ValueError("the inputs of a feed lie in several segments; expected one for all")
    return next(iter(segments), None)


def attached(feed: Feed, fd: int | None) -> ChannelInputs:
    """Map the arrays of a feed; they live as long as they are used. Takes `fd` over."""
    handle = segment_of(feed)
    if handle is None:
        return ChannelInputs()
    with Segment.attach(handle, fd) as segment:  # views keep the memory alive
        return ChannelInputs(
            None if feed.ids is None else _view(segment, feed.ids),
            {name: _view(segment, column) for name, column in feed.columns.items()},
            {name: _view(segment, table) for name, table in feed.tables.items()},
        )


def _handles(feed: Feed) -> Iterator[ArrayHandle]:
    if feed.ids is not None:
        yield feed.ids
    yield from feed.columns.values()
    yield from feed.tables.values()


def _view(segment: Segment, handle: ArrayHandle) -> Array:
    return SharedArray(segment, handle.dtype, handle.shape, handle.offset).array


# --- checks --------------------------------------------------------------------------------------


def check_feed(feed: Feed, graph: GraphView, given: ChannelInputs) -> None:
    """Raise `ValueError` unless the feed fits this graph, and `given` is what it describes.

    Whether every id is a node is checked when its batch is made: there may be 10⁹ of them.
    """
    EpochPlan(feed.num_inputs, feed.batch_size, feed.drop_last, groups=feed.groups)
    check_word(feed.seed, "seed")
    if feed.edge_type is None:
        _check_nodes(feed, graph, given.ids)
    else:
        _check_edges(feed, graph, given.ids)
    for name, column in given.columns.items():
        if len(column.shape) < 1 or len(column) != feed.num_inputs:
            raise ValueError(
                f"columns[{name!r}] has shape {list(column.shape)}; expected a row for each of "
                f"{feed.num_inputs} inputs"
            )


def check_kind(spec: SamplingSpec, feed: Feed, graph: GraphView, given: ChannelInputs) -> None:
    """Raise `ValueError` unless these inputs are of the spec's kind, with everything it needs."""
    kind = kind_of(spec)
    wants_links = kind.input_kind(spec) is InputKind.LINK
    if wants_links and feed.edge_type is None:
        raise ValueError("edge_type is missing: the inputs of this spec are edges")
    if not wants_links and feed.edge_type is not None:
        raise ValueError(f"edge_type is {feed.edge_type!r}; the inputs of this spec are nodes")
    check_names("columns", given.columns, kind.columns(spec))
    tables = [name for name in given.tables if name not in kind.made_tables]
    check_names("tables", tables, kind.tables(spec))
    kind.check_inputs(spec, graph, feed, given.columns, given.tables)


def _check_nodes(feed: Feed, graph: GraphView, ids: Array | None) -> None:
    if graph.is_hetero and feed.node_type is None:
        there = ", ".join(map(repr, graph.node_types))
        raise ValueError(f"node_type is missing; this graph has {there}")
    num_nodes = graph.num_nodes(feed.node_type)
    if ids is None and feed.num_inputs > num_nodes:
        raise ValueError(f"num_inputs is {feed.num_inputs}; there are {num_nodes} nodes")
    if ids is not None and (ids.ndim != 1 or ids.dtype.kind != "i"):
        raise ValueError(f"ids must be a list of integers, not {ids.dtype}{list(ids.shape)}")
    if ids is not None and len(ids) != feed.num_inputs:
        raise ValueError(f"num_inputs is {feed.num_inputs}; {len(ids)} ids are given")


def _check_edges(feed: Feed, graph: GraphView, ids: Array | None) -> None:
    assert feed.edge_type is not None
    # The graph need not have the type of the links to predict, but must have the types of their
    # ends.
    if not {feed.edge_type[0], feed.edge_type[2]} <= set(graph.node_types):
        there = ", ".join(map(repr, graph.node_types)) if graph.is_hetero else "no types"
        raise ValueError(f"edge_type is {feed.edge_type!r}; the nodes of this graph are {there}")
    if ids is None:
        raise ValueError("ids are missing: edges are given by their ends, [2, inputs]")
    if ids.ndim != 2 or len(ids) != 2 or ids.dtype.kind != "i":
        raise ValueError(f"ids must be integers [2, inputs], not {ids.dtype}{list(ids.shape)}")
    if ids.shape[1] != feed.num_inputs:
        raise ValueError(f"num_inputs is {feed.num_inputs}; {ids.shape[1]} edges are given")
