"""Batches beside those of PyG's own loaders, which have our kernels for a sampler: all the same.

Every case is in `agreement`, which compares class, stores, names, dtypes, shapes and values.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    find_spec("torch_geometric") is None, reason="PyG is what is compared with"
)

ROOT = Path(__file__).parents[3]
# They are known without importing PyG, which must find our kernels first.
CASES = re.findall(
    r'^    "(.+)": (?:nodes|links)\(', (ROOT / "tests/loader/agreement.py").read_text(), re.M
)


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """Where batches differ, by case."""
    command = [sys.executable, "-m", "tests.loader.agreement"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    differences: dict[str, list[str]] = json.loads(done.stdout)
    return differences


def test_all_cases_were_compared(found: dict[str, list[str]]) -> None:
    assert CASES
    assert list(found) == CASES


@pytest.mark.parametrize("case", CASES)
def test_a_batch_is_what_pyg_would_give(case: str, found: dict[str, list[str]]) -> None:
    """CONTRACT 42, 44: PyG's names, with PyG's meaning; types not reached have no rows."""
    assert found[case] == []
