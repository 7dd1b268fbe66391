"""Memory as callers have it: at odd addresses, shared between arguments, seen through strides.

Each use either works or is refused. The sanitized run sees whether anything is touched that should
not be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock import kernels
from penstock.errors import PenstockError
from penstock.kernels import Adjacency, Buffers, KHop, Relabeler, Relation
from penstock.kernels.arrays import Array
from tests.kernels.large import rows_with_degrees
from tests.kernels.strategies import same_array

ROWS = rows_with_degrees(np.full(50, 4), 50)


def askew(array: Array) -> Array:
    """The same numbers at an address that is no multiple of their size."""
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
    moved = memory.view(array.dtype).reshape(array.shape)
    moved[...] = array
    assert not moved.flags.aligned
    return moved


def khop(adjacency: Adjacency | None = None) -> KHop:
    return KHop([50], [Relation(adjacency or ROWS.adjacency, (2, 2))])


# --- odd addresses --------------------------------------------------------------------------------


def test_ids_at_odd_addresses_are_read_or_refused() -> None:
    ids = np.arange(40, 0, -1)
    calls: list[Any] = [
        lambda ids: kernels.first_outside(ids, 30),
        kernels.is_sorted,
        lambda ids: khop().sample(1, [ids]).nodes[0].tolist(),
        lambda ids: kernels.draw_hop(ROWS.adjacency, ids, 2, 1)[1].tolist(),
        lambda ids: kernels.gather_rows(np.arange(50), ids).tolist(),
        lambda ids: Relabeler().relabel(ids).tolist(),
        lambda ids: len(labels(ids)),
        lambda ids: filled(ids, ids),
        lambda ids: filled(ids.astype(np.int32), ids),
    ]
    for call in calls:
        try:
            result = call(askew(ids))
        except (ValueError, TypeError):
            continue
        assert result == call(ids)


def labels(seeds: Array) -> Relabeler:
    relabeler = Relabeler()
    relabeler.add_seeds(seeds)
    return relabeler


def filled(keys: Array, values: Array) -> list[list[int]]:
    indptr, entries = np.empty(51, np.int64), np.empty((len(keys), 2), np.int64)
    kernels.fill_adjacency(keys, values, indptr, entries)
    return entries.tolist()


@pytest.mark.parametrize("which", ["indptr", "entries"])
def test_rows_of_neighbours_at_odd_addresses_are_read_or_refused(which: str) -> None:
    arrays = {"indptr": ROWS.indptr, "entries": ROWS.entries}
    arrays[which] = askew(arrays[which])
    try:
        sample = khop(Adjacency(**arrays)).sample(1, [np.arange(20)])
    except (ValueError, TypeError):
        return
    same_array(sample.nodes[0], khop().sample(1, [np.arange(20)]).nodes[0])


@pytest.mark.parametrize("which", ["nodes", "rows", "cols", "edge_ids"])
def test_batches_at_odd_addresses_are_written_or_refused(which: str) -> None:
    arrays = {name: [np.zeros(2000, np.int64)] for name in ("nodes", "rows", "cols", "edge_ids")}
    arrays[which] = [askew(arrays[which][0])]
    expected = khop().sample(1, [np.arange(20)])
    try:
        sample = khop().sample(1, [np.arange(20)], Buffers(**arrays))
    except (ValueError, TypeError):
        return
    same_array(getattr(sample, which)[0], getattr(expected, which)[0])


def test_topology_at_odd_addresses_is_built_or_refused() -> None:
    keys, expected = np.array([1, 0, 1]), [[1, 1], [0, 0], [2, 2]]
    for indptr, entries in (
        (askew(np.zeros(3, np.int64)), np.zeros((3, 2), np.int64)),
        (np.zeros(3, np.int64), askew(np.zeros((3, 2), np.int64))),
    ):
        try:
            kernels.fill_adjacency(keys, np.arange(3), indptr, entries)
        except (ValueError, TypeError):
            continue
        assert entries.tolist() == expected


@pytest.mark.parametrize("dtype", ["int16", "float32", "int64", "complex128"])
def test_rows_at_odd_addresses_are_gathered(dtype: str) -> None:
    rows = np.arange(60).reshape(20, 3).astype(dtype)
    out = askew(np.zeros((4, 3), dtype))
    same_array(kernels.gather_rows(askew(rows), np.array([1, 0, 19, 7]), out), rows[[1, 0, 19, 7]])


def test_bytes_at_odd_addresses_are_digested() -> None:
    data = np.arange(100.0)
    assert kernels.digest(askew(data)) == kernels.digest(data)


# --- shared memory --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [("nodes", "edge_ids"), ("nodes", "rows"), ("nodes", "cols"), ("rows", "cols")],
)
def test_lists_that_share_memory_are_refused(one: str, other: str) -> None:
    # The frontier is read from `nodes` while edges are written: sharing would make nodes of them.
    entries = ROWS.entries.copy()
    entries[:, 1] += 10**9
    memory = np.zeros(3000, np.int64)
    arrays = {name: [np.zeros(2000, np.int64)] for name in ("nodes", "rows", "cols", "edge_ids")}
    arrays[one], arrays[other] = [memory[:2000]], [memory[10:2010]]
    sampler = khop(Adjacency(ROWS.indptr, entries))
    with pytest.raises(ValueError, match="memory"):
        sampler.sample(1, [np.arange(20)], Buffers(**arrays))


def test_lists_side_by_side_in_one_arena_are_fine() -> None:
    arena = np.zeros(8000, np.int64)
    out = Buffers([arena[:2000]], [arena[2000:4000]], [arena[4000:6000]], [arena[6000:]])
    sample = khop().sample(1, [np.arange(20)], out)
    same_array(sample.nodes[0], khop().sample(1, [np.arange(20)]).nodes[0])


def test_lists_of_no_length_anywhere_are_fine() -> None:
    arena = np.zeros(8000, np.int64)
    out = Buffers([arena], [arena[:0]], [arena[5:5]], [arena[7:7]])
    sampler = KHop([50], [Relation(ROWS.adjacency, (0,))])
    assert sampler.sample(1, [np.arange(20)], out).nodes[0].tolist() == list(range(20))


def test_seeds_already_in_their_place_are_fine() -> None:
    out = Buffers.allocate([2000], [2000])
    out.nodes[0][:20] = np.arange(20, 40)
    sample = khop().sample(1, [out.nodes[0][:20]], out)
    same_array(sample.nodes[0], khop().sample(1, [np.arange(20, 40)]).nodes[0])


@pytest.mark.parametrize("room", [2000, 30])
def test_seeds_in_memory_that_will_be_written_to_are_refused_or_read_first(room: int) -> None:
    # The seeds of the second type lie where those of the first will be copied to, and are no nodes
    # of the second; lists too short make the sampler start over.
    relation = Relation(ROWS.adjacency, (2, 2), expands=1, finds=1)
    sampler = KHop([10**6, 50], [relation])
    first, second = np.arange(10**5, 10**5 + 20), np.arange(20)
    out = Buffers.allocate([room, room], [room])
    out.nodes[0][:20] = second
    try:
        sample = sampler.sample(1, [first, out.nodes[0][:20]], out)
    except (ValueError, PenstockError):
        return
    same_array(sample.nodes[1], sampler.sample(1, [first, second]).nodes[1])


def test_rows_gathered_onto_themselves_are_right_or_refused() -> None:
    rows = np.arange(40.0).reshape(10, 4)
    ids = np.arange(9, -1, -1)
    expected = rows[ids]
    try:
        kernels.gather_rows(rows, ids, rows)
    except ValueError:
        return
    same_array(rows, expected)


def test_rows_gathered_half_onto_themselves_are_right_or_refused() -> None:
    memory = np.zeros(2000, np.uint8)
    rows, out = memory[:1000].reshape(10, 100), memory[50:1050].reshape(10, 100)
    rows[...] = np.arange(10)[:, None]
    expected = rows.copy()
    try:
        kernels.gather_rows(rows, np.arange(10), out)
    except ValueError:
        return
    same_array(out, expected)


def test_offsets_are_not_written_onto_the_edges() -> None:
    keys = np.array([3, 1, 2, 0, 3, 2, 2, 1])
    with pytest.raises(ValueError, match="memory"):
        kernels.fill_adjacency(keys, keys.copy(), keys[:5], np.zeros((8, 2), np.int64))


def test_rows_are_not_written_onto_the_edges() -> None:
    entries = np.array([3, 1, 2, 0, 3, 2, 2, 1] * 2).reshape(8, 2)
    keys, values = entries.reshape(-1)[:8], np.arange(8) + 10**6
    with pytest.raises(ValueError, match="memory"):
        kernels.fill_adjacency(keys, values, np.zeros(5, np.int64), entries)


def test_offsets_and_rows_are_not_written_onto_each_other() -> None:
    memory = np.zeros(20, np.int64)
    keys = np.array([3, 1, 2, 0])
    with pytest.raises(ValueError, match="memory"):
        kernels.fill_adjacency(keys, keys.copy(), memory[:5], memory[4:12].reshape(4, 2))


# --- strides --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [2, -1, -3])
def test_seeds_may_have_any_stride(step: int) -> None:
    ids = np.arange(40)[::step]
    same_array(khop().sample(1, [ids]).nodes[0], khop().sample(1, [ids.copy()]).nodes[0])


def test_seeds_may_be_one_number_spread_out() -> None:
    ids = np.broadcast_to(np.int64(7), 20)
    same_array(khop().sample(1, [ids]).nodes[0], khop().sample(1, [np.full(20, 7)]).nodes[0])


def test_a_column_of_a_table_of_records_is_read_or_refused() -> None:
    table = np.zeros(20, dtype=[("flag", "u1"), ("id", "i8"), ("half", "i4")])
    table["id"] = np.arange(20)
    for name in ("id", "half"):
        try:
            sample = khop().sample(1, [table[name]])
        except (ValueError, TypeError):
            continue
        same_array(sample.nodes[0][:20], table[name].astype(np.int64))
