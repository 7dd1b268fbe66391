"""Negatives: the native code gives the twin's, and known ones on graphs that leave no choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels import Adjacency
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.negatives import (
    DRAWS,
    SCAN,
    Candidates,
    Negatives,
    SortedRows,
    draw_negatives,
    sort_rows,
)
from penstock.kernels.twins import negatives as twin
from tests.kernels.strategies import WORDS, Rows, any_rows, rows_of, same_array

Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Side:
    """One end of the negatives: nodes with or without weights and times."""

    num_nodes: int
    weights: list[int] | None = None
    times: list[int] | None = None

    @property
    def native(self) -> Candidates:
        sums = None if self.weights is None else np.cumsum(np.array(self.weights, np.int64))
        times = None if self.times is None else np.array(self.times, np.int64)
        return Candidates(self.num_nodes, sums, times)

    @property
    def twin(self) -> twin.Candidates:
        return twin.Candidates(self.num_nodes, self.weights, self.times)


@dataclass(frozen=True)
class Drawing:
    """Negatives to draw. `edges` None: not strict. Triplets have no sources of their own."""

    source: Side
    destination: Side
    positives: Pairs
    count: int
    pairs: bool = True
    edges: Pairs | None = None
    times: list[int] | None = None
    key: int = 1
    dtype: str = "int32"

    def native(self) -> Negatives:
        ends = np.array(self.positives, np.int64).reshape(-1, 2)
        return draw_negatives(
            self.key,
            ends[:, 0],
            ends[:, 1],
            self.count,
            source=self.source.native if self.pairs else None,
            destination=self.destination.native,
            times=None if self.times is None else np.array(self.times, np.int64),
            edges=self.sorted_rows(),
        )

    def sorted_rows(self) -> SortedRows | None:
        if self.edges is None:
            return None
        table = np.array(self.edges, np.int64).reshape(-1, 2)
        rows = rows_of(
            table[:, 0], table[:, 1], self.destination.num_nodes, paired=False, dtype=self.dtype
        )
        return SortedRows(rows.indptr, ascending(rows))

    def twin(self) -> twin.Drawing:
        drawing = twin.Drawing(
            self.key,
            self.positives,
            self.source.twin if self.pairs else None,
            self.destination.twin,
            self.times,
            None if self.edges is None else set(self.edges),
        )
        drawing.draw(self.count)
        return drawing

    def drawn(self) -> Pairs:
        """The native negatives as pairs."""
        result = self.native()
        against = [self.positives[k % len(self.positives)] for k in range(self.count)]
        sources = [u for u, _ in against] if result.sources is None else result.sources.tolist()
        return list(zip(sources, result.destinations.tolist(), strict=True))


def ascending(rows: Rows) -> Array:
    out = np.empty(len(rows.entries), rows.entries.dtype)
    sort_rows(rows.adjacency, out)
    return out


def assert_twins(drawing: Drawing) -> None:
    native, expected = drawing.native(), drawing.twin()
    assert drawing.drawn() == expected.drawn
    assert (native.num_false, native.num_late) == (expected.num_false, expected.num_late)


@st.composite
def sides(draw: st.DrawFn) -> Side:
    size = draw(st.integers(1, 7))
    weights = st.lists(st.integers(0, 3), min_size=size, max_size=size).filter(any)
    times = st.lists(st.integers(-4, 4), min_size=size, max_size=size)
    return Side(size, draw(st.none() | weights), draw(st.none() | times))


@st.composite
def drawings(draw: st.DrawFn) -> Drawing:
    source, destination = draw(sides()), draw(sides())
    pair = st.tuples(
        st.integers(0, source.num_nodes - 1), st.integers(0, destination.num_nodes - 1)
    )
    positives = draw(st.lists(pair, min_size=1, max_size=4))
    every = [(u, v) for u in range(source.num_nodes) for v in range(destination.num_nodes)]
    edges = st.lists(pair, max_size=40) | st.just(every)
    times = st.lists(st.integers(-5, 4), min_size=len(positives), max_size=len(positives))
    return Drawing(
        source,
        destination,
        positives,
        count=draw(st.integers(0, 9)),
        pairs=draw(st.booleans()),
        edges=draw(st.none() | edges),
        times=draw(times),
        key=draw(WORDS),
        dtype=draw(st.sampled_from(["int32", "int64"])),
    )


@given(drawings())
def test_negatives_are_the_twins(drawing: Drawing) -> None:
    assert_twins(drawing)


@given(st.integers(0, 8), st.integers(0, 8), st.data())
def test_sorted_rows_are_the_twins(num_found: int, num_rows: int, data: st.DataObject) -> None:
    rows = data.draw(any_rows(num_found, num_rows))
    same_array(ascending(rows), twin.sort_rows(rows.indptr, rows.neighbors))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_many_negatives_of_many_nodes_are_the_twins(
    strict: bool, weighted: bool, pairs: bool
) -> None:
    """More than a block of them, and searches that are many levels deep."""
    rng = np.random.default_rng(5)
    size = 301
    weights = rng.integers(0, 4, size).tolist() if weighted else None
    side = Side(size, weights, rng.integers(0, 9, size).tolist())
    table = [(int(u), int(v)) for u, v in rng.integers(0, size, (40_000, 2))]
    positives, times = table[:50], rng.integers(0, 9, 50).tolist()
    edges = table if strict else None
    assert_twins(Drawing(side, side, positives, 150, pairs, edges, times, key=9))


@pytest.mark.parametrize("free", [0, 700, 1999])
def test_what_a_bounded_search_finds_is_the_twins(free: int) -> None:
    """A source that has an edge to all but one of more destinations than are looked at."""
    size = 2 * SCAN - 48
    edges = [(0, v) for v in range(size) if v != free]
    drawing = Drawing(Side(1), Side(size), [(0, 1)], 40, False, edges)
    assert_twins(drawing)
    assert 0 < drawing.native().num_false < 40


def test_a_batch_is_the_same_however_many_are_drawn_beside() -> None:
    def drawn(count: int) -> Pairs:
        return Drawing(Side(1000), Side(1000), [(1, 2), (3, 4)], count, edges=[(1, 2)]).drawn()

    assert drawn(200)[:130] == drawn(130)
    assert drawn(200)[:5] == drawn(5)


# --- graphs that leave little choice, or none -----------------------------------------------------


def complete(size: int) -> Pairs:
    return [(u, v) for u in range(size) for v in range(size)]


@pytest.mark.parametrize("pairs", [False, True])
def test_a_complete_graph_is_done_with_and_every_negative_counted(pairs: bool) -> None:
    drawing = Drawing(Side(5), Side(5), [(0, 1)], 70, pairs, complete(5))
    assert drawing.native().num_false == 70
    assert set(drawing.drawn()) <= set(complete(5))


@pytest.mark.parametrize("pairs", [False, True])
def test_the_only_pair_that_is_no_edge_is_found_for_its_source(pairs: bool) -> None:
    edges = [pair for pair in complete(30) if pair != (4, 17)]
    drawing = Drawing(Side(30), Side(30), [(4, 2)], 100, pairs, edges)
    drawn = drawing.drawn()
    assert sum(pair != (4, 17) for pair in drawn) == drawing.native().num_false
    if not pairs:
        assert drawn == [(4, 17)] * 100


def test_one_node_without_edges_stands_against_itself() -> None:
    assert Drawing(Side(1), Side(1), [(0, 0)], 3).drawn() == [(0, 0)] * 3
    strict = Drawing(Side(1), Side(1), [(0, 0)], 3, edges=[])
    assert strict.drawn() == [(0, 0)] * 3
    assert strict.native().num_false == 3


def test_a_negative_is_not_the_edge_it_stands_against_also_where_the_graph_lacks_that() -> None:
    positives = [(0, 0), (0, 1)]
    drawn = Drawing(Side(1), Side(2), positives, 40, pairs=False, edges=[]).drawn()
    assert drawn == [(0, 1), (0, 0)] * 20


def test_a_node_of_weight_0_is_never_drawn_also_where_nothing_else_would_do() -> None:
    side = Side(3, weights=[0, 5, 0])
    drawing = Drawing(side, side, [(0, 0)], 40, edges=[(1, 1)])
    assert drawing.drawn() == [(1, 1)] * 40
    assert drawing.native().num_false == 40


def test_running_sums_may_be_as_large_as_integers_are() -> None:
    side = Side(3, weights=[2**62, 0, 2**62 - 1])
    drawing = Drawing(side, side, [(0, 0)], 200)
    assert {v for _, v in drawing.drawn()} == {0, 2}
    assert_twins(drawing)


def test_nodes_are_not_later_than_the_edge_they_stand_against() -> None:
    times = list(range(100))
    side = Side(100, times=times)
    limits = [3, 99, 0]
    drawn = Drawing(side, side, [(0, 0)] * 3, 300, times=limits).drawn()
    for k, (source, destination) in enumerate(drawn):
        assert max(times[source], times[destination]) <= limits[k % 3]


def test_the_earliest_node_stands_in_where_none_is_early_enough_and_is_counted() -> None:
    side = Side(4, times=[7, 5, 9, 5])
    drawing = Drawing(side, side, [(0, 0)], 6, times=[4])
    assert drawing.drawn() == [(1, 1)] * 6
    assert drawing.native().num_late == 6


def test_of_the_nodes_that_can_be_drawn_the_earliest_stands_in() -> None:
    side = Side(4, weights=[1, 0, 1, 1], times=[7, 1, 9, 5])
    assert side.native.earliest == 3
    assert Drawing(side, side, [(0, 0)], 6, times=[0]).drawn() == [(3, 3)] * 6


def test_the_one_early_node_among_very_many_is_found_in_the_end() -> None:
    """Neither a draw nor a search is likely to meet it."""
    size = 50_000
    times = [1] * size
    times[31_415] = 0
    drawing = Drawing(Side(1), Side(size, times=times), [(0, 0)], 20, False, times=[0])
    assert drawing.drawn() == [(0, 31_415)] * 20
    assert drawing.native().num_late == 0


def test_types_without_times_are_there_at_all_times() -> None:
    drawing = Drawing(Side(50), Side(2, times=[3, 9]), [(0, 0)], 80, times=[5])
    drawn = drawing.drawn()
    assert {v for _, v in drawn} == {0}
    assert len({u for u, _ in drawn}) > 30


def test_no_negatives_of_no_edges_need_no_nodes() -> None:
    nothing = np.empty(0, np.int64)
    result = draw_negatives(1, nothing, nothing, 0, source=Candidates(0), destination=Candidates(0))
    assert result.destinations.tolist() == []


def test_bounds_are_those_of_the_twin() -> None:
    assert (DRAWS, SCAN) == (twin.DRAWS, twin.SCAN)


def test_sorted_rows_keep_parallel_edges_and_loops() -> None:
    indptr: Ids = np.array([0, 4, 4, 6])
    entries = np.array([[2, 0], [0, 1], [2, 2], [1, 3], [2, 4], [0, 5]], np.int32)
    out = np.empty(6, np.int32)
    sort_rows(Adjacency(indptr, entries), out)
    assert out.tolist() == [0, 1, 2, 2, 0, 2]
