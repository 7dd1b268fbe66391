"""Graphs and batches that tests of sampling share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph import Graph
from penstock.graph.shared import SharedArray
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.inputs import ChannelInputs
from penstock.sampling.kinds import prepare
from penstock.sampling.spec import Feed, Spec
from penstock.wire.frames import private_memory, read
from penstock.workers.batch_maker import BatchMaker, Written, slot_bytes_for

Array = npt.NDArray[Any]

WRITES = ("author", "writes", "paper")
CITES = ("paper", "cites", "paper")
HOUSES = ("venue", "houses", "author")


def web(num_nodes: int = 200, num_edges: int = 1500) -> Graph:
    """A homogeneous graph with attributes of many types, wide and narrow."""
    rng = np.random.default_rng(7)
    return Graph.from_coo(
        rng.integers(0, num_nodes, (2, num_edges)),
        num_nodes,
        x=rng.random((num_nodes, 5), np.float32),
        y=rng.integers(0, 9, num_nodes),
        node_attrs={
            "half": rng.random((num_nodes, 3)).astype(np.float16),
            "tiny": rng.integers(-9, 9, (num_nodes, 2, 2)).astype(np.int8),
            "mask": rng.random(num_nodes) < 0.5,
            "nothing": np.empty((num_nodes, 0), np.float32),
        },
        edge_attr=rng.random((num_edges, 2), np.float32),
        edge_weight=rng.random(num_edges),
    )


def library() -> Graph:
    """Three node types in a chain: which are reached depends on where one starts, and how far."""
    rng = np.random.default_rng(8)
    sizes = {"paper": 60, "author": 30, "venue": 4}
    edges = {WRITES: 200, CITES: 300, HOUSES: 40}
    return Graph.from_coo(
        {
            kind: np.stack(
                [rng.integers(0, sizes[kind[0]], count), rng.integers(0, sizes[kind[2]], count)]
            )
            for kind, count in edges.items()
        },
        sizes,
        x={name: rng.random((size, 3), np.float32) for name, size in sizes.items()},
        y={"paper": rng.integers(0, 5, sizes["paper"])},
        edge_attr={WRITES: rng.random((edges[WRITES], 2), np.float32)},
    )


def bfloat(num_nodes: int = 20) -> Graph:
    """Features that NumPy has no type for."""
    from penstock.graph.schema import NODE, ArrayKey

    plain = Graph.from_coo([[0, 1, 2], [1, 2, 3]], num_nodes)
    bits = np.arange(num_nodes * 4, dtype=np.uint16).reshape(num_nodes, 4)
    x = SharedArray.from_array(bits, "bfloat16")
    return Graph(plain.schema, {**plain.arrays, ArrayKey("node", NODE, "x"): x})


def maker_for(
    graph: Graph,
    spec: Spec,
    feed: Feed,
    ids: Array | None = None,
    columns: Mapping[str, Array] | None = None,
    tables: Mapping[str, Array] | None = None,
) -> BatchMaker:
    """A station with backend 1 and channel 1; what the spec needs of the graph is made."""
    prepare(spec, graph)
    maker = BatchMaker(graph)
    maker.open_backend(1, spec)
    maker.open_channel(1, 1, feed, ChannelInputs(ids, columns or {}, tables or {}))
    return maker


def made(maker: BatchMaker, epoch: int, index: int, room: int) -> tuple[Written, dict[str, Array]]:
    """A batch in `room` bytes, or in as many as it asks for if those do not do."""
    memory = private_memory(room)
    memory.fill(0xAA)  # whatever was there before
    try:
        written = maker.sample(1, epoch, index, memory)
    except SlotTooSmall as small:
        memory = private_memory(small.needed)
        written = maker.sample(1, epoch, index, memory)
    return written, read(memory, written.layouts)


def batch_of(
    graph: Graph,
    spec: Spec,
    feed: Feed,
    ids: Array | None = None,
    *,
    epoch: int = 0,
    index: int = 0,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The facts and the arrays of one batch, in a slot of the size that a channel would have."""
    maker = maker_for(graph, spec, feed, ids)
    written, arrays = made(maker, epoch, index, slot_bytes_for(spec, graph, feed))
    return written.facts, arrays
