"""The benchmark of the pool runs, on a graph that is small, and every figure is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RATIOS = [
    *("one worker", "two workers", "two processes"),
    *("many channels", "paused consumer", "replacement"),
]

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.mark.soak
def test_every_figure_is_measured(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks/pool.py"), "--small", "--json"),
            *("--batches", "16", "--repeats", "2", "--kills", "2", "--idle-seconds", "0.1"),
            *("--folder", str(tmp_path)),
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
        assert len(result[name]["quartiles"]) == 2
    assert result["memory"]["private_megabytes_per_worker"] > 0
    assert result["idle"]["processes"] == 9
