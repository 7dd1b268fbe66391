"""One hop of the sampler, as what each node gives: counts, and positions in the rows.

Tests of single choices ask by position; a batch names edges by their ids.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock import kernels
from penstock.kernels import Adjacency, KHop, Relation
from penstock.kernels.arrays import Array, Ids

EDGE = kernels.name_hash(("", "", ""))


def first_hop_key(key: int) -> int:
    """The key of the hop that `one_hop` makes of a batch's key: what a twin needs."""
    return kernels.hop_key(key, 0, EDGE)


def by_position(adjacency: Adjacency) -> Adjacency:
    """The same rows, with positions as edge ids: those of bare rows are already."""
    if adjacency.entries.ndim == 1:
        return adjacency
    entries = adjacency.entries.copy()
    entries[:, 1] = np.arange(len(entries))
    return Adjacency(adjacency.indptr, entries)


def one_hop(
    adjacency: Adjacency,
    nodes: Array | Sequence[int],
    fanout: int,
    key: int = 1,
    *,
    sums: Ids | None = None,
    times: Ids | None = None,
    node_times: Array | Sequence[int] | None = None,
    replace: bool = False,
    disjoint: bool = False,
    last: bool = False,
) -> tuple[Ids, Ids]:
    """How many edges each node gives, and their positions in the rows, node by node.

    `key` is a batch's. If disjoint, the trees are numbered by the places of the nodes; if not, a
    node that stands twice gives its edges at the first place only.
    """
    relation = Relation(by_position(adjacency), (fanout,), weights=sums, times=times)
    sampler = KHop([adjacency.num_nodes], [relation], replace=replace, disjoint=disjoint, last=last)
    limits = None if node_times is None else [np.asarray(node_times)]
    sample = sampler.sample(key, [np.asarray(nodes)], times=limits)
    assert sample.edge_ids is not None
    counts = np.bincount(sample.cols[0], minlength=len(nodes))
    assert sample.cols[0].tolist() == np.repeat(np.arange(len(nodes)), counts).tolist()
    return counts, sample.edge_ids[0]
