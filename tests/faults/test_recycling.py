"""Workers come and go while batches are made: the same bytes, none lost, and nobody notices."""

from __future__ import annotations

import pytest

from penstock import HubProcess
from tests.faults.processes import group, numbers
from tests.faults.twins import twins
from tests.processes import until

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_workers_are_replaced_after_so_many_batches() -> None:
    """CONTRACT 17, 18: nobody is lost, for nobody was killed."""
    with twins(workers=2, max_batches=8) as pair:
        pair.register("one")
        pair.register("other", seed=1)
        for epoch in range(2):
            for name in ("one", "other"):
                assert pair.read(name, epoch) == 16
        found = group(pair.backend)
        # Of the 64, each made eight, and one more if it had that already; the last two fewer.
        assert found["retired"]["batches"] >= 5
        assert (found["lost"], found["killed"]) == (0, {})
        exits = numbers(pair.backend)["pool"]["exits"]
        assert set(exits) == {"exit code 0"}


def test_workers_are_replaced_when_they_are_old() -> None:
    """CONTRACT 17: by the clock, in the middle of anything."""
    with twins(workers=2, max_age=2.0) as pair:
        pair.register("one")
        epoch = 0
        while group(pair.backend)["retired"].get("age", 0) < 2:
            assert pair.read("one", epoch) == 16
            epoch += 1
        assert group(pair.backend)["lost"] == 0


def test_an_idle_worker_grows_old_too() -> None:
    """CONTRACT 16: nothing polls, and yet time passes."""
    with twins(workers=1, max_age=1.0) as pair:
        pair.register("one", 8)
        until(lambda: group(pair.backend)["retired"].get("age", 0) >= 2, "two have grown old")
        assert pair.read("one", 0) == 2


def test_the_pool_may_grow_and_shrink_while_batches_are_made() -> None:
    """CONTRACT 5, 17, 59: the number of workers changes no byte."""
    with twins(workers=1) as pair:
        hub = pair.backend.hub
        assert isinstance(hub, HubProcess)
        pair.register("one", 200, batch_size=2)
        pair.start("one", 0)
        batches = 0
        for size in (3, 1, 2, 1):
            for _ in range(10):
                assert pair.next("one") is not None
            assert hub.resize(size) == size
            batches += 10
        assert batches + pair.finish("one") == 100
        found = group(pair.backend)
        assert (found["lost"], found["ready"]) == (0, 1)
        assert found["retired"]["shrink"] == 3


def test_a_pool_of_none_rests_until_it_grows_again() -> None:
    """CONTRACT 17: what is asked for meanwhile waits."""
    with twins(workers=2) as pair:
        hub = pair.backend.hub
        assert isinstance(hub, HubProcess)
        pair.register("one")
        pair.start("one", 0)
        assert pair.next("one") is not None
        hub.resize(0)
        until(lambda: not numbers(pair.backend)["pool"]["workers"], "all have left")
        pair.start("one", 1)
        hub.resize(1)
        assert pair.finish("one") == 16
        assert group(pair.backend)["lost"] == 0
