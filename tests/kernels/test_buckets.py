"""Edges shared out to buckets, and buckets sorted: the native code gives the twin's bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.kernels import buckets as native
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.buckets import AT, EDGES, END, MARK, NARROW, WIDE, Keys, Repeats
from penstock.kernels.members import Members
from penstock.kernels.twins import buckets as twin
from tests.kernels.strategies import same_array

RECORDS = [NARROW, WIDE]
NUM_SOURCES = 12


@dataclass(frozen=True, eq=False)
class Job:
    """Edges whose ids jump, so that some have marks before them."""

    sources: Array
    keys: Array
    ids: Ids | int
    range_: Keys
    record: np.dtype[np.void]

    def table(self, room: int) -> tuple[Array, Ids]:
        """Return the memory of buckets that hold so many records each, and their table."""
        count = self.range_.num_buckets
        pool = np.zeros(count * room * self.record.itemsize, np.uint8)
        table = np.zeros((count, 4), np.int64)
        table[:, AT] = np.arange(count) * room
        table[:, END] = table[:, AT] + room
        table[:, MARK] = -1
        return pool, table


@st.composite
def jobs(draw: st.DrawFn, *, one_bucket: bool = False) -> Job:
    record = draw(st.sampled_from(RECORDS))
    first, size = draw(st.integers(0, 2**40)), draw(st.integers(1, 40))
    shift = 6 if one_bucket else draw(st.integers(0, 6))
    count = draw(st.integers(0, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    top = 2**47 if record is NARROW else 2**62
    steps = rng.choice([1, 2, 30_000, 2**20, top // 100], count) if draw(st.booleans()) else None
    start = draw(st.sampled_from([0, 65_530, 2**32 - 5, top // 2]))
    ids = start if steps is None else np.cumsum(steps).astype(np.int64)
    dtype = draw(st.sampled_from(["int32", "int64"])) if first + size < 2**31 else "int64"
    keys = rng.integers(first, first + size, count).astype(dtype)[:: draw(st.sampled_from([1, -1]))]
    sources = rng.integers(0, NUM_SOURCES, count).astype(draw(st.sampled_from(["int32", "int64"])))
    return Job(sources, keys, ids, Keys(first, size, shift), record)


@given(jobs(), st.integers(0, 40))
def test_edges_are_shared_out_as_the_twin_does(job: Job, room: int) -> None:
    results = []
    for spread in (native.spread_edges, twin.spread_edges):
        pool, table = job.table(room)
        taken = spread(job.sources, job.keys, job.ids, job.range_, job.record, pool, table)
        results.append((taken, pool.tobytes(), table.tolist()))
    assert results[0] == results[1]


def bucket_of(job: Job) -> Array:
    """Return the records of all edges, in one bucket."""
    pool, table = job.table(2 * len(job.keys) + 2)
    taken = native.spread_edges(job.sources, job.keys, job.ids, job.range_, job.record, pool, table)
    assert taken == len(job.keys) == table[0, EDGES]
    return pool[: table[0, AT] * job.record.itemsize]


@given(jobs(one_bucket=True), st.integers(0, 130))
def test_a_bucket_read_in_parts_is_the_edges_that_were_added(job: Job, cut: int) -> None:
    records, cut = bucket_of(job), cut * job.record.itemsize
    found = []
    for unpack in (native.unpack_records, twin.unpack_records):
        *head, upper = unpack(records[:cut], job.record)
        *tail, last = unpack(records[cut:], job.record, upper)
        found.append(
            ([np.concatenate(both).tolist() for both in zip(head, tail, strict=True)], last)
        )
    assert found[0] == found[1]
    first = job.ids if isinstance(job.ids, int) else None
    ids = np.arange(len(job.keys)) + first if first is not None else job.ids
    expected = [job.sources, job.keys - job.range_.first, ids]
    assert found[0][0] == [np.asarray(each).tolist() for each in expected]


@given(
    jobs(one_bucket=True),
    st.booleans(),
    st.sampled_from(["int32", "int64"]),
    st.integers(0, 2**40),
    st.sampled_from([None, 0.0, 0.5, 1.0]),
)
def test_a_bucket_is_sorted_as_the_twin_does(
    job: Job, paired: bool, dtype: str, begin: int, share: float | None
) -> None:
    job = Job(job.sources, job.keys, 70_000, job.range_, job.record)
    records, kept = bucket_of(job), None
    if share is not None:
        some = np.flatnonzero(np.random.default_rng(1).random(70_000 + len(job.keys)) < share)
        kept = Members.of(some, 70_000 + len(job.keys))
    count = len(job.keys) if kept is None else int(np.count_nonzero(some >= 70_000))
    results = []
    for sort in (native.sort_records, twin.sort_records):
        ends = np.full(job.range_.size, -7, np.int64)
        entries = np.full((count, 2) if paired else count, -7, dtype)
        sort(records, job.record, begin, NUM_SOURCES, ends, entries, kept)
        results.append((ends, entries))
    same_array(results[0][0], results[1][0])
    same_array(results[0][1], results[1][1])
    counted = np.full(job.range_.size, -7, np.int64)
    native.count_records(records, job.record, begin, counted, kept)
    same_array(counted, results[0][0])


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=12), max_size=6),
    st.sampled_from(["int32", "int64"]),
    st.integers(0, 2**40),
    st.booleans(),
)
def test_repeats_are_the_twins(
    rows: list[list[int]], dtype: str, begin: int, marking: bool
) -> None:
    sources = np.array([source for row in rows for source in row], dtype)
    ids = np.random.default_rng(len(sources)).permutation(len(sources)).astype(dtype)
    ends = begin + np.cumsum([len(row) for row in rows], dtype=np.int64)
    results: list[tuple[Repeats, list[object], list[object]]] = []
    for find in (native.find_repeats, twin.find_repeats):
        entries = np.stack([sources, ids], axis=1)
        words = np.zeros((-(-len(ids) // 64), 2), np.uint64)
        kept = native.all_members(len(ids), words) if marking else None
        found = find(ends, entries, begin, kept)
        results.append((found, entries.tolist(), words.tolist()))
    assert results[0] == results[1]


@given(st.integers(0, 300), st.data())
def test_ids_that_are_dropped_are_no_members(size: int, data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.integers(0, size - 1)) if size else st.just(set()))
    kept = native.all_members(size, np.zeros((-(-size // 64), 2), np.uint64))
    native.drop(kept, np.array(sorted(gone), np.int64))
    left = native.ranked(kept.words, size)
    left.check()
    assert left.ids().tolist() == [id_ for id_ in range(size) if id_ not in gone]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "key"), [(0, 9), (0, 20), (0, -1), (-1, 10), (2**32 - 1, 10), (2**40, 10)]
)
def test_an_end_that_is_out_of_range_is_named(source: int, key: int) -> None:
    good = Job(np.array([0, source]), np.array([10, key]), 0, Keys(10, 10, 2), NARROW)
    pool, table = good.table(10)
    with pytest.raises(ValueError, match=r"edge 1 is .* out of range"):
        native.spread_edges(good.sources, good.keys, 0, good.range_, NARROW, pool, table)


@pytest.mark.parametrize("bad", [(-1, 4), (5, 4), (0, 9)])
def test_a_table_that_leads_out_of_the_pool_is_refused(bad: tuple[int, int]) -> None:
    job = Job(np.zeros(1, int), np.zeros(1, int), 0, Keys(0, 1, 0), NARROW)
    pool, table = job.table(8)
    table[0, AT], table[0, END] = bad
    with pytest.raises(ValueError, match="outside the pool"):
        native.spread_edges(job.sources, job.keys, 0, job.range_, NARROW, pool, table)


def test_too_few_buckets_and_impossible_shifts_are_refused() -> None:
    job = Job(np.zeros(1, int), np.zeros(1, int), 0, Keys(0, 9, 0), NARROW)
    pool, table = job.table(8)
    with pytest.raises(ValueError, match="too few buckets"):
        native.spread_edges(job.sources, job.keys, 0, job.range_, NARROW, pool, table[:8])
    with pytest.raises(ValueError, match="no such keys"):
        native.spread_edges(job.sources, job.keys, 0, Keys(0, 9, 17), NARROW, pool, table)
    with pytest.raises(ValueError, match="share memory"):
        native.spread_edges(table[:, AT], table[:, END], 0, job.range_, NARROW, pool, table)


@pytest.mark.parametrize("record", RECORDS)
@given(data=st.data())
def test_damaged_records_are_an_error_or_harmless(
    record: np.dtype[np.void], data: st.DataObject
) -> None:
    size = data.draw(st.integers(0, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    records = rng.integers(0, 256, size * record.itemsize).astype(np.uint8)
    if data.draw(st.booleans()):
        records.view(record)["row"] %= 8
        records.view(record)["source"][::3] %= 20
    kept = data.draw(st.sampled_from([None, Members.of(np.arange(50), 60)]))
    for room in (0, size // 2, size):
        ends, entries = np.zeros(5, np.int64), np.zeros((room, 2), np.int64)
        try:
            native.sort_records(records, record, 0, 9, ends, entries, kept)
        except GraphFormatError:
            continue
        assert ends[-1] == room
        assert np.all((entries[:, 0] >= 0) & (entries[:, 0] < 9))


def test_offsets_that_are_damaged_are_not_followed() -> None:
    entries = np.array([[1, 0], [1, 1], [1, 2]])
    ends = np.array([-5, 2**60, 1, 3])
    assert native.find_repeats(ends, entries, 0).total == 2


def test_parts_of_records_are_refused() -> None:
    with pytest.raises(ValueError, match="not a number of records"):
        native.unpack_records(np.zeros(9, np.uint8), NARROW)
