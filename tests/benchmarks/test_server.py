"""The benchmark of servers runs, on a graph that is small, and the figures are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.running import measured

# The others are made of these.
RATIOS = ["same host", "moving", "many ranks", "request"]

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_figures_are_measured(tmp_path: Path) -> None:
    result = measured(
        "server.py",
        tmp_path,
        *("--batches", "6", "--repeats", "2", "--seconds", "0.2", "--ranks-at-once", "4"),
        *("--open", "5", "--only", ",".join([*RATIOS, "channels"])),
    )
    for name in RATIOS:
        assert result[name]["ratio"] > 0
    assert 0 < result["many ranks"]["jain"] <= 1
    assert result["channels"]["channels"] == 5
