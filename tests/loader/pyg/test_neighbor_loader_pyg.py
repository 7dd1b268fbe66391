"""Drop-in to the last byte: where all neighbours are taken, batches equal those of PyG's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMES = [
    *(
        f"{kind}, {name}"
        for kind in ("homogeneous", "heterogeneous", "narrow", "narrow types")
        for name in (
            "plain",
            "disjoint",
            "induced",
            "bidirectional",
            "in time",
            "the latest",
            "without the last",
            "joined in the rank",
        )
    ),
    "disjoint links",
    "links with labels",
    "links in time",
]


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """What differs, for each case."""
    pytest.importorskip("torch")
    command = [sys.executable, "-W", "ignore", "-m", "tests.loader.oracle"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=250, check=True)
    answers: dict[str, list[str]] = json.loads(done.stdout)
    return answers


def test_all_cases_were_looked_at(found: dict[str, list[str]]) -> None:
    assert list(found) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_equals_pyg_s(name: str, found: dict[str, list[str]]) -> None:
    """CONTRACT 42."""
    assert found[name] == []
