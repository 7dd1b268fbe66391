"""Loaders of the same data share a hub, its workers and the memory of the graph."""

from __future__ import annotations

import gc
import os
import signal

import pytest

import penstock as ps
from penstock.errors import HubGone
from penstock.loader.source.hubs import Lease, joined
from tests.client.graphs import small_graph
from tests.loader.epochs import digest, digests, everyday, hub_of, pids_of, small_data
from tests.processes import is_alive, strike, until, wait_until_gone

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_loaders_of_the_same_data_share_a_hub() -> None:
    data = small_data()
    with everyday(data, num_workers=1) as train, everyday(data, num_workers=1) as val:
        next(iter(train))
        next(iter(val))
        assert hub_of(train) is hub_of(val)
        pids = pids_of(train)
        assert len(pids) == 2
        train.close()
        assert all(map(is_alive, pids))
        assert len(digests(val)) == 15
    wait_until_gone(pids)


def test_data_that_differs_has_another_hub() -> None:
    with everyday(small_data(), num_workers=1) as one:
        data = small_data()
        data.x += 1
        with everyday(data, num_workers=1) as other:
            assert hub_of(one) is not hub_of(other)


def test_the_pool_is_as_large_as_the_most_demanding_loader_wants() -> None:
    data = small_data()
    with everyday(data, num_workers=1) as one:
        next(iter(one))
        assert len(pids_of(one)) == 2
        with everyday(data, num_workers=2) as other:
            next(iter(other))
            assert len(pids_of(one)) == 3


def test_nothing_runs_before_a_batch_is_asked_for() -> None:
    with small_graph() as graph:
        lease = Lease(graph, 1)
        assert lease._tenancy._hub is None
        lease.close()


def test_a_loader_that_is_dropped_takes_its_hub_along() -> None:
    """CONTRACT 29: without `close`, in the middle of an epoch."""
    loader = everyday(small_data(), num_workers=1)
    iterator = iter(loader)
    batch = next(iterator)
    pids = pids_of(loader)
    del loader, iterator
    gc.collect()
    wait_until_gone(pids)
    assert batch.x.isfinite().all()


def test_a_dropped_loader_need_not_wait_for_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        loader = everyday(small_data(), num_workers=1)
        next(iter(loader))
        pids = pids_of(loader)
        del loader
        wait_until_gone(pids)
    finally:
        gc.enable()


def test_after_the_last_lease_a_new_one_starts_another_hub() -> None:
    with small_graph() as graph:
        first = Lease(graph, 1)
        hub = first.hub()
        first.close()
        first.close()
        second = Lease(graph, 1)
        assert second.hub() is not hub
        second.close()


def test_a_hub_that_was_given_up_is_followed_by_another() -> None:
    with small_graph() as graph:
        lease = Lease(graph, 1)
        hub = lease.hub()
        hub.close()
        with pytest.raises(HubGone):
            hub.check_hope()
        assert lease.hub() is not hub
        lease.close()


def test_a_loader_whose_hub_was_given_up_goes_on_with_another() -> None:
    """CONTRACT 22."""
    data = small_data()
    with everyday(data) as inline:
        expected = digests(inline)
    with everyday(data, num_workers=1, prefetch=1) as loader:
        iterator, seen = iter(loader), list[str]()
        hub_of(loader).close()
        with pytest.raises(HubGone):
            seen.extend(map(digest, iterator))
        assert loader.state_dict()["delivered"] == len(seen)
        assert seen + digests(iterator) == expected


def test_a_hub_s_death_is_not_seen_in_the_batches() -> None:
    """CONTRACT 22: killed in the middle of an epoch; none lost, none twice."""
    data = small_data()
    with everyday(data) as inline:
        expected = digests(inline)
    # Few are made ahead: some batches are still to be made when the hub is killed.
    with everyday(data, num_workers=1, prefetch=2) as loader:
        iterator = iter(loader)
        seen = digests([next(iterator), next(iterator)])
        strike(hub_of(loader).pid)
        assert seen + digests(iterator) == expected
        assert loader.statistics().restarts_of_hub == 1


def test_a_worker_s_death_is_not_seen_in_the_batches() -> None:
    """CONTRACT 18."""
    data = small_data()
    with everyday(data) as inline:
        expected = [digests(inline) for _ in range(2)]
    with everyday(data, num_workers=1) as loader:
        seen = [digests(loader)]
        hub, worker = pids_of(loader)
        strike(worker, signal.SIGKILL)
        seen.append(digests(loader))
        assert seen == expected
        until(lambda: loader.statistics().restarts_of_workers == 1, "the worker is counted as lost")
        assert is_alive(hub)


def test_a_hub_is_joined_once_however_many_ask() -> None:
    with small_graph() as graph, ps.HubProcess(graph, 1) as hub:
        one, other = joined(hub.address), joined(hub.address)
        assert one is other
        with pytest.raises(HubGone, match="no hub answers"):
            joined("unix://@nobody-is-here")


def test_other_processes_can_join_a_loader_s_pool() -> None:
    data = small_data()
    nodes = data.train_mask.nonzero().view(-1)
    with everyday(data, input_nodes=nodes, num_workers=1) as loader:
        address = loader.address
        assert address is not None
        with everyday(address, input_nodes=nodes) as other:
            assert other._source.graph is not loader._source.graph
            for one, two in zip(loader, other, strict=True):
                assert one.n_id.equal(two.n_id)
                assert one.x.equal(two.x)


def test_a_loader_without_workers_has_no_address() -> None:
    with everyday(small_data()) as loader:
        assert loader.address is None


def test_a_fork_starts_from_nothing() -> None:
    with small_graph() as graph:
        lease = Lease(graph, 1)
        hub = lease.hub()
        child = os.fork()
        if child == 0:
            lease.close()  # the parent's: not the child's to end
            os._exit(0 if Lease(graph, 1)._tenancy is not lease._tenancy else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert hub.statistics()["hub"]["address"] == hub.address
        lease.close()
