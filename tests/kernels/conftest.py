"""Fixtures of the kernels' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.kernels import simd
from penstock.kernels.instruction_sets import use_simd


@pytest.fixture
def simd_restored() -> Iterator[None]:
    """Puts back the vector instructions that were in use before."""
    before = simd().in_use
    yield
    use_simd(before)


@pytest.fixture(scope="module", params=simd().available)
def each_simd(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs a test once with each of the vector instructions that are here.

    A test asks for it by the mark in `each_simd.py`. The fixture is a module's, since Hypothesis
    wants none that is made anew for each test; tests without the mark run with any of them.
    """
    before = simd().in_use
    use_simd(request.param)
    yield
    use_simd(before)
