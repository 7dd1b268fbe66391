"""Inputs that make no sense are refused when their channel is opened, by name."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.schema import EDGE
from penstock.sampling.inputs import ChannelInputs
from penstock.sampling.kinds import prepare
from penstock.sampling.spec import (
    ABLPSpec,
    BuiltInSpec,
    Feed,
    HGTSpec,
    LinkSpec,
    NeighborSpec,
    PPRSpec,
    SubgraphSpec,
    WalkSpec,
)
from penstock.wire.frames import private_memory
from penstock.workers.batch_maker import BatchMaker, slot_bytes_for
from tests.sampling.from_wire import GRAPHS
from tests.sampling.graphs import CITES, WRITES, Array
from tests.sampling.worlds import SOME

HOPS = NeighborSpec(num_neighbors=(2,))
BY_NODES = NeighborSpec(num_neighbors=(2,), time_attr="time")
BY_EDGES = NeighborSpec(num_neighbors=(2,), time_attr="edge_time")
LINKS = LinkSpec(neighbors=HOPS, negatives="binary")
TIMED = LinkSpec(neighbors=BY_NODES, negatives="binary")
LABELS = ABLPSpec(neighbors=HOPS, supervision=(EDGE,))
TWO = np.array([0, 1])
ENDS = np.array([[0, 1], [2, 3]])
GOOD = np.array([[0, -1], [1, 0]])
Arrays = dict[str, Array]


def opened(
    spec: BuiltInSpec,
    feed: dict[str, Any],
    ids: Array | None,
    columns: Arrays | None = None,
    tables: Arrays | None = None,
    *,
    hetero: bool = False,
) -> tuple[BatchMaker, Feed]:
    """A station with a channel whose feed comes over the wire."""
    packed = msgspec.msgpack.encode({"num_inputs": 2, "batch_size": 2} | feed)
    graph, decoded = GRAPHS[hetero], msgspec.msgpack.decode(packed, type=Feed)
    prepare(spec, graph)
    maker = BatchMaker(graph)
    maker.open_backend(1, spec)
    maker.open_channel(1, 1, decoded, ChannelInputs(ids, columns or {}, tables or {}))
    return maker, decoded


OF_NODES: list[tuple[dict[str, Any], Any, str]] = [
    ({"num_inputs": -1}, None, "num_inputs|inputs"),
    ({"num_inputs": 2**63}, None, "num_inputs|inputs"),
    ({"num_inputs": 21}, None, "num_inputs is 21"),
    ({"num_inputs": 3}, TWO, "num_inputs is 3"),
    ({"batch_size": 0}, TWO, "batch_size"),
    ({"batch_size": -5}, TWO, "batch_size"),
    ({"seed": -1}, TWO, "seed"),
    ({"node_type": "paper"}, TWO, "paper"),
    ({"edge_type": EDGE}, ENDS, "edge_type"),
    ({"edge_type": CITES}, ENDS, "cites"),
    ({}, np.array([0.0, 1.0]), "ids"),
    ({}, np.array([True, False]), "ids"),
    ({}, ENDS, "ids"),
    ({}, np.array(3), "ids"),
]


@pytest.mark.parametrize("spec", [HOPS, SubgraphSpec(), PPRSpec(), WalkSpec(), HGTSpec()])
@pytest.mark.parametrize(("feed", "ids", "named"), OF_NODES)
def test_nodes_that_make_no_sense_are_refused_by_name(
    spec: BuiltInSpec, feed: dict[str, Any], ids: Any, named: str
) -> None:
    """CONTRACT 32, 35: when the channel is opened, not batch by batch in workers."""
    with pytest.raises(ValueError, match=named):
        opened(spec, feed, ids)


@pytest.mark.parametrize(
    ("feed", "ids", "named"),
    [
        ({"edge_type": EDGE}, None, "ids"),
        ({"edge_type": EDGE}, TWO, "ids"),
        ({"edge_type": EDGE}, ENDS.astype(float), "ids"),
        ({"edge_type": EDGE}, ENDS.repeat(2, axis=0), "ids"),
        ({"edge_type": EDGE}, ENDS[:, :1], "num_inputs"),
        ({"edge_type": CITES}, ENDS, "cites"),
        ({}, TWO, "edge_type"),
    ],
)
def test_edges_that_make_no_sense_are_refused_by_name(
    feed: dict[str, Any], ids: Any, named: str
) -> None:
    """CONTRACT 32, 61."""
    with pytest.raises(ValueError, match=named):
        opened(LINKS, feed, ids)


@pytest.mark.parametrize(
    ("feed", "named"),
    [({}, "node_type is missing"), ({"node_type": "nobody"}, "nobody"), ({"node_type": ""}, "''")],
)
def test_a_type_that_is_not_there_is_refused_by_name(feed: dict[str, Any], named: str) -> None:
    """CONTRACT 35: names the types there are."""
    with pytest.raises(ValueError, match=named):
        opened(HOPS, feed, TWO, hetero=True)


@pytest.mark.parametrize(
    ("spec", "node_type"),
    [
        (WalkSpec(path=(CITES,), walk_length=1), "author"),
        (WalkSpec(path=(WRITES,), walk_length=1, direction="in"), "author"),
        (ABLPSpec(neighbors=HOPS, supervision=(CITES,), positive=(CITES,)), "author"),
    ],
)
def test_inputs_of_a_type_that_a_spec_does_not_begin_at_are_refused(
    spec: BuiltInSpec, node_type: str
) -> None:
    """CONTRACT 61."""
    with pytest.raises(ValueError, match=f"node_type is '{node_type}'"):
        opened(spec, {"node_type": node_type}, TWO, hetero=True)


GIVEN: list[tuple[BuiltInSpec, Arrays, Arrays, str]] = [
    (HOPS, {"time": TWO}, {}, "input_time"),
    (HOPS, {"tiem": TWO}, {}, "columns.*tiem"),
    (HOPS, {}, {"src_weight": TWO}, "tables.*src_weight"),
    (SubgraphSpec(), {"time": TWO}, {}, "columns.*time"),
    (BY_NODES, {"time": np.array([0.5, 1])}, {}, "time"),
    (BY_NODES, {"time": np.array([True, False])}, {}, "time"),
    (BY_NODES, {"time": ENDS}, {}, "time"),
    (BY_NODES, {"time": np.array(3)}, {}, "time"),
    (BY_NODES, {"time": np.array([1, 2, 3])}, {}, "time"),
    (BY_EDGES, {}, {}, "Seed time needs to be specified"),
    (LINKS, {"time": TWO}, {}, "edge_label_time"),
    (TIMED, {}, {}, "edge_label_time"),
    (TIMED, {"time": ENDS}, {}, "time"),
    (LINKS, {"label": np.array(1.0)}, {}, "label"),
    (LINKS, {"label": np.ones(3)}, {}, "label"),
    (LINKS, {"lable": np.ones(2)}, {}, "lable"),
    (LINKS, {}, {"label_shift": np.empty(0, np.int64)}, "label_shift"),
    (LINKS, {}, {"label_shift": np.ones(1)}, "label_shift"),
    (LINKS, {}, {"src_weight": np.ones(3, np.int64)}, "src_weight"),
    (LINKS, {}, {"dst_weight": np.ones(20)}, "dst_weight"),
    (LINKS, {}, {"dst_weight": np.ones((20, 1), np.int64)}, "dst_weight"),
    (LINKS, {}, {"weight": np.ones(20, np.int64)}, "weight"),
    (LinkSpec(neighbors=HOPS), {}, {"dst_weight": np.arange(20)}, "tables.*dst_weight.*none"),
    (
        LinkSpec(neighbors=HOPS, negatives="triplet"),
        {},
        {"src_weight": np.arange(20)},
        "tables.*src_weight.*reads: 'dst_weight';",
    ),
    (LABELS, {}, {}, "no positive labels"),
    (LABELS, {"positive/0": TWO}, {}, "positive/0"),
    (LABELS, {"positive/0": GOOD.astype(float)}, {}, "positive/0"),
    (LABELS, {"positive/0": GOOD[:1]}, {}, "positive/0"),
    (LABELS, {"positive/0": GOOD, "negative/1": GOOD}, {}, "negative/1"),
]


@pytest.mark.parametrize(("spec", "columns", "tables", "named"), GIVEN)
def test_what_comes_with_inputs_and_makes_no_sense_is_refused_by_name(
    spec: BuiltInSpec, columns: Arrays, tables: Arrays, named: str
) -> None:
    """CONTRACT 32, 37, 46: columns have a row for each input, and tables one for each node."""
    is_link = isinstance(spec, LinkSpec)
    feed = {"edge_type": EDGE} if is_link else {}
    with pytest.raises(ValueError, match=named):
        opened(spec, feed, ENDS if is_link else TWO, columns, tables)


@pytest.mark.parametrize(
    ("spec", "ids", "columns", "tables"),
    [
        (HOPS, np.array([0, 20]), {}, {}),
        (HOPS, np.array([0, -1]), {}, {}),
        (SubgraphSpec(), np.array([0, 20]), {}, {}),
        (PPRSpec(), np.array([0, 20]), {}, {}),
        (PPRSpec(), np.array([0, -(2**63)]), {}, {}),
        (WalkSpec(walk_length=2), np.array([2**62, 0]), {}, {}),
        (HGTSpec(num_samples=(2,)), np.array([-1, 0]), {}, {}),
        (BY_NODES, np.array([0, 20]), {}, {}),
        (NeighborSpec(num_neighbors=(1,), subgraph_type="induced"), np.array([0, 20]), {}, {}),
        (LABELS, TWO, {"positive/0": np.array([[0], [20]])}, {}),
        (LABELS, TWO, {"positive/0": np.array([[0], [-2]])}, {}),
        (LABELS, np.array([0, 20]), {"positive/0": GOOD}, {}),
        (LinkSpec(neighbors=HOPS), np.array([[0, 20], [0, 0]]), {}, {}),
        (LINKS, np.array([[0, 0], [0, 20]]), {}, {}),
        (LINKS, np.array([[0, 0], [0, -1]]), {}, {}),
        (LinkSpec(neighbors=HOPS, negatives="triplet"), np.array([[0, 20], [0, 0]]), {}, {}),
        (
            LinkSpec(neighbors=HOPS, negatives="triplet", strict=True),
            np.array([[0, -1], [0, 0]]),
            {},
            {},
        ),
        (LINKS, ENDS, {}, {"src_weight": np.zeros(20, np.int64)}),
        (LINKS, ENDS, {}, {"dst_weight": np.arange(20)[::-1].copy()}),
    ],
)
def test_ids_of_nobody_fail_the_batch_they_are_in(
    spec: BuiltInSpec, ids: Array, columns: Arrays, tables: Arrays
) -> None:
    """CONTRACT 20, 38: an error, never a wrong row; the station goes on."""
    is_link = isinstance(spec, LinkSpec)
    feed = {"edge_type": EDGE} if is_link else {}
    maker, decoded = opened(spec, feed, ids, columns, tables)
    memory = private_memory(slot_bytes_for(spec, maker.graph, decoded))
    with pytest.raises(ValueError, match=r"expected|weight|sums"):
        maker.sample(1, 0, 0, memory)
    good = ChannelInputs(ENDS if is_link else TWO, dict.fromkeys(columns, GOOD))
    maker.open_channel(2, 1, decoded, good)
    assert maker.sample(2, 0, 0, memory).nbytes


@SOME
@given(
    st.sampled_from(["num_inputs", "batch_size", "seed"]),
    st.integers(-(2**63), 2**64 - 1),
    st.booleans(),
    st.booleans(),
)
def test_numbers_of_a_feed_are_refused_or_work(
    field: str, value: int, shuffle: bool, drop_last: bool
) -> None:
    """CONTRACT 1, 2: whatever they are, opening a channel costs nothing."""
    feed = {"shuffle": shuffle, "drop_last": drop_last, field: value}
    try:
        maker, decoded = opened(HOPS, feed, None if field == "num_inputs" else TWO)
    except ValueError:
        return
    assert slot_bytes_for(HOPS, maker.graph, decoded) > 0
