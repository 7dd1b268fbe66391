"""Which vector instructions are used: what is said of them, and what the environment decides."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock import kernels
from penstock.kernels.instruction_sets import use_simd

ALL = ["avx512", "avx2", "neon", "plain"]
ASK = "from penstock import kernels; print(kernels.simd().in_use)"


@pytest.fixture(autouse=True)
def _back_to_before(simd_restored: None) -> None:
    """Whatever a test chooses, the next one has what was there before."""


def started_with(value: str | None) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that imports the kernels and says what they use."""
    environment = {name: word for name, word in os.environ.items() if name != "PENSTOCK_SIMD"}
    if value is not None:
        environment["PENSTOCK_SIMD"] = value
    return subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, timeout=60
    )


def test_what_is_in_use_is_available_and_plain_loops_always_are() -> None:
    simd = kernels.simd()
    assert simd.in_use in simd.available
    assert simd.available[-1] == "plain"
    assert [way for way in ALL if way in simd.available] == list(simd.available)


def test_each_that_is_available_can_be_used() -> None:
    for way in kernels.simd().available:
        use_simd(way)
        assert kernels.simd().in_use == way
    use_simd("auto")
    assert kernels.simd().in_use == kernels.simd().available[0]


def test_one_that_is_not_there_is_refused_and_changes_nothing() -> None:
    before = kernels.simd()
    missing = [way for way in ALL if way not in before.available]
    for way in [*missing, "sse9", "", "AVX2"]:
        with pytest.raises(ValueError, match=r"^name is '.*': the kernels have .*plain on this"):
            use_simd(way)
    assert kernels.simd() == before


@pytest.mark.parametrize("value", [None, "", "auto"])
def test_the_best_is_used_unless_the_environment_names_another(value: str | None) -> None:
    assert started_with(value).stdout.split() == [kernels.simd().available[0]]


def test_the_environment_names_another() -> None:
    assert started_with("plain").stdout.split() == ["plain"]


def test_the_kernels_cannot_be_imported_with_one_that_is_not_there() -> None:
    done = started_with("sse9")
    assert done.returncode == 1
    told = done.stderr.strip().splitlines()[-1]
    assert told == (
        "ValueError: PENSTOCK_SIMD is 'sse9': the kernels have "
        f"{', '.join(kernels.simd().available)} on this machine; use one of them, or auto"
    )
