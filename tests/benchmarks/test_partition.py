"""The benchmark of cutting runs, and reports what it says it does. How fast is not asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_benchmark_of_cutting_reports_all_its_figures(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "partition.py"
    options = ["--small", "--rounds", "1", "--folder", str(tmp_path), "--json"]
    done = subprocess.run(
        [sys.executable, str(script), *options], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    report = found["cutting"]
    assert {"range-parts-2", "hash-parts-7", "given-parts-7", "hash-whole-2"} <= report.keys()
    for name, row in report.items():
        assert row["speed_least"] <= row["speed"] <= row["speed_most"]
        # Parts are lean, in the layout where each has the edges of its own nodes.
        assert row["size"] < 1.25 or "whole" in name
    rows = found["locality"]["block model"]["2 parts"]
    assert rows.keys() == {"range", "hash", "locality", "streaming"}
    for method in ("locality", "streaming"):
        assert rows[method]["cut_over_hash"] < 0.6
        assert rows[method]["rows_over_hash"] < 0.9
        assert rows[method]["bytes_over_hash"] < 0.9
        assert rows[method]["nodes"] <= 1.05
    assert not any(tmp_path.iterdir())
