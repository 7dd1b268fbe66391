"""Benchmarks as people run them, in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def measured(script: str, folder: Path, *options: str) -> Any:
    """What a benchmark says of a small graph, which it keeps in the folder."""
    command = [sys.executable, str(BENCHMARKS / script), "--small", "--json", *options]
    done = subprocess.run(
        [*command, "--folder", str(folder)], cwd=folder, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
