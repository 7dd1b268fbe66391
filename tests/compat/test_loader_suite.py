"""What PyG's tests of loaders look at: with our classes, and with PyG's own over our kernels."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(find_spec("torch_geometric") is None, reason="it is about PyG")
ROOT = Path(__file__).parents[2]
# PyG has torch_sparse sample these; `install(induced=True)` is for them.
INDUCED = {"homogeneous_induced_int64", "homogeneous_induced_int32", "heterogeneous_induced"}


@pytest.fixture(scope="module")
def outcome() -> tuple[dict[str, dict[str, Any]], str]:
    """What failed each way, and the tracebacks."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.compat.loader_suite"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("way", ["ours", "induced"])
def test_all_of_it_holds(outcome: tuple[dict[str, Any], str], way: str) -> None:
    failed, traces = outcome
    assert not failed[way], traces


def test_all_but_induced_samples_holds_without_torch_sparse(
    outcome: tuple[dict[str, Any], str],
) -> None:
    failed, traces = outcome
    assert failed["pyg"].keys() == INDUCED, traces
    refusals = failed["pyg"].values()
    assert all("requires either 'pyg-lib' or 'torch-sparse'" in each for each in refusals)
