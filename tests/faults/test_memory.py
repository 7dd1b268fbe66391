"""Workers and memory: those that leak are replaced unseen, those that explode meet their limit.

"Out of memory" is said when the kernel says so, or our own limit; never because of a SIGKILL alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock import WorkerDied
from tests.faults.houses import errors_of, group_name, house, moody, outcomes
from tests.faults.orders import Order, arm
from tests.faults.processes import group, numbers
from tests.faults.rank import rank
from tests.faults.twins import PATIENCE_S, Twins, twins
from tests.processes import wait_until_gone
from tests.workers.groups import small_group

pytestmark = pytest.mark.usefixtures("no_leaks")

MB = 1 << 20
HARD = 160 * MB


def what_became_of_batch_3(pair: Twins) -> WorkerDied:
    """Reads an epoch in which that one alone goes wrong."""
    pair.start("one", 0)
    for _ in range(3):
        assert pair.next("one") is not None
    with pytest.raises(WorkerDied) as caught:
        pair.backend.next_batch("one", PATIENCE_S)
    assert pair.inline.next_batch("one") is not None
    assert pair.finish("one") == 12
    return caught.value


def test_a_worker_that_leaks_is_replaced_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRACT 52: over its soft limit it finishes what it has and goes; nobody is lost."""
    arm(monkeypatch, Order("sampling", f"leak:{4 * MB}"))
    with twins(workers=2, soft_memory=64 * MB, beat_every=0.02) as pair:
        pair.register("one")
        epoch = replaced = 0
        while replaced < 4:
            assert epoch < 200
            assert pair.read("one", epoch) == 16
            epoch += 1
            replaced = group(pair.backend)["retired"].get("memory", 0)
        assert group(pair.backend)["lost"] == 0
        assert group(pair.backend)["killed"] == {}


def test_a_worker_that_explodes_once_costs_nobody_anything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CONTRACT 18, 52: its batch is made again by another."""
    fault = Order("sampling", "fill-memory", {"index": 3}, tmp_path / "struck")
    arm(monkeypatch, fault)
    with twins(workers=2, hard_memory=HARD) as pair:
        pair.register("one")
        assert pair.read("one", 0) == 16
        assert fault.struck
        assert group(pair.backend)["lost"] == 1


def test_a_batch_that_explodes_each_time_says_which_limit_it_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CONTRACT 49, 52: our own limit struck, so it is out of memory; and the machine lives."""
    arm(monkeypatch, Order("writing", "fill-memory", {"index": 3}))
    with twins(workers=1, hard_memory=HARD) as pair:
        pair.register("one", max_attempts=2)
        story = str(what_became_of_batch_3(pair))
        assert group(pair.backend)["lost"] == 2
        peaks = [worker["private"] for worker in numbers(pair.backend)["pool"]["workers"]]
        assert max(peaks) < HARD
    assert "out of memory: it met its own hard limit of 160.0 MiB" in story
    held = re.search(r"with ([\d.]+) MiB in hand", story)
    assert held is not None
    assert 100 < float(held[1]) <= 160


def test_a_sampler_of_the_users_own_that_explodes_says_so_too() -> None:
    """CONTRACT 52: in NumPy's memory, a worker of another group; one that recovers is forgiven."""
    acts = (2, "explodes"), (4, "swallows_its_lack_of_memory")
    with house(hard_memory=HARD) as pair, moody(pair, *acts) as backend:
        failed = errors_of(outcomes(backend))
        assert group(backend, group_name(pair))["lost"] == 1
        assert pair.read("good", 0) == 16
    assert list(failed) == [2]
    assert isinstance(failed[2], WorkerDied)
    assert "out of memory: it met its own hard limit of 160.0 MiB" in str(failed[2])


def test_a_worker_killed_by_somebody_is_not_said_to_be_out_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CONTRACT 49: SIGKILL alone is no sign of memory pressure, with limits or without."""
    arm(monkeypatch, Order("sampling", "signal:SIGKILL", {"index": 3}))
    with twins(workers=1, hard_memory=HARD) as pair:
        pair.register("one", max_attempts=1)
        story = str(what_became_of_batch_3(pair))
    assert "SIGKILL, no sign of memory pressure" in story
    assert "out of memory" not in story


def test_a_worker_that_the_kernel_killed_for_memory_is_said_to_be_out_of_it() -> None:
    """CONTRACT 49: in a control group, whose counter moved. No limit of ours was set."""
    fault = Order("sampling", "fill-memory", {"index": 3})
    with small_group() as group:
        plan: dict[str, Any] = {"group": str(group), "channel_options": {"max_attempts": 1}}
        with rank(fault, workers=1, until_error=True, **plan) as victim:
            family = victim.hear()
            story = victim.hear()["error"]
            victim.finish()
        wait_until_gone([family["hub"], *family["workers"]])
    assert "out of memory: the kernel killed it" in story
    assert "oom_kill counter of its control group moved" in story
