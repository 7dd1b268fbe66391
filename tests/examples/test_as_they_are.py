"""Every example runs as it is: without arguments, from any folder, which it leaves as it was."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.examples.running import EXAMPLES, PATIENCE_S, command

pytestmark = pytest.mark.usefixtures("no_leaks")

# Those of several processes take long as they are; with fewer batches they have tests of their own.
LONG: Final = ("ddp", "ddp_server", "ray_train", "resume")
NAMES: Final = [
    pytest.param(path.stem, marks=[pytest.mark.soak] if path.stem in LONG else [])
    for path in sorted(EXAMPLES.glob("*.py"))
]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_without_arguments(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        command(name), cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    assert [*tmp_path.iterdir()] == []
    assert bool(done.stdout) == (name != "graphs")  # which only makes what the others train on
    assert "Traceback" not in done.stderr
