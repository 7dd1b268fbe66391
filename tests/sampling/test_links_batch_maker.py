"""Links as a worker makes them: from a feed, into memory of a given size."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.sampling.links import label_shift
from penstock.sampling.spec import Feed
from penstock.workers.batch_maker import slot_bytes_for
from tests.sampling.graphs import CITES, WRITES, library, made, maker_for, web
from tests.sampling.linking import EDGE, edge_set, spec_of


def feed_of(kind: Any, inputs: int, **options: Any) -> Feed:
    return Feed(num_inputs=inputs, batch_size=32, edge_type=kind, seed=5, **options)


@pytest.mark.parametrize("room", [None, 1 << 12])
@pytest.mark.parametrize("kind", [WRITES, CITES])
def test_an_epoch_has_every_edge_once_with_its_label(kind: Any, room: int | None) -> None:
    """CONTRACT 46: labels of any width, in whatever order the edges come."""
    graph = library()
    edges = graph.edge_index(kind)[:, :100]
    labels = np.stack([np.arange(100), np.arange(100), np.arange(100)], axis=1)
    spec = spec_of(3, 2, negatives="binary", amount=1.5, strict=True)
    feed = feed_of(kind, 100, shuffle=True)
    tables = {"label_shift": np.array([label_shift(labels)])}
    maker = maker_for(graph, spec, feed, edges, {"label": labels}, tables)
    name, seen = ",".join(kind), []
    for index in range(4):
        written, arrays = made(maker, 2, index, room or slot_bytes_for(spec, graph, feed))
        assert written.facts["num_false_negatives"] == 0
        given = written.facts["batch_size"]
        inputs = arrays[f"{name}/input_id"]
        ends = arrays[f"{name}/edge_label_index"]
        for row, end in enumerate((kind[0], kind[2])):
            assert arrays[f"{end}/n_id"][ends[row, :given]].tolist() == edges[row, inputs].tolist()
        assert arrays[f"{name}/edge_label"][:given].tolist() == (labels[inputs] + 1).tolist()
        assert not arrays[f"{name}/edge_label"][given:].any()
        seen += inputs.tolist()
    assert sorted(seen) == list(range(100))


@pytest.mark.parametrize("subgraph_type", ["directional", "bidirectional", "induced"])
@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("negatives", ["none", "binary", "triplet"])
def test_links_go_with_every_kind_of_subgraph(
    negatives: str, disjoint: bool, subgraph_type: str
) -> None:
    graph = web()
    edges = graph.edge_index()[:, 40:72]
    spec = spec_of(4, 2, negatives=negatives, disjoint=disjoint, subgraph_type=subgraph_type)
    maker = maker_for(graph, spec, feed_of(EDGE, 32), edges)
    written, arrays = made(maker, 0, 0, 1 << 20)
    nodes = arrays["n_id"]
    if negatives == "triplet":
        found = nodes[arrays["src_index"]], nodes[arrays["dst_pos_index"]]
        assert arrays["dst_neg_index"].shape == (32,)
    else:
        found = tuple(nodes[arrays["edge_label_index"][:, :32]])
    assert [ends.tolist() for ends in found] == edges.tolist()
    assert written.facts["batch_size"] == 32
    if disjoint:
        assert set(arrays["batch"].tolist()) == set(range(32))
    if subgraph_type != "bidirectional":
        sampled = set(zip(*nodes[arrays["edge_index"]].tolist(), strict=True))
        assert sampled <= edge_set(graph)


def test_weights_come_with_the_feed() -> None:
    graph = library()
    tables = {
        "src_weight": np.cumsum(np.arange(30) == 7),
        "dst_weight": np.cumsum(np.arange(60) < 5),
    }
    spec = spec_of(2, negatives="binary", amount=3)
    edges = graph.edge_index(WRITES)
    maker = maker_for(graph, spec, feed_of(WRITES, 200), edges, tables=tables)
    _, arrays = made(maker, 0, 1, 1 << 20)
    index = arrays["author,writes,paper/edge_label_index"][:, 32:]
    assert set(arrays["author/n_id"][index[0]].tolist()) == {7}
    assert set(arrays["paper/n_id"][index[1]].tolist()) == {0, 1, 2, 3, 4}


def test_what_does_not_go_with_a_spec_is_refused_when_a_channel_opens() -> None:
    graph = library()
    edges = graph.edge_index(WRITES)
    feed = feed_of(WRITES, 200)
    with pytest.raises(ValueError, match="'edge_label' needs to be undefined"):
        maker_for(
            graph, spec_of(2, negatives="triplet"), feed, edges, {"label": np.zeros(200, int)}
        )
    with pytest.raises(ValueError, match="Received conflicting 'edge_label_time'"):
        maker_for(graph, spec_of(2), feed, edges, {"time": np.zeros(200, int)})


def test_who_asks_for_the_size_of_batches_reads_no_times() -> None:
    """The hub asks: nothing that grows with the graph is to be read, or copied, there."""
    num_nodes = 1 << 18
    times = np.zeros(num_nodes, np.int32)
    spec = spec_of(2, negatives="binary", time_attr="time")
    feed = Feed(num_inputs=4, batch_size=4, edge_type=EDGE)
    with Graph.from_coo(np.zeros((2, 4), np.int64), num_nodes, node_time=times) as graph:
        tracemalloc.start()
        try:
            assert slot_bytes_for(spec, graph, feed) > 0
            assert tracemalloc.get_traced_memory()[1] < num_nodes
        finally:
            tracemalloc.stop()


def test_the_nodes_of_negatives_have_attributes_too() -> None:
    graph = web()
    maker = maker_for(
        graph,
        spec_of(2, negatives="binary", amount=4),
        feed_of(EDGE, 64),
        graph.edge_index()[:, :64],
    )
    _, arrays = made(maker, 0, 1, 1 << 20)
    ends = arrays["edge_label_index"][:, 32:]
    features = graph.node_attribute("x")[arrays["n_id"][ends]]
    np.testing.assert_array_equal(arrays["x"][ends], features)
