"""A reader may keep whatever it was given."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

from penstock.client.hub.hub_process import HubProcess
from penstock.errors import BatchTooLarge
from tests.client.graphs import (
    PATIENCE_S,
    STEPS,
    TERMS,
    backend_of,
    channel_of,
    digests,
    expected,
    read,
    rest,
    small_graph,
)

pytestmark = pytest.mark.usefixtures("no_leaks")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 8])
def test_every_batch_of_several_epochs_can_be_kept(slots: int, pool: HubProcess) -> None:
    """CONTRACT 23: nothing deadlocks, nothing is overwritten, no file stays open."""
    with backend_of(pool) as backend:
        backend.register_input("a", "train", **{**TERMS, "slots": slots})
        kept = read(backend, "a", 0)
        gc.collect()  # what others have left must not go, and be counted, meanwhile
        files = open_files()
        for epoch in range(1, 4):
            kept += read(backend, "a", epoch)
            assert open_files() == files
        wanted = [found for epoch in range(4) for found in expected(pool.graph, epoch)]
        assert digests(kept) == wanted


@pytest.mark.parametrize("kind", ["memfd", "named"])
def test_giants_can_be_kept_too(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRACT 21, 23: each in memory of its own, and no descriptor stays open."""
    monkeypatch.setenv("PENSTOCK_SHARED_MEMORY", kind)
    with small_graph() as graph, backend_of(graph, num_workers=1) as backend:
        backend.register_input("a", "train", **TERMS, buffer_size="16KB")
        kept = read(backend, "a", 0)
        gc.collect()
        files = open_files()
        kept += read(backend, "a", 1)
        assert open_files() == files
        assert digests(kept) == expected(graph, 0) + expected(graph, 1)


def test_a_reader_that_lets_go_gets_no_copies(pool: HubProcess) -> None:
    """The usual loop holds one batch while it asks for the next."""
    with backend_of(pool) as backend:
        backend.register_input("a", "train", **TERMS)
        backend.start_new_epoch_sampling("a", 0)
        for batch in rest(backend, "a"):
            assert not batch.copied
        assert channel_of(backend, "a").statistics().copied == 0


def test_a_reader_that_holds_on_gets_copies_from_then_on(pool: HubProcess) -> None:
    """CONTRACT 23: memory is then copied out, and the slot goes back at once."""
    with backend_of(pool) as backend:
        backend.register_input("a", "train", **TERMS)
        kept = read(backend, "a", 0)
        assert [batch.copied for batch in kept] == [False] * 2 + [True] * (STEPS - 2)
        assert channel_of(backend, "a").statistics().held == 2
        del kept
        assert channel_of(backend, "a").statistics().held == 0


def test_a_slot_goes_back_with_the_last_array_made_from_its_batch(pool: HubProcess) -> None:
    """CONTRACT 23: in whatever way it was made."""
    with backend_of(pool) as backend:
        backend.register_input("a", "train", **TERMS)
        backend.start_new_epoch_sampling("a", 0)
        batch = backend.next_batch("a", timeout=PATIENCE_S)
        assert batch is not None
        part = np.asarray(memoryview(batch["x"])).T[1:]
        del batch
        channel = channel_of(backend, "a")
        assert channel.statistics().held == 1
        del part
        assert channel.statistics().held == 0


def test_a_batch_past_the_limit_names_the_size_and_the_setting() -> None:
    """CONTRACT 21: for that batch alone; the next ones come."""
    with small_graph() as graph:
        for workers in (0, 1):
            with backend_of(graph, num_workers=workers) as backend:
                backend.register_input(
                    "a", "train", **TERMS, buffer_size="16KB", max_batch_bytes="5KB"
                )
                backend.start_new_epoch_sampling("a", 0)
                for _ in range(STEPS):
                    with pytest.raises(BatchTooLarge, match=r"needs \d+ bytes.*max_batch_bytes"):
                        backend.next_batch("a", timeout=PATIENCE_S)
                assert backend.next_batch("a", timeout=PATIENCE_S) is None
                assert backend.is_channel_epoch_done("a", 0)


def test_shared_memory_is_not_mapped_any_more_once_all_is_let_go() -> None:
    gc.collect()  # what other tests have left is not ours to count
    with small_graph() as graph:
        before = mapped_memfds()
        with backend_of(graph, num_workers=1) as backend:
            backend.register_input("a", "train", **TERMS)
            kept = read(backend, "a", 0)
        assert mapped_memfds() > before
        del kept
        assert mapped_memfds() == before


def mapped_memfds() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:")
