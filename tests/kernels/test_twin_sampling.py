"""Sampling: the native code gives the twin's bytes, and its parts put together give the whole."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock import kernels
from penstock.kernels import Relabeler, reference
from penstock.kernels.arrays import Array
from penstock.kernels.twins import hops as twins
from tests.kernels.each_simd import each_simd
from tests.kernels.strategies import (
    FANOUTS,
    JOBS,
    WORDS,
    Edges,
    Job,
    any_rows,
    assert_same,
    heterogeneous_jobs,
    homogeneous_jobs,
    same_array,
    same_arrays,
)

# Ids that look alike in their lower 32 bits, or are no node of anybody's.
ANY_IDS = st.lists(
    st.one_of(
        st.integers(0, 20),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(0, 5).map(lambda i: i + 2**32),
    ),
    max_size=40,
)


@each_simd
@given(homogeneous_jobs())
def test_homogeneous_batches_are_the_twins(job: Job) -> None:
    assert_same(job.native(), job.twin())


@each_simd
@given(heterogeneous_jobs())
def test_heterogeneous_batches_are_the_twins(job: Job) -> None:
    assert_same(job.native(), job.twin())


@given(JOBS)
def test_a_batch_without_edge_ids_is_the_same_otherwise(job: Job) -> None:
    sample = job.native(with_edge_ids=False)
    assert sample.edge_ids is None
    assert_same(sample, job.twin())


@each_simd
@given(st.integers(1, 10), FANOUTS, WORDS, st.booleans(), st.data())
def test_one_hop_is_the_twins(
    num_nodes: int, fanout: int, key: int, replace: bool, data: st.DataObject
) -> None:
    rows = data.draw(any_rows(num_nodes, num_nodes))
    nodes = np.array(data.draw(st.lists(st.integers(0, num_nodes - 1), max_size=12)), np.int64)
    hop = kernels.draw_hop(rows.adjacency, nodes, fanout, key, replace=replace)
    relation = Edges(rows, ()).twin
    same_arrays(list(hop), list(twins.draw_hop(relation, nodes, fanout, key, replace=replace)))


@given(st.lists(st.tuples(st.sampled_from(["seeds", "ids", "clear"]), ANY_IDS), max_size=8))
def test_relabeling_is_the_twins(calls: list[tuple[str, list[int]]]) -> None:
    native, twin = Relabeler(), reference.Relabeler()
    for what, values in calls:
        ids = np.array(values, np.int64)
        if what == "clear":
            native.clear()
            twin = reference.Relabeler()
        elif what == "seeds":
            native.add_seeds(ids)
            twin.add_seeds(ids)
        else:
            same_array(native.relabel(ids), twin.relabel(ids))
        assert len(native) == len(twin.nodes)
        same_array(native.nodes(), np.array(twin.nodes, np.int64))


@given(ANY_IDS, st.data())
def test_the_nodes_can_be_read_from_any_place_on(values: list[int], data: st.DataObject) -> None:
    relabeler = Relabeler()
    relabeler.relabel(np.array(values, np.int64))
    start = data.draw(st.integers(0, len(relabeler)))
    same_array(relabeler.nodes(start), relabeler.nodes()[start:])


@given(JOBS)
def test_hops_put_together_by_hand_give_the_fused_batch(job: Job) -> None:
    if job.node_caps:  # a cap is the fused sampler's: it looks at every single edge
        return
    assert_same(job.native(), put_together(job))


def put_together(job: Job) -> kernels.Sample:
    """A batch by `draw_hop` and `Relabeler`, hop by hop."""
    lists = [Relabeler() for _ in job.num_nodes]
    for relabeler, seeds in zip(lists, job.seeds, strict=True):
        relabeler.add_seeds(seeds)
    parts: list[list[tuple[Array, Array, Array]]] = [[] for _ in job.edges]
    hop_nodes = [[len(relabeler)] for relabeler in lists]
    begins = [0] * len(lists)
    for hop in range(len(job.edges[0].fanouts) if job.edges else 0):
        ends = [len(relabeler) for relabeler in lists]
        for edges, found in zip(job.edges, parts, strict=True):
            window = begins[edges.expands], ends[edges.expands]
            found.append(expand(job, edges, hop, lists, *window))
        for type_, relabeler in enumerate(lists):
            hop_nodes[type_].append(len(relabeler) - ends[type_])
        begins = ends
    empty = (np.empty(0, np.int64),) * 3
    columns = [
        [np.concatenate(column) for column in zip(empty, *found, strict=True)] for found in parts
    ]
    return kernels.Sample(
        [relabeler.nodes() for relabeler in lists],
        [column[0] for column in columns],
        [column[1] for column in columns],
        [column[2] for column in columns],
        hop_nodes,
        [[len(rows) for rows, _, _ in found] for found in parts],
    )


def expand(
    job: Job, edges: Edges, hop: int, lists: list[Relabeler], begin: int, end: int
) -> tuple[Array, Array, Array]:
    """Rows, columns and edge ids of one hop along one edge type."""
    nodes = lists[edges.expands].nodes(begin)[: end - begin]
    # Only the first of equal seeds is expanded; later hops find every node once.
    firsts = np.sort(np.unique(nodes, return_index=True)[1])
    key = kernels.hop_key(job.key, hop, kernels.name_hash(edges.name))
    counts, neighbors, edge_ids = kernels.draw_hop(
        edges.rows.adjacency, nodes[firsts], edges.fanouts[hop], key, replace=job.replace
    )
    rows = lists[edges.finds].relabel(neighbors)
    return rows, np.repeat(begin + firsts, counts), edge_ids.astype(np.int64)
