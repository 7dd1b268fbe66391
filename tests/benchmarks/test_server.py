"""The benchmark of servers runs, on a graph that is small, and the figures are there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The others are made of these.
RATIOS = ["same host", "moving", "many ranks", "request"]

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_figures_are_measured(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks/server.py"), "--small", "--json"),
            *("--batches", "6", "--repeats", "2", "--seconds", "0.2", "--ranks-at-once", "4"),
            *("--open", "5", "--folder", str(tmp_path), "--only", ",".join([*RATIOS, "channels"])),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for name in RATIOS:
        assert result[name]["ratio"] > 0
    assert 0 < result["many ranks"]["jain"] <= 1
    assert result["channels"]["channels"] == 5
