"""Which ids are here, and which row each has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.kernels import Adjacency, KHop, Relation, _native, draw_hop
from penstock.kernels.arrays import Array
from penstock.kernels.hgt import HGT
from penstock.kernels.labels import first_neighbors
from penstock.kernels.members import Members
from penstock.kernels.negatives import Candidates, SortedRows, draw_negatives, sort_rows
from penstock.kernels.ppr import Push, PushOptions, PushRelation
from penstock.kernels.prepare import order_by_time, weight_sums
from penstock.kernels.subgraph import InducedEdges
from penstock.kernels.twins import members as twin
from penstock.kernels.walks import Step, WalkRows, walk
from tests.kernels.elsewhere import emptied, only
from tests.kernels.strategies import (
    JOBS,
    WORDS,
    Job,
    Rows,
    any_rows,
    any_seeds,
    assert_same,
    same_array,
)

SETS = st.integers(0, 300).flatmap(
    lambda size: st.tuples(
        st.just(size), st.sets(st.integers(0, size - 1) if size else st.nothing()).map(sorted)
    )
)


@given(SETS)
def test_ids_come_back_in_order(given: tuple[int, list[int]]) -> None:
    size, ids = given
    members = Members.of(np.array(ids, np.int64), size)
    assert members.ids().tolist() == ids
    assert (members.size, members.count) == (size, len(ids))
    members.check()


@given(SETS)
def test_the_row_of_an_id_is_how_many_smaller_ones_are_here(given: tuple[int, list[int]]) -> None:
    size, ids = given
    members = Members.of(np.array(ids, np.int64), size)
    rows = {id_: row for row, id_ in enumerate(ids)}
    asked = np.arange(size)[::-1]
    assert members.rows(asked).tolist() == [rows.get(id_, -1) for id_ in asked.tolist()]
    assert members.rows(asked).dtype == np.int64


@given(SETS)
def test_words_rows_and_ids_are_the_twins(given: tuple[int, list[int]]) -> None:
    size, ids = given
    members = Members.of(np.array(ids, np.int64), size)
    words = twin.fill(np.array(ids, np.int64), size)
    assert members.words.tolist() == words.tolist()
    for dtype in (np.int32, np.int64):
        asked = np.arange(size, dtype=dtype)
        same_array(members.rows(asked), twin.rows(words, asked))
    same_array(members.ids(), twin.ids(words, size))


def test_words_in_memory_that_is_read_only_are_taken_as_they_are() -> None:
    words = Members.of(np.array([1, 64, 70]), 100).words
    words.flags.writeable = False
    members = Members(words, 100)
    assert members.words is words
    assert members.rows(np.array([70, 2])).tolist() == [2, -1]


@pytest.mark.parametrize("bad", [-1, 10, 2**62])
def test_an_id_that_is_none_is_named(bad: int) -> None:
    members = Members.of(np.array([3]), 10)
    with pytest.raises(ValueError, match=rf"ids\[1\] is {bad}; expected 0 <= id < 10"):
        members.rows(np.array([3, bad]))
    with pytest.raises(ValueError, match=r"ids\[0\] is -?\d+; expected 0 <= id < 10"):
        Members.of(np.array([bad]), 10)


def test_ids_that_do_not_rise_are_named() -> None:
    with pytest.raises(ValueError, match=r"ids\[2\] is 4, after 4; expected ids that rise"):
        Members.of(np.array([1, 4, 4]), 10)


@pytest.mark.parametrize(
    "words",
    [np.zeros((1, 2), np.int64), np.zeros((2, 2), np.uint64), np.zeros(2, np.uint64)],
)
def test_words_of_another_form_are_refused(words: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"words must be uint64 of shape \[1, 2\]"):
        Members(words, 10)


def test_damage_is_told() -> None:
    words = Members.of(np.arange(0, 200, 3), 200).words
    with pytest.raises(GraphFormatError, match="are said to be here"):
        Members(words + np.uint64(1000), 200)
    wrong = words.copy()
    wrong[1, 1] += np.uint64(1)
    with pytest.raises(GraphFormatError, match="damaged members"):
        Members(wrong, 200).check()
    beyond = words.copy()
    beyond[-1, 0] |= np.uint64(1) << np.uint64(63)
    with pytest.raises(GraphFormatError, match="damaged members"):
        Members(beyond, 200).check()


def test_damaged_ranks_lead_nowhere() -> None:
    """A kernel that meets them finds damage, and reads nothing outside its arrays."""
    words = Members.of(np.arange(0, 200, 3), 200).words.copy()
    indptr, entries = np.arange(68), np.zeros(67, np.int64)
    for rank in (60, 2**40, 2**63):
        words[1, 1] = rank
        adjacency = Adjacency(indptr, entries, Members(words, 200))
        with pytest.raises(GraphFormatError, match="damaged topology"):
            draw_hop(adjacency, np.array([66, 120, 126]), -1, 0)
    words[:, 0] = 2**64 - 1
    with pytest.raises(GraphFormatError, match="damaged members"):
        Members(words, 200).ids()


def test_rows_of_another_number_than_members_are_refused() -> None:
    members = Members.of(np.array([1, 5]), 10)
    with pytest.raises(ValueError, match="indptr has 4 entries; expected 3"):
        Adjacency(np.array([0, 1, 2, 3]), np.zeros(3, np.int32), members)


@given(JOBS, st.data())
def test_nodes_that_are_no_members_have_empty_rows_for_khop(job: Job, data: st.DataObject) -> None:
    kept, part, whole = [], [], []
    for edges in job.edges:
        nodes = some_nodes(data, edges.rows)
        kept.append(nodes)
        part.append(replace(edges.native, adjacency=only(edges.rows, nodes)))
        whole.append(replace(edges.native, adjacency=emptied(edges.rows, nodes).adjacency))
    options = {"replace": job.replace, "node_caps": job.node_caps}
    sample = KHop(job.num_nodes, part, **options).sample(job.key, job.seeds)
    assert_same(sample, KHop(job.num_nodes, whole, **options).sample(job.key, job.seeds))


@given(st.integers(1, 9), WORDS, st.data())
def test_nodes_that_are_no_members_have_empty_rows_for_every_kernel(
    size: int, key: int, data: st.DataObject
) -> None:
    rows, seeds = data.draw(any_rows(size, size)), data.draw(any_seeds(size))
    nodes = some_nodes(data, rows)
    part, whole = only(rows, nodes), emptied(rows, nodes).adjacency
    for run in (walks_of, negatives_of, layers_of, pushes_of, labels_of, induced_of):
        assert run(part, seeds, key) == run(whole, seeds, key)


def some_nodes(data: st.DataObject, rows: Rows) -> Array:
    is_here = data.draw(st.lists(st.booleans(), min_size=len(rows.indptr) - 1))
    return np.flatnonzero(np.array(is_here[: len(rows.indptr) - 1], bool))


def bare(adjacency: Adjacency) -> Adjacency:
    """The neighbours alone, rising within each row."""
    out = np.empty(adjacency.num_edges, np.int64)
    sort_rows(adjacency, out)
    return Adjacency(adjacency.indptr, out, adjacency.members)


def walks_of(adjacency: Adjacency, seeds: Array, key: int) -> list[object]:
    step, rows = Step(adjacency, adjacency.num_nodes), WalkRows(bare(adjacency))
    found = walk([step], seeds, key, length=4, p=0.3, q=2.0, sorted_rows=rows)
    return [array.tolist() for array in found]


def negatives_of(adjacency: Adjacency, seeds: Array, key: int) -> list[object]:
    nodes = Candidates(adjacency.num_nodes)
    rows = SortedRows.over(bare(adjacency))
    drawn = draw_negatives(
        key, seeds, seeds[::-1], len(seeds), source=nodes, destination=nodes, edges=rows
    )
    return [drawn.destinations.tolist(), drawn.num_false]


def layers_of(adjacency: Adjacency, seeds: Array, key: int) -> list[object]:
    sampler = HGT([adjacency.num_nodes], [Relation(adjacency, ())], [(2, 1)], names=["a"])
    layers = sampler.sample(key, [seeds])
    return [layers.nodes[0].tolist(), layers.rows[0].tolist(), layers.edge_ids[0].tolist()]


def pushes_of(adjacency: Adjacency, seeds: Array, key: int) -> list[object]:
    options = PushOptions(eps=1e-3, with_edges=True)
    sample = Push([adjacency.num_nodes], [PushRelation(adjacency)], options).sample(key, seeds)
    assert sample.edges is not None
    attr, edge_ids = sample.edge_attr[0].tolist(), sample.edges[0].edge_ids.tolist()
    return [sample.nodes[0].tolist(), attr, edge_ids]


def labels_of(adjacency: Adjacency, seeds: Array, key: int) -> list[object]:
    return [array.tolist() for array in first_neighbors(adjacency, seeds, adjacency.num_nodes, 2)]


def induced_of(adjacency: Adjacency, seeds: Array, key: int) -> list[object]:
    (edges,) = InducedEdges([adjacency.num_nodes], [Relation(adjacency, ())]).cut([seeds])
    assert edges.edge_ids is not None
    return [edges.rows.tolist(), edges.cols.tolist(), edges.edge_ids.tolist()]


@given(st.integers(1, 9), st.booleans(), st.data())
def test_what_is_prepared_of_members_is_that_of_their_rows(
    size: int, of_nodes: bool, data: st.DataObject
) -> None:
    rows = data.draw(any_rows(size, size))
    nodes = some_nodes(data, rows)
    results = []
    for paired in (only(rows, nodes), emptied(rows, nodes).adjacency):
        adjacency = bare(paired)  # whose edge ids are positions, those of weights and times
        values = np.arange(size if of_nodes else adjacency.num_edges)[::-1] // 3
        sums = weight_sums(adjacency, np.arange(adjacency.num_edges) * 0.5)
        entries, times = order_by_time(adjacency, values, of_nodes=of_nodes)
        results.append([sums.tolist(), entries.tolist(), times.tolist()])
    assert results[0] == results[1]


def test_rows_of_members_have_no_transpose() -> None:
    adjacency = Adjacency(np.array([0, 1]), np.array([0]), Members.of(np.array([1]), 3))
    with pytest.raises(ValueError, match="the transpose needs the rows of all nodes"):
        _native.transpose(adjacency.native, np.empty(4, np.int64), np.empty((1, 2), np.int64))
