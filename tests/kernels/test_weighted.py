"""Edges drawn by weight: the twin's bytes, what is never drawn, and hubs of every sort."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.kernels import Adjacency
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.prepare import weight_sums
from penstock.kernels.twins import weights as twin
from tests.kernels.each_simd import each_simd
from tests.kernels.large import degrees_around, rows_with_degrees
from tests.kernels.one_hop import first_hop_key, one_hop
from tests.kernels.strategies import FANOUTS, WORDS, Job, Rows, any_rows, any_seeds, same_arrays
from tests.kernels.test_damage import BAD_OFFSETS, damaged_jobs
from tests.kernels.test_vectors import sparse_zeros

# From weights alike to those where the heaviest has all but one part in 10**18.
WEIGHTS = st.one_of(
    st.sampled_from([0.0, 1.0]), st.integers(0, 9).map(float), st.integers(-30, 30).map(np.exp2)
)


@dataclass(frozen=True)
class Hop:
    """One hop to be drawn by weight."""

    rows: Rows
    sums: Ids
    nodes: Array
    fanout: int
    key: int = 1
    replace: bool = False
    disjoint: bool = False

    def native(self) -> tuple[Ids, Ids]:
        return one_hop(
            self.rows.adjacency,
            self.nodes,
            self.fanout,
            self.key,
            sums=self.sums,
            replace=self.replace,
            disjoint=self.disjoint,
        )

    def twin(self) -> tuple[Ids, Ids]:
        return twin.choose_weighted(
            self.rows.indptr,
            self.sums,
            self.nodes,
            self.fanout,
            first_hop_key(self.key),
            replace=self.replace,
            trees=np.arange(len(self.nodes)) if self.disjoint else None,
        )


@st.composite
def hops(draw: st.DrawFn) -> Hop:
    num_nodes = draw(st.integers(0, 12))
    rows = draw(any_rows(num_nodes, num_nodes))
    count = len(rows.entries)
    weights = np.array(draw(st.lists(WEIGHTS, min_size=count, max_size=count)))
    nodes = draw(any_seeds(num_nodes))
    disjoint = draw(st.booleans())
    if not disjoint:  # a node that stands twice would give its edges once
        nodes = np.unique(nodes)[:: draw(st.sampled_from([1, -1]))]
    sums = weight_sums(rows.adjacency, weights)
    return Hop(rows, sums, nodes, draw(FANOUTS), draw(WORDS), draw(st.booleans()), disjoint)


def row_of(weights: Array) -> tuple[Adjacency, Ids]:
    """One node with these weights for its edges."""
    adjacency = Adjacency(np.array([0, len(weights)]), np.zeros(len(weights), np.int32))
    return adjacency, weight_sums(adjacency, weights)


def drawn(weights: Array, fanout: int, key: int = 1, *, replace: bool = False) -> list[int]:
    adjacency, sums = row_of(weights)
    _, positions = one_hop(adjacency, [0], fanout, key, sums=sums, replace=replace)
    return positions.tolist()


# --- the twin -------------------------------------------------------------------------------------


@each_simd
@given(hops())
def test_any_hop_is_the_twins(hop: Hop) -> None:
    same_arrays(list(hop.native()), list(hop.twin()))


@given(hops())
def test_what_is_drawn_has_weight_and_is_as_much_as_there_is(hop: Hop) -> None:
    """CONTRACT 45: a neighbour of weight 0 is never taken, also when the degree is small."""
    counts, positions = hop.native()
    parts = np.split(positions, np.cumsum(counts)[:-1]) if len(counts) else []
    for node, part in zip(hop.nodes, parts, strict=True):
        begin, end = hop.rows.indptr[node], hop.rows.indptr[node + 1]
        row = np.diff(hop.sums[begin:end], prepend=0)
        assert ((part >= begin) & (part < end)).all()
        assert (row[part - begin] > 0).all()
        if hop.replace and hop.fanout >= 0:
            assert len(part) == (hop.fanout if row.any() else 0)
        else:
            most = np.count_nonzero(row)
            assert len(set(part.tolist())) == len(part)
            assert len(part) == (most if hop.fanout < 0 else min(most, hop.fanout))


@each_simd
@pytest.mark.parametrize("fanout", [1, 2, 7, 9, 31, 32, 33, 40, 600])
@pytest.mark.parametrize("with_replacement", [False, True])
def test_degrees_around_the_fanout(fanout: int, with_replacement: bool) -> None:
    for disjoint in (False, True):
        hop, expected = _around_the_fanout(fanout, with_replacement, disjoint)
        same_arrays(list(hop.native()), list(expected))


@cache  # the twin knows no vector instructions, and takes its time
def _around_the_fanout(
    fanout: int, with_replacement: bool, disjoint: bool
) -> tuple[Hop, tuple[Ids, Ids]]:
    rng = np.random.default_rng(fanout)
    rows = rows_with_degrees(degrees_around(fanout, 150, fanout), 150, seed=fanout)
    weights = rng.random(len(rows.entries)) ** 20 * (rng.random(len(rows.entries)) < 0.9)
    sums = weight_sums(rows.adjacency, weights)
    hop = Hop(rows, sums, rng.permutation(150)[:130], fanout, 99, with_replacement, disjoint)
    return hop, hop.twin()


@each_simd
@pytest.mark.parametrize("num_nodes", [1, 63, 64, 65, 128, 129])
@pytest.mark.parametrize("fanout", [5, 8, 9, 32, 511, 512, 513])
def test_blocks_that_are_just_full(num_nodes: int, fanout: int) -> None:
    degrees = np.full(num_nodes, 9)
    degrees[::17] = fanout + 3
    rows = rows_with_degrees(degrees, num_nodes)
    sums = weight_sums(rows.adjacency, np.random.default_rng(1).random(len(rows.entries)))
    for disjoint in (False, True):
        hop = Hop(rows, sums, np.arange(num_nodes), fanout, disjoint=disjoint)
        same_arrays(list(hop.native()), list(hop.twin()))


def test_what_a_node_gives_depends_on_nobody_beside_it() -> None:
    rows = rows_with_degrees(degrees_around(6, 200, 3), 50)
    sums = weight_sums(rows.adjacency, np.random.default_rng(1).random(len(rows.entries)))
    counts, positions = Hop(rows, sums, np.arange(200), 6).native()
    alone = [Hop(rows, sums, np.array([node]), 6).native()[1] for node in range(200)]
    assert [len(part) for part in alone] == counts.tolist()
    assert np.concatenate(alone).tolist() == positions.tolist()


@each_simd
def test_trees_draw_each_for_itself() -> None:
    adjacency, sums = row_of(np.ones(1000))
    nodes = np.zeros(50, np.int64)
    counts, _ = one_hop(adjacency, nodes, 5, sums=sums)
    assert counts.tolist() == [5] + [0] * 49
    _, apart = one_hop(adjacency, nodes, 5, sums=sums, disjoint=True)
    assert len(np.unique(apart.reshape(50, 5), axis=0)) == 50


# --- by hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_replacement", [False, True])
@pytest.mark.parametrize("fanout", [-1, 0, 1, 3, 40])
def test_a_node_whose_edges_have_no_weight_gives_none(fanout: int, with_replacement: bool) -> None:
    assert drawn(np.zeros(5), fanout, replace=with_replacement) == []
    assert drawn(np.zeros(0), fanout, replace=with_replacement) == []


@pytest.mark.parametrize("fanout", [-1, 3, 4, 5, 40])
def test_all_with_weight_come_in_storage_order_where_there_are_no_more(fanout: int) -> None:
    """CONTRACT 45: fan-out -1 takes all neighbours, and none of weight 0."""
    weights = np.array([0, 1, 0, 1e9, 1e-9, 0])
    for key in range(50):
        found = drawn(weights, fanout, key)
        assert sorted(found) == [1, 3, 4]
        assert found == [1, 3, 4] or fanout == 3


def test_with_replacement_one_edge_is_drawn_as_often_as_asked() -> None:
    assert drawn(np.array([0, 0, 2.5, 0]), 40, replace=True) == [2] * 40


def test_fan_out_zero_gives_none() -> None:
    """CONTRACT 45: 0 takes none."""
    assert drawn(np.ones(9), 0) == drawn(np.ones(9), 0, replace=True) == []


def test_without_weights_that_differ_no_edge_comes_twice() -> None:
    for key in range(200):
        assert len(set(drawn(np.ones(12), 11, key))) == 11


# --- hubs -----------------------------------------------------------------------------------------

MILLION = 10**6


def million_weights(kind: str) -> Array:
    weights = np.ones(MILLION)
    match kind:
        case "one with nearly all":
            weights[777] = 1e12 * MILLION
        case "five among zeros":
            weights[:] = 0
            weights[[0, 3, 500_000, 500_001, MILLION - 1]] = [1, 2, 1e-9, 1e9, 5]
        case "halves":
            weights[:60] = 2.0 ** np.arange(60, 0, -1)
    return weights


@each_simd
@pytest.mark.parametrize("kind", ["all equal", "one with nearly all", "five among zeros", "halves"])
@pytest.mark.parametrize("fanout", [10, 40])
def test_a_hub_of_a_million(kind: str, fanout: int) -> None:
    weights = million_weights(kind)
    found = drawn(weights, fanout)
    assert len(set(found)) == len(found) == min(fanout, np.count_nonzero(weights))
    assert (weights[found] > 0).all()
    if kind == "one with nearly all":
        assert found[0] == 777
    if kind == "five among zeros":
        assert found == [0, 3, 500_000, 500_001, MILLION - 1]


def test_a_row_of_four_billion_edges_is_searched_and_not_read(tmp_path: Path) -> None:
    """Read whole, the sums alone would take 32 GiB; nearly all of them are a hole in a file."""
    degree = 2**32 + 9
    entries = sparse_zeros(tmp_path, degree)
    sums = np.memmap(tmp_path / "sums", np.int64, "w+", shape=(degree,))
    sums[-4:] = [5, 5, 6, 9]
    adjacency = Adjacency(np.array([0, degree]), entries)
    last = degree - np.array([4, 2, 1])
    for fanout in (3, 10, 40):
        _, positions = one_hop(adjacency, [0], fanout, 7, sums=sums)
        assert sorted(positions.tolist()) == last.tolist()
    _, positions = one_hop(adjacency, [0], 50, 7, sums=sums, replace=True)
    assert set(positions.tolist()) == set(last.tolist())


def test_large_fanouts_of_geometric_weights_take_few_rounds() -> None:
    # Each has as much weight as all after it: discarding alone would never end.
    weights = np.concatenate([2.0 ** np.arange(59, 0, -1), np.ones(5000)])
    for fanout in (30, 70, 3000):
        hop = Hop(
            Rows(np.array([0, len(weights)]), np.zeros(len(weights), np.int32)),
            row_of(weights)[1],
            np.array([0]),
            fanout,
        )
        same_arrays(list(hop.native()), list(hop.twin()))


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fanout", [-1, 1, 2, 33])
@pytest.mark.parametrize("with_replacement", [False, True])
@pytest.mark.parametrize("indptr", BAD_OFFSETS.values(), ids=BAD_OFFSETS)
def test_bad_offsets(indptr: list[int], fanout: int, with_replacement: bool) -> None:
    adjacency = Adjacency(np.array(indptr), np.zeros(5, np.int64))
    with pytest.raises(GraphFormatError, match="damaged topology"):
        one_hop(adjacency, [3, 1], fanout, sums=np.arange(5) + 1, replace=with_replacement)


SUMS = st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))


@each_simd
@given(damaged_jobs(), st.data())
def test_sums_that_are_none_give_edges_of_the_row_or_nothing(job: Job, data: st.DataObject) -> None:
    rows = job.edges[0].rows
    # Neighbours that are nodes: it is the sums that are damaged, and perhaps the offsets.
    adjacency = Adjacency(rows.indptr, np.zeros_like(rows.entries))
    count = adjacency.num_edges
    sums = np.array(data.draw(st.lists(SUMS, min_size=count, max_size=count)), np.int64)
    try:
        counts, positions = one_hop(
            adjacency,
            job.seeds[0],
            job.edges[0].fanouts[0],
            job.key,
            sums=sums,
            replace=job.replace,
            disjoint=data.draw(st.booleans()),
        )
    except GraphFormatError:
        return
    assert counts.sum() == len(positions)
    owners = np.repeat(job.seeds[0], counts)
    assert (positions >= adjacency.indptr[owners]).all()
    assert (positions < adjacency.indptr[owners + 1]).all()


@each_simd
@pytest.mark.parametrize("fanout", [2, 40, 700])
@pytest.mark.parametrize("salt", range(6))
def test_a_long_row_of_sums_that_are_none(fanout: int, salt: int) -> None:
    rng = np.random.default_rng(salt)
    sums = rng.integers(-(2**63), 2**63 - 1, 1000)
    sums[-1] = 2**62 if salt % 2 else 3
    adjacency = Adjacency(np.array([0, 1000]), np.zeros(1000, np.int32))
    _, positions = one_hop(adjacency, [0], fanout, salt, sums=sums)
    assert len(set(positions.tolist())) == len(positions) <= fanout


def test_keys_of_hops_are_those_of_any_other_choice() -> None:
    # The same stream as without weights: equal ones are drawn by the same words.
    adjacency, sums = row_of(np.full(4, 2.0))
    _, weighted = one_hop(adjacency, [0], 9, sums=sums, replace=True)
    _, plain = one_hop(adjacency, [0], 9, replace=True)
    assert weighted.tolist() == plain.tolist()
