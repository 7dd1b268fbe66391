"""The benchmark of looking up ids runs, and reports what it says it does. How fast is not asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "ids.py"


def test_the_benchmark_of_ids_reports_all_its_figures() -> None:
    command = [sys.executable, str(SCRIPT), "--small", "--repeats", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report.keys() == {"numbers", "text"}
    for told in report.values():
        for name in ("filled", "found", "missing"):
            assert told[f"{name}_ratio"] > 0
            assert told[f"{name}_ns"] > 0
