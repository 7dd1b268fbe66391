"""Kernels let other threads run, and an object in use by one thread is refused to another.

None of it depends on how fast anything is. With the switch interval beyond the test's life, a
thread runs until it gives up the interpreter's lock of its own accord; so another one makes
progress during a call exactly when the call releases the lock. Where the face makes two native
calls, only the one that is meant is called here.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from penstock import kernels
from penstock.kernels import Buffers, KHop, Relabeler, Relation, _native
from tests.kernels.large import large_job, rows_with_degrees
from tests.kernels.strategies import Job, assert_same

pytestmark = pytest.mark.usefixtures("no_leaks", "switch_only_when_released")

SIZE = 300_000
# One call may be over before the other thread has woken up; thousands of them are not.
MANY = 5000


@pytest.fixture
def switch_only_when_released() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


def lets_others_run(call: Callable[[], Any]) -> bool:
    """Whether this thread runs while another one is in `call`."""
    progress: list[str] = []
    seen: list[bool] = []

    def work() -> None:
        for _ in range(MANY):
            call()
            if progress:
                break
        seen.append(bool(progress))

    worker = threading.Thread(target=work)
    worker.start()  # returns when this thread gets the lock: in the midst of a call, or after all
    progress.append("made")
    worker.join()
    return seen[0]


def sampling_of(job: Job) -> Callable[[], Any]:
    native, out = job.sampler._native, Buffers.allocate([10**5], [10**5])
    return lambda: native.sample(job.key, job.seeds, out.nodes, out.rows, out.cols, out.edge_ids)


def sampling() -> Callable[[], Any]:
    return sampling_of(large_job(20_000, (10, 5), 2000, paired=True, dtype="int32", seed=1))


def one_hop() -> Callable[[], Any]:
    adjacency = rows_with_degrees(np.full(20_000, 20), 20_000).adjacency
    nodes = np.arange(20_000)
    return lambda: kernels.draw_hop(adjacency, nodes, 15, 1)


def relabeling() -> Callable[[], Any]:
    relabeler, ids = Relabeler(), np.arange(SIZE)
    return lambda: relabeler.relabel(ids)


def seeding() -> Callable[[], Any]:
    ids = np.zeros(SIZE, np.int64)

    def call() -> None:
        Relabeler().add_seeds(ids)

    return call


def gathering() -> Callable[[], Any]:
    rows, ids = np.zeros((1000, 100)), np.arange(20_000) % 1000
    out = np.empty((20_000, 100))
    return lambda: kernels.gather_rows(rows, ids, out)


def filling_rows() -> Callable[[], Any]:
    keys = np.arange(SIZE) % 1000
    indptr, entries = np.empty(1001, np.int64), np.empty((SIZE, 2), np.int64)
    return lambda: _native.fill_adjacency(keys, keys, indptr, entries)


def transposing() -> Callable[[], Any]:
    rows = rows_with_degrees(np.full(10_000, 20), 10_000)
    indptr, entries = np.empty(10_001, np.int64), np.empty((200_000, 2), np.int64)
    return lambda: kernels.transpose(rows.indptr, rows.entries, indptr, entries)


CALLS: dict[str, Callable[[], Callable[[], Any]]] = {
    "sampling": sampling,
    "one hop": one_hop,
    "relabeling": relabeling,
    "seeding": seeding,
    "gathering": gathering,
    "filling rows": filling_rows,
    "transposing": transposing,
    "permuting": lambda: lambda: kernels.permutation(0, 0, 10_000),
    "digesting": lambda: (lambda data: lambda: kernels.digest(data))(np.zeros(SIZE)),
    "checking ids": lambda: (lambda ids: lambda: kernels.first_outside(ids, 1))(
        np.zeros(SIZE, np.int64)
    ),
    "checking order": lambda: (lambda ids: lambda: kernels.is_sorted(ids))(
        np.zeros(SIZE, np.int64)
    ),
}


@pytest.mark.parametrize("make", CALLS.values(), ids=CALLS)
def test_other_threads_run_during(make: Callable[[], Callable[[], Any]]) -> None:
    assert lets_others_run(make())


def test_a_call_that_keeps_the_lock_is_found_out() -> None:
    data = bytes(10_000)
    assert not lets_others_run(lambda: data.find(b"x"))


def refused(theirs: Callable[[], Any], ours: Callable[[], Any]) -> list[RuntimeError]:
    """What this thread is told when it calls `ours` while another is in the midst of `theirs`."""
    errors: list[RuntimeError] = []
    tried: list[bool] = []

    def work() -> None:
        for _ in range(MANY):
            theirs()
            if tried:
                break

    worker = threading.Thread(target=work)
    worker.start()  # returns in the midst of a call, which cannot end without the lock
    try:
        ours()
    except RuntimeError as error:
        errors.append(error)
    tried.append(True)
    worker.join()
    return errors


def test_a_sampler_in_use_by_another_thread_is_refused() -> None:
    call = sampling()
    expected = call()
    (error,) = refused(call, call)
    assert "in use by another thread" in str(error)
    assert call() == expected


@pytest.mark.parametrize("ours", ["relabel", "add_seeds", "clear", "nodes"])
def test_a_list_of_nodes_in_use_by_another_thread_is_refused(ours: str) -> None:
    relabeler, ids = Relabeler(), np.arange(SIZE)
    relabeler.relabel(ids)
    calls: dict[str, Callable[[], Any]] = {
        "relabel": lambda: relabeler.relabel(ids),
        "add_seeds": lambda: relabeler.add_seeds(ids[:1]),
        "clear": relabeler.clear,
        "nodes": relabeler.nodes,
    }
    (error,) = refused(calls["relabel"], calls[ours])
    assert "in use by another thread" in str(error)
    assert np.array_equal(relabeler.nodes(), ids)


def test_threads_with_samplers_of_their_own_do_not_disturb_each_other() -> None:
    job = large_job(3000, (10, 5), 200, paired=True, dtype="int32", seed=1)
    adjacency = job.edges[0].rows.adjacency  # shared: it is only read
    expected, results = job.native(), []

    def work() -> None:
        sampler = KHop([3000], [Relation(adjacency, (10, 5))])
        results.extend(sampler.sample(job.key, job.seeds) for _ in range(20))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 80
    for sample in results:
        assert_same(sample, expected)
