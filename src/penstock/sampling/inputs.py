"""The inputs of one batch: a stretch of the epoch's order, and the nodes that stand there.

A feed says how an epoch is cut; this is the cutting. The order is computed where it is needed:
nobody stores it.
"""

from __future__ import annotations

import numpy as np

from penstock.core.plan import EpochPlan
from penstock.graph import Graph
from penstock.kernels import permutation
from penstock.kernels.arrays import Array, Ids, check_word
from penstock.sampling.spec import Feed


def positions_of(feed: Feed, epoch: int, index: int) -> Ids:
    """The places among the inputs that batch `index` of an epoch takes: its `input_id`."""
    plan = EpochPlan(feed.num_inputs, feed.batch_size, feed.drop_last)
    start, stop = plan.input_range(index)
    if feed.shuffle:
        return permutation(feed.seed, epoch, feed.num_inputs, start, stop)
    return np.arange(start, stop, dtype=np.int64)


def seeds_at(positions: Ids, ids: Array | None) -> Ids:
    """The nodes at these places; without `ids` the inputs are all nodes, in order."""
    return positions if ids is None else ids[positions].astype(np.int64, copy=False)


def check_feed(feed: Feed, graph: Graph, ids: Array | None) -> None:
    """ValueError unless the feed makes sense for this graph, and `ids` are the inputs it speaks of.

    Whether every id is a node's is found out when its batch comes: there may be 10⁹ of them.
    """
    if graph.is_hetero and feed.node_type is None:
        there = ", ".join(map(repr, graph.node_types))
        raise ValueError(f"node_type is missing; this graph has {there}")
    num_nodes = graph.num_nodes(feed.node_type)
    EpochPlan(feed.num_inputs, feed.batch_size, feed.drop_last)
    check_word(feed.seed, "seed")
    if ids is None and feed.num_inputs > num_nodes:
        raise ValueError(f"num_inputs is {feed.num_inputs}; there are {num_nodes} nodes")
    if ids is not None and (ids.ndim != 1 or ids.dtype.kind != "i"):
        raise ValueError(f"ids must be a list of integers, not {ids.dtype}{list(ids.shape)}")
    if ids is not None and len(ids) != feed.num_inputs:
        raise ValueError(f"num_inputs is {feed.num_inputs}; {len(ids)} ids are given")
