"""What `penstock demo` says before it starts anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli import main


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_a_usage_error(seed: int) -> None:
    done = CliRunner().invoke(main, ["demo", "--seed", str(seed)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"'--seed': {seed} is not in the range 0<=x<={2**64 - 1}" in " ".join(
        done.stderr.split()
    )


@pytest.mark.parametrize("missing", ["torch", "torch_geometric"])
def test_without_pyg_the_demo_says_so_before_it_makes_a_graph(missing: str, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    kept, output = tmp_path / "sbm.graph", tmp_path / "out"
    options = ["demo", "--keep", str(kept), "--output", str(output)]
    script = (
        f"import sys; sys.modules[{missing!r}] = None;"
        f"from penstock.cli import main; main({options!r})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (1, "", [])
    assert done.stderr == (
        f"Error: the demo trains with PyTorch and PyG (no module named {missing}): "
        "pip install 'penstock-gnn[demo]'\n"
    )


def test_the_process_that_watches_imports_no_torch() -> None:
    script = (
        "import sys, penstock.cli.demo; print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False False\n"
