"""Ray Train: ranks of which one is killed get the batches of ranks that all live."""

from __future__ import annotations

import pytest

from tests.examples.running import command, run

# Ray starts some twenty processes, twice.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}


def test_ranks_go_on_from_a_checkpoint_after_one_was_killed() -> None:
    pytest.importorskip("ray.train.torch")
    unbroken = run(command("ray_train"), **QUIET)
    broken = run(command("ray_train", "--die-at", 12), **QUIET)
    found = [line for line in unbroken if line.startswith("rank ")]
    assert len(found) == 2
    assert all("18 batches" in line for line in found)
    assert [line for line in broken if line.startswith("rank ")] == found
    # Behind Ray's own words; it keeps checkpoints beside the training, so the last may be missing.
    assert any(f"going on after {step} batches" in line for line in broken for step in (5, 10))
