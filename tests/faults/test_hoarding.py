"""A user that keeps every batch it was ever given: nothing deadlocks, and nothing runs out."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from penstock import Batch
from tests.faults.processes import descriptors, hub_pid
from tests.faults.twins import Twins, summary, twins

pytestmark = pytest.mark.usefixtures("no_leaks")


def hoard(pair: Twins, epochs: range) -> list[Batch]:
    """Every batch of these epochs, each compared when it came."""
    kept: list[Batch] = []
    for epoch in epochs:
        pair.start("one", epoch)
        while (batch := pair.next("one")) is not None:
            kept.append(batch)
    return kept


def check_again(pair: Twins, kept: list[Batch]) -> None:
    """Each is still what it was when it came."""
    pair.inline.register_input("again", np.arange(64), batch_size=4, shuffle=True)
    batches = iter(kept)
    for epoch in range(kept[-1].epoch + 1):
        pair.inline.start_new_epoch_sampling("again", epoch)
        for expected in pair.inline.batches("again"):
            assert summary(next(batches)) == summary(expected)
    assert next(batches, None) is None


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_every_batch_may_be_kept(slots: int) -> None:
    """CONTRACT 23: they are copied out; the number of open files stays constant."""
    # At a heartbeat the hub may open a file for a moment.
    with twins(workers=2, beat_every=300.0) as pair:
        pair.register("one", slots=slots)
        kept = hoard(pair, range(1))
        files, hub = descriptors(), hub_pid(pair.backend)
        hub_files = descriptors(hub)
        pair.start("one", 1)
        while (batch := pair.next("one")) is not None:
            kept.append(batch)
            assert (descriptors(), descriptors(hub)) == (files, hub_files)
        assert len(kept) == 32
        check_again(pair, kept)
        assert pair.backend.statistics().channels["one"].held <= max(0, slots - 2)


def test_giants_may_be_kept_too() -> None:
    """CONTRACT 21, 23: memory of their own is mapped, and held by no descriptor."""
    with twins(workers=2) as pair:
        pair.register("one", 200, batch_size=50, buffer_size=4)
        kept = hoard(pair, range(2))
        files = descriptors()
        kept += hoard(pair, range(2, 6))
        assert descriptors() == files
        sums = [int(batch["n_id"].sum()) for batch in kept]
        assert len(sums) == 24
        del kept[::2]  # in any order
        gc.collect()
        assert [int(batch["n_id"].sum()) for batch in kept] == sums[1::2]


def test_batches_outlive_channel_pool_and_hub() -> None:
    """CONTRACT 23, 29: what was given stays the user's, a single row of it too."""
    rows: list[Any] = []
    with twins(workers=2) as pair:
        pair.register("one")
        kept = hoard(pair, range(1))
        rows = [(batch["x"][1:2], batch["x"][1:2].copy()) for batch in kept]
        pair.backend.unregister_input("one")
        check_again(pair, kept)
        del kept
        pair.backend.shutdown()
        gc.collect()
        for view, copy in rows:
            assert view.tobytes() == copy.tobytes()


def test_a_hoarder_does_not_hold_up_others() -> None:
    """CONTRACT 9, 23."""
    with twins(workers=1) as pair:
        pair.register("one")
        pair.register("other", seed=5)
        kept = hoard(pair, range(2))
        assert pair.read("other", 0) == 16
        kept += hoard(pair, range(2, 3))
        assert pair.read("other", 1) == 16
        assert len(kept) == 48
