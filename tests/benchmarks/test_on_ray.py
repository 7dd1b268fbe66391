"""The benchmark of stores on Ray runs, on a graph that is small, and the figures are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.running import measured

pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("no_leaks")]


def test_figures_are_measured(tmp_path: Path) -> None:
    few = ("--batches", "12", "--repeats", "2", "--deaths", "1")
    result = measured("on_ray.py", tmp_path, *few)
    assert result["overhead"]["ratio"] > 0
    assert 0 <= result["overhead"]["share_of_ray"] < 1
    dead = result["death"]
    assert dead["cold_starts"] == dead["first_batch_after"] / dead["cold_start"]
    assert 0 < dead["declared_dead_after"] <= dead["started_after"] <= dead["ready_after"]
