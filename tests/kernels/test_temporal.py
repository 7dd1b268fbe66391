"""Edges chosen by time: the twin's bytes, nothing later than its seed, the most recent ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.kernels import Adjacency
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.prepare import order_by_time
from penstock.kernels.twins import times as twin
from tests.kernels.chi_square import assert_subsets_uniform, assert_uniform
from tests.kernels.each_simd import each_simd
from tests.kernels.large import degrees_around, rows_with_degrees
from tests.kernels.one_hop import first_hop_key, one_hop
from tests.kernels.strategies import FANOUTS, WORDS, Job, Rows, any_rows, any_seeds, same_arrays
from tests.kernels.test_damage import BAD_OFFSETS, damaged_jobs

MOST, LEAST = 2**63 - 1, -(2**63)
TIMES = st.one_of(st.integers(-3, 3), st.sampled_from([LEAST, LEAST + 1, MOST - 1, MOST]))


@dataclass(frozen=True)
class Hop:
    """One hop to be chosen by time, in rows that are in the order of time."""

    rows: Rows
    times: Ids
    nodes: Array
    node_times: Array
    fanout: int
    key: int = 1
    replace: bool = False
    last: bool = False

    def native(self) -> tuple[Ids, Ids]:
        return one_hop(
            self.rows.adjacency,
            self.nodes,
            self.fanout,
            self.key,
            times=self.times,
            node_times=self.node_times,
            replace=self.replace,
            disjoint=True,
            last=self.last,
        )

    def twin(self) -> tuple[Ids, Ids]:
        return twin.choose_by_time(
            self.rows.indptr,
            self.times,
            self.nodes,
            self.node_times,
            self.fanout,
            first_hop_key(self.key),
            replace=self.replace,
            last=self.last,
            trees=np.arange(len(self.nodes)),
        )


def in_order(rows: Rows, times: Array) -> tuple[Rows, Ids]:
    entries, by_position = order_by_time(rows.adjacency, times)
    return Rows(rows.indptr, entries), by_position


@st.composite
def hops(draw: st.DrawFn) -> Hop:
    num_nodes = draw(st.integers(0, 12))
    rows = draw(any_rows(num_nodes, num_nodes))
    count = len(rows.entries)
    times = np.array(draw(st.lists(TIMES, min_size=count, max_size=count)), np.int64)
    nodes = draw(any_seeds(num_nodes))
    node_times = draw(st.lists(TIMES, min_size=len(nodes), max_size=len(nodes)))
    return Hop(
        *in_order(rows, times),
        nodes,
        np.array(node_times, np.int64),
        draw(FANOUTS),
        draw(WORDS),
        draw(st.booleans()),
        draw(st.booleans()),
    )


def chosen(times: list[int], time: int, fanout: int, **options: Any) -> list[int]:
    adjacency = Adjacency(np.array([0, len(times)]), np.zeros(len(times), np.int32))
    numbers = {"times": np.array(times, np.int64), "node_times": [time]}
    return one_hop(adjacency, [0], fanout, **numbers, disjoint=True, **options)[1].tolist()


# --- the twin -------------------------------------------------------------------------------------


@each_simd
@given(hops())
def test_any_hop_is_the_twins(hop: Hop) -> None:
    same_arrays(list(hop.native()), list(hop.twin()))


@given(hops())
def test_nothing_later_than_its_node_is_taken_and_as_much_as_there_is(hop: Hop) -> None:
    counts, positions = hop.native()
    parts = np.split(positions, np.cumsum(counts)[:-1]) if len(counts) else []
    for node, time, part in zip(hop.nodes, hop.node_times, parts, strict=True):
        begin, end = hop.rows.indptr[node], hop.rows.indptr[node + 1]
        assert ((part >= begin) & (part < end)).all()
        assert (hop.times[part] <= time).all()
        admissible = int((hop.times[begin:end] <= time).sum())
        if hop.fanout < 0:
            assert len(part) == admissible
        elif hop.replace:
            assert len(part) == (hop.fanout if admissible else 0)
        else:
            assert len(set(part.tolist())) == len(part) == min(admissible, hop.fanout)


@given(hops())
def test_the_last_ones_are_never_older_than_what_is_left_out(hop: Hop) -> None:
    hop = Hop(**{**hop.__dict__, "last": True})
    counts, positions = hop.native()
    parts = np.split(positions, np.cumsum(counts)[:-1]) if len(counts) else []
    for node, time, part in zip(hop.nodes, hop.node_times, parts, strict=True):
        begin, end = int(hop.rows.indptr[node]), int(hop.rows.indptr[node + 1])
        row = np.arange(begin, end)[hop.times[begin:end] <= time]
        recent = row if hop.fanout < 0 else row[max(0, len(row) - hop.fanout) :]
        if hop.replace and hop.fanout >= 0:
            assert set(part.tolist()) <= set(recent.tolist())
        else:
            assert part.tolist() == recent.tolist()


@each_simd
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("with_replacement", [False, True])
@pytest.mark.parametrize("fanout", [1, 7, 32, 33, 40, -1])
def test_many_nodes_with_degrees_around_the_fanout(
    fanout: int, with_replacement: bool, last: bool
) -> None:
    rng = np.random.default_rng(fanout + 1)
    rows = rows_with_degrees(degrees_around(abs(fanout), 200, 5), 200, seed=5)
    ordered, times = in_order(rows, rng.integers(0, 100, len(rows.entries)))
    nodes, node_times = rng.integers(0, 200, 200), rng.integers(-5, 110, 200)
    hop = Hop(ordered, times, nodes, node_times, fanout, 9, with_replacement, last)
    same_arrays(list(hop.native()), list(hop.twin()))


def test_where_all_is_admissible_draws_are_those_without_times() -> None:
    rows = rows_with_degrees(degrees_around(6, 300, 2), 300)
    times = np.zeros(len(rows.entries), np.int64)
    nodes = np.arange(300)
    for fanout in (-1, 0, 3, 40):
        for replace in (False, True):
            hop = Hop(rows, times, nodes, np.zeros(300, int), fanout, replace=replace)
            plain = one_hop(rows.adjacency, nodes, fanout, replace=replace, disjoint=True)
            same_arrays(list(hop.native()), list(plain))


def test_draws_are_those_of_a_graph_that_ends_at_the_nodes_time() -> None:
    rng = np.random.default_rng(0)
    rows = rows_with_degrees(degrees_around(6, 300, 2), 300)
    ordered, times = in_order(rows, rng.integers(0, 50, len(rows.entries)))
    early = times <= 20
    kept = [int(early[a:b].sum()) for a, b in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)]
    indptr = np.concatenate([[0], np.cumsum(kept)])
    nodes = np.arange(300)
    ended = Adjacency(indptr, np.ascontiguousarray(ordered.entries[early]))
    counts, positions = one_hop(ended, nodes, 4, disjoint=True)
    hop = Hop(ordered, times, nodes, np.full(300, 20), 4).native()
    same_arrays(list(hop), [counts, np.flatnonzero(early)[positions]])


# --- by hand --------------------------------------------------------------------------------------

ROW = [10, 20, 20, 30, 40]


@pytest.mark.parametrize(
    ("time", "fanout", "expected"),
    [
        (9, 3, []),
        (10, 3, [0]),
        (20, 3, [0, 1, 2]),
        (25, -1, [0, 1, 2]),
        (39, 4, [0, 1, 2, 3]),
        (40, -1, [0, 1, 2, 3, 4]),
        (MOST, 5, [0, 1, 2, 3, 4]),
        (LEAST, -1, []),
        (40, 0, []),
    ],
)
def test_a_time_equal_to_the_nodes_is_not_later(
    time: int, fanout: int, expected: list[int]
) -> None:
    assert chosen(ROW, time, fanout) == expected


@pytest.mark.parametrize(
    ("time", "fanout", "expected"),
    [
        (9, 2, []),
        (10, 2, [0]),
        (20, 2, [1, 2]),
        (20, 1, [2]),
        (35, 2, [2, 3]),
        (40, 4, [1, 2, 3, 4]),
        (40, 9, [0, 1, 2, 3, 4]),
        (30, -1, [0, 1, 2, 3]),
        (30, 0, []),
    ],
)
def test_the_last_ones_come_in_the_order_of_time(
    time: int, fanout: int, expected: list[int]
) -> None:
    for key in range(20):
        assert chosen(ROW, time, fanout, last=True, key=key) == expected


def test_with_replacement_only_the_last_ones_are_drawn_again() -> None:
    found = [
        at for key in range(200) for at in chosen(ROW, 30, 2, last=True, replace=True, key=key)
    ]
    assert len(found) == 400
    assert set(found) == {2, 3}


@each_simd
def test_the_earliest_and_the_latest_time_there_is() -> None:
    assert chosen([LEAST, 0, MOST], LEAST, -1) == [0]
    assert chosen([LEAST, 0, MOST], MOST - 1, -1) == [0, 1]
    assert chosen([LEAST, 0, MOST], MOST, -1) == [0, 1, 2]


# --- distributions ------------------------------------------------------------------------------


def admissible_draws(fanout: int, *, replace: bool) -> Array:
    """What many nodes give that have six edges in time and three that are too late."""
    count = 20_000
    adjacency = Adjacency(np.arange(count + 1) * 9, np.zeros(count * 9, np.int32))
    times = np.tile([1, 2, 2, 3, 4, 5, 7, 8, 9], count)
    _, positions = one_hop(
        adjacency,
        np.arange(count),
        fanout,
        3,
        times=times,
        node_times=np.full(count, 6),
        replace=replace,
        disjoint=True,
    )
    return positions.reshape(count, fanout) - adjacency.indptr[:-1, None]


def test_all_sets_of_admissible_edges_are_equally_likely() -> None:
    assert_subsets_uniform(admissible_draws(3, replace=False), 6)


def test_with_replacement_all_admissible_sequences_are_equally_likely() -> None:
    assert_uniform(admissible_draws(3, replace=True) @ 6 ** np.arange(3), 6**3)


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("fanout", [-1, 1, 33])
@pytest.mark.parametrize("indptr", BAD_OFFSETS.values(), ids=BAD_OFFSETS)
def test_bad_offsets(indptr: list[int], fanout: int, last: bool) -> None:
    adjacency = Adjacency(np.array(indptr), np.zeros(5, np.int64))
    with pytest.raises(GraphFormatError, match="damaged topology"):
        one_hop(
            adjacency,
            [3, 1],
            fanout,
            times=np.arange(5),
            node_times=[9, 9],
            disjoint=True,
            last=last,
        )


@each_simd
@given(damaged_jobs(), st.data())
def test_times_in_disorder_give_edges_of_the_row(job: Job, data: st.DataObject) -> None:
    rows, seeds = job.edges[0].rows, job.seeds[0]
    # Neighbours that are nodes: it is the times that are damaged, and perhaps the offsets.
    adjacency = Adjacency(rows.indptr, np.zeros_like(rows.entries))
    count = adjacency.num_edges
    times = np.array(data.draw(st.lists(TIMES, min_size=count, max_size=count)), np.int64)
    try:
        counts, positions = one_hop(
            adjacency,
            seeds,
            job.edges[0].fanouts[0],
            job.key,
            times=times,
            node_times=np.zeros(len(seeds), int),
            replace=job.replace,
            disjoint=True,
            last=data.draw(st.booleans()),
        )
    except GraphFormatError:
        return
    owners = np.repeat(seeds, counts)
    assert (positions >= adjacency.indptr[owners]).all()
    assert (positions < adjacency.indptr[owners + 1]).all()
