"""Real workers with real faults, in the middle of a batch: what the pool makes of them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.core.events import KillReason
from penstock.sampling.spec import CustomSpec
from penstock.wire.messages import BatchId, Done, OutOfMemory
from penstock.workers import child
from penstock.workers.arena import Arena
from penstock.workers.autopsy import examine
from tests.workers.pools import PATIENCE_S, Rehearsal, begin_a_batch, rehearsal

pytestmark = pytest.mark.usefixtures("no_leaks")


@contextmanager
def struck(
    stage: str, action: str, once: Path | None = None, **settings: Any
) -> Iterator[tuple[Rehearsal, BatchId]]:
    """A worker that has begun the batch in which the fault strikes."""
    fault = {"stage": stage, "action": action, "once": None if once is None else str(once)}
    faults = json.dumps([fault])
    with rehearsal(environment={"PENSTOCK_FAULTS": faults}, **settings) as pool:
        with Arena.create(1, 1 << 20, 1 << 20) as arena:
            batch = begin_a_batch(pool, pool.start_ready(1), arena)
            yield pool, batch


def test_a_segfault_in_the_middle_of_a_batch_shows_its_python_stack() -> None:
    """CONTRACT 49: the Python stack, of a real crash in native code."""
    with struck("sampling", "segfault") as (stage, _):
        autopsy = examine(stage.until_ended(1))
    assert autopsy.cause == "SIGSEGV"
    assert autopsy.stacks is not None
    assert autopsy.stacks.reason == "Segmentation fault"
    assert "string_at" in autopsy.stacks.stacks[0].frames[0]


@pytest.mark.parametrize("action", ["hang", "hang-native"])
def test_a_batch_that_hangs_shows_where(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 51: past its deadline, stacks dumped; also where native code keeps the lock."""
    monkeypatch.setattr(child, "STACKS_WITHIN", PATIENCE_S)  # however busy the machine is
    with struck("sampling", action, once=tmp_path / "struck") as (stage, _):
        stage.until((tmp_path / "struck").exists, every=0.01)
        stage.pool.kill(1, KillReason.DEADLINE)
        autopsy = examine(stage.until_ended(1))
    assert autopsy.ended.exit.signal == signal.SIGKILL
    assert autopsy.stacks is not None
    assert any("faults.py" in frame for frame in autopsy.stacks.stacks[0].frames)


def test_a_worker_that_fills_memory_meets_its_limit_and_says_so() -> None:
    """CONTRACT 52: over the hard limit it ends, and the error says which limit struck."""
    with struck("sampling", "fill-memory", hard_memory=256 << 20) as (stage, batch):
        autopsy = examine(stage.until_ended(1))
        assert stage.until_heard(OutOfMemory).batch == batch
    assert autopsy.out_of_memory
    assert "hard limit of 256.0 MiB" in autopsy.verdict


def test_a_flood_of_output_holds_up_neither_the_worker_nor_the_hub() -> None:
    with struck("sampling", "flood") as (stage, batch):
        assert stage.until_heard(Done).batch == batch
        assert stage.pool.workers[1].output.total > 8 << 20


def test_a_worker_killed_after_its_message_has_done_its_batch() -> None:
    """CONTRACT 18: the message was complete, so the batch counts."""
    with struck("after-message", "signal:SIGKILL") as (stage, batch):
        stage.until_ended(1)
        assert stage.until_heard(Done).batch == batch


def test_a_worker_killed_in_the_middle_of_its_message_has_not() -> None:
    """CONTRACT 18: half a message is none."""
    with struck("mid-message", "signal:SIGKILL") as (stage, _):
        stage.until_ended(1)
        assert not any(isinstance(message, Done) for message in stage.messages)


def test_a_sampler_that_cannot_be_loaded_is_told_before_the_worker_is_ready() -> None:
    """CONTRACT 53: the cause of a death at the start."""
    with rehearsal() as stage:
        stage.pool.start(1, "mine", CustomSpec(sampler="no_such_module:Sampler"))
        autopsy = examine(stage.until_ended(1))
    assert autopsy.cause == "its sampler cannot be loaded"
    assert "no_such_module" in autopsy.text()
