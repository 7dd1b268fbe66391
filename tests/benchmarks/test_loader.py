"""The benchmark of loaders runs, on a graph that is small, and every figure is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric")

ROOT = Path(__file__).parents[2]
RATIOS = ["one worker", "two workers", "first batch"]
# All but the rate of the loader by hand: its processes take seconds to start, and the time to its
# first batch is measured on the same ones.
FIGURES = [*RATIOS, "memory", "growth"]

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.mark.soak
def test_every_figure_is_measured(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks/loader.py"), "--small", "--json"),
            *("--batches", "2", "--repeats", "2", "--starts", "1", "--epochs", "2"),
            *("--folder", str(tmp_path), *(f"--only={name}" for name in FIGURES)),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert list(result) == FIGURES
    for name in RATIOS:
        assert result[name]["ratio"] > 0
        assert len(result[name]["quartiles"]) == 2
    assert 0 <= result["memory"]["share_of_the_data"] <= result["memory"]["share_with_slots"]
    assert result["memory"]["megabytes_of_data"] > 70
    assert result["growth"]["ratio_of_many"] > 0
    assert result["growth"]["epochs"] == 2
