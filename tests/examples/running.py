"""Examples as users run them, or, where a process of its own would show no more, in this one."""

from __future__ import annotations

import io
import os
import runpy
import subprocess
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # they warn of themselves while being imported
    torch = pytest.importorskip("torch")
    nn = pytest.importorskip("torch_geometric.nn")
    from examples.graphs import citations, planetoid  # noqa: F401 - for tests
    from penstock import NeighborLoader  # noqa: F401 - for tests

# Threads that torch has started stay, and would pass for leaks.
torch.set_num_threads(1)

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 250.0


def command(name: str, *args: object) -> list[str]:
    """The line that users type."""
    return [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, args)]


def run(line: Sequence[str], **environment: str) -> list[str]:
    """What a process printed, line by line, if all went well."""
    done = subprocess.run(
        line, capture_output=True, text=True, timeout=PATIENCE_S, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def run_here(name: str, *args: object) -> list[str]:
    """What an example printed; in this process, which has torch already, hence quicker."""
    line, printed = command(name, *args)[1:], io.StringIO()
    with pytest.MonkeyPatch.context() as shell, redirect_stdout(printed), torch.random.fork_rng():
        shell.setattr(sys, "argv", line)
        shell.setattr(sys, "path", [str(EXAMPLES), *sys.path])
        runpy.run_path(line[0], run_name="__main__")
    return printed.getvalue().splitlines()


def number_in(line: str) -> float:
    """The last word of a line, as a number; of a percentage, the share."""
    word = line.split()[-1]
    return float(word[:-1]) / 100 if word.endswith("%") else float(word)
