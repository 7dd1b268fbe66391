"""What is not refused works: any values in any fields of a spec, as they come from a socket."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph import Graph
from penstock.graph.schema import EDGE
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.inputs import ChannelInputs
from penstock.sampling.kinds import check, prepare, seconds_of
from penstock.sampling.spec import Feed
from penstock.wire.frames import private_memory
from penstock.workers.batch_maker import BatchMaker, slot_bytes_for
from tests.sampling.from_wire import GRAPHS, HUGE, NOTHING, TYPES, decoded
from tests.sampling.graphs import CITES, HOUSES, WRITES, Array
from tests.sampling.worlds import SOME

numbers = st.sampled_from([-1, 0, 1, 2, 5, 2**31, 2**62, 2**63 - 1, HUGE])
floats = st.sampled_from([0.0, -0.0, 1.0, 0.5, 2.0, 1e-3, -1.0, 1e-300, 1e300, math.inf, math.nan])
words = st.sampled_from(
    ["", "x", "time", "edge_weight", "edge_time", "edge_attr", "n_id", "é", "a/b"]
)
kinds = st.sampled_from([EDGE, WRITES, CITES, HOUSES, NOTHING])
lists = st.lists(numbers, max_size=3)
names = st.none() | st.lists(words, max_size=2)
FIELDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "neighbor": {
        "num_neighbors": lists,
        "by_type": st.none() | st.lists(st.tuples(kinds, lists), max_size=3),
        "replace": st.booleans(),
        "direction": st.sampled_from(["in", "out"]),
        "node_caps": lists,
        "disjoint": st.booleans(),
        "subgraph_type": st.sampled_from(["directional", "bidirectional", "induced"]),
        "weight_attr": st.none() | words,
        "time_attr": st.none() | words,
        "temporal_strategy": st.sampled_from(["uniform", "last"]),
        "with_edge_ids": st.booleans(),
        "node_attributes": names,
        "edge_attributes": names,
    },
    "link": {
        "negatives": st.sampled_from(["none", "binary", "triplet"]),
        "amount": floats,
        "strict": st.booleans(),
    },
    "subgraph": {
        "num_hops": st.sampled_from([-1, 0, 2, 300, 2**31, HUGE]),
        "direction": st.sampled_from(["in", "out"]),
        "with_edge_ids": st.booleans(),
    },
    "ablp": {
        "supervision": st.lists(kinds, max_size=2),
        "positive": st.none() | st.lists(kinds, max_size=2),
        "negative": st.none() | st.lists(kinds, max_size=2),
        "max_labels": st.none() | numbers,
    },
    "ppr": {
        "alpha": floats,
        "eps": floats,
        "max_ppr_nodes": st.sampled_from([-1, 0, 1, 50, 2**39, HUGE]),
        "num_neighbors_per_hop": numbers,
        "max_fetch_iterations": st.none() | numbers,
        "residual_topup": st.booleans(),
        "channels": st.lists(st.tuples(words, st.lists(kinds, max_size=2), floats), max_size=2),
        "include_sampled_edges": st.booleans(),
        "direction": st.sampled_from(["in", "out"]),
    },
    "walk": {
        "walk_length": st.sampled_from([-1, 0, 1, 4, 2**31, HUGE]),
        "walks_per_node": st.sampled_from([-1, 0, 1, 3, 2**31, HUGE]),
        "p": floats,
        "q": floats,
        "path": st.none() | st.lists(kinds, max_size=2),
        "direction": st.sampled_from(["in", "out"]),
        "edge_attributes": names,
    },
    "hgt": {
        "num_samples": lists,
        "by_type": st.none() | st.lists(st.tuples(words, lists), max_size=3),
        "with_edge_ids": st.booleans(),
    },
}


@SOME
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional")
@given(st.data(), st.booleans())
def test_a_spec_is_refused_at_once_or_works(kind: str, data: st.DataObject, hetero: bool) -> None:
    """CONTRACT 61: a ValueError when it is looked at, or batches without any."""
    graph = GRAPHS[hetero]
    fields = data.draw(st.lists(st.sampled_from(list(FIELDS[kind])), max_size=3, unique=True))
    spec = decoded(kind, **{field: data.draw(FIELDS[kind][field], field) for field in fields})
    try:
        check(spec, graph)
    except ValueError:
        return
    feed, ids, columns = inputs_for(kind, spec, graph)
    prepare(spec, graph)
    assert math.isfinite(seconds_of(spec, graph, 2, feed.edge_type or feed.node_type or ""))
    room = slot_bytes_for(spec, graph, feed)
    assert 0 < room <= 1 << 30
    maker = BatchMaker(graph)
    maker.open_backend(1, spec)
    maker.open_channel(1, 1, feed, ChannelInputs(ids, columns))
    try:
        maker.sample(1, 0, 0, private_memory(min(room, 1 << 20)))
    except SlotTooSmall as small:
        maker.sample(1, 0, 0, private_memory(small.needed))


def inputs_for(kind: str, spec: Any, graph: Graph) -> tuple[Feed, Array | None, dict[str, Array]]:
    """Two inputs that go with a spec."""
    columns: dict[str, Array] = {}
    neighbors = spec if kind == "neighbor" else getattr(spec, "neighbors", None)
    if neighbors is not None and neighbors.time_attr is not None:
        columns["time"] = np.array([4, 5])
    if kind == "link":
        of = CITES if graph.is_hetero else EDGE
        feed = Feed(num_inputs=2, batch_size=2, edge_type=of)
        return feed, np.array([[0, 1], [2, 3]]), columns
    of_type: str | None = "paper" if graph.is_hetero else None
    if kind == "ablp":
        of_type = spec.supervision[0][0] or None
        columns |= {
            f"positive/{n}": np.array([[0, -1], [1, 0]]) for n in range(len(spec.supervision))
        }
    if kind == "walk" and spec.path:
        of_type = spec.path[0][0 if spec.direction == "out" else 2]
    return Feed(num_inputs=2, batch_size=2, node_type=of_type), None, columns
