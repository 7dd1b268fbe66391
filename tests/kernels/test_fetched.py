"""Rows that are fetched as kernels miss them: every kernel gives what the whole graph gives."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.kernels import Adjacency, KHop, Relation, draw_hop
from penstock.kernels.arrays import Ids
from penstock.kernels.fetched import FetchedRows
from penstock.kernels.hgt import HGT
from penstock.kernels.labels import first_neighbors
from penstock.kernels.negatives import SortedRows, draw_negatives
from penstock.kernels.ppr import Push, PushChannel, PushOptions, PushRelation, degree_sizes
from penstock.kernels.subgraph import InducedEdges
from penstock.kernels.twins import fetched as twin
from penstock.kernels.walks import Step, WalkRows, walk
from tests.kernels import hgt_jobs, ppr_jobs, walk_jobs
from tests.kernels.elsewhere import Elsewhere, edges_of
from tests.kernels.strategies import JOBS, Job, Rows, any_rows, any_seeds, assert_same, rows_of
from tests.kernels.test_exclusion import arrays_of, excluding_jobs, native
from tests.kernels.test_negatives import Drawing, drawings
from tests.kernels.tree_jobs import TreeJob, assert_same_trees


@given(JOBS)
def test_khop_is_that_of_the_whole_graph(job: Job) -> None:
    elsewhere = Elsewhere()
    relations = [
        replace(edges.native, adjacency=elsewhere.rows_of(edges.rows).adjacency)
        for edges in job.edges
    ]
    sampler = KHop(job.num_nodes, relations, replace=job.replace, node_caps=job.node_caps)
    sample = elsewhere.complete(lambda: sampler.sample(job.key, job.seeds))
    assert_same(sample, job.native())


@given(excluding_jobs())
def test_khop_of_trees_with_exclusions_is_that_of_the_whole_graph(
    made: tuple[TreeJob, list[set[tuple[int, int, int]]]],
) -> None:
    job, pairs = made
    job = replace(job, chosen=[replace(chosen, weights=None, times=None) for chosen in job.chosen])
    elsewhere = Elsewhere()
    relations = [
        replace(chosen.native, adjacency=elsewhere.rows_of(chosen.edges.rows).adjacency)
        for chosen in job.chosen
    ]
    sampler = KHop(
        job.num_nodes,
        relations,
        replace=job.replace,
        node_caps=job.node_caps,
        disjoint=job.disjoint,
        last=job.last,
    )
    excluded = arrays_of(pairs, disjoint=job.disjoint)
    sample = elsewhere.complete(
        lambda: sampler.sample(job.key, job.seeds, times=job.times, excluded=excluded)
    )
    assert_same_trees(sample, native(job, pairs))


def pushing(job: ppr_jobs.Job, elsewhere: Elsewhere, *, with_sizes: bool) -> Push:
    relations = []
    for each in job.edges:
        sizes = None
        if with_sizes:
            sizes = np.empty(job.num_nodes[each.expands], np.uint8)
            degree_sizes(each.rows.adjacency, sizes)
        adjacency = elsewhere.rows_of(each.rows).adjacency
        relations.append(PushRelation(adjacency, each.expands, each.finds, each.name, sizes))
    channels = tuple(PushChannel(*channel) for channel in job.channels)
    return Push(job.num_nodes, relations, PushOptions(**job.options, channels=channels))


@given(ppr_jobs.push_jobs(), st.booleans())
def test_pushes_are_those_of_the_whole_graph(job: ppr_jobs.Job, with_sizes: bool) -> None:
    elsewhere = Elsewhere()
    push = pushing(job, elsewhere, with_sizes=with_sizes)
    sample = elsewhere.complete(lambda: push.sample(job.key, job.seeds, job.seed_type))
    ppr_jobs.assert_same(sample, job.twin())


def test_who_knows_how_large_rows_are_fetches_those_that_pass_something_on() -> None:
    path = ppr_jobs.out_edges([(0, 1), (0, 2), (1, 3), (2, 4), (3, 4)], 5)
    job = ppr_jobs.Job([5], [ppr_jobs.Edges(path)], np.array([0]), options={"eps": 0.4})
    fetched = []
    for with_sizes in (True, False):
        elsewhere = Elsewhere()
        push = pushing(job, elsewhere, with_sizes=with_sizes)
        elsewhere.complete(lambda push=push: push.sample(job.key, job.seeds))  # type: ignore[misc]
        fetched.append(sorted(np.concatenate(elsewhere.fetched).tolist()))
    assert fetched == [[0], [0, 1, 2]]


@given(
    st.one_of(walk_jobs.walkings(), walk_jobs.biased_walkings(), walk_jobs.path_walkings()),
)
def test_walks_are_those_of_the_whole_graph(walking: walk_jobs.Walking) -> None:
    elsewhere = Elsewhere()
    path = [
        Step(elsewhere.rows_of(rows).adjacency, n)
        for rows, n in zip(walking.path, walking.finds, strict=True)
    ]
    looked_up = walking.path[0]
    if walking.reversed_lookup:
        looked_up = walk_jobs.transposed(looked_up, walking.finds[0])
    lookup = WalkRows(elsewhere.rows_of(looked_up).sorted_adjacency, walking.reversed_lookup)
    found = elsewhere.complete(
        lambda: walk(
            path,
            walking.starts,
            walking.key,
            length=walking.length,
            rounds=walking.rounds,
            stays=walking.stays,
            p=walking.p,
            q=walking.q,
            sorted_rows=lookup if (walking.p, walking.q) != (1, 1) else None,
        )
    )
    for mine, other in zip(found, walking.native(), strict=True):
        np.testing.assert_array_equal(mine, other)


@given(walk_jobs.biased_walkings())
def test_walks_fetch_what_decides_them_and_no_more(walking: walk_jobs.Walking) -> None:
    elsewhere = Elsewhere()
    rows = elsewhere.rows_of(walking.path[0])
    lookup = WalkRows(rows.sorted_adjacency, is_reversed=False)
    nodes, _ = elsewhere.complete(
        lambda: walk(
            [Step(rows.adjacency, walking.finds[0])],
            walking.starts,
            walking.key,
            length=walking.length,
            rounds=walking.rounds,
            p=walking.p,
            q=walking.q,
            sorted_rows=lookup if (walking.p, walking.q) != (1, 1) else None,
        )
    )
    seen = set(nodes.ravel().tolist())
    near = {
        int(n)
        for node in seen
        for n in walking.path[0].neighbors[slice(*walking.path[0].indptr[[node, node + 1]])]
    }
    for missing in elsewhere.fetched:
        assert set(missing.tolist()) <= seen | near


@given(hgt_jobs.layerings())
def test_layers_are_those_of_the_whole_graph(layering: hgt_jobs.Layering) -> None:
    elsewhere = Elsewhere()
    relations = [
        replace(edges.native, adjacency=elsewhere.rows_of(edges.rows).adjacency)
        for edges in layering.edges
    ]
    sampler = HGT(
        layering.num_nodes,
        relations,
        layering.num_samples,
        names=layering.type_names,
        max_neighbors=layering.max_neighbors,
    )
    layers = elsewhere.complete(lambda: sampler.sample(layering.key, layering.seeds))
    expected = layering.native()
    hgt_jobs.assert_same(layers, expected)
    # Rows are fetched for nodes that are sampled, none for one that was drawn too early.
    for edges in layering.edges:
        assert len(elsewhere.rows_of(edges.rows)) <= len(
            set(expected.nodes[edges.expands].tolist())
        )


@given(drawings())
def test_strict_negatives_are_those_of_the_whole_graph(drawing: Drawing) -> None:
    if drawing.edges is None:
        return
    elsewhere = Elsewhere()
    table = np.array(drawing.edges, np.int64).reshape(-1, 2)
    rows = rows_of(
        table[:, 0], table[:, 1], drawing.destination.num_nodes, paired=True, dtype="int64"
    )
    sorted_rows = SortedRows.over(elsewhere.rows_of(rows).sorted_adjacency)
    ends = np.array(drawing.positives, np.int64).reshape(-1, 2)
    drawn = elsewhere.complete(
        lambda: draw_negatives(
            drawing.key,
            ends[:, 0],
            ends[:, 1],
            drawing.count,
            source=drawing.source.native if drawing.pairs else None,
            destination=drawing.destination.native,
            times=None if drawing.times is None else np.array(drawing.times, np.int64),
            edges=sorted_rows,
        )
    )
    expected = drawing.native()
    assert drawn.destinations.tolist() == expected.destinations.tolist()
    assert (drawn.num_false, drawn.num_late) == (expected.num_false, expected.num_late)
    if drawn.sources is not None and expected.sources is not None:
        assert drawn.sources.tolist() == expected.sources.tolist()


@given(st.integers(1, 9), st.none() | st.integers(0, 3), st.data())
def test_labels_are_those_of_the_whole_graph(
    size: int, most: int | None, data: st.DataObject
) -> None:
    rows, nodes = data.draw(any_rows(size, size)), data.draw(any_seeds(size))
    elsewhere = Elsewhere()
    adjacency = elsewhere.rows_of(rows).adjacency
    found = elsewhere.complete(lambda: first_neighbors(adjacency, nodes, size, most))
    for mine, other in zip(found, first_neighbors(rows.adjacency, nodes, size, most), strict=True):
        assert mine.tolist() == other.tolist()


@given(st.integers(1, 9), st.data())
def test_induced_edges_are_those_of_the_whole_graph(size: int, data: st.DataObject) -> None:
    rows, nodes = data.draw(any_rows(size, size)), data.draw(any_seeds(size))
    elsewhere = Elsewhere()
    cut = InducedEdges([size], [Relation(elsewhere.rows_of(rows).adjacency, ())])
    (found,) = elsewhere.complete(lambda: cut.cut([nodes]))
    (expected,) = InducedEdges([size], [Relation(rows.adjacency, ())]).cut([nodes])
    for mine, other in zip(found, expected, strict=True):
        assert mine is not None
        assert other is not None
        assert mine.tolist() == other.tolist()


STEPS = st.lists(
    st.tuples(st.sampled_from(["read", "add", "take", "clear"]), st.lists(st.integers(0, 40))),
    max_size=12,
)


def all_of(rows: FetchedRows, nodes: Ids) -> list[list[tuple[int, int]]]:
    drawn = draw_hop(rows.adjacency, nodes, -1, 0)
    edges = list(zip(drawn.neighbors.tolist(), drawn.edge_ids.tolist(), strict=True))
    ends = np.cumsum(drawn.counts).tolist()
    return [edges[end - n : end] for n, end in zip(drawn.counts.tolist(), ends, strict=True)]


@example([("read", [0]), ("add", [0, 0]), ("read", [0]), ("take", [])], "int64")
@given(STEPS, st.sampled_from(["int32", "int64"]))
def test_rows_come_and_go_as_the_twins(steps: list[tuple[str, list[int]]], dtype: str) -> None:
    fetched, expected = FetchedRows(41), twin.FetchedRows()
    for number, (what, nodes) in enumerate(steps):
        ids = np.array(nodes, np.int64)
        match what:
            case "read":
                assert all_of(fetched, ids) == [expected.row(node) for node in nodes]
            case "add":
                counts = (ids * 7 + number) % 5
                found = np.arange(counts.sum()) % 41
                rows = [column.astype(dtype) for column in (ids, counts, found, found + number)]
                if expected.rows.keys() & set(nodes) or len(set(nodes)) < len(nodes):
                    with pytest.raises(ValueError, match="which has a row already"):
                        fetched.add(*rows)
                else:
                    fetched.add(*rows)
                    expected.add(*rows)
            case "take":
                assert fetched.take_missing().tolist() == expected.take_missing().tolist()
            case "clear":
                fetched.clear()
                expected = twin.FetchedRows()
        assert len(fetched) == len(expected.rows)
        assert fetched.adjacency.num_edges == sum(map(len, expected.rows.values()))


def test_thousands_of_rows_are_found_again() -> None:
    fetched = FetchedRows(10**9, num_edges=10)
    rng = np.random.default_rng(1)
    nodes = rng.permutation(np.unique(rng.integers(0, 10**9 // 7, 20_000))) * 7
    size = len(nodes)
    assert draw_hop(fetched.adjacency, nodes, -1, 0).counts.sum() == 0
    assert fetched.take_missing().tolist() == nodes.tolist()
    fetched.add(nodes, np.full(size, 2), np.repeat(nodes, 2), np.arange(2 * size))
    drawn = draw_hop(fetched.adjacency, nodes[::-1], -1, 0)
    assert drawn.neighbors.tolist() == np.repeat(nodes[::-1], 2).tolist()
    assert len(fetched.take_missing()) == 0
    assert fetched.nbytes > size * 2 * 16
    fetched.clear()
    assert fetched.nbytes < 10_000


def test_the_sorted_rows_rise_also_those_added_later() -> None:
    fetched = FetchedRows(4)
    whole = Rows(np.array([0, 3, 3, 5, 6]), np.array([[3, 0], [1, 1], [2, 2], [1, 3], [0, 4]] * 2))
    for node in (0, 2):
        fetched.add(np.array([node]), *edges_of(whole, np.array([node])))
        drawn = draw_hop(fetched.sorted_adjacency, np.array([node]), -1, 0)
        assert drawn.neighbors.tolist() == sorted(drawn.neighbors.tolist())
    assert draw_hop(fetched.sorted_adjacency, np.array([0, 2]), -1, 0).counts.tolist() == [3, 2]


@pytest.mark.parametrize("bad", [-1, 5])
def test_a_node_that_is_none_is_named(bad: int) -> None:
    one = np.array([1])
    with pytest.raises(ValueError, match=rf"nodes\[1\] is {bad}; expected 0 <= id < 5"):
        FetchedRows(5).add(np.array([1, bad]), np.array([0, 1]), one, one)


@pytest.mark.parametrize("counts", [[1, 1], [3, 0], [-1, 4], [2**62, -(2**62) + 3]])
def test_counts_that_are_not_those_of_the_edges_are_refused(counts: list[int]) -> None:
    edges = np.arange(3 if counts != [3, 0] else 2)
    rows = FetchedRows(5)
    with pytest.raises(ValueError, match="counts are not those of"):
        rows.add(np.array([0, 1]), np.array(counts), edges, edges)
    with pytest.raises(ValueError, match="2 nodes and 1 counts"):
        rows.add(np.array([0, 1]), np.array([1]), edges, edges)
    assert len(rows) == 0


def test_rows_that_are_fetched_have_no_weights_and_no_other_side() -> None:
    rows = FetchedRows(3)
    with pytest.raises(ValueError, match="neither weights nor times"):
        draw_hop(rows.adjacency, np.array([0]), 1, 0, weights=np.empty(0, np.int64))
    with pytest.raises(ValueError, match="neither weights nor times"):
        KHop([3], [Relation(rows.adjacency, (1,), weights=np.empty(0, np.int64))])
    with pytest.raises(ValueError, match="rows of bare neighbours"):
        SortedRows.over(rows.adjacency)


def test_rows_are_one_kernels_at_a_time() -> None:
    """Whoever comes second is told so; nothing is read that moves meanwhile."""
    size = 300_000
    fetched = FetchedRows(size)
    nodes = np.arange(size)
    fetched.add(nodes, np.full(size, 8), np.arange(8 * size) % size, np.arange(8 * size))
    refused: list[str] = []
    done = threading.Event()

    def disturb() -> None:
        while not done.is_set():
            try:
                fetched.take_missing()
            except RuntimeError as error:
                refused.append(str(error))

    other = threading.Thread(target=disturb)
    other.start()
    try:
        for _ in range(2000):
            try:
                draw_hop(fetched.adjacency, nodes, 4, 1)
            except RuntimeError as error:
                refused.append(str(error))
            if refused:
                break
    finally:
        done.set()
        other.join()
    assert "in use by another thread" in refused[0]


def test_an_adjacency_is_the_same_object_while_rows_are_added() -> None:
    fetched = FetchedRows(3)
    before: Adjacency = fetched.adjacency
    fetched.add(np.array([1]), np.array([1]), np.array([2]), np.array([9]))
    assert fetched.adjacency is before
    assert draw_hop(before, np.array([1]), 1, 0).edge_ids.tolist() == [9]
    assert before.num_nodes == 3
