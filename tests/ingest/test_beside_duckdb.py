"""Penstock and DuckDB in one process: both have native modules of nanobind's."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("no_leaks")

# With a fan-out beyond all memory, sampling fails.
SCRIPT = """
import duckdb
import numpy as np
from penstock.kernels import Adjacency, KHop, Relation

rows = Adjacency(np.array([0, 1, 1, 2, 2, 4, 4]), np.array([3, 0, 1, 5]))
sampler = KHop([6], [Relation(rows, (1, 2**61))], replace=True)
try:
    sampler.sample(1, [np.array([5, 4, 2, 1])])
except (MemoryError, ValueError) as error:
    print(type(error).__module__)
"""


def test_an_error_of_the_kernels_is_not_taken_for_one_of_duckdb() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("builtins", "")
