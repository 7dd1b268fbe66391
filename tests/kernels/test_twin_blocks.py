"""The twin's bytes also where blocks of nodes, chunks of picks, tables and ids grow large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from penstock import kernels
from penstock.kernels import Adjacency, KHop, Relabeler, Relation, reference
from penstock.kernels.arrays import Array
from penstock.kernels.twins import hops as twins
from tests.kernels.each_simd import each_simd
from tests.kernels.large import degrees_around, large_job, rows_with_degrees
from tests.kernels.strategies import Edges, Job, Rows, assert_same, same_array, same_arrays
from tests.kernels.test_vectors import sparse_zeros

KINDS = [(True, "int32"), (True, "int64"), (False, "int32"), (False, "int64")]


@each_simd
@pytest.mark.parametrize(("paired", "dtype"), KINDS)
@pytest.mark.parametrize("fanouts", [(10, 5), (1, 32), (33, 2), (-1, 1), (5, -1)])
def test_frontiers_of_many_blocks(fanouts: tuple[int, ...], paired: bool, dtype: str) -> None:
    job, expected = _many_blocks(fanouts, paired, dtype)
    sample = job.native()
    assert sum(sample.num_sampled_nodes[0][:-1]) > 2 * 64
    assert_same(sample, expected)


@cache  # the twin knows no vector instructions, and takes its time
def _many_blocks(
    fanouts: tuple[int, ...], paired: bool, dtype: str
) -> tuple[Job, reference.Sample]:
    job = large_job(1500, fanouts, 150, paired=paired, dtype=dtype, seed=sum(fanouts))
    return job, job.twin()


@each_simd
@pytest.mark.parametrize("fanout", [1, 2, 7, 31, 32, 33, 40])
@pytest.mark.parametrize("with_replacement", [False, True])
def test_degrees_around_the_fanout(fanout: int, with_replacement: bool) -> None:
    rows = rows_with_degrees(degrees_around(fanout, 400, fanout), 10**6, seed=fanout)
    nodes = np.random.default_rng(fanout).integers(0, 400, 200)
    hop = kernels.draw_hop(rows.adjacency, nodes, fanout, 99, replace=with_replacement)
    twin = twins.draw_hop(Edges(rows, ()).twin, nodes, fanout, 99, replace=with_replacement)
    same_arrays(list(hop), list(twin))


@each_simd
@pytest.mark.parametrize("fanout", [32, 40])
def test_hubs_of_which_little_is_taken(fanout: int) -> None:
    rows, twin = _hubs(fanout)
    hop = kernels.draw_hop(rows.adjacency, np.arange(180), fanout, 3)
    same_arrays(list(hop), list(twin))


@cache
def _hubs(fanout: int) -> tuple[Rows, Sequence[Array]]:
    # Few draws of a hub fall on one chosen before; with so many nodes some do.
    degrees = np.array([200, 2000, 20_000]).repeat(60)
    rows = rows_with_degrees(degrees, 10**6, paired=False, dtype="int32")
    return rows, twins.draw_hop(Edges(rows, ()).twin, np.arange(180), fanout, 3)


@each_simd
@pytest.mark.parametrize("num_seeds", [1, 63, 64, 65, 127, 128, 129])
def test_frontiers_that_just_fill_a_block(num_seeds: int) -> None:
    rows = rows_with_degrees(np.full(200, 9), 200)
    seeds = np.random.default_rng(1).permutation(200)[:num_seeds]
    job = Job([200], [Edges(rows, (8,))], [seeds])
    assert_same(job.native(), job.twin())


@pytest.mark.parametrize("degree", [127, 128, 129, 511, 512, 513, 1025, 5000, 9000])
def test_rows_that_just_fill_a_chunk(degree: int) -> None:
    rows = rows_with_degrees(np.array([degree, 3, degree]), 3)
    wide = Edges(rows, (-1, -1))
    job = Job([3], [wide], [np.array([1, 0])])
    assert_same(job.native(), job.twin())


@pytest.mark.parametrize("cap", [0, 1, 127, 128, 129, 511, 512, 513, 2000])
def test_caps_across_blocks(cap: int) -> None:
    job = large_job(1500, (10, 5), 150, paired=True, dtype="int32", seed=3)
    job = replace(job, node_caps=(cap, cap // 2))
    assert_same(job.native(), job.twin())


def test_a_batch_of_repeated_seeds_only() -> None:
    rows = rows_with_degrees(np.full(10, 20), 10)
    job = Job([10], [Edges(rows, (3, 3))], [np.repeat([7, 3], 200)])
    assert_same(job.native(), job.twin())


@each_simd
def test_several_edge_types_that_share_their_frontiers() -> None:
    big = [rows_with_degrees(degrees_around(4, n, n), m, seed=n) for n, m in [(500, 700)] * 2]
    back = rows_with_degrees(degrees_around(6, 700, 5), 500, paired=False, dtype="int32")
    edges = [
        Edges(big[0], (4, 3, 2), 0, 1, ("b", "one", "a")),
        Edges(back, (5, 2, 1), 1, 0, ("a", "back", "b")),
        Edges(big[1], (2, 2, 2), 0, 1, ("b", "two", "a")),
    ]
    rng = np.random.default_rng(0)
    job = Job([500, 700], edges, [rng.integers(0, 500, 90), rng.integers(0, 700, 80)])
    assert_same(job.native(), job.twin())


# --- ids of more than 32 bits ---------------------------------------------------------------------


def huge_job(replacement: bool) -> Job:
    """A small type that finds nodes of a huge one; some ids are alike in their lower 32 bits."""
    rows = rows_with_degrees(np.full(300, 12), 2**40, seed=4)
    neighbors = rows.entries[:, 0]
    neighbors[1::3] = neighbors[0::3] + 2**32
    rows.entries[:, 1] += 2**45
    edges = Edges(rows, (9, 0), 0, 1, ("huge", "to", "small"))
    twice = np.repeat(neighbors[:40], 2)
    return Job([300, 2**42], [edges], [np.arange(0, 300, 2), twice], replace=replacement)


@pytest.mark.parametrize("replacement", [False, True])
def test_found_nodes_and_edges_beyond_32_bits(replacement: bool) -> None:
    job = huge_job(replacement)
    sample = job.native()
    assert sample.nodes[1].max() > 2**40
    assert_same(sample, job.twin())


def test_ids_alike_in_their_lower_32_bits_that_meet_in_the_table() -> None:
    # A multiple of 2**32 that hardly moves an id's place in a table of any size.
    multiples = np.arange(1, 2**22, dtype=np.uint64)
    moved = (multiples << np.uint64(32)) * np.uint64(reference.GAMMA)
    step = int(multiples[np.argmin(np.minimum(moved, -moved))]) << 32
    ids = np.arange(500) * 3
    native, twin = Relabeler(), reference.Relabeler()
    for part in (ids, ids + step, ids):
        same_array(native.relabel(part), twin.relabel(part))
    assert len(native) == 1000


def test_the_largest_ids_of_the_narrow_and_the_wide_table() -> None:
    for num_found in (2**31 - 2, 2**31 - 1, 2**31, 2**32, 2**63 - 1):
        last = num_found - 1
        entries = np.array([last, 0, last, last - 1, 1, 0])
        job = Job(
            [2, num_found],
            [Edges(rows_of_two(entries), (-1,), 0, 1)],
            [np.array([0, 1]), np.array([last, last])],
        )
        sample = job.native()
        assert sample.nodes[1].tolist() == [last, last, 0, last - 1, 1]
        assert_same(sample, job.twin())


def rows_of_two(neighbors: Array) -> Rows:
    return Rows(np.array([0, 3, 6]), neighbors)


@each_simd
@pytest.mark.parametrize("with_replacement", [False, True])
@pytest.mark.parametrize("fanout", [5, 33])
def test_nodes_with_more_than_four_billion_edges(
    fanout: int, with_replacement: bool, tmp_path: Path
) -> None:
    indptr = np.array([0, 40, 40 + 2**32 + 5, 48 + 2**32 + 5])
    adjacency = Adjacency(indptr, sparse_zeros(tmp_path, int(indptr[-1])))
    key = kernels.hop_key(1, 0, kernels.name_hash(("", "", "")))
    expected = np.concatenate(
        [
            indptr[n]
            + reference.choose(
                int(indptr[n + 1] - indptr[n]),
                fanout,
                with_replacement,
                reference.node_key(key, n),
            )
            for n in (0, 1, 2)
        ]
    )
    assert expected.max() > 2**31
    hop = kernels.draw_hop(adjacency, np.arange(3), fanout, key, replace=with_replacement)
    same_array(hop[2], expected)
    sampler = KHop([3], [Relation(adjacency, (fanout,))], replace=with_replacement)
    same_arrays(sampler.sample(1, [np.arange(3)]).edge_ids or [], [expected])


# --- tables that grow -----------------------------------------------------------------------------


def test_relabeling_as_the_table_grows_and_is_used_again() -> None:
    rng = np.random.default_rng(0)
    native = Relabeler()
    for size in (10, 5000, 3, 200_000, 700, 60_000):
        native.clear()
        seeds = rng.integers(-(2**62), 2**62, size // 2)
        ids = rng.choice(np.concatenate([seeds, rng.integers(0, size, size)]), 2 * size)
        native.add_seeds(np.concatenate([seeds, seeds[:3]]))
        local = native.relabel(ids)
        nodes = native.nodes()
        np.testing.assert_array_equal(nodes[local], ids)
        assert len(np.unique(nodes)) == len(nodes) - len(seeds[:3])
        same_array(nodes[: len(seeds)], seeds)


def test_relabeling_chunks_of_ids_with_strides() -> None:
    ids = np.random.default_rng(0).integers(0, 500, 9000)
    for step in (1, 2, 3, -1):
        native, twin = Relabeler(), reference.Relabeler()
        same_array(native.relabel(ids[::step]), twin.relabel(ids[::step]))
        same_array(native.nodes(), np.array(twin.nodes))
