"""The benchmark of the scheduler runs, and reports what it says it does. How fast is not asked."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIGURES = {"batches_per_second", "growth", "growth_least", "growth_most", "ratio_to_floor"}


def test_the_benchmark_of_the_scheduler_reports_all_its_figures() -> None:
    script = ROOT / "benchmarks" / "scheduler.py"
    options = ["--batches", "50", "--rounds", "2", "--json"]
    done = subprocess.run(
        [sys.executable, str(script), *options], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {size: set(figures) for size, figures in report.items()} == {
        "10": FIGURES,
        "1000": FIGURES,
        "10000": FIGURES,
    }
    values = [value for figures in report.values() for value in figures.values()]
    assert all(math.isfinite(value) and value > 0 for value in values)
    assert report["10"]["growth"] == 1
