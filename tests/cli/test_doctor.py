"""`penstock doctor`, run as people run it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

import penstock
from penstock import __version__
from penstock.cli import main
from penstock.cli.doctor import Report, _show
from penstock.doctor.findings import Finding, Severity
from penstock.doctor.measure import FAN_OUTS
from tests.cli.servers import COMMAND
from tests.doctor.machines import FINE

pytestmark = pytest.mark.usefixtures("no_leaks")


def run_without(
    *missing: str, options: list[str], first: str = "pass"
) -> subprocess.CompletedProcess[str]:
    """Runs the command where importing these modules fails, after a script."""
    script = (
        f"import sys; {first}; sys.modules.update(dict.fromkeys({missing!r}));"
        f"from penstock.cli import main; main({['doctor', *options]!r})"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def told_by(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_it_tells_facts_figures_and_findings_as_json() -> None:
    command = [COMMAND, "doctor", "--json", "--seconds", "0.05", "--ranks", "3"]
    done = subprocess.run(command, capture_output=True, text=True)
    told = told_by(done)
    assert (done.returncode, told["works"], told["facts"]["ranks"]) == (0, True, 3)
    assert told["facts"]["versions"]["penstock"] == __version__
    assert told["figures"]["subject"]["fan_outs"] == [*FAN_OUTS]
    assert told["figures"]["inline"]["edges"] > 0
    assert told["figures"]["pool"]["workers"] == told["workers"]
    assert {each["severity"] for each in told["findings"]} <= {"fine", "note", "problem"}


def test_without_torch_it_says_what_there_is() -> None:
    done = run_without("torch", options=["--no-measure"])
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    assert (done.returncode, done.stderr) == (0, "")
    assert (lines[0], "Findings" in lines) == ("This machine", True)
    assert not any(line.startswith("Measured") for line in lines)
    assert "no torch" in lines[1]
    assert "torch: torch is not installed" in done.stdout
    assert lines[-1].startswith("Penstock works here; ")


def test_without_torch_it_measures() -> None:
    done = run_without("torch", options=["--seconds", "0.05"])
    assert (done.returncode, done.stderr) == (0, "")
    assert "not measured: there is no torch" in done.stdout
    assert "failed" not in done.stdout


def test_without_the_native_module_it_says_so_and_exits_with_1(tmp_path: Path) -> None:
    copy = tmp_path / "penstock"
    leave = shutil.ignore_patterns("_native.*.so", "__pycache__")
    shutil.copytree(Path(penstock.__file__).parent, copy, ignore=leave, copy_function=os.symlink)
    # Nothing but this folder may say where penstock is: a checkout is installed by a finder.
    finders = "BuiltinImporter, FrozenImporter, PathFinder"
    script = (
        f"from importlib.machinery import {finders};"
        f"sys.meta_path[:] = [{finders}]; sys.path.insert(0, {str(tmp_path)!r})"
    )
    done = run_without("torch", options=["--json"], first=script)
    told = told_by(done)
    assert (done.returncode, told["works"], told["figures"]) == (1, False, None)
    first = told["findings"][0]
    assert (first["subject"], first["stops"]) == ("native module", True)
    assert f"there is no _native{EXTENSION_SUFFIXES[0]} in {copy / 'kernels'}" in first["found"]
    assert told["summary"].startswith("Penstock does not work here: the native module")


def test_lines_end_where_their_words_do_and_advice_can_be_copied() -> None:
    done = run_without("torch", options=["--no-measure"])
    lines = done.stdout.splitlines()
    assert lines == [line.rstrip() for line in lines]
    assert any(line.endswith("-> pip install 'penstock-gnn[pyg]'") for line in lines)


def test_in_a_narrow_terminal_words_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    told = StringIO()
    narrow = Console(file=told, width=40, markup=False, highlight=False)
    monkeypatch.setattr("penstock.cli.doctor.plain_console", lambda: narrow)
    finding = Finding(Severity.NOTE, "cores", "word " * 20, "reason " * 20, "command " * 20)
    _show(Report(True, "works", 1, FINE, None, (finding,)))
    lines = told.getvalue().splitlines()
    advice = next(line for line in lines if "->" in line)
    assert advice.split() == ["->", *["command"] * 20]
    assert max(len(line) for line in lines if line != advice) <= 40
    assert told.getvalue().split().count("reason") == 20


def test_no_time_to_measure_is_a_usage_error() -> None:
    done = CliRunner().invoke(main, ["doctor", "--seconds", "0"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--seconds" in done.stderr
