"""The benchmark of the pool runs, on a graph that is small, and every figure is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.running import measured

RATIOS = [
    *("one worker", "two workers", "two processes"),
    *("many channels", "paused consumer", "replacement"),
]

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.mark.soak
def test_every_figure_is_measured(tmp_path: Path) -> None:
    result = measured(
        "pool.py",
        tmp_path,
        *("--batches", "16", "--repeats", "2", "--kills", "2", "--idle-seconds", "0.1"),
    )
    for name in RATIOS:
        assert result[name]["ratio"] > 0
        assert len(result[name]["quartiles"]) == 2
    assert result["memory"]["private_megabytes_per_worker"] > 0
    assert result["idle"]["processes"] == 9
