"""Memory for batches from elsewhere: used again, and never while somebody looks at it."""

from __future__ import annotations

from penstock.rpc.buffer_pool import BufferPool


def test_memory_is_used_again_when_its_batch_has_gone() -> None:
    pool = BufferPool(2)
    first = pool.lend(1000)
    where = first.ctypes.data
    view = first[10:20]
    del first
    assert pool.lend(1000).ctypes.data != where  # a view of it lives
    del view
    assert pool.lend(900).ctypes.data == where


def test_batches_that_differ_a_little_in_size_use_the_same_memory() -> None:
    pool = BufferPool(2)
    where = {pool.lend(nbytes).ctypes.data for nbytes in (1_000_000, 1_200_000, 700_000, 1_249_000)}
    assert len(where) == 1


def test_memory_that_has_become_too_small_is_let_go_of() -> None:
    pool = BufferPool(2)
    pool.lend(100_000)
    large = pool.lend(1_000_000)
    assert large.nbytes == 1_000_000
    where = large.ctypes.data
    del large
    assert pool.lend(10).ctypes.data == where


def test_payloads_of_two_sizes_in_turn_keep_their_memory() -> None:
    pool = BufferPool(4)
    large, small = pool.lend(1_000_000), pool.lend(1_000)
    where = large.ctypes.data, small.ctypes.data
    del large, small
    for _ in range(3):
        again = pool.lend(1_000_000)
        assert again.ctypes.data == where[0]
        assert pool.lend(1_000).ctypes.data == where[1]
        del again


def test_no_more_is_kept_than_was_agreed() -> None:
    pool = BufferPool(2)
    held = [pool.lend(100_000) for _ in range(5)]
    del held
    assert len(pool._kept) == 2


def test_memory_is_writable_and_aligned() -> None:
    memory = BufferPool(1).lend(100)
    memory[:] = 7
    assert memory.ctypes.data % 64 == 0
    assert memory.sum() == 700
