"""Hops drawn in parts and put together: the batch that the whole graph gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BatchTooLarge, GraphFormatError
from penstock.kernels import Adjacency, Buffers, Exclusion, Sample, reference
from penstock.kernels.hops import Drawn, HopAssembly, draw_hop, edges_within
from penstock.kernels.members import Members
from penstock.kernels.subgraph import InducedEdges
from penstock.kernels.twins import hops as twin
from tests.kernels.each_simd import each_simd
from tests.kernels.large import large_job
from tests.kernels.parts import PartedJob, rows_of_nodes, splits
from tests.kernels.strategies import FANOUTS, WORDS, Edges, any_rows, same_array
from tests.kernels.test_exclusion import arrays_of, excluding_jobs, native
from tests.kernels.tree_jobs import Chosen, TreeJob, assert_same_trees, tree_jobs


@st.composite
def parted_jobs(draw: st.DrawFn) -> tuple[PartedJob, Sample]:
    """Any job, over any split of its nodes, and the batch of the whole graph."""
    job, pairs = draw(excluding_jobs())
    owners, count = draw(splits(job.num_nodes))
    excluded = arrays_of(pairs, disjoint=job.disjoint)
    return PartedJob(job, owners, count, excluded), native(job, pairs)


@each_simd
@given(parted_jobs())
def test_hops_of_parts_put_together_are_the_batch_of_the_whole(
    made: tuple[PartedJob, Sample],
) -> None:
    parted, whole = made
    assert_same_trees(parted.put_together(parted.assembly()), whole)


@given(parted_jobs(), st.booleans(), st.sampled_from(["int32", "int64"]))
def test_edges_come_as_int32_or_int64_with_ids_or_without(
    made: tuple[PartedJob, Sample], with_edge_ids: bool, dtype: str
) -> None:
    parted, whole = made
    sample = parted.put_together(parted.assembly(), with_edge_ids=with_edge_ids, dtype=dtype)
    assert (sample.edge_ids is not None) == with_edge_ids
    assert_same_trees(sample, whole)


@given(st.lists(parted_jobs(), min_size=2, max_size=3))
def test_an_assembly_forgets_the_batch_before(jobs: list[tuple[PartedJob, Sample]]) -> None:
    for parted, whole in jobs:
        assembly = parted.assembly()
        assembly.begin([ids[:0] for ids in parted.job.seeds])
        assembly.finish()
        assert_same_trees(parted.put_together(assembly), whole)
        assembly.begin(parted.job.seeds)  # and is left alone
        assert_same_trees(parted.put_together(assembly), whole)


def room_for(sample: Sample, spare: int = 0, *, with_edge_ids: bool = True) -> Buffers:
    return Buffers.allocate(
        [len(ids) + spare for ids in sample.nodes],
        [len(rows) + spare for rows in sample.rows],
        with_edge_ids=with_edge_ids,
        with_trees=sample.trees is not None,
    )


@given(parted_jobs(), st.integers(0, 200), st.booleans())
def test_a_batch_is_written_into_memory_that_has_room_for_it_and_no_more(
    made: tuple[PartedJob, Sample], spare: int, with_edge_ids: bool
) -> None:
    parted, whole = made
    out = room_for(whole, spare, with_edge_ids=with_edge_ids)
    sample = parted.put_together(parted.assembly(), out)
    assert_same_trees(sample, whole)
    for ids, room in zip(sample.nodes, out.nodes, strict=True):
        assert ids.base is room or len(ids) == 0
    assert (sample.edge_ids is not None) == with_edge_ids


@given(parted_jobs(), st.data())
def test_a_batch_that_does_not_fit_is_kept_and_written_again(
    made: tuple[PartedJob, Sample], data: st.DataObject
) -> None:
    parted, whole = made
    nodes, edges = list(map(len, whole.nodes)), list(map(len, whole.rows))
    kept = [data.draw(st.integers(0, count)) for count in nodes + edges]
    if kept == nodes + edges:
        return
    small = Buffers.allocate(
        kept[: len(nodes)], kept[len(nodes) :], with_trees=whole.trees is not None
    )
    assembly = parted.assembly()
    with pytest.raises(BatchTooLarge, match="has room for") as error:
        parted.put_together(assembly, small)
    assert (error.value.nodes, error.value.edges) == (nodes, edges)
    with pytest.raises(BatchTooLarge):
        assembly.again(small)
    assert_same_trees(assembly.again(room_for(whole)), whole)
    assert_same_trees(assembly.again(room_for(whole, 5)), whole)


@each_simd
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("fanouts", [(10, 5), (-1, 3), (33, 2)])
def test_batches_of_many_blocks_are_those_of_the_whole(
    fanouts: tuple[int, ...], dtype: str
) -> None:
    job = large_job(9000, fanouts, 700, paired=True, dtype=dtype, seed=3)
    chosen = [Chosen(edges) for edges in job.edges]
    whole = TreeJob(job.num_nodes, chosen, job.seeds, key=job.key, disjoint=False)
    for disjoint in (False, True):
        tree_job = replace(whole, disjoint=disjoint)
        owners = np.arange(9000) * 7919 % 3
        parted = PartedJob(tree_job, [owners], 3, [])
        assembly = parted.assembly()
        expected = tree_job.native()
        assert_same_trees(parted.put_together(assembly), expected)
        out = room_for(expected)
        assert_same_trees(parted.put_together(assembly, out), expected)


@each_simd
@given(excluding_jobs(), st.data())
def test_what_nodes_draw_is_the_twins(
    made: tuple[TreeJob, list[set[tuple[int, int, int]]]], data: st.DataObject
) -> None:
    job, pairs = made
    for number, chosen in enumerate(job.chosen):
        if not job.num_nodes[chosen.edges.expands]:
            continue
        node = st.integers(0, job.num_nodes[chosen.edges.expands] - 1)
        nodes = np.array(data.draw(st.lists(node, max_size=12)), np.int64)
        trees = times = None
        if job.disjoint:
            trees = np.arange(len(nodes)) * data.draw(st.sampled_from([0, 1, 3, 10**12]))
            times = np.array([data.draw(st.integers(-3, 3)) for _ in nodes], np.int64)
        options = {"replace": job.replace, "last": job.last, "trees": trees, "node_times": times}
        drawn = draw_hop(
            chosen.edges.rows.adjacency,
            nodes,
            fanout := data.draw(FANOUTS),
            job.key,
            weights=chosen.weights,
            times=chosen.times,
            excluded=arrays_of(pairs, disjoint=job.disjoint)[number],
            **options,
        )
        expected = twin.draw_hop(
            chosen.twin, nodes, fanout, job.key, excluded=pairs[number], **options
        )
        for mine, other in zip(drawn, expected, strict=True):
            same_array(mine, other)


@given(tree_jobs())
def test_the_twins_assembly_is_the_twins_batch(job: TreeJob) -> None:
    hops = max((len(chosen.edges.fanouts) for chosen in job.chosen), default=0)
    assembly = twin.HopAssembly(
        len(job.num_nodes),
        [(chosen.edges.expands, chosen.edges.finds) for chosen in job.chosen],
        num_hops=hops,
        node_caps=job.node_caps,
        disjoint=job.disjoint,
    )
    assembly.begin(job.seeds)
    times = None if job.times is None else np.concatenate(job.times)
    for hop in range(hops):
        for number, chosen in enumerate(job.chosen):
            nodes, trees = assembly.frontier(chosen.edges.expands)
            key = reference.hop_key(job.key, hop, reference.name_hash(chosen.edges.name))
            drawn = twin.draw_hop(
                chosen.twin,
                nodes,
                chosen.edges.fanouts[hop],
                key,
                replace=job.replace,
                last=job.last,
                trees=trees,
                node_times=None if times is None or trees is None else times[trees],
            )
            assembly.take(number, drawn)
        assembly.end_hop()
    made, expected = assembly.finish(), job.twin()
    assert made.num_sampled_nodes == expected.num_sampled_nodes
    assert made.num_sampled_edges == expected.num_sampled_edges
    for name in ("nodes", "rows", "cols", "edge_ids", "trees"):
        for mine, other in zip(
            getattr(made, name) or (), getattr(expected, name) or (), strict=True
        ):
            same_array(mine, other)


@given(st.integers(1, 9), st.integers(1, 9), st.booleans(), st.data())
def test_edges_within_are_the_twins_and_those_that_are_induced(
    num_heads: int, num_tails: int, by_tree: bool, data: st.DataObject
) -> None:
    rows = data.draw(any_rows(num_tails, num_heads))
    heads = np.array(data.draw(st.lists(st.integers(0, num_heads - 1), max_size=9)), np.int64)
    tails = np.array(data.draw(st.lists(st.integers(0, num_tails - 1), max_size=9)), np.int64)
    trees = {}
    if by_tree:
        tree = st.integers(0, 2)
        for name, nodes in (("head_trees", heads), ("tail_trees", tails)):
            trees[name] = np.array([data.draw(tree) for _ in nodes], np.int64)
    found = edges_within(rows.adjacency, heads, tails, **trees)
    for mine, other in zip(
        found, twin.edges_within(Edges(rows, ()).twin, heads, tails, **trees), strict=True
    ):
        same_array(mine, other)
    cut = InducedEdges([num_heads, num_tails], [Edges(rows, (), 0, 1).native])
    both = [trees["head_trees"], trees["tail_trees"]] if by_tree else None
    (induced,) = cut.cut([heads, tails], both)
    same_array(found[1], induced.rows)
    same_array(np.repeat(np.arange(len(heads)), found[0]), induced.cols)
    assert induced.edge_ids is not None
    same_array(found[2], induced.edge_ids)


@given(st.integers(1, 9), st.data())
def test_edges_within_parts_are_those_within_the_whole(size: int, data: st.DataObject) -> None:
    rows = data.draw(any_rows(size, size))
    owners, count = data.draw(splits([size]))
    node = st.integers(0, size - 1)
    heads = np.array(data.draw(st.lists(node, max_size=9)), np.int64)
    tails = np.array(data.draw(st.lists(node, max_size=9)), np.int64)
    counts, positions, edge_ids = edges_within(rows.adjacency, heads, tails)
    ends = np.cumsum(counts)
    for part in range(count):
        adjacency, _ = rows_of_nodes(rows, np.flatnonzero(owners[0] == part))
        mine = np.flatnonzero(owners[0][heads] == part)
        found = edges_within(adjacency, heads[mine], tails)
        assert found[0].tolist() == counts[mine].tolist()
        at = [place for i in mine for place in range(ends[i] - counts[i], ends[i])]
        assert found[1].tolist() == positions[at].tolist()
        assert found[2].tolist() == edge_ids[at].tolist()


def pair_of_nodes() -> Adjacency:
    """Node 0 has edges 5 and 6, to nodes 1 and 2; node 2 has edge 7, to node 0."""
    entries = np.array([[1, 5], [2, 6], [0, 7]], np.int32)
    return Adjacency(np.array([0, 2, 3]), entries, Members.of(np.array([0, 2]), 4))


def test_a_node_without_a_row_here_gives_nothing() -> None:
    drawn = draw_hop(pair_of_nodes(), np.array([1, 2, 3, 0]), -1, 1)
    assert drawn.counts.tolist() == [0, 1, 0, 2]
    assert drawn.neighbors.tolist() == [0, 1, 2]
    assert drawn.edge_ids.tolist() == [7, 5, 6]
    assert [column.dtype for column in drawn] == [np.int32] * 3


def test_a_node_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"nodes\[1\] is 4; expected 0 <= id < 4"):
        draw_hop(pair_of_nodes(), np.array([0, 4]), 1, 1)
    with pytest.raises(ValueError, match=r"heads\[0\] is -1; expected 0 <= id < 4"):
        edges_within(pair_of_nodes(), np.array([-1]), np.array([0]))


def test_columns_that_do_not_fit_the_nodes_are_named() -> None:
    rows, nodes = pair_of_nodes(), np.array([0, 2])
    with pytest.raises(ValueError, match="trees has 1 entries; expected 2"):
        draw_hop(rows, nodes, 1, 1, trees=np.array([0]))
    with pytest.raises(ValueError, match="times need trees and node_times"):
        draw_hop(rows, nodes, 1, 1, times=np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="weights of relation 0 must be int64"):
        draw_hop(rows, nodes, 1, 1, weights=np.zeros(4, np.int64))
    with pytest.raises(ValueError, match=r"excluded\.trees must be there"):
        draw_hop(rows, nodes, 1, 1, excluded=Exclusion(0, nodes, nodes, nodes))
    with pytest.raises(ValueError, match="head_trees and tail_trees are needed both"):
        edges_within(rows, nodes, nodes, head_trees=nodes)


@pytest.mark.parametrize("tree", [-1, 2**63 - 1])
def test_a_tree_that_is_none_is_named(tree: int) -> None:
    with pytest.raises(ValueError, match=rf"trees\[1\] is {tree}; expected 0 <= tree"):
        draw_hop(pair_of_nodes(), np.array([0, 2]), 1, 1, trees=np.array([0, tree]))


def drawn_of(counts: list[int], neighbors: list[int], edge_ids: list[int] | None = None) -> Drawn:
    ids = neighbors if edge_ids is None else edge_ids
    return Drawn(np.array(counts, np.int32), np.array(neighbors, np.int32), np.array(ids, np.int32))


def test_what_does_not_fit_the_frontier_is_refused() -> None:
    assembly = HopAssembly([4], [(0, 0)], num_hops=1)
    assembly.begin([np.array([3, 1, 3])])
    assert assembly.frontier(0)[0].tolist() == [3, 1]
    with pytest.raises(ValueError, match="counts has 3 entries; the frontier has 2 nodes"):
        assembly.take(0, drawn_of([1, 0, 1], [0, 0]))
    with pytest.raises(ValueError, match="counts sum to 2; there are 1 neighbors"):
        assembly.take(0, drawn_of([1, 1], [0]))
    with pytest.raises(ValueError, match=r"counts\[0\] is -1"):
        assembly.take(0, drawn_of([-1, 2], [0]))
    with pytest.raises(ValueError, match="and 1 edge_ids"):
        assembly.take(0, drawn_of([1, 1], [0, 0], [0]))
    with pytest.raises(GraphFormatError, match=r"neighbors\[1\] of relation 0 is 4; expected 0 <="):
        assembly.take(0, drawn_of([1, 1], [0, 4]))
    assembly.take(0, drawn_of([1, 1], [0, 2], [8, 9]))
    with pytest.raises(ValueError, match="relation is 0"):
        assembly.take(0, drawn_of([0, 0], []))
    assembly.end_hop()
    with pytest.raises(ValueError, match="there are only 1 hops"):
        assembly.end_hop()
    sample = assembly.finish()
    assert sample.nodes[0].tolist() == [3, 1, 3, 0, 2]
    assert (sample.rows[0].tolist(), sample.cols[0].tolist()) == ([3, 4], [0, 1])


def test_calls_out_of_order_are_refused() -> None:
    assembly = HopAssembly([4], [(0, 0)], num_hops=1)
    for call in (lambda: assembly.frontier(0), assembly.end_hop, assembly.finish):
        with pytest.raises(RuntimeError, match="no batch was begun"):
            call()
    with pytest.raises(RuntimeError, match="no batch is kept"):
        assembly.again(Buffers.allocate([4], [4]))


def test_hops_that_nobody_drew_are_empty() -> None:
    assembly = HopAssembly([4], [(0, 0)], num_hops=2)
    assembly.begin([np.array([1])])
    sample = assembly.finish()
    assert sample.num_sampled_nodes == [[1, 0, 0]]
    assert sample.num_sampled_edges == [[0, 0]]


def test_edges_are_not_taken_from_where_the_batch_is_written() -> None:
    assembly = HopAssembly([4], [(0, 0)], num_hops=1)
    out = Buffers.allocate([9], [9])
    assembly.begin([np.array([1])], out)
    drawn = Drawn(np.array([1]), out.nodes[0][4:5], out.cols[0][4:5])
    with pytest.raises(ValueError, match="must not share memory"):
        assembly.take(0, drawn)


def test_memory_that_cannot_be_written_to_is_named() -> None:
    assembly = HopAssembly([4], [(0, 0)], num_hops=1)
    out = Buffers.allocate([9], [9])
    out.cols[0].flags.writeable = False
    with pytest.raises(
        ValueError, match=r"out\.cols\[0\] must be contiguous, aligned and writeable"
    ):
        assembly.begin([np.array([1])], out)
    with pytest.raises(ValueError, match=r"out\.trees must be there for disjoint sampling"):
        assembly.begin([np.array([1])], Buffers.allocate([9], [9], with_trees=True))


@pytest.mark.parametrize("bad", [-1, 4])
def test_a_seed_that_is_none_is_named(bad: int) -> None:
    assembly = HopAssembly([4], [(0, 0)], num_hops=1)
    with pytest.raises(ValueError, match=rf"seeds\[0\]\[1\] is {bad}; expected 0 <= id < 4"):
        assembly.begin([np.array([1, bad])])


def test_too_many_nodes_for_trees_are_refused() -> None:
    assembly = HopAssembly([2**62], [(0, 0)], num_hops=1, disjoint=True)
    with pytest.raises(ValueError, match="too many to sample disjointly from 3 seeds"):
        assembly.begin([np.array([0, 1, 2])])


@given(WORDS, FANOUTS)
def test_no_nodes_draw_nothing(key: int, fanout: int) -> None:
    drawn = draw_hop(pair_of_nodes(), np.empty(0, np.int64), fanout, key)
    assert [len(column) for column in drawn] == [0, 0, 0]
