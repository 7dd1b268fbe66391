"""The benchmark of the kernels runs, and reports what it says it does. How fast is not asked."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

from penstock.kernels import simd

ROOT = Path(__file__).parents[2]
RATIOS = {
    "ratio",
    "ratio_quartile_low",
    "ratio_quartile_high",
    "milliseconds",
    "floor_milliseconds",
}
SAMPLING = RATIOS | {"ratio_to_best_floor", "best_floor_milliseconds"}
FIGURES = {
    "gathering": RATIOS,
    "cold": {"import_numpy_seconds", "open_and_first_batch_seconds"},
}
COUNTS = {"edges_per_batch", "nodes_per_batch", "expanded_per_batch"}


def test_the_benchmark_of_the_kernels_reports_all_its_figures(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "kernels.py"
    options = ["--small", "--repeats", "3", "--json", "--folder", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(script), *options], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    sampling = report.pop("sampling")
    assert {way: set(figures) for way, figures in sampling.items()} == dict.fromkeys(
        simd().available, SAMPLING
    )
    assert set(report) == COUNTS | set(FIGURES)
    assert all(report[count] > 0 for count in COUNTS)
    assert {name: set(report[name]) for name in FIGURES} == FIGURES
    groups = [*sampling.values(), *(report[name] for name in FIGURES)]
    values = [value for figures in groups for value in figures.values()]
    assert all(math.isfinite(value) and value > 0 for value in values)
