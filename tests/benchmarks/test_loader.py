"""The benchmark of loaders runs, on a graph that is small, and every figure is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.running import measured

pytest.importorskip("torch_geometric")

RATIOS = ["one worker", "two workers", "first batch"]
# All but the rate of the loader by hand: its processes take seconds to start, and the time to its
# first batch is measured on the same ones.
FIGURES = [*RATIOS, "memory", "growth"]

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.mark.soak
def test_every_figure_is_measured(tmp_path: Path) -> None:
    result = measured(
        "loader.py",
        tmp_path,
        *("--batches", "2", "--repeats", "2", "--starts", "1", "--epochs", "2"),
        *(f"--only={name}" for name in FIGURES),
    )
    assert list(result) == FIGURES
    for name in RATIOS:
        assert result[name]["ratio"] > 0
        assert len(result[name]["quartiles"]) == 2
    assert 0 <= result["memory"]["share_of_the_data"] <= result["memory"]["share_with_slots"]
    assert result["memory"]["megabytes_of_data"] > 70
    assert result["growth"]["ratio_of_many"] > 0
    assert result["growth"]["epochs"] == 2
